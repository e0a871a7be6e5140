//! Snapshots that somebody asked for: kept under a name until they are deleted, and what a new
//! pool can begin from.
//!
//! They are made like those of the log, by replay, and in the same format; but they are no part of
//! the log, which neither needs nor purges them. `desk` takes them, one at a time; a
//! [`SnapshotStore`] keeps them, one file per implementation; `restore` makes the beginning of a
//! pool of one.
//!
//! A snapshot is there when its [`Manifest`] is, which comes last. What an interruption leaves has
//! no manifest: nobody sees it, and the next start removes it.

#[cfg(all(test, feature = "object-store"))]
mod conformance;
mod desk;
mod folder;
mod manifest;
mod name;
#[cfg(feature = "object-store")]
mod object;
mod restore;
mod store;

use std::sync::Arc;

pub use manifest::{MANIFEST_FILE, Manifest};
pub use name::{BadName, SnapshotName};
pub use restore::{RestoreError, read_folder};
pub use store::StoreError;

pub(crate) use desk::{Refusal, SnapshotDesk};
pub(crate) use restore::{Beginning, restore};
pub(crate) use store::SnapshotStore;

use crate::config::{Config, FromSnapshotConfig, ObjectStoreConfig};
use folder::FolderStore;

/// The folder of snapshots in that of a master's state.
const FOLDER: &str = "snapshots";

/// Starts what takes snapshots.
///
/// # Errors
/// [`StoreError`]: the files that are named are not usable.
pub(crate) async fn start(config: &Config) -> Result<SnapshotDesk, StoreError> {
    Ok(desk::keep(desk::Where {
        pool: config.pool.clone(),
        master: config.name.clone(),
        staging: folder(config).staging(),
        store: open(config).await?,
    }))
}

/// Where a master keeps what it takes.
///
/// # Errors
/// [`StoreError`]: the files that are named are not usable.
async fn open(config: &Config) -> Result<Arc<dyn SnapshotStore>, StoreError> {
    match &config.snapshots.object_store {
        Some(store) => object_store(store).await,
        None => Ok(Arc::new(folder(config))),
    }
}

/// Where the snapshot is that a pool begins from.
async fn open_from(
    config: &Config,
    from: &FromSnapshotConfig,
) -> Result<Arc<dyn SnapshotStore>, StoreError> {
    match (&from.folder, &from.object_store) {
        (Some(folder), _) => Ok(Arc::new(FolderStore::new(folder.clone(), &config.name))),
        (None, Some(store)) => object_store(store).await,
        (None, None) => open(config).await,
    }
}

/// The folder of this master, which is also where snapshots are made that are then sent away.
fn folder(config: &Config) -> FolderStore {
    let named = config.snapshots.folder.clone();
    let root = named.unwrap_or_else(|| config.state_dir.join(FOLDER));
    FolderStore::new(root, &config.name)
}

#[cfg(feature = "object-store")]
async fn object_store(config: &ObjectStoreConfig) -> Result<Arc<dyn SnapshotStore>, StoreError> {
    Ok(Arc::new(object::ObjectStore::s3(config).await?))
}

#[cfg(not(feature = "object-store"))]
#[expect(
    clippy::unused_async,
    reason = "it has the shape of the one that reads the files of a key"
)]
async fn object_store(config: &ObjectStoreConfig) -> Result<Arc<dyn SnapshotStore>, StoreError> {
    Err(StoreError::NotBuilt {
        bucket: config.bucket.clone(),
    })
}
