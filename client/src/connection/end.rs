//! Why the serving of one connection ended.

use std::io;

use larder_wire::FrameError;

use super::search::Found;

/// Why serving ended.
pub(super) enum End {
    /// Nobody calls any more.
    Closed,
    /// The session token gets old; a new session is due.
    Renew,
    /// Another master leads, and has welcomed us.
    Moved(Box<Found>),
    /// The connection broke.
    Broken {
        /// What broke it.
        detail: String,
        /// Who leads now, if the master said so.
        leader: Option<String>,
    },
}

impl From<String> for End {
    fn from(detail: String) -> Self {
        let leader = None;
        Self::Broken { detail, leader }
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        error.to_string().into()
    }
}

impl From<FrameError> for End {
    fn from(error: FrameError) -> Self {
        error.to_string().into()
    }
}
