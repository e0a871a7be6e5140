//! Whether a capability opens what it names: the checks, in their order, before any byte moves.

use larder_types::key::MAX_KEY_BYTES;
use larder_types::{PoolTime, TenantId};
use larder_wire::data::{DataError, DataReason};
use larder_wire::{Capability, Reach, SignedCapability};

use super::Segments;
use super::epoch::LocalMs;
use super::range::Span;
use super::slab::Slab;

/// A capability that passed, with what it opens. The rule about versions is the caller's.
#[derive(Debug)]
pub(super) struct Passed {
    pub(super) capability: Capability,
    /// The slab's number in this process.
    pub(super) life: u64,
    pub(super) span: Span,
}

pub(super) fn refuse(reason: DataReason, detail: String) -> DataError {
    DataError { reason, detail }
}

impl Segments {
    /// Forged, other agent or life of it, foreign tenant, wrong access, too late, slab changed
    /// hands, out of bounds, and for writes an epoch that is over: in this order.
    pub(super) fn check(
        &self,
        tenant: &TenantId,
        signed: &SignedCapability,
        reach: Reach,
        now: LocalMs,
    ) -> Result<Passed, DataError> {
        let capability = signed.verify(&self.keys).map_err(|_| DataReason::Forged)?;
        let extent = capability.extent;
        let ours = self.agent == Some(extent.slab.agent);
        if !ours || capability.incarnation != self.incarnation {
            return Err(DataReason::StaleIncarnation.into());
        }
        if capability.tenant != *tenant || self.is_gone(tenant) {
            return Err(DataReason::ForeignTenant.into());
        }
        if capability.reach != reach {
            return Err(DataReason::WrongAccess.into());
        }
        let time = self.gate.time_in(capability.epoch, now);
        check_deadline(capability.deadline, time)?;
        let place = (extent.slab.segment, extent.slab.index);
        let found = self
            .open
            .get(&place)
            .and_then(|life| Some((*life, self.slabs.get(life)?)));
        let Some((life, slab)) = found else {
            return Err(DataReason::StaleRegistration.into());
        };
        if slab.reference != extent.slab || slab.tenant != *tenant {
            return Err(DataReason::StaleRegistration.into());
        }
        let span = check_bounds(&capability, slab)?;
        let highest = self.gate.highest();
        let over = capability.epoch < highest
            // A generation of which no master has told us yet: its slabs are not these.
            || capability.epoch.generation > highest.generation;
        if reach == Reach::Write && over {
            let said = capability.epoch;
            return Err(refuse(
                DataReason::StaleEpoch,
                format!("{said}, {highest} was seen"),
            ));
        }
        Ok(Passed {
            capability,
            life,
            span,
        })
    }
}

fn check_deadline(deadline: PoolTime, now: Option<PoolTime>) -> Result<(), DataError> {
    match now {
        Some(now) if now <= deadline => Ok(()),
        Some(now) => {
            let late_ms = now.since_ms(deadline);
            Err(refuse(
                DataReason::Expired,
                format!("{late_ms} ms too late"),
            ))
        }
        None => Err(refuse(
            DataReason::Expired,
            "no master has told the time yet".to_owned(),
        )),
    }
}

fn check_bounds(capability: &Capability, slab: &Slab) -> Result<Span, DataError> {
    let extent = &capability.extent;
    let Some(span) = slab.span(extent) else {
        let (offset, length) = (extent.offset_bytes, extent.length_bytes);
        let detail = format!("{length} bytes from {offset} are no extent of this slab");
        return Err(refuse(DataReason::OutOfBounds, detail));
    };
    let described = capability.part < capability.parts
        && capability.object_bytes >= extent.length_bytes
        && (1..=MAX_KEY_BYTES).contains(&capability.key.len());
    if capability.reach == Reach::Write && !described {
        let detail = "the capability to write does not describe its object".to_owned();
        return Err(refuse(DataReason::OutOfBounds, detail));
    }
    Ok(span)
}
