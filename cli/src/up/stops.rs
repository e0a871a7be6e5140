//! The signals that ask a pool to stop: Ctrl-C, SIGTERM, and a terminal that is closed.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::CliError;

/// Signals that ask to stop.
#[derive(Debug)]
pub(super) struct Stops {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Stops {
    /// Listens from now on; no such signal ends the process any more.
    pub(super) fn new() -> Result<Self, CliError> {
        let listen = |kind| {
            signal(kind).map_err(|source| CliError::System {
                action: "listen for signals",
                source,
            })
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for one of them.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
