//! Leases and the deadlines of soft pins: what protects objects from eviction for a while.
//!
//! A lease is a courtesy to readers: while it lasts, their object is not evicted, nor removed or
//! replaced by who asks `if_unleased`. It guards no memory: bytes in use are kept by their agents
//! until they say so, whatever the time.
//!
//! A get grants one to its object and, where that is part of a group, to all of the group. A
//! probe grants one only if asked, and only once until the next get or put: whoever asks for
//! ever whether an object is there does not keep it there.
//!
//! Soft: a new leader knows none of the leases that others granted. Eviction goes on without
//! them, as a pool at its mark could take no put otherwise; but a removal `if_unleased` of an
//! object that the leader found takes it as leased until the longest such lease is over.

use std::collections::BTreeMap;

use larder_types::{GroupId, Pin, PoolTime, TenantId};

use crate::objects::{ObjectId, ObjectRef};
use crate::settings::Settings;
use crate::slots::Slots;

/// What the deadlines of objects are counted in. Rounded up: nothing ends early, and a lease may
/// last that much longer. With 31 bits a leader may live for four years.
const TICK_MS: u64 = 64;
/// The latest tick.
const TICK_MAX: u64 = (1 << 31) - 1;
/// The most groups with a lease of one tenant; beyond it, a get protects its own object only. At
/// about 200 bytes each, 13 MiB.
const MAX_GROUPS: usize = 65_536;
/// The most groups that one turn looks at to forget what has run out.
const MAX_SWEPT: usize = 1024;

/// How an object is protected from eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protection {
    /// Not at all.
    None,
    /// A soft pin within its time: it goes only when nothing else is left.
    SoftPin,
    /// A lease: it stays for now.
    Lease,
    /// A hard pin: it stays.
    HardPin,
}

/// What is kept of one object: 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    /// The tick at which its lease ends, times two; the lowest bit says that a probe granted one
    /// since the last get.
    lease: u32,
    /// The tick at which its soft pin ends; 1 if it became readable without one; 0 if it was
    /// there when the leader began.
    pin: u32,
}

impl Slot {
    const fn lease_end(self) -> u64 {
        (self.lease >> 1) as u64
    }
}

/// What one tenant's objects have.
#[derive(Clone, Debug, Default)]
struct TenantLeases {
    slots: Slots<Slot>,
    /// The tick at which the lease of all members ends.
    groups: BTreeMap<GroupId, u64>,
    /// Where the next sweep goes on.
    swept: Option<GroupId>,
}

