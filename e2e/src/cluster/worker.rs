//! A node: containerd, a kubelet and the proxy for Services, configured to share one machine.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::command::{Look, run, until};
use super::control_plane::{self, kubebox, kubeconfig};
use super::group::ROOT;
use super::machine::{Daemon, Machine, PODS, Site, installed, write};
use super::network::{CONTROL_PLANE, node_address, pods_of};
use super::packages;
use super::pki::{CLUSTER, Pki};

/// The image of every pod's first process; it is built with the programs.
pub(crate) const PAUSE_IMAGE: &str = "localhost/larder-pause:1";

const SOCKET: &str = "/run/containerd/containerd.sock";
const START_LIMIT: Duration = Duration::from_secs(60);

/// A node of a site.
#[derive(Clone, Debug)]
pub(crate) struct Worker<'s> {
    /// 1 and up; names and addresses follow from it.
    pub(crate) number: u8,
    /// The emulated machine.
    pub(crate) machine: Machine<'s>,
}

impl<'s> Worker<'s> {
    /// The node of a number.
    pub(crate) fn of(site: &'s Site, number: u8) -> Self {
        Self {
            number,
            machine: Machine {
                name: format!("n{number}"),
                site,
            },
        }
    }

    /// Its address.
    pub(crate) fn address(&self) -> Ipv4Addr {
        node_address(self.number)
    }

    /// The object that stands for it. It is made before its kubelet comes, which adds the rest.
    pub(crate) fn object(&self, zones: u8) -> Value {
        let zone = (self.number - 1) % zones + 1;
        let pods = pods_of(self.number);
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": self.machine.name, "labels": {
                "topology.kubernetes.io/region": "local",
                "topology.kubernetes.io/zone": format!("zone-{zone}"),
            } },
            "spec": { "podCIDR": pods, "podCIDRs": [pods] },
        })
    }

    /// Writes its configuration and an empty disk.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn lay_out(&self) -> Result<()> {
        let (machine, site) = (&self.machine, self.machine.site);
        let folder = machine.folder();
        machine.lay_out()?;
        let pki = Pki::at(site.folders.pki());
        pki.issue_node(&machine.name, self.address().into())?;
        let user = machine.name.as_str();
        pki.kubeconfig(
            &folder.join("kubelet.kubeconfig"),
            user,
            &control_plane::server(),
        )?;
        write(
            &folder.join("resolv.conf"),
            format!("nameserver {CONTROL_PLANE}\n"),
        )?;
        write(
            &folder.join("cni/10-pods.conflist"),
            pods_network(self.number).to_string(),
        )?;
        write(
            &folder.join("containerd.toml"),
            containerd_settings(&folder)?,
        )?;
        write(
            &folder.join("kubelet.json"),
            self.kubelet_settings(&pki).to_string(),
        )?;
        write(
            &folder.join("proxy.json"),
            self.proxy_settings().to_string(),
        )
    }

    /// Boots it, plugs it in and starts containerd, with the image that every pod needs.
    ///
    /// # Errors
    /// If one of them does not come up.
    pub(crate) fn boot(&self) -> Result<()> {
        let site = self.machine.site;
        self.machine.boot()?;
        super::network::plug_in(&control_plane::machine(site), &self.machine, self.number)?;
        self.start("containerd")?;
        let socket = self.machine.path(SOCKET)?;
        until(
            &format!("containerd on {}", self.machine.name),
            START_LIMIT,
            || {
                self.machine.check("containerd")?;
                Ok(Look::at(UnixStream::connect(&socket).map_err(Into::into)))
            },
        )?;
        self.import(&site.programs.join("pause.tar"))
    }

    /// Starts `containerd`, `kubelet` or `kube-proxy`.
    ///
    /// # Errors
    /// If it runs, or cannot be tried.
    pub(crate) fn start(&self, name: &'static str) -> Result<()> {
        let folder = self.machine.folder();
        let file = |name: &str| folder.join(name).display().to_string();
        let site = self.machine.site;
        let daemon = match name {
            "kubelet" => kubebox(
                site,
                name,
                vec![
                    format!("--config={}", file("kubelet.json")),
                    format!("--kubeconfig={}", file("kubelet.kubeconfig")),
                    format!("--hostname-override={}", self.machine.name),
                    format!("--node-ip={}", self.address()),
                ],
            ),
            "kube-proxy" => kubebox(site, name, vec![format!("--config={}", file("proxy.json"))]),
            _ => Daemon {
                name,
                program: installed(name)?,
                arguments: vec!["--config".to_owned(), file("containerd.toml")],
            },
        };
        self.machine.start(&daemon)
    }

    /// Loads an image.
    ///
    /// # Errors
    /// If the file cannot be read or is no image.
    pub(crate) fn import(&self, archive: &Path) -> Result<()> {
        // As its standard input: the node need not see the path.
        let file = File::open(archive)
            .with_context(|| format!("the image {} cannot be read", archive.display()))?;
        let mut import = self.machine.inside()?;
        import
            .arg(installed("ctr")?)
            .args(["--namespace", "k8s.io", "images", "import", "-"]);
        run(import.stdin(Stdio::from(file)))
            .with_context(|| format!("the image does not load on {}", self.machine.name))?;
        Ok(())
    }

    fn kubelet_settings(&self, pki: &Pki) -> Value {
        let name = &self.machine.name;
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
            "tlsCertFile": pki.certificate(name), "tlsPrivateKeyFile": pki.key(name),
            "authentication": {
                "anonymous": { "enabled": false }, "webhook": { "enabled": true },
                "x509": { "clientCAFile": pki.certificate(CLUSTER) },
            },
            "authorization": { "mode": "Webhook" },
            "clusterDNS": [CONTROL_PLANE], "clusterDomain": "cluster.local",
            "resolvConf": self.machine.folder().join("resolv.conf"),
            // By default a folder of the whole machine, under /usr.
            "volumePluginDir": "/var/lib/kubelet/volume-plugins",
            // A kubelet takes its root for the machine's; each has one of its own below ours.
            "cgroupDriver": "cgroupfs", "cgroupRoot": format!("/{ROOT}/{name}/{PODS}"),
            "enforceNodeAllocatable": [],
            // From 1.35 on a kubelet refuses hierarchies of v1 unless it is told not to.
            "failCgroupV1": false,
            "failSwapOn": false,
            // Lowering it needs a privilege that root lacks in some sandboxes.
            "oomScoreAdj": 0,
            "nodeStatusUpdateFrequency": "5s", "nodeLeaseDurationSeconds": 16,
            // The disk is the whole machine's: how full it is says nothing about the node.
            "evictionHard": {
                "imagefs.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
            },
            "imageGCHighThresholdPercent": 100,
        })
    }

    fn proxy_settings(&self) -> Value {
        let user = kubeconfig(self.machine.site, "proxy");
        json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
            "clientConnection": { "kubeconfig": user },
            "hostnameOverride": self.machine.name, "mode": "nftables",
            "clusterCIDR": super::network::PODS, "oomScoreAdj": 0,
            // Limits of the whole machine, which a network of one's own may not set.
            "conntrack": {
                "maxPerCore": 0, "min": 0,
                "tcpCloseWaitTimeout": "0s", "tcpEstablishedTimeout": "0s",
            },
        })
    }
}

