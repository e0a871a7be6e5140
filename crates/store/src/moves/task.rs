//! Working on tasks: what each of them lacks.

use larder_types::{AgentId, PoolTime, Reason, TaskId};

use super::begin::{Begun, Wanted};
use super::{Blocked, TaskWork, Why};
use crate::leader::Leader;
use crate::objects::ObjectRef;
use crate::op::Op;
use crate::overlay::TenantOp;
use crate::state::State;
use crate::tasks::{Task, TaskStatus, TaskWish};

/// The most tasks that one turn looks at.
const TRIED_MAX: usize = 256;
/// So many failed copies end a task.
const FAILURES_MAX: u32 = 3;
/// A task that is not done after this long has failed, in milliseconds.
const TASK_MS: u64 = 300_000;
/// The pause after a failed copy, or one without room, in milliseconds.
const PAUSE_MS: u64 = 500;

/// What is next for a task.
enum Step {
    Over(Result<(), Reason>),
    /// Something else goes on with its object.
    Wait,
    Copy(Wanted),
    Drop(AgentId),
}

impl Leader {
    /// A task is noted.
    pub(crate) fn new_task(&mut self, task: TaskId, now: PoolTime) {
        self.moves.wake();
        let (since, failures, not_before) = (now, 0, now);
        self.moves.tasks.insert(
            task,
            TaskWork {
                since,
                failures,
                not_before,
            },
        );
    }

    /// A copy for this task failed.
    pub(crate) fn task_failed(&mut self, task: TaskId, now: PoolTime) {
        if let Some(work) = self.moves.tasks.get_mut(&task) {
            work.failures += 1;
            work.not_before = now.plus_ms(PAUSE_MS);
        }
    }

    /// How a task stands.
    #[must_use]
    pub fn task_status(&self, task: &Task) -> TaskStatus {
        match task.outcome {
            Some(Ok(())) => TaskStatus::Success,
            Some(Err(reason)) => TaskStatus::Failed(reason),
            None if self.overlay.copies.of(&task.tenant, &task.key).is_some() => {
                TaskStatus::Processing
            }
            None => TaskStatus::Pending,
        }
    }

    /// Goes on with the next tasks; whether anything was begun or ended.
    pub(super) fn work_on_tasks(
        &mut self,
        state: &State,
        now: PoolTime,
        ops: &mut Vec<Op>,
    ) -> bool {
        let from = self.moves.task_from;
        let behind = self.moves.tasks.range(from..).map(|(id, _)| *id);
        let before = self.moves.tasks.range(..from).map(|(id, _)| *id);
        let ids: Vec<TaskId> = behind.chain(before).take(TRIED_MAX).collect();
        self.moves.task_from = ids.last().map_or(TaskId(0), |id| TaskId(id.0 + 1));
        let mut begun = false;
        for id in ids {
            begun |= self.work_on_task(state, id, now, ops);
        }
        begun
    }

    fn work_on_task(
        &mut self,
        state: &State,
        id: TaskId,
        now: PoolTime,
        ops: &mut Vec<Op>,
    ) -> bool {
        let open = state.task(id).filter(|task| task.outcome.is_none());
        let (Some(task), Some(work)) = (open, self.moves.tasks.get(&id).copied()) else {
            self.moves.tasks.remove(&id);
            return false;
        };
        if self.overlay.tenant_op(&task.tenant) == Some(TenantOp::Forget) {
            // It goes with its tenant.
            return false;
        }
        let step = match self.task_step(state, (id, task)) {
            Step::Copy(_) | Step::Wait if now.since_ms(work.since) >= TASK_MS => {
                Step::Over(Err(Reason::DeadlinePassed))
            }
            Step::Copy(_) if work.failures >= FAILURES_MAX => Step::Over(Err(Reason::CopyFailed)),
            Step::Copy(_) if work.not_before > now || !self.may_copy() => Step::Wait,
            step => step,
        };
        let op = match step {
            Step::Wait => return false,
            Step::Over(outcome) => {
                self.moves.tasks.remove(&id);
                Op::TaskEnded { task: id, outcome }
            }
            Step::Drop(agent) => Op::ReplicaDropped {
                tenant: task.tenant.clone(),
                key: task.key.clone(),
                version: task.version,
                agent,
            },
            Step::Copy(wanted) => return self.copy_for_task(state, (id, task), wanted, now, ops),
        };
        self.touch(state, std::slice::from_ref(&op));
        ops.push(op);
        true
    }

