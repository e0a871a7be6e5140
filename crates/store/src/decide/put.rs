//! Deciding puts: start, end, revoke.

use larder_types::{
    Attributes, Digest, Extent, Key, PoolTime, Reason, SessionId, TenantId, Version,
};

use super::{Outcome, Right, Stop, refuse};
use crate::leader::Leader;
use crate::op::Op;
use crate::overlay::Pending;
use crate::place::{Candidate, Need, Room, Wish, rank};
use crate::quota::{Charge, admit, excess};
use crate::reply::{Decision, Refusal, Reply, WaitOn};
use crate::request::{MAX_REPLICAS, Request, Written};
use crate::segment::slab_key;
use crate::state::State;

/// Who ends or revokes which put.
type Named<'a> = (SessionId, &'a TenantId, &'a Key, Version);

/// What an accepted start asks for.
struct Ask<'a> {
    session: SessionId,
    tenant: &'a TenantId,
    key: &'a Key,
    wanted: u8,
    need: Need,
    attributes: &'a Attributes,
}

impl Ask<'_> {
    fn replicas(&self) -> usize {
        usize::from(self.wanted)
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
            mode: _,
            strict: _,
            attributes,
        } = request
        else {
            return refuse(Reason::Internal, "not a start of a put");
        };
        let held = self.tenant(state, tenant, Right::Write)?;
        if *size_bytes == 0 {
            return refuse(Reason::EmptyValue, format!("key {key}"));
        }
        if *replicas == 0 || *replicas > MAX_REPLICAS {
            return refuse(Reason::BadReplicaCount, format!("asked {replicas}"));
        }
        self.untouched(state, tenant, key)?;
        if let Some(object) = state.object(tenant, key) {
            return refuse(
                Reason::AlreadyExists,
                format!("version {}", object.version()),
            );
        }
        self.take_over(tenant, key, now)?;
        self.room_for_a_put()?;
        let too_large = || Refusal::new(Reason::TooLarge, format!("asked {size_bytes}"));
        let need = Need::of(*size_bytes).ok_or_else(too_large)?;
        let asked = need
            .bytes
            .checked_mul(u64::from(*replicas))
            .ok_or_else(too_large)?;
        let used = Charge {
            bytes: held.used_bytes,
            objects: held.objects.len() as u64,
        };
        let reserved = self.overlay.reserved(tenant);
        if let Err(refusal) = admit(&held.policy, used, reserved, asked) {
            return match excess(&held.policy, used, reserved, asked) {
                Some(over) => self.relieve_quota(state, tenant, over, refusal, now),
                None => refuse(refusal.reason, refusal.detail),
            };
        }

        let ask = Ask {
            session: *session,
            tenant,
            key,
            wanted: *replicas,
            need,
            attributes,
        };
        let (mut candidates, slab_bytes) = self.candidates(state, &ask)?;
        // Less than a slab per agent makes a small tenant.
        let held_bytes = used
            .bytes
            .saturating_add(reserved.bytes)
            .saturating_add(asked);
        let compact = held_bytes < slab_bytes.saturating_mul(candidates.len() as u64);
        let preferred = preferred.first().copied();
        let wish = Wish { preferred, compact };
        rank(&mut candidates, ask.replicas(), wish, random);
        self.grant(state, &ask, &candidates, now)
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
        self.overlay.discard(version, &mut self.effects);
        Ok(())
    }

    /// What every agent that answers and has slabs of that size could offer, and the largest slab
    /// of them all, in bytes.
    fn candidates(&self, state: &State, ask: &Ask<'_>) -> Result<(Vec<Candidate>, u64), Stop> {
        let (asked, mut known, mut answer, mut slab_bytes) = (ask.replicas(), 0, 0, 0);
        let mut candidates = Vec::with_capacity(state.agents.len());
        for (id, agent) in state.agents() {
            let segments = self.segments_of(state, agent);
            let Some(largest) = segments.map(|segment| segment.slab_bytes).max() else {
                continue;
            };
            known += 1;
            if self.soft.contacts.get(&id).is_some_and(|c| c.is_alive()) {
                answer += 1;
                slab_bytes = largest.max(slab_bytes);
                if largest >= ask.need.bytes {
                    candidates.push(self.survey(state, ask.tenant, (id, agent), ask.need));
                }
            }
        }
        if answer < asked {
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
        if candidates.len() < asked {
            let Need { size_bytes, bytes } = ask.need;
            return refuse(
                Reason::TooLarge,
                format!("asked {size_bytes}, aligned {bytes}, a slab has {slab_bytes}"),
            );
        }
        Ok((candidates, slab_bytes))
    }

    /// Reserves the extents, or has slabs given and waits for them, or for other relief.
    fn grant(
        &mut self,
        state: &State,
        ask: &Ask<'_>,
        ranked: &[Candidate],
        now: PoolTime,
    ) -> Outcome {
        let chosen = &ranked[..ask.replicas().min(ranked.len())];
        let Some(rooms) = chosen.iter().map(|c| c.room).collect::<Option<Vec<Room>>>() else {
            return self.relieve(state, ask.tenant, ask.need, ranked, now);
        };
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
        Ok(self.answer(Reply::PutGranted {
            version,
            replicas,
            deadline,
        }))
    }

    pub(super) fn put_end(
        &mut self,
        state: &State,
        (session, tenant, key, version): Named<'_>,
        written: &[Written],
    ) -> Outcome {
        self.tenant(state, tenant, Right::Write)?;
        if state
            .object(tenant, key)
            .is_some_and(|object| object.version() == version)
        {
            return Ok(self.answer(Reply::AlreadyComplete));
        }
        if self.overlay.is_touched(tenant, key) {
            return Err(Stop::Wait(WaitOn::Key(tenant.clone(), key.clone())));
        }
        if version.epoch != self.epoch {
            return refuse(
                Reason::StaleEpoch,
                format!("version {version}, epoch {}", self.epoch),
            );
        }
        let put = match self.overlay.pending(tenant, key) {
            Some(put) if put.version == version && put.session == session => put,
            other => {
                let other = other.map(|put| put.version);
                return refuse(
                    Reason::StaleOwner,
                    format!("ends {version}, pending {other:?}"),
                );
            }
        };
        let digest = proven(&put.replicas, written)?;
        let op = Op::PutEnd {
            tenant: tenant.clone(),
            key: key.clone(),
            version,
            size_bytes: put.size_bytes,
            digest,
            replicas: put.replicas.clone(),
            wanted: put.wanted,
            attributes: put.attributes.clone(),
            replaces: None,
        };
        Ok(self.answer_with(vec![op], Reply::Done))
    }

    pub(super) fn put_revoke(
        &mut self,
        state: &State,
        (session, tenant, key, version): Named<'_>,
    ) -> Outcome {
        self.tenant(state, tenant, Right::Know)?;
        if state
            .object(tenant, key)
            .is_some_and(|object| object.version() == version)
        {
            return refuse(Reason::NotWriting, format!("version {version} is complete"));
        }
        if let Some(put) = self
            .overlay
            .pending(tenant, key)
            .filter(|p| p.version == version)
        {
            if put.session != session {
                return refuse(Reason::StaleOwner, format!("session {session}"));
            }
            if put.ending {
                return Err(Stop::Wait(WaitOn::Key(tenant.clone(), key.clone())));
            }
            self.overlay.discard(version, &mut self.effects);
        }
        let erasing = self.overlay.discarded.get(&version);
        if erasing.is_some_and(|discarded| discarded.tenant == *tenant) {
            return Err(Stop::Wait(WaitOn::Erased(version)));
        }
        Ok(self.answer(Reply::Done))
    }
}

/// The digest that all receipts agree on, if they are exactly those of the put.
fn proven(replicas: &[Vec<Extent>], written: &[Written]) -> Result<Digest, Stop> {
    let asked = replicas.iter().flatten().count();
    let (Some(first), true) = (written.first(), written.len() == asked) else {
        let got = written.len();
        return refuse(
            Reason::BadReceipt,
            format!("{got} receipts for {asked} extents"),
        );
    };
    for extent in replicas.iter().flatten() {
        let Some(receipt) = written.iter().find(|receipt| receipt.extent == *extent) else {
            return refuse(Reason::BadReceipt, format!("no receipt for {extent:?}"));
        };
        if receipt.digest != first.digest {
            return refuse(Reason::BadReceipt, "the receipts name different digests");
        }
    }
    Ok(first.digest)
}
