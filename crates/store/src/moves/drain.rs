//! Draining an agent: what is left on it, what has gone, and what is in the way.

use std::collections::BTreeSet;

use larder_types::{AgentId, layout};

use crate::leader::Leader;
use crate::segment::slab_key;
use crate::state::{Agent, State};

/// The most extents whose objects are counted: no turn touches more objects.
const COUNTED_MAX: u64 = 4_096;

/// What keeps a replica from being moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Blocked {
    /// No other agent that could take it has room.
    NoSpace,
    /// No other agent answers that has no replica of the object and is not to be emptied.
    NoAgent,
    /// No agent that has the object answers.
    NoSource,
    /// One more replica would break the tenant's limit.
    Quota,
}

impl Blocked {
    /// Whether time alone may change it. The others change with an agent that comes.
    pub(crate) const fn may_pass(self) -> bool {
        matches!(self, Self::NoSpace | Self::Quota)
    }

    /// For people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::NoSpace => "no space: the other agents have no room; remove objects or add nodes",
            Self::NoAgent => {
                "no agent: every other agent is silent, draining or on a host that has the object"
            }
            Self::NoSource => "no source: no agent that has the object answers",
            Self::Quota => "quota: one more replica would break the limit of the tenant",
        }
    }
}

/// What this leader has done to empty an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) moved_objects: u64,
    pub(crate) moved_bytes: u64,
    pub(crate) blocked: Option<Blocked>,
}

/// How far an agent is emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainStatus {
    /// Whether it is to be emptied.
    pub draining: bool,
    /// Whether it is, and nothing of it is left: it may leave without loss.
    pub drained: bool,
    /// Slabs that belong to a tenant.
    pub slabs_left: u64,
    /// What lies or is being written in them, in aligned bytes.
    pub bytes_left: u64,
    /// Extents of objects in them.
    pub extents_left: u64,
    /// Objects that those belong to; `None` if there are more extents than one turn counts.
    pub objects_left: Option<u64>,
    /// Of the bytes, what is erased and still held by readers.
    pub releasing_bytes: u64,
    /// Replicas that were moved off it or dropped, since this leader began.
    pub moved_objects: u64,
    /// Payload of those, in bytes.
    pub moved_bytes: u64,
    /// What is in the way of those that are left.
    pub blocked: Option<Blocked>,
}

impl Leader {
    /// How far an agent is emptied; `None` if it is not known.
    #[must_use]
    pub fn drain_status(&self, state: &State, agent: AgentId) -> Option<DrainStatus> {
        let known = state.agent(agent)?;
        let (mut slabs_left, mut bytes_left, mut extents_left, mut releasing_bytes) =
            (0, 0u64, 0, 0u64);
        for segment in known.segments().iter().filter_map(|id| state.segment(*id)) {
            slabs_left += segment.slabs.len() as u64;
            for (index, slab) in &segment.slabs {
                let name = segment.slab_ref(*index, slab.registration);
                let alloc = self
                    .overlay
                    .alloc(state, slab_key(name))
                    .unwrap_or(&slab.alloc);
                extents_left += slab.lodgers.len() as u64;
                let used = alloc.size_bytes().saturating_sub(alloc.free_bytes());
                bytes_left = bytes_left.saturating_add(used);
                let released = slab.releasing.values();
                let released = released.filter_map(|r| layout::reserved_bytes(r.length_bytes));
                releasing_bytes = releasing_bytes.saturating_add(released.sum());
            }
        }
        let objects_left = (extents_left <= COUNTED_MAX).then(|| objects_on(state, known));
        let progress = self.moves.drains.get(&agent).copied().unwrap_or_default();
        let drained = known.draining && slabs_left == 0;
        Some(DrainStatus {
            draining: known.draining,
            drained,
            slabs_left,
            bytes_left,
            extents_left,
            objects_left,
            releasing_bytes,
            moved_objects: progress.moved_objects,
            moved_bytes: progress.moved_bytes,
            blocked: progress.blocked.filter(|_| known.draining && !drained),
        })
    }

    pub(super) fn blocked(&mut self, agent: AgentId, blocked: Blocked) {
        self.moves.drains.entry(agent).or_default().blocked = Some(blocked);
    }

    pub(super) fn unblocked(&mut self, agent: AgentId) {
        if let Some(progress) = self.moves.drains.get_mut(&agent) {
            progress.blocked = None;
        }
    }

    /// A replica has left an agent that is to be emptied.
    pub(crate) fn left(&mut self, state: &State, agent: AgentId, bytes: u64) {
        if state.is_draining(agent) {
            let progress = self.moves.drains.entry(agent).or_default();
            progress.moved_objects += 1;
            progress.moved_bytes = progress.moved_bytes.saturating_add(bytes);
        }
    }
}

/// Objects with an extent on an agent: one may have several.
fn objects_on(state: &State, agent: &Agent) -> u64 {
    let segments = agent.segments().iter().filter_map(|id| state.segment(*id));
    let slabs = segments.flat_map(|segment| segment.slabs.values());
    let objects: BTreeSet<u32> = slabs
        .flat_map(|slab| slab.lodgers.from(0))
        .map(|(_, id)| id.0)
        .collect();
    objects.len() as u64
}
