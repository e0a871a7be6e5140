//! Names, labels, ports and paths of everything that the operator makes.

use kube::ResourceExt;
use larder_crds::CachePool;
use ring::digest::{SHA256, digest};

/// The field manager of every server-side apply, and the value of `managed-by`.
pub const MANAGER: &str = "larder-operator";
/// On every child: who made it. Watches select by it.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// On every child of a pool: the pool's name.
pub const LABEL_POOL: &str = "larder.dev/pool";
/// On every child of a pool: the pool's uid, so that a later pool of the same name takes nothing
/// over.
pub const LABEL_POOL_UID: &str = "larder.dev/pool-uid";
/// On children without a namespace: the pool's namespace.
pub const LABEL_POOL_NAMESPACE: &str = "larder.dev/pool-namespace";
/// `master` or `agent`.
pub const LABEL_COMPONENT: &str = "app.kubernetes.io/component";
/// A member node carries this prefix and the pool's uid as a label; its value is the pool's name.
pub const NODE_LABEL_PREFIX: &str = "pool.larder.dev/";
/// What the operator last applied, as a hash: tells that a field was dropped.
pub const ANNOTATION_APPLIED: &str = "larder.dev/applied";
/// On pod templates: hash of the configuration, so that a change rolls the pods.
pub const ANNOTATION_CONFIG: &str = "larder.dev/config";
/// Keeps a pool until its labels on nodes and its cluster-wide binding are gone.
pub const POOL_FINALIZER: &str = "larder.dev/pool";
/// Keeps a tenant until its master has forgotten it.
pub const TENANT_FINALIZER: &str = "larder.dev/tenant";
/// Keeps a CacheSnapshot until its file is deleted.
pub const SNAPSHOT_FINALIZER: &str = "larder.dev/snapshot";

/// Port of a master for clients and agents.
pub const MASTER_PORT: u16 = 7400;
/// Port of a master for metrics, probes and administration.
pub const MASTER_ADMIN_PORT: u16 = 7401;
/// Port of an agent for clients and other agents.
pub const AGENT_PORT: u16 = 7410;
/// Port of an agent for metrics and probes.
pub const AGENT_METRICS_PORT: u16 = 7411;

/// On nodes: the folder that holds one folder of sockets per pool.
pub const SOCKET_ROOT: &str = "/run/larder";
/// On nodes: the folder that holds one state folder per pool.
pub const STATE_ROOT: &str = "/var/lib/larder";
/// The file name of an agent's socket.
pub const SOCKET_FILE: &str = "agent.sock";

/// Longest `<namespace>.<pool>` as a folder name, in bytes. The socket's path must stay below the
/// kernel's 107: `/run/larder/` has 12 and `/agent.sock` 11, so 80 leave 4.
const FOLDER_BYTES_MAX: usize = 80;

/// Namespace, name and uid of a pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid: one life of that name.
    pub uid: String,
}

impl PoolId {
    /// Of an object that the API server returned.
    #[must_use]
    pub fn of(pool: &CachePool) -> Self {
        Self {
            namespace: pool.namespace().unwrap_or_default(),
            name: pool.name_any(),
            uid: pool.uid().unwrap_or_default(),
        }
    }

    /// The audience of tokens that this pool's masters take. Each pool has its own: whoever runs
    /// one, and so hears tokens, can show them to no other.
    #[must_use]
    pub fn audience(&self) -> String {
        format!("larder.{}.{}", self.namespace, self.name)
    }

    /// `<namespace>/<name>`, for messages and maps.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The masters: StatefulSet, ServiceAccount, client Service, ConfigMap, disruption budget.
    #[must_use]
    pub fn master(&self) -> String {
        format!("{}-master", self.name)
    }

    /// The headless Service under which masters have names.
    #[must_use]
    pub fn masters(&self) -> String {
        format!("{}-masters", self.name)
    }

    /// The agents: DaemonSet, ServiceAccount, RoleBinding, ConfigMap.
    #[must_use]
    pub fn agent(&self) -> String {
        format!("{}-agent", self.name)
    }

    /// The ConfigMap with who is who.
    #[must_use]
    pub fn identity(&self) -> String {
        format!("{}-identity", self.name)
    }

    /// The ConfigMap with the tenants that exist when a master starts.
    #[must_use]
    pub fn tenants(&self) -> String {
        format!("{}-tenants", self.name)
    }

