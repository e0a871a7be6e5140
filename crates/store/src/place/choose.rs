//! The choice among candidates: a function of what was surveyed and of the lots.
//!
//! Replicas of an object never share a host; after that those agents are best that were preferred,
//! that hold a small tenant already and have room below their high watermark, that share least with
//! the other replicas, that are not
//! overloaded, and that take the replica in one piece. Among equals two are drawn, each in
//! proportion to its weight, and the one of which the larger part is free gets the replica ("power
//! of two choices": Mitzenmacher 2001). An agent is one of two draws with at most twice its part
//! of the weights, so a new, empty one gets at most twice its fair share of new objects, where
//! "the freest" would get all of them. Draws are with replacement: without it, of two agents the
//! freer one would get everything.

use std::cmp::Reverse;

use larder_types::{AgentId, Label};

use super::{Candidate, Room};
use crate::state::Agent;

/// Where an agent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Site<'a> {
    pub(crate) zone: Option<&'a str>,
    pub(crate) rack: Option<&'a str>,
    pub(crate) host: &'a str,
    pub(crate) numa: Option<u16>,
    pub(crate) agent: AgentId,
}

/// What two sites have in common, from the best for replicas of one object to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shared {
    Nothing,
    /// The zone, or nothing is known of either.
    Zone,
    Rack,
    Host,
}

impl<'a> Site<'a> {
    pub(crate) fn of(id: AgentId, agent: &'a Agent) -> Self {
        let label = |set: &'a Option<Label>, said: &'a Option<Label>| {
            set.as_ref().or(said.as_ref()).map(Label::as_str)
        };
        Self {
            zone: label(&agent.set.zone, &agent.said.zone),
            rack: label(&agent.set.rack, &agent.said.rack),
            host: agent.host(),
            numa: agent.set.numa.or(agent.said.numa),
            agent: id,
        }
    }

    fn shares(&self, other: &Site<'_>) -> Shared {
        if self.host == other.host {
            Shared::Host
        } else if self.zone != other.zone {
            Shared::Nothing
        } else if self.rack.is_some() && self.rack == other.rack {
            Shared::Rack
        } else {
            Shared::Zone
        }
    }

    /// Whether one of these is on its host.
    pub(crate) fn is_host_taken(&self, others: &[Site<'_>]) -> bool {
        self.shares_most(others) == Shared::Host
    }

    /// The most that it shares with any of these.
    pub(super) fn shares_most(&self, others: &[Site<'_>]) -> Shared {
        let shared = others.iter().map(|other| self.shares(other));
        shared.max().unwrap_or(Shared::Nothing)
    }
}

/// How many hosts these sites are on.
pub(crate) fn hosts<'a>(sites: impl Iterator<Item = Site<'a>>) -> usize {
    let hosts: std::collections::BTreeSet<&str> = sites.map(|site| site.host).collect();
    hosts.len()
}

/// What is asked of a choice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'a> {
    /// How many replicas.
    pub(crate) count: usize,
    /// Best first.
    pub(crate) preferred: &'a [AgentId],
    /// Where the first of them is that is known: on its host, agents of its NUMA node are next.
    pub(crate) near: Option<Site<'a>>,
    /// The tenant holds less than a slab per agent: it stays where it has slabs, or it would take
    /// one on every agent for a few bytes.
    pub(crate) compact: bool,
    /// Where the object has replicas that stay.
    pub(crate) taken: &'a [Site<'a>],
    /// What the lots follow from.
    pub(crate) seed: u64,
}

/// The lots of one choice: SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub(super) struct Lots(u64);

impl Lots {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    pub(super) const fn below(&mut self, end: u64) -> u64 {
        ((self.next() as u128 * end as u128) >> 64) as u64
    }
}

/// What comes before free space, the best first. `None` where it cannot be chosen.
type Class = (usize, u8, u8, Shared, bool, bool);

impl Candidate<'_> {
    /// The part of it that is free for the tenant, per mille.
    pub(super) fn free_permille(&self) -> u64 {
        let free = u128::from(self.free_bytes());
        let permille = free * 1_000 / u128::from(self.capacity_bytes.max(1));
        u64::try_from(permille).unwrap_or(u64::MAX)
    }

    fn class(&self, wish: &Wish<'_>, taken: &[Site<'_>]) -> Option<Class> {
        let room = self.room?;
        let shared = self.site.shares_most(taken);
        if shared == Shared::Host {
            return None;
        }
        let mut preferred = wish.preferred.iter();
        let position = preferred
            .position(|agent| *agent == self.agent)
            .unwrap_or(usize::MAX);
        let distance = match wish.near {
            Some(near) if near.host == self.site.host => u8::from(near.numa != self.site.numa),
            _ => 2,
        };
        let home = match room {
            _ if !wish.compact => 0,
            Room::Ready(_) if !self.crowded => 0,
            Room::Coming(_) => 1,
            Room::Free(_) => 2,
            Room::Ready(_) => 3,
            Room::Pieces => 4,
        };
        let is_cut = room == Room::Pieces;
        Some((position, distance, home, shared, self.overloaded, is_cut))
    }

    /// Of two that were drawn the lesser gets the replica.
    pub(super) fn fullness(&self) -> (Reverse<u64>, u64) {
        (Reverse(self.free_permille()), self.in_flight_bytes)
    }
}

/// Puts those first that get a replica each, in the order of choice, and says how many they are:
/// `count` whenever that many hosts have room.
pub(crate) fn choose(candidates: &mut [Candidate<'_>], wish: &Wish<'_>) -> usize {
    let mut lots = Lots::new(wish.seed);
    let mut taken: Vec<Site<'_>> = wish.taken.to_vec();
    for first in 0..wish.count.min(candidates.len()) {
        let Some(rest) = candidates.get_mut(first..) else {
            return first;
        };
        let Some(best) = best(rest, wish, &taken, &mut lots) else {
            return first;
        };
        if let Some(chosen) = rest.get(best).filter(|_| first + 1 < wish.count) {
            taken.push(chosen.site);
        }
        rest.swap(0, best);
    }
    wish.count.min(candidates.len())
}

/// Which of these gets the next replica.
fn best(
    rest: &[Candidate<'_>],
    wish: &Wish<'_>,
    taken: &[Site<'_>],
    lots: &mut Lots,
) -> Option<usize> {
    let (mut best, mut equals) = (None, Vec::new());
    for (at, candidate) in rest.iter().enumerate() {
        let Some(class) = candidate.class(wish, taken) else {
            continue;
        };
        if best.is_none_or(|best| class < best) {
            best = Some(class);
            equals.clear();
        }
        if best == Some(class) {
            equals.push((at, candidate));
        }
    }
    if let [(only, _)] = equals[..] {
        return Some(only);
    }
    let sum = equals
        .iter()
        .fold(0u64, |sum, (_, c): &(usize, &Candidate<'_>)| {
            sum.saturating_add(c.weight)
        });
    let mut draw = || {
        let mut lot = lots.below(sum);
        let drawn = equals.iter().find(|(_, candidate)| {
            let here = lot < candidate.weight;
            lot = lot.saturating_sub(candidate.weight);
            here
        });
        // Where nobody has weight, the first.
        drawn.or(equals.first())
    };
    let (one, other) = (draw()?, draw()?);
    let chosen = if other.1.fullness() < one.1.fullness() {
        other
    } else {
        one
    };
    Some(chosen.0)
}

#[cfg(test)]
mod tests;
