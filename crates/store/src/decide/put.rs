//! Deciding the starts of puts.

use larder_types::{AgentId, Attributes, Extent, Key, Pin, PoolTime, Reason, SessionId, TenantId};

use super::{Outcome, Right, Stop, refuse};
use crate::effects::Discard;
use crate::leader::Leader;
use crate::objects::ObjectRef;
use crate::overlay::Pending;
use crate::place::{Candidate, Need, Room, Site, Wanted, Wish, choose, hosts};
use crate::quota::{Charge, Exceeded};
use crate::reply::{Decision, Refusal, Reply, WaitOn};
use crate::request::{MAX_REPLICAS, PutMode, Request};
use crate::segment::slab_key;
use crate::state::State;

/// What an accepted start asks for.
struct Ask<'a> {
    session: SessionId,
    tenant: &'a TenantId,
    key: &'a Key,
    wanted: u8,
    strict: bool,
    preferred: &'a [AgentId],
    need: Need,
    attributes: Attributes,
    pinned_bytes: u64,
}

impl Ask<'_> {
    fn replicas(&self) -> usize {
        usize::from(self.wanted)
    }

    /// What the choice of agents needs to know of it.
    fn wanted(&self) -> Wanted<'_> {
        let (tenant, key, replicas) = (self.tenant, self.key, self.replicas());
        Wanted {
            tenant,
            key,
            replicas,
            preferred: self.preferred,
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
            attributes,
        } = request
        else {
            return refuse(Reason::Internal, "not a start of a put");
        };
        let held = self.tenant(state, tenant, Right::Write)?;
        check_counts(key, *size_bytes, *replicas)?;
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
        let wish = self.wish_of(state, ask.wanted(), random);
        if let Some((candidates, chosen)) = self.sample(state, (ask.tenant, bytes), ask.need, &wish)
            && (!ask.strict || chosen >= ask.replicas())
        {
            return self.grant(state, ask, candidates.split_at(chosen), now);
        }
        let (mut candidates, slab_bytes) = self.candidates(state, ask)?;
        // Less than a slab per agent makes a small tenant.
        let wish = Wish {
            compact: bytes < slab_bytes.saturating_mul(candidates.len() as u64),
            ..wish
        };
        let chosen = choose(&mut candidates, &wish);
        self.grant(state, ask, candidates.split_at(chosen), now)
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

    /// What every agent that answers and has slabs of that size could offer, and the largest slab
    /// of them all, in bytes.
    fn candidates<'a>(
        &self,
        state: &'a State,
        ask: &Ask<'_>,
    ) -> Result<(Vec<Candidate<'a>>, u64), Stop> {
        let (asked, mut known, mut answer, mut slab_bytes) = (ask.replicas(), 0, 0, 0);
        let (mut known_sites, mut sites) = (Vec::new(), Vec::new());
        let mut candidates = Vec::with_capacity(state.agents.len());
        for (id, agent) in state.agents() {
            let segments = self.segments_of(state, agent);
            let Some(largest) = segments.map(|segment| segment.slab_bytes).max() else {
                continue;
            };
            known += 1;
            known_sites.push(Site::of(id, agent));
            if self.takes_new(state, id) {
                answer += 1;
                sites.push(Site::of(id, agent));
                slab_bytes = largest.max(slab_bytes);
                if largest >= ask.need.bytes {
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
        if ask.strict {
            enough_hosts(asked, &known_sites, &sites)?;
        }
        let fitting = || hosts(candidates.iter().map(|c| c.site));
        if candidates.is_empty() || (ask.strict && fitting() < asked) {
            let Need { size_bytes, bytes } = ask.need;
            return refuse(
                Reason::TooLarge,
                format!("asked {size_bytes}, aligned {bytes}, a slab has {slab_bytes}"),
            );
        }
        Ok((candidates, slab_bytes))
    }

    /// Reserves the extents, or has slabs given and waits for them, or for other relief. Fewer
    /// replicas now are better than none for a put that may have fewer: what is missing is made
    /// later.
    fn grant(
        &mut self,
        state: &State,
        ask: &Ask<'_>,
        (chosen, others): (&[Candidate<'_>], &[Candidate<'_>]),
        now: PoolTime,
    ) -> Outcome {
        if chosen.is_empty() || (ask.strict && chosen.len() < ask.replicas()) {
            // Room on a host that is taken would not help.
            let taken: Vec<Site<'_>> = chosen.iter().map(|c| c.site).collect();
            let others = others.iter().filter(|c| !c.site.is_host_taken(&taken));
            let others: Vec<Candidate<'_>> = others.copied().collect();
            return self.relieve(state, ask.tenant, ask.need, &others, now);
        }
        let rooms = chosen.iter().filter_map(|c| c.room);
        let mut replicas = Vec::new();
        let mut ops = Vec::new();
        let mut on = None;
        for room in rooms {
            match room {
                Room::Ready(extent) => replicas.push(vec![extent]),
                Room::Coming(slab) => on = on.or(Some(slab)),
                Room::Free(slab) => {
                    ops.extend(self.give(state, slab, ask.tenant));
                    on = on.or(Some(slab));
                }
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
        for slab in replicas
            .iter()
            .flatten()
            .map(|extent| slab_key(extent.slab))
        {
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

fn check_counts(key: &Key, size_bytes: u64, replicas: u8) -> Result<(), Stop> {
    if size_bytes == 0 {
        return refuse(Reason::EmptyValue, format!("key {key}"));
    }
    if replicas == 0 || replicas > MAX_REPLICAS {
        return refuse(Reason::BadReplicaCount, format!("asked {replicas}"));
    }
    Ok(())
}

/// Refuses what wants more replicas than there are hosts for them.
fn enough_hosts(asked: usize, known: &[Site<'_>], answer: &[Site<'_>]) -> Result<(), Stop> {
    let count = |sites: &[Site<'_>]| hosts(sites.iter().copied());
    let (known, answering) = (count(known), count(answer));
    if answering >= asked {
        return Ok(());
    }
    let mut names: Vec<&str> = answer.iter().map(|site| site.host).collect();
    names.sort_unstable();
    names.dedup();
    let detail = format!(
        "asked {asked}, mounted on {known} hosts, of them answer {answering}: {}",
        names.join(", ")
    );
    refuse(
        if known < asked {
            Reason::TooFewHosts
        } else {
            Reason::NoAgents
        },
        detail,
    )
}