/// A cable from the node to every pod. With a switch instead, two pods of one node would reach
/// each other past the node's rules, and an answer of a Service would come from a wrong address
/// unless the kernel has a module for just that.
fn pods_network(number: u8) -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "pods", "plugins": [
            { "type": "ptp", "ipMasq": false, "ipam": {
                "type": "host-local", "ranges": [[{ "subnet": pods_of(number) }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            } },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    })
}

fn containerd_settings(folder: &Path) -> Result<String> {
    let plugins: PathBuf = packages::cni().context("no network plugins; run: cluster packages")?;
    let quoted = |path: PathBuf| json!(path.display().to_string()).to_string();
    Ok([
        "version = 2".to_owned(),
        // Snapshotters of other file systems, and a folder /opt/containerd on the whole machine.
        "disabled_plugins = [\"io.containerd.snapshotter.v1.aufs\", \
         \"io.containerd.snapshotter.v1.btrfs\", \"io.containerd.snapshotter.v1.devmapper\", \
         \"io.containerd.snapshotter.v1.zfs\", \"io.containerd.internal.v1.opt\"]"
            .to_owned(),
        "[plugins.\"io.containerd.grpc.v1.cri\"]".to_owned(),
        format!("sandbox_image = \"{PAUSE_IMAGE}\""),
        "disable_apparmor = true".to_owned(),
        // As with kubelet's own.
        "restrict_oom_score_adj = true".to_owned(),
        "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]".to_owned(),
        "runtime_type = \"io.containerd.runc.v2\"".to_owned(),
        "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]".to_owned(),
        "SystemdCgroup = false".to_owned(),
        "[plugins.\"io.containerd.grpc.v1.cri\".cni]".to_owned(),
        format!("bin_dir = {}", quoted(plugins)),
        format!("conf_dir = {}", quoted(folder.join("cni"))),
        String::new(),
    ]
    .join("\n"))
}

/// The numbers of the nodes that were laid out, in order.
pub(crate) fn numbers(site: &Site) -> Vec<u8> {
    let folder = site.folders.machine(control_plane::NAME);
    let entries = folder.parent().and_then(|folder| folder.read_dir().ok());
    let names = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name());
    let number = |name: std::ffi::OsString| name.to_str()?.strip_prefix('n')?.parse().ok();
    let mut numbers: Vec<u8> = names.filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}
