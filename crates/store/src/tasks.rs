//! Tasks: copies and moves that somebody asked for, as the log knows them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use larder_types::{AgentId, Key, Reason, TaskId, TenantId, Version};

/// The most tasks that are open, and the most that are kept after their end. At about 300 bytes
/// each with keys of usual length that is 6 MiB, and 90 MiB with the longest keys.
pub const MAX_TASKS: usize = 10_000;

/// What a task is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskWish {
    /// Give the object a replica on each of these agents.
    Copy {
        /// Which agents; those that have one already count as done.
        targets: Vec<AgentId>,
    },
    /// Let another agent hold a replica instead of this one.
    Move {
        /// Whose replica goes.
        source: AgentId,
        /// Who gets one.
        target: AgentId,
    },
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Whose object.
    pub tenant: TenantId,
    /// The key.
    pub key: Key,
    /// The version that the key held: another one ends the task.
    pub version: Version,
    /// What is to be done.
    pub wish: TaskWish,
    /// How it went; `None` while it is open.
    pub outcome: Option<Result<(), Reason>>,
}

/// How a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskStatus {
    /// Nothing of it runs now.
    Pending,
    /// Bytes are on their way.
    Processing,
    /// All of it is done.
    Success,
    /// It is over, and not all of it is done.
    Failed(Reason),
}

/// All tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tasks {
    by_id: BTreeMap<TaskId, Task>,
    /// Those that are over; the lowest goes when there are too many.
    ended: BTreeSet<TaskId>,
}

impl Tasks {
    pub(crate) fn get(&self, id: TaskId) -> Option<&Task> {
        self.by_id.get(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (TaskId, &Task)> {
        self.by_id.iter().map(|(id, task)| (*id, task))
    }

    /// Those with higher numbers, in order.
    pub(crate) fn after(&self, id: TaskId) -> impl Iterator<Item = (TaskId, &Task)> {
        let from = (Bound::Excluded(id), Bound::Unbounded);
        self.by_id.range(from).map(|(id, task)| (*id, task))
    }

    /// Those that are not over.
    pub(crate) fn open(&self) -> impl Iterator<Item = (TaskId, &Task)> {
        self.iter().filter(|(_, task)| task.outcome.is_none())
    }

    pub(crate) fn open_count(&self) -> usize {
        self.by_id.len().saturating_sub(self.ended.len())
    }

    /// Whether exactly the tasks with an outcome are known as ended, and not too many are kept.
    pub(crate) fn is_sound(&self) -> bool {
        let ended = self.iter().filter(|(_, task)| task.outcome.is_some());
        ended.map(|(id, _)| id).eq(self.ended.iter().copied()) && self.ended.len() <= MAX_TASKS
    }

    pub(crate) fn insert(&mut self, id: TaskId, task: Task) {
        self.by_id.insert(id, task);
    }

    /// Adds a task as it was, over or not; whether there was none of that number.
    pub(crate) fn restore(&mut self, id: TaskId, task: Task) -> bool {
        if task.outcome.is_some() {
            self.ended.insert(id);
        }
        self.by_id.insert(id, task).is_none()
    }

    /// Ends an open task; the task as it was, and an old one that is forgotten for it.
    pub(crate) fn end(
        &mut self,
        id: TaskId,
        outcome: Result<(), Reason>,
    ) -> Option<(Task, Option<(TaskId, Task)>)> {
        let task = self.by_id.get_mut(&id).filter(|t| t.outcome.is_none())?;
        let before = task.clone();
        task.outcome = Some(outcome);
        self.ended.insert(id);
        let mut forgotten = None;
        if self.ended.len() > MAX_TASKS
            && let Some(oldest) = self.ended.pop_first()
        {
            forgotten = self.by_id.remove(&oldest).map(|task| (oldest, task));
        }
        Some((before, forgotten))
    }

    /// Takes all tasks of a tenant out. Looks at each: at most twice [`MAX_TASKS`].
    pub(crate) fn take_of(&mut self, tenant: &TenantId) -> Vec<(TaskId, Task)> {
        let of = |task: &Task| task.tenant == *tenant;
        let ids: Vec<TaskId> = self
            .iter()
            .filter(|(_, t)| of(t))
            .map(|(id, _)| id)
            .collect();
        let taken = ids.into_iter().filter_map(|id| {
            self.ended.remove(&id);
            self.by_id.remove(&id).map(|task| (id, task))
        });
        taken.collect()
    }
}
