//! The judgement of a put or a slab by the books, and what is said to a tenant that is refused.
//!
//! [`Books`] count, and this reads what they counted last; only a put has them counted first.

use larder_types::{Borrowing, BoundKind, OnExceed, QuotaName, Reason, TenantId};

use super::Charge;
use super::books::{Books, Entry};
use crate::explain::Bound;
use crate::leader::Leader;
use crate::reply::Refusal;
use crate::request::TenantPolicy;
use crate::state::State;

/// How much of a tenant's own has to go before a put fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortage {
    /// Charged bytes.
    pub bytes: u64,
    /// Objects.
    pub objects: u64,
}

/// A put beyond its quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// The answer, if nothing can be done.
    pub refusal: Refusal,
    /// What the tenant's own coldest objects may be evicted for first; `None` where the policy
    /// is [`OnExceed::Refuse`].
    pub evict: Option<Shortage>,
}

/// What a tenant has to leave to others.
struct Others {
    /// What is kept for their guarantees, in bytes.
    kept_bytes: u64,
    /// What its quota's guarantee still has beyond what is kept for the other members, in bytes.
    cohort_room: u64,
}

impl Books {
    /// What bounds the tenant, each with the room that it leaves. A put is admitted if it fits
    /// into all of them: [`Bound::room`] is the one word about that, for judgements and people.
    pub(crate) fn bounds(&self, state: &State, id: &TenantId, policy: &TenantPolicy) -> [Bound; 5] {
        let nothing = Entry::default();
        let entry = self.entries.get(id).unwrap_or(&nothing);
        let charged = entry.charged();
        let group = entry.cohort.as_ref().and_then(|name| self.groups.get(name));
        let quota = entry.cohort.as_ref().and_then(|name| state.quota(name));
        let group_limit = quota.and_then(|quota| quota.limit_bytes);
        let group_charged = group.map_or(Charge::default(), |group| group.charged);
        let group_exceed = quota.map_or(OnExceed::default(), |quota| quota.on_exceed);
        let bound = |kind, limit, charged, on_exceed| Bound {
            kind,
            limit,
            charged,
            room: limit.map(|limit: u64| limit.saturating_sub(charged)),
            on_exceed,
        };
        let (own, shared) = (policy.on_exceed, group_exceed);
        [
            bound(BoundKind::Bytes, policy.limit_bytes, charged.bytes, own),
            bound(
                BoundKind::Objects,
                policy.limit_objects,
                charged.objects,
                own,
            ),
            bound(
                BoundKind::CohortBytes,
                group_limit,
                group_charged.bytes,
                shared,
            ),
            bound(
                BoundKind::CohortObjects,
                quota.and_then(|quota| quota.limit_objects),
                group_charged.objects,
                shared,
            ),
            Bound {
                kind: BoundKind::Memory,
                limit: None,
                charged: charged.bytes,
                room: self.memory_room(entry, policy.borrowing, quota.map(|q| q.borrowing)),
                on_exceed: own,
            },
        ]
    }

    /// How many bytes the tenant may be charged more without touching what is kept for others:
    /// what is left of its guarantee, and what it has or may take in slabs beyond. `None` where
    /// nothing is kept for anybody: space itself decides then.
    fn memory_room(
        &self,
        entry: &Entry,
        borrowing: Borrowing,
        cohort_borrowing: Option<Borrowing>,
    ) -> Option<u64> {
        let charged = entry.charged().bytes;
        let own = entry.share.guaranteed_bytes.saturating_sub(charged);
        if borrowing == Borrowing::Forbidden {
            return Some(own);
        }
        let slack = entry.occupied().saturating_sub(charged);
        let others = self.kept_for_others(entry);
        let shared = slack.saturating_add(others.cohort_room);
        if cohort_borrowing == Some(Borrowing::Forbidden) {
            return Some(own.max(shared));
        }
        if others.kept_bytes == 0 {
            return None;
        }
        let idle = self.idle_bytes().saturating_sub(others.kept_bytes);
        Some(own.max(shared).max(slack.saturating_add(idle)))
    }

    /// What of so many charged bytes of a tenant may be taken from it when others need what they
    /// are guaranteed: what it holds beyond its guarantee, and no more than its quota's tenants
    /// together hold beyond theirs. As of the latest judgement.
    pub(crate) fn excess_bytes(&self, id: &TenantId, charged_bytes: u64) -> u64 {
        let Some(entry) = self.entries.get(id) else {
            return charged_bytes;
        };
        let own = charged_bytes.saturating_sub(entry.share.guaranteed_bytes);
        let group = entry.cohort.as_ref().and_then(|name| self.groups.get(name));
        group.map_or(own, |group| {
            let over = group.charged.bytes;
            own.min(over.saturating_sub(group.share.guaranteed_bytes))
        })
    }

    fn kept_for_others(&self, entry: &Entry) -> Others {
        let own = entry.unused();
        let Some(group) = entry.cohort.as_ref().and_then(|name| self.groups.get(name)) else {
            return Others {
                kept_bytes: self.unused_bytes.saturating_sub(own),
                cohort_room: 0,
            };
        };
        let members = group.members_unused.saturating_sub(own);
        let taken = group.occupied_bytes.saturating_add(members);
        let elsewhere = self.unused_bytes.saturating_sub(group.unused());
        Others {
            kept_bytes: elsewhere.saturating_add(members),
            cohort_room: group.share.guaranteed_bytes.saturating_sub(taken),
        }
    }

