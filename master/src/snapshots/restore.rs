//! The beginning of a pool out of a snapshot: what it says of tenants and quotas.
//!
//! Its objects are left out. They name agents, slabs and extents of the past: an agent that still
//! lives may have given their space to others since, and a master that does not know of those
//! would give it out again while they are read. What agents hold, only their own records can tell,
//! and whether they are asked is for the recovery of a pool, not for a snapshot. A snapshot is of
//! use for what no agent knows: whose the pool is, and how much of it.

use std::io;
use std::path::{Path, PathBuf};

use larder_oplog::{SnapshotError, StdReadDisk, encode_ops, read_snapshot};
use larder_store::{Op, State};
use tokio::task::spawn_blocking;

use super::desk::read_again;
use super::{MANIFEST_FILE, Manifest, SnapshotName, StoreError, open_from};
use crate::config::{Config, FromSnapshotConfig};

/// Where the file is brought to; gone when it is read.
const FOLDER: &str = "bootstrap";
/// A pool begins with one entry, or a crash in between would leave a part of it. It has to fit into
/// a frame to another master, of a megabyte, with room to spare.
const ENTRY_BYTES_MAX: usize = 768 * 1024;

/// Why a pool does not begin from a snapshot. It does not begin empty instead.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// There is no such snapshot.
    #[error(
        "{location} is not there; name a snapshot that `larder snapshot list` shows, or leave \
         `bootstrap.from_snapshot` out to begin empty"
    )]
    Missing {
        /// Where it was looked for.
        location: String,
    },
    /// It was taken of another pool.
    #[error("{location} was taken of pool `{found}`, this pool is `{expected}`; name one of it")]
    OtherPool {
        /// Where it is.
        location: String,
        /// The pool that it was taken of.
        found: String,
        /// This pool.
        expected: String,
    },
    /// It is not what its manifest says.
    #[error("{location} is damaged: {what}; name another snapshot")]
    Damaged {
        /// Where it is.
        location: String,
        /// What is wrong.
        what: String,
    },
    /// Its file is damaged or newer than this program.
    #[error("the file of {location} cannot be used; name another snapshot")]
    File {
        /// Where it is.
        location: String,
        /// Why not.
        source: SnapshotError,
    },
    /// It has more than a pool can begin with.
    #[error(
        "the snapshot has {tenants} tenants, more than a pool begins with at once; leave \
         `bootstrap.from_snapshot` out and give the pool its tenants again"
    )]
    TooMany {
        /// Its tenants.
        tenants: usize,
    },
    /// The place where it is was not reached, or has no such thing.
    #[error("the snapshot that the pool begins from was not read")]
    Store(#[from] StoreError),
    /// The folder that it is brought to.
    #[error("{} cannot be used; check its folder, its rights and its room", .path.display())]
    Folder {
        /// Which file or folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The thread that read it ended.
    #[error("the thread that reads snapshots ended")]
    Thread(#[from] tokio::task::JoinError),
}

impl RestoreError {
    /// Whether the same can work later without anybody changing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::File { source, .. } => source.is_retryable(),
            Self::Folder { .. } => true,
            _ => false,
        }
    }
}

/// What a pool begins with.
#[derive(Debug, Default)]
pub(crate) struct Beginning {
    /// The generation of the snapshot: that of the pool has to be above it.
    pub(crate) above: u64,
    /// What makes its quotas and tenants.
    pub(crate) ops: Vec<Op>,
}

/// Reads the snapshot that a configuration names, and verifies all of it.
///
/// # Errors
/// [`RestoreError`]; the pool must not begin then.
pub(crate) async fn restore(
    config: &Config,
    from: &FromSnapshotConfig,
) -> Result<Beginning, RestoreError> {
    let store = open_from(config, from).await?;
    let location = store.location(&from.name);
    let Some(manifest) = store.manifest(&from.name).await? else {
        return Err(RestoreError::Missing { location });
    };
    judge(&manifest, &from.name, &config.pool, &location)?;
    let folder = config.state_dir.join(FOLDER);
    let at = folder.clone();
    spawn_blocking(move || make_anew(&at)).await??;
    let file = folder.join(manifest.file_name());
    store.fetch(&manifest, &file).await?;
    let read = spawn_blocking(move || {
        let read = read(&folder, &manifest, location);
        // It is of no use any more; what stays is removed by whoever begins another pool.
        drop(std::fs::remove_dir_all(&folder));
        read.map(|state| (state, manifest))
    });
    let (state, manifest) = read.await??;
    let tenants = state.tenants().count();
    let beginning = Beginning::of(&state).ok_or(RestoreError::TooMany { tenants })?;
    tracing::info!(
        name = %manifest.name,
        epoch = %manifest.epoch,
        digest = manifest.digest,
        tenants,
        quotas = state.quotas().count(),
        objects_left_out = state.objects(),
        "the pool begins from a snapshot"
    );
    // A large state takes a while to drop.
    spawn_blocking(move || drop(state)).await?;
    Ok(beginning)
}

