//! Tasks as documents for the admin port.

use larder_store::{Task, TaskStatus, TaskWish};
use larder_types::{AgentId, Reason, TaskId, TenantId};
use larder_wire::CallError;
use serde_json::{Value, json};

use super::Leading;
use crate::admin::objects::hex;
use crate::event::AdminAnswer;
use crate::log::Log;

/// The most tasks that one turn looks at.
const SCANNED_MAX: usize = 4_096;

impl<L: Log> Leading<L> {
    /// A page of tasks, and where the next one goes on.
    pub(super) fn tasks(
        &self,
        tenant: Option<&TenantId>,
        open: bool,
        after: TaskId,
        limit: usize,
    ) -> Value {
        let (mut found, mut last, mut scanned) = (Vec::new(), None, 0);
        for (id, task) in self.core.state.tasks_after(after) {
            if found.len() == limit || scanned == SCANNED_MAX {
                let next = last.map(|last: TaskId| last.to_string());
                return json!({ "tasks": found, "next": next });
            }
            scanned += 1;
            last = Some(id);
            let fits = tenant.is_none_or(|tenant| task.tenant == *tenant);
            if fits && (!open || task.outcome.is_none()) {
                found.push(self.task_document(id, task));
            }
        }
        json!({ "tasks": found, "next": null })
    }

    pub(super) fn task(&self, id: TaskId) -> AdminAnswer {
        match self.core.state.task(id) {
            Some(task) => Ok(self.task_document(id, task)),
            None => Err(CallError::new(Reason::TaskUnknown)),
        }
    }

    /// The number as text: it has more digits than numbers of JSON keep everywhere.
    fn task_document(&self, id: TaskId, task: &Task) -> Value {
        let name = |agent: &AgentId| -> Value {
            let agent = self.core.state.agent(*agent);
            agent.map_or(Value::Null, |agent| agent.name().as_str().into())
        };
        let (wish, source, targets) = match &task.wish {
            TaskWish::Copy { targets } => ("copy", Value::Null, targets.iter().map(name).collect()),
            TaskWish::Move { source, target } => ("move", name(source), vec![name(target)]),
        };
        let (status, reason) = match self.core.leader.task_status(task) {
            TaskStatus::Pending => ("pending", None),
            TaskStatus::Processing => ("processing", None),
            TaskStatus::Success => ("success", None),
            TaskStatus::Failed(reason) => ("failed", Some(reason)),
        };
        json!({
            "task": id.to_string(),
            "tenant": task.tenant.as_str(),
            "key": std::str::from_utf8(task.key.as_bytes()).ok(),
            "hex": hex(task.key.as_bytes()),
            "version": task.version.to_string(),
            "wish": wish,
            "source": source,
            "targets": targets,
            "status": status,
            "reason": reason.map(Reason::label),
            "advice": reason.map(Reason::advice),
        })
    }
}