    fn copy_for_task(
        &mut self,
        state: &State,
        (id, task): (TaskId, &Task),
        wanted: Wanted,
        now: PoolTime,
        ops: &mut Vec<Op>,
    ) -> bool {
        let name = (task.tenant.clone(), task.key.clone());
        match self.copy(state, &name, wanted, now, ops) {
            Begun::Yes => true,
            Begun::No | Begun::Later => false,
            Begun::Blocked(blocked) => {
                let over = match blocked {
                    Blocked::Quota => Some(Reason::QuotaBytes),
                    Blocked::NoSpace | Blocked::NoAgent | Blocked::NoSource => None,
                };
                if let Some(work) = self.moves.tasks.get_mut(&id) {
                    work.not_before = now.plus_ms(PAUSE_MS);
                }
                let Some(reason) = over else { return false };
                self.moves.tasks.remove(&id);
                let outcome = Err(reason);
                let op = Op::TaskEnded { task: id, outcome };
                self.touch(state, std::slice::from_ref(&op));
                ops.push(op);
                true
            }
        }
    }

    fn task_step(&self, state: &State, (id, task): (TaskId, &Task)) -> Step {
        if self.tenant_leaves(state, &task.tenant) {
            return Step::Over(Err(Reason::TenantUnknown));
        }
        let Some(object) = state.object(&task.tenant, &task.key) else {
            return Step::Over(Err(Reason::NotFound));
        };
        if object.version() != task.version {
            return Step::Over(Err(Reason::StaleVersion));
        }
        let touched = self.overlay.is_touched(&task.tenant, &task.key);
        if touched || self.overlay.copies.of(&task.tenant, &task.key).is_some() {
            return Step::Wait;
        }
        let kept = self.kept(state, object);
        let holders: Vec<AgentId> = kept.iter().flatten().map(|e| e.slab.agent).collect();
        match &task.wish {
            TaskWish::Copy { targets } => {
                match targets.iter().find(|agent| !holders.contains(agent)) {
                    None => Step::Over(Ok(())),
                    Some(target) => self.to(state, (id, object), *target, None),
                }
            }
            TaskWish::Move { source, target } => {
                match (holders.contains(source), holders.contains(target)) {
                    (false, true) => Step::Over(Ok(())),
                    (false, false) => Step::Over(Err(Reason::NoReplicaThere)),
                    (true, true) => Step::Drop(*source),
                    (true, false) => self.to(state, (id, object), *target, Some(*source)),
                }
            }
        }
    }

    fn to(
        &self,
        state: &State,
        (task, object): (TaskId, ObjectRef<'_>),
        target: AgentId,
        instead_of: Option<AgentId>,
    ) -> Step {
        let known = state
            .agent(target)
            .filter(|agent| !agent.segments.is_empty());
        let others = self.others(state, object, instead_of);
        match known {
            None => Step::Over(Err(Reason::AgentUnknown)),
            Some(agent) if agent.draining => Step::Over(Err(Reason::AgentDraining)),
            Some(_) if Self::is_host_taken(state, target, others.into_iter()) => {
                Step::Over(Err(Reason::HostTaken))
            }
            Some(_) if !self.takes_new(state, target) => Step::Wait,
            Some(_) => Step::Copy(Wanted {
                why: Why::Task,
                instead_of,
                target: Some(target),
                task: Some(task),
            }),
        }
    }
}
