//! Gets: ask the master, read one replica, compare the digest; else the next replica, else ask
//! again.

mod pieces;
mod view;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt};
use larder_transfer::transport::ReadOp;
use larder_types::{Extent, Key, Reason};
use larder_wire::checksum::digest;
use larder_wire::master::{Get, Located, ObjectGrant, ReplicaGrant};
use larder_wire::{CallError, CallResult, SignedCapability};
use tokio::time::Instant;

use crate::agents::Route;
use crate::batch::{cut, get_bytes};
use crate::connection::Request;
use crate::error::ClientError;
use crate::put::{IN_FLIGHT, transfer};
use crate::session::{Next, ReadFault, after_get, read_order};
use crate::{Client, ObjectInfo, fault};

/// How long one replica may take while there is another one: an agent that neither answers nor
/// refuses must not cost a reader its deadline. Far more than a busy agent takes.
fn patience(size_bytes: u64) -> Duration {
    /// A tenth of what a link of 10 Gbit/s carries, in bytes per millisecond.
    const SLOW_BYTES_PER_MS: u64 = 128 * 1024;
    const ANSWER_MS: u64 = 500;
    Duration::from_millis(ANSWER_MS + size_bytes / SLOW_BYTES_PER_MS)
}

/// Why no replica of an object could be read.
struct Failure {
    error: ClientError,
    faults: Vec<ReadFault>,
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let fault = match error.reason {
            // The answer had no room for it.
            Reason::Overloaded => Some(ReadFault::Moved),
            Reason::Starting => Some(ReadFault::Awaited),
            _ => None,
        };
        Self {
            error: error.into(),
            faults: fault.into_iter().collect(),
        }
    }
}

/// A part of an extent to read.
#[derive(Clone, Copy)]
struct Part<'a> {
    extent: &'a Extent,
    capability: &'a SignedCapability,
    /// Within the extent; a multiple of the block size.
    offset_bytes: u64,
    /// Whole blocks, or up to the end of the extent.
    length_bytes: u64,
}

/// What was read, if the master's digest says that it is the object.
fn info_of(grant: &ObjectGrant, size_bytes: u64, crcs: &[u32]) -> Option<ObjectInfo> {
    let right = size_bytes == grant.size_bytes && digest(crcs, size_bytes) == grant.digest;
    right.then_some(ObjectInfo {
        version: grant.version,
        size_bytes,
        digest: grant.digest,
    })
}

/// One object read, and the buffer that it was read into.
struct ReadDone {
    buffer: BytesMut,
    result: Result<ObjectInfo, Failure>,
}

/// In which order the replicas are read.
fn order_of(route: &Route, grant: &ObjectGrant) -> Vec<usize> {
    let is_local = |replica: &ReplicaGrant| {
        let mut extents = replica.extents.iter();
        extents.all(|(extent, _)| route.is_local(extent.slab.agent))
    };
    let local: Vec<bool> = grant.replicas.iter().map(is_local).collect();
    read_order(&local, rand::random())
}

impl Client {
    /// Gets objects. Each result belongs to the key at its place.
    pub async fn get_batch(&self, keys: Vec<Key>) -> Vec<Result<Bytes, ClientError>> {
        let wanted = keys.into_iter().map(|key| (key, BytesMut::new())).collect();
        let read = self.read(wanted, self.deadline()).await;
        read.into_iter()
            .map(|(buffer, result)| result.map(|_| buffer.freeze()))
            .collect()
    }

    /// Reads objects, each behind what its buffer holds. After an error the buffer is as before.
    pub(crate) async fn read(
        &self,
        wanted: Vec<(Key, BytesMut)>,
        deadline: Instant,
    ) -> Vec<(BytesMut, Result<ObjectInfo, ClientError>)> {
        let runs = cut(wanted
            .iter()
            .map(|(key, _)| get_bytes(key.as_bytes().len())));
        let mut wanted = wanted.into_iter();
        let mut results = Vec::with_capacity(wanted.len());
        for run in runs {
            let items: Vec<_> = wanted.by_ref().take(run.len()).collect();
            self.read_run(items, deadline, &mut results).await;
        }
        results
    }

