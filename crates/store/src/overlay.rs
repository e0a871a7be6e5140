//! The overlay: what proposed ops and reservations touch, between deciding and committing.
//!
//! The leader judges the state through it. It is dropped as a whole with the leadership: what was
//! reserved is then fenced by the epoch that agents acknowledge, and what was proposed is either
//! in the log of the next leader or never happened.
//!
//! Bounds: `max_pending_puts` puts, `max_in_flight_ops` ops of clients, and of everything else at
//! most one entry per slab, segment, agent or extent.

mod discard;
mod touch;

use std::collections::{BTreeMap, BTreeSet};

use larder_types::{
    AgentId, AgentName, Attributes, Extent, Key, Pin, PoolTime, QuotaName, SegmentId, SessionId,
    TenantId, Version,
};

pub(crate) use discard::Discarded;

use crate::alloc::{AllocError, Allocator};
use crate::moves::Copies;
use crate::quota::{Charge, charge_of};
use crate::segment::{SlabKey, free_extent, reserve_extent, slab_key};
use crate::state::{Counters, State};

/// A put that is started and neither ended nor discarded.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) session: SessionId,
    pub(crate) version: Version,
    pub(crate) size_bytes: u64,
    pub(crate) replicas: Vec<Vec<Extent>>,
    pub(crate) wanted: u8,
    pub(crate) attributes: Attributes,
    pub(crate) since: PoolTime,
    /// Its end is proposed: nothing can take it back.
    pub(crate) ending: bool,
    /// What it may add to the hard-pinned bytes of its tenant.
    pub(crate) pinned_bytes: u64,
}

impl Pending {
    /// What it would add to the hard-pinned bytes if the object that it replaces is pinned hard
    /// now. `None` on overflow.
    pub(crate) fn inherits_bytes(&self) -> Option<u64> {
        if self.attributes.pin == Pin::None && self.pinned_bytes == 0 {
            charge_of(&self.replicas)
        } else {
            Some(0)
        }
    }
}

/// Which op is proposed for a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TenantOp {
    Set,
    Delete,
    Purge,
    Forget,
}

/// Which op is proposed for a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlabOp {
    Give,
    Ready,
    Take,
    Return,
}

/// What is on top of one tenant. Kept as long as the tenant is: nearly every put needs one.
#[derive(Clone, Debug, Default)]
pub(crate) struct TenantOverlay {
    /// Boxed, as the nodes of the map would else hold kilobytes each.
    pub(crate) puts: BTreeMap<Key, Box<Pending>>,
    /// Keys with a proposed op.
    pub(crate) touched: BTreeSet<Key>,
    pub(crate) reserved: Charge,
    /// What pending puts and proposed pins may add to the hard-pinned bytes.
    pub(crate) pinning_bytes: u64,
    /// What proposed pins add of it.
    pub(crate) pins: BTreeMap<Key, u64>,
    pub(crate) op: Option<TenantOp>,
}

impl TenantOverlay {
    /// It is about to be deleted.
    pub(crate) fn is_going(&self) -> bool {
        self.op == Some(TenantOp::Delete)
    }

