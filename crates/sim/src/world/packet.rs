//! What processes of a pool send each other in a world.

use larder_types::TenantId;
use larder_wire::data::DataError;
use larder_wire::{Receipt, SignedCapability};

use super::line::LinePacket;

/// A message of a pool's world.
#[derive(Clone, Debug)]
pub enum Packet {
    /// Between masters and those who talk to them: real frames.
    Line(LinePacket),
    /// From a client to an agent.
    Ask(DataAsk),
    /// The answer.
    Told {
        /// Of which ask.
        number: u64,
        /// What came of it.
        outcome: Result<DataTold, DataError>,
    },
    /// A call from one master to another.
    PeerAsk {
        /// The caller's number for it.
        number: u64,
        /// What it says.
        body: Vec<u8>,
    },
    /// The answer.
    PeerTold {
        /// Of which call.
        number: u64,
        /// What it says.
        body: Vec<u8>,
    },
}

/// What a client asks of an agent.
#[derive(Clone, Debug)]
pub struct DataAsk {
    /// The client's number for it.
    pub number: u64,
    /// What the client's session proved.
    pub tenant: TenantId,
    /// Its leave.
    pub capability: SignedCapability,
    /// How long the extent is.
    pub length_bytes: u64,
    /// Bytes to write, with the checksums of their blocks; `None` reads all of the extent.
    pub write: Option<(Vec<u8>, Vec<u32>)>,
}

/// What an agent answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataTold {
    /// It is written.
    Written(Receipt),
    /// These bytes, and the checksums of their blocks from the record.
    Bytes(Vec<u8>, Vec<u32>),
}
