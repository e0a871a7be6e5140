//! Tasks between wire and store: agents have names there and numbers here.

use larder_store::{Reply as StoreReply, Request, State, TaskStatus as Stands, TaskWish as Wish};
use larder_types::{AgentId, AgentName, Reason, TaskId, TenantId};
use larder_wire::master::{TaskItem, TaskStatus, TaskWish};
use larder_wire::{CallError, CallResult};

use super::answer::unfit;
use crate::calls::ItemResult;

/// The request of one item; one that names a stranger fails alone.
pub(super) fn task_create(item: TaskItem, tenant: &TenantId, state: &State) -> CallResult<Request> {
    Ok(Request::TaskCreate {
        tenant: tenant.clone(),
        key: item.key,
        wish: wish(item.wish, state)?,
    })
}

fn wish(wish: TaskWish, state: &State) -> CallResult<Wish> {
    let number = |name: &AgentName| -> CallResult<AgentId> {
        state.agent_named(name).ok_or_else(|| CallError {
            reason: Reason::AgentUnknown,
            detail: name.as_str().to_owned(),
        })
    };
    Ok(match wish {
        TaskWish::Copy { targets } => Wish::Copy {
            targets: targets.iter().map(number).collect::<CallResult<_>>()?,
        },
        TaskWish::Move { source, target } => Wish::Move {
            source: number(&source)?,
            target: number(&target)?,
        },
    })
}

pub(super) fn tasks_created(results: Vec<ItemResult>) -> Vec<CallResult<TaskId>> {
    let created = results.into_iter().map(|result| match result? {
        StoreReply::TaskCreated(task) => Ok(task),
        _ => unfit(),
    });
    created.collect()
}

pub(super) fn task_statuses(results: Vec<ItemResult>) -> Vec<CallResult<TaskStatus>> {
    let statuses = results.into_iter().map(|result| match result? {
        StoreReply::Task(status) => Ok(match status {
            Stands::Pending => TaskStatus::Pending,
            Stands::Processing => TaskStatus::Processing,
            Stands::Success => TaskStatus::Success,
            Stands::Failed(reason) => TaskStatus::Failed(reason),
        }),
        _ => unfit(),
    });
    statuses.collect()
}
