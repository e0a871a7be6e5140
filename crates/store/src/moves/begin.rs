//! The begin of one copy: which replica is read, and which agent gets the new one.

use std::collections::BTreeSet;

use larder_types::{AgentId, CopyId, Extent, Key, PoolTime, TaskId, TenantId};

use super::drain::Blocked;
use super::room::Room;
use super::{Copy, Phase, Why};
use crate::leader::Leader;
use crate::objects::ObjectRef;
use crate::op::Op;
use crate::place::Need;
use crate::place::stripe::extents_max;
use crate::quota::charge_of;
use crate::request::MAX_REPLICAS;
use crate::state::State;

/// How long after its deadline a copy's agent is told again, in milliseconds.
const GRACE_MS: u64 = 5_000;

/// What an object's replicas are to become.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) why: Why,
    /// The agent whose replica goes.
    pub(super) instead_of: Option<AgentId>,
    /// The agent that gets one; `None` lets room decide.
    pub(super) target: Option<AgentId>,
    /// Who asked for it.
    pub(super) task: Option<TaskId>,
}

/// What came of trying to copy an object.
#[derive(Debug)]
pub(super) enum Begun {
    /// A copy runs, or an op settles it.
    Yes,
    /// There is nothing to do.
    No,
    /// A slab is on its way, or the object is busy: in a later turn.
    Later,
    Blocked(Blocked),
}

impl Leader {
    /// Begins the copy that is wanted of an object, or drops a replica that is one too many.
    pub(super) fn copy(
        &mut self,
        state: &State,
        (tenant, key): &(TenantId, Key),
        wanted: Wanted,
        now: PoolTime,
        ops: &mut Vec<Op>,
    ) -> Begun {
        let Some(object) = state.object(tenant, key) else {
            return Begun::No;
        };
        if self.tenant_leaves(state, tenant) {
            return Begun::No;
        }
        if self.overlay.is_touched(tenant, key) || self.overlay.copies.of(tenant, key).is_some() {
            return Begun::Later;
        }
        if let Some(agent) = wanted.instead_of
            && wanted.why == Why::Drain
            && self.can_spare(state, object, agent)
        {
            let op = Op::ReplicaDropped {
                tenant: tenant.clone(),
                key: key.clone(),
                version: object.version(),
                agent,
            };
            self.touch(state, std::slice::from_ref(&op));
            ops.push(op);
            return Begun::Yes;
        }
        let Some(from) = self.source(state, object, wanted.instead_of) else {
            return Begun::Blocked(Blocked::NoSource);
        };
        let asked = charge_of(std::slice::from_ref(&from)).unwrap_or(u64::MAX);
        if wanted.instead_of.is_none() {
            // Copies that were begun in this turn count already.
            self.refresh_books(state);
            if !self.fits_tenant(state, tenant, asked) {
                return Begun::Blocked(Blocked::Quota);
            }
        }
        let to = match self.find_room(state, (tenant, object), &wanted, now, ops) {
            Ok(to) => to,
            Err(begun) => return begun,
        };
        self.begin((tenant, key, object), (from, to), &wanted, now);
        Begun::Yes
    }

