//! An agent's slabs: who may touch which bytes, and when they may be used again.
//!
//! Pure but for the memory it lends: told time, commands and capabilities, it answers at once.
//! One thread owns it. Nothing here waits, reads a clock or knows a socket.
//!
//! ```text
//! capability -> check -> ticket (a hold on the range) -> bytes move -> the ticket comes back
//! erase      -> record gone, version refused -> the last hold ends -> Event::Released
//! take_slab  -> access ends -> the last hold ends -> pages freed -> Event::SlabReturned
//! ```
//!
//! At any moment the ranges held in one slab are pairwise equal or disjoint: a write is refused
//! while anything holds a byte of its range, and only whole written extents are read or viewed.

mod budget;
mod check;
mod command;
mod epoch;
mod erase;
mod event;
mod handle;
mod hold;
mod inventory;
mod range;
mod read;
mod slab;
mod stats;
mod table;
#[cfg(test)]
mod tests;
mod ticket;
mod view;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use larder_types::{
    AgentId, Epoch, Incarnation, PoolTime, Registration, SegmentId, SlabRef, TenantId, Version,
};
use larder_wire::{AgentKey, KeyRing, SessionClaims, SessionToken, SessionVerifier, TokenError};

pub use epoch::{LocalMs, StaleEpoch};
pub use handle::SegmentsHandle;
pub use inventory::{InventoryCursor, InventoryPage};
pub use stats::SegmentsStats;
pub use ticket::{ReadTicket, ViewTicket, WriteStart, WriteTicket};

use budget::RecordBudget;
use epoch::EpochGate;
use event::EventQueue;
use hold::Holds;
use slab::Slab;
use stats::Counters;
use view::ViewBytes;

/// A slab's place: its segment and its index there.
type Place = (SegmentId, u16);

/// How many deleted tenants are remembered. Their session tokens live about an hour; more
/// deletions than this in that time would let some sessions live on to their end, without a
/// master that still gives them capabilities.
const GONE_TENANTS_MAX: usize = 16_384;

/// All slabs of one agent with their records, holds and pending events.
#[derive(Debug)]
pub struct Segments {
    incarnation: Incarnation,
    agent: Option<AgentId>,
    segments: Vec<SegmentId>,
    keys: KeyRing,
    verifier: Option<SessionVerifier>,
    gate: EpochGate,
    /// Every slab whose memory is still here, by its number in this process: a generation's
    /// registrations may return in the next one, these numbers never do.
    slabs: BTreeMap<u64, Slab>,
    lives: u64,
    /// The slabs that give access, by place.
    open: BTreeMap<Place, u64>,
    /// The highest registration taken from each place; none up to it is given again. At most one
    /// entry a place: 64 segments of 16,384 slabs.
    taken: BTreeMap<Place, Registration>,
    /// What was erased in slabs that are still being made: the highest version, for each place.
    early: BTreeMap<Place, (SlabRef, Version)>,
    holds: Holds,
    views: ViewBytes,
    gone: BTreeSet<TenantId>,
    events: EventQueue,
    counters: Counters,
    budget: RecordBudget,
}

impl Segments {
    /// An agent's process without slabs. `highest_epoch` comes from its state folder.
    #[must_use]
    pub fn new(incarnation: Incarnation, highest_epoch: Epoch) -> Self {
        Self {
            incarnation,
            agent: None,
            segments: Vec::new(),
            keys: KeyRing::default(),
            verifier: None,
            gate: EpochGate::new(highest_epoch),
            slabs: BTreeMap::new(),
            lives: 0,
            open: BTreeMap::new(),
            taken: BTreeMap::new(),
            early: BTreeMap::new(),
            holds: Holds::default(),
            views: ViewBytes::default(),
            gone: BTreeSet::new(),
            events: EventQueue::default(),
            counters: Counters::default(),
            budget: RecordBudget::default(),
        }
    }

    /// Refuses writes that would need more than `most` records, two erasure marks counting as one.
    /// No limit before.
    pub fn limit_records(&mut self, most: u64) {
        self.budget = RecordBudget::new(most, self.described());
    }

    /// Records of all slabs, and half of the marks: a mark takes less than half of the memory.
    fn described(&self) -> u64 {
        let tables = self.slabs.values().filter_map(|slab| slab.table.as_ref());
        tables
            .map(|table| (table.records() + table.marks() / 2) as u64)
            .sum()
    }

