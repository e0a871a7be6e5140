//! Granting a put: room for each replica on the agents that suit it best, or what is done for it.

use std::collections::BTreeMap;

use larder_types::{AgentId, Extent, PoolTime, Reason, layout};

use super::put::Ask;
use super::relief::Lack;
use super::{Outcome, refuse};
use crate::leader::Leader;
use crate::overlay::Pending;
use crate::place::stripe::Stripes;
use crate::place::{Candidate, Need, Room};
use crate::reply::{Decision, Reply, WaitOn};
use crate::segment::{SlabKey, slab_key};
use crate::state::State;

/// How many agents are tried in turn for a replica in several pieces: each takes up to 0.1 ms.
const MAX_TRIES: usize = 16;

impl Leader {
    /// Reserves the extents, or has slabs given and waits for them, or for other relief.
    pub(super) fn grant(
        &mut self,
        state: &State,
        ask: &Ask<'_>,
        (ranked, slab_bytes): (&mut [Candidate], u64),
        now: PoolTime,
    ) -> Outcome {
        let most = ask.replicas().min(ranked.len());
        let (plans, shorts) = self.plans(state, ask, ranked, most);
        // Fewer replicas now are better than none for a put that may have fewer: what is missing
        // is made later.
        if plans.is_empty() || (ask.strict && plans.len() < most) {
            if ask.need.bytes <= slab_bytes {
                return self.relieve(state, ask.tenant, ask.need.into(), ranked, now);
            }
            let count = most.saturating_sub(plans.len());
            let (lack, nearest) = self.nearest(state, ask, (ranked, &shorts), count);
            return self.relieve(state, ask.tenant, lack, &nearest, now);
        }
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

    /// What the best of these agents have for a replica each, of at most so many. Those that turn
    /// out to have too little are marked, and what they lack is returned.
    fn plans(
        &self,
        state: &State,
        ask: &Ask<'_>,
        ranked: &mut [Candidate],
        most: usize,
    ) -> (Vec<Stripes>, BTreeMap<AgentId, u64>) {
        let may_give = |slabs| self.may_take_slabs(state, ask.tenant, slabs);
        let (mut plans, mut shorts, mut tries) = (Vec::new(), BTreeMap::new(), 0);
        for candidate in ranked {
            if plans.len() == most {
                break;
            }
            let plan = match candidate.room {
                None => continue,
                Some(Room::Ready(extent)) => Stripes::Ready(vec![extent]),
                Some(Room::Coming(on)) => Stripes::Coming {
                    give: Vec::new(),
                    on,
                },
                Some(Room::Free(on)) => Stripes::Coming { give: vec![on], on },
                Some(Room::Pieces) if tries == MAX_TRIES => continue,
                Some(Room::Pieces) => {
                    tries += 1;
                    let load = ask.load(candidate.agent);
                    self.stripes(state, load, &|_| true, &may_give)
                }
            };
            match plan {
                Stripes::Short { lacking_bytes } => {
                    candidate.room = None;
                    shorts.insert(candidate.agent, lacking_bytes);
                }
                plan => plans.push(plan),
            }
        }
        (plans, shorts)
    }

    /// The agents that come nearest to holding an object that is larger than a slab, and the piece
    /// that there has to be room for next: room is made for one at a time.
    fn nearest(
        &self,
        state: &State,
        ask: &Ask<'_>,
        (ranked, shorts): (&[Candidate], &BTreeMap<AgentId, u64>),
        count: usize,
    ) -> (Lack, Vec<Candidate>) {
        let lacks = |candidate: &Candidate| {
            let guess = ask.need.bytes.saturating_sub(candidate.free_bytes());
            let known = shorts.get(&candidate.agent).copied();
            known.unwrap_or(guess).max(layout::BLOCK_BYTES)
        };
        let without = ranked.iter().filter(|candidate| candidate.room.is_none());
        let mut nearest: Vec<Candidate> = without.copied().collect();
        nearest.sort_by_key(lacks);
        nearest.truncate(count.max(1));
        let piece = |candidate: &Candidate| {
            let agent = state.agent(candidate.agent);
            let longest = agent.map_or(0, |agent| self.longest_piece_bytes(state, agent));
            lacks(candidate).min(longest)
        };
        let piece_bytes = nearest.iter().map(piece).min().unwrap_or(0);
        let lack = Lack {
            need: Need::of(piece_bytes).unwrap_or(ask.need),
            asked_bytes: ask.need.bytes,
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
        let slabs = replicas.iter().flatten();
        let mut slabs: Vec<SlabKey> = slabs.map(|extent| slab_key(extent.slab)).collect();
        slabs.sort_unstable();
        slabs.dedup();
        for slab in slabs {
            self.soft.empty.remove(&slab);
            self.holes_changed(state, slab);
        }
        let deadline = now.plus_ms(self.settings.put_discard_ms);
        let preference_ignored = ask.is_preference_ignored(&replicas);
        Ok(self.answer(Reply::PutGranted {
            version,
            replicas,
            deadline,
            wanted: ask.wanted,
            preference_ignored,
        }))
    }
}
