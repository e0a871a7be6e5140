//! Deciding the starts of puts.

use std::collections::BTreeMap;

use larder_types::{
    AgentId, Attributes, Extent, Key, Pin, PoolTime, Reason, SessionId, TenantId, layout,
};

use super::relief::Lack;
use super::{Outcome, Right, Stop, refuse};
use crate::effects::Discard;
use crate::leader::Leader;
use crate::objects::ObjectRef;
use crate::overlay::Pending;
use crate::place::stripe::{Load, Stripes, extents_max};
use crate::place::{Candidate, Need, Room, Wish, rank};
use crate::quota::{Charge, Exceeded};
use crate::reply::{Decision, Refusal, Reply, WaitOn};
use crate::request::{MAX_REPLICAS, PutMode, Request};
use crate::segment::{SlabKey, slab_key};
use crate::state::{Agent, State};

/// How many agents are tried in turn for a replica in several pieces: each takes up to 0.1 ms.
const MAX_TRIES: usize = 16;

/// What an accepted start asks for.
struct Ask<'a> {
    session: SessionId,
    tenant: &'a TenantId,
    key: &'a Key,
    wanted: u8,
    strict: bool,
    preferred: &'a [AgentId],
    need: Need,
    /// The most extents of a replica.
    extents_max: usize,
    attributes: Attributes,
    pinned_bytes: u64,
}

impl Ask<'_> {
    fn replicas(&self) -> usize {
        usize::from(self.wanted)
    }

    /// One of them on this agent.
    const fn load(&self, agent: AgentId) -> Load<'_> {
        Load {
            tenant: self.tenant,
            agent,
            size_bytes: self.need.size_bytes,
            extents_max: self.extents_max,
        }
    }

    /// Whether some preferred agent, of as many as there are replicas, got none.
    fn is_preference_ignored(&self, replicas: &[Vec<Extent>]) -> bool {
        let agents = |agent: &AgentId| {
            let mut extents = replicas.iter().flatten();
            extents.any(|extent| extent.slab.agent == *agent)
        };
        !self.preferred.iter().take(replicas.len()).all(agents)
    }
}

impl Leader {
    pub(super) fn put_start(
        &mut self,
        state: &State,
        request: &Request,
        now: PoolTime,
        random: &mut dyn FnMut() -> u64,
    ) -> Outcome {
        let Request::PutStart {
            session,
            tenant,
            key,
            size_bytes,
            replicas,
            preferred,
            mode,
            strict,
            extents_max: answer_max,
            attributes,
        } = request
        else {
            return refuse(Reason::Internal, "not a start of a put");
        };
        let held = self.tenant(state, tenant, Right::Write)?;
        self.check_counts(key, *size_bytes, *replicas)?;
        let attributes = Attributes {
            pin: self.pin(attributes.pin)?,
            ..attributes.clone()
        };
        self.untouched(state, tenant, key)?;
        let base = held.objects.get(key);
        if let Some(object) = base {
            self.may_replace(tenant, object, *mode, now)?;
        }
        self.take_over(tenant, key, now)?;
        self.room_for_a_put()?;
        let (need, asked) = needed(*size_bytes, *replicas)?;
        let pinned_bytes = match (attributes.pin, base.map(|object| object.attributes().pin)) {
            (Pin::Hard, _) | (Pin::None, Some(Pin::Hard)) => asked.bytes,
            _ => 0,
        };
        self.admit_pinned(state, (tenant, held), pinned_bytes)?;
        let ask = Ask {
            session: *session,
            tenant,
            key,
            wanted: *replicas,
            strict: *strict,
            preferred,
            need,
            extents_max: extents_max(key).min(usize::from(*answer_max)),
            attributes,
            pinned_bytes,
        };
        // An upsert is charged beside the object that it will replace until it ends.
        if let Err(Exceeded { refusal, evict }) = self.admit_put(state, tenant, asked) {
            // Nothing is evicted for a put that would be refused all the same.
            return match evict.filter(|_| self.candidates(state, &ask).is_ok()) {
                Some(over) => self.relieve_quota(state, tenant, over, refusal, now),
                None => Err(refusal.into()),
            };
        }
        let held_bytes = self.overlay.reserved(tenant).bytes;
        let held_bytes = held_bytes.saturating_add(held.used_bytes);
        self.grant_best(
            state,
            &ask,
            held_bytes.saturating_add(asked.bytes),
            now,
            random,
        )
    }

    /// Grants a put on the agents that suit it best. `bytes` is what its tenant holds with it.
    fn grant_best(
        &mut self,
        state: &State,
        ask: &Ask<'_>,
        bytes: u64,
        now: PoolTime,
        random: &mut dyn FnMut() -> u64,
    ) -> Outcome {
        let (mut candidates, slab_bytes) = self.candidates(state, ask)?;
        // Less than a slab per agent makes a small tenant.
        let wish = Wish {
            preferred: ask.preferred,
            compact: bytes < slab_bytes.saturating_mul(candidates.len() as u64),
        };
        rank(&mut candidates, ask.replicas(), wish, random);
        self.grant(state, ask, (&mut candidates, slab_bytes), now)
    }

