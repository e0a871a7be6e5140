//! Store replies into wire answers: grants get their capabilities here.

use larder_store::{Reply as StoreReply, State};
use larder_types::{Epoch, Extent, Key, PoolTime, Reason, TenantId};
use larder_wire::agent::{Beat, Mounted};
use larder_wire::frame::FLAG_ERROR;
use larder_wire::limit::MAX_BODY_BYTES;
use larder_wire::master::{
    Located, ObjectGrant, PutGrant, PutStarted, RemovedSome, ReplicaGrant, TenantUsage,
};
use larder_wire::{
    CallError, CallResult, Frame, FrameError, Header, Kind, Reach, Reply, SessionSigner,
    encode_frame,
};
use serde::Serialize;

use super::command::wire_command;
use super::grants::{Named, Terms, grant_bytes, replica_grant};
use super::lists::{listed, listed_stats, stats};
use super::task;
use crate::agents::{AgentTable, KEY_ID};
use crate::calls::ItemResult;
use crate::quota;

/// How long a capability to read is good, in ms.
const READ_MS: u64 = 60_000;
/// The most commands in the answer to a mount, and in one frame of commands. The longest is a
/// slab's with a tenant's name, about 180 bytes: 184 KiB.
pub(crate) const COMMANDS_MAX: usize = larder_wire::limit::MAX_BATCH;
/// As many bytes of commands end a frame: the orders of copies are far longer than all others.
/// One more may come on top; the store keeps the extents of a replica so few that its order is
/// shorter than the other half.
pub(crate) const COMMANDS_BYTES_MAX: usize = MAX_BODY_BYTES as usize / 2;

/// As many bytes of grants end the answer to a get: all that a batch of objects in one piece can
/// have. Whoever asks for several in many pieces asks again for those behind it. The rest of the
/// frame is for addresses of agents.
const GRANTS_BYTES_MAX: usize = 800 * 1024;
/// What answers are made from.
pub(crate) struct Desk<'a> {
    pub(crate) epoch: Epoch,
    pub(crate) now: PoolTime,
    pub(crate) state: &'a State,
    pub(crate) agents: &'a AgentTable,
    pub(crate) replica_factor: u8,
    pub(crate) session_key: [u8; 32],
    pub(crate) heartbeat_ms: u64,
    pub(crate) signer: &'a SessionSigner,
}

/// An item's answer did not have the shape that its call has: a fault of ours.
pub(super) fn unfit<T>() -> CallResult<T> {
    Err(CallError::new(Reason::Internal))
}

/// Whether each key of a probe holds an object; stands in a message as `Vec<CallResult<bool>>`.
struct Exist<'a>(&'a [bool]);

impl Serialize for Exist<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|one| CallResult::Ok(*one)))
    }
}

/// Appends the frame that answers a probe.
pub(crate) fn answer_probe(out: &mut Vec<u8>, header: &Header, exist: &[bool], desk: &Desk<'_>) {
    let written = reply(out, header, desk, &Exist(exist));
    or_fail(out, header, written);
}

/// Appends the frame that answers a call; one that does not fit becomes an error.
pub(crate) fn answer(
    out: &mut Vec<u8>,
    header: &Header,
    tenant: Option<&TenantId>,
    keys: &[Key],
    results: Vec<ItemResult>,
    desk: &Desk<'_>,
) {
    let written = match header.kind {
        Kind::PutStart => reply(out, header, desk, &put_started(tenant, keys, results, desk)),
        Kind::Get => reply(out, header, desk, &located(tenant, results, desk)),
        Kind::Exists => {
            let exists = results.into_iter().map(|result| match result? {
                StoreReply::Exists(exists) => Ok(exists),
                _ => unfit(),
            });
            reply(
                out,
                header,
                desk,
                &exists.collect::<Vec<CallResult<bool>>>(),
            )
        }
        Kind::Stat => reply(out, header, desk, &stats(results, desk.state)),
        Kind::TaskCreate => reply(out, header, desk, &task::tasks_created(results)),
        Kind::TaskQuery => reply(out, header, desk, &task::task_statuses(results)),
        Kind::PutEnd | Kind::PutRevoke | Kind::Remove | Kind::Pin => {
            let done = results
                .into_iter()
                .map(|result| result.and_then(|one| done(&one)));
            reply(out, header, desk, &done.collect::<Vec<CallResult<()>>>())
        }
        _ => match results.into_iter().next().unwrap_or_else(unfit) {
            Ok(single) => answer_single(out, header, tenant, single, desk),
            Err(error) if header.kind == Kind::Heartbeat => {
                tracing::debug!(%error, "a heartbeat of an agent that is not known");
                reply(out, header, desk, &Beat { known: false })
            }
            Err(error) => {
                fail(out, header, &error);
                Ok(())
            }
        },
    };
    or_fail(out, header, written);
}

