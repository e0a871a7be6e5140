//! Wire calls into store requests: who asks is added, what cannot be right is refused.

use larder_store::{MAX_LISTED, PutMode, Request, SegmentOffer, State, Written};
use larder_types::{AgentId, Epoch, Key, Reason, SessionId, TenantId, Version};
use larder_wire::agent::{Done, Event, Mount};
use larder_wire::limit::{MAX_BATCH, MAX_BODY_BYTES, MAX_PREFERRED, MAX_SEGMENTS};
use larder_wire::master::{PutEndItem, PutMode as WireMode, PutStart, PutStartItem, Usage};
use larder_wire::{CallError, CallResult, Receipt};

use super::{Body, task};
use crate::agents::AgentTable;

/// The longest `host:port`: a DNS name, a colon and five digits.
const MAX_ADDR_BYTES: usize = 253 + 6;
/// What one replica of a put takes in the answer besides its key, in bytes, at the most: a
/// tenant's name of 128 bytes and the numbers of extent, capability and signature.
const GRANT_BYTES: usize = 400;

/// What the grants of an answer to starts may take together, in bytes; the rest of a frame is for
/// addresses of agents.
const GRANTS_BYTES: u64 = 768 * 1024;
/// One more extent is counted for each so many bytes of an object: half of the smallest slab.
const WEIGHT_BYTES: u64 = larder_types::layout::MIN_SLAB_BYTES / 2;

/// Stands for a preferred agent whose name nobody has: numbers begin at 1.
const UNKNOWN_AGENT: AgentId = AgentId(0);

/// Who asks, as the connection proved, and what the request is judged with.
pub(crate) struct Caller<'a> {
    pub(crate) session: SessionId,
    pub(crate) tenant: &'a TenantId,
    pub(crate) agents: &'a AgentTable,
    pub(crate) state: &'a State,
    pub(crate) replica_factor: u8,
    /// Of the leader that is asked.
    pub(crate) epoch: Epoch,
}

/// Each item of a batch: a request, or an error that needs no deciding.
pub(crate) type Items = Vec<CallResult<Request>>;

fn bad_argument<T>(detail: String) -> CallResult<T> {
    Err(CallError {
        reason: Reason::BadArgument,
        detail,
    })
}

pub(crate) fn check_batch(items: usize) -> CallResult<()> {
    if items > MAX_BATCH {
        return bad_argument(format!(
            "{items} items in one call; send at most {MAX_BATCH}"
        ));
    }
    Ok(())
}

/// Items of a batch into requests. Every call of clients is a batch, so that what is checked of an
/// item is checked in one place, however many there are.
fn each<T>(items: Vec<T>, request: impl Fn(T) -> CallResult<Request>) -> CallResult<Items> {
    check_batch(items.len())?;
    Ok(items.into_iter().map(request).collect())
}

/// The requests of a client's call.
///
/// # Errors
/// The whole call cannot be right.
pub(crate) fn client_requests(body: Body, caller: &Caller<'_>) -> CallResult<Items> {
    let tenant = caller.tenant.clone();
    match body {
        Body::PutStart(call) => put_starts(call, caller),
        Body::PutEnd(call) => each(call.items, |item| put_end(item, caller)),
        Body::PutRevoke(call) => each(call.items, |(key, version)| {
            Ok(put_revoke(key, version, caller))
        }),
        Body::Get(call) => each(call.keys, |key| {
            let tenant = tenant.clone();
            Ok(Request::Get { tenant, key })
        }),
        Body::Exists(call) => each(call.keys, |key| {
            let (tenant, lease) = (tenant.clone(), call.lease);
            Ok(Request::Exists { tenant, key, lease })
        }),
        Body::Remove(call) => each(call.keys, |key| {
            let (tenant, if_unleased) = (tenant.clone(), call.if_unleased);
            Ok(Request::Remove {
                tenant,
                key,
                if_unleased,
            })
        }),
        Body::Pin(call) => each(call.items, |(key, pin)| {
            let tenant = tenant.clone();
            Ok(Request::PinSet { tenant, key, pin })
        }),
        Body::Stat(call) => each(call.keys, |key| {
            let tenant = tenant.clone();
            Ok(Request::Stat { tenant, key })
        }),
        Body::List(call) => one(Request::List {
            tenant,
            prefix: call.prefix,
            after: call.after,
            limit: page(call.limit),
        }),
        Body::ListStats(call) => one(Request::ListStats {
            tenant,
            prefix: call.prefix,
            after: call.after,
            limit: page(call.limit),
        }),
        Body::RemovePrefix(call) => one(Request::RemovePrefix {
            tenant,
            prefix: call.prefix,
            after: call.after,
            limit: page(call.limit),
            if_unleased: call.if_unleased,
        }),
        Body::Usage(Usage {}) => one(Request::Usage { tenant }),
        Body::TaskCreate(call) => each(call.items, |item| {
            task::task_create(item, caller.tenant, caller.state)
        }),
        Body::TaskQuery(call) => each(call.tasks, |task| {
            let tenant = tenant.clone();
            Ok(Request::TaskQuery { tenant, task })
        }),
        Body::Subscribe(_)
        | Body::Mount(_)
        | Body::Heartbeat(_)
        | Body::Done(_)
        | Body::Unmount(_)
        | Body::Inventory(_) => Err(CallError::new(Reason::Unsupported)),
    }
}

