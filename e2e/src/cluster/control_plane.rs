//! The control plane: etcd, the API server with its log of writes, two controllers, and DNS.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;

use super::machine::{Daemon, Machine, Site, write};
use super::network::{CONTROL_PLANE, PODS, SERVICES};
use super::pki::{CLUSTER, FRONT_PROXY, Pki, TOKENS};

/// Its host name.
pub(crate) const NAME: &str = "control-plane";
/// Where the API server listens, inside.
pub(crate) const API_PORT: u16 = 6443;
/// Where DNS says whether it knows all Services.
pub(crate) const DNS_READY_PORT: u16 = 8181;

const ETCD: &str = "http://127.0.0.1:2379";
const ETCD_PEERS: &str = "http://127.0.0.1:2380";
/// How long pods stay on a node that is lost. Kubernetes' own default is 300 s.
const EVICTION_S: u32 = 15;
/// How long a silent node counts as ready. Kubernetes' own default is 50 s.
const SILENCE_S: u32 = 20;

/// The control plane of a site.
pub(crate) fn machine(site: &Site) -> Machine<'_> {
    Machine {
        name: NAME.to_owned(),
        site,
    }
}

/// Where components inside reach the API server.
pub(crate) fn server() -> String {
    format!("https://{CONTROL_PLANE}:{API_PORT}")
}

/// Writes its configuration and disk.
///
/// # Errors
/// If a file cannot be written.
pub(crate) fn lay_out(site: &Site) -> Result<()> {
    let machine = machine(site);
    machine.lay_out()?;
    let pki = Pki::at(site.folders.pki());
    pki.create()?;
    let folder = machine.folder();
    for user in ["controller-manager", "scheduler", "proxy", "coredns"] {
        pki.kubeconfig(&kubeconfig(site, user), user, &server())?;
    }
    let zone = [
        ".:53 {".to_owned(),
        format!("  bind {CONTROL_PLANE}"),
        "  errors".to_owned(),
        format!("  ready {CONTROL_PLANE}:{DNS_READY_PORT}"),
        "  kubernetes cluster.local in-addr.arpa {".to_owned(),
        format!("    kubeconfig {}", kubeconfig(site, "coredns").display()),
        "    pods insecure".to_owned(),
        "  }".to_owned(),
        // Short: a test that scales something asks again at once.
        "  cache 2".to_owned(),
        "}\n".to_owned(),
    ];
    write(&folder.join("Corefile"), zone.join("\n"))?;
    write(&folder.join("audit.json"), audit_policy().to_string())
}

/// The kubeconfig of a component for use inside.
pub(crate) fn kubeconfig(site: &Site, user: &str) -> PathBuf {
    machine(site).folder().join(format!("{user}.kubeconfig"))
}

/// Who wrote what, without contents. Reviews are asked with `create` and store nothing.
fn audit_policy() -> serde_json::Value {
    json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
        "rules": [
            { "level": "None", "verbs": ["get", "list", "watch"] },
            { "level": "None", "resources": [
                { "group": "authentication.k8s.io", "resources": ["tokenreviews"] },
                { "group": "authorization.k8s.io" },
                // Signed and handed out; nothing is stored.
                { "group": "", "resources": ["serviceaccounts/token"] },
            ] },
            { "level": "Metadata" },
        ],
    })
}

/// What must run before anything can be asked.
pub(crate) fn store_and_api(site: &Site) -> [Daemon; 2] {
    [etcd(site), api_server(site)]
}

/// What asks the API server.
pub(crate) fn controllers(site: &Site) -> [Daemon; 3] {
    let folder = machine(site).folder();
    let dns = vec![
        "-conf".to_owned(),
        folder.join("Corefile").display().to_string(),
    ];
    [
        controller_manager(site),
        scheduler(site),
        kubebox(site, "coredns", dns),
    ]
}

/// A daemon of the one program that holds them all.
pub(crate) fn kubebox(site: &Site, name: &'static str, arguments: Vec<String>) -> Daemon {
    let arguments = std::iter::once(name.to_owned()).chain(arguments).collect();
    Daemon {
        name,
        program: site.programs.join("kubebox"),
        arguments,
    }
}