    fn is_unused(&self) -> bool {
        self.puts.is_empty() && self.touched.is_empty() && self.op.is_none()
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Overlay {
    /// Numbers that proposed ops bring are given.
    pub(crate) next: Counters,
    pub(crate) tenants: BTreeMap<TenantId, TenantOverlay>,
    /// Pending puts from the oldest on: versions count up with time.
    pub(crate) by_version: BTreeMap<Version, (TenantId, Key)>,
    /// What pending puts and copies have on each segment, in aligned bytes.
    pub(crate) reserved_on: BTreeMap<SegmentId, u64>,
    pub(crate) by_session: BTreeSet<(SessionId, Version)>,
    pub(crate) discarded: BTreeMap<Version, Discarded>,
    pub(crate) copies: Copies,
    /// Tasks that are proposed.
    pub(crate) tasks_created: usize,
    /// Allocators with reservations on top of the committed ones; copied at the first touch and
    /// kept until the slab leaves its tenant.
    pub(crate) allocs: BTreeMap<SlabKey, Allocator>,
    pub(crate) slabs: BTreeMap<SlabKey, SlabOp>,
    pub(crate) segments_lost: BTreeSet<SegmentId>,
    /// Lost segments of which a sweep is proposed.
    pub(crate) sweeping: BTreeSet<SegmentId>,
    /// How many ops are proposed for an agent.
    pub(crate) agents: BTreeMap<AgentId, u32>,
    /// Agents whose labels are about to change.
    pub(crate) labelled: BTreeSet<AgentId>,
    /// Names whose first mount is proposed.
    pub(crate) names: BTreeMap<AgentName, AgentId>,
    /// Extents whose release is proposed.
    pub(crate) released: BTreeSet<(SlabKey, u64)>,
    /// Quotas with a proposed op.
    pub(crate) quotas: BTreeSet<QuotaName>,
    /// Tenants whose reservations changed since their charges were last counted.
    pub(crate) recharged: BTreeSet<TenantId>,
    /// Decided and not yet committed.
    pub(crate) in_flight: usize,
}

impl Overlay {
    pub(crate) fn new(state: &State) -> Self {
        Self {
            next: state.next,
            tenants: BTreeMap::new(),
            by_version: BTreeMap::new(),
            reserved_on: BTreeMap::new(),
            by_session: BTreeSet::new(),
            discarded: BTreeMap::new(),
            copies: Copies::default(),
            tasks_created: 0,
            allocs: BTreeMap::new(),
            slabs: BTreeMap::new(),
            segments_lost: BTreeSet::new(),
            sweeping: BTreeSet::new(),
            agents: BTreeMap::new(),
            labelled: BTreeSet::new(),
            names: BTreeMap::new(),
            released: BTreeSet::new(),
            quotas: BTreeSet::new(),
            recharged: BTreeSet::new(),
            in_flight: 0,
        }
    }

    pub(crate) fn pending(&self, tenant: &TenantId, key: &Key) -> Option<&Pending> {
        self.tenants.get(tenant)?.puts.get(key).map(|put| &**put)
    }

    pub(crate) fn is_touched(&self, tenant: &TenantId, key: &Key) -> bool {
        self.tenants
            .get(tenant)
            .is_some_and(|tenant| tenant.touched.contains(key))
    }

    pub(crate) fn tenant_op(&self, tenant: &TenantId) -> Option<TenantOp> {
        self.tenants.get(tenant)?.op
    }

    /// What pending puts and copies of a tenant are charged.
    pub(crate) fn reserved(&self, tenant: &TenantId) -> Charge {
        let puts = self.tenants.get(tenant).map(|tenant| tenant.reserved);
        let mut reserved = puts.unwrap_or_default();
        let copies = self.copies.reserved.get(tenant).copied().unwrap_or(0);
        reserved.bytes = reserved.bytes.saturating_add(copies);
        reserved
    }

    /// What may be added to the hard-pinned bytes of a tenant.
    pub(crate) fn pinning_bytes(&self, tenant: &TenantId) -> u64 {
        self.tenants
            .get(tenant)
            .map_or(0, |tenant| tenant.pinning_bytes)
    }

    /// An object is about to be pinned hard, and so is the pending put that would inherit it.
    fn pin(&mut self, tenant: &TenantId, key: &Key, bytes: u64) {
        let entry = self.tenants.entry(tenant.clone()).or_default();
        entry.pins.insert(key.clone(), bytes);
        let mut more = bytes;
        if let Some(put) = entry.puts.get_mut(key) {
            let inherits = put.inherits_bytes().unwrap_or(u64::MAX);
            put.pinned_bytes = put.pinned_bytes.saturating_add(inherits);
            more = more.saturating_add(inherits);
        }
        entry.pinning_bytes = entry.pinning_bytes.saturating_add(more);
    }

    /// The allocator of a slab with all reservations. `None` if the slab belongs to nobody.
    pub(crate) fn alloc<'a>(&'a self, state: &'a State, slab: SlabKey) -> Option<&'a Allocator> {
        self.allocs
            .get(&slab)
            .or_else(|| state.slab_at(slab.0, slab.1).map(|(_, slab)| &slab.alloc))
    }

    /// Reserves all extents of a new put, or none of them.
    pub(crate) fn start(
        &mut self,
        state: &State,
        tenant: &TenantId,
        key: &Key,
        put: Pending,
    ) -> Result<(), AllocError> {
        for (done, extent) in put.replicas.iter().flatten().enumerate() {
            if let Err(error) = self.reserve(state, extent) {
                for extent in put.replicas.iter().flatten().take(done) {
                    self.free(extent)?;
                }
                return Err(error);
            }
        }
        for extent in put.replicas.iter().flatten() {
            let bytes = larder_types::layout::reserved_bytes(extent.length_bytes).unwrap_or(0);
            *self.reserved_on.entry(extent.slab.segment).or_insert(0) += bytes;
        }
        self.by_version
            .insert(put.version, (tenant.clone(), key.clone()));
        self.by_session.insert((put.session, put.version));
        let entry = self.tenants.entry(tenant.clone()).or_default();
        let bytes = charge_of(&put.replicas).unwrap_or(u64::MAX);
        entry.reserved.bytes = entry.reserved.bytes.saturating_add(bytes);
        entry.reserved.objects += 1;
        entry.pinning_bytes = entry.pinning_bytes.saturating_add(put.pinned_bytes);
        entry.puts.insert(key.clone(), Box::new(put));
        self.recharged.insert(tenant.clone());
        Ok(())
    }

    pub(crate) fn reserve(&mut self, state: &State, extent: &Extent) -> Result<(), AllocError> {
        let slab = slab_key(extent.slab);
        let (offset_bytes, length_bytes) = (extent.offset_bytes, extent.length_bytes);
        let unknown = AllocError::Outside {
            offset_bytes,
            length_bytes,
        };
        let committed = &state.slab(extent.slab).ok_or(unknown)?.alloc;
        reserve_extent(
            self.allocs.entry(slab).or_insert_with(|| committed.clone()),
            extent,
        )
    }

    /// Frees an extent in the copy of its slab's allocator, if there is one.
    pub(crate) fn free(&mut self, extent: &Extent) -> Result<(), AllocError> {
        self.allocs
            .get_mut(&slab_key(extent.slab))
            .map_or(Ok(()), |alloc| {
                free_extent(alloc, extent.offset_bytes, extent.length_bytes)
            })
    }

    /// Takes a put out of the books. Its extents stay reserved.
    pub(crate) fn close(&mut self, version: Version) -> Option<(TenantId, Pending)> {
        let (tenant, key) = self.by_version.remove(&version)?;
        let entry = self.tenants.get_mut(&tenant)?;
        let put = *entry.puts.remove(&key)?;
        for extent in put.replicas.iter().flatten() {
            self.no_longer_reserved(extent);
        }
        let entry = self.tenants.get_mut(&tenant)?;
        let bytes = charge_of(&put.replicas).unwrap_or(u64::MAX);
        entry.reserved.bytes = entry.reserved.bytes.saturating_sub(bytes);
        entry.reserved.objects = entry.reserved.objects.saturating_sub(1);
        entry.pinning_bytes = entry.pinning_bytes.saturating_sub(put.pinned_bytes);
        self.recharged.insert(tenant.clone());
        self.by_session.remove(&(put.session, version));
        Some((tenant, put))
    }

    /// What a put or a copy had on a segment is not reserved for it any more.
    pub(crate) fn no_longer_reserved(&mut self, extent: &Extent) {
        let bytes = larder_types::layout::reserved_bytes(extent.length_bytes).unwrap_or(0);
        if let Some(sum) = self.reserved_on.get_mut(&extent.slab.segment) {
            *sum = sum.saturating_sub(bytes);
            if *sum == 0 {
                self.reserved_on.remove(&extent.slab.segment);
            }
        }
    }

    /// Versions of the pending puts of a session.
    pub(crate) fn versions_of(&self, session: SessionId) -> Vec<Version> {
        let own = self.by_session.range((session, Version::default())..);
        own.take_while(|(of, _)| *of == session)
            .map(|(_, version)| *version)
            .collect()
    }

    /// Versions of pending puts that `wanted` picks and that can still be taken back.
    pub(crate) fn pending_versions(
        &self,
        wanted: impl Fn(&TenantId, &Pending) -> bool,
    ) -> Vec<Version> {
        self.tenants
            .iter()
            .flat_map(|(id, tenant)| tenant.puts.values().map(move |put| (id, &**put)))
            .filter(|(id, put)| !put.ending && wanted(id, put))
            .map(|(_, put)| put.version)
            .collect()
    }

    /// A tenant is no more.
    fn forget(&mut self, tenant: &TenantId) {
        let entry = self.tenants.get(tenant);
        if entry.is_some_and(TenantOverlay::is_unused) {
            self.tenants.remove(tenant);
        }
    }
}
