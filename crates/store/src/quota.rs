//! Charges and limits of tenants.

use larder_types::{Extent, Reason, layout};

use crate::reply::Refusal;
use crate::request::TenantPolicy;

/// What a tenant is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charge {
    /// Aligned payload of all replicas, in bytes.
    pub(crate) bytes: u64,
    pub(crate) objects: u64,
}

/// What all extents of some replicas take, in bytes. `None` on overflow.
pub(crate) fn charge_of(replicas: &[Vec<Extent>]) -> Option<u64> {
    charge_of_extents(replicas.iter().flatten().copied())
}

/// What these extents take, in bytes. `None` on overflow.
pub(crate) fn charge_of_extents(mut extents: impl Iterator<Item = Extent>) -> Option<u64> {
    extents.try_fold(0u64, |sum, extent| {
        sum.checked_add(layout::reserved_bytes(extent.length_bytes)?)
    })
}

/// What nobody else can take from a tenant. No policy guarantees anything yet.
pub(crate) const fn guaranteed_bytes(_policy: &TenantPolicy) -> u64 {
    0
}

/// Whether a put of `asked_bytes` fits the limits beside what is used and reserved.
///
/// The judgement falls before space is looked for, and nothing is thrown away to make it pass: a
/// put that was granted is never taken back for a limit.
pub(crate) fn admit(
    policy: &TenantPolicy,
    used: Charge,
    reserved: Charge,
    asked_bytes: u64,
) -> Result<(), Refusal> {
    let fits = |limit: Option<u64>, used: u64, reserved: u64, asked: u64| {
        let total = used
            .checked_add(reserved)
            .and_then(|sum| sum.checked_add(asked));
        limit.is_none_or(|limit| total.is_some_and(|total| total <= limit))
    };
    if !fits(policy.limit_bytes, used.bytes, reserved.bytes, asked_bytes) {
        let limit = policy.limit_bytes.unwrap_or(u64::MAX);
        let (used, reserved) = (used.bytes, reserved.bytes);
        return Err(Refusal::new(
            Reason::QuotaBytes,
            format!("limit {limit}, used {used}, reserved {reserved}, asked {asked_bytes}"),
        ));
    }
    if !fits(policy.limit_objects, used.objects, reserved.objects, 1) {
        let limit = policy.limit_objects.unwrap_or(u64::MAX);
        let (used, reserved) = (used.objects, reserved.objects);
        return Err(Refusal::new(
            Reason::QuotaObjects,
            format!("limit {limit}, used {used}, reserved {reserved}, asked 1"),
        ));
    }
    Ok(())
}

/// By how much a put of `asked_bytes` is over the limits; `None` if it does not fit them even when
/// nothing is used.
pub(crate) fn excess(
    policy: &TenantPolicy,
    used: Charge,
    reserved: Charge,
    asked_bytes: u64,
) -> Option<Charge> {
    let over = |limit: Option<u64>, used: u64, reserved: u64, asked: u64| {
        let room = limit.unwrap_or(u64::MAX).checked_sub(asked)?;
        Some(used.saturating_add(reserved).saturating_sub(room))
    };
    Some(Charge {
        bytes: over(policy.limit_bytes, used.bytes, reserved.bytes, asked_bytes)?,
        objects: over(policy.limit_objects, used.objects, reserved.objects, 1)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold_to_the_byte_and_without_overflow() {
        let policy = TenantPolicy {
            limit_bytes: Some(1000),
            ..TenantPolicy::default()
        };
        let charge = |bytes| Charge { bytes, objects: 0 };
        assert!(admit(&policy, charge(500), charge(250), 250).is_ok());
        let refusal = admit(&policy, charge(500), charge(250), 251).expect_err("one too many");
        assert_eq!(refusal.reason, Reason::QuotaBytes);
        assert_eq!(
            refusal.detail,
            "limit 1000, used 500, reserved 250, asked 251"
        );
        assert!(admit(&policy, charge(u64::MAX), charge(1), 1).is_err());
    }

    #[test]
    fn objects_are_counted_with_reservations() {
        let policy = TenantPolicy {
            limit_objects: Some(2),
            ..TenantPolicy::default()
        };
        let charge = |objects| Charge { bytes: 0, objects };
        assert!(admit(&policy, charge(1), charge(0), 256).is_ok());
        let refusal = admit(&policy, charge(1), charge(1), 256).expect_err("the third");
        assert_eq!(refusal.reason, Reason::QuotaObjects);
    }
}