fn judge(
    manifest: &Manifest,
    name: &SnapshotName,
    pool: &str,
    location: &str,
) -> Result<(), RestoreError> {
    let location = location.to_owned();
    if manifest.name != *name {
        let what = format!("it says that it is `{}`", manifest.name);
        return Err(RestoreError::Damaged { location, what });
    }
    if manifest.pool != pool {
        return Err(RestoreError::OtherPool {
            location,
            found: manifest.pool.clone(),
            expected: pool.to_owned(),
        });
    }
    Ok(())
}

fn make_anew(folder: &Path) -> Result<(), RestoreError> {
    let failed = |source| RestoreError::Folder {
        path: folder.to_owned(),
        source,
    };
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    std::fs::create_dir_all(folder).map_err(failed)
}

/// What a snapshot's own folder holds: its manifest, and the state of its file, verified. Blocks.
///
/// # Errors
/// [`RestoreError`]: it is damaged, or newer than this program.
pub fn read_folder(folder: &Path) -> Result<(Manifest, State), RestoreError> {
    let path = folder.join(MANIFEST_FILE);
    let bytes = std::fs::read(&path);
    let bytes = bytes.map_err(|source| RestoreError::Folder { path, source })?;
    let location = folder.display().to_string();
    let manifest = Manifest::decode(&bytes, &location)?;
    let state = read(folder, &manifest, location)?;
    Ok((manifest, state))
}

/// The state in the file, which is what the manifest says. Blocks.
fn read(folder: &Path, manifest: &Manifest, location: String) -> Result<State, RestoreError> {
    let path = folder.join(manifest.file_name());
    let facts = read_again(&path).map_err(|source| RestoreError::Folder { path, source })?;
    let found = (facts.0, format!("{:08x}", facts.1));
    if found != (manifest.size_bytes, manifest.checksum.clone()) {
        let what = format!(
            "its file has {} bytes with checksum {}, its manifest says {} and {}",
            found.0, found.1, manifest.size_bytes, manifest.checksum
        );
        return Err(RestoreError::Damaged { location, what });
    }
    let state = StdReadDisk::open(folder)
        .map_err(SnapshotError::from)
        .and_then(|mut disk| read_snapshot(&mut disk, manifest.position()));
    let state = match state {
        Ok((state, _)) => state,
        Err(source) => return Err(RestoreError::File { location, source }),
    };
    let digest = format!("{:016x}", state.digest());
    let found = (state.generation(), state.objects(), &digest);
    if found
        != (
            manifest.epoch.generation,
            manifest.objects,
            &manifest.digest,
        )
    {
        let what = format!(
            "its state has digest {digest}, its manifest says {}",
            manifest.digest
        );
        return Err(RestoreError::Damaged { location, what });
    }
    Ok(state)
}

impl Beginning {
    /// The quotas and tenants of a state. A tenant that is being deleted stays gone. `None`: they
    /// are more than go into an entry, about five thousand.
    pub(crate) fn of(state: &State) -> Option<Self> {
        let ops = wishes(state);
        let size_bytes = encode_ops(&ops).ok()?.len();
        (size_bytes <= ENTRY_BYTES_MAX).then(|| Self {
            above: state.generation(),
            ops,
        })
    }
}

fn wishes(state: &State) -> Vec<Op> {
    let quotas = state.quotas().map(|(quota, policy)| Op::QuotaSet {
        quota: quota.clone(),
        policy: policy.clone(),
    });
    let tenants = state.tenants().filter(|(_, tenant)| !tenant.is_deleting());
    let tenants = tenants.map(|(tenant, held)| Op::TenantSet {
        tenant: tenant.clone(),
        policy: held.policy().clone(),
    });
    quotas.chain(tenants).collect()
}
