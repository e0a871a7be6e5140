//! Who may make, fill and remove a run folder: one process at a time, whatever becomes of it.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;

use super::RunFolder;
use crate::error::CliError;

/// How often a folder that was removed meanwhile is made again; each time another `up` has ended.
const TRIES_MAX: u32 = 16;

/// The file with the lock.
const CLAIM: &str = "claim";
/// The first file after it, while it is written.
const FIRST_MARK: &str = "supervisor.json.new";

/// The lock on a run folder. The kernel frees it when the last process that holds it has ended.
/// It is on a file in it: agents lock the folders of their sockets themselves.
#[derive(Debug)]
pub(crate) struct Claim(OwnedFd);

impl Claim {
    /// The same claim, for another process to hold too.
    pub(crate) fn share(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }
}

impl RunFolder {
    /// Claims the folder, and makes it if it is not there.
    pub(super) fn claim(&self) -> Result<Claim, CliError> {
        let wrong = |source| CliError::file("create", &self.path, source);
        for _ in 0..TRIES_MAX {
            let mut builder = DirBuilder::new();
            builder.mode(0o700);
            if let Some(parent) = self.path.parent() {
                builder.recursive(true).create(parent).map_err(wrong)?;
            }
            match builder.recursive(false).create(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(wrong(error));
                }
                _ => {}
            }
            // What is surely not ours is left without a trace in it.
            let others = self.holds_things().unwrap_or(false);
            let ours = [CLAIM, "supervisor.json"];
            if others && !ours.iter().any(|name| self.join(name).exists()) {
                // Or the claim was removed in between, and then the folder is too.
                if self.path.exists() && self.holds_things().unwrap_or(false) {
                    return Err(self.holds_others());
                }
                continue;
            }
            if let Some(claim) = self.claim_existing()? {
                return Ok(claim);
            }
        }
        Err(CliError::Taken(self.in_use()))
    }

    /// Claims the folder as it is; `None` if it is not there.
    pub(crate) fn claim_existing(&self) -> Result<Option<Claim>, CliError> {
        let path = self.join(CLAIM);
        let wrong = |source| CliError::file("use", &path, source);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match open(&path, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(wrong(error.into())),
        };
        match flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(CliError::Taken(self.in_use())),
            Err(error) => return Err(wrong(error.into())),
        }
        // Whoever had it before may have removed it between the two steps.
        let opened = file.metadata().map_err(wrong)?;
        let same = fs::metadata(&path)
            .is_ok_and(|now| (now.dev(), now.ino()) == (opened.dev(), opened.ino()));
        Ok(same.then(|| Claim(file.into())))
    }

    /// Whether anything is in the folder but the first files of an `up` that ended early.
    pub(super) fn holds_things(&self) -> io::Result<bool> {
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            if name != CLAIM && name != FIRST_MARK {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes the folder with all that is in it, the claim last: until then nobody can take it.
    pub(super) fn remove_claimed(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_name() == CLAIM {
                continue;
            }
            gone(if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())
            } else {
                fs::remove_file(entry.path())
            })?;
        }
        gone(fs::remove_file(self.join(CLAIM)))?;
        match fs::remove_dir(&self.path) {
            // Another `up` took it at once, or it is a link to a folder of the user.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(())
            }
            other => other,
        }
    }

    /// Who has the folder, and what can be done: nothing yet, as long as its pool is not up.
    pub(super) fn in_use(&self) -> String {
        let path = self.path.display();
        match self.supervisor() {
            Ok(Some(one)) if one.process.is_running() && self.join("pool.json").exists() => {
                format!(
                    "pool {} is up already in {path}; see it with `larder status --dir {path}`, \
                     stop it with `larder down --dir {path}`",
                    one.pool
                )
            }
            _ => format!(
                "another `larder up` is starting or ending a pool in {path}; wait until it is \
                 done, or choose another folder with --dir"
            ),
        }
    }
}

/// What is not there need not be removed.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
