//! What a master is told of snapshots that are kept under a name, and of the one that its pool
//! begins from.

use std::path::PathBuf;

use serde::Deserialize;

use super::ConfigError;
use crate::snapshots::SnapshotName;

/// Where snapshots are kept; `state_dir/snapshots` if nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SnapshotsConfig {
    /// In this folder; made if missing. Not with `object_store`.
    pub folder: Option<PathBuf>,
    /// In this object store.
    pub object_store: Option<ObjectStoreConfig>,
}

/// An object store that speaks the protocol of S3.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectStoreConfig {
    /// `http://host:port` or `https://host:port`; that of the region at AWS without it.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// The region; stores outside AWS mostly take any.
    #[serde(default = "region")]
    pub region: String,
    /// The bucket, which is there.
    pub bucket: String,
    /// What the names of all objects begin with. No two pools may share one.
    #[serde(default)]
    pub prefix: String,
    /// A file with the id of the access key.
    pub access_key_id_file: PathBuf,
    /// A file with the secret of the access key.
    pub secret_access_key_file: PathBuf,
    /// Certificates (PEM) that the store's is judged by; those of the machine without it.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
}

fn region() -> String {
    "us-east-1".to_owned()
}

/// What a pool begins with that has no log yet. Without effect on one that has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BootstrapConfig {
    /// The tenants and quotas of this snapshot.
    pub from_snapshot: Option<FromSnapshotConfig>,
}

/// A snapshot and where it is: where `snapshots` keeps them, unless this says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FromSnapshotConfig {
    /// Its name.
    pub name: SnapshotName,
    /// In this folder.
    #[serde(default)]
    pub folder: Option<PathBuf>,
    /// In this object store.
    #[serde(default)]
    pub object_store: Option<ObjectStoreConfig>,
}

fn refuse(key: &'static str, what: &str) -> Result<(), ConfigError> {
    Err(ConfigError::Value {
        key,
        what: what.to_owned(),
    })
}

impl SnapshotsConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        check(
            "snapshots",
            self.folder.is_some(),
            self.object_store.as_ref(),
        )
    }
}

impl BootstrapConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.from_snapshot.as_ref().map_or(Ok(()), |from| {
            let key = "bootstrap.from_snapshot";
            check(key, from.folder.is_some(), from.object_store.as_ref())
        })
    }
}

fn check(
    key: &'static str,
    has_folder: bool,
    store: Option<&ObjectStoreConfig>,
) -> Result<(), ConfigError> {
    let Some(store) = store else { return Ok(()) };
    if has_folder {
        return refuse(key, "must name a folder or an object store, not both");
    }
    if !cfg!(feature = "object-store") {
        let what = "must name a folder: this master was built without the feature `object-store`; \
                    use the one of the image";
        return refuse(key, what);
    }
    if store.bucket.is_empty() {
        return refuse(key, "must name a bucket of its object store");
    }
    let is_url = |url: &String| url.starts_with("http://") || url.starts_with("https://");
    if !store.endpoint.as_ref().is_none_or(is_url) {
        return refuse(
            key,
            "must give the endpoint as http://host:port or https://host:port",
        );
    }
    Ok(())
}
