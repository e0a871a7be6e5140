//! What must not be evicted now: what is read, pinned, or about to change anyway.

use std::collections::BTreeSet;

use larder_types::{Extent, Pin, PoolTime, SegmentId, TenantId};

use super::cache::Class;
use crate::leader::Leader;
use crate::leases::Leases;
use crate::objects::{ObjectId, ObjectRef};
use crate::overlay::{Overlay, TenantOverlay};
use crate::soft::{Health, Soft};
use crate::state::{State, Tenant};

/// The most members of a group that one judgement looks at.
const MAX_MEMBERS: usize = 4096;

/// What was looked at and stays, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) leased: u32,
    pub(crate) pinned: u32,
    /// An op is proposed, a put pends, the group would take too much, or no other replica answers.
    pub(crate) busy: u32,
}

impl Kept {
    /// For people: what a put that was refused may hope for.
    pub(crate) fn detail(self) -> String {
        let Self {
            leased,
            pinned,
            busy,
        } = self;
        match (leased, pinned, busy) {
            (0, 0, 0) => "there is nothing to evict".to_owned(),
            (_, 0, 0) => format!("readers hold leases on all {leased} objects that could go"),
            _ => format!(
                "of the objects that could go readers hold leases on {leased}, {pinned} are \
                 pinned, {busy} are changing"
            ),
        }
    }

    pub(crate) const fn add(&mut self, other: Self) {
        self.leased += other.leased;
        self.pinned += other.pinned;
        self.busy += other.busy;
    }
}

/// Judges the objects of one tenant.
pub(crate) struct Guard<'a> {
    held: &'a Tenant,
    overlay: Option<&'a TenantOverlay>,
    lost: &'a BTreeSet<SegmentId>,
    soft: &'a Soft,
    leases: &'a Leases,
    tenant: TenantId,
    now: PoolTime,
    spares_soft_pins: bool,
    /// No more than this may go.
    most_bytes: u64,
    pub(crate) kept: Kept,
}

impl<'a> Guard<'a> {
    /// `None`: the tenant is going anyway.
    pub(crate) fn of(
        leader: &'a Leader,
        state: &'a State,
        tenant: &TenantId,
        (spares_soft_pins, most_bytes): (bool, u64),
        now: PoolTime,
    ) -> Option<Self> {
        Self::new(
            state,
            (&leader.overlay, &leader.soft, &leader.leases),
            tenant,
            (spares_soft_pins, most_bytes),
            now,
        )
    }

    /// As [`Self::of`], from parts of the leader.
    pub(crate) fn new(
        state: &'a State,
        (overlay, soft, leases): (&'a Overlay, &'a Soft, &'a Leases),
        tenant: &TenantId,
        (spares_soft_pins, most_bytes): (bool, u64),
        now: PoolTime,
    ) -> Option<Self> {
        let held = state.tenant(tenant).filter(|held| !held.is_deleting())?;
        let lost = &overlay.segments_lost;
        let overlay = overlay.tenants.get(tenant);
        if overlay.is_some_and(|overlay| overlay.is_going()) {
            return None;
        }
        Some(Self {
            held,
            overlay,
            lost,
            soft,
            leases,
            tenant: tenant.clone(),
            now,
            spares_soft_pins,
            most_bytes,
            kept: Kept::default(),
        })
    }

    /// Whether an object may go with all its group, or the replica of it that is surplus.
    pub(crate) fn may(
        &mut self,
        id: ObjectId,
        class: Class,
        members: Option<&BTreeSet<ObjectId>>,
    ) -> bool {
        if class == Class::Surplus {
            return self.may_alone(id, true);
        }
        let Some(members) = members else {
            return self.may_alone(id, false);
        };
        let mut bytes = 0u64;
        for member in members.iter().take(MAX_MEMBERS) {
            if !self.may_alone(*member, false) {
                return false;
            }
            let object = self.held.objects.by_id(*member);
            let charge = object.and_then(|(_, object)| object.charge_bytes());
            bytes = bytes.saturating_add(charge.unwrap_or(0));
        }
        let fits = bytes <= self.most_bytes;
        self.kept.busy += u32::from(!fits);
        fits
    }

    /// Whether an object may go, whatever its group.
    pub(crate) fn may_alone(&mut self, id: ObjectId, only_a_replica: bool) -> bool {
        let Some((key, object)) = self.held.objects.by_id(id) else {
            // Its loss is known and not yet noticed here: nothing could be proposed for it.
            return false;
        };
        let changes = self.overlay.is_some_and(|overlay| {
            let key = key.as_bytes();
            overlay.touched.contains(key) || overlay.puts.contains_key(key)
        });
        let bytes = object.charge_bytes().unwrap_or(u64::MAX);
        let stays = match object.attributes().pin {
            Pin::Hard => Some(&mut self.kept.pinned),
            Pin::Soft { .. } if self.spares_soft_pins && self.is_soft_pinned(object) => {
                Some(&mut self.kept.pinned)
            }
            _ if self.is_leased(object) => Some(&mut self.kept.leased),
            _ if changes || self.vanishes(object) => Some(&mut self.kept.busy),
            _ if only_a_replica && !self.answers_elsewhere(object) => Some(&mut self.kept.busy),
            _ if !only_a_replica && bytes > self.most_bytes => Some(&mut self.kept.busy),
            _ => None,
        };
        stays.map(|count| *count += 1).is_none()
    }

    /// Something of it lies on a segment that is being lost.
    fn vanishes(&self, object: ObjectRef<'_>) -> bool {
        !self.lost.is_empty() && self.lost.iter().any(|segment| object.lies_on(*segment))
    }

    /// At least two replicas lie on agents that answer: one of them may go.
    fn answers_elsewhere(&self, object: ObjectRef<'_>) -> bool {
        let answers = |extent: &Extent| self.soft.health(extent.slab.agent) == Health::Alive;
        let replicas = object.replicas();
        let alive = replicas
            .iter()
            .filter(|replica| replica.iter().all(answers));
        alive.count() > 1
    }

    /// A reader's lease protects it, or a put that is to replace it looks for room.
    fn is_leased(&self, object: ObjectRef<'_>) -> bool {
        self.leases.is_leased(&self.tenant, object, self.now)
            || self.leases.is_spared(&self.tenant, object.id())
    }

    /// The time of its soft pin is not over.
    fn is_soft_pinned(&self, object: ObjectRef<'_>) -> bool {
        self.leases.pin_left_ms(&self.tenant, object, self.now) > 0
    }
}
