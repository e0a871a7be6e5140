//! Deciding what agents say of copies.

use larder_types::{AgentId, CopyId, Digest, PoolTime};

use crate::leader::{Leader, place_of};
use crate::moves::{Copy, Phase};
use crate::objects::ObjectId;
use crate::op::Op;
use crate::reply::{Decision, Reply};
use crate::state::State;

impl Leader {
    /// A copy is written: it becomes a replica, or is erased if its object has changed since.
    pub(super) fn copied(
        &mut self,
        state: &State,
        agent: AgentId,
        id: CopyId,
        digest: Digest,
        now: PoolTime,
    ) -> Decision {
        let known = self.overlay.copies.by_id.get(&id);
        let Some(copy) = known.filter(|copy| copy.target() == Some(agent)) else {
            // Of a former leader, or answered before.
            return self.answer(Reply::Done);
        };
        let op = match copy.phase {
            Phase::Ending => return self.answer(Reply::Done),
            Phase::Running if copy.digest == digest => self.added(state, copy),
            Phase::Running | Phase::Unwanted => None,
        };
        match op {
            Some(op) => self.answer_with(vec![op], Reply::Done),
            None => self.copy_failed(agent, id, now),
        }
    }

    /// A copy cannot be made, or is of no use: what there is of it is erased.
    pub(super) fn copy_failed(&mut self, agent: AgentId, id: CopyId, now: PoolTime) -> Decision {
        let known = self.overlay.copies.by_id.get(&id);
        let answered = |copy: &&Copy| copy.target() == Some(agent) && copy.phase != Phase::Ending;
        if let Some(copy) = known.filter(answered) {
            let (why, task) = (copy.why, copy.task);
            self.moves.count(why).failed += 1;
            if let Some(task) = task {
                self.task_failed(task, now);
            }
            self.moves.wake();
            // What it was for may still be lacking.
            self.moves.queue.look_later(why, now);
            self.overlay.discard_copy(id, &mut self.effects);
        }
        self.answer(Reply::Done)
    }

    /// What the books learn from an op about replicas.
    pub(crate) fn settle_replica(&mut self, state: &State, op: &Op) {
        let (tenant, key) = match op {
            Op::ReplicaAdded { tenant, key, .. } | Op::ReplicaDropped { tenant, key, .. } => {
                (tenant, key)
            }
            _ => return,
        };
        let object = state.object(tenant, key);
        let size_bytes = object.map_or(0, |object| object.size_bytes());
        match op {
            Op::ReplicaAdded { instead_of, .. } => {
                let copy = self.overlay.copies.of(tenant, key);
                if let Some(copy) = copy.and_then(|id| self.overlay.close_copy(id)) {
                    let counts = self.moves.count(copy.why);
                    counts.done += 1;
                    counts.done_bytes = counts.done_bytes.saturating_add(size_bytes);
                }
                match instead_of {
                    Some(agent) => self.left(state, *agent, size_bytes),
                    None => self.moves.queue.mended(),
                }
            }
            Op::ReplicaDropped { agent, .. } => self.left(state, *agent, size_bytes),
            _ => {}
        }
        self.moves.wake();
        if let Some(id) = place_of(state, tenant, key) {
            self.replicas_changed(state, tenant, id);
        }
    }

    /// A put may have ended with fewer replicas than were asked for.
    pub(crate) fn replicas_missing(
        &mut self,
        state: &State,
        tenant: &larder_types::TenantId,
        id: ObjectId,
    ) {
        let held = state.tenant(tenant);
        let object = held.and_then(|held| held.objects.by_id(id));
        let missing = object.map_or(0, |(_, object)| self.missing(state, object));
        self.moves.queue.misses(missing);
    }

    /// An agent answers that did not: it may be read from and written to.
    pub(crate) fn agent_answers(&mut self) {
        self.moves.wake();
        if self.moves.queue.has_something() || self.moves.is_draining() {
            self.moves.queue.look();
        }
    }
}
