//! Objects in several pieces, and ranges: the extents that are needed are read at the same time,
//! each into its place of one buffer. One that cannot be read is taken from another replica: all
//! have the same bytes in the same blocks, whatever they are cut into.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt};
use larder_types::Key;
use larder_types::layout::BLOCK_BYTES;
use larder_wire::master::{ObjectGrant, ReplicaGrant};
use tokio::time::Instant;

use super::{Failure, Part, ReadDone, info_of, order_of, patience};
use crate::Client;
use crate::agents::Route;
use crate::error::ClientError;
use crate::session::{Next, ReadFault, after_get};

/// Extents of one object that are read at a time: half of the lanes to one agent.
const EXTENTS_IN_FLIGHT: usize = 8;

/// The parts of a replica that make up these bytes of its object, with their places in it. `None`
/// if it does not have them, or is cut within blocks.
fn parts_of<'a>(
    replica: &'a ReplicaGrant,
    range: &Range<u64>,
) -> Option<Vec<(Range<u64>, Part<'a>)>> {
    let mut parts = Vec::new();
    let mut start = 0u64;
    for (extent, capability) in &replica.extents {
        let end = start.checked_add(extent.length_bytes)?;
        let (from, to) = (start.max(range.start), end.min(range.end));
        if from < to {
            if !start.is_multiple_of(BLOCK_BYTES) {
                return None;
            }
            let part = Part {
                extent,
                capability,
                offset_bytes: from - start,
                length_bytes: to - from,
            };
            parts.push((from..to, part));
        }
        start = end;
    }
    let covered = parts.iter().map(|(place, _)| place.end - place.start);
    (covered.sum::<u64>() == range.end - range.start).then_some(parts)
}

/// Cuts the free end of a buffer into pieces of these lengths, without moving a byte.
fn carve(buffer: &mut BytesMut, lengths: impl Iterator<Item = usize>) -> Vec<BytesMut> {
    let mut free = buffer.split_off(buffer.len());
    let piece = |length| {
        let rest = free.split_off(length);
        std::mem::replace(&mut free, rest)
    };
    lengths.map(piece).collect()
}

