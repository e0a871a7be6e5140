//! The leader's books: effective shares against charges.
//!
//! Kept lazily. What an op or a reservation may have changed is only noted; before the next
//! judgement the noted tenants are counted again, and all of them after a policy or the size of
//! the pool has changed. So no put looks at other tenants than its own.

use std::collections::{BTreeMap, BTreeSet};

use larder_types::{QuotaName, TenantId};

use super::{Charge, Effective, Share, effective};
use crate::check::Finding;
use crate::leader::Leader;
use crate::op::Op;
use crate::overlay::Overlay;
use crate::space::Space;
use crate::state::State;

/// What is known of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) share: Share,
    pub(crate) used: Charge,
    pub(crate) reserved: Charge,
    /// All its slabs, in bytes.
    pub(super) held_bytes: u64,
    /// The quota that it shares, if that is set.
    pub(crate) cohort: Option<QuotaName>,
}

impl Entry {
    pub(crate) fn charged(&self) -> Charge {
        self.used.plus(self.reserved)
    }

    /// What nobody else can use because of it, in bytes: its slabs, full or not.
    pub(super) fn occupied(&self) -> u64 {
        self.held_bytes.max(self.charged().bytes)
    }

    /// What has to be kept for its guarantee, in bytes.
    pub(crate) fn unused(&self) -> u64 {
        self.share.guaranteed_bytes.saturating_sub(self.occupied())
    }
}

/// What is known of the tenants of one quota together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) share: Share,
    pub(crate) charged: Charge,
    /// What nobody else can use because of its members, in bytes.
    pub(super) occupied_bytes: u64,
    /// What has to be kept for the members' own guarantees, in bytes.
    pub(super) members_unused: u64,
    pub(crate) members: u64,
}

impl Group {
    /// What has to be kept for it, in bytes: what is left of its guarantee, and at least what is
    /// left of its members' own, some of which may use more than theirs.
    pub(super) fn unused(&self) -> u64 {
        let own = self
            .share
            .guaranteed_bytes
            .saturating_sub(self.occupied_bytes);
        own.max(self.members_unused)
    }
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Books {
    pub(crate) effective: Effective,
    /// Whether `effective` counts for the state as it is; not before the first judgement.
    fresh: bool,
    /// Tenants whose charges an op may have changed; at most all of them.
    noted: BTreeSet<TenantId>,
    pub(crate) entries: BTreeMap<TenantId, Entry>,
    pub(crate) groups: BTreeMap<QuotaName, Group>,
    /// What all tenants occupy, in bytes.
    pub(crate) occupied_bytes: u64,
    /// What has to be kept for all guarantees, in bytes.
    pub(crate) unused_bytes: u64,
}

impl Books {
    /// An op is committed: its tenant is counted again before the next judgement.
    pub(crate) fn note(&mut self, op: &Op) {
        match op {
            Op::PutEnd { tenant, .. }
            | Op::Remove { tenant, .. }
            | Op::ReplicaAdded { tenant, .. }
            | Op::ReplicaDropped { tenant, .. }
            | Op::TenantPurge { tenant, .. } => {
                if self.fresh {
                    self.noted.insert(tenant.clone());
                }
            }
            Op::AgentMounted { .. }
            | Op::SegmentLost { .. }
            | Op::SegmentSwept { .. }
            | Op::TenantSet { .. }
            | Op::TenantDelete { .. }
            | Op::TenantForgotten { .. }
            | Op::QuotaSet { .. }
            | Op::QuotaDelete { .. }
            | Op::AgentAdopted { .. }
            | Op::PoolBegun { .. }
            | Op::PoolRebuilding { .. }
            | Op::PoolRebuilt => self.fresh = false,
            Op::AgentForgotten { .. }
            | Op::SlabGive { .. }
            | Op::SlabReady { .. }
            | Op::SlabTake { .. }
            | Op::SlabReturned { .. }
            | Op::PinSet { .. }
            | Op::AgentDrain { .. }
            | Op::AgentLabels { .. }
            | Op::TaskCreated { .. }
            | Op::TaskEnded { .. }
            | Op::SlabAdopted { .. }
            | Op::ExtentFound { .. }
            | Op::PoolVersion { .. }
            | Op::Released { .. } => {}
        }
    }

    /// Counts what was noted.
    pub(crate) fn refresh(&mut self, state: &State, overlay: &mut Overlay, space: &mut Space) {
        if self.fresh {
            // Mostly one tenant, that of the put before, in two of them. Taken out one by one, as
            // a set that is taken as a whole allocates again at the next put.
            while let Some(id) = overlay.recharged.pop_first() {
                space.recounted.0.remove(&id);
                self.noted.remove(&id);
                self.count(state, overlay, space, &id);
            }
            while let Some(id) = space.recounted.0.pop_first() {
                self.noted.remove(&id);
                self.count(state, overlay, space, &id);
            }
            while let Some(id) = self.noted.pop_first() {
                self.count(state, overlay, space, &id);
            }
        } else {
            overlay.recharged.clear();
            space.recounted.0.clear();
            *self = Self {
                effective: effective(state),
                fresh: true,
                ..Self::default()
            };
            for (name, share) in &self.effective.quotas {
                let group = Group {
                    share: *share,
                    ..Group::default()
                };
                self.unused_bytes = self.unused_bytes.saturating_add(group.unused());
                self.groups.insert(name.clone(), group);
            }
            for id in state.tenants.keys() {
                self.count(state, overlay, space, id);
            }
        }
    }

