//! What one connection holds of the agent's bytes; all of it is given back by being dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use larder_types::{SlabRef, TenantId};
use larder_wire::data::{DataError, DataReason};
use larder_wire::{Receipt, SignedCapability};
use tokio::sync::Notify;

use crate::{
    ForeignMap, LocalMs, ReadTicket, SegmentsHandle, SlabMemory, ViewTicket, WriteStart,
    WriteTicket,
};

/// The most buffers that one connection may lend. Each is a mapping of this process, of which
/// the kernel allows 65,530 by default.
pub(super) const BUFFERS_MAX: usize = 64;
/// The most views that one connection may hold; the bytes in them are capped per tenant.
pub(super) const VIEWS_MAX: usize = 4096;
/// How many slabs a connection is known to have mapped; beyond, descriptors are sent again.
const SLABS_MAX: usize = 16_384;

/// The agent's segments as one tenant's connection sees them.
#[derive(Clone, Debug)]
pub(super) struct Reached {
    pub(super) segments: SegmentsHandle,
    pub(super) events: Rc<Notify>,
    pub(super) tenant: TenantId,
}

/// A write under way. Dropped without [`Self::finish`] it is aborted.
#[derive(Debug)]
pub(super) struct Writing<'a> {
    reached: &'a Reached,
    ticket: Option<WriteTicket>,
    pub(super) memory: Arc<SlabMemory>,
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
}

/// How a write begins.
pub(super) enum Begun<'a> {
    /// The bytes are wanted.
    Go(Writing<'a>),
    /// They are here already, with these checksums.
    Already(Receipt, Vec<u32>),
}

/// A read under way. Dropped without [`Self::end`] it is over too.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    reached: &'a Reached,
    ticket: Option<ReadTicket>,
}

impl Reached {
    pub(super) fn begin_write(
        &self,
        capability: &SignedCapability,
        now: LocalMs,
    ) -> Result<Begun<'_>, DataError> {
        let started = self
            .segments
            .with(|all| all.begin_write(&self.tenant, capability, now))?;
        Ok(match started {
            WriteStart::Already(receipt, crcs) => Begun::Already(receipt, crcs),
            WriteStart::Go(ticket) => Begun::Go(Writing {
                reached: self,
                memory: Arc::clone(&ticket.memory),
                offset_bytes: ticket.offset_bytes,
                length_bytes: ticket.length_bytes,
                ticket: Some(ticket),
            }),
        })
    }

    pub(super) fn begin_read(
        &self,
        capability: &SignedCapability,
        offset_bytes: u64,
        length_bytes: u64,
        now: LocalMs,
    ) -> Result<Reading<'_>, DataError> {
        let ticket = self.segments.with(|all| {
            all.begin_read(&self.tenant, capability, offset_bytes, length_bytes, now)
        })?;
        Ok(Reading {
            reached: self,
            ticket: Some(ticket),
        })
    }
}

impl Writing<'_> {
    /// Ends the write: `own_crcs` are of the bytes as they lie in the slab.
    pub(super) fn finish(
        mut self,
        source_crcs: &[u32],
        own_crcs: &[u32],
    ) -> Result<Receipt, DataError> {
        let ticket = self.ticket.take().ok_or(DataReason::Internal)?;
        let done = self
            .reached
            .segments
            .with(|all| all.finish_write(ticket, source_crcs, own_crcs));
        self.reached.events.notify_one();
        done
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.reached.segments.with(|all| all.abort_write(ticket));
            self.reached.events.notify_one();
        }
    }
}

impl Reading<'_> {
    /// Where the bytes are and what the record says of them.
    pub(super) fn ticket(&self) -> Result<&ReadTicket, DataError> {
        // Only `end` takes it, which takes `self` too.
        self.ticket
            .as_ref()
            .ok_or_else(|| DataReason::Internal.into())
    }

    /// Ends the read: whether the record is still the one that it began with.
    pub(super) fn end(mut self) -> bool {
        let ticket = self.ticket.take();
        let unchanged =
            ticket.is_some_and(|ticket| self.reached.segments.with(|all| all.end_read(ticket)));
        self.reached.events.notify_one();
        unchanged
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.reached.segments.with(|all| all.end_read(ticket));
            self.reached.events.notify_one();
        }
    }
}

/// What a connection of the Unix socket holds from one frame to the next.
#[derive(Debug)]
pub(super) struct Held {
    reached: Reached,
    last: u64,
    buffers: BTreeMap<u64, Rc<ForeignMap>>,
    views: BTreeMap<u64, ViewTicket>,
    mapped: BTreeSet<SlabRef>,
}

impl Held {
    pub(super) fn new(reached: Reached) -> Self {
        let (buffers, views) = (BTreeMap::new(), BTreeMap::new());
        Self {
            reached,
            last: 0,
            buffers,
            views,
            mapped: BTreeSet::new(),
        }
    }

    pub(super) fn add_buffer(&mut self, map: ForeignMap) -> Result<u64, DataError> {
        if self.buffers.len() >= BUFFERS_MAX {
            let detail = format!("{BUFFERS_MAX} buffers; take one back first");
            return Err(DataError {
                reason: DataReason::Limit,
                detail,
            });
        }
        self.last += 1;
        self.buffers.insert(self.last, Rc::new(map));
        Ok(self.last)
    }

    pub(super) fn buffer(&self, number: u64) -> Result<Rc<ForeignMap>, DataError> {
        let found = self.buffers.get(&number).map(Rc::clone);
        found.ok_or_else(|| DataReason::BufferUnknown.into())
    }

    pub(super) fn remove_buffer(&mut self, number: u64) -> Result<(), DataError> {
        let removed = self.buffers.remove(&number);
        removed
            .map(drop)
            .ok_or_else(|| DataReason::BufferUnknown.into())
    }

    /// Whether there is room for another view.
    pub(super) fn room_for_view(&self) -> Result<(), DataError> {
        if self.views.len() < VIEWS_MAX {
            return Ok(());
        }
        let detail = format!("{VIEWS_MAX} views; close some first");
        Err(DataError {
            reason: DataReason::Limit,
            detail,
        })
    }

    pub(super) fn add_view(&mut self, ticket: ViewTicket) -> u64 {
        self.last += 1;
        self.views.insert(self.last, ticket);
        self.last
    }

    /// Lets go of a view; false if there is none of that number.
    pub(super) fn close_view(&mut self, number: u64) -> bool {
        let Some(ticket) = self.views.remove(&number) else {
            return false;
        };
        self.reached.segments.with(|all| all.close_view(ticket));
        self.reached.events.notify_one();
        true
    }

    pub(super) fn has_mapped(&self, slab: &SlabRef) -> bool {
        self.mapped.contains(slab)
    }

    /// Notes that the descriptor of a slab was sent.
    pub(super) fn now_mapped(&mut self, slab: SlabRef) {
        if self.mapped.len() >= SLABS_MAX {
            self.mapped.clear();
        }
        self.mapped.insert(slab);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let views = std::mem::take(&mut self.views);
        if views.is_empty() {
            return;
        }
        self.reached.segments.with(|all| {
            for ticket in views.into_values() {
                all.close_view(ticket);
            }
        });
        self.reached.events.notify_one();
    }
}