impl Client {
    /// Gets a part of an object: the bytes of `range`, cut off at the object's end. Only the
    /// extents with blocks of it are touched. Each block is compared with the checksum that its
    /// agent keeps; the digest of the object needs all of it and is not checked.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn get_range(&self, key: Key, range: Range<u64>) -> Result<Bytes, ClientError> {
        let deadline = self.deadline();
        let mut asks = 1;
        loop {
            let mut located = self.locate(vec![key.clone()], deadline).await?;
            let route = self.inner.agents.route(&located.agents);
            let none = ClientError::Answer {
                detail: "no object",
            };
            let grant = located.objects.pop().ok_or(none)??;
            let end = range.end.min(grant.size_bytes);
            let start = range.start.min(end);
            // Only whole blocks can be verified.
            let from = start - start % BLOCK_BYTES;
            let to = end.checked_next_multiple_of(BLOCK_BYTES);
            let to = to.map_or(grant.size_bytes, |to| to.min(grant.size_bytes));
            let order = order_of(&route, &grant);
            let read = self.read_span(
                &route,
                &grant,
                &order,
                from..to,
                (BytesMut::new(), deadline),
            );
            let failure = match read.await {
                (buffer, Ok(_)) => {
                    let place = |at: u64| usize::try_from(at - from).unwrap_or(usize::MAX);
                    let (first, last) = (place(start), place(end));
                    return Ok(buffer.freeze().slice(first..last));
                }
                (_, Err(failure)) => failure,
            };
            let left = deadline.saturating_duration_since(Instant::now());
            match after_get(&failure.faults, asks, left, rand::random()) {
                Next::Again(pause) => tokio::time::sleep(pause).await,
                Next::Fail => return Err(failure.error),
            }
            asks += 1;
        }
    }

    /// Reads an object of which a replica is in pieces. When the whole has another digest than the
    /// master's, it is read again with another replica first.
    pub(super) async fn read_pieces(
        &self,
        route: &Route,
        grant: &ObjectGrant,
        mut buffer: BytesMut,
        deadline: Instant,
    ) -> ReadDone {
        let before_bytes = buffer.len();
        let mut order = order_of(route, grant);
        let mut faults = Vec::new();
        for _ in 0..order.len() {
            let whole = 0..grant.size_bytes;
            let read = self.read_span(route, grant, &order, whole, (buffer, deadline));
            let (filled, result) = read.await;
            buffer = filled;
            match result.map(|crcs| info_of(grant, grant.size_bytes, &crcs)) {
                Ok(Some(info)) => {
                    return ReadDone {
                        buffer,
                        result: Ok(info),
                    };
                }
                Ok(None) => {
                    buffer.truncate(before_bytes);
                    faults.push(ReadFault::Corrupt);
                    order.rotate_left(1);
                }
                // All replicas were tried for what could not be read.
                Err(failure) => {
                    faults.extend(failure.faults);
                    let error = failure.error;
                    return ReadDone {
                        buffer,
                        result: Err(Failure { error, faults }),
                    };
                }
            }
        }
        let error = ClientError::Corrupt;
        ReadDone {
            buffer,
            result: Err(Failure { error, faults }),
        }
    }

    /// Reads whole blocks of an object behind what the buffer holds; their checksums. After an
    /// error the buffer is as before.
    async fn read_span(
        &self,
        route: &Route,
        grant: &ObjectGrant,
        order: &[usize],
        range: Range<u64>,
        (mut buffer, deadline): (BytesMut, Instant),
    ) -> (BytesMut, Result<Vec<u32>, Failure>) {
        let before_bytes = buffer.len();
        let unfit = |detail| Failure {
            error: ClientError::Answer { detail },
            faults: Vec::new(),
        };
        let first = order.first().and_then(|at| grant.replicas.get(*at));
        let parts = first.and_then(|replica| parts_of(replica, &range));
        let length = usize::try_from(range.end - range.start).ok();
        let Some((parts, length)) = parts.zip(length) else {
            return (buffer, Err(unfit("the extents do not make up the object")));
        };
        buffer.reserve(length);
        // Each part is no longer than all of them.
        let lengths = parts.iter().map(|(_, part)| part.length_bytes as usize);
        let pieces = carve(&mut buffer, lengths);
        let mut reads = Vec::with_capacity(parts.len());
        for ((place, _), piece) in parts.into_iter().zip(pieces) {
            reads.push(self.read_place(route, grant, order, place, (piece, deadline)));
        }
        let done: Vec<_> = stream::iter(reads)
            .buffered(EXTENTS_IN_FLIGHT)
            .collect()
            .await;
        let (mut crcs, mut failed) = (Vec::new(), None);
        for (piece, result) in done {
            // They lie side by side: nothing is copied.
            buffer.unsplit(piece);
            match result {
                Ok(own) => crcs.extend(own),
                Err(failure) => failed = failed.or(Some(failure)),
            }
        }
        match failed {
            None => (buffer, Ok(crcs)),
            Some(failure) => {
                buffer.truncate(before_bytes);
                (buffer, Err(failure))
            }
        }
    }

    /// Reads one place of an object from the first replica that gives it.
    async fn read_place(
        &self,
        route: &Route,
        grant: &ObjectGrant,
        order: &[usize],
        place: Range<u64>,
        (mut piece, deadline): (BytesMut, Instant),
    ) -> (BytesMut, Result<Vec<u32>, Failure>) {
        let mut faults = Vec::new();
        let mut last = ClientError::Answer {
            detail: "an object without replicas",
        };
        let replicas = order.iter().filter_map(|at| grant.replicas.get(*at));
        for (tried, replica) in (1..).zip(replicas) {
            let Some(parts) = parts_of(replica, &place) else {
                continue;
            };
            let until = if tried < order.len() {
                deadline.min(Instant::now() + patience(place.end - place.start))
            } else {
                deadline
            };
            let mut crcs = Vec::new();
            let mut failed = None;
            for (_, part) in parts {
                let (filled, read) = self.read_part(route, part, piece, until).await;
                piece = filled;
                match read {
                    Ok(own) => crcs.extend(own),
                    Err(failure) => {
                        failed = Some(failure);
                        break;
                    }
                }
            }
            match failed {
                None => return (piece, Ok(crcs)),
                Some((error, fault)) => {
                    piece.clear();
                    faults.push(fault);
                    last = error;
                }
            }
        }
        (
            piece,
            Err(Failure {
                error: last,
                faults,
            }),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_buffer_come_together_where_they_were() {
        let mut buffer = BytesMut::from(&b"ab"[..]);
        buffer.reserve(9);
        let start = buffer.as_ptr();
        let pieces = carve(&mut buffer, [4, 3, 2].into_iter());
        for (mut piece, text) in pieces.into_iter().zip(["cdef", "ghi", "jk"]) {
            piece.extend_from_slice(text.as_bytes());
            buffer.unsplit(piece);
        }
        assert_eq!((&buffer[..], buffer.as_ptr()), (&b"abcdefghijk"[..], start));
    }
}
