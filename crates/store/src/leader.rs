//! The leader: what is lost at a fail-over, and the calls of the shell.
//!
//! The shell owns one `State` and, while it leads, one `Leader`. It decides requests in turn,
//! proposes the ops of each decision in the order in which they were decided, and feeds every
//! committed op back through [`Leader::committed`]. A `Leader` whose ops could not be proposed is
//! dropped.

pub(crate) mod rebuild;
mod settle;

pub(crate) use settle::place_of;

use rebuild::Rebuild;

use std::collections::VecDeque;

use larder_types::{AgentId, Epoch, Extent, PoolTime, TenantId, Version};

use crate::effects::{Command, Corruption, Effects};
use crate::evict::Evictor;
use crate::leases::Leases;
use crate::moves::{MoveCounts, Moves, Why};
use crate::op::Op;
use crate::overlay::Overlay;
use crate::place::Roster;
use crate::quota::Books;
use crate::reply::{Decision, Reply, WaitOn};
use crate::segment::SlabPhase;
use crate::settings::Settings;
use crate::soft::{Health, Soft};
use crate::space::Space;
use crate::state::State;

/// What the leader keeps beside the state.
#[derive(Debug)]
pub struct Leader {
    pub(crate) epoch: Epoch,
    pub(crate) settings: Settings,
    pub(crate) overlay: Overlay,
    pub(crate) soft: Soft,
    /// Which objects go when space runs out.
    pub(crate) evict: Evictor,
    pub(crate) leases: Leases,
    /// An index over state and overlay.
    pub(crate) space: Space,
    /// Agents to draw candidates from.
    pub(crate) roster: Roster,
    pub(crate) moves: Moves,
    /// What guarantees and limits come to, and what is charged against them.
    pub(crate) books: Books,
    /// Commands and wakes that came without an op.
    pub(crate) effects: Effects,
    pub(crate) committed_index: u64,
    next_counter: u64,
    /// Log index and number of ops of what is proposed and not committed; at most `in_flight`.
    proposed: VecDeque<(u64, usize)>,
    /// While the pool is made again.
    pub(crate) rebuild: Option<Box<Rebuild>>,
    /// Until then, or until an agent mounts, nobody is told that something is not there: the log
    /// may be lost, and the agents that know of it are still to come.
    pub(crate) unheard_until: PoolTime,
}

impl Leader {
    /// A leader of `epoch` over a state in which every op of former leaders is applied. It places
    /// nothing on an agent before that has mounted at it and acknowledged its epoch.
    #[must_use]
    pub fn new(state: &State, epoch: Epoch, settings: Settings, now: PoolTime) -> Self {
        let begin = || Rebuild::new(state, settings.inventory_wait_ms, now);
        let rebuild = state.is_rebuilding().then(|| Box::new(begin()));
        Self {
            epoch,
            leases: Leases::new(&settings, now),
            moves: Moves::new(state, &settings, now),
            settings,
            overlay: Overlay::new(state),
            soft: Soft::new(state, now),
            evict: Evictor::new(state),
            space: Space::new(state),
            roster: Roster::default(),
            books: Books::default(),
            effects: Effects::default(),
            committed_index: 0,
            next_counter: 1,
            proposed: VecDeque::new(),
            rebuild,
            unheard_until: PoolTime(0),
        }
    }

    /// Says under which log index the ops of the last decisions or ticks stand. To be called for
    /// every log entry, in the order of indexes, before any of its ops is committed.
    pub fn proposed(&mut self, index: u64, ops: &[Op]) {
        if !ops.is_empty() {
            self.proposed.push_back((index, ops.len()));
        }
    }

    /// The pool began with an empty log: nobody is told that something is not there before an agent
    /// has mounted, or `inventory_wait_ms` have passed.
    #[must_use]
    pub fn unheard(mut self, now: PoolTime) -> Self {
        self.unheard_until = now.plus_ms(self.settings.inventory_wait_ms);
        self
    }

    /// Whether nobody is told yet that something is not there.
    #[must_use]
    pub fn is_unheard(&self, now: PoolTime) -> bool {
        now < self.unheard_until
    }

    /// Lets everybody see ops that the shell decided, which concern nothing that is stored.
    pub fn touch_all(&mut self, state: &State, ops: &[Op]) {
        self.touch(state, ops);
    }

