//! Deciding the starts of puts.

use larder_types::{AgentId, Attributes, Extent, Key, Pin, PoolTime, Reason, SessionId, TenantId};

use super::{Outcome, Right, Stop, refuse};
use crate::effects::Discard;
use crate::leader::Leader;
use crate::objects::ObjectRef;
use crate::place::stripe::{Load, extents_max};
use crate::place::{Candidate, Need, Site, Wanted, hosts};
use crate::quota::{Charge, Exceeded};
use crate::reply::Refusal;
use crate::request::{MAX_REPLICAS, PutMode, Request};
use crate::soft::Contact;
use crate::state::{Agent, State, Tenant};

/// What an accepted start asks for.
pub(super) struct Ask<'a> {
    pub(super) session: SessionId,
    pub(super) tenant: &'a TenantId,
    pub(super) key: &'a Key,
    pub(super) wanted: u8,
    pub(super) strict: bool,
    pub(super) preferred: &'a [AgentId],
    pub(super) need: Need,
    /// The most extents of a replica.
    pub(super) extents_max: usize,
    pub(super) attributes: Attributes,
    pub(super) pinned_bytes: u64,
}

impl Ask<'_> {
    pub(super) fn replicas(&self) -> usize {
        usize::from(self.wanted)
    }

    /// One of them on this agent.
    pub(super) const fn load(&self, agent: AgentId) -> Load<'_> {
        Load {
            tenant: self.tenant,
            agent,
            size_bytes: self.need.size_bytes,
            extents_max: self.extents_max,
        }
    }

    /// What the choice of agents needs to know of it.
    pub(super) fn wanted(&self) -> Wanted<'_> {
        let (tenant, key, replicas) = (self.tenant, self.key, self.replicas());
        Wanted {
            tenant,
            key,
            replicas,
            preferred: self.preferred,
        }
    }

    /// Whether some preferred agent, of as many as there are replicas, got none.
    pub(super) fn is_preference_ignored(&self, replicas: &[Vec<Extent>]) -> bool {
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
        self.pins_fit(state, (tenant, held), pinned_bytes)?;
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
                None => {
                    self.evict.refused(tenant);
                    Err(refusal.into())
                }
            };
        }
        let held_bytes = self.overlay.reserved(tenant).bytes;
        let held_bytes = held_bytes.saturating_add(held.used_bytes);
        let bytes = held_bytes.saturating_add(asked.bytes);
        self.grant_best(state, &ask, bytes, now, random)
    }

    /// Whether the tenant may pin so many bytes more. Where pins may fill all of a limit, what
    /// bounds a put is the limit, and that is told.
    fn pins_fit(
        &mut self,
        state: &State,
        (tenant, held): (&TenantId, &Tenant),
        pinned_bytes: u64,
    ) -> Result<(), Stop> {
        let limit_bytes = held.policy.limit_bytes;
        let limits_first = limit_bytes.is_some_and(|limit_bytes| {
            pinned_bytes > 0 && limit_bytes <= self.limit_pinned_bytes(state, tenant)
        });
        if limits_first {
            return Ok(());
        }
        let admitted = self.admit_pinned(state, (tenant, held), pinned_bytes);
        admitted.inspect_err(|_| self.evict.refused(tenant))
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
    pub(super) fn candidates<'a>(
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
                if largest >= ask.need.bytes || self.may_stripe(state, agent, ask) {
                    candidates.push(self.survey(state, ask.tenant, (id, agent), ask.need));
                }
            }
        }
        if answer < asked && (ask.strict || answer == 0) {
            let drained = state
                .agents()
                .filter(|(_, agent)| agent.is_draining())
                .count();
            let drained = match drained {
                0 => String::new(),
                drained => format!("; {drained} are being drained and take nothing new"),
            };
            let detail =
                format!("asked {asked}, mounted {known}, {answer} of them take objects{drained}");
            let few = known > 0 && known < asked;
            return refuse(
                if few {
                    Reason::TooFewAgents
                } else {
                    self.no_agents()
                },
                detail,
            );
        }
        if ask.strict {
            enough_hosts(asked, &known_sites, &sites, self.no_agents())?;
        }
        let fitting = || hosts(candidates.iter().map(|c| c.site));
        if candidates.is_empty() || (ask.strict && fitting() < asked) {
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

    /// Why agents that are mounted take nothing: right after a fail-over they will soon.
    fn no_agents(&self) -> Reason {
        let mut contacts = self.soft.contacts.values();
        if contacts.any(Contact::is_awaited) {
            Reason::Starting
        } else {
            Reason::NoAgents
        }
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
}

/// What a put of this size asks of one slab, and of all in bytes.
fn needed(size_bytes: u64, replicas: u8) -> Result<(Need, Charge), Stop> {
    let all = Need::of(size_bytes).zip(Charge::of_put(size_bytes, replicas));
    all.ok_or_else(|| Refusal::new(Reason::TooLarge, format!("asked {size_bytes}")).into())
}

/// Refuses what wants more replicas than there are hosts for them.
fn enough_hosts(
    asked: usize,
    known: &[Site<'_>],
    answer: &[Site<'_>],
    too_few: Reason,
) -> Result<(), Stop> {
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
            too_few
        },
        detail,
    )
}
