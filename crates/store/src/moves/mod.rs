//! Moving replicas between agents and slabs: repair of lost ones, drain, tasks, compaction.
//!
//! All of them are **copies**: extents are reserved on the target in the overlay like those of a
//! put, the target agent is told to read the object from an agent that has it, and when it says
//! `copied` one op makes the copy a replica, in the place of another one for a move. What is to be
//! copied is found by walking the tables in steps; the queue in front is bounded, and what it does
//! not take waits where the walk stopped.
//!
//! A copy carries the version of its object, so an extent may see the same version twice. What an
//! agent says of the first time must not be taken for the second. Therefore a copy that is given
//! up is erased only after the agent has answered it: agents answer each copy, and in the order in
//! which they were told, so whatever belongs to the first time was heard before.

mod begin;
mod compact;
mod copies;
mod drain;
mod plan;
mod queue;
mod room;
mod task;
mod walk;

use std::collections::{BTreeMap, BTreeSet};

use larder_types::{AgentId, PoolTime, SegmentId, TaskId, TenantId};

pub(crate) use copies::{Copies, Copy, Phase};
pub use drain::{Blocked, DrainStatus};
pub(crate) use queue::Queue;

use crate::segment::SlabKey;
use crate::settings::Settings;
use crate::state::State;

/// Why something is copied. The order is the one in which it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// One replica is left of an object of which more were asked for.
    Endangered,
    /// Somebody asked for it.
    Task,
    /// Its agent is to be emptied.
    Drain,
    /// A replica is missing, and more than one are left.
    Missing,
    /// Its slab is to be emptied.
    Compact,
}

impl Why {
    /// Every one.
    pub const ALL: [Self; 5] = [
        Self::Endangered,
        Self::Task,
        Self::Drain,
        Self::Missing,
        Self::Compact,
    ];

    /// Whether the object is larger afterwards.
    pub(crate) const fn adds(self) -> bool {
        matches!(self, Self::Endangered | Self::Missing)
    }

    /// The name, as it stands in metric labels.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Endangered => "endangered",
            Self::Task => "task",
            Self::Drain => "drain",
            Self::Missing => "missing",
            Self::Compact => "compact",
        }
    }
}

/// What was copied for one reason, since this leader began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveCounts {
    /// Copies that became replicas.
    pub done: u64,
    /// Payload of those, in bytes.
    pub done_bytes: u64,
    /// Copies that an agent could not make, or that came too late.
    pub failed: u64,
}

/// A task that is open, as this leader works on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskWork {
    pub(crate) since: PoolTime,
    pub(crate) failures: u32,
    pub(crate) not_before: PoolTime,
}

/// What this leader does about replicas that are not where they should be. Lost at a fail-over:
/// the next one walks the tables anew.
#[derive(Clone, Debug)]
pub(crate) struct Moves {
    pub(crate) queue: Queue,
    /// What may be started now, in bytes; below 0 after an object larger than what was left.
    budget_bytes: i64,
    budget_at: PoolTime,
    /// How many agents may still be looked at in this turn.
    looks_left: usize,
    counts: BTreeMap<Why, MoveCounts>,
    pub(crate) tasks: BTreeMap<TaskId, TaskWork>,
    /// What this leader has moved off each agent, and why it stopped.
    pub(crate) drains: BTreeMap<AgentId, drain::Progress>,
    /// The task to look at next.
    task_from: TaskId,
    /// The last look began nothing: the next is worth while only when something has happened.
    rests: bool,
    /// Slabs that are half empty and are being emptied.
    pub(crate) sparse: BTreeSet<SlabKey>,
    /// Where the search for such slabs goes on, and when.
    sparse_from: Option<(AgentId, TenantId)>,
    sparse_at: PoolTime,
}

impl Moves {
    pub(crate) fn new(state: &State, settings: &Settings, now: PoolTime) -> Self {
        let work = |(id, _)| {
            let (since, failures, not_before) = (now, 0, now);
            (
                id,
                TaskWork {
                    since,
                    failures,
                    not_before,
                },
            )
        };
        Self {
            queue: Queue::new(state.objects() > 0, settings),
            budget_bytes: 0,
            budget_at: now,
            looks_left: 0,
            counts: BTreeMap::new(),
            tasks: state.tasks.open().map(work).collect(),
            drains: BTreeMap::new(),
            task_from: TaskId(0),
            rests: false,
            sparse: BTreeSet::new(),
            sparse_from: None,
            sparse_at: now,
        }
    }

    /// Lets what time has brought be copied, at most one second's worth.
    fn refill(&mut self, settings: &Settings, now: PoolTime) {
        let passed_ms = now.since_ms(self.budget_at);
        self.budget_at = now;
        let rate = settings.move_bytes_per_s;
        let earned = rate.saturating_mul(passed_ms) / 1_000;
        let earned = i64::try_from(earned).unwrap_or(i64::MAX);
        let most = i64::try_from(rate).unwrap_or(i64::MAX);
        self.budget_bytes = self.budget_bytes.saturating_add(earned).min(most);
    }

    pub(crate) fn has_budget(&self) -> bool {
        self.budget_bytes > 0
    }

    pub(crate) fn spend(&mut self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.budget_bytes = self.budget_bytes.saturating_sub(bytes);
    }

    pub(crate) fn count(&mut self, why: Why) -> &mut MoveCounts {
        self.counts.entry(why).or_default()
    }

    pub(crate) fn counts(&self, why: Why) -> MoveCounts {
        self.counts.get(&why).copied().unwrap_or_default()
    }

    /// Whether agents are being emptied that had something in the way.
    pub(crate) fn is_draining(&self) -> bool {
        self.drains
            .values()
            .any(|progress| progress.blocked.is_some())
    }

    /// Something happened that may let more be copied.
    pub(crate) const fn wake(&mut self) {
        self.rests = false;
    }

    pub(crate) fn lose(&mut self, segment: SegmentId) {
        self.sparse.retain(|slab| slab.0 != segment);
    }
}
