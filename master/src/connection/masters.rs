//! A connection of another master: one call after the other, answered by the replica of the log.

use larder_types::SessionId;
use larder_wire::frame::FLAG_REPLY;
use larder_wire::{Frame, Kind, Refused, RefusedReason, decode_body, encode_frame};

use super::{End, Lane, Shared};
use crate::consensus::{PeerAnswer, PeerCall, PeerSession};
use crate::session::low_bits;

impl Lane {
    /// Answers another master until one of both ends it.
    pub(super) async fn serve_master(&mut self, session: SessionId, shared: &Shared) -> End {
        let mut desk = shared.desk.clone();
        let mut kept = PeerSession::default();
        loop {
            let call = match self.next_call(session).await {
                Ok(call) => call,
                Err(end) => return end,
            };
            let Some((header, call)) = call else {
                return End::Closed;
            };
            let current = desk.borrow_and_update().clone();
            let answer = match current {
                Some(desk) => desk.answer(&mut kept, call).await,
                None => PeerAnswer::Failed("this master is starting or stops".to_owned()),
            };
            let mut out = Vec::new();
            if let Err(error) = encode_frame(&mut out, Frame::reply(&header, 0), &answer) {
                return error.into();
            }
            if let Err(end) = self.write(&out).await {
                return end;
            }
        }
    }

    async fn next_call(
        &mut self,
        session: SessionId,
    ) -> Result<Option<(larder_wire::Header, PeerCall)>, End> {
        loop {
            if let Some((header, body)) = self.decoder.next_frame()? {
                match header.kind {
                    Kind::Goodbye => return Ok(None),
                    Kind::Peer
                        if header.session == low_bits(session) && !header.has(FLAG_REPLY) =>
                    {
                        return Ok(Some((header, decode_body(header.kind, body)?)));
                    }
                    _ => {
                        let detail = "masters speak only of their log here";
                        return Err(Refused::new(RefusedReason::Frame, detail).into());
                    }
                }
            }
            if self.read().await? == 0 {
                self.decoder.finish()?;
                return Ok(None);
            }
        }
    }
}
