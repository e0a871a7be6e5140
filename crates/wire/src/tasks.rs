//! Calls of clients for tasks: copies and moves of objects that go on after the answer.

use larder_types::{AgentName, Key, Reason, TaskId};
use serde::{Deserialize, Serialize};

/// Asks for copies and moves of objects. Answer: `Reply<Vec<CallResult<TaskId>>>`, once they are
/// noted; [`TaskQuery`] says how they go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCreate {
    /// What to do; at most [`crate::limit::MAX_BATCH`].
    pub items: Vec<TaskItem>,
}

/// One copy or move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskItem {
    /// The key.
    pub key: Key,
    /// What to do with its object.
    pub wish: TaskWish,
}

/// What a task is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskWish {
    /// Give the object a replica on each of these agents.
    Copy {
        /// At most three; those that have one already count as done.
        targets: Vec<AgentName>,
    },
    /// Let another agent hold a replica instead of this one.
    Move {
        /// Whose replica goes.
        source: AgentName,
        /// Who gets one.
        target: AgentName,
    },
}

/// Asks how tasks stand. Answer: `Reply<Vec<CallResult<TaskStatus>>>`. An ended one is remembered
/// until 10,000 others of the pool have ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskQuery {
    /// Which; at most [`crate::limit::MAX_BATCH`].
    pub tasks: Vec<TaskId>,
}

/// How a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
