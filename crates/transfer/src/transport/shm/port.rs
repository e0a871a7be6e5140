//! The writing side of the connection of views: whole frames, also from destructors.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use larder_wire::data::CloseView;
use larder_wire::frame::NO_DEADLINE;
use larder_wire::{Frame, Kind, encode_frame};
use tokio::net::UnixStream;
use tokio::runtime::Handle;

use crate::lane::LaneError;

/// Sends frames of the connection on which views were opened. Every view keeps its port, so the
/// connection, and with it the agent's hold on the bytes, stays until the last one is closed.
#[derive(Debug)]
pub(super) struct Port {
    stream: Arc<UnixStream>,
    session: u32,
    last_request: AtomicU64,
    /// Frames that the socket did not take yet. Views are closed by whichever thread drops them,
    /// so this is shared; held to append and for one send that does not wait.
    ///
    /// Bound: one frame of about 60 bytes for each view that the agent allows (4,096), and one
    /// open.
    outbox: Mutex<Vec<u8>>,
}

impl Port {
    pub(super) const fn new(stream: Arc<UnixStream>, session: u32) -> Self {
        let outbox = Mutex::new(Vec::new());
        Self {
            stream,
            session,
            last_request: AtomicU64::new(1),
            outbox,
        }
    }

    pub(super) const fn session(&self) -> u32 {
        self.session
    }

    /// Adds a request; it is sent by [`Self::flush`].
    pub(super) fn post<B: serde::Serialize>(
        &self,
        kind: Kind,
        body: &B,
        remaining_ms: u32,
    ) -> Result<u64, LaneError> {
        let request = self.last_request.fetch_add(1, Ordering::Relaxed) + 1;
        let frame = Frame::request(kind, request, self.session, remaining_ms);
        let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        encode_frame(&mut outbox, frame, body)?;
        Ok(request)
    }

    /// Closes a view without waiting for anything. If the connection is broken, the agent has
    /// let go already.
    pub(super) fn close_view(self: &Arc<Self>, view: u64) {
        let frame = Frame::request(Kind::CloseView, 0, self.session, NO_DEADLINE);
        {
            let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
            if encode_frame(&mut outbox, frame, &CloseView { view }).is_err() {
                return;
            }
        }
        if !self.try_flush().unwrap_or(true)
            && let Ok(runtime) = Handle::try_current()
        {
            let port = Arc::clone(self);
            runtime.spawn(async move { port.flush().await });
        }
    }

    /// Sends what the socket takes now; whether that was all.
    fn try_flush(&self) -> io::Result<bool> {
        let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        while !outbox.is_empty() {
            match self.stream.try_write(&outbox) {
                Ok(written) => drop(outbox.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => {
                    outbox.clear();
                    return Err(error);
                }
            }
        }
        Ok(true)
    }

    /// Sends everything. May be cancelled; whoever flushes next goes on from there.
    pub(super) async fn flush(&self) -> io::Result<()> {
        while !self.try_flush()? {
            self.stream.writable().await?;
        }
        Ok(())
    }
}