    /// Reads the keys of one call, asking again for those that moved.
    async fn read_run(
        &self,
        wanted: Vec<(Key, BytesMut)>,
        deadline: Instant,
        results: &mut Vec<(BytesMut, Result<ObjectInfo, ClientError>)>,
    ) {
        let mut keys = Vec::with_capacity(wanted.len());
        let mut slots: Vec<(BytesMut, Option<Result<ObjectInfo, ClientError>>)> = Vec::new();
        for (key, buffer) in wanted {
            keys.push(key);
            slots.push((buffer, None));
        }
        let mut open: Vec<usize> = (0..keys.len()).collect();
        let mut asks = 1;
        while !open.is_empty() {
            let round = open
                .iter()
                .map(|at| (keys[*at].clone(), std::mem::take(&mut slots[*at].0)))
                .collect();
            let outcomes = self.read_round(round, deadline).await;
            // An answer may have had no room for some; that is no failure while others fit.
            let got_some = outcomes.iter().any(|done| done.result.is_ok());
            let left = deadline.saturating_duration_since(Instant::now());
            let random = rand::random();
            let mut again = Vec::new();
            let mut pause = std::time::Duration::ZERO;
            for (at, done) in open.into_iter().zip(outcomes) {
                slots[at].0 = done.buffer;
                match done.result {
                    Ok(info) => slots[at].1 = Some(Ok(info)),
                    Err(failure) => match after_get(&failure.faults, asks, left, random) {
                        Next::Again(after) => {
                            tracing::debug!(key = %keys[at], error = %failure.error, "ask again");
                            pause = pause.max(after);
                            again.push(at);
                        }
                        Next::Fail => slots[at].1 = Some(Err(failure.error)),
                    },
                }
            }
            open = again;
            if !open.is_empty() {
                tokio::time::sleep(pause).await;
                asks += u32::from(!got_some);
            }
        }
        let missing = || {
            Err(ClientError::Answer {
                detail: "an item has no result",
            })
        };
        let filled = slots
            .into_iter()
            .map(|(buffer, one)| (buffer, one.unwrap_or_else(missing)));
        results.extend(filled);
    }

    /// Asks where the keys are and reads each from one replica.
    async fn read_round(&self, wanted: Vec<(Key, BytesMut)>, deadline: Instant) -> Vec<ReadDone> {
        let keys = wanted.iter().map(|(key, _)| key.clone()).collect();
        let located = match self.locate(keys, deadline).await {
            Ok(located) => located,
            Err(error) => {
                let failed = |(_, buffer)| {
                    let failure = Failure {
                        error: error.clone(),
                        faults: Vec::new(),
                    };
                    ReadDone {
                        buffer,
                        result: Err(failure),
                    }
                };
                return wanted.into_iter().map(failed).collect();
            }
        };
        let route = self.inner.agents.route(&located.agents);
        let mut reads = Vec::with_capacity(wanted.len());
        for ((_, buffer), object) in wanted.into_iter().zip(located.objects) {
            reads.push(self.read_located(&route, object, buffer, deadline));
        }
        stream::iter(reads).buffered(IN_FLIGHT).collect().await
    }

    /// Reads an object if the master knows it.
    async fn read_located(
        &self,
        route: &Route,
        object: CallResult<ObjectGrant>,
        buffer: BytesMut,
        deadline: Instant,
    ) -> ReadDone {
        match object {
            Ok(grant) => self.read_object(route, &grant, buffer, deadline).await,
            Err(error) => ReadDone {
                buffer,
                result: Err(error.into()),
            },
        }
    }

    async fn locate(&self, keys: Vec<Key>, deadline: Instant) -> Result<Located, ClientError> {
        let count = keys.len();
        let request = Request::Get(Get { keys });
        let located = self
            .inner
            .master
            .call::<Located>(request, deadline)
            .await?
            .answer;
        if located.objects.len() == count {
            Ok(located)
        } else {
            Err(ClientError::Answer {
                detail: "the number of objects is wrong",
            })
        }
    }

