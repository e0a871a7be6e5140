//! The state: everything that is in the log, and nothing else.
//!
//! Only [`crate::apply`] changes it. It names no clock, session or heartbeat; what may be lost at
//! a fail-over lives in [`crate::Leader`].

use std::collections::{BTreeMap, BTreeSet};

use larder_types::{
    AgentId, AgentName, AgentUid, Extent, Incarnation, Key, Label, Labels, Pin, QuotaName,
    SegmentId, SlabRef, TaskId, TenantId, Version,
};

use crate::digest::Sum;
use crate::objects::{ObjectRef, ObjectTable};
use crate::request::{QuotaPolicy, TenantPolicy};
use crate::segment::{Segment, Slab};
use crate::tasks::{Task, Tasks};

/// The next number of each kind to give. Numbers are never given twice within a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) registration: u64,
    pub(crate) agent: u32,
    pub(crate) segment: u32,
    pub(crate) task: u64,
}

/// A tenant with its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    pub(crate) policy: TenantPolicy,
    pub(crate) deleting: bool,
    pub(crate) used_bytes: u64,
    /// What hard-pinned objects take of it.
    pub(crate) pinned_bytes: u64,
    pub(crate) objects: ObjectTable,
    /// Every slab that belongs to it.
    pub(crate) slabs: BTreeSet<(AgentId, SegmentId, u16)>,
}

impl Tenant {
    /// What it may do and hold.
    #[must_use]
    pub const fn policy(&self) -> &TenantPolicy {
        &self.policy
    }

    /// Whether it is to go.
    #[must_use]
    pub const fn is_deleting(&self) -> bool {
        self.deleting
    }

    /// What it is charged for complete objects, in bytes; for lost replicas until they are swept.
    #[must_use]
    pub const fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// What hard-pinned objects are charged of it, in bytes.
    #[must_use]
    pub const fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes
    }

    /// Charges extents of an object with this pin; `None` on overflow.
    pub(crate) fn charge(&mut self, bytes: u64, pin: Pin) -> Option<()> {
        self.used_bytes = self.used_bytes.checked_add(bytes)?;
        if pin == Pin::Hard {
            self.pinned_bytes = self.pinned_bytes.checked_add(bytes)?;
        }
        Some(())
    }

    /// Takes extents of an object with this pin off its charge; `None` if it is charged less.
    pub(crate) fn refund(&mut self, bytes: u64, pin: Pin) -> Option<()> {
        self.used_bytes = self.used_bytes.checked_sub(bytes)?;
        if pin == Pin::Hard {
            self.pinned_bytes = self.pinned_bytes.checked_sub(bytes)?;
        }
        Some(())
    }

    /// Its objects.
    #[must_use]
    pub const fn objects(&self) -> &ObjectTable {
        &self.objects
    }

    /// How many slabs belong to it, those of lost segments included until they are swept.
    #[must_use]
    pub fn slab_count(&self) -> usize {
        self.slabs.len()
    }
}

/// A known agent. Without segments it is lost, or offers none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    pub(crate) name: AgentName,
    pub(crate) uid: AgentUid,
    pub(crate) incarnation: Incarnation,
    /// In the order of the offers.
    pub(crate) segments: Vec<SegmentId>,
    /// It is to be emptied: nothing new is placed on it.
    pub(crate) draining: bool,
    /// Where it is, as it said when it mounted.
    pub(crate) said: Labels,
    /// What an administrator says of that, which wins.
    pub(crate) set: Labels,
}

impl Agent {
    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &AgentName {
        &self.name
    }

    /// What tells it from another agent of that name.
    #[must_use]
    pub const fn uid(&self) -> AgentUid {
        self.uid
    }

    /// The life of its process, as of the last mount.
    #[must_use]
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Its segments.
    #[must_use]
    pub fn segments(&self) -> &[SegmentId] {
        &self.segments
    }

    /// Whether it is to be emptied.
    #[must_use]
    pub const fn is_draining(&self) -> bool {
        self.draining
    }

    /// Where it is; see [`Self::host`] for the machine when nobody named one.
    #[must_use]
    pub fn labels(&self) -> Labels {
        self.set.or(&self.said)
    }

