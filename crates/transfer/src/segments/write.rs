//! Writing an extent: leave, bytes, receipt.

use larder_types::{Extent, TenantId, Version, layout};
use larder_wire::data::{DataError, DataReason};
use larder_wire::{Capability, Reach, Receipt, SignedCapability, checksum};

use super::Segments;
use super::check::{Passed, refuse};
use super::epoch::LocalMs;
use super::hold::{Hold, HoldKind};
use super::slab::Slab;
use super::ticket::{WriteStart, WriteTicket};
use crate::record::{Record, RecordState};

/// What stands where somebody wants to write.
enum Found {
    /// Nothing of this version or a higher one.
    Free,
    /// This very write, begun before and not finished.
    Begun,
    /// This very write, finished, with its block checksums.
    Done(Vec<u32>),
}

impl Segments {
    /// Asks to write the extent of a capability. `tenant` is what the connection proved.
    ///
    /// # Errors
    /// The first check that fails, see [`DataReason`]; `Conflict` while something else holds a
    /// byte of the extent.
    pub fn begin_write(
        &mut self,
        tenant: &TenantId,
        capability: &SignedCapability,
        now: LocalMs,
    ) -> Result<WriteStart, DataError> {
        let passed = self.check(tenant, capability, Reach::Write, now)?;
        let slab = self
            .slabs
            .get(&passed.life)
            .ok_or(DataReason::StaleRegistration)?;
        match find(slab, &passed)? {
            Found::Done(crcs) => {
                let Capability {
                    extent, version, ..
                } = passed.capability;
                let receipt = self.receipt(extent, version, &crcs)?;
                Ok(WriteStart::Already(receipt, crcs))
            }
            Found::Begun => self.start_write(passed, Begin::Again).map(WriteStart::Go),
            Found::Free => self.start_write(passed, Begin::New).map(WriteStart::Go),
        }
    }

    /// Asks to write a copy of an object that exists elsewhere, for this agent itself. The
    /// capability came with the leader's order and is good for nobody else.
    ///
    /// A copy carries the version of its object, which may be older than what was written or
    /// erased there before. The rule that versions only rise at a place guards against clients
    /// that are late; the leader's order is fenced by its epoch, and what is refused to clients
    /// stays refused.
    ///
    /// # Errors
    /// As [`Self::begin_write`], but for `StaleVersion`.
    pub fn begin_copy(
        &mut self,
        tenant: &TenantId,
        capability: &SignedCapability,
        now: LocalMs,
    ) -> Result<WriteStart, DataError> {
        let passed = self.check(tenant, capability, Reach::Write, now)?;
        let slab = self
            .slabs
            .get(&passed.life)
            .ok_or(DataReason::StaleRegistration)?;
        if let Some(Found::Done(crcs)) = find_same(slab, &passed)? {
            let Capability {
                extent, version, ..
            } = passed.capability;
            let receipt = self.receipt(extent, version, &crcs)?;
            return Ok(WriteStart::Already(receipt, crcs));
        }
        if slab.held.overlaps(passed.span) {
            return Err(DataReason::Conflict.into());
        }
        self.start_write(passed, Begin::Copy).map(WriteStart::Go)
    }
}

/// What is to be done with the records that stand where a write begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begin {
    /// Put a new one in the place of older ones.
    New,
    /// Go on with the one that stands there.
    Again,
    /// Put a new one there whatever stands there, and refuse to clients what was refused.
    Copy,
}

impl Segments {
    /// The bytes are there: compares checksums, sets the record to `written` and signs for it.
    /// `source_crcs` came from the writer; `own_crcs` were computed here over what arrived.
    ///
    /// # Errors
    /// `Checksum` if they differ: the write may be repeated. `StaleVersion` if the version was
    /// erased or the slab taken meanwhile, and `StaleEpoch` if the leader changed: the bytes count
    /// for nothing, and their range is free for others from now on.
    pub fn finish_write(
        &mut self,
        ticket: WriteTicket,
        source_crcs: &[u32],
        own_crcs: &[u32],
    ) -> Result<Receipt, DataError> {
        let late = DataError::new(DataReason::StaleVersion);
        let Some(hold) = self.end_hold(ticket.id) else {
            self.counters.late_completions += 1;
            return Err(late);
        };
        let table = self
            .slabs
            .get_mut(&hold.life)
            .and_then(|slab| slab.table.as_mut());
        let begun = table.filter(|table| {
            let record = table.get(hold.span);
            record.is_some_and(|record| {
                record.version == hold.version && record.state == RecordState::Writing
            })
        });
        let Some(table) = begun else {
            self.counters.late_completions += 1;
            return Err(late);
        };
        let highest = self.gate.highest();
        if let HoldKind::Write { epoch } = hold.kind
            && epoch < highest
        {
            self.counters.late_completions += 1;
            return Err(refuse(
                DataReason::StaleEpoch,
                format!("{epoch}, {highest} was seen"),
            ));
        }
        compare(source_crcs, own_crcs, layout::blocks(ticket.length_bytes))?;
        table
            .finish(hold.span, own_crcs)
            .map_err(|error| refuse(DataReason::Internal, larder_telemetry::error_chain(&error)))?;
        let slab = self.slabs.get(&hold.life).ok_or(late)?;
        let extent = Extent {
            slab: slab.reference,
            offset_bytes: ticket.offset_bytes,
            length_bytes: ticket.length_bytes,
        };
        self.receipt(extent, hold.version, own_crcs)
    }

