//! The fake transport: the rules of an agent without sockets, for tests and simulation. Its
//! speed says nothing and is never reported.

use bytes::Bytes;
use larder_types::TenantId;
use larder_wire::checksum::block_crcs;
use larder_wire::data::{DataError, DataReason};
use larder_wire::{Receipt, SignedCapability};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout_at;

use super::verify::BlockCheck;
use super::{BoxFuture, ReadDone, ReadFacts, ReadOp, TransferError, Transport, WriteDone, WriteOp};
use crate::{LocalMs, SegmentsHandle, WriteStart};

/// Calls that wait for the agent; beyond, callers wait.
const WAITING_MAX: usize = 64;

/// The caller's half.
#[derive(Debug)]
pub struct FakeTransport {
    calls: mpsc::Sender<Call>,
}

/// The agent's half; runs on the thread of the segments.
#[derive(Debug)]
pub struct FakeAgent {
    calls: mpsc::Receiver<Call>,
}

#[derive(Debug)]
enum Call {
    Write {
        capability: SignedCapability,
        payload: Bytes,
        source_crcs: Arc<[u32]>,
        done: oneshot::Sender<Result<Receipt, DataError>>,
    },
    Read {
        capability: SignedCapability,
        offset_bytes: u64,
        length_bytes: u64,
        done: oneshot::Sender<Result<Found, DataError>>,
    },
}

#[derive(Debug)]
struct Found {
    payload: Vec<u8>,
    facts: ReadFacts,
    unchanged: bool,
}

impl FakeTransport {
    /// Makes both halves.
    #[must_use]
    pub fn new() -> (Self, FakeAgent) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Self { calls: sender }, FakeAgent { calls: receiver })
    }

    async fn write_once(&self, op: &WriteOp) -> Result<Receipt, TransferError> {
        let (done, answer) = oneshot::channel();
        let call = Call::Write {
            capability: op.capability.clone(),
            payload: op.payload.clone(),
            source_crcs: Arc::clone(&op.block_crcs),
            done,
        };
        self.calls
            .send(call)
            .await
            .map_err(|_| TransferError::ConnectionLost)?;
        Ok(answer.await.map_err(|_| TransferError::ConnectionLost)??)
    }

    async fn read_once(&self, op: &mut ReadOp) -> Result<ReadFacts, TransferError> {
        super::tcp::check_read(op)?;
        let (done, answer) = oneshot::channel();
        let call = Call::Read {
            capability: op.capability.clone(),
            offset_bytes: op.offset_bytes,
            length_bytes: op.length_bytes,
            done,
        };
        self.calls
            .send(call)
            .await
            .map_err(|_| TransferError::ConnectionLost)?;
        let found = answer.await.map_err(|_| TransferError::ConnectionLost)??;
        if !found.unchanged {
            return Err(TransferError::Torn);
        }
        let check = BlockCheck::new(&found.facts.block_crcs, found.payload.len());
        let mut check = check.ok_or(TransferError::Corrupt)?;
        check.see(&found.payload);
        if !check.is_right() {
            return Err(TransferError::Corrupt);
        }
        op.buffer.extend_from_slice(&found.payload);
        Ok(found.facts)
    }
}

impl FakeAgent {
    /// Serves calls of `tenant` until the transport is dropped.
    pub async fn run(
        mut self,
        segments: SegmentsHandle,
        tenant: TenantId,
        clock: Rc<dyn Fn() -> LocalMs>,
    ) {
        while let Some(call) = self.calls.recv().await {
            let now = clock();
            // A caller that gave up does not hear of it; the late answer is dropped.
            match call {
                Call::Write {
                    capability,
                    payload,
                    source_crcs,
                    done,
                } => {
                    let written = write(
                        &segments,
                        &tenant,
                        &capability,
                        (&payload, &source_crcs),
                        now,
                    );
                    let _ = done.send(written);
                }
                Call::Read {
                    capability,
                    offset_bytes,
                    length_bytes,
                    done,
                } => {
                    let range = (offset_bytes, length_bytes);
                    let _ = done.send(read(&segments, &tenant, &capability, range, now));
                }
            }
        }
    }
}

fn write(
    segments: &SegmentsHandle,
    tenant: &TenantId,
    capability: &SignedCapability,
    (payload, source_crcs): (&[u8], &[u32]),
    now: LocalMs,
) -> Result<Receipt, DataError> {
    segments.with(|all| {
        let ticket = match all.begin_write(tenant, capability, now)? {
            WriteStart::Already(receipt, crcs) if crcs == source_crcs => return Ok(receipt),
            WriteStart::Already(..) => return Err(DataReason::Checksum.into()),
            WriteStart::Go(ticket) => ticket,
        };
        let fits = ticket.length_bytes == payload.len() as u64;
        if !fits || ticket.memory.copy_in(ticket.offset_bytes, payload).is_err() {
            all.abort_write(ticket);
            return Err(DataReason::OutOfBounds.into());
        }
        all.finish_write(ticket, source_crcs, &block_crcs(payload))
    })
}

fn read(
    segments: &SegmentsHandle,
    tenant: &TenantId,
    capability: &SignedCapability,
    (offset_bytes, length_bytes): (u64, u64),
    now: LocalMs,
) -> Result<Found, DataError> {
    segments.with(|all| {
        let ticket = all.begin_read(tenant, capability, offset_bytes, length_bytes, now)?;
        // Within a slab by now, so it fits into memory.
        let mut payload = vec![0; usize::try_from(ticket.length_bytes).unwrap_or(0)];
        let copied = ticket.memory.copy_out(ticket.offset_bytes, &mut payload);
        let facts = ReadFacts {
            version: ticket.version,
            block_crcs: ticket.block_crcs.clone(),
        };
        let unchanged = all.end_read(ticket);
        copied.map_err(|_| DataError::new(DataReason::Internal))?;
        Ok(Found {
            payload,
            facts,
            unchanged,
        })
    })
}

impl Transport for FakeTransport {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn write(&self, op: WriteOp) -> BoxFuture<'_, WriteDone> {
        Box::pin(async move {
            let result = timeout_at(op.deadline, self.write_once(&op)).await;
            let result = result.unwrap_or(Err(TransferError::DeadlinePassed));
            WriteDone {
                payload: op.payload,
                result,
            }
        })
    }

    fn read(&self, mut op: ReadOp) -> BoxFuture<'_, ReadDone> {
        Box::pin(async move {
            let before = op.buffer.len();
            let result = timeout_at(op.deadline, self.read_once(&mut op)).await;
            let result = result.unwrap_or(Err(TransferError::DeadlinePassed));
            if result.is_err() {
                op.buffer.truncate(before);
            }
            ReadDone {
                buffer: op.buffer,
                result,
            }
        })
    }
}
