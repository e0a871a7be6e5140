//! What is to be copied next, and where to.

use larder_types::{AgentId, CopyId, Extent, Key, KeyRef, PoolTime, SegmentId, TaskId, TenantId};

use super::drain::Blocked;
use super::queue::InTables;
use super::room::Room;
use super::{Copy, Phase, Why};
use crate::leader::Leader;
use crate::objects::ObjectRef;
use crate::op::Op;
use crate::overlay::TenantOp;
use crate::place::Need;
use crate::quota::charge_of;
use crate::request::MAX_REPLICAS;
use crate::segment::{Slab, SlabKey, slab_key};
use crate::state::State;

/// The most objects that one turn looks at.
const WALKED_MAX: usize = 4_096;
/// The most objects of the queue that one turn tries to copy.
const TRIED_MAX: usize = 256;
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
    /// Begins what should be copied now; the ops are to be proposed like those of a decision.
    /// [`Self::tick`] does it too; to be called between ticks while [`Self::has_moves`].
    pub fn moves(&mut self, state: &State, now: PoolTime) -> Vec<Op> {
        self.moves.refill(&self.settings, now);
        self.ask_again(now);
        self.choose_sparse(state, now);
        self.walk_tables(state, now);
        self.walk_slabs(state, now);
        let mut ops = Vec::new();
        let tasks = self.work_on_tasks(state, now, &mut ops);
        let queued = self.work_on_queue(state, now, &mut ops);
        self.moves.rests = !(tasks || queued);
        ops
    }

    /// Whether [`Self::moves`] may begin something before the next tick.
    #[must_use]
    pub fn has_moves(&self) -> bool {
        let may_start = !self.moves.rests
            && self.overlay.copies.by_id.len() < self.settings.max_moves
            && self.moves.has_budget();
        let queue = &self.moves.queue;
        (may_start && (queue.len() > 0 || !self.moves.tasks.is_empty())) || queue.hurries()
    }

    /// Agents that have not answered in time are told again: they answer what they have done, and
    /// that a copy whose time is over is none.
    fn ask_again(&mut self, now: PoolTime) {
        let again = now.plus_ms(self.settings.move_timeout_ms);
        for (id, copy) in &mut self.overlay.copies.by_id {
            if copy.phase == Phase::Ending || copy.ask_at > now {
                continue;
            }
            copy.phase = Phase::Unwanted;
            copy.ask_at = again;
            if let Some(agent) = copy.target() {
                self.effects.command(agent, copy.order(*id));
            }
        }
    }

    /// Whether an extent is neither lost nor about to be.
    fn stands(&self, state: &State, extent: &Extent) -> bool {
        let segment = extent.slab.segment;
        !self.overlay.segments_lost.contains(&segment) && state.segments.contains_key(&segment)
    }

    /// The replicas of an object that are not lost or about to be.
    pub(super) fn kept(&self, state: &State, object: ObjectRef<'_>) -> Vec<Vec<Extent>> {
        let stands = |replica: &Vec<Extent>| replica.iter().all(|e| self.stands(state, e));
        object.held_replicas().filter(stands).collect()
    }

    /// Why something of an object is to be copied, if it is.
    pub(crate) fn due(&self, state: &State, object: ObjectRef<'_>) -> Option<Why> {
        let stands = |at: &u8| object.replica(*at).all(|e| self.stands(state, &e));
        let kept = (0..object.held_count()).filter(stands).count();
        let wanted = usize::from(object.wanted().min(MAX_REPLICAS));
        let lies = |test: &dyn Fn(&Extent) -> bool| object.extents().any(|e| test(&e));
        if kept == 1 && wanted > 1 {
            Some(Why::Endangered)
        } else if lies(&|extent| state.is_draining(extent.slab.agent)) {
            Some(Why::Drain)
        } else if kept < wanted && kept > 0 {
            Some(Why::Missing)
        } else if lies(&|extent| self.moves.sparse.contains(&slab_key(extent.slab))) {
            Some(Why::Compact)
        } else {
            None
        }
    }

    /// Looks at the next objects of the tables.
    fn walk_tables(&mut self, state: &State, now: PoolTime) {
        let Some(InTables { first, behind }) = self.moves.queue.tables.place(now) else {
            return;
        };
        let (from, mut after) = behind.unzip();
        let mut left = WALKED_MAX;
        let tenants = from.as_ref().map_or_else(
            || state.tenants.range::<TenantId, _>(..),
            |from| state.tenants.range(from..),
        );
        for (id, tenant) in tenants.filter(|(_, tenant)| !tenant.deleting) {
            let start = after.take().flatten();
            let mut last = None;
            for (key, object) in tenant.objects.range(&[], start.as_ref()) {
                let due = self.due(state, object);
                let wanted = due.filter(|why| !first || *why == Why::Endangered);
                let full = wanted.is_some_and(|why| !self.moves.queue.has_room(why));
                if left == 0 || full {
                    let last = last.map(KeyRef::to_key).or_else(|| start.clone());
                    let behind = Some((id.clone(), last));
                    self.moves.queue.tables.stop_at(InTables { first, behind });
                    return;
                }
                left -= 1;
                if !first {
                    let missing = object.wanted().saturating_sub(object.held_count());
                    self.moves.queue.counted += u64::from(missing);
                }
                if let Some(why) = wanted {
                    self.queue(why, id, key);
                }
                last = Some(key);
            }
        }
        if first {
            let (first, behind) = (false, None);
            self.moves.queue.tables.stop_at(InTables { first, behind });
        } else {
            self.moves.queue.tables_passed(now);
        }
    }

    /// Looks at the next objects in slabs that are to be emptied.
    fn walk_slabs(&mut self, state: &State, now: PoolTime) {
        let Some(place) = self.moves.queue.slabs.place(now) else {
            return;
        };
        let (from, mut offset_bytes) = place.unzip();
        let mut left = WALKED_MAX;
        for (slab_key, slab) in self.leaving_slabs(state, from) {
            let start = offset_bytes.take().filter(|_| Some(slab_key) == from);
            for (offset_bytes, id) in slab.lodgers.from(start.unwrap_or(0)) {
                let held = state.tenant(&slab.tenant);
                let found = held.and_then(|held| held.objects.by_id(id));
                let due = found.and_then(|(_, object)| self.due(state, object));
                let full = due.is_some_and(|why| !self.moves.queue.has_room(why));
                if left == 0 || full {
                    let place = Some((slab_key, offset_bytes));
                    self.moves.queue.slabs.stop_at(place);
                    return;
                }
                left -= 1;
                if let (Some(why), Some((key, _))) = (due, found) {
                    self.queue(why, &slab.tenant, key);
                }
            }
        }
        self.moves.queue.slabs.passed(now);
    }

    /// Slabs of agents that are to be emptied, and those that are half empty, from one on.
    fn leaving_slabs<'a>(
        &self,
        state: &'a State,
        from: Option<SlabKey>,
    ) -> Vec<(SlabKey, &'a Slab)> {
        let draining = state.agents.values().filter(|agent| agent.draining);
        let segments = draining.flat_map(|agent| &agent.segments);
        let mut slabs: Vec<(SlabKey, &Slab)> = segments
            .filter_map(|id| state.segment(*id))
            .flat_map(|segment| {
                let slabs = segment.slabs.iter();
                slabs.map(|(index, slab)| ((segment.id, *index), slab))
            })
            .collect();
        let sparse = self.moves.sparse.iter();
        slabs.extend(sparse.filter_map(|key| Some((*key, state.slab_at(key.0, key.1)?.1))));
        slabs.sort_unstable_by_key(|(key, _)| *key);
        slabs.dedup_by_key(|(key, _)| *key);
        slabs.retain(|(key, _)| from.is_none_or(|from| *key >= from));
        slabs
    }

    fn queue(&mut self, why: Why, tenant: &TenantId, key: KeyRef<'_>) {
        let name = (tenant.clone(), key.to_key());
        if !self.overlay.copies.by_key.contains_key(&name) {
            self.moves.queue.push(why, name);
        }
    }

    /// Begins copies of what is queued; whether any was begun.
    fn work_on_queue(&mut self, state: &State, now: PoolTime, ops: &mut Vec<Op>) -> bool {
        let mut later = Vec::new();
        let mut begun = false;
        for _ in 0..TRIED_MAX {
            if !self.may_copy() {
                break;
            }
            let Some((why, name)) = self.moves.queue.pop() else {
                break;
            };
            let Some(wanted) = self.wanted(state, &name) else {
                continue;
            };
            let leaves = wanted.instead_of;
            match self.copy(state, &name, wanted, now, ops) {
                Begun::Yes => {
                    begun = true;
                    self.moves.queue.moved();
                    if let Some(agent) = leaves {
                        self.unblocked(agent);
                    }
                }
                Begun::No => {}
                Begun::Later => later.push((why, name)),
                Begun::Blocked(blocked) => {
                    if let Some(agent) = leaves {
                        self.blocked(agent, blocked);
                    }
                    if blocked.may_pass() {
                        self.moves.queue.look_later(why, now);
                    }
                }
            }
        }
        for (why, name) in later {
            self.moves.queue.push_back(why, name);
        }
        begun
    }

    /// Whether one more copy may be begun now.
    pub(super) fn may_copy(&self) -> bool {
        self.overlay.copies.by_id.len() < self.settings.max_moves && self.moves.has_budget()
    }

    /// What is to become of an object that is queued.
    fn wanted(&self, state: &State, (tenant, key): &(TenantId, Key)) -> Option<Wanted> {
        let object = state.object(tenant, key)?;
        let why = self.due(state, object)?;
        let on = |test: &dyn Fn(&Extent) -> bool| {
            let kept = self.kept(state, object);
            let mut extents = kept.iter().flatten();
            extents
                .find(|extent| test(extent))
                .map(|extent| extent.slab.agent)
        };
        let (instead_of, target) = match why {
            Why::Endangered | Why::Missing | Why::Task => (None, None),
            Why::Drain => (Some(on(&|e| state.is_draining(e.slab.agent))?), None),
            Why::Compact => {
                let agent = on(&|e| self.moves.sparse.contains(&slab_key(e.slab)))?;
                (Some(agent), Some(agent))
            }
        };
        Some(Wanted {
            why,
            instead_of,
            target,
            task: None,
        })
    }

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
        if wanted.instead_of.is_none() && !self.fits_tenant(state, tenant, asked) {
            return Begun::Blocked(Blocked::Quota);
        }
        let to = match self.find_room(state, (tenant, object), &wanted, &from, now, ops) {
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
        from: &[Extent],
        now: PoolTime,
        ops: &mut Vec<Op>,
    ) -> Result<Vec<Extent>, Begun> {
        let lengths: Vec<u64> = from.iter().map(|extent| extent.length_bytes).collect();
        let longest = lengths.iter().copied().max().and_then(Need::of);
        let need = longest.ok_or(Begun::No)?;
        let holders: Vec<AgentId> = object.held_extents().map(|e| e.slab.agent).collect();
        let targets = match wanted.target {
            Some(target) => vec![target],
            None => self.copy_targets(state, tenant, need, &holders),
        };
        let mut first_free = None;
        for target in &targets {
            let place = (tenant, *target, wanted.why);
            match self.reserve_room(state, place, &lengths, now) {
                Room::Reserved(extents) => return Ok(extents),
                Room::Coming => return Err(Begun::Later),
                // To empty a slab another one is not begun.
                Room::Free(_) if wanted.why == Why::Compact => {}
                Room::Free(slab) => first_free = first_free.or(Some(slab)),
                Room::Nothing => {}
            }
        }
        if let Some(op) = first_free.and_then(|slab| self.give(state, slab, tenant)) {
            self.touch(state, std::slice::from_ref(&op));
            ops.push(op);
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
        let alive = |extent: &Extent| {
            let contact = self.soft.contacts.get(&extent.slab.agent);
            contact.is_some_and(|contact| contact.is_alive())
        };
        let mut readable = self.kept(state, object);
        readable.retain(|replica| replica.iter().all(alive));
        let lies_there =
            |replica: &Vec<Extent>| replica.iter().any(|e| Some(e.slab.agent) == preferred);
        let at = readable.iter().position(lies_there).unwrap_or(0);
        (at < readable.len()).then(|| readable.swap_remove(at))
    }

    /// Whether enough replicas stay elsewhere when the one on `agent` goes.
    fn can_spare(&self, state: &State, object: ObjectRef<'_>, agent: AgentId) -> bool {
        let on = |extent: &Extent| extent.slab.agent;
        let stays = |e: &Extent| on(e) != agent && !state.is_draining(on(e));
        let kept = self.kept(state, object);
        let stay = kept.iter().filter(|replica| replica.iter().all(stays));
        stay.count() >= usize::from(object.wanted().clamp(1, MAX_REPLICAS))
    }

    /// Whether a tenant is to go.
    pub(super) fn tenant_leaves(&self, state: &State, tenant: &TenantId) -> bool {
        let op = self.overlay.tenant_op(tenant);
        state.tenant(tenant).is_none_or(|tenant| tenant.deleting)
            || op.is_some_and(|op| op != TenantOp::Set)
    }

    /// The op that makes a finished copy a replica; `None` if its object has changed since.
    pub(crate) fn added(&self, state: &State, copy: &Copy) -> Option<Op> {
        let Copy { tenant, key, .. } = copy;
        let target = copy.target()?;
        if self.tenant_leaves(state, tenant) || self.overlay.is_touched(tenant, key) {
            return None;
        }
        let object = state.object(tenant, key)?;
        // Those on lost segments count too until they are swept.
        let holders: Vec<AgentId> = object.held_extents().map(|e| e.slab.agent).collect();
        let kept = self.kept(state, object);
        let goes = |agent: AgentId| kept.iter().flatten().any(|e| e.slab.agent == agent);
        let instead_of = copy.instead_of.filter(|agent| goes(*agent));
        let stays = |agent: &&AgentId| Some(**agent) != instead_of;
        let is_taken = holders.iter().filter(stays).any(|agent| *agent == target);
        let grows = usize::from(instead_of.is_none());
        let fits = object.version() == copy.version
            && !kept.is_empty()
            && !is_taken
            && kept.len() + grows <= usize::from(MAX_REPLICAS);
        fits.then(|| Op::ReplicaAdded {
            tenant: tenant.clone(),
            key: key.clone(),
            version: copy.version,
            extents: copy.to.clone(),
            instead_of,
        })
    }

    /// What the books learn when replicas of an object changed.
    pub(crate) fn replicas_changed(&mut self, state: &State, tenant: &TenantId, key: &Key) {
        self.moves.wake();
        let due = state
            .object(tenant, key)
            .and_then(|object| self.due(state, object));
        if let Some(why) = due {
            self.moves.queue.push(why, (tenant.clone(), key.clone()));
        }
    }

    /// A segment is lost: what lay there may be missing elsewhere.
    pub(crate) fn lost_replicas(&mut self, state: &State, segment: SegmentId) {
        self.moves.lose(segment);
        let lost = state.lost.get(&segment);
        if lost.is_some_and(|segment| segment.slabs.values().any(|slab| slab.lodgers.len() > 0)) {
            self.moves.queue.look_for_missing();
        }
    }
}