    /// Applies a committed op and lets go of what it touched. The only way in which a leader
    /// applies. Ops come in the order in which they were proposed; another order is reported as
    /// corruption, as the overlay would not fit it.
    pub fn committed(&mut self, state: &mut State, index: u64, op: &Op, now: PoolTime) -> Effects {
        let in_order = self.in_order(index);
        if in_order && let Op::PoolBegun { generation } | Op::PoolRebuilding { generation, .. } = op
        {
            return self.begin_anew(state, (index, op), *generation, now);
        }
        if in_order && state.is_rebuilding() {
            self.committed_index = self.committed_index.max(index);
            return self.committed_rebuilding(state, op, now);
        }
        let lost_agent = match op {
            Op::SegmentLost { segment, .. } => state.segment(*segment).map(|lost| lost.agent),
            _ => None,
        };
        let before = self.evict.before(state, op);
        let mut effects = crate::apply(state, op);
        let placed = match op {
            Op::PutEnd { tenant, key, .. } => place_of(state, tenant, key),
            _ => None,
        };
        self.overlay.settle(op, lost_agent);
        self.evict.after(state, op, (&before, placed), now);
        self.books.note(op);
        let settled = self.settle_soft(state, op, (lost_agent, placed), now);
        if let Op::SegmentLost { segment, .. } = op {
            self.lost_replicas(state, *segment);
        }
        let fault = match (in_order, settled) {
            (false, _) => Some(format!("committed at {index}, where it was not proposed")),
            (true, Err(detail)) => Some(detail),
            (true, Ok(())) => None,
        };
        if let Some(detail) = fault.filter(|_| effects.corruption.is_none()) {
            effects.corruption = Some(Corruption {
                op: op.name(),
                detail,
            });
        }
        self.committed_index = self.committed_index.max(index);
        effects.append(self.take_effects());
        effects
    }

    /// The pool begins anew, and so does its leader. What is proposed and not committed was decided
    /// over the former state: it is reported as corruption if it comes.
    fn begin_anew(
        &mut self,
        state: &mut State,
        (index, op): (u64, &Op),
        generation: u64,
        now: PoolTime,
    ) -> Effects {
        let effects = crate::apply(state, op);
        let term = self.epoch.term;
        let epoch = Epoch { generation, term };
        *self = Self::new(state, epoch, self.settings.clone(), now);
        self.committed_index = index;
        effects
    }

    fn in_order(&mut self, index: u64) -> bool {
        let front = self
            .proposed
            .front_mut()
            .filter(|(front, _)| *front == index);
        let Some((_, ops)) = front else { return false };
        *ops -= 1;
        if *ops == 0 {
            self.proposed.pop_front();
        }
        true
    }

    /// Commands and wakes since the last call that came without an op: from discarded puts and
    /// from agents that fell silent or came back. To be taken after each `decide` and `tick`.
    pub fn take_effects(&mut self) -> Effects {
        std::mem::take(&mut self.effects)
    }

    /// Everything that an agent which connects has to do.
    #[must_use]
    pub fn outstanding(&self, state: &State, agent: AgentId) -> Vec<Command> {
        let mut commands: Vec<Command> = state
            .tenants()
            .filter(|(_, tenant)| tenant.is_deleting())
            .map(|(id, _)| Command::TenantGone { tenant: id.clone() })
            .collect();
        for segment in state.segments().filter(|segment| segment.agent == agent) {
            let slab_bytes = segment.slab_bytes;
            for (index, found) in &segment.slabs {
                let slab = segment.slab_ref(*index, found.registration);
                match found.phase {
                    // What the agent said of it is on its way: giving it again could reach the
                    // agent after the slab went back, and stand in the way of its next life.
                    SlabPhase::Giving if self.overlay.slabs.contains_key(&(segment.id, *index)) => {
                    }
                    SlabPhase::Giving => {
                        let tenant: TenantId = found.tenant.clone();
                        commands.push(Command::SlabGive {
                            slab,
                            tenant,
                            slab_bytes,
                        });
                    }
                    SlabPhase::Taking => commands.push(Command::SlabTake { slab }),
                    SlabPhase::Ready => {}
                }
                commands.extend(found.releasing.iter().map(|(offset_bytes, releasing)| {
                    let (offset_bytes, length_bytes) = (*offset_bytes, releasing.length_bytes);
                    let extent = Extent {
                        slab,
                        offset_bytes,
                        length_bytes,
                    };
                    Command::Erase {
                        extent,
                        version: releasing.version,
                    }
                }));
            }
        }
        for (version, discarded) in &self.overlay.discarded {
            let own = discarded
                .extents
                .iter()
                .filter(|extent| extent.slab.agent == agent);
            commands.extend(own.map(|extent| Command::Erase {
                extent: *extent,
                version: *version,
            }));
        }
        let copies = self.overlay.copies.by_id.iter();
        let own = copies.filter(|(_, copy)| {
            copy.target() == Some(agent) && copy.phase != crate::moves::Phase::Ending
        });
        commands.extend(own.map(|(id, copy)| copy.order(*id)));
        commands
    }