fn one(request: Request) -> CallResult<Items> {
    Ok(vec![Ok(request)])
}

/// The most entries of a page that the store gives at once.
fn page(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX).min(MAX_LISTED)
}

fn put_revoke(key: Key, version: Version, caller: &Caller<'_>) -> Request {
    Request::PutRevoke {
        session: caller.session,
        tenant: caller.tenant.clone(),
        key,
        version,
    }
}

fn put_end(item: PutEndItem, caller: &Caller<'_>) -> CallResult<Request> {
    // A put of a former epoch ends only if its end is in the log already: its receipts prove
    // nothing more, and after a fail-over the agents that signed them may not have mounted yet.
    let written = if item.version.epoch == caller.epoch {
        verified(&item.receipts, item.version, caller.agents)?
    } else {
        Vec::new()
    };
    Ok(Request::PutEnd {
        session: caller.session,
        tenant: caller.tenant.clone(),
        key: item.key,
        version: item.version,
        written,
    })
}

fn put_starts(call: PutStart, caller: &Caller<'_>) -> CallResult<Items> {
    check_batch(call.items.len())?;
    // Each capability of the answer carries the key: a batch of long keys would not fit.
    let answer_bytes: usize = call
        .items
        .iter()
        .map(|item| usize::from(replicas(item, caller)) * (item.key.as_bytes().len() + GRANT_BYTES))
        .sum();
    if call.items.len() > 1 && answer_bytes > MAX_BODY_BYTES as usize {
        return bad_argument("the keys are long for one call; send fewer at once".to_owned());
    }
    let weights = call.items.iter().map(|item| {
        let one = usize::from(replicas(item, caller)) * (item.key.as_bytes().len() + GRANT_BYTES);
        weight(item).saturating_mul(one as u64)
    });
    let all = weights.fold(1u64, u64::saturating_add);
    let left_bytes = GRANTS_BYTES.saturating_sub(answer_bytes as u64);
    each(call.items, |item| {
        // The one for which there is room in any case, and its part of what is left.
        let part = u128::from(left_bytes) * u128::from(weight(&item)) / u128::from(all);
        let extents_max = u16::try_from(1 + part).unwrap_or(u16::MAX);
        put_start(item, extents_max, caller)
    })
}

/// How much of the answer an item gets in relation to others: larger objects have more extents.
const fn weight(item: &PutStartItem) -> u64 {
    1 + item.size_bytes / WEIGHT_BYTES
}

fn put_start(item: PutStartItem, extents_max: u16, caller: &Caller<'_>) -> CallResult<Request> {
    let count = item.preferred.len();
    if count > MAX_PREFERRED {
        return bad_argument(format!(
            "{count} preferred agents; name at most {MAX_PREFERRED}"
        ));
    }
    let number = |name| caller.state.agent_named(&name).unwrap_or(UNKNOWN_AGENT);
    Ok(Request::PutStart {
        session: caller.session,
        tenant: caller.tenant.clone(),
        replicas: replicas(&item, caller),
        extents_max,
        key: item.key,
        size_bytes: item.size_bytes,
        preferred: item.preferred.into_iter().map(number).collect(),
        mode: match item.mode {
            WireMode::Create => PutMode::Create,
            WireMode::Upsert { if_unleased } => PutMode::Upsert { if_unleased },
        },
        strict: item.strict,
        attributes: item.attributes,
    })
}

