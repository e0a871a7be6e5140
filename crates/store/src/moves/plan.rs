//! What is to be copied next, and what becomes of it.

use larder_types::{AgentId, Extent, Key, PoolTime, SegmentId, TenantId};

use super::begin::{Begun, Wanted};
use super::{Copy, Phase, Why};
use crate::leader::Leader;
use crate::objects::{ObjectId, ObjectRef};
use crate::op::Op;
use crate::overlay::TenantOp;
use crate::place::Need;
use crate::request::MAX_REPLICAS;
use crate::segment::slab_key;
use crate::state::State;

/// The most objects of the queue that one turn tries to copy.
const TRIED_MAX: usize = 256;
/// So many agents are looked at in one turn for room: at about 2 us each no turn takes longer for
/// it than 5 ms. In a pool that has no room, and more agents than that, one object is tried.
const LOOKS_MAX: usize = 2_048;
/// After this long a copy for which no room was found is tried elsewhere, in milliseconds.
const REDRAWN_MS: u64 = 30_000;

impl Leader {
    /// Begins what should be copied now; the ops are to be proposed like those of a decision.
    /// [`Self::tick`] does it too; to be called between ticks while [`Self::has_moves`].
    pub fn moves(&mut self, state: &State, now: PoolTime) -> Vec<Op> {
        self.moves.refill(&self.settings, now);
        self.moves.looks_left = LOOKS_MAX;
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

    /// How many replicas of an object are asked for and are not there, or are about to be lost.
    pub(crate) fn missing(&self, state: &State, object: ObjectRef<'_>) -> u64 {
        let stands = |at: &u8| object.replica(*at).all(|e| self.stands(state, &e));
        let kept = (0..object.held_count()).filter(stands).count() as u64;
        u64::from(object.wanted()).saturating_sub(kept)
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
            let mut leaves = wanted.instead_of;
            let mut outcome = self.copy(state, &name, wanted, now, ops);
            // Where one more cannot be, the one on an agent that is to be emptied still moves.
            if let (Begun::Blocked(_), None) = (&outcome, leaves)
                && let Some(moved) = self.drained(state, &name)
            {
                leaves = moved.instead_of;
                outcome = self.copy(state, &name, moved, now, ops);
            }
            match outcome {
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
        self.overlay.copies.by_id.len() < self.settings.max_moves
            && self.moves.has_budget()
            && self.moves.looks_left > 0
    }

    /// The agent of a replica that has an extent like this.
    fn holder(
        &self,
        state: &State,
        object: ObjectRef<'_>,
        is_it: impl Fn(&Extent) -> bool,
    ) -> Option<AgentId> {
        let kept = self.kept(state, object);
        let mut extents = kept.iter().flatten();
        let found = extents.find(|extent| is_it(extent))?;
        Some(found.slab.agent)
    }

    /// The move of a replica that lies on an agent that is to be emptied.
    fn drained(&self, state: &State, (tenant, key): &(TenantId, Key)) -> Option<Wanted> {
        let object = state.object(tenant, key)?;
        let leaves = self.holder(state, object, |e| state.is_draining(e.slab.agent))?;
        Some(Wanted {
            why: Why::Drain,
            instead_of: Some(leaves),
            target: None,
            task: None,
        })
    }

    /// What is to become of an object that is queued.
    fn wanted(&self, state: &State, name: &(TenantId, Key)) -> Option<Wanted> {
        let object = state.object(&name.0, &name.1)?;
        let why = self.due(state, object)?;
        let (instead_of, target) = match why {
            Why::Endangered | Why::Missing | Why::Task => (None, None),
            Why::Drain => return self.drained(state, name),
            Why::Compact => {
                let is_sparse = |e: &Extent| self.moves.sparse.contains(&slab_key(e.slab));
                let agent = self.holder(state, object, is_sparse)?;
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

    /// Agents that may take a copy of an object, the best first.
    pub(super) fn targets(
        &mut self,
        state: &State,
        (tenant, object): (&TenantId, ObjectRef<'_>),
        wanted: &Wanted,
        need: Need,
        now: PoolTime,
    ) -> Vec<AgentId> {
        let holders: Vec<AgentId> = object.held_extents().map(|e| e.slab.agent).collect();
        let stay = self.others(state, object, wanted.instead_of);
        let sites = Self::sites(state, stay.into_iter());
        // The same ones while a slab is on its way; others later, if that came to nothing.
        let lot = [object.version().counter, now.0 / REDRAWN_MS].map(u64::to_le_bytes);
        let lot = (tenant, lot.as_flattened());
        let fits = |leader: &Self, agent| leader.has_room(state, (tenant, agent, wanted.why), need);
        let (targets, looks) = self.copy_targets(state, lot, need, (&holders, &sites), fits);
        self.moves.looks_left = self.moves.looks_left.saturating_sub(looks);
        targets
    }

    /// The agents of the replicas that stay when that of one agent goes.
    pub(super) fn others(
        &self,
        state: &State,
        object: ObjectRef<'_>,
        instead_of: Option<AgentId>,
    ) -> Vec<AgentId> {
        let kept = self.kept(state, object);
        let agents = kept.iter().flatten().map(|extent| extent.slab.agent);
        agents.filter(|agent| Some(*agent) != instead_of).collect()
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
        let is_taken = holders.iter().filter(stays).any(|agent| *agent == target)
            // Hosts may have got other names meanwhile. A move within an agent changes no host.
            || (instead_of != Some(target) && {
                let others = self.others(state, object, instead_of);
                Self::is_host_taken(state, target, others.into_iter())
            });
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
    pub(crate) fn replicas_changed(&mut self, state: &State, tenant: &TenantId, id: ObjectId) {
        self.moves.wake();
        let held = state.tenant(tenant);
        let found = held.and_then(|held| held.objects.by_id(id));
        let due = found.and_then(|(key, object)| Some((key, self.due(state, object)?)));
        if let Some((key, why)) = due {
            self.moves.queue.push(why, (tenant.clone(), key.to_key()));
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
