//! The limit of open files, raised as far as this process may.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Up to the hard limit a process may do that for itself.
pub(crate) fn raise(files: u64) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= files) {
        return;
    }
    let raised = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(files),
            maximum,
        },
    );
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files cannot be raised to {files}");
    }
}