    /// Whether the tenant may have so many slabs more: within its guarantee or its quota's, or of
    /// what is not kept for others.
    fn may_take(&self, state: &State, id: &TenantId, slabs: u64) -> bool {
        let (Some(entry), Some(tenant)) = (self.entries.get(id), state.tenant(id)) else {
            return true;
        };
        let slab_bytes = self.effective.slab_bytes.saturating_mul(slabs);
        if entry.occupied().saturating_add(slab_bytes) <= entry.share.guaranteed_bytes {
            return true;
        }
        let quota = entry.cohort.as_ref().and_then(|name| state.quota(name));
        let others = self.kept_for_others(entry);
        if tenant.policy.borrowing == Borrowing::Forbidden {
            return false;
        }
        if others.cohort_room >= slab_bytes {
            return true;
        }
        if quota.is_some_and(|quota| quota.borrowing == Borrowing::Forbidden) {
            return false;
        }
        let kept = others.kept_bytes;
        kept == 0 || self.idle_bytes() >= kept.saturating_add(slab_bytes)
    }

    /// Whether so many bytes more fit everything that bounds the tenant. As of the latest
    /// judgement.
    pub(crate) fn admits(&self, state: &State, id: &TenantId, bytes: u64) -> bool {
        let asked = Charge { bytes, objects: 0 };
        state.tenant(id).is_none_or(|tenant| {
            let bounds = self.bounds(state, id, &tenant.policy);
            bounds.iter().all(|bound| bound.admits(asked))
        })
    }

    fn judge(
        &self,
        state: &State,
        (id, policy): (&TenantId, &TenantPolicy),
        asked: Charge,
    ) -> Result<(), Exceeded> {
        let bounds = self.bounds(state, id, policy);
        let Some(first) = bounds.iter().find(|bound| !bound.admits(asked)) else {
            return Ok(());
        };
        let missing = |bound: &&Bound| !bound.admits(asked);
        let mut shortage = Shortage::default();
        for bound in bounds.iter().filter(missing) {
            let (bytes, objects) = bound.missing(asked);
            shortage.bytes = shortage.bytes.max(bytes);
            shortage.objects = shortage.objects.max(objects);
        }
        let evicts = bounds
            .iter()
            .filter(missing)
            .all(|bound| bound.on_exceed == OnExceed::EvictOwn);
        // Nothing goes for a put that would not fit if all of the tenant went.
        let held = self
            .entries
            .get(id)
            .map_or_else(Charge::default, Entry::charged);
        let helps = shortage.bytes <= held.bytes && shortage.objects <= held.objects;
        Err(Exceeded {
            refusal: self.refusal(id, first, asked),
            evict: (evicts && helps).then_some(shortage),
        })
    }

    fn refusal(&self, id: &TenantId, bound: &Bound, asked: Charge) -> Refusal {
        let nothing = Entry::default();
        let entry = self.entries.get(id).unwrap_or(&nothing);
        let limit = bound.limit.unwrap_or(u64::MAX);
        let cohort = entry.cohort.as_ref().map_or("", QuotaName::as_str);
        let (used, reserved) = (entry.used, entry.reserved);
        let Charge { bytes, objects } = asked;
        let (reason, detail) = match bound.kind {
            BoundKind::Bytes => (
                Reason::QuotaBytes,
                format!(
                    "limit {limit}, used {}, reserved {}, asked {bytes}",
                    used.bytes, reserved.bytes
                ),
            ),
            BoundKind::Objects => (
                Reason::QuotaObjects,
                format!(
                    "limit {limit}, used {}, reserved {}, asked {objects}",
                    used.objects, reserved.objects
                ),
            ),
            BoundKind::CohortBytes => (
                Reason::QuotaBytes,
                format!(
                    "quota {cohort} has limit {limit}, its tenants are charged {}, asked {bytes}",
                    bound.charged
                ),
            ),
            BoundKind::CohortObjects => (
                Reason::QuotaObjects,
                format!(
                    "quota {cohort} has limit {limit}, its tenants have {}, asked {objects}",
                    bound.charged
                ),
            ),
            BoundKind::Memory => (
                Reason::QuotaBorrow,
                format!(
                    "guaranteed {}, charged {}, room for {} more, asked {bytes}",
                    entry.share.guaranteed_bytes,
                    bound.charged,
                    bound.room.unwrap_or(u64::MAX)
                ),
            ),
        };
        Refusal::new(reason, detail)
    }
}

impl Leader {
    /// Whether the tenant may have one more slab. As of the latest judgement of a put.
    pub(crate) fn may_take(&self, state: &State, id: &TenantId) -> bool {
        self.may_take_slabs(state, id, 1)
    }

    /// As [`Self::may_take`], for several slabs at once.
    pub(crate) fn may_take_slabs(&self, state: &State, id: &TenantId, slabs: u64) -> bool {
        self.books.may_take(state, id, slabs)
    }

    /// What to say to a tenant that may not have one more slab.
    pub(crate) fn slab_refusal(&self, id: &TenantId, asked_bytes: u64) -> String {
        let nothing = Entry::default();
        let entry = self.books.entries.get(id).unwrap_or(&nothing);
        format!(
            "guaranteed {}, has slabs of {}, none of them has room for {asked_bytes}; idle {}, of \
             which {} are kept for others",
            entry.share.guaranteed_bytes,
            entry.held_bytes,
            self.books.idle_bytes(),
            self.books.kept_for_others(entry).kept_bytes
        )
    }

    /// Whether a put that is charged so much fits the tenant's quota beside what is used and
    /// reserved. It falls before space is looked for: what was granted is never taken back for a
    /// limit.
    pub(crate) fn admit_put(
        &mut self,
        state: &State,
        id: &TenantId,
        asked: Charge,
    ) -> Result<(), Exceeded> {
        self.refresh_books(state);
        match state.tenant(id) {
            Some(tenant) => self.books.judge(state, (id, &tenant.policy), asked),
            // Who asks has looked already.
            None => Ok(()),
        }
    }
}
