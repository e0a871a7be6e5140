//! Wire calls into store requests and store replies into wire answers; nothing else.

mod answer;
mod command;
mod copy;
mod grants;
mod inventory;
mod lists;
mod request;
mod task;

pub(crate) use answer::{
    COMMANDS_BYTES_MAX, COMMANDS_MAX, Desk, answer, answer_probe, fail, tenant_usage,
};
pub(crate) use command::wire_command;
pub(crate) use copy::command_bytes;
pub(crate) use inventory::inventory_request;
pub(crate) use request::{Caller, agent_requests, check_batch, client_requests, mount_request};

use larder_wire::agent::{Done, Heartbeat, Inventory, Mount, Unmount};
use larder_wire::{FrameError, Header, Kind, Purpose, client_calls, decode_body, master};

macro_rules! bodies {
    ($($call:ident),* $(,)?) => {
        /// A decoded call.
        #[derive(Debug)]
        pub(crate) enum Body {
            $(#[doc = concat!("See [`master::", stringify!($call), "`].")]
            $call(master::$call),)*
            /// See [`Mount`].
            Mount(Mount),
            /// See [`Heartbeat`].
            Heartbeat(Heartbeat),
            /// See [`Done`].
            Done(Done),
            /// See [`Unmount`].
            Unmount(Unmount),
            /// See [`Inventory`].
            Inventory(Inventory),
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
                $((Purpose::Client, Kind::$call) => Body::$call(decode_body(kind, body)?),)*
                (Purpose::Agent, Kind::Mount) => Body::Mount(decode_body(kind, body)?),
                (Purpose::Agent, Kind::Heartbeat) => Body::Heartbeat(decode_body(kind, body)?),
                (Purpose::Agent, Kind::Done) => Body::Done(decode_body(kind, body)?),
                (Purpose::Agent, Kind::Unmount) => Body::Unmount(decode_body(kind, body)?),
                (Purpose::Agent, Kind::Inventory) => Body::Inventory(decode_body(kind, body)?),
                _ => return Ok(None),
            }))
        }
    };
}

client_calls!(bodies);
