//! Where the snapshots of a pool are kept and which one it begins from, checked.

use serde_json::{Map, Value, json};

use crate::problem::Problem;
use crate::snapshot::{Bootstrap, ObjectStore, Snapshots};

/// Where a master finds the keys of the object store.
const KEYS_FOLDER: &str = "/etc/larder/object-store";

/// What a pool's spec says of snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotsSettings {
    /// The object store; `None` means the volume of each master.
    pub object_store: Option<ObjectStoreSettings>,
    /// The snapshot that the pool begins from.
    pub from: Option<FromSettings>,
}

/// An object store with everything said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectStoreSettings {
    /// Where it is; `None` means that of the region at AWS.
    pub endpoint: Option<String>,
    /// The region.
    pub region: String,
    /// The bucket.
    pub bucket: String,
    /// What names begin with.
    pub prefix: String,
    /// The Secret with `accessKeyId` and `secretAccessKey`.
    pub secret: String,
}

impl ObjectStoreSettings {
    /// Where a master's pod has that Secret.
    pub const KEYS_FOLDER: &str = KEYS_FOLDER;

    fn section(&self) -> Value {
        let mut section = json!({
            "region": self.region,
            "bucket": self.bucket,
            "prefix": self.prefix,
            "access_key_id_file": format!("{KEYS_FOLDER}/accessKeyId"),
            "secret_access_key_file": format!("{KEYS_FOLDER}/secretAccessKey"),
        });
        if let Some(endpoint) = &self.endpoint {
            section["endpoint"] = json!(endpoint);
        }
        section
    }
}

/// A snapshot that a pool begins from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FromSettings {
    /// Its name.
    pub name: String,
    /// The folder that it is in, without a cluster.
    pub folder: Option<String>,
}

impl SnapshotsSettings {
    /// Adds the parts `snapshots` and `bootstrap` to a master's configuration, where there is
    /// anything to say. Keys of an object store are only there in a pod.
    pub(super) fn sections(&self, in_cluster: bool, sections: &mut Map<String, Value>) {
        if let Some(store) = self.object_store.as_ref().filter(|_| in_cluster) {
            let section = json!({ "object_store": store.section() });
            sections.insert("snapshots".to_owned(), section);
        }
        if let Some(from) = &self.from {
            let mut snapshot = json!({ "name": from.name });
            if let Some(folder) = from.folder.as_ref().filter(|_| !in_cluster) {
                snapshot["folder"] = json!(folder);
            }
            let section = json!({ "from_snapshot": snapshot });
            sections.insert("bootstrap".to_owned(), section);
        }
    }
}

/// What the two parts of a spec come to; with problems it is of no use.
pub(super) fn of(
    (namespace, name): (&str, &str),
    snapshots: Option<&Snapshots>,
    bootstrap: Option<&Bootstrap>,
    problems: &mut Vec<Problem>,
) -> SnapshotsSettings {
    let store = snapshots.and_then(|snapshots| snapshots.object_store.as_ref());
    let from = bootstrap.and_then(|bootstrap| bootstrap.from_snapshot.as_ref());
    if let Some(from) = from
        && store.is_none()
        && from.folder.is_none()
    {
        let message = "needs spec.snapshots.objectStore, where the snapshot is looked for";
        problems.push(Problem::new("spec.bootstrap.fromSnapshot", message));
    }
    SnapshotsSettings {
        object_store: store.map(|store| object_store(store, namespace, name)),
        from: from.map(|from| FromSettings {
            name: from.name.clone(),
            folder: from.folder.clone(),
        }),
    }
}

fn object_store(store: &ObjectStore, namespace: &str, name: &str) -> ObjectStoreSettings {
    let prefix = store.prefix.clone();
    ObjectStoreSettings {
        endpoint: store.endpoint.clone(),
        region: store
            .region
            .clone()
            .unwrap_or_else(|| "us-east-1".to_owned()),
        bucket: store.bucket.clone(),
        prefix: prefix.unwrap_or_else(|| format!("{namespace}/{name}")),
        secret: store.credentials_secret.name.clone(),
    }
}
