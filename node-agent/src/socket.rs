//! The Unix socket for clients of this node: made, taken over from a dead agent, and removed.
//!
//! Anybody may connect: what a client may do is proven by its session token. Pods share uids, so
//! the mode of the file could not tell them apart.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::folder;

/// How often a folder is made again that an agent which left has just removed. Once is enough
/// unless pools come and go faster than an agent starts.
const TRIES_MAX: u32 = 8;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another agent listens there.
    #[error(
        "another agent serves the socket {0}; stop it, or give this one a socket_path of its own"
    )]
    Taken(PathBuf),
    /// A folder has that name.
    #[error("{0} is a folder and no socket; remove it or choose another socket_path")]
    NoSocket(PathBuf),
    /// Folder or socket cannot be made.
    #[error("the socket cannot be served: {action} {path} failed; check the folder's owner")]
    Io {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl SocketError {
    fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// A socket that this agent serves.
#[derive(Debug)]
pub struct ServedSocket {
    path: PathBuf,
    /// Which file it is: what has the name later may be another agent's.
    file: FileId,
}

/// Device, inode and time of birth: a number of an inode is soon given again. Some file systems
/// know no birth; then the numbers have to do.
type FileId = (u64, u64, Option<SystemTime>);

fn file_id(metadata: &Metadata) -> FileId {
    (metadata.dev(), metadata.ino(), metadata.created().ok())
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SocketError {
    let path = path.to_owned();
    move |source| SocketError::Io {
        action,
        path,
        source,
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Locks the folder for the moment in which a socket is looked at and made or removed, so that
/// of two agents that find the same dead socket only one takes it over. Nothing is left of it.
fn lock_folder(path: &Path) -> Result<File, SocketError> {
    let folder = folder_of(path);
    let file = File::open(folder).map_err(failed("opening", folder))?;
    file.lock().map_err(failed("locking", folder))?;
    Ok(file)
}

/// Makes the folder (0755) and the socket (0666). The listener does not block.
///
/// # Errors
/// [`SocketError`].
pub fn bind(path: &Path) -> Result<(UnixListener, ServedSocket), SocketError> {
    let mut tries = 1;
    loop {
        match bind_once(path) {
            Err(error) if error.is_not_found() && tries < TRIES_MAX => tries += 1,
            bound => return bound,
        }
    }
}

fn bind_once(path: &Path) -> Result<(UnixListener, ServedSocket), SocketError> {
    let folder = folder_of(path);
    folder::make(folder, 0o755).map_err(failed("making", folder))?;
    let _lock = lock_folder(path)?;
    remove_dead(path)?;
    let listener = UnixListener::bind(path).map_err(failed("binding", path))?;
    let prepare = || {
        std::fs::set_permissions(path, Permissions::from_mode(0o666))?;
        listener.set_nonblocking(true)?;
        std::fs::symlink_metadata(path)
    };
    let metadata = prepare().map_err(failed("opening", path))?;
    Ok((
        listener,
        ServedSocket {
            path: path.to_owned(),
            file: file_id(&metadata),
        },
    ))
}

/// Removes the folder of a socket, if nothing is in it: not even the socket of another agent.
///
/// # Errors
/// [`SocketError::Io`].
pub(crate) fn remove_folder(path: &Path) -> Result<(), SocketError> {
    let folder = folder_of(path);
    match std::fs::remove_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failed("removing", folder)(error))
        }
        _ => Ok(()),
    }
}

/// Removes what stands where the socket is to be, unless somebody listens there: the socket of an
/// agent that is not there any more, or a file or link that a pod with the folder mounted put in
/// its place, which would otherwise keep the agent away for good. What a link leads to stays.
fn remove_dead(path: &Path) -> Result<(), SocketError> {
    let kind = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("looking at", path)(error)),
        Ok(metadata) => metadata.file_type(),
    };
    let remove = || std::fs::remove_file(path).map_err(failed("removing", path));
    if kind.is_dir() {
        return Err(SocketError::NoSocket(path.to_owned()));
    }
    if !kind.is_socket() && !kind.is_symlink() {
        return remove();
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => remove(),
        // It listens, or its queue is full: somebody is alive.
        Ok(_) => Err(SocketError::Taken(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(SocketError::Taken(path.to_owned()))
        }
        // No agent makes links, so this one is nobody's, wherever it leads.
        Err(_) if kind.is_symlink() => remove(),
        Err(error) => Err(failed("connecting to", path)(error)),
    }
}

impl ServedSocket {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file, if it is still the one that was made here.
    ///
    /// # Errors
    /// [`SocketError::Io`].
    pub fn remove(self) -> Result<(), SocketError> {
        let _lock = lock_folder(&self.path)?;
        let found = std::fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| file_id(&found) == self.file) {
            std::fs::remove_file(&self.path).map_err(failed("removing", &self.path))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn anybody_may_connect_and_nothing_is_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a/b/agent.sock");
        let (listener, socket) = bind(&path).expect("made");
        let mode = std::fs::metadata(&path)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o666);
        UnixStream::connect(&path).expect("connected");
        drop(listener);
        socket.remove().expect("removed");
        assert!(
            std::fs::read_dir(folder.path().join("a/b"))
                .expect("a folder")
                .next()
                .is_none()
        );
    }

    #[test]
    fn a_live_agent_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("agent.sock");
        let (_listener, _socket) = bind(&path).expect("made");
        let error = bind(&path).expect_err("taken");
        assert!(matches!(error, SocketError::Taken(_)), "{error}");
        UnixStream::connect(&path).expect("still served");
    }

    #[test]
    fn a_dead_socket_is_taken_over_and_then_not_removed_by_its_former_owner() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("agent.sock");
        let (dead, former) = bind(&path).expect("made");
        // Keeps the inode's number from being given again, so that the files differ.
        let keep = folder.path().join("keep");
        std::fs::hard_link(&path, &keep).expect("linked");
        drop(dead);
        let (_listener, _socket) = bind(&path).expect("taken over");
        former.remove().expect("nothing to do");
        UnixStream::connect(&path).expect("still served");
    }

    #[test]
    fn the_number_of_a_dead_socket_may_be_given_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("agent.sock");
        let (dead, former) = bind(&path).expect("made");
        drop(dead);
        let (_listener, served) = bind(&path).expect("taken over");
        if former.file == served.file {
            println!("skipped: this file system gives numbers again and knows no birth");
            return;
        }
        former.remove().expect("nothing to do");
        UnixStream::connect(&path).expect("still served");
    }

    #[test]
    fn a_folder_is_removed_only_when_nothing_is_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cache.small/agent.sock");
        let (listener, socket) = bind(&path).expect("made");
        let error = remove_folder(&path).expect_err("the socket is in it");
        assert!(error.to_string().contains("cache.small"), "{error}");
        drop(listener);
        socket.remove().expect("removed");
        remove_folder(&path).expect("removed");
        assert!(!path.parent().expect("a folder").exists());
        remove_folder(&path).expect("nothing to do");
        bind(&path).expect("made again");
    }

    #[test]
    fn a_file_in_the_place_of_the_socket_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("agent.sock");
        std::fs::write(&path, "in the way").expect("written");
        std::fs::set_permissions(&path, Permissions::from_mode(0o000)).expect("closed");
        let (_listener, _socket) = bind(&path).expect("made");
        UnixStream::connect(&path).expect("served");
    }

    #[test]
    fn a_link_that_leads_to_nobody_is_replaced_and_its_target_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let precious = folder.path().join("precious");
        std::fs::write(&precious, "precious").expect("written");
        let inner = folder.path().join("folder");
        std::fs::create_dir(&inner).expect("made");
        let path = folder.path().join("agent.sock");
        for target in [&folder.path().join("nowhere"), &precious, &inner, &path] {
            symlink(target, &path).expect("linked");
            let (listener, socket) = bind(&path).expect("made");
            UnixStream::connect(&path).expect("served");
            drop(listener);
            socket.remove().expect("removed");
        }
        let kept = std::fs::read_to_string(&precious).expect("there");
        assert_eq!(kept, "precious");
        assert!(inner.exists());
    }

    #[test]
    fn a_link_to_a_live_socket_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("other.sock");
        let (_listener, _socket) = bind(&target).expect("made");
        let path = folder.path().join("agent.sock");
        symlink(&target, &path).expect("linked");
        let error = bind(&path).expect_err("taken");
        assert!(matches!(error, SocketError::Taken(_)), "{error}");
        UnixStream::connect(&path).expect("still served");
    }

    #[test]
    fn a_folder_is_not_touched() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("agent.sock");
        std::fs::create_dir(&path).expect("made");
        let error = bind(&path).expect_err("a folder");
        assert!(matches!(error, SocketError::NoSocket(_)), "{error}");
        assert!(path.is_dir());
    }
}