/// An answer that does not fit a frame becomes an error.
fn or_fail(out: &mut Vec<u8>, header: &Header, written: Result<(), FrameError>) {
    if let Err(error) = written {
        tracing::error!(%error, kind = header.kind.name(), "an answer does not encode");
        let detail = "the answer is too long; send fewer items at once".to_owned();
        fail(
            out,
            header,
            &CallError {
                reason: Reason::Internal,
                detail,
            },
        );
    }
}

/// Appends the frame that says that a whole call failed.
pub(crate) fn fail(out: &mut Vec<u8>, header: &Header, error: &CallError) {
    if let Err(error) = encode_frame(out, Frame::reply(header, FLAG_ERROR), error) {
        tracing::error!(%error, kind = header.kind.name(), "an error does not encode");
    }
}

fn reply<T: Serialize>(
    out: &mut Vec<u8>,
    header: &Header,
    desk: &Desk<'_>,
    answer: &T,
) -> Result<(), FrameError> {
    let body = Reply {
        epoch: desk.epoch,
        pool_time: desk.now,
        answer,
    };
    encode_frame(out, Frame::reply(header, 0), &body)
}

fn answer_single(
    out: &mut Vec<u8>,
    header: &Header,
    tenant: Option<&TenantId>,
    single: StoreReply,
    desk: &Desk<'_>,
) -> Result<(), FrameError> {
    match (header.kind, single, tenant) {
        (Kind::List, StoreReply::Listed { entries, more }, _) => {
            reply(out, header, desk, &listed(entries, more))
        }
        (Kind::ListStats, StoreReply::ListedStats { entries, more }, _) => {
            reply(out, header, desk, &listed_stats(entries, more, desk.state))
        }
        (
            Kind::RemovePrefix,
            StoreReply::RemovedSome {
                removed,
                skipped,
                last,
            },
            _,
        ) => {
            let some = RemovedSome {
                removed,
                skipped,
                last,
            };
            reply(out, header, desk, &some)
        }
        (Kind::Usage, StoreReply::Usage(usage), Some(tenant)) => {
            reply(out, header, desk, &tenant_usage(tenant, &usage, desk))
        }
        (
            Kind::Mount,
            StoreReply::Mounted {
                agent,
                segments,
                outstanding,
            },
            _,
        ) => {
            let Some(entry) = desk.agents.get(agent) else {
                fail(out, header, &CallError::new(Reason::SegmentUnknown));
                return Ok(());
            };
            let first = outstanding.into_iter().take(COMMANDS_MAX);
            let first = first.filter_map(|one| wire_command(one, desk));
            let mounted = Mounted {
                agent,
                segments,
                capability_key: *entry.key.bytes(),
                key_id: KEY_ID,
                session_key: desk.session_key,
                heartbeat_ms: desk.heartbeat_ms,
                outstanding: first.collect(),
                wants_inventory: false,
            };
            reply(out, header, desk, &mounted)
        }
        (Kind::Heartbeat, _, _) => reply(out, header, desk, &Beat { known: true }),
        (Kind::Unmount, _, _) => reply(out, header, desk, &()),
        _ => {
            fail(out, header, &CallError::new(Reason::Internal));
            Ok(())
        }
    }
}

fn done(reply: &StoreReply) -> CallResult<()> {
    match reply {
        StoreReply::Done | StoreReply::AlreadyComplete => Ok(()),
        _ => unfit(),
    }
}

