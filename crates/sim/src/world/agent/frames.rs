//! What an agent and a master say, in the frames that they say it in.

use larder_node_agent::step::{Inbound, Outbound};
use larder_wire::frame::{FLAG_ERROR, FLAG_REPLY, NO_DEADLINE};
use larder_wire::{Frame, FrameError, Header, Kind, decode_body, encode_frame};
use serde::de::DeserializeOwned;

/// The frame of a message.
pub(super) fn encode(
    message: &Outbound,
    request: u64,
    session: u32,
) -> Result<Vec<u8>, FrameError> {
    let call = |kind| Frame::request(kind, request, session, NO_DEADLINE);
    let mut bytes = Vec::new();
    match message {
        Outbound::Mount(mount) => encode_frame(&mut bytes, call(Kind::Mount), mount)?,
        Outbound::Heartbeat(beat) => encode_frame(&mut bytes, call(Kind::Heartbeat), beat)?,
        Outbound::Unmount(unmount) => encode_frame(&mut bytes, call(Kind::Unmount), unmount)?,
        Outbound::Inventory(page) => {
            encode_frame(&mut bytes, call(Kind::Inventory), page.as_ref())?;
        }
        // Wants no answer.
        Outbound::Done(done) => {
            let frame = Frame::request(Kind::Done, 0, session, NO_DEADLINE);
            encode_frame(&mut bytes, frame, done)?;
        }
    }
    Ok(bytes)
}

/// What a master says; `None` if it is nothing that the control side acts on.
pub(super) fn understand(header: &Header, body: &[u8]) -> Result<Option<Inbound>, FrameError> {
    Ok(match (header.kind, header.has(FLAG_REPLY)) {
        (Kind::Mount, true) => Some(Inbound::Mounted(answer(header, body)?)),
        (Kind::Heartbeat, true) => Some(Inbound::Beat(answer(header, body)?)),
        (Kind::Inventory, true) => Some(Inbound::Taken(answer(header, body)?)),
        (Kind::Unmount, true) => Some(Inbound::Unmounted),
        (Kind::Commands, false) => Some(Inbound::Commands(decode_body(header.kind, body)?)),
        _ => None,
    })
}

fn answer<T: DeserializeOwned, E: DeserializeOwned>(
    header: &Header,
    body: &[u8],
) -> Result<Result<T, E>, FrameError> {
    if header.has(FLAG_ERROR) {
        Ok(Err(decode_body(header.kind, body)?))
    } else {
        Ok(Ok(decode_body(header.kind, body)?))
    }
}