    /// The Secret with the root of the capability keys. It carries the start of the uid, so that
    /// a pool of the same name never works with the key of an earlier one.
    #[must_use]
    pub fn root_key(&self) -> String {
        let start: String = self.uid.chars().take(8).collect();
        format!("{}-root-key-{start}", self.name)
    }

    /// The ClusterRoleBinding that lets masters review tokens.
    #[must_use]
    pub fn cluster_binding(&self) -> String {
        format!("larder-master-{}", self.uid)
    }

    /// The label key of member nodes.
    #[must_use]
    pub fn node_label(&self) -> String {
        format!("{NODE_LABEL_PREFIX}{}", self.uid)
    }

    /// One master of several, from 0: its pod, and its name in the pool.
    #[must_use]
    pub fn master_pod(&self, ordinal: u32) -> String {
        format!("{}-{ordinal}", self.master())
    }

    /// The masters' host inside the cluster: whichever of them is ready.
    #[must_use]
    pub fn master_host(&self) -> String {
        format!("{}.{}.svc", self.master(), self.namespace)
    }

    /// The host that stands for the addresses of all masters, ready or not.
    #[must_use]
    pub fn masters_host(&self) -> String {
        format!("{}.{}.svc", self.masters(), self.namespace)
    }

    /// `host:port` of one master of several. It stays when the pod is made again.
    #[must_use]
    pub fn master_addr(&self, ordinal: u32) -> String {
        let pod = self.master_pod(ordinal);
        format!("{pod}.{}:{MASTER_PORT}", self.masters_host())
    }

    /// What clients and agents are given to find the masters: each of several by its own name,
    /// since a Service that chooses one may choose the same standby again and again.
    #[must_use]
    pub fn master_addrs(&self, masters: u32) -> Vec<String> {
        if masters == 1 {
            return vec![format!("{}:{MASTER_PORT}", self.master_host())];
        }
        (0..masters).map(|one| self.master_addr(one)).collect()
    }

    /// The folder of the pool's socket on each node, which engine pods mount. It depends on
    /// namespace and name only: an engine's manifest survives that the pool is made again.
    #[must_use]
    pub fn socket_folder(&self) -> String {
        let full = format!("{}.{}", self.namespace, self.name);
        if full.len() <= FOLDER_BYTES_MAX {
            return format!("{SOCKET_ROOT}/{full}");
        }
        // No dot, so it is never the folder of a shorter pair.
        format!(
            "{SOCKET_ROOT}/{}-{}",
            self.name,
            &hash(full.as_bytes())[..16]
        )
    }

    /// The folder of an agent's state. By uid: a new life of a name starts without.
    #[must_use]
    pub fn state_folder(&self) -> String {
        format!("{STATE_ROOT}/{}", self.uid)
    }
}

/// Longest name of a node that can be a member, in bytes: a CacheNode is named
/// `<pool>-<node>`, a pool's name has at most 40 bytes and an object's 253.
pub const NODE_NAME_BYTES_MAX: usize = 212;

/// Name of the CacheNode of a pool on a node. Agents form the same from their arguments.
#[must_use]
pub fn cache_node(pool: &str, node: &str) -> String {
    format!("{pool}-{node}")
}

/// SHA-256 in hexadecimal.
#[must_use]
pub fn hash(bytes: &[u8]) -> String {
    let digest = digest(&SHA256, bytes);
    digest.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(namespace: &str, name: &str) -> PoolId {
        PoolId {
            namespace: namespace.into(),
            name: name.into(),
            uid: "0a1b2c3d-4e5f".into(),
        }
    }

    #[test]
    fn the_socket_fits_the_kernel() {
        for (namespace, name) in [(63, 40), (1, 1), (39, 40), (40, 40)] {
            let pool = pool(&"n".repeat(namespace), &"p".repeat(name));
            let path = format!("{}/{SOCKET_FILE}", pool.socket_folder());
            assert!(path.len() <= 107, "{path}");
        }
        let long = "n".repeat(60);
        assert_ne!(
            pool(&long, &"p".repeat(40)).socket_folder(),
            pool(&"m".repeat(60), &"p".repeat(40)).socket_folder()
        );
    }

    #[test]
    fn names_fit_their_kinds() {
        let pool = pool("apps", &"p".repeat(40));
        assert!(pool.master().len() + "-0-0123456789".len() <= 63);
        assert!(pool.root_key().len() <= 253);
        assert_eq!(cache_node("small", "n1"), "small-n1");
        assert!(cache_node(&"p".repeat(40), &"n".repeat(NODE_NAME_BYTES_MAX)).len() <= 253);
    }
}