    /// The machine that it is on: by default one of the agent's name.
    #[must_use]
    pub fn host(&self) -> &str {
        let host = self.set.host.as_ref().or(self.said.host.as_ref());
        host.map_or(self.name.as_str(), Label::as_str)
    }
}

/// All that is in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub(crate) generation: u64,
    /// It is being made again from what agents hold.
    pub(crate) rebuilding: bool,
    /// While it is: no agent is still to come but those that are named.
    pub(crate) knows_agents: bool,
    /// While it is: what the log had taken away and no agent has erased, so that it is not found
    /// again.
    pub(crate) doomed: BTreeSet<(Extent, Version)>,
    /// What every replica of the log knows to do.
    pub(crate) version: u32,
    pub(crate) next: Counters,
    pub(crate) tenants: BTreeMap<TenantId, Tenant>,
    pub(crate) agents: BTreeMap<AgentId, Agent>,
    pub(crate) names: BTreeMap<AgentName, AgentId>,
    pub(crate) segments: BTreeMap<SegmentId, Segment>,
    /// Segments that were lost and on which replicas or slabs are still noted. Nobody reads them;
    /// [`crate::Op::SegmentSwept`] drops what is left in steps.
    pub(crate) lost: BTreeMap<SegmentId, Segment>,
    pub(crate) tasks: Tasks,
    pub(crate) quotas: BTreeMap<QuotaName, QuotaPolicy>,
    /// Kept sums of what could be counted; [`crate::check`] counts.
    pub(crate) objects: u64,
    pub(crate) capacity_bytes: u64,
    pub(crate) releasing_bytes: u64,
    pub(crate) sum: Sum,
}

impl State {
    /// An empty pool whose log begins in `generation`. Before the first op of a log, which is
    /// [`crate::Op::PoolBegun`] with a generation of 1 or more, the generation is 0.
    #[must_use]
    pub fn new(generation: u64) -> Self {
        // Registrations name lives of slabs in capabilities. Each generation has its own 2^40 of
        // them, so that no capability of a former generation fits a slab of this one.
        let registration = ((generation & 0xff_ffff) << 40) | 1;
        let mut state = Self {
            generation,
            rebuilding: false,
            knows_agents: false,
            doomed: BTreeSet::new(),
            version: 0,
            next: Counters {
                registration,
                agent: 1,
                segment: 1,
                // As registrations: an id of a former generation names no task of this one.
                task: registration,
            },
            tenants: BTreeMap::new(),
            agents: BTreeMap::new(),
            names: BTreeMap::new(),
            segments: BTreeMap::new(),
            lost: BTreeMap::new(),
            tasks: Tasks::default(),
            quotas: BTreeMap::new(),
            objects: 0,
            capacity_bytes: 0,
            releasing_bytes: 0,
            sum: Sum::default(),
        };
        state.sum.add(state.head_hash());
        state
    }

    /// The generation of the log.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether it is being made again from what agents hold: nothing in it is all there is.
    #[must_use]
    pub const fn is_rebuilding(&self) -> bool {
        self.rebuilding
    }

