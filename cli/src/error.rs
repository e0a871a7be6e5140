//! Why a command failed, with its exit code.

use std::io;
use std::path::{Path, PathBuf};

use larder_client::ClientError;
use larder_crds::DocumentError;
use larder_types::{ErrorCode, Reason};

/// The system failed.
pub(crate) const EXIT_FAILED: u8 = 1;
/// Wrong arguments, or an invalid file.
pub(crate) const EXIT_USAGE: u8 = 2;
/// Not found.
pub(crate) const EXIT_NOT_FOUND: u8 = 3;
/// Refused.
pub(crate) const EXIT_REFUSED: u8 = 4;
/// The deadline passed.
pub(crate) const EXIT_DEADLINE: u8 = 5;

/// Why a command failed. Each message is a sentence that says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The arguments do not fit each other or the pool.
    #[error("{0}")]
    Usage(String),
    /// A call of the client failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A pool file is wrong.
    #[error(transparent)]
    PoolFile(#[from] DocumentError),
    /// No pool is where one was looked for.
    #[error("{0}")]
    NoPool(String),
    /// A master refused what an administrator asked for.
    #[error("{message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Who refused what, and why.
        message: String,
    },
    /// What was waited for did not come in time.
    #[error("{0}")]
    Late(String),
    /// A pool cannot be started here.
    #[error("{0}")]
    CannotStart(String),
    /// A pool cannot be started: it runs already, or its place is taken.
    #[error("{0}")]
    Taken(String),
    /// A file or folder could not be used.
    #[error("cannot {action} {path}{}", advice(.source))]
    File {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused.
    #[error("cannot {action}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A program that `up` starts failed.
    #[error("{0}")]
    Program(String),
    /// What was measured is wrong.
    #[error("{0}")]
    Wrong(String),
}

impl CliError {
    /// A file or folder could not be used.
    pub(crate) fn file(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File {
            action,
            path: path.to_owned(),
            source,
        }
    }

    /// The exit code of the program.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Client(error) => client_exit_code(error),
            Self::Usage(_) | Self::PoolFile(_) => EXIT_USAGE,
            Self::Refused { status, .. } => match status {
                404 => EXIT_NOT_FOUND,
                504 => EXIT_DEADLINE,
                400 | 422 => EXIT_USAGE,
                401 | 403 | 409 => EXIT_REFUSED,
                _ => EXIT_FAILED,
            },
            Self::Late(_) => EXIT_DEADLINE,
            Self::File { source, .. } if is_about_place(source) => EXIT_USAGE,
            Self::Taken(_) | Self::CannotStart(_) => EXIT_REFUSED,
            Self::NoPool(_)
            | Self::File { .. }
            | Self::System { .. }
            | Self::Program(_)
            | Self::Wrong(_) => EXIT_FAILED,
        }
    }

    /// The number that scripts know.
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Self::Client(error) => error.code(),
            Self::Usage(_) | Self::PoolFile(_) => ErrorCode::InvalidParams,
            Self::Refused { status, .. } => match status {
                404 => ErrorCode::ObjectNotFound,
                504 => ErrorCode::RpcTimeout,
                400 | 422 => ErrorCode::InvalidParams,
                401 | 403 => ErrorCode::IllegalClient,
                409 | 503 => ErrorCode::UnavailableInCurrentStatus,
                _ => ErrorCode::RpcFail,
            },
            Self::Late(_) => ErrorCode::RpcTimeout,
            Self::NoPool(_) => ErrorCode::RpcFail,
            Self::Taken(_) | Self::CannotStart(_) => ErrorCode::UnavailableInCurrentStatus,
            Self::File { source, .. } if is_about_place(source) => ErrorCode::InvalidParams,
            Self::Wrong(_) => ErrorCode::ChecksumMismatch,
            Self::File { .. } | Self::System { .. } | Self::Program(_) => ErrorCode::InternalError,
        }
    }

    /// A short name for scripts.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::Client(error) => error.label(),
            Self::Usage(_) => "usage",
            Self::PoolFile(_) => "invalid_file",
            Self::NoPool(_) => "no_pool",
            Self::Refused { status: 404, .. } => "not_found",
            Self::Refused { .. } => "refused",
            Self::Late(_) => "deadline_passed",
            Self::CannotStart(_) => "cannot_start",
            Self::Taken(_) => "taken",
            Self::File { .. } => "file",
            Self::System { .. } => "system",
            Self::Program(_) => "program",
            Self::Wrong(_) => "wrong",
        }
    }
}