    /// Takes what the master gave at mount. Call [`Self::see_epoch`] with the epoch of that
    /// answer first. Slabs of segments that are not mounted any more are dropped.
    pub fn mounted(
        &mut self,
        agent: AgentId,
        segments: Vec<SegmentId>,
        key: AgentKey,
        verifier: SessionVerifier,
    ) {
        let stays = |slab: &Slab| {
            slab.reference.agent == agent && segments.contains(&slab.reference.segment)
        };
        let lost: Vec<u64> = self
            .open
            .values()
            .copied()
            .filter(|life| self.slabs.get(life).is_some_and(|slab| !stays(slab)))
            .collect();
        for life in lost {
            self.close_slab(life, false);
        }
        self.taken
            .retain(|(segment, _), _| segments.contains(segment));
        self.early
            .retain(|(segment, _), _| segments.contains(segment));
        self.agent = Some(agent);
        self.segments = segments;
        self.keys.push(key);
        self.verifier = Some(verifier);
    }

    /// Hears from a master: its epoch and the pool's time. True: the epoch rose; persist it
    /// before acting on what came with it. Writes of older epochs are cut by that: they cannot
    /// finish any more. A new generation also drops all slabs, which belong to a former life of
    /// the log, and all events about them.
    ///
    /// # Errors
    /// [`StaleEpoch`]: it was said by somebody who commands no more; ignore it all.
    pub fn see_epoch(
        &mut self,
        epoch: Epoch,
        pool_time: PoolTime,
        now: LocalMs,
    ) -> Result<bool, StaleEpoch> {
        let before = self.gate.highest();
        let rose = self.gate.see(epoch, pool_time, now)?;
        if epoch.generation > before.generation {
            for life in std::mem::take(&mut self.open).into_values() {
                self.close_slab(life, false);
            }
            for slab in self.slabs.values_mut() {
                slab.forget_waiters();
            }
            self.events = EventQueue::default();
            self.forget_commands();
        }
        Ok(rose)
    }

    /// The same from a master that makes the pool again from what agents hold: slabs stay in a
    /// new generation too, with all that is in them, those that were taken and are held go on
    /// leaving, and [`Self::inventory_page`] says what there is.
    ///
    /// # Errors
    /// As [`Self::see_epoch`].
    pub fn see_epoch_keeping(
        &mut self,
        epoch: Epoch,
        pool_time: PoolTime,
        now: LocalMs,
    ) -> Result<bool, StaleEpoch> {
        let before = self.gate.highest();
        let rose = self.gate.see(epoch, pool_time, now)?;
        if epoch.generation > before.generation {
            self.forget_commands();
        }
        Ok(rose)
    }

    /// Forgets what masters of a former generation ordered about places and tenants: the one of
    /// this generation may not know of it, and gives registrations that were given before.
    fn forget_commands(&mut self) {
        self.taken.clear();
        self.early.clear();
        self.gone.clear();
    }

    /// The highest epoch seen.
    #[must_use]
    pub const fn highest_epoch(&self) -> Epoch {
        self.gate.highest()
    }

    /// The pool's time: what was heard last and what has passed since. 0 before anything was
    /// heard.
    #[must_use]
    pub fn pool_time(&self, now: LocalMs) -> PoolTime {
        self.gate.pool_time(now).unwrap_or_default()
    }

    /// Checks a client's session token.
    ///
    /// # Errors
    /// [`TokenError::Forged`], also before the mount, and [`TokenError::Expired`], also for a
    /// tenant that is gone and for a token of a former generation.
    pub fn verify_session(
        &self,
        token: &SessionToken,
        now: LocalMs,
    ) -> Result<SessionClaims, TokenError> {
        let verifier = self.verifier.as_ref().ok_or(TokenError::Forged)?;
        // Its deadline is judged below: whose time that is, only the token says.
        let claims = verifier.verify(token, PoolTime::default())?;
        let time = self.gate.time_in(claims.epoch, now);
        let late = time.is_none_or(|time| time > claims.deadline);
        let former = claims.epoch.generation < self.gate.highest().generation;
        let gone = claims
            .principal
            .tenant()
            .is_some_and(|tenant| self.is_gone(tenant));
        if former || gone || late {
            return Err(TokenError::Expired);
        }
        Ok(claims)
    }

    /// Whether this tenant was deleted: its connections are to be closed.
    #[must_use]
    pub fn is_gone(&self, tenant: &TenantId) -> bool {
        self.gone.contains(tenant)
    }

    /// What happened since the last call, for the master. Each thing stands there once.
    pub fn take_events(&mut self) -> Vec<larder_wire::agent::Event> {
        self.events.take()
    }
}