    /// Whether a put may take the place of an object.
    fn may_replace(
        &mut self,
        tenant: &TenantId,
        object: ObjectRef<'_>,
        mode: PutMode,
        now: PoolTime,
    ) -> Result<(), Stop> {
        let PutMode::Upsert { if_unleased } = mode else {
            let version = object.version();
            return refuse(Reason::AlreadyExists, format!("version {version}"));
        };
        if if_unleased {
            self.unleased(tenant, object, now)?;
        }
        // Room for it is not made by what it replaces: that stays until its end.
        self.leases.spare(tenant, object.id());
        Ok(())
    }

    fn check_counts(&self, key: &Key, size_bytes: u64, replicas: u8) -> Result<(), Stop> {
        let most = self.settings.max_object_bytes;
        if size_bytes == 0 {
            return refuse(Reason::EmptyValue, format!("key {key}"));
        }
        if size_bytes > most {
            let detail = format!("asked {size_bytes}, an object has at most {most}");
            return refuse(Reason::TooLarge, detail);
        }
        if replicas == 0 || replicas > MAX_REPLICAS {
            return refuse(Reason::BadReplicaCount, format!("asked {replicas}"));
        }
        Ok(())
    }

    /// Back-pressure: the books of puts have an end.
    fn room_for_a_put(&self) -> Result<(), Stop> {
        let (pending, discarded) = (self.pending_puts(), self.discarded_puts());
        let most = self.settings.max_pending_puts;
        if pending.saturating_add(discarded) < most {
            return Ok(());
        }
        let detail = format!("{pending} pending and {discarded} discarded puts, at most {most}");
        refuse(Reason::Overloaded, detail)
    }

    /// A pending put of the same key keeps it until it is old; then it is given up.
    fn take_over(&mut self, tenant: &TenantId, key: &Key, now: PoolTime) -> Result<(), Stop> {
        let Some(put) = self.overlay.pending(tenant, key) else {
            return Ok(());
        };
        let (age_ms, discard_ms) = (now.since_ms(put.since), self.settings.put_discard_ms);
        if age_ms < discard_ms {
            let detail = format!("for {age_ms} ms, may be taken over after {discard_ms} ms");
            return refuse(Reason::BeingWritten, detail);
        }
        let version = put.version;
        self.overlay
            .discard(version, Discard::TakenOver, &mut self.effects);
        Ok(())
    }

    /// What every agent that answers and is large enough could offer, and the largest slab of them
    /// all, in bytes.
    fn candidates(&self, state: &State, ask: &Ask<'_>) -> Result<(Vec<Candidate>, u64), Stop> {
        let (asked, mut known, mut answer, mut slab_bytes) = (ask.replicas(), 0, 0, 0);
        let mut candidates = Vec::with_capacity(state.agents.len());
        for (id, agent) in state.agents() {
            let segments = self.segments_of(state, agent);
            let Some(largest) = segments.map(|segment| segment.slab_bytes).max() else {
                continue;
            };
            known += 1;
            if self.takes_new(state, id) {
                answer += 1;
                slab_bytes = largest.max(slab_bytes);
                if largest >= ask.need.bytes || self.may_stripe(state, agent, ask) {
                    candidates.push(self.survey(state, ask.tenant, (id, agent), ask.need));
                }
            }
        }
        if answer < asked && (ask.strict || answer == 0) {
            let detail = format!("asked {asked}, mounted {known}, of them answer {answer}");
            let few = known > 0 && known < asked;
            return refuse(
                if few {
                    Reason::TooFewAgents
                } else {
                    Reason::NoAgents
                },
                detail,
            );
        }
        if candidates.is_empty() || (ask.strict && candidates.len() < asked) {
            let Need { size_bytes, bytes } = ask.need;
            return refuse(
                Reason::TooLarge,
                format!(
                    "asked {size_bytes}, aligned {bytes}; a replica lies on one agent, in at most \
                     {} pieces, and a slab has {slab_bytes}",
                    ask.extents_max
                ),
            );
        }
        Ok((candidates, slab_bytes))
    }

    /// Whether an agent that held nothing else would hold a replica in several pieces.
    fn may_stripe(&self, state: &State, agent: &Agent, ask: &Ask<'_>) -> bool {
        let segments = self.segments_of(state, agent);
        let all_bytes = segments.fold(0u64, |sum, s| sum.saturating_add(s.capacity_bytes()));
        let pieces = ask.extents_max as u64;
        let pieces_bytes = self
            .longest_piece_bytes(state, agent)
            .saturating_mul(pieces);
        ask.need.bytes <= all_bytes.min(pieces_bytes)
    }

    /// Reserves the extents, or has slabs given and waits for them, or for other relief.
    fn grant(
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

/// What a put of this size asks of one slab, and of all in bytes.
fn needed(size_bytes: u64, replicas: u8) -> Result<(Need, Charge), Stop> {
    let all = Need::of(size_bytes).zip(Charge::of_put(size_bytes, replicas));
    all.ok_or_else(|| Refusal::new(Reason::TooLarge, format!("asked {size_bytes}")).into())
}