    /// The version of the release of which every replica of the log knows what it does.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// A digest of everything here, kept up to date by each op. Equal states have equal digests
    /// on every platform and release.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.sum.value()
    }

    /// Each tenant, in the order of ids.
    pub fn tenants(&self) -> impl Iterator<Item = (&TenantId, &Tenant)> {
        self.tenants.iter()
    }

    /// The tenant of this id.
    #[must_use]
    pub fn tenant(&self, tenant: &TenantId) -> Option<&Tenant> {
        self.tenants.get(tenant)
    }

    /// Each quota that tenants may share, in the order of names.
    pub fn quotas(&self) -> impl Iterator<Item = (&QuotaName, &QuotaPolicy)> {
        self.quotas.iter()
    }

    /// The quota of this name.
    #[must_use]
    pub fn quota(&self, quota: &QuotaName) -> Option<&QuotaPolicy> {
        self.quotas.get(quota)
    }

    /// Each known agent, in the order of numbers.
    pub fn agents(&self) -> impl Iterator<Item = (AgentId, &Agent)> {
        self.agents.iter().map(|(id, agent)| (*id, agent))
    }

    /// The agent of this number.
    #[must_use]
    pub fn agent(&self, agent: AgentId) -> Option<&Agent> {
        self.agents.get(&agent)
    }

    /// The number of the agent of this name.
    #[must_use]
    pub fn agent_named(&self, name: &AgentName) -> Option<AgentId> {
        self.names.get(name).copied()
    }

    /// Each mounted segment, in the order of numbers.
    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.values()
    }

    /// The segment of this number.
    #[must_use]
    pub fn segment(&self, segment: SegmentId) -> Option<&Segment> {
        self.segments.get(&segment)
    }

    /// Each segment that was lost and is not swept yet, in the order of numbers.
    pub fn lost_segments(&self) -> impl Iterator<Item = &Segment> {
        self.lost.values()
    }

    /// The task of this number.
    #[must_use]
    pub fn task(&self, task: TaskId) -> Option<&Task> {
        self.tasks.get(task)
    }

    /// Tasks with higher numbers, in order.
    pub fn tasks_after(&self, task: TaskId) -> impl Iterator<Item = (TaskId, &Task)> {
        self.tasks.after(task)
    }

    /// Tasks that are not over.
    #[must_use]
    pub fn open_tasks(&self) -> usize {
        self.tasks.open_count()
    }

    /// Whether an agent is to be emptied.
    #[must_use]
    pub fn is_draining(&self, agent: AgentId) -> bool {
        self.agents.get(&agent).is_some_and(|agent| agent.draining)
    }

    /// All mounted segments, in bytes.
    #[must_use]
    pub const fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Complete objects of all tenants, those included that are lost and not swept yet.
    #[must_use]
    pub const fn objects(&self) -> u64 {
        self.objects
    }

    /// What all tenants are charged for complete objects, in bytes.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.tenants
            .values()
            .fold(0, |sum, tenant| sum.saturating_add(tenant.used_bytes))
    }

    /// Extents that agents were told to erase and have not yet released, in aligned bytes.
    #[must_use]
    pub const fn releasing_bytes(&self) -> u64 {
        self.releasing_bytes
    }

    /// Extents that agents were told to erase and have not yet released, with the version of each.
    pub fn releasing(&self) -> impl Iterator<Item = (Extent, Version)> + '_ {
        self.segments.values().flat_map(|segment| {
            segment.slabs.iter().flat_map(move |(index, slab)| {
                let name = segment.slab_ref(*index, slab.registration);
                slab.releasing.iter().map(move |(offset_bytes, releasing)| {
                    let extent = Extent {
                        slab: name,
                        offset_bytes: *offset_bytes,
                        length_bytes: releasing.length_bytes,
                    };
                    (extent, releasing.version)
                })
            })
        })
    }

    /// The object of this key, if a replica of it can be read.
    #[must_use]
    pub fn object(&self, tenant: &TenantId, key: &Key) -> Option<ObjectRef<'_>> {
        self.tenants.get(tenant)?.objects.get(key)
    }

    /// The slab in the life that the reference names.
    #[must_use]
    pub fn slab(&self, slab: SlabRef) -> Option<&Slab> {
        self.segments.get(&slab.segment)?.slab(slab)
    }

    /// The slab at this place, in whatever life.
    pub(crate) fn slab_at(&self, segment: SegmentId, index: u16) -> Option<(SlabRef, &Slab)> {
        let segment = self.segments.get(&segment)?;
        let slab = segment.slabs.get(&index)?;
        Some((segment.slab_ref(index, slab.registration), slab))
    }

    /// The whole reference of a slab that belongs to somebody.
    pub(crate) fn slab_ref(&self, segment: SegmentId, index: u16) -> Option<SlabRef> {
        self.slab_at(segment, index).map(|(slab, _)| slab)
    }

    /// Whether an extent lies in a ready slab of this tenant.
    pub(crate) fn holds(&self, tenant: &TenantId, extent: &Extent) -> bool {
        self.slab(extent.slab)
            .is_some_and(|slab| slab.is_open_to(tenant))
    }
}