/// Whether the named file or folder is the wrong one, rather than the system at fault.
fn is_about_place(source: &io::Error) -> bool {
    matches!(
        source.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::DirectoryNotEmpty
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::InvalidFilename
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::InvalidData
    )
}

/// What the person can do about a failure of the file system.
fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space there, or choose another folder"
        }
        io::ErrorKind::PermissionDenied => "; choose a place that you may use",
        io::ErrorKind::ReadOnlyFilesystem => "; choose a folder that can be written",
        _ => "",
    }
}

/// The exit code of a failed call.
fn client_exit_code(error: &ClientError) -> u8 {
    match error {
        ClientError::Refused { reason, .. } => refused_exit_code(*reason),
        ClientError::HelloRefused { .. } if !error.is_retryable() => EXIT_REFUSED,
        ClientError::DeadlinePassed { .. } => EXIT_DEADLINE,
        ClientError::BadArgument { .. } => EXIT_USAGE,
        ClientError::NotLocal { .. } => EXIT_REFUSED,
        _ => EXIT_FAILED,
    }
}

const fn refused_exit_code(reason: Reason) -> u8 {
    match reason {
        Reason::NotFound | Reason::ReplicasLost => EXIT_NOT_FOUND,
        Reason::BadKey | Reason::EmptyValue | Reason::BadArgument | Reason::BadReplicaCount => {
            EXIT_USAGE
        }
        Reason::DeadlinePassed => EXIT_DEADLINE,
        Reason::NotLeader
        | Reason::Starting
        | Reason::Overloaded
        | Reason::SessionUnknown
        | Reason::SegmentUnknown
        | Reason::BadReceipt
        | Reason::StaleEpoch
        | Reason::Unsupported
        | Reason::Internal => EXIT_FAILED,
        _ => EXIT_REFUSED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit_code(reason: Reason) -> u8 {
        CliError::from(ClientError::Refused {
            reason,
            detail: String::new(),
        })
        .exit_code()
    }

    #[test]
    fn exit_codes_are_those_of_the_help() {
        for (reason, code) in [
            (Reason::NotFound, 3),
            (Reason::QuotaBytes, 4),
            (Reason::AccessDenied, 4),
            (Reason::AlreadyExists, 4),
            (Reason::NoSpace, 4),
            (Reason::BadKey, 2),
            (Reason::EmptyValue, 2),
            (Reason::Starting, 1),
        ] {
            assert_eq!(exit_code(reason), code, "{reason:?}");
        }
        let late = CliError::from(ClientError::DeadlinePassed {
            during: "in a test",
        });
        assert_eq!(late.exit_code(), 5);
        assert_eq!(CliError::Usage(String::new()).exit_code(), 2);
        assert_eq!(CliError::NoPool(String::new()).exit_code(), 1);
        assert_eq!(CliError::Taken(String::new()).exit_code(), 4);
        for (kind, code) in [
            (io::ErrorKind::NotFound, 2),
            (io::ErrorKind::IsADirectory, 2),
            (io::ErrorKind::StorageFull, 1),
        ] {
            let error = CliError::file("read", Path::new("/x"), kind.into());
            assert_eq!(error.exit_code(), code, "{kind:?}");
        }
    }

    #[test]
    fn a_full_disk_says_what_to_do() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let error = CliError::file("write", Path::new("/x/plan.json"), full);
        let text = larder_telemetry::error_chain(&error);
        assert!(
            text.contains("cannot write /x/plan.json") && text.contains("free some"),
            "{text}"
        );
    }
}
