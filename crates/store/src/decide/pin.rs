//! Deciding pins: set, changed, taken away, and how many bytes may be pinned for good.

use larder_types::{Key, Pin, PoolTime, Reason, TenantId};

use super::{Outcome, Right, Stop, refuse};
use crate::leader::Leader;
use crate::leases::Protection;
use crate::objects::{ObjectId, ObjectRef};
use crate::op::Op;
use crate::reply::{Refusal, Reply};
use crate::state::{State, Tenant};

impl Leader {
    /// What protects an object from eviction now.
    #[must_use]
    pub fn protection(
        &self,
        state: &State,
        tenant: &TenantId,
        id: ObjectId,
        now: PoolTime,
    ) -> Protection {
        let held = state.tenant(tenant);
        let Some((_, object)) = held.and_then(|held| held.objects.by_id(id)) else {
            return Protection::None;
        };
        if object.attributes().pin == Pin::Hard {
            Protection::HardPin
        } else if self.leases.is_leased(tenant, object, now) {
            Protection::Lease
        } else if self.leases.pin_left_ms(tenant, object, now) > 0 {
            Protection::SoftPin
        } else {
            Protection::None
        }
    }

    /// Whether a lease, a hard pin, or a soft pin within its time protects an object from
    /// eviction.
    #[must_use]
    pub fn is_protected(
        &self,
        state: &State,
        tenant: &TenantId,
        id: ObjectId,
        now: PoolTime,
    ) -> bool {
        self.protection(state, tenant, id, now) != Protection::None
    }

    /// Sets the pin of an object, or takes it away.
    pub(super) fn set_pin(
        &mut self,
        state: &State,
        tenant: &TenantId,
        key: &Key,
        pin: Pin,
    ) -> Outcome {
        let held = self.tenant(state, tenant, Right::Write)?;
        let pin = self.pin(pin)?;
        self.untouched(state, tenant, key)?;
        let pending = self.overlay.pending(tenant, key);
        let Some(object) = held.objects.get(key) else {
            return match pending {
                Some(put) => refuse(
                    Reason::NotReady,
                    format!("version {} is not complete yet", put.version),
                ),
                None => refuse(Reason::NotFound, format!("key {key}")),
            };
        };
        if pin == Pin::Hard && object.attributes().pin != Pin::Hard {
            let own = object.charge_bytes();
            // A put that replaces it and does not say otherwise will be pinned too.
            let heir = pending.map_or(Some(0), |put| put.inherits_bytes());
            let bytes = own.and_then(|own| own.checked_add(heir?));
            self.admit_pinned(state, (tenant, held), bytes.unwrap_or(u64::MAX))?;
        }
        let op = Op::PinSet {
            tenant: tenant.clone(),
            key: key.clone(),
            version: object.version(),
            pin,
        };
        Ok(self.answer_with(vec![op], Reply::Done))
    }

    /// A pin with its time filled in: 0 is that of the settings.
    pub(super) fn pin(&self, asked: Pin) -> Result<Pin, Stop> {
        let most = self.settings.soft_pin_max_ms;
        match asked {
            Pin::Soft { ttl_ms: 0 } => Ok(Pin::Soft {
                ttl_ms: self.settings.soft_pin_ms,
            }),
            Pin::Soft { ttl_ms } if ttl_ms > most => refuse(
                Reason::BadArgument,
                format!("a soft pin of {ttl_ms} ms, it may last {most} ms; pin it hard instead"),
            ),
            pin => Ok(pin),
        }
    }

    /// Whether so many more bytes of a tenant may be pinned hard.
    pub(super) fn admit_pinned(
        &mut self,
        state: &State,
        (tenant, held): (&TenantId, &Tenant),
        bytes: u64,
    ) -> Result<(), Stop> {
        if bytes == 0 {
            return Ok(());
        }
        let limit = self.limit_pinned_bytes(state, tenant);
        let (pinned, pinning) = (held.pinned_bytes, self.overlay.pinning_bytes(tenant));
        let total = pinned
            .checked_add(pinning)
            .and_then(|sum| sum.checked_add(bytes));
        if total.is_some_and(|total| total <= limit) {
            return Ok(());
        }
        refuse(
            Reason::QuotaPinnedBytes,
            format!("limit {limit}, pinned {pinned}, being pinned {pinning}, asked {bytes}"),
        )
    }

    /// Refuses while a lease protects an object, or may.
    pub(super) fn unleased(
        &self,
        tenant: &TenantId,
        object: ObjectRef<'_>,
        now: PoolTime,
    ) -> Result<(), Refusal> {
        let key = object.key();
        if self.leases.is_leased(tenant, object, now) {
            return Err(Refusal::new(Reason::LeaseHeld, format!("key {key}")));
        }
        match self.leases.unknown_ms(tenant, object.id(), now) {
            0 => Ok(()),
            ms => Err(Refusal::new(
                Reason::LeaseHeld,
                format!("key {key}: a former leader may have granted a lease, for {ms} ms more"),
            )),
        }
    }
}
