//! Granting a put: room for each replica on the agents that suit it best, or what is done for it.

use std::collections::BTreeMap;

use larder_types::{AgentId, Extent, PoolTime, Reason, layout};

use super::put::Ask;
use super::relief::Lack;
use super::{Outcome, refuse};
use crate::leader::Leader;
use crate::overlay::Pending;
use crate::place::stripe::Stripes;
use crate::place::{Candidate, Need, Room, Site, Wish, choose};
use crate::reply::{Decision, Reply, WaitOn};
use crate::segment::slab_key;
use crate::state::State;

/// How many agents are tried in turn for a replica in several pieces: each takes up to 0.1 ms.
const MAX_TRIES: usize = 16;

/// What agents have for a replica in several pieces, as far as that was looked for.
#[derive(Debug, Default)]
struct Tried {
    plans: BTreeMap<AgentId, Stripes>,
    /// What those lack that have too little, in bytes.
    shorts: BTreeMap<AgentId, u64>,
}

impl Tried {
    /// How many were searched.
    fn count(&self) -> usize {
        self.plans.len() + self.shorts.len()
    }

    /// Whether no more are tried.
    fn is_over(&self) -> bool {
        self.count() >= MAX_TRIES
    }

    fn has(&self, agent: AgentId) -> bool {
        self.plans.contains_key(&agent)
    }

    /// What an agent has, found if nobody has looked; `None` if it is not enough, or too many were
    /// tried.
    fn of(&mut self, agent: AgentId, find: impl FnOnce() -> Stripes) -> Option<Stripes> {
        if let Some(plan) = self.plans.get(&agent) {
            return Some(plan.clone());
        }
        if self.is_over() || self.shorts.contains_key(&agent) {
            return None;
        }
        match find() {
            Stripes::Short { lacking_bytes } => {
                self.shorts.insert(agent, lacking_bytes);
                None
            }
            plan => {
                self.plans.insert(agent, plan.clone());
                Some(plan)
            }
        }
    }
}

impl Leader {
    /// Grants a put on the agents that suit it best. `bytes` is what its tenant holds with it.
    pub(super) fn grant_best(
        &mut self,
        state: &State,
        ask: &Ask<'_>,
        bytes: u64,
        now: PoolTime,
        random: &mut dyn FnMut() -> u64,
    ) -> Outcome {
        let mut tried = Tried::default();
        let wish = self.wish_of(state, ask.wanted(), random);
        if let Some((mut candidates, chosen)) =
            self.sample(state, (ask.tenant, bytes), ask.need, &wish)
            && (!ask.strict || chosen >= ask.replicas())
            && let Some(plans) = self.plans(state, ask, (&mut candidates, chosen), &mut tried)
        {
            self.effects.agents_searched += tried.count();
            return self.grant(state, ask, plans, now);
        }
        let (mut candidates, slab_bytes) = self.candidates(state, ask)?;
        // Less than a slab per agent makes a small tenant.
        let wish = Wish {
            compact: bytes < slab_bytes.saturating_mul(candidates.len() as u64),
            ..wish
        };
        // Each round but the last finds at least one agent that has too little.
        let (chosen, plans) = loop {
            let chosen = choose(&mut candidates, &wish);
            if let Some(plans) = self.plans(state, ask, (&mut candidates, chosen), &mut tried) {
                break (chosen, plans);
            }
        };
        self.effects.agents_searched += tried.count();
        // Fewer replicas now are better than none for a put that may have fewer: what is missing
        // is made later.
        if !plans.is_empty() && (!ask.strict || plans.len() >= ask.replicas()) {
            return self.grant(state, ask, plans, now);
        }
        // Room on a host that is taken would not help.
        let (chosen, others) = candidates.split_at(chosen);
        let taken: Vec<Site<'_>> = chosen.iter().map(|c| c.site).collect();
        let others = others.iter().filter(|c| !c.site.is_host_taken(&taken));
        let others: Vec<Candidate<'_>> = others.copied().collect();
        let slabs = 1 + plans.iter().map(Stripes::gives).sum::<u64>();
        if ask.need.bytes <= slab_bytes {
            let lack = Lack {
                need: ask.need,
                asked_bytes: ask.need.bytes,
                slabs,
            };
            return self.relieve(state, ask.tenant, lack, &others, now);
        }
        let count = ask.replicas().saturating_sub(plans.len());
        let (lack, nearest) = self.nearest(state, ask, (&others, &tried.shorts), count);
        let lack = Lack { slabs, ..lack };
        self.relieve(state, ask.tenant, lack, &nearest, now)
    }

    /// Reserves the extents, or has slabs given and waits for them.
    fn grant(
        &mut self,
        state: &State,
        ask: &Ask<'_>,
        plans: Vec<Stripes>,
        now: PoolTime,
    ) -> Outcome {
        let mut replicas = Vec::with_capacity(plans.len());
        let mut ops = Vec::new();
        let mut on = None;
        for plan in plans {
            match plan {
                Stripes::Ready(extents) => replicas.push(extents),
                Stripes::Coming { give, on: slab } => {
                    for slab in give {
                        ops.extend(self.give(state, slab, ask.tenant));
                    }
                    on = on.or(Some(slab));
                }
                Stripes::Short { .. } => {}
            }
        }
        if let Some((segment, index)) = on {
            return Ok(Decision::Wait {
                ops,
                on: WaitOn::Slab(segment, index),
                for_space: false,
            });
        }
        self.reserve(state, ask, replicas, now)
    }

