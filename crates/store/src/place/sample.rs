//! Candidates for one object in a large pool: a few that are drawn, not all.
//!
//! A sample that does not do is no refusal: all agents are surveyed then.

use std::collections::BTreeSet;

use larder_types::{AgentId, Key, TenantId};

use super::choose::{Lots, Shared, Site, Wish, choose};
use super::roster::Level;
use super::{Candidate, Need};
use crate::digest;
use crate::leader::Leader;
use crate::state::State;

/// In a pool of at most so many agents all are surveyed.
const SURVEYED_MAX: usize = 4;
/// Draws per replica, in the first round and in the second. Two of those with room are compared,
/// so four are enough while half of the pool has room.
const DRAWS: [usize; 2] = [4, 12];
/// Draws from other zones or racks, when all that were drawn are in the same.
const DRAWS_OUTSIDE: usize = 4;
/// Draws for a copy.
const DRAWS_FOR_COPY: usize = 8;
/// The most agents that are tried for a copy.
const TARGETS_MAX: usize = 16;
/// The most agents on which a small tenant has slabs that are looked at, and surveyed per replica.
const HOMES_SEEN: usize = 64;
const HOMES: usize = 4;
/// How far a look goes for other agents of a preferred one's host.
const BESIDE: usize = 4;

/// Who puts what where: as much as a choice needs to know of a put.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) tenant: &'a TenantId,
    pub(crate) key: &'a Key,
    pub(crate) replicas: usize,
    pub(crate) preferred: &'a [AgentId],
}

/// Who was drawn, and how often.
#[derive(Debug, Default)]
struct Picks(Vec<(AgentId, u64)>);

impl Picks {
    fn add(&mut self, agent: AgentId, weight: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == agent) {
            Some((_, known)) => *known += weight,
            None => self.0.push((agent, weight)),
        }
    }
}