    /// Counts one tenant again.
    fn count(&mut self, state: &State, overlay: &Overlay, space: &Space, id: &TenantId) {
        let before = self.entries.get_mut(id).map(std::mem::take);
        if let Some(before) = before {
            self.take(&before);
        }
        let Some(tenant) = state.tenant(id) else {
            self.entries.remove(id);
            return;
        };
        // One that is to go has no guarantee and shares nothing, but what it holds still counts.
        let cohort = tenant.policy.cohort.clone().filter(|_| !tenant.deleting);
        let entry = Entry {
            share: self.effective.tenants.get(id).copied().unwrap_or_default(),
            used: Charge {
                bytes: tenant.used_bytes,
                objects: tenant.objects.len() as u64,
            },
            reserved: overlay.reserved(id),
            held_bytes: u64::from(space.held(id)).saturating_mul(self.effective.slab_bytes),
            cohort: cohort.filter(|name| self.groups.contains_key(name)),
        };
        self.add(&entry);
        match self.entries.get_mut(id) {
            Some(kept) => *kept = entry,
            None => drop(self.entries.insert(id.clone(), entry)),
        }
    }

    fn add(&mut self, entry: &Entry) {
        self.occupied_bytes = self.occupied_bytes.saturating_add(entry.occupied());
        let group = entry
            .cohort
            .as_ref()
            .and_then(|name| self.groups.get_mut(name));
        let Some(group) = group else {
            self.unused_bytes = self.unused_bytes.saturating_add(entry.unused());
            return;
        };
        let before = group.unused();
        group.charged = group.charged.plus(entry.charged());
        group.occupied_bytes = group.occupied_bytes.saturating_add(entry.occupied());
        group.members_unused = group.members_unused.saturating_add(entry.unused());
        group.members += 1;
        let rest = self.unused_bytes.saturating_sub(before);
        self.unused_bytes = rest.saturating_add(group.unused());
    }

    fn take(&mut self, entry: &Entry) {
        self.occupied_bytes = self.occupied_bytes.saturating_sub(entry.occupied());
        let group = entry
            .cohort
            .as_ref()
            .and_then(|name| self.groups.get_mut(name));
        let Some(group) = group else {
            self.unused_bytes = self.unused_bytes.saturating_sub(entry.unused());
            return;
        };
        let before = group.unused();
        group.charged = group.charged.minus(entry.charged());
        group.occupied_bytes = group.occupied_bytes.saturating_sub(entry.occupied());
        group.members_unused = group.members_unused.saturating_sub(entry.unused());
        group.members = group.members.saturating_sub(1);
        let rest = self.unused_bytes.saturating_sub(before);
        self.unused_bytes = rest.saturating_add(group.unused());
    }

    /// What nobody occupies, in bytes.
    pub(crate) fn idle_bytes(&self) -> u64 {
        self.effective
            .capacity_bytes
            .saturating_sub(self.occupied_bytes)
    }
}

impl Leader {
    pub(crate) fn refresh_books(&mut self, state: &State) {
        self.books
            .refresh(state, &mut self.overlay, &mut self.space);
    }

    /// What guarantees and limits come to now.
    pub fn effective(&mut self, state: &State) -> &Effective {
        self.refresh_books(state);
        &self.books.effective
    }

    /// How many bytes a tenant is charged beyond what it is guaranteed: what it borrows, and what
    /// may be taken from it when others need what they are guaranteed.
    pub fn borrowed_bytes(&mut self, state: &State, id: &TenantId) -> u64 {
        self.refresh_books(state);
        let entry = self.books.entries.get(id);
        entry.map_or(0, |entry| {
            let charged = entry.charged().bytes;
            charged.saturating_sub(entry.share.guaranteed_bytes)
        })
    }

    /// Counts the books again and compares.
    pub(crate) fn check_quotas(&self, state: &State, found: &mut Vec<Finding>) {
        let (mut kept, mut overlay) = (self.books.clone(), self.overlay.clone());
        let mut space = self.space.clone();
        kept.refresh(state, &mut overlay, &mut space);
        let mut counted = Books::default();
        counted.refresh(state, &mut overlay, &mut space);
        if kept != counted {
            let detail = format!(
                "{} occupied and {} to be kept, counted {} and {}",
                kept.occupied_bytes,
                kept.unused_bytes,
                counted.occupied_bytes,
                counted.unused_bytes
            );
            found.push(Finding {
                rule: "quotas",
                detail,
            });
        }
    }
}
