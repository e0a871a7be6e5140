//! One connection for writes and copying reads, with the buffers that it has registered.

use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use larder_wire::data::{
    BufferRegistered, DataError, DataReason, Pull, RegisterBuffer, UnregisterBuffer,
};
use larder_wire::{Kind, Receipt};

use crate::lane::{FdStream, Lane, Socket, is_quiet};
use crate::memory::SharedBuffer;
use crate::transport::pool::Pooled;
use crate::transport::{TransferError, WriteOp, remaining_ms};

/// How many lent buffers one lane keeps registered; half of what an agent allows a connection.
const REGISTERED_MAX: usize = 32;
/// The smallest staging buffer, in bytes; it doubles as longer payloads come.
const STAGING_MIN_BYTES: u64 = 1024 * 1024;

/// The outer error means that the lane must be dropped, the inner one that it can go on.
type Pulled = Result<Result<Receipt, DataError>, TransferError>;

/// A lane of the Unix socket.
#[derive(Debug)]
pub(super) struct ShmLane {
    lane: Lane<FdStream>,
    /// This lane's own buffer, and its number at the agent. Belongs to one call at a time like
    /// the lane; a call that is cut off takes both with it, so nothing is pulled late.
    staging: Option<(SharedBuffer, u64)>,
    /// Lent buffers and their numbers at the agent, oldest first.
    registered: Vec<(Weak<SharedBuffer>, u64)>,
}

impl Pooled for ShmLane {
    fn is_fresh(&self) -> bool {
        self.lane.is_settled() && is_quiet(self.lane.stream().as_fd())
    }
}

impl ShmLane {
    pub(super) const fn new(lane: Lane<FdStream>) -> Self {
        Self {
            lane,
            staging: None,
            registered: Vec::new(),
        }
    }

    pub(super) const fn inner(&mut self) -> &mut Lane<FdStream> {
        &mut self.lane
    }

    /// Writes from where the payload lies.
    pub(super) async fn pull_lent(
        &mut self,
        lent: &Arc<SharedBuffer>,
        offset_bytes: u64,
        op: &WriteOp,
    ) -> Pulled {
        self.forget_dead(op).await?;
        let same = |known: &Weak<SharedBuffer>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(lent));
        let known = self
            .registered
            .iter()
            .find(|(known, _)| same(known))
            .map(|(_, id)| *id);
        let buffer = match known {
            Some(buffer) => buffer,
            None => {
                let buffer = match register(&mut self.lane, lent, op).await? {
                    Ok(buffer) => buffer,
                    Err(refused) => return Ok(Err(refused)),
                };
                self.registered.push((Arc::downgrade(lent), buffer));
                buffer
            }
        };
        self.pull(buffer, offset_bytes, op).await
    }

    /// Copies the payload to memory that the agent can read, and writes from there.
    pub(super) async fn pull_staged(&mut self, op: &WriteOp) -> Pulled {
        let bytes = op.payload.len() as u64;
        if self
            .staging
            .as_ref()
            .is_none_or(|(staging, _)| staging.bytes() < bytes)
        {
            if let Some((_, buffer)) = self.staging.take() {
                self.unregister(buffer, op).await?;
            }
            let room = bytes.next_power_of_two().max(STAGING_MIN_BYTES);
            let staging = SharedBuffer::create(room).map_err(|error| DataError {
                reason: DataReason::Limit,
                detail: error.to_string(),
            });
            let staging = match staging {
                Ok(staging) => staging,
                Err(refused) => return Ok(Err(refused)),
            };
            match register(&mut self.lane, &staging, op).await? {
                Ok(buffer) => self.staging = Some((staging, buffer)),
                Err(refused) => return Ok(Err(refused)),
            }
        }
        let Some((staging, buffer)) = &mut self.staging else {
            return Ok(Err(DataReason::Internal.into()));
        };
        let buffer = *buffer;
        if let Err(error) = staging.write_at(0, &op.payload) {
            return Ok(Err(DataError {
                reason: DataReason::Internal,
                detail: error.to_string(),
            }));
        }
        self.pull(buffer, 0, op).await
    }

    async fn pull(&mut self, buffer: u64, offset_bytes: u64, op: &WriteOp) -> Pulled {
        let body = Pull {
            capability: op.capability.clone(),
            buffer,
            offset_bytes,
            block_crcs: op.block_crcs.to_vec(),
        };
        let left_ms = remaining_ms(op.deadline);
        let header = self.lane.call(Kind::Pull, &body, &[], left_ms).await?;
        Ok(self.lane.decode(&header)?)
    }

    /// Lets the agent unmap what is gone here, and the oldest if there are too many.
    async fn forget_dead(&mut self, op: &WriteOp) -> Result<(), TransferError> {
        let mut at = 0;
        while at < self.registered.len() {
            let full = at == 0 && self.registered.len() >= REGISTERED_MAX;
            if full || self.registered[at].0.strong_count() == 0 {
                let (_, buffer) = self.registered.remove(at);
                self.unregister(buffer, op).await?;
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    async fn unregister(&mut self, buffer: u64, op: &WriteOp) -> Result<(), TransferError> {
        let body = UnregisterBuffer { buffer };
        let left_ms = remaining_ms(op.deadline);
        let header = self
            .lane
            .call(Kind::UnregisterBuffer, &body, &[], left_ms)
            .await?;
        self.lane.decode::<(), DataError>(&header)??;
        Ok(())
    }
}

async fn register(
    lane: &mut Lane<FdStream>,
    buffer: &SharedBuffer,
    op: &WriteOp,
) -> Result<Result<u64, DataError>, TransferError> {
    let fd = buffer.fd().try_clone_to_owned().map_err(|error| DataError {
        reason: DataReason::Limit,
        detail: error.to_string(),
    });
    match fd {
        Ok(fd) => lane.stream_mut().send_fd(fd),
        Err(refused) => return Ok(Err(refused)),
    }
    let body = RegisterBuffer {
        length_bytes: buffer.bytes(),
    };
    let left_ms = remaining_ms(op.deadline);
    let header = lane.call(Kind::RegisterBuffer, &body, &[], left_ms).await?;
    let registered = lane.decode::<BufferRegistered, DataError>(&header)?;
    Ok(registered.map(|registered| registered.buffer))
}