fn replicas(item: &PutStartItem, caller: &Caller<'_>) -> u8 {
    if item.replicas == 0 {
        caller.replica_factor
    } else {
        item.replicas
    }
}

/// What receipts prove: each signed by the agent that it names, in its present incarnation, for
/// this version.
fn verified(
    receipts: &[Receipt],
    version: Version,
    agents: &AgentTable,
) -> CallResult<Vec<Written>> {
    let refuse = |detail: String| {
        Err(CallError {
            reason: Reason::BadReceipt,
            detail,
        })
    };
    let mut written = Vec::with_capacity(receipts.len());
    for receipt in receipts {
        let agent = receipt.agent();
        let Some(entry) = agents.get(agent) else {
            return refuse(format!("agent {agent} is not mounted"));
        };
        if receipt.incarnation != entry.incarnation {
            return refuse(format!("agent {} restarted since", entry.name));
        }
        if receipt.version != version {
            return refuse("it is for another version".to_owned());
        }
        if receipt.verify(&entry.key).is_err() {
            return refuse(format!("it was not signed by agent {}", entry.name));
        }
        written.push(Written {
            extent: receipt.extent,
            digest: receipt.digest,
        });
    }
    Ok(written)
}

/// The request of a mount.
///
/// # Errors
/// The offer cannot be right.
pub(crate) fn mount_request(mount: &Mount) -> CallResult<Request> {
    if mount.segments.len() > MAX_SEGMENTS {
        return bad_argument(format!("an agent offers at most {MAX_SEGMENTS} segments"));
    }
    let addr = &mount.data_addr;
    let port = addr
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse::<u16>().ok());
    if addr.len() > MAX_ADDR_BYTES || port.is_none_or(|port| port == 0) {
        return bad_argument("data_addr must be host:port".to_owned());
    }
    if mount.incarnation.0 == 0 {
        return bad_argument("an incarnation is never 0".to_owned());
    }
    let segments = mount.segments.iter().map(|offer| SegmentOffer {
        ordinal: offer.ordinal,
        generation: offer.generation,
        slabs: offer.slabs,
        slab_bytes: offer.slab_bytes,
        numa: offer.numa,
    });
    Ok(Request::Mount {
        name: mount.name.clone(),
        uid: mount.uid,
        incarnation: mount.incarnation,
        segments: segments.collect(),
        highest_epoch: mount.highest_epoch,
        labels: mount.labels.clone(),
        kept: mount
            .kept
            .as_ref()
            .map(|kept| (kept.agent, kept.segments.clone())),
    })
}

/// The requests of what an agent says it did. Events that name another agent's bytes are left
/// out; their number is returned beside.
pub(crate) fn agent_requests(done: Done) -> (Vec<Request>, usize) {
    let agent = done.agent;
    let mut requests = Vec::new();
    let mut released = Vec::new();
    let mut foreign = 0;
    for event in done.events {
        if event_agent(&event).is_some_and(|named| named != agent) {
            foreign += 1;
            continue;
        }
        if let Event::Released { extent, version } = event {
            released.push((extent, version));
            continue;
        }
        // What was released before stays before what follows.
        push_released(&mut requests, &mut released, agent);
        requests.push(match event {
            Event::SlabReady { slab } => Request::SlabReady { slab },
            Event::SlabFailed { slab, detail } => Request::SlabFailed { slab, detail },
            Event::SlabReturned { slab } => Request::SlabReturned { slab },
            Event::Released { .. } => continue,
            Event::Copied { copy, digest } => Request::Copied {
                agent,
                copy,
                digest,
            },
            Event::CopyFailed { copy, detail } => Request::CopyFailed {
                agent,
                copy,
                detail,
            },
        });
    }
    push_released(&mut requests, &mut released, agent);
    (requests, foreign)
}

fn push_released(
    requests: &mut Vec<Request>,
    released: &mut Vec<(larder_types::Extent, Version)>,
    agent: AgentId,
) {
    if !released.is_empty() {
        requests.push(Request::Released {
            extents: std::mem::take(released),
            agent,
        });
    }
}