fn put_started(
    tenant: Option<&TenantId>,
    keys: &[Key],
    results: Vec<ItemResult>,
    desk: &Desk<'_>,
) -> PutStarted {
    let mut agents = Named::default();
    let grants = results.into_iter().enumerate().map(|(item, result)| {
        let (Some(tenant), Some(key)) = (tenant, keys.get(item)) else {
            return unfit();
        };
        let StoreReply::PutGranted {
            version,
            replicas,
            deadline,
            wanted,
            preference_ignored,
        } = result?
        else {
            return unfit();
        };
        let terms = Terms {
            tenant,
            version,
            reach: Reach::Write,
            deadline,
            // Every replica holds the whole object.
            object_bytes: replicas.first().map_or(0, |extents| payload_bytes(extents)),
            key: key.as_bytes(),
        };
        let granted = replicas
            .iter()
            .map(|extents| replica_grant(extents, &terms, desk));
        let Some(replicas) = granted.collect::<Option<Vec<_>>>() else {
            // An agent left between deciding and answering; the put is discarded in time.
            return Err(CallError::new(Reason::NoAgents));
        };
        agents.add(&replicas, desk);
        Ok(PutGrant {
            version,
            discard_ms: deadline.since_ms(desk.now),
            replicas,
            wanted,
            preference_ignored,
        })
    });
    let grants = grants.collect();
    PutStarted {
        agents: agents.into_list(),
        grants,
    }
}

/// Why no replica can be granted. After a fail-over the leader knows from the log which agents
/// hold an object, but where they are reached only once they mount again; until they do, or are
/// given up, the object is not lost.
fn unreachable_reason(replicas: &[Vec<Extent>], desk: &Desk<'_>) -> Reason {
    let awaited = |extent: &Extent| {
        let agent = extent.slab.agent;
        let is_known = |agent: &larder_store::Agent| !agent.segments().is_empty();
        desk.agents.get(agent).is_none() && desk.state.agent(agent).is_some_and(is_known)
    };
    if replicas.iter().flatten().any(awaited) {
        Reason::Starting
    } else {
        Reason::ReplicasLost
    }
}

fn payload_bytes(extents: &[Extent]) -> u64 {
    extents
        .iter()
        .fold(0, |sum, extent| sum.saturating_add(extent.length_bytes))
}

fn located(tenant: Option<&TenantId>, results: Vec<ItemResult>, desk: &Desk<'_>) -> Located {
    let mut agents = Named::default();
    let mut bytes = 0;
    let objects = results.into_iter().map(|result| {
        let (
            StoreReply::Located {
                version,
                size_bytes,
                digest,
                replicas,
                lease_ms,
            },
            Some(tenant),
        ) = (result?, tenant)
        else {
            return unfit();
        };
        let terms = Terms {
            tenant,
            version,
            reach: Reach::Read,
            deadline: desk.now.plus_ms(READ_MS),
            object_bytes: size_bytes,
            key: &[],
        };
        let located = replicas;
        let replicas: Vec<ReplicaGrant> = located
            .iter()
            .filter_map(|extents| replica_grant(extents, &terms, desk))
            .collect();
        if replicas.is_empty() {
            return Err(CallError::new(unreachable_reason(&located, desk)));
        }
        let own: usize = replicas.iter().map(|one| grant_bytes(&one.extents)).sum();
        if bytes > 0 && bytes + own > GRANTS_BYTES_MAX {
            let detail = "the answer has no room for it; ask again".to_owned();
            return Err(CallError {
                reason: Reason::Overloaded,
                detail,
            });
        }
        bytes += own;
        agents.add(&replicas, desk);
        Ok(ObjectGrant {
            version,
            size_bytes,
            digest,
            replicas,
            lease_ms,
        })
    });
    let objects = objects.collect();
    Located {
        agents: agents.into_list(),
        objects,
    }
}

/// What a tenant holds, as it hears it itself and as administrators do.
pub(crate) fn tenant_usage(
    tenant: &TenantId,
    usage: &larder_store::Usage,
    desk: &Desk<'_>,
) -> TenantUsage {
    let live = desk
        .state
        .agents()
        .filter(|(_, agent)| !agent.segments().is_empty())
        .count();
    TenantUsage {
        tenant: tenant.clone(),
        used_bytes: usage.used_bytes,
        pinned_bytes: usage.pinned_bytes,
        reserved_bytes: usage.reserved_bytes,
        limit_bytes: usage.policy.limit_bytes,
        objects: usage.used_objects,
        limit_objects: usage.policy.limit_objects,
        pool_capacity_bytes: desk.state.capacity_bytes(),
        agents: u32::try_from(live).unwrap_or(u32::MAX),
        replica_factor: desk.replica_factor,
        quota: quota::of_tenant(usage),
    }
}