    /// Reads the first replica that gives the right bytes.
    async fn read_object(
        &self,
        route: &Route,
        grant: &ObjectGrant,
        mut buffer: BytesMut,
        deadline: Instant,
    ) -> ReadDone {
        if grant.replicas.iter().any(|one| one.extents.len() != 1) {
            return self.read_pieces(route, grant, buffer, deadline).await;
        }
        let before_bytes = buffer.len();
        let mut faults = Vec::new();
        let mut last = None;
        let order = order_of(route, grant);
        for (tried, at) in (1..).zip(order) {
            let others = tried < grant.replicas.len();
            let until = if others {
                deadline.min(Instant::now() + patience(grant.size_bytes))
            } else {
                deadline
            };
            let read = self
                .read_replica(route, grant, &grant.replicas[at], buffer, until)
                .await;
            buffer = read.0;
            match read.1 {
                Ok(info) => {
                    return ReadDone {
                        buffer,
                        result: Ok(info),
                    };
                }
                Err((error, fault)) => {
                    buffer.truncate(before_bytes);
                    faults.push(fault);
                    last = Some(error);
                }
            }
        }
        let none = ClientError::Answer {
            detail: "an object without replicas",
        };
        let failure = Failure {
            error: last.unwrap_or(none),
            faults,
        };
        ReadDone {
            buffer,
            result: Err(failure),
        }
    }

    async fn read_replica(
        &self,
        route: &Route,
        grant: &ObjectGrant,
        replica: &ReplicaGrant,
        buffer: BytesMut,
        deadline: Instant,
    ) -> (BytesMut, Result<ObjectInfo, (ClientError, ReadFault)>) {
        let [(extent, capability)] = replica.extents.as_slice() else {
            let detail = "a replica in pieces among whole ones";
            return (
                buffer,
                Err((ClientError::Answer { detail }, ReadFault::Final)),
            );
        };
        let part = Part {
            extent,
            capability,
            offset_bytes: 0,
            length_bytes: extent.length_bytes,
        };
        let (buffer, read) = self.read_part(route, part, buffer, deadline).await;
        let info = read.and_then(|crcs| {
            info_of(grant, extent.length_bytes, &crcs)
                .ok_or((ClientError::Corrupt, ReadFault::Corrupt))
        });
        (buffer, info)
    }

    /// Reads a part of an extent; the transport compares each block with its checksum.
    async fn read_part(
        &self,
        route: &Route,
        part: Part<'_>,
        mut buffer: BytesMut,
        deadline: Instant,
    ) -> (BytesMut, Result<Vec<u32>, (ClientError, ReadFault)>) {
        let before_bytes = buffer.len();
        let agent = part.extent.slab.agent;
        let mut near = true;
        loop {
            let Some(hop) = self.inner.agents.hop(route, agent, near) else {
                let detail = "a grant names an agent without an address";
                return (
                    buffer,
                    Err((ClientError::Answer { detail }, ReadFault::Final)),
                );
            };
            let op = ReadOp {
                capability: part.capability.clone(),
                offset_bytes: part.offset_bytes,
                length_bytes: part.length_bytes,
                buffer,
                deadline,
            };
            let done = hop.transport.read(op).await;
            buffer = done.buffer;
            let error = match done.result {
                Ok(facts) => return (buffer, Ok(facts.block_crcs)),
                Err(error) => error,
            };
            buffer.truncate(before_bytes);
            self.inner.agents.failed(&hop, &error);
            // A broken socket must not fail a get that tcp can do.
            if hop.is_local && matches!(fault::of_read(&error), ReadFault::Moved) {
                near = false;
                continue;
            }
            let fault = fault::of_read(&error);
            return (buffer, Err((transfer(hop.name.as_str(), error), fault)));
        }
    }
}