/// The agent whose bytes an event is about, where it names them. The store looks whose a copy is.
const fn event_agent(event: &Event) -> Option<AgentId> {
    match event {
        Event::SlabReady { slab }
        | Event::SlabFailed { slab, .. }
        | Event::SlabReturned { slab } => Some(slab.agent),
        Event::Released { extent, .. } => Some(extent.slab.agent),
        Event::Copied { .. } | Event::CopyFailed { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use larder_types::key::MAX_KEY_BYTES;
    use larder_types::{Attributes, Digest, Extent, Incarnation, Registration, SegmentId, SlabRef};
    use larder_wire::AgentKey;
    use proptest::prelude::*;

    use super::*;

    fn item((key_bytes, size_bytes, replicas): (usize, u64, u8)) -> PutStartItem {
        PutStartItem {
            key: Key::new(vec![b'k'; key_bytes]).expect("short"),
            size_bytes,
            replicas,
            preferred: Vec::new(),
            mode: WireMode::Create,
            strict: false,
            attributes: Attributes::default(),
        }
    }

    /// What all grants may take, in bytes, if each object is cut as often as it may be.
    fn longest(items: Vec<PutStartItem>) -> Option<usize> {
        let tenant = TenantId::new("a").expect("valid");
        let state = State::new(1);
        let caller = Caller {
            session: SessionId(1),
            tenant: &tenant,
            agents: &AgentTable::default(),
            state: &state,
            replica_factor: 1,
            epoch: Epoch::default(),
        };
        let requests = put_starts(PutStart { items }, &caller).ok()?;
        let bytes = requests.into_iter().map(|request| match request {
            Ok(Request::PutStart {
                key,
                replicas,
                extents_max,
                ..
            }) => {
                let extents = usize::from(replicas) * usize::from(extents_max);
                extents * (key.as_bytes().len() + GRANT_BYTES)
            }
            other => panic!("{other:?}"),
        });
        Some(bytes.sum())
    }

    /// After a fail-over the agent that signed a receipt may not have mounted yet. The end of a put
    /// that is in the log already must hear so; another one starts again.
    #[test]
    fn an_end_of_a_former_epoch_is_decided_without_its_receipts() {
        let tenant = TenantId::new("a").expect("valid");
        let state = State::new(1);
        let epoch = |term| Epoch {
            generation: 1,
            term,
        };
        let caller = Caller {
            session: SessionId(1),
            tenant: &tenant,
            agents: &AgentTable::default(),
            state: &state,
            replica_factor: 1,
            epoch: epoch(2),
        };
        let end = |term| {
            let version = Version {
                epoch: epoch(term),
                counter: 1,
            };
            let slab = SlabRef {
                agent: AgentId(1),
                segment: SegmentId(1),
                index: 0,
                registration: Registration(1),
            };
            let extent = Extent {
                slab,
                offset_bytes: 0,
                length_bytes: 1,
            };
            let agent_key = AgentKey::new([1; 32], 1);
            let receipt = Receipt::sign(
                Incarnation(1),
                extent,
                version,
                Digest::default(),
                &agent_key,
            );
            let item = PutEndItem {
                key: Key::new(vec![b'k']).expect("short"),
                version,
                receipts: vec![receipt],
            };
            put_end(item, &caller)
        };
        assert!(matches!(end(1), Ok(Request::PutEnd { written, .. }) if written.is_empty()));
        assert!(matches!(end(2), Err(error) if error.reason == Reason::BadReceipt));
    }

    #[test]
    fn grants_of_a_large_object_under_a_long_key_fit_the_answer() {
        for size_bytes in [1, 200 << 20, 10 << 30, u64::MAX] {
            let bytes = longest(vec![item((MAX_KEY_BYTES, size_bytes, 3))]).expect("one fits");
            assert!(bytes <= GRANTS_BYTES as usize, "{bytes} for {size_bytes}");
        }
    }

    proptest! {
        #[test]
        fn grants_of_a_batch_fit_the_answer(
            items in
                prop::collection::vec((1..=MAX_KEY_BYTES, 0..u64::MAX >> 20, 1..=3_u8), 1..200),
        ) {
            let items: Vec<_> = items.into_iter().map(item).collect();
            let one: usize = items
                .iter()
                .map(|item| (item.key.as_bytes().len() + GRANT_BYTES) * usize::from(item.replicas))
                .sum();
            if let Some(bytes) = longest(items) {
                prop_assert!(bytes <= one.max(GRANTS_BYTES as usize), "{}", bytes);
                prop_assert!(one <= MAX_BODY_BYTES as usize);
            }
        }
    }
}
