//! Keys, certificates and kubeconfigs of the cluster: every connection is TLS, every component
//! has a name of its own.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use serde_json::json;

use super::network::{API_SERVICE, CONTROL_PLANE};

/// Who signs the components.
pub(crate) const CLUSTER: &str = "cluster-ca";
/// Who signs the API server when it speaks for others to extensions.
pub(crate) const FRONT_PROXY: &str = "front-proxy-ca";
/// What signs the tokens of ServiceAccounts.
pub(crate) const TOKENS: &str = "tokens";
/// Who may do everything.
const ADMINISTRATORS: &str = "system:masters";

/// Whom a certificate names.
#[derive(Clone, Debug, Default)]
struct Subject<'a> {
    name: &'a str,
    group: Option<&'a str>,
    dns: Vec<&'a str>,
    addresses: Vec<IpAddr>,
}

/// The folder of keys and certificates, `NAME.key` and `NAME.crt` each.
#[derive(Clone, Debug)]
pub(crate) struct Pki {
    folder: PathBuf,
}

impl Pki {
    /// The keys in a folder.
    pub(crate) fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The path of a certificate.
    pub(crate) fn certificate(&self, name: &str) -> String {
        self.folder
            .join(format!("{name}.crt"))
            .display()
            .to_string()
    }

    /// The path of a key.
    pub(crate) fn key(&self, name: &str) -> String {
        self.folder
            .join(format!("{name}.key"))
            .display()
            .to_string()
    }

    /// The path of a public key that is in no certificate.
    pub(crate) fn public_key(&self, name: &str) -> String {
        self.folder
            .join(format!("{name}.pub"))
            .display()
            .to_string()
    }

    /// Makes the authorities and everything of the control plane.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn create(&self) -> Result<()> {
        fs::create_dir_all(&self.folder)?;
        for authority in [CLUSTER, FRONT_PROXY] {
            let key = KeyPair::generate()?;
            let certificate = authority_of(authority)?.self_signed(&key)?;
            self.keep(authority, &key, &certificate.pem())?;
        }
        let server = "kubernetes.default.svc.cluster.local";
        self.issue(
            CLUSTER,
            "apiserver",
            &Subject {
                name: "kube-apiserver",
                dns: vec![
                    "kubernetes",
                    "kubernetes.default",
                    "kubernetes.default.svc",
                    server,
                    "localhost",
                ],
                addresses: vec![
                    IpAddr::from([127, 0, 0, 1]),
                    CONTROL_PLANE.into(),
                    API_SERVICE.into(),
                ],
                ..Subject::default()
            },
        )?;
        let client = |name, group| Subject {
            name,
            group,
            ..Subject::default()
        };
        let masters = Some(ADMINISTRATORS);
        for (authority, file, subject) in [
            (CLUSTER, "admin", client("cluster-admin", masters)),
            (
                CLUSTER,
                "apiserver-to-kubelet",
                client("kube-apiserver", masters),
            ),
            (FRONT_PROXY, "front-proxy", client("front-proxy", None)),
            (
                CLUSTER,
                "controller-manager",
                client("system:kube-controller-manager", None),
            ),
            (CLUSTER, "scheduler", client("system:kube-scheduler", None)),
            (CLUSTER, "proxy", client("system:kube-proxy", None)),
            (CLUSTER, "coredns", client("system:coredns", None)),
        ] {
            self.issue(authority, file, &subject)?;
        }
        let tokens = KeyPair::generate()?;
        secret(Path::new(&self.key(TOKENS)), &tokens.serialize_pem())?;
        super::machine::write(Path::new(&self.public_key(TOKENS)), tokens.public_key_pem())
    }

    /// Makes what a node's kubelet shows, to the API server and to its own callers.
    ///
    /// # Errors
    /// If a file cannot be read or written.
    pub(crate) fn issue_node(&self, node: &str, address: IpAddr) -> Result<()> {
        self.issue(
            CLUSTER,
            node,
            &Subject {
                name: &format!("system:node:{node}"),
                group: Some("system:nodes"),
                dns: vec![node],
                addresses: vec![address],
            },
        )
    }

    /// Writes a kubeconfig for one of the certificates.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn kubeconfig(&self, path: &Path, user: &str, server: &str) -> Result<()> {
        let cluster =
            json!({ "server": server, "certificate-authority": self.certificate(CLUSTER) });
        let credentials = json!({
            "client-certificate": self.certificate(user), "client-key": self.key(user)
        });
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "larder",
            "clusters": [{ "name": "larder", "cluster": cluster }],
            "users": [{ "name": user, "user": credentials }],
            "contexts": [{ "name": "larder", "context": { "cluster": "larder", "user": user } }],
        });
        secret(path, &serde_json::to_string_pretty(&text)?)
    }

    /// Writes a kubeconfig for a bearer of a token, with the server of another kubeconfig.
    ///
    /// # Errors
    /// If a file cannot be read or written.
    pub(crate) fn kubeconfig_of_token(path: &Path, other: &Path, token: &str) -> Result<()> {
        let text = fs::read_to_string(other)
            .with_context(|| format!("{} cannot be read", other.display()))?;
        let mut config: serde_json::Value = serde_json::from_str(&text)?;
        config["users"] = json!([{ "name": "bearer", "user": { "token": token } }]);
        config["contexts"][0]["context"]["user"] = json!("bearer");
        secret(path, &serde_json::to_string_pretty(&config)?)
    }

    fn issue(&self, authority: &str, file: &str, subject: &Subject<'_>) -> Result<()> {
        // A node may come long after its authority was made, in another process.
        let text = fs::read_to_string(self.key(authority))
            .with_context(|| format!("the key of {authority} is gone; run: cluster up"))?;
        let issuer = Issuer::new(authority_of(authority)?, KeyPair::from_pem(&text)?);
        let mut params = named(subject.name)?;
        if let Some(group) = subject.group {
            params
                .distinguished_name
                .push(DnType::OrganizationName, group);
        }
        for name in &subject.dns {
            params
                .subject_alt_names
                .push(SanType::DnsName((*name).try_into()?));
        }
        let addresses = subject
            .addresses
            .iter()
            .map(|address| SanType::IpAddress(*address));
        params.subject_alt_names.extend(addresses);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?;
        self.keep(file, &key, &certificate.pem())
    }

    fn keep(&self, name: &str, key: &KeyPair, certificate: &str) -> Result<()> {
        secret(Path::new(&self.key(name)), &key.serialize_pem())?;
        super::machine::write(Path::new(&self.certificate(name)), certificate)
    }
}

fn authority_of(name: &str) -> Result<CertificateParams> {
    let mut params = named(name)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    Ok(params)
}

fn named(name: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

/// Writes a file that only its owner reads.
fn secret(path: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    let mut options = fs::File::options();
    let file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path);
    let mut file = file.with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(file.write_all(text.as_bytes())?)
}
