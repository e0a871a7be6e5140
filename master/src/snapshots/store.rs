//! What a place for snapshots can do.

use std::fmt::Debug;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use larder_oplog::FORMAT_VERSION;

use super::{Manifest, SnapshotName};

/// Something under way.
pub(crate) type Work<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Keeps snapshots. All implementations pass one suite (`conformance`).
///
/// A snapshot is there from the moment in which its manifest is, and is whole then.
pub(crate) trait SnapshotStore: Send + Sync + Debug {
    /// Where a snapshot of this name is or would be, for people.
    fn location(&self, name: &SnapshotName) -> String;

    /// The names of all, sorted.
    fn names(&self) -> Work<'_, Vec<SnapshotName>>;

    /// What one says about itself; `None`: there is none.
    fn manifest<'a>(&'a self, name: &'a SnapshotName) -> Work<'a, Option<Manifest>>;

    /// Keeps a snapshot whose file is `file`, which may be moved away. Takes the place of one of
    /// its name.
    fn put<'a>(&'a self, manifest: &'a Manifest, file: &'a Path) -> Work<'a, ()>;

    /// Copies the file of a snapshot to `into`, which is not there yet. Its bytes are not judged.
    fn fetch<'a>(&'a self, manifest: &'a Manifest, into: &'a Path) -> Work<'a, ()>;

    /// Removes one; whether it was there.
    fn delete<'a>(&'a self, name: &'a SnapshotName) -> Work<'a, bool>;

    /// Removes what an interruption has left; of how many snapshots.
    fn tidy(&self) -> Work<'_, usize>;
}

/// Why a place for snapshots did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file operation failed.
    #[error("cannot {tried} {}; check the folder, its rights and its room", .path.display())]
    File {
        /// What was tried, as a verb.
        tried: &'static str,
        /// Which file or folder.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The object store refused, or was not reached.
    #[error("the object store did not {tried} {location}; check endpoint, bucket and credentials")]
    Remote {
        /// What was tried, as a verb.
        tried: &'static str,
        /// Which object.
        location: String,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What is there is no snapshot.
    #[error("{location} is damaged: {what}; use another snapshot")]
    Damaged {
        /// Where it is.
        location: String,
        /// What is wrong.
        what: String,
    },
    /// A newer Larder made it.
    #[error(
        "{location} has format {format}, this program knows {FORMAT_VERSION}; use the newer \
         program"
    )]
    Newer {
        /// Where it is.
        location: String,
        /// Its format.
        format: u64,
    },
    /// The file of a key or a certificate says nothing.
    #[error("{} {what}", .path.display())]
    Credential {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The program knows no object stores.
    #[error(
        "bucket {bucket} cannot be used: this master was built without the feature `object-store`"
    )]
    NotBuilt {
        /// What was named.
        bucket: String,
    },
    /// The thread that did it ended.
    #[error("a thread that reads and writes snapshots ended")]
    Thread(#[from] tokio::task::JoinError),
}

impl StoreError {
    /// Whether the same can work later without anybody changing a file.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Remote { .. } | Self::File { .. })
    }
}