    /// What the chosen agents, which stand first, have for a replica each. `None` if one turned out
    /// to have too little: it is marked so, and others are to be chosen.
    fn plans(
        &self,
        state: &State,
        ask: &Ask<'_>,
        (candidates, chosen): (&mut [Candidate<'_>], usize),
        tried: &mut Tried,
    ) -> Option<Vec<Stripes>> {
        let (mut plans, mut is_short) = (Vec::with_capacity(chosen), false);
        // All are given at once, so they are judged together.
        let may_give = |slabs| self.may_take_slabs(state, ask.tenant, slabs);
        let mut given = 0;
        for at in 0..chosen.min(candidates.len()) {
            let Some(candidate) = candidates.get_mut(at) else {
                break;
            };
            let plan = match candidate.room {
                None => continue,
                Some(Room::Ready(extent)) => Stripes::Ready(vec![extent]),
                Some(Room::Coming(on)) => Stripes::Coming {
                    give: Vec::new(),
                    on,
                },
                Some(Room::Free(on)) => Stripes::Coming { give: vec![on], on },
                Some(Room::Pieces) => {
                    let find = || {
                        let load = ask.load(candidate.agent);
                        self.stripes(state, load, &|_| true, &|slabs| may_give(given + slabs))
                    };
                    match tried.of(candidate.agent, find) {
                        Some(plan) => plan,
                        None => {
                            candidate.room = None;
                            is_short = true;
                            continue;
                        }
                    }
                }
            };
            let with_it = given + plan.gives();
            if with_it > given && !may_give(with_it) {
                candidate.room = None;
                is_short = true;
                // Nor may any other take one more.
                let others = candidates.iter_mut().skip(at);
                let others = others.filter(|c| matches!(c.room, Some(Room::Free(_))));
                others.for_each(|candidate| candidate.room = None);
                continue;
            }
            given = with_it;
            plans.push(plan);
        }
        if is_short && tried.is_over() {
            let cut = candidates.iter_mut();
            let cut = cut.filter(|c| c.room == Some(Room::Pieces) && !tried.has(c.agent));
            cut.for_each(|candidate| candidate.room = None);
        }
        (!is_short).then_some(plans)
    }

    /// The agents that come nearest to holding an object that is larger than a slab, and the piece
    /// that there has to be room for next: room is made for one at a time.
    fn nearest<'a>(
        &self,
        state: &State,
        ask: &Ask<'_>,
        (ranked, shorts): (&[Candidate<'a>], &BTreeMap<AgentId, u64>),
        count: usize,
    ) -> (Lack, Vec<Candidate<'a>>) {
        let lacks = |candidate: &Candidate<'_>| {
            let guess = ask.need.bytes.saturating_sub(candidate.free_bytes());
            let known = shorts.get(&candidate.agent).copied();
            known.unwrap_or(guess).max(layout::BLOCK_BYTES)
        };
        let without = ranked.iter().filter(|candidate| candidate.room.is_none());
        let mut nearest: Vec<Candidate<'a>> = without.copied().collect();
        nearest.sort_by_key(lacks);
        nearest.truncate(count.max(1));
        let piece = |candidate: &Candidate<'_>| {
            let agent = state.agent(candidate.agent);
            let longest = agent.map_or(0, |agent| self.longest_piece_bytes(state, agent));
            lacks(candidate).min(longest)
        };
        let piece_bytes = nearest.iter().map(piece).min().unwrap_or(0);
        let lack = Lack {
            need: Need::of(piece_bytes).unwrap_or(ask.need),
            asked_bytes: ask.need.bytes,
            slabs: 1,
        };
        (lack, nearest)
    }

    /// Gives a put its version and its extents.
    fn reserve(
        &mut self,
        state: &State,
        ask: &Ask<'_>,
        replicas: Vec<Vec<Extent>>,
        now: PoolTime,
    ) -> Outcome {
        let Some(version) = self.next_version() else {
            return refuse(Reason::Internal, "all versions of this epoch are given");
        };
        let put = Pending {
            session: ask.session,
            version,
            size_bytes: ask.need.size_bytes,
            replicas: replicas.clone(),
            wanted: ask.wanted,
            attributes: ask.attributes.clone(),
            since: now,
            ending: false,
            pinned_bytes: ask.pinned_bytes,
        };
        if let Err(error) = self.overlay.start(state, ask.tenant, ask.key, put) {
            return refuse(Reason::Internal, error.to_string());
        }
        let mut last = None;
        for extent in replicas.iter().flatten() {
            let slab = slab_key(extent.slab);
            if last != Some(slab) {
                self.soft.empty.remove(&slab);
                self.holes_changed(state, slab);
            }
            last = Some(slab);
        }
        let deadline = now.plus_ms(self.settings.put_discard_ms);
        let preference_ignored = ask.is_preference_ignored(&replicas);
        Ok(self.answer(Reply::PutGranted {
            version,
            replicas,
            deadline,
            wanted: ask.wanted,
            preference_ignored,
            attributes: ask.attributes.clone(),
        }))
    }
}