    fn begin(
        &mut self,
        (tenant, key, object): (&TenantId, &Key, ObjectRef<'_>),
        (from, to): (Vec<Extent>, Vec<Extent>),
        wanted: &Wanted,
        now: PoolTime,
    ) {
        let Some(id) = self.next_version().map(CopyId) else {
            // 2^64 versions of one epoch; the extents stay reserved until the next one.
            return;
        };
        let deadline = now.plus_ms(self.settings.move_timeout_ms);
        let copy = Copy {
            tenant: tenant.clone(),
            key: key.clone(),
            version: object.version(),
            size_bytes: object.size_bytes(),
            digest: object.digest(),
            from,
            to,
            instead_of: wanted.instead_of,
            why: wanted.why,
            task: wanted.task,
            deadline,
            wanted: object.wanted(),
            attributes: object.attributes().clone(),
            ask_at: deadline.plus_ms(GRACE_MS),
            phase: Phase::Running,
        };
        self.moves.spend(object.size_bytes());
        if let Some(agent) = copy.target() {
            self.effects.command(agent, copy.order(id));
        }
        self.overlay.start_copy(id, copy);
    }

    /// Extents for a copy: on the target that is wanted, or on the first that has room.
    fn find_room(
        &mut self,
        state: &State,
        (tenant, object): (&TenantId, ObjectRef<'_>),
        wanted: &Wanted,
        now: PoolTime,
        ops: &mut Vec<Op>,
    ) -> Result<Vec<Extent>, Begun> {
        let need = Need::of(object.size_bytes()).ok_or(Begun::No)?;
        let most = extents_max(&object.key().to_key());
        let targets = match wanted.target {
            Some(target) => vec![target],
            None => self.targets(state, (tenant, object), wanted, need, now),
        };
        let mut first_free = None;
        for target in &targets {
            let place = (tenant, *target, wanted.why);
            match self.reserve_room(state, place, (need.size_bytes, most), now) {
                Room::Reserved(extents) => return Ok(extents),
                Room::Coming => return Err(Begun::Later),
                // To empty a slab another one is not begun.
                Room::Free(_) if wanted.why == Why::Compact => {}
                Room::Free(slabs) => first_free = first_free.or(Some(slabs)),
                Room::Nothing => {}
            }
        }
        if let Some(slabs) = first_free {
            for slab in slabs {
                let given = self.give(state, slab, tenant);
                self.touch(state, given.as_slice());
                ops.extend(given);
            }
            return Err(Begun::Later);
        }
        Err(Begun::Blocked(if targets.is_empty() {
            Blocked::NoAgent
        } else {
            Blocked::NoSpace
        }))
    }

    /// A replica that can be read now: the one that goes if it can.
    fn source(
        &self,
        state: &State,
        object: ObjectRef<'_>,
        preferred: Option<AgentId>,
    ) -> Option<Vec<Extent>> {
        let alive = |extent: &Extent| self.answers(extent.slab.agent);
        let mut readable = self.kept(state, object);
        readable.retain(|replica| replica.iter().all(alive));
        let lies_there =
            |replica: &Vec<Extent>| replica.iter().any(|e| Some(e.slab.agent) == preferred);
        let at = readable.iter().position(lies_there).unwrap_or(0);
        (at < readable.len()).then(|| readable.swap_remove(at))
    }

    /// Whether enough replicas stay elsewhere when the one on `agent` goes: as many as are wanted,
    /// or as there will be hosts for.
    fn can_spare(&self, state: &State, object: ObjectRef<'_>, agent: AgentId) -> bool {
        let on = |extent: &Extent| extent.slab.agent;
        let stays = |e: &Extent| on(e) != agent && !state.is_draining(on(e));
        let kept = self.kept(state, object);
        let stay = || kept.iter().filter(|replica| replica.iter().all(stays));
        let wanted = usize::from(object.wanted().clamp(1, MAX_REPLICAS));
        let readable = || stay().filter(|replica| replica.iter().all(|e| self.answers(on(e))));
        stay().count() >= wanted
            || (readable().count() > 0 && stay().count() >= self.hosts_left(state, wanted))
    }

    /// On how many hosts there are agents that are not to be emptied, silent ones included, since
    /// they may answer again; no more than `most` are counted.
    fn hosts_left(&self, state: &State, most: usize) -> usize {
        let mut hosts = BTreeSet::new();
        for (_, agent) in state.agents().filter(|(_, agent)| !agent.draining) {
            if hosts.len() >= most {
                break;
            }
            if self.segments_of(state, agent).next().is_some() {
                hosts.insert(agent.host());
            }
        }
        hosts.len()
    }

    fn answers(&self, agent: AgentId) -> bool {
        let contact = self.soft.contacts.get(&agent);
        contact.is_some_and(|contact| contact.is_alive())
    }
}
