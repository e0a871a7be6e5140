//! Reading and viewing written extents.

use std::sync::Arc;

use larder_types::TenantId;
use larder_types::layout::{self, BLOCK_BYTES};
use larder_wire::data::{DataError, DataReason};
use larder_wire::{Reach, SignedCapability};

use super::Segments;
use super::check::{Passed, refuse};
use super::epoch::LocalMs;
use super::hold::{Hold, HoldKind};
use super::slab::Slab;
use super::ticket::{ReadTicket, ViewTicket};
use crate::record::{Record, RecordState};

impl Segments {
    /// Asks to read `length` bytes from `offset` of the extent of a capability. Both in bytes;
    /// the range must be whole 64 KiB blocks, but for the extent's last one: only whole blocks
    /// can be verified.
    ///
    /// # Errors
    /// The first check that fails, see [`DataReason`].
    pub fn begin_read(
        &mut self,
        tenant: &TenantId,
        capability: &SignedCapability,
        offset: u64,
        length: u64,
        now: LocalMs,
    ) -> Result<ReadTicket, DataError> {
        let passed = self.check(tenant, capability, Reach::Read, now)?;
        let extent = passed.capability.extent;
        let (first, count) = blocks_of(offset, length, extent.length_bytes)?;
        let (slab, record) = self.written(&passed)?;
        let block_crcs = record
            .block_crcs
            .iter()
            .skip(first)
            .take(count)
            .copied()
            .collect();
        let memory = Arc::clone(&slab.memory);
        let version = record.version;
        let id = self.start_hold(Hold {
            life: passed.life,
            span: passed.span,
            version,
            kind: HoldKind::Read,
        })?;
        let offset_bytes = extent.offset_bytes + offset;
        Ok(ReadTicket {
            id,
            memory,
            offset_bytes,
            length_bytes: length,
            version,
            block_crcs,
        })
    }

    /// The bytes were sent. Whether the record still stood as it was at the start; if not, what
    /// was sent must not be used.
    pub fn end_read(&mut self, ticket: ReadTicket) -> bool {
        let hold = self.end_hold(ticket.id);
        let unchanged = hold.is_some_and(|hold| {
            let table = self
                .slabs
                .get(&hold.life)
                .and_then(|slab| slab.table.as_ref());
            let record = table.and_then(|table| table.get(hold.span));
            record.is_some_and(|record| {
                record.version == hold.version && record.state == RecordState::Written
            })
        });
        if !unchanged {
            self.counters.late_completions += 1;
        }
        unchanged
    }

    /// Asks to hold the extent of a capability for reading in place.
    ///
    /// # Errors
    /// The first check that fails, see [`DataReason`]; `ViewLimit` if the tenant would hold more
    /// bytes in views than it may.
    pub fn open_view(
        &mut self,
        tenant: &TenantId,
        capability: &SignedCapability,
        now: LocalMs,
    ) -> Result<ViewTicket, DataError> {
        let passed = self.check(tenant, capability, Reach::Read, now)?;
        let extent = passed.capability.extent;
        let bytes = extent.length_bytes;
        let (slab, record) = self.written(&passed)?;
        let block_crcs = record.block_crcs.to_vec();
        let memory = Arc::clone(&slab.memory);
        let version = record.version;
        self.views.take(tenant, bytes).map_err(|(held, max)| {
            let detail = format!("{held} of {max} bytes are held, {bytes} more were asked");
            refuse(DataReason::ViewLimit, detail)
        })?;
        let kind = HoldKind::View {
            tenant: tenant.clone(),
            bytes,
        };
        let hold = Hold {
            life: passed.life,
            span: passed.span,
            version,
            kind,
        };
        let id = match self.start_hold(hold) {
            Ok(id) => id,
            Err(refusal) => {
                self.views.give_back(tenant, bytes);
                return Err(refusal);
            }
        };
        Ok(ViewTicket {
            id,
            memory,
            slab: extent.slab,
            offset_bytes: extent.offset_bytes,
            length_bytes: bytes,
            version,
            block_crcs,
        })
    }

    /// Lets go of a view.
    pub fn close_view(&mut self, ticket: ViewTicket) {
        if self.end_hold(ticket.id).is_none() {
            self.counters.late_completions += 1;
        }
    }

    /// The written record that a capability names.
    fn written(&self, passed: &Passed) -> Result<(&Slab, &Record), DataError> {
        let slab = self
            .slabs
            .get(&passed.life)
            .ok_or(DataReason::StaleRegistration)?;
        let table = slab.table.as_ref().ok_or(DataReason::StaleRegistration)?;
        let capability = &passed.capability;
        let record = table.get(passed.span).filter(|record| {
            record.version == capability.version
                && record.state == RecordState::Written
                && record.length_bytes == capability.extent.length_bytes
        });
        record
            .map(|record| (slab, record))
            .ok_or_else(|| DataReason::StaleVersion.into())
    }
}

/// The first block and the number of blocks of a range within an extent of `extent_bytes`.
fn blocks_of(offset: u64, length: u64, extent_bytes: u64) -> Result<(usize, usize), DataError> {
    let end = offset
        .checked_add(length)
        .filter(|end| length > 0 && *end <= extent_bytes);
    let whole = |end: u64| {
        offset.is_multiple_of(BLOCK_BYTES)
            && (end == extent_bytes || end.is_multiple_of(BLOCK_BYTES))
    };
    if !end.is_some_and(whole) {
        let detail =
            format!("{length} bytes from {offset} are no whole blocks of {extent_bytes} bytes");
        return Err(refuse(DataReason::OutOfBounds, detail));
    }
    let first = usize::try_from(offset / BLOCK_BYTES).map_err(|_| DataReason::OutOfBounds)?;
    let count = usize::try_from(layout::blocks(length)).map_err(|_| DataReason::OutOfBounds)?;
    Ok((first, count))
}