fn etcd(site: &Site) -> Daemon {
    let flags = vec![
        "--name=only".to_owned(),
        format!(
            "--data-dir={}",
            machine(site).folder().join("etcd").display()
        ),
        format!("--listen-client-urls={ETCD}"),
        format!("--advertise-client-urls={ETCD}"),
        format!("--listen-peer-urls={ETCD_PEERS}"),
        format!("--initial-advertise-peer-urls={ETCD_PEERS}"),
        format!("--initial-cluster=only={ETCD_PEERS}"),
        // Its data does not outlive the cluster; waiting for the disk is for those that do.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    kubebox(site, "etcd", flags)
}

fn api_server(site: &Site) -> Daemon {
    let pki = Pki::at(site.folders.pki());
    let folder = machine(site).folder();
    let mut flags = vec![
        format!("--etcd-servers={ETCD}"),
        format!("--advertise-address={CONTROL_PLANE}"),
        format!("--secure-port={API_PORT}"),
        format!("--service-cluster-ip-range={SERVICES}"),
        format!("--tls-cert-file={}", pki.certificate("apiserver")),
        format!("--tls-private-key-file={}", pki.key("apiserver")),
        "--allow-privileged=true".to_owned(),
        "--profiling=false".to_owned(),
        // Who is who: certificates, and tokens that it signs itself.
        format!("--client-ca-file={}", pki.certificate(CLUSTER)),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        format!("--service-account-key-file={}", pki.public_key(TOKENS)),
        format!("--service-account-signing-key-file={}", pki.key(TOKENS)),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        // What it asks of kubelets: logs, exec, metrics.
        format!(
            "--kubelet-certificate-authority={}",
            pki.certificate(CLUSTER)
        ),
        format!(
            "--kubelet-client-certificate={}",
            pki.certificate("apiserver-to-kubelet")
        ),
        format!("--kubelet-client-key={}", pki.key("apiserver-to-kubelet")),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        // A lost node's pods.
        format!("--default-not-ready-toleration-seconds={EVICTION_S}"),
        format!("--default-unreachable-toleration-seconds={EVICTION_S}"),
        // Who wrote what. Far more than a run of tests writes, and one file is simpler to follow.
        format!(
            "--audit-policy-file={}",
            folder.join("audit.json").display()
        ),
        format!("--audit-log-path={}", site.folders.audit_log().display()),
        "--audit-log-maxsize=4096".to_owned(),
    ];
    // Webhooks and extensions. They are called at their pods' addresses: nothing here knows the
    // addresses of Services, which exist on nodes only.
    flags.extend([
        "--enable-aggregator-routing=true".to_owned(),
        format!(
            "--requestheader-client-ca-file={}",
            pki.certificate(FRONT_PROXY)
        ),
        "--requestheader-allowed-names=front-proxy".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        format!(
            "--proxy-client-cert-file={}",
            pki.certificate("front-proxy")
        ),
        format!("--proxy-client-key-file={}", pki.key("front-proxy")),
    ]);
    kubebox(site, "kube-apiserver", flags)
}

/// How a controller reaches the API server, and asks it about its own callers. There is one of
/// each, so no election: its Lease would be noise in the log of writes.
fn as_user(site: &Site, user: &str) -> Vec<String> {
    let path = kubeconfig(site, user).display().to_string();
    let flags = [
        "--kubeconfig",
        "--authentication-kubeconfig",
        "--authorization-kubeconfig",
    ];
    let flags = flags.iter().map(|flag| format!("{flag}={path}"));
    flags
        .chain([
            "--leader-elect=false".to_owned(),
            "--profiling=false".to_owned(),
        ])
        .collect()
}

fn controller_manager(site: &Site) -> Daemon {
    let pki = Pki::at(site.folders.pki());
    let mut flags = as_user(site, "controller-manager");
    flags.extend([
        "--use-service-account-credentials=true".to_owned(),
        format!("--root-ca-file={}", pki.certificate(CLUSTER)),
        format!("--service-account-private-key-file={}", pki.key(TOKENS)),
        format!("--cluster-signing-cert-file={}", pki.certificate(CLUSTER)),
        format!("--cluster-signing-key-file={}", pki.key(CLUSTER)),
        // Nodes are made with their pods' addresses, which their numbers give.
        "--allocate-node-cidrs=false".to_owned(),
        format!("--cluster-cidr={PODS}"),
        format!("--service-cluster-ip-range={SERVICES}"),
        format!("--node-monitor-grace-period={SILENCE_S}s"),
        "--node-monitor-period=2s".to_owned(),
    ]);
    kubebox(site, "kube-controller-manager", flags)
}

fn scheduler(site: &Site) -> Daemon {
    kubebox(site, "kube-scheduler", as_user(site, "scheduler"))
}
