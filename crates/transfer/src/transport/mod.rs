//! Transports: how a client reaches the bytes of one agent. One trait, one file per
//! implementation, decorators beside them; all pass the suite in `tests/conformance`.
//!
//! ```text
//! TcpTransport   pooled lanes to the agent's data port
//! ShmTransport   the agent's Unix socket: pulled writes, views, reads by copy
//! FakeTransport  in process, for tests and simulation; its speed means nothing
//! Metered, Faulty   decorators: count what passes; break it by a seed
//! ```

mod error;
pub mod fake;
pub mod faulty;
pub mod metered;
pub(crate) mod pool;
mod session;
pub mod shm;
pub mod tcp;
mod verify;

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use larder_types::Version;
use larder_wire::{Receipt, SignedCapability};
use tokio::time::Instant;

pub use error::TransferError;
pub use fake::{FakeAgent, FakeTransport};
pub use faulty::{FaultPlan, Faulty};
pub use metered::{Metered, TransferMeter};
pub use session::SessionSource;
pub use shm::{ShmOptions, ShmTransport, View};
pub use tcp::{TcpOptions, TcpTransport};

/// A future that may move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Moves bytes between this process and one agent.
///
/// Buffers move in with a call and come back with its result, whatever the result is; then
/// nothing touches them any more, also not late. A call that is dropped takes its buffer with
/// it and closes the connection that it used.
pub trait Transport: Send + Sync + Debug {
    /// The name, for logs and metric labels.
    fn name(&self) -> &'static str;

    /// Writes one extent. The receipt says that the agent holds it complete and verified.
    fn write(&self, op: WriteOp) -> BoxFuture<'_, WriteDone>;

    /// Reads from one extent.
    fn read(&self, op: ReadOp) -> BoxFuture<'_, ReadDone>;
}

/// One extent to write.
#[derive(Clone, Debug)]
pub struct WriteOp {
    /// Leave to write.
    pub capability: SignedCapability,
    /// All bytes of the extent.
    pub payload: Bytes,
    /// CRC-32C of each 64 KiB block of the payload.
    pub block_crcs: Arc<[u32]>,
    /// When the caller gives up.
    pub deadline: Instant,
}

/// What came of a [`WriteOp`].
#[derive(Debug)]
pub struct WriteDone {
    /// The payload as it went in.
    pub payload: Bytes,
    /// The agent's receipt, or why there is none.
    pub result: Result<Receipt, TransferError>,
}

/// A range of one extent to read.
#[derive(Debug)]
pub struct ReadOp {
    /// Leave to read.
    pub capability: SignedCapability,
    /// First byte within the extent; a multiple of the block size.
    pub offset_bytes: u64,
    /// How many bytes: a multiple of the block size, or up to the end of the extent.
    pub length_bytes: u64,
    /// Where to append them. Use one again and again: fresh memory costs page faults.
    pub buffer: BytesMut,
    /// When the caller gives up.
    pub deadline: Instant,
}

/// What came of a [`ReadOp`].
#[derive(Debug)]
pub struct ReadDone {
    /// The buffer; as long as before if the result is an error.
    pub buffer: BytesMut,
    /// What was appended, or why nothing was.
    pub result: Result<ReadFacts, TransferError>,
}

/// What is known about bytes that were read: they match these checksums and were whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadFacts {
    /// The version that the agent's record names.
    pub version: Version,
    /// CRC-32C of each 64 KiB block of the range, from the agent's record.
    pub block_crcs: Vec<u32>,
}

/// The time left until `deadline`, as frames carry it, in ms; at least 1.
fn remaining_ms(deadline: Instant) -> u32 {
    let left = deadline
        .saturating_duration_since(Instant::now())
        .as_millis();
    // One less than "no deadline": 49 days.
    u32::try_from(left)
        .unwrap_or(u32::MAX - 1)
        .clamp(1, u32::MAX - 1)
}