    /// The bytes will not come. The record stays `writing`, for a repeat or for its erasure.
    pub fn abort_write(&mut self, ticket: WriteTicket) {
        if self.end_hold(ticket.id).is_none() {
            self.counters.late_completions += 1;
        }
    }

    fn start_write(&mut self, passed: Passed, begin: Begin) -> Result<WriteTicket, DataError> {
        let Passed {
            capability,
            life,
            span,
        } = passed;
        let hold = Hold {
            life,
            span,
            version: capability.version,
            kind: HoldKind::Write {
                epoch: capability.epoch,
            },
        };
        if begin != Begin::Again {
            self.take_record()?;
        }
        let id = self.start_hold(hold)?;
        let slab = self.slabs.get_mut(&life);
        let Some((memory, table)) =
            slab.and_then(|slab| Some((slab.memory.clone(), slab.table.as_mut()?)))
        else {
            self.end_hold(id);
            return Err(DataReason::StaleRegistration.into());
        };
        let Extent {
            offset_bytes,
            length_bytes,
            ..
        } = capability.extent;
        let begun = match begin {
            Begin::Again => Ok(()),
            Begin::New => table.begin(span, record_of(capability)),
            Begin::Copy => table.begin_copy(span, record_of(capability)),
        };
        if let Err(error) = begun {
            self.end_hold(id);
            return Err(refuse(
                DataReason::Internal,
                larder_telemetry::error_chain(&error),
            ));
        }
        Ok(WriteTicket {
            id,
            memory,
            offset_bytes,
            length_bytes,
        })
    }

    /// Room for one more record.
    fn take_record(&mut self) -> Result<(), DataError> {
        let mut budget = std::mem::take(&mut self.budget);
        let taken = budget.take(|| self.described());
        self.budget = budget;
        if taken {
            return Ok(());
        }
        let detail = format!("at most {}", self.budget.most());
        Err(refuse(DataReason::Records, detail))
    }

    fn receipt(
        &self,
        extent: Extent,
        version: Version,
        crcs: &[u32],
    ) -> Result<Receipt, DataError> {
        // A capability was checked before, so there is a key.
        let key = self.keys.newest().ok_or(DataReason::Internal)?;
        let digest = checksum::digest(crcs, extent.length_bytes);
        Ok(Receipt::sign(
            self.incarnation,
            extent,
            version,
            digest,
            key,
        ))
    }
}

fn record_of(capability: Capability) -> Record {
    let record = Record {
        offset_bytes: capability.extent.offset_bytes,
        length_bytes: capability.extent.length_bytes,
        version: capability.version,
        state: RecordState::Writing,
        tenant: capability.tenant,
        key: capability.key.into(),
        part: capability.part,
        parts: capability.parts,
        object_bytes: capability.object_bytes,
        block_crcs: [].into(),
        stripe: 0,
        wanted: 0,
        attributes: None,
    };
    record.with_memo(capability.memo)
}

/// The record of this very version, if it stands there.
fn find_same(slab: &Slab, passed: &Passed) -> Result<Option<Found>, DataError> {
    let table = slab.table.as_ref().ok_or(DataReason::StaleRegistration)?;
    let Passed {
        capability, span, ..
    } = passed;
    let version = capability.version;
    let same = table.get(*span).filter(|record| {
        record.version == version && record.length_bytes == capability.extent.length_bytes
    });
    Ok(match same {
        Some(record) if record.state == RecordState::Written => {
            Some(Found::Done(record.block_crcs.to_vec()))
        }
        Some(_) if slab.held.overlaps(*span) => return Err(DataReason::Conflict.into()),
        Some(_) => Some(Found::Begun),
        None => None,
    })
}

fn find(slab: &Slab, passed: &Passed) -> Result<Found, DataError> {
    if let Some(found) = find_same(slab, passed)? {
        return Ok(found);
    }
    let table = slab.table.as_ref().ok_or(DataReason::StaleRegistration)?;
    let Passed {
        capability, span, ..
    } = passed;
    let version = capability.version;
    let highest = table.highest(*span).max(slab.floor);
    if let Some(highest) = highest.filter(|highest| *highest >= version) {
        let detail = format!("{version}, {highest} stands there or was erased");
        return Err(refuse(DataReason::StaleVersion, detail));
    }
    // An older version is still being read, viewed or written: nobody has said `released`.
    if slab.held.overlaps(*span) {
        return Err(DataReason::Conflict.into());
    }
    Ok(Found::Free)
}

fn compare(source: &[u32], own: &[u32], blocks: u64) -> Result<(), DataError> {
    let differs = if source.len() as u64 == blocks && own.len() as u64 == blocks {
        source
            .iter()
            .zip(own)
            .position(|(theirs, ours)| theirs != ours)
    } else {
        let detail = format!("{} block checksums for {blocks} blocks", source.len());
        return Err(refuse(DataReason::Checksum, detail));
    };
    match differs {
        None => Ok(()),
        Some(block) => {
            let detail = format!("block {block} of {blocks}");
            Err(refuse(DataReason::Checksum, detail))
        }
    }
}