impl Leader {
    /// What is asked of the choice for a put. The lots follow from the key, so that a put which
    /// waited for a slab finds the same agents again and does not ask another one for a slab.
    pub(crate) fn wish_of<'a>(
        &mut self,
        state: &'a State,
        wanted: Wanted<'a>,
        random: &mut dyn FnMut() -> u64,
    ) -> Wish<'a> {
        let Wanted {
            tenant,
            key,
            replicas,
            preferred,
        } = wanted;
        let site = |id: &AgentId| state.agent(*id).map(|agent| Site::of(*id, agent));
        Wish {
            count: replicas,
            preferred,
            near: preferred.iter().find_map(site),
            compact: false,
            taken: &[],
            seed: digest::lot_of(self.roster.salt(random), tenant, key.as_bytes()),
        }
    }

    /// Candidates for a put of a tenant that holds `bytes` with it, those that get a replica
    /// first, and how many they are. `None` if only a survey of all can tell.
    pub(crate) fn sample<'a>(
        &mut self,
        state: &'a State,
        (tenant, bytes): (&TenantId, u64),
        need: Need,
        wish: &Wish<'a>,
    ) -> Option<(Vec<Candidate<'a>>, usize)> {
        self.roster.refresh(state);
        let agents = self.roster.len();
        if agents <= SURVEYED_MAX {
            return None;
        }
        let slabs_bytes = self.roster.largest_slab_bytes();
        let wish = Wish {
            compact: bytes < slabs_bytes.saturating_mul(agents as u64),
            ..*wish
        };
        let mut lots = Lots::new(!wish.seed);
        let mut picks = Picks::default();
        wish.preferred.iter().for_each(|agent| picks.add(*agent, 0));
        if let Some(near) = wish.near {
            let beside = self.roster.beside(near.agent, BESIDE);
            beside.for_each(|agent| picks.add(agent, 0));
        }
        if wish.compact || !self.may_take(state, tenant) {
            let from = self.roster.draw(&mut lots)?;
            let homes = self.space.homes_from(tenant, from).take(HOMES_SEEN);
            let fitting = homes.filter(|agent| {
                let owned = self.space.owned(*agent, tenant);
                owned.is_some_and(|owned| {
                    owned.largest_hole_bytes() >= need.bytes || owned.coming().next().is_some()
                })
            });
            // As likely as any other.
            fitting
                .take(HOMES * wish.count)
                .for_each(|agent| picks.add(agent, 1));
        }
        let enough = wish.count.min(self.roster.hosts());
        let mut candidates = Vec::new();
        // One replica of a small tenant goes where it has room already: nobody who is drawn could
        // be better. Several are spread among more.
        if wish.compact && wish.count == 1 && !picks.0.is_empty() {
            self.survey_picks(state, tenant, need, &mut picks, &mut candidates);
            let chosen = choose(&mut candidates, &wish);
            let best = candidates.first().filter(|_| chosen == 1);
            if best.is_some_and(Candidate::is_at_home) {
                return Some((candidates, chosen));
            }
        }
        let mut chosen = 0;
        for draws in DRAWS {
            for _ in 0..draws * wish.count {
                picks.add(self.roster.draw(&mut lots)?, 1);
            }
            self.survey_picks(state, tenant, need, &mut picks, &mut candidates);
            self.spread(state, (tenant, need), &wish, &mut lots, &mut candidates);
            chosen = choose(&mut candidates, &wish);
            // Somebody else may have a slab for a small tenant whose own are full.
            let crowded = |c: &Candidate<'_>| wish.compact && c.crowded;
            if chosen >= enough && !candidates.iter().take(chosen).any(crowded) {
                break;
            }
        }
        (chosen >= enough).then_some((candidates, chosen))
    }

    /// Surveys who was picked and is not among the candidates yet.
    fn survey_picks<'a>(
        &self,
        state: &'a State,
        tenant: &TenantId,
        need: Need,
        picks: &mut Picks,
        candidates: &mut Vec<Candidate<'a>>,
    ) {
        for (id, weight) in picks.0.drain(..) {
            if let Some(known) = candidates.iter_mut().find(|c| c.agent == id) {
                known.weight += weight;
                continue;
            }
            let agent = state.agent(id).filter(|_| self.takes_new(state, id));
            if let Some(agent) = agent {
                let mut candidate = self.survey(state, tenant, (id, agent), need);
                candidate.weight = weight;
                candidates.push(candidate);
            }
        }
    }

    /// Draws from other zones and racks until the replicas can be in as many of them as there are.
    fn spread<'a>(
        &self,
        state: &'a State,
        (tenant, need): (&TenantId, Need),
        wish: &Wish<'_>,
        lots: &mut Lots,
        candidates: &mut Vec<Candidate<'a>>,
    ) {
        let all = wish.count + wish.taken.len();
        for level in [Level::Zone, Level::Rack] {
            let most = all.min(self.roster.count(level));
            for _ in 1..most {
                let mut covered: BTreeSet<usize> = BTreeSet::new();
                let with_room = candidates.iter().filter(|c| c.room.is_some());
                let taken = wish.taken.iter().map(|site| site.agent);
                let agents = with_room.map(|c| c.agent).chain(taken);
                covered.extend(agents.filter_map(|agent| self.roster.group_of(level, agent)));
                if covered.len() >= most {
                    break;
                }
                let mut picks = Picks::default();
                for _ in 0..DRAWS_OUTSIDE {
                    if let Some(agent) = self.roster.draw_outside(level, &covered, lots) {
                        picks.add(agent, 1);
                    }
                }
                self.survey_picks(state, tenant, need, &mut picks, candidates);
            }
            if most == all {
                break;
            }
        }
    }

    /// Agents that may take a copy of an object, the best first, chosen as for a put: none of
    /// `holders`, which have a replica, and none of a host on which one stays. If nobody has room,
    /// somebody who lacks nothing else. Says too how many were looked at.
    pub(crate) fn copy_targets(
        &mut self,
        state: &State,
        (tenant, lot): (&TenantId, &[u8]),
        need: Need,
        (holders, stay): (&[AgentId], &[Site<'_>]),
        fits: impl Fn(&Self, AgentId) -> bool,
    ) -> (Vec<AgentId>, usize) {
        self.roster.refresh(state);
        let wish = Wish {
            count: 1,
            preferred: &[],
            near: None,
            compact: false,
            taken: stay,
            seed: digest::lot_of(self.roster.salt_if_any(), tenant, lot),
        };
        let mut lots = Lots::new(!wish.seed);
        let mut picks = Picks::default();
        let is_small = self.roster.len() <= SURVEYED_MAX;
        if is_small {
            let all = self.roster.all_from(&mut lots);
            all.for_each(|agent| picks.add(agent, 1));
        } else {
            for _ in 0..DRAWS_FOR_COPY {
                if let Some(agent) = self.roster.draw(&mut lots) {
                    picks.add(agent, 1);
                }
            }
        }
        picks.0.retain(|(agent, _)| !holders.contains(agent));
        let mut candidates = Vec::new();
        self.survey_picks(state, tenant, need, &mut picks, &mut candidates);
        if is_small {
            let weigh = |c: &mut Candidate<'_>| c.weight = c.capacity_bytes;
            candidates.iter_mut().for_each(weigh);
        } else {
            self.spread(state, (tenant, need), &wish, &mut lots, &mut candidates);
        }
        let looks = candidates.len();
        candidates.retain(|c| !holders.contains(&c.agent) && !c.site.is_host_taken(stay));
        let shared = |c: &Candidate<'_>| c.site.shares_most(stay);
        let first = choose(&mut candidates, &wish);
        if let Some(others) = candidates.get_mut(first..) {
            others.sort_by_key(|c| (c.room.is_none(), shared(c), c.overloaded, c.fullness()));
        }
        let targets: Vec<AgentId> = candidates.iter().map(|c| c.agent).collect();
        if is_small || targets.iter().any(|agent| fits(self, *agent)) {
            return (targets, looks);
        }
        let mut others: Vec<(bool, Shared, AgentId)> = self
            .roster
            .all_from(&mut lots)
            .filter(|id| self.takes_new(state, *id) && !holders.contains(id))
            .filter_map(|id| Some((Site::of(id, state.agent(id)?).shares_most(stay), id)))
            .filter(|(shared, _)| *shared < Shared::Host)
            .map(|(shared, id)| (!fits(self, id), shared, id))
            .collect();
        others.sort_by_key(|(full, shared, _)| (*full, *shared));
        let targets = others.into_iter().take(TARGETS_MAX).map(|(_, _, id)| id);
        (targets.collect(), self.roster.len())
    }

    /// Where these agents are.
    pub(crate) fn sites<'a>(
        state: &'a State,
        agents: impl Iterator<Item = AgentId>,
    ) -> Vec<Site<'a>> {
        let mut sites: Vec<Site<'a>> = agents
            .filter_map(|id| Some(Site::of(id, state.agent(id)?)))
            .collect();
        sites.dedup();
        sites
    }

    /// Whether an agent is on the host of one of these.
    pub(crate) fn is_host_taken(
        state: &State,
        target: AgentId,
        others: impl Iterator<Item = AgentId>,
    ) -> bool {
        let agent = state.agent(target);
        let site = agent.map(|agent| Site::of(target, agent));
        let others = Self::sites(state, others.filter(|id| *id != target));
        site.is_some_and(|site| site.is_host_taken(&others))
    }
}
