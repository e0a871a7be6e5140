//! Applying what concerns tasks: noted, over.

use larder_types::{Reason, TaskId};

use super::Fault;
use crate::digest;
use crate::state::State;
use crate::tasks::Task;

pub(super) fn created(state: &mut State, id: TaskId, task: Task) -> Result<(), Fault> {
    if id.0 < state.next.task || state.tenant(&task.tenant).is_none() {
        return Err(format!("task {id} was noted before, or is of no tenant"));
    }
    state.next.task = id.0.saturating_add(1);
    state.sum.add(digest::of_task(id, &task));
    state.tasks.insert(id, task);
    Ok(())
}

pub(super) fn ended(
    state: &mut State,
    id: TaskId,
    outcome: Result<(), Reason>,
) -> Result<(), Fault> {
    let (before, forgotten) = state
        .tasks
        .end(id, outcome)
        .ok_or_else(|| format!("task {id} is unknown or over already"))?;
    state.sum.take(digest::of_task(id, &before));
    if let Some(after) = state.tasks.get(id) {
        state.sum.add(digest::of_task(id, after));
    }
    // The oldest of all may be the one that has just ended.
    if let Some((oldest, task)) = forgotten.filter(|(oldest, _)| *oldest != id) {
        state.sum.take(digest::of_task(oldest, &task));
    }
    Ok(())
}
