//! Deciding tasks: asked for and asked about.

use std::collections::BTreeSet;

use larder_types::{AgentId, Key, Reason, TaskId, TenantId};

use super::{Outcome, Right, Stop, refuse};
use crate::leader::Leader;
use crate::op::Op;
use crate::overlay::TenantOp;
use crate::reply::Reply;
use crate::request::MAX_REPLICAS;
use crate::state::State;
use crate::tasks::{MAX_TASKS, TaskWish};

impl Leader {
    pub(super) fn task_create(
        &mut self,
        state: &State,
        tenant: &TenantId,
        key: &Key,
        wish: &TaskWish,
    ) -> Outcome {
        let held = self.tenant(state, tenant, Right::Write)?;
        self.untouched(state, tenant, key)?;
        let Some(object) = held.objects.get(key) else {
            return refuse(Reason::NotFound, format!("key {key}"));
        };
        check_wish(state, wish)?;
        let open = state.open_tasks() + self.overlay.tasks_created;
        if open >= MAX_TASKS {
            return refuse(
                Reason::TooManyTasks,
                format!("{open} are open, at most {MAX_TASKS}"),
            );
        }
        let task = TaskId(self.overlay.next.task);
        self.overlay.next.task = task.0.saturating_add(1);
        let op = Op::TaskCreated {
            task,
            tenant: tenant.clone(),
            key: key.clone(),
            version: object.version(),
            wish: wish.clone(),
        };
        Ok(self.answer_with(vec![op], Reply::TaskCreated(task)))
    }

    /// Of a task that is over nothing is changed.
    pub(super) fn task_cancel(&mut self, state: &State, id: TaskId) -> Outcome {
        let unknown = || refuse(Reason::TaskUnknown, format!("task {id}"));
        let Some(task) = state.task(id) else {
            return unknown();
        };
        if self.overlay.tenant_op(&task.tenant) == Some(TenantOp::Forget) {
            // It goes with its tenant.
            return unknown();
        }
        // One that is open and not worked on has its end on the way already.
        if task.outcome.is_some() || self.moves.tasks.remove(&id).is_none() {
            return Ok(self.answer(Reply::Done));
        }
        let op = Op::TaskEnded {
            task: id,
            outcome: Err(Reason::TaskCanceled),
        };
        Ok(self.answer_with(vec![op], Reply::Done))
    }

    pub(super) fn task_query(&self, state: &State, tenant: &TenantId, id: TaskId) -> Outcome {
        self.tenant(state, tenant, Right::Know)?;
        match state.task(id).filter(|task| task.tenant == *tenant) {
            Some(task) => Ok(self.answer(Reply::Task(self.task_status(task)))),
            None => refuse(Reason::TaskUnknown, format!("task {id}")),
        }
    }
}

/// Whether the agents of a wish are there and make sense.
fn check_wish(state: &State, wish: &TaskWish) -> Result<(), Stop> {
    let (targets, named): (Vec<AgentId>, BTreeSet<AgentId>) = match wish {
        TaskWish::Copy { targets } => (targets.clone(), targets.iter().copied().collect()),
        TaskWish::Move { source, target } => (vec![*target], [*source, *target].into()),
    };
    let most = usize::from(MAX_REPLICAS);
    let count = match wish {
        TaskWish::Copy { targets } => targets.len(),
        TaskWish::Move { .. } => 2,
    };
    if count == 0 || count > most || named.len() < count {
        let detail = format!("{count} agents, they must be 1 to {most} different ones");
        return refuse(Reason::BadArgument, detail);
    }
    for agent in targets {
        match state
            .agent(agent)
            .filter(|known| !known.segments.is_empty())
        {
            None => return refuse(Reason::AgentUnknown, format!("agent {agent}")),
            Some(known) if known.draining => {
                return refuse(Reason::AgentDraining, format!("agent {}", known.name));
            }
            Some(_) => {}
        }
    }
    Ok(())
}
