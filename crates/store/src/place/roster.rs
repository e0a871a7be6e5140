//! The roster: all agents with segments, so that candidates can be drawn without looking at each.
//!
//! It follows from the state and is made anew after something in it changed: sorting 4,096 agents
//! takes about a millisecond, and agents come and go a few times an hour.

use std::collections::{BTreeMap, BTreeSet};

use larder_types::AgentId;

use super::choose::{Lots, Site, hosts};
use crate::state::State;

/// A part of the pool in which replicas would be lost together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Zone,
    Rack,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    agent: AgentId,
    /// The weights of this and all before: an agent is drawn in proportion to its capacity.
    sum: u64,
}

/// A run of entries in one zone or rack.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    first: usize,
    /// The sum of weights before it, and with it.
    from: u64,
    to: u64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roster {
    /// By zone, rack and host, so that each of those is one run.
    entries: Vec<Entry>,
    places: BTreeMap<AgentId, usize>,
    zones: Vec<Group>,
    racks: Vec<Group>,
    hosts: usize,
    largest_slab_bytes: u64,
    /// Whether it is what the state says.
    current: bool,
    /// Keeps lots from being guessed; drawn once by each leader.
    salt: Option<u64>,
}

impl Roster {
    /// Something changed: it is made anew before the next look.
    pub(crate) const fn outdate(&mut self) {
        self.current = false;
    }

    /// Brings it up to date.
    pub(super) fn refresh(&mut self, state: &State) {
        if self.current {
            return;
        }
        let (salt, mut largest_slab_bytes) = (self.salt, 0);
        let mut found: Vec<(Site<'_>, u64)> = Vec::new();
        for (id, agent) in state.agents() {
            let mut capacity_bytes = 0u64;
            for segment in agent.segments.iter().filter_map(|id| state.segment(*id)) {
                capacity_bytes = capacity_bytes.saturating_add(segment.capacity_bytes());
                largest_slab_bytes = segment.slab_bytes.max(largest_slab_bytes);
            }
            if capacity_bytes > 0 {
                found.push((Site::of(id, agent), capacity_bytes));
            }
        }
        found.sort_unstable();
        let hosts = hosts(found.iter().map(|(site, _)| *site));
        *self = Self {
            hosts,
            largest_slab_bytes,
            current: true,
            salt,
            ..Self::default()
        };
        let (mut sum, mut last) = (0u64, None::<Site<'_>>);
        for (at, (site, weight)) in found.into_iter().enumerate() {
            let group = Group {
                first: at,
                from: sum,
                to: sum,
            };
            let new_zone = last.is_none_or(|last| last.zone != site.zone);
            if new_zone {
                self.zones.push(group);
            }
            if new_zone || last.is_none_or(|last| last.rack != site.rack) {
                self.racks.push(group);
            }
            // The capacity of a pool fits, so this does.
            sum = sum.saturating_add(weight);
            for groups in [&mut self.zones, &mut self.racks] {
                if let Some(group) = groups.last_mut() {
                    group.to = sum;
                }
            }
            self.places.insert(site.agent, at);
            let agent = site.agent;
            self.entries.push(Entry { agent, sum });
            last = Some(site);
        }
    }

    /// The salt of this leader's lots.
    pub(super) fn salt(&mut self, random: &mut dyn FnMut() -> u64) -> u64 {
        *self.salt.get_or_insert_with(random)
    }

    /// As [`Self::salt`], for who can draw none.
    pub(super) fn salt_if_any(&self) -> u64 {
        self.salt.unwrap_or(0)
    }

    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) const fn hosts(&self) -> usize {
        self.hosts
    }

    pub(super) const fn largest_slab_bytes(&self) -> u64 {
        self.largest_slab_bytes
    }

    /// Every agent, from a drawn one on and around.
    pub(super) fn all_from(&self, lots: &mut Lots) -> impl Iterator<Item = AgentId> + '_ {
        let count = self.entries.len();
        let start = usize::try_from(lots.below(count as u64)).unwrap_or(0);
        let (before, behind) = self.entries.split_at(start.min(count));
        behind.iter().chain(before).map(|entry| entry.agent)
    }

    /// An agent, drawn in proportion to its capacity.
    pub(super) fn draw(&self, lots: &mut Lots) -> Option<AgentId> {
        let lot = lots.below(self.entries.last()?.sum);
        self.at(lot)
    }

    fn at(&self, lot: u64) -> Option<AgentId> {
        let at = self.entries.partition_point(|entry| entry.sum <= lot);
        self.entries.get(at).map(|entry| entry.agent)
    }

    /// Agents beside one in the order of zone, rack and host: those of its host are among the
    /// first, unless it has more than that.
    pub(super) fn beside(
        &self,
        agent: AgentId,
        reach: usize,
    ) -> impl Iterator<Item = AgentId> + '_ {
        let at = self.places.get(&agent).copied();
        let around = at.map_or(0..0, |at| at.saturating_sub(reach)..at + reach + 1);
        let end = around.end.min(self.entries.len());
        let entries = self.entries.get(around.start..end).unwrap_or_default();
        entries.iter().map(|entry| entry.agent)
    }

    fn groups(&self, level: Level) -> &[Group] {
        match level {
            Level::Zone => &self.zones,
            Level::Rack => &self.racks,
        }
    }

    /// How many zones or racks there are.
    pub(super) fn count(&self, level: Level) -> usize {
        self.groups(level).len()
    }

    /// In which of them an agent is.
    pub(super) fn group_of(&self, level: Level, agent: AgentId) -> Option<usize> {
        let at = *self.places.get(&agent)?;
        let groups = self.groups(level);
        groups
            .partition_point(|group| group.first <= at)
            .checked_sub(1)
    }

    /// As [`Self::draw`], from none of these zones or racks.
    pub(super) fn draw_outside(
        &self,
        level: Level,
        without: &BTreeSet<usize>,
        lots: &mut Lots,
    ) -> Option<AgentId> {
        let groups = || {
            let all = self.groups(level).iter().enumerate();
            all.filter(|(at, _)| !without.contains(at))
        };
        let sum = groups().map(|(_, group)| group.to - group.from).sum();
        let mut lot = lots.below(sum);
        for (_, group) in groups() {
            let weight = group.to - group.from;
            if lot < weight {
                return self.at(group.from + lot);
            }
            lot -= weight;
        }
        None
    }
}

#[cfg(test)]
mod tests;
