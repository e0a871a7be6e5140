//! What a tenant's quota comes to, for people: requested, effective, charged, and what would be
//! refused now.

use larder_types::{BoundKind, OnExceed, QuotaName, TenantId};

use crate::leader::Leader;
use crate::quota::{Charge, Share};
use crate::request::QuotaPolicy;
use crate::state::State;

/// One thing that bounds a tenant, as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// What it is.
    pub kind: BoundKind,
    /// The limit, in bytes or objects; `None` where there is none, or where it moves with what
    /// others use.
    pub limit: Option<u64>,
    /// What is charged against it, in bytes or objects.
    pub charged: u64,
    /// What may be charged more, in bytes or objects; `None` is without bound.
    pub room: Option<u64>,
    /// What a put beyond it does.
    pub on_exceed: OnExceed,
}

impl Bound {
    pub(crate) fn admits(&self, asked: Charge) -> bool {
        self.missing(asked) == (0, 0) && self.room.is_none_or(|room| self.size(asked) <= room)
    }

    /// How much has to go before so much fits: bytes and objects.
    pub(crate) fn missing(&self, asked: Charge) -> (u64, u64) {
        let missing = self
            .room
            .map_or(0, |room| self.size(asked).saturating_sub(room));
        // Who is over its limit already, after that was lowered, has to go below it first.
        let over = self
            .limit
            .map_or(0, |limit| self.charged.saturating_sub(limit));
        let missing = if missing == 0 {
            0
        } else {
            missing.saturating_add(over)
        };
        if self.kind.counts_objects() {
            (0, missing)
        } else {
            (missing, 0)
        }
    }

    const fn size(&self, asked: Charge) -> u64 {
        if self.kind.counts_objects() {
            asked.objects
        } else {
            asked.bytes
        }
    }
}

/// The quota that a tenant shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CohortReport {
    /// Its name.
    pub name: QuotaName,
    /// What was asked for; `None` while nobody has set it.
    pub policy: Option<QuotaPolicy>,
    /// What it comes to.
    pub share: Share,
    /// What all its tenants are charged, in bytes.
    pub charged_bytes: u64,
    /// The objects of all its tenants, pending ones included.
    pub charged_objects: u64,
    /// How many tenants name it.
    pub tenants: u64,
}

/// What a tenant's quota comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaReport {
    /// What its own guarantee and limits come to.
    pub share: Share,
    /// What it is charged beyond its guarantee, in bytes.
    pub borrowed_bytes: u64,
    /// The most of its unused guarantee that others may hold at the moment, in bytes. It is 0
    /// unless the pool shrank or guarantees grew: nobody is lent what is kept for others.
    pub lent_bytes: u64,
    /// The quota that it shares, if it names one.
    pub cohort: Option<CohortReport>,
    /// Everything that bounds it.
    pub bounds: Vec<Bound>,
    /// All mounted segments, in bytes.
    pub capacity_bytes: u64,
    /// All guarantees of the pool as they were asked for, in bytes.
    pub requested_bytes: u64,
    /// Whether they are more than the pool has, so that all are scaled down.
    pub overcommitted: bool,
}

impl QuotaReport {
    /// The most that a new object may be charged now, in bytes; `None` where only space decides.
    #[must_use]
    pub fn room_bytes(&self) -> Option<u64> {
        let closed = |bound: &Bound| bound.kind.counts_objects() && bound.room == Some(0);
        if self.bounds.iter().any(closed) {
            return Some(0);
        }
        let of_bytes = |bound: &&Bound| !bound.kind.counts_objects();
        self.bounds
            .iter()
            .filter(of_bytes)
            .filter_map(|bound| bound.room)
            .min()
    }

    /// The first bound that an object of `size_bytes` in so many replicas would break now.
    #[must_use]
    pub fn refused_by(&self, size_bytes: u64, replicas: u8) -> Option<&Bound> {
        let most = Charge {
            bytes: u64::MAX,
            objects: 1,
        };
        let asked = Charge::of_put(size_bytes, replicas).unwrap_or(most);
        self.bounds.iter().find(|bound| !bound.admits(asked))
    }
}

impl Leader {
    /// What a tenant's quota comes to now. Everything is 0 for one that is not known.
    pub fn quota_report(&mut self, state: &State, id: &TenantId) -> QuotaReport {
        self.refresh_books(state);
        let books = &self.books;
        let (Some(tenant), Some(entry)) = (state.tenant(id), books.entries.get(id)) else {
            return QuotaReport::default();
        };
        let lent = books.unused_bytes.saturating_sub(books.idle_bytes());
        let charged = entry.charged();
        let cohort = tenant.policy.cohort.clone().map(|name| {
            let group = books.groups.get(&name).cloned().unwrap_or_default();
            CohortReport {
                policy: state.quota(&name).cloned(),
                share: group.share,
                charged_bytes: group.charged.bytes,
                charged_objects: group.charged.objects,
                tenants: group.members,
                name,
            }
        });
        QuotaReport {
            share: entry.share,
            borrowed_bytes: charged.bytes.saturating_sub(entry.share.guaranteed_bytes),
            lent_bytes: lent.min(entry.unused()),
            cohort,
            bounds: books.bounds(state, id, &tenant.policy).to_vec(),
            capacity_bytes: books.effective.capacity_bytes,
            requested_bytes: books.effective.requested_bytes,
            overcommitted: books.effective.is_overcommitted(),
        }
    }

    /// What the tenants of a quota hold together; `None` for one that is not set.
    pub fn cohort_report(&mut self, state: &State, name: &QuotaName) -> Option<CohortReport> {
        self.refresh_books(state);
        let group = self.books.groups.get(name)?;
        Some(CohortReport {
            name: name.clone(),
            policy: state.quota(name).cloned(),
            share: group.share,
            charged_bytes: group.charged.bytes,
            charged_objects: group.charged.objects,
            tenants: group.members,
        })
    }

    /// The most bytes that hard pins of a tenant may hold: as its policy says, and never more than
    /// [`crate::Settings::max_pinned_bytes`].
    pub(crate) fn limit_pinned_bytes(&mut self, state: &State, id: &TenantId) -> u64 {
        self.refresh_books(state);
        let share = self.books.entries.get(id).map(|entry| entry.share);
        let limit = share.unwrap_or_default().limit_pinned_bytes;
        limit.min(self.settings.max_pinned_bytes)
    }
}