    /// The epoch of this leader.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// How an agent answers.
    #[must_use]
    pub fn health(&self, agent: AgentId) -> Health {
        self.soft.health(agent)
    }

    /// How busy an agent said that it is, per mille; `None` if this leader has no contact with it.
    #[must_use]
    pub fn load_permille(&self, agent: AgentId) -> Option<u16> {
        let contact = self.soft.contacts.get(&agent);
        contact.map(|contact| contact.load_permille)
    }

    /// Puts that are started and neither ended nor discarded.
    #[must_use]
    pub fn pending_puts(&self) -> usize {
        self.overlay.by_version.len()
    }

    /// Discarded or revoked puts whose extents are not all released.
    #[must_use]
    pub fn discarded_puts(&self) -> usize {
        self.overlay.discarded.len()
    }

    /// What a get protects its object for, in milliseconds.
    #[must_use]
    pub const fn lease_ms(&self) -> u64 {
        self.settings.lease_ms
    }

    /// Extents of discarded or revoked puts that are not released, in aligned bytes.
    #[must_use]
    pub fn discarded_bytes(&self) -> u64 {
        self.overlay.discarded_bytes().values().sum()
    }

    /// What pending puts and copies are charged, in bytes.
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        self.overlay
            .tenants
            .values()
            .map(|tenant| tenant.reserved.bytes)
            .chain(self.overlay.copies.reserved.values().copied())
            .fold(0, u64::saturating_add)
    }

    /// What the pending puts of one tenant are charged: bytes and objects.
    #[must_use]
    pub fn reserved_of(&self, tenant: &TenantId) -> (u64, u64) {
        let reserved = self.overlay.reserved(tenant);
        (reserved.bytes, reserved.objects)
    }

    /// Copies between agents that are under way or being given up.
    #[must_use]
    pub fn copies(&self) -> usize {
        self.overlay.copies.by_id.len()
    }

    /// Objects that wait to be copied, as far as they are known.
    #[must_use]
    pub fn queued_moves(&self) -> usize {
        self.moves.queue.len()
    }

    /// Replicas that were asked for and do not exist, as of the last look at all objects.
    #[must_use]
    pub const fn missing_replicas(&self) -> u64 {
        self.moves.queue.missing()
    }

    /// What was copied for one reason since this leader began.
    #[must_use]
    pub fn move_counts(&self, why: Why) -> MoveCounts {
        self.moves.counts(why)
    }

    /// Ops that are decided and not yet committed.
    #[must_use]
    pub const fn in_flight_ops(&self) -> usize {
        self.overlay.in_flight
    }

    /// The next version of this epoch; `None` when all of them are given.
    pub(crate) fn next_version(&mut self) -> Option<Version> {
        let counter = self.next_counter;
        self.next_counter = counter.checked_add(1)?;
        Some(Version {
            epoch: self.epoch,
            counter,
        })
    }

    /// Nothing new goes to this agent for now: whoever waits for its slabs looks elsewhere.
    pub(crate) fn wake_waiters_of(&mut self, state: &State, agent: AgentId) {
        for segment in state.segments().filter(|segment| segment.agent == agent) {
            let coming = segment
                .slabs
                .iter()
                .filter(|(_, slab)| slab.phase != SlabPhase::Ready);
            for (index, _) in coming {
                self.effects.wake(WaitOn::Slab(segment.id, *index));
            }
            let proposed = self
                .overlay
                .slabs
                .range((segment.id, 0)..=(segment.id, u16::MAX));
            for ((id, index), _) in proposed {
                self.effects.wake(WaitOn::Slab(*id, *index));
            }
        }
        self.effects.wake(WaitOn::Space);
    }

    /// An answer that follows from what is committed.
    pub(crate) fn answer(&self, reply: Reply) -> Decision {
        Decision::Reply {
            ops: Vec::new(),
            reply,
            saw_index: self.committed_index,
        }
    }

    /// An answer that leaves when its ops are committed.
    pub(crate) fn answer_with(&self, ops: Vec<Op>, reply: Reply) -> Decision {
        Decision::Reply {
            ops,
            reply,
            saw_index: self.committed_index,
        }
    }
}