impl TenantLeases {
    fn slot(&self, id: ObjectId) -> Slot {
        self.slots.get(id).copied().unwrap_or_default()
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Leases {
    began: PoolTime,
    lease_ms: u64,
    tenants: BTreeMap<TenantId, TenantLeases>,
    /// The object that is not to go for what is being decided.
    spared: Option<(TenantId, ObjectId)>,
}

impl Leases {
    pub(crate) fn new(settings: &Settings, now: PoolTime) -> Self {
        Self {
            began: now,
            lease_ms: settings.lease_ms,
            tenants: BTreeMap::new(),
            spared: None,
        }
    }

    /// A decision begins.
    pub(crate) fn begin(&mut self) {
        self.spared = None;
    }

    /// Until the end of this decision this object is not evicted: a put that replaces it looks for
    /// room.
    pub(crate) fn spare(&mut self, tenant: &TenantId, id: ObjectId) {
        self.spared = Some((tenant.clone(), id));
    }

    /// Whether eviction is to leave this object alone for the decision that is being made.
    pub(crate) fn is_spared(&self, tenant: &TenantId, id: ObjectId) -> bool {
        let spared = self.spared.as_ref();
        spared.is_some_and(|(of, spared)| *spared == id && of == tenant)
    }

    /// The tick that `now` lies in; from 1 on.
    fn tick(&self, now: PoolTime) -> u64 {
        (now.since_ms(self.began) / TICK_MS + 1).min(TICK_MAX)
    }

    /// The first tick in which something is over that lasts `ms` from `now` on.
    fn end_tick(&self, now: PoolTime, ms: u64) -> u64 {
        let end_ms = now.since_ms(self.began).saturating_add(ms);
        (end_ms.div_ceil(TICK_MS).saturating_add(1)).min(TICK_MAX)
    }

    fn of(&mut self, tenant: &TenantId) -> &mut TenantLeases {
        // Not `entry`, which would copy the name of a known tenant each time.
        if !self.tenants.contains_key(tenant) {
            self.tenants.insert(tenant.clone(), TenantLeases::default());
        }
        self.tenants.entry(tenant.clone()).or_default()
    }

    /// A get of this object; how long it is protected now, in milliseconds.
    pub(crate) fn got(
        &mut self,
        tenant: &TenantId,
        id: ObjectId,
        group: Option<&GroupId>,
        now: PoolTime,
    ) -> u64 {
        let (lease_ms, tick) = (self.lease_ms, self.tick(now));
        let end = self.end_tick(now, lease_ms);
        let leases = self.of(tenant);
        leases.slots.entry(id).lease = half(end) << 1;
        if let Some(group) = group {
            // All members at once, and at most once per half of a lease.
            let known = leases.groups.get(group).copied();
            let is_due = known.is_none_or(|known| known.saturating_sub(tick) < (end - tick) / 2);
            if is_due && (known.is_some() || leases.groups.len() < MAX_GROUPS) {
                leases.groups.insert(group.clone(), end);
            }
        }
        lease_ms
    }

    /// A probe that asks for a lease: granted once until the next get or put.
    pub(crate) fn probed(&mut self, tenant: &TenantId, id: ObjectId, now: PoolTime) {
        let end = half(self.end_tick(now, self.lease_ms));
        let slot = self.of(tenant).slots.entry(id);
        if slot.lease & 1 == 0 {
            slot.lease = (slot.lease >> 1).max(end) << 1 | 1;
        }
    }

    /// An object became readable: it has no lease, and the time of its soft pin begins.
    pub(crate) fn began(&mut self, tenant: &TenantId, id: ObjectId, pin: Pin, now: PoolTime) {
        let pin = self.pin_end(pin, now);
        *self.of(tenant).slots.entry(id) = Slot { lease: 0, pin };
    }

    /// Its pin changed: the time of a soft one begins.
    pub(crate) fn pinned(&mut self, tenant: &TenantId, id: ObjectId, pin: Pin, now: PoolTime) {
        let pin = self.pin_end(pin, now);
        let unknown = match self.unknown_ms(tenant, id, now) {
            0 => 0,
            ms => half(self.end_tick(now, ms)),
        };
        let slot = self.of(tenant).slots.entry(id);
        if slot.pin == 0 {
            // From now on it counts as known: with the lease that a former leader may have
            // granted.
            slot.lease = (slot.lease >> 1).max(unknown) << 1 | (slot.lease & 1);
        }
        slot.pin = pin;
    }

    fn pin_end(&self, pin: Pin, now: PoolTime) -> u32 {
        match pin {
            Pin::Soft { ttl_ms } => half(self.end_tick(now, ttl_ms)),
            Pin::None | Pin::Hard => 1,
        }
    }

    /// The tenant is gone.
    pub(crate) fn forget(&mut self, tenant: &TenantId) {
        self.tenants.remove(tenant);
    }

    /// Forgets leases of groups that have run out, some of them at a time.
    pub(crate) fn sweep(&mut self, now: PoolTime) {
        let tick = self.tick(now);
        let mut left = MAX_SWEPT;
        for leases in self.tenants.values_mut() {
            let from = leases.swept.take();
            let start = from
                .as_ref()
                .map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
            let some = leases
                .groups
                .range((start, std::ops::Bound::Unbounded))
                .take(left);
            let some: Vec<(GroupId, u64)> = some.map(|(id, end)| (id.clone(), *end)).collect();
            left -= some.len();
            if left == 0 {
                leases.swept = some.last().map(|(id, _)| id.clone());
            }
            for (id, _) in some.iter().filter(|(_, end)| *end <= tick) {
                leases.groups.remove(id);
            }
            if left == 0 {
                break;
            }
        }
    }

    /// Whether a lease of its own or of its group protects an object.
    pub(crate) fn is_leased(
        &self,
        tenant: &TenantId,
        object: ObjectRef<'_>,
        now: PoolTime,
    ) -> bool {
        self.is_leased_as(tenant, object.id(), object.attributes().group.as_ref(), now)
    }

    fn is_leased_as(
        &self,
        tenant: &TenantId,
        id: ObjectId,
        group: Option<&GroupId>,
        now: PoolTime,
    ) -> bool {
        let Some(leases) = self.tenants.get(tenant) else {
            return false;
        };
        let tick = self.tick(now);
        leases.slot(id).lease_end() > tick
            || group
                .and_then(|group| leases.groups.get(group))
                .is_some_and(|end| *end > tick)
    }

    /// How long a lease that a former leader granted may still protect an object that this one
    /// found, in milliseconds.
    pub(crate) fn unknown_ms(&self, tenant: &TenantId, id: ObjectId, now: PoolTime) -> u64 {
        let slot = self.tenants.get(tenant).map(|leases| leases.slot(id));
        if slot.is_some_and(|slot| slot.pin != 0) {
            return 0;
        }
        self.lease_ms.saturating_sub(now.since_ms(self.began))
    }

    /// What is left of the time of an object's soft pin, in milliseconds; 0 without one. That of
    /// an object which was there when the leader began counts from then.
    pub(crate) fn pin_left_ms(
        &self,
        tenant: &TenantId,
        object: ObjectRef<'_>,
        now: PoolTime,
    ) -> u64 {
        self.pin_left_ms_as(tenant, object.id(), object.attributes().pin, now)
    }

    fn pin_left_ms_as(&self, tenant: &TenantId, id: ObjectId, pin: Pin, now: PoolTime) -> u64 {
        let Pin::Soft { ttl_ms } = pin else {
            return 0;
        };
        match self
            .tenants
            .get(tenant)
            .map_or(0, |leases| leases.slot(id).pin)
        {
            0 => ttl_ms.saturating_sub(now.since_ms(self.began)),
            end => {
                let end_ms = (u64::from(end) - 1) * TICK_MS;
                end_ms.saturating_sub(now.since_ms(self.began)).min(ttl_ms)
            }
        }
    }
}

/// A tick in 31 bits.
fn half(tick: u64) -> u32 {
    u32::try_from(tick.min(TICK_MAX)).unwrap_or(u32::MAX >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ObjectId = ObjectId(7);

    fn tenant() -> TenantId {
        TenantId::new("red").expect("a name")
    }

    fn leases() -> Leases {
        Leases::new(&Settings::default(), PoolTime(5_000))
    }

    const LEASE_MS: u64 = 10_000;

    #[test]
    fn a_slot_is_small() {
        assert_eq!(size_of::<Slot>(), 8);
    }

    #[test]
    fn a_lease_never_ends_early_and_little_late() {
        for at in [5_000, 5_001, 5_063, 5_064, 99_999] {
            let (mut leases, now) = (leases(), PoolTime(at));
            let plain = None;
            assert_eq!(leases.got(&tenant(), ID, None, now), LEASE_MS);
            let leased = |ms| leases.is_leased_as(&tenant(), ID, plain, now.plus_ms(ms));
            assert!(leased(0) && leased(LEASE_MS - 1), "{at}");
            assert!(!leased(LEASE_MS + TICK_MS), "{at}");
        }
    }

    #[test]
    fn probes_alone_protect_once() {
        let (mut leases, now) = (leases(), PoolTime(6_000));
        let plain = None;
        leases.began(&tenant(), ID, Pin::None, now);
        assert!(
            !leases.is_leased_as(&tenant(), ID, plain, now),
            "a put grants none"
        );
        let mut protected_ms = 0;
        for step in 0..100 {
            let now = now.plus_ms(step * 1_000);
            leases.probed(&tenant(), ID, now);
            protected_ms += u64::from(leases.is_leased_as(&tenant(), ID, plain, now)) * 1_000;
        }
        assert!(
            (LEASE_MS..=LEASE_MS + 1_000).contains(&protected_ms),
            "{protected_ms}"
        );
        let later = now.plus_ms(200_000);
        leases.got(&tenant(), ID, None, later);
        leases.probed(&tenant(), ID, later.plus_ms(9_000));
        assert!(leases.is_leased_as(&tenant(), ID, plain, later.plus_ms(18_000)));
    }

    #[test]
    fn a_get_protects_its_whole_group() {
        let (mut leases, now) = (leases(), PoolTime(6_000));
        let named = GroupId::new("g").expect("a name");
        let group = Some(&named);
        let other = ObjectId(8);
        leases.got(&tenant(), ID, group, now);
        assert!(leases.is_leased_as(&tenant(), other, group, now.plus_ms(9_000)));
        let stranger = GroupId::new("h").expect("a name");
        assert!(!leases.is_leased_as(&tenant(), other, Some(&stranger), now));
        // Refreshed when half of it is over, not before.
        leases.got(&tenant(), ID, group, now.plus_ms(2_000));
        assert!(!leases.is_leased_as(&tenant(), other, group, now.plus_ms(11_000)));
        leases.got(&tenant(), ID, group, now.plus_ms(6_000));
        assert!(leases.is_leased_as(&tenant(), other, group, now.plus_ms(15_000)));
        leases.sweep(now.plus_ms(60_000));
        assert!(leases.of(&tenant()).groups.is_empty());
    }

    #[test]
    fn a_soft_pin_counts_from_when_it_is_readable_or_the_leader_began() {
        let (mut leases, now) = (leases(), PoolTime(65_000));
        let soft = Pin::Soft { ttl_ms: 100_000 };
        let left = |leases: &Leases, now| leases.pin_left_ms_as(&tenant(), ID, soft, now);
        assert_eq!(
            left(&leases, now),
            40_000,
            "found by a leader that began at 5,000"
        );
        assert!(leases.unknown_ms(&tenant(), ID, PoolTime(8_000)) == 7_000);
        leases.began(&tenant(), ID, soft, now);
        assert_eq!(left(&leases, now), 100_000);
        assert_eq!(leases.unknown_ms(&tenant(), ID, PoolTime(8_000)), 0);
        leases.got(&tenant(), ID, None, now.plus_ms(50_000));
        let late = left(&leases, now.plus_ms(90_000));
        assert!(
            (10_000..=10_000 + TICK_MS).contains(&late),
            "reads do not extend: {late}"
        );
        assert_eq!(left(&leases, now.plus_ms(100_064)), 0);
        assert_eq!(leases.pin_left_ms_as(&tenant(), ID, Pin::None, now), 0);
    }

    #[test]
    fn sweeping_goes_on_where_it_stopped() {
        let (mut leases, now) = (leases(), PoolTime(6_000));
        for number in 0..3_000 {
            let group = GroupId::new(&format!("g{number}")).expect("a name");
            leases.got(&tenant(), ID, Some(&group), now);
        }
        for _ in 0..3 {
            leases.sweep(now.plus_ms(60_000));
        }
        assert!(leases.of(&tenant()).groups.is_empty());
    }
}
