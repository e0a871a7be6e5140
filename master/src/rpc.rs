//! Wire calls into store requests and store replies into wire answers; nothing else.

mod answer;
mod request;

pub(crate) use answer::{COMMANDS_MAX, Desk, answer, fail, wire_command};
pub(crate) use request::{Caller, agent_requests, client_requests, mount_request};

use larder_wire::agent::{Done, Heartbeat, Mount, Unmount};
use larder_wire::events::Subscribe;
use larder_wire::master::{Exists, Get, List, PutEnd, PutRevoke, PutStart, Remove, Usage};
use larder_wire::{FrameError, Header, Kind, Purpose, decode_body};

/// A decoded call.
#[derive(Debug)]
pub(crate) enum Body {
    /// See [`PutStart`].
    PutStart(PutStart),
    /// See [`PutEnd`].
    PutEnd(PutEnd),
    /// See [`PutRevoke`].
    PutRevoke(PutRevoke),
    /// See [`Get`].
    Get(Get),
    /// See [`Exists`].
    Exists(Exists),
    /// See [`Remove`].
    Remove(Remove),
    /// See [`List`].
    List(List),
    /// See [`Usage`].
    Usage,
    /// See [`Subscribe`].
    Subscribe(Subscribe),
    /// See [`Mount`].
    Mount(Mount),
    /// See [`Heartbeat`].
    Heartbeat(Heartbeat),
    /// See [`Done`].
    Done(Done),
    /// See [`Unmount`].
    Unmount(Unmount),
}

/// Decodes a body; `None` if a connection of this purpose is not offered the call.
///
/// # Errors
/// [`FrameError::Body`]; the connection must be closed.
pub(crate) fn decode(
    purpose: Purpose,
    header: &Header,
    body: &[u8],
) -> Result<Option<Body>, FrameError> {
    let kind = header.kind;
    Ok(Some(match (purpose, kind) {
        (Purpose::Client, Kind::PutStart) => Body::PutStart(decode_body(kind, body)?),
        (Purpose::Client, Kind::PutEnd) => Body::PutEnd(decode_body(kind, body)?),
        (Purpose::Client, Kind::PutRevoke) => Body::PutRevoke(decode_body(kind, body)?),
        (Purpose::Client, Kind::Get) => Body::Get(decode_body(kind, body)?),
        (Purpose::Client, Kind::Exists) => Body::Exists(decode_body(kind, body)?),
        (Purpose::Client, Kind::Remove) => Body::Remove(decode_body(kind, body)?),
        (Purpose::Client, Kind::List) => Body::List(decode_body(kind, body)?),
        (Purpose::Client, Kind::Usage) => {
            let Usage {} = decode_body(kind, body)?;
            Body::Usage
        }
        (Purpose::Client, Kind::Subscribe) => Body::Subscribe(decode_body(kind, body)?),
        (Purpose::Agent, Kind::Mount) => Body::Mount(decode_body(kind, body)?),
        (Purpose::Agent, Kind::Heartbeat) => Body::Heartbeat(decode_body(kind, body)?),
        (Purpose::Agent, Kind::Done) => Body::Done(decode_body(kind, body)?),
        (Purpose::Agent, Kind::Unmount) => Body::Unmount(decode_body(kind, body)?),
        _ => return Ok(None),
    }))
}
