//! A sync that is run away from the disk's owner.

use std::{fmt, io};

/// The slow part of a sync: it blocks until the disk has the bytes, and touches nothing else. The
/// owner of the disk goes on meanwhile.
pub struct SyncWork {
    name: String,
    work: Box<dyn FnOnce() -> io::Result<()> + Send>,
}

/// What came of it, for who owns the disk.
#[derive(Debug)]
pub struct SyncDone {
    pub(crate) name: String,
    pub(crate) outcome: io::Result<()>,
}

impl SyncWork {
    pub(crate) fn new(name: &str, work: impl FnOnce() -> io::Result<()> + Send + 'static) -> Self {
        Self {
            name: name.to_owned(),
            work: Box::new(work),
        }
    }

    /// Blocks until it is done, on any thread.
    #[must_use = "the log does not know before that it is durable"]
    pub fn run(self) -> SyncDone {
        SyncDone {
            name: self.name,
            outcome: (self.work)(),
        }
    }
}

impl fmt::Debug for SyncWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncWork")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
