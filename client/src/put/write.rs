//! Writing the bytes of a put: every extent of every replica.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use larder_transfer::transport::WriteOp;
use larder_types::Extent;
use larder_types::layout::BLOCK_BYTES;
use larder_wire::checksum::block_crcs;
use larder_wire::master::PutGrant;
use larder_wire::{Receipt, SignedCapability};
use tokio::time::Instant;

use super::item::Item;
use super::{Failure, transfer};
use crate::agents::Route;
use crate::error::ClientError;
use crate::session::{Next, PutFault, after_write};
use crate::{Client, fault};

/// Extents of one replica that are written at a time: each lane to the local agent may hold a
/// copy of one, of at most 64 MiB.
const EXTENTS_IN_FLIGHT: usize = 4;

impl Client {
    /// Writes all extents of all replicas, a few of each at a time.
    pub(super) async fn write_object(
        &self,
        route: &Route,
        item: &Item,
        grant: &PutGrant,
        deadline: Instant,
    ) -> Result<Vec<Receipt>, Failure> {
        let mut parts = Vec::new();
        for replica in &grant.replicas {
            let mut offset_bytes = 0_u64;
            for (number, (extent, capability)) in replica.extents.iter().enumerate() {
                let range = part_of(&item.value, offset_bytes, extent)?;
                offset_bytes += extent.length_bytes;
                parts.push((number, extent, capability, range));
            }
            if offset_bytes != item.value.len() as u64 {
                let detail = "the extents do not cover the object";
                return Err(ClientError::Answer { detail }.into());
            }
        }
        // The first of each replica first, so that all agents have something to do.
        parts.sort_by_key(|(number, ..)| *number);
        // A loop, because a closure over borrowed places would keep the future on one thread.
        let mut writes = Vec::with_capacity(parts.len());
        for (_, extent, capability, range) in parts {
            let crcs = crcs_of(item, &range);
            let payload = item.value.slice(range);
            writes.push(self.write_extent(route, extent, capability, payload, crcs, deadline));
        }
        let at_once = EXTENTS_IN_FLIGHT * grant.replicas.len().max(1);
        stream::iter(writes).buffered(at_once).try_collect().await
    }

    async fn write_extent(
        &self,
        route: &Route,
        extent: &Extent,
        capability: &SignedCapability,
        mut payload: Bytes,
        block_crcs: Arc<[u32]>,
        deadline: Instant,
    ) -> Result<Receipt, Failure> {
        let agent = extent.slab.agent;
        let mut attempt = 1;
        loop {
            // Only the first attempt goes through shared memory; a broken socket must not stop a
            // put that tcp can do.
            let Some(hop) = self.inner.agents.hop(route, agent, attempt == 1) else {
                let detail = "a grant names an agent without an address";
                return Err(ClientError::Answer { detail }.into());
            };
            let op = WriteOp {
                capability: capability.clone(),
                payload,
                block_crcs: Arc::clone(&block_crcs),
                deadline,
            };
            let done = hop.transport.write(op).await;
            let error = match done.result {
                Ok(receipt) => return Ok(receipt),
                Err(error) => error,
            };
            payload = done.payload;
            self.inner.agents.failed(&hop, &error);
            let left = deadline.saturating_duration_since(Instant::now());
            match after_write(fault::of_write(&error), attempt, left, rand::random()) {
                Next::Again(pause) => tokio::time::sleep(pause).await,
                Next::Fail => {
                    let fault = Some(PutFault::Write {
                        stale: fault::is_stale(&error),
                    });
                    return Err(Failure {
                        error: transfer(hop.name.as_str(), error),
                        fault,
                    });
                }
            }
            attempt += 1;
        }
    }
}

/// The block checksums of a part of the object.
fn crcs_of(item: &Item, range: &Range<usize>) -> Arc<[u32]> {
    if range.len() == item.value.len() {
        return Arc::clone(&item.crcs);
    }
    let block_bytes = usize::try_from(BLOCK_BYTES).unwrap_or(usize::MAX);
    let blocks = range.start / block_bytes..range.end.div_ceil(block_bytes);
    let ends_whole = range.end == item.value.len() || range.end.is_multiple_of(block_bytes);
    let whole = range.start.is_multiple_of(block_bytes) && ends_whole;
    match item.crcs.get(blocks).filter(|_| whole) {
        Some(crcs) => crcs.into(),
        None => block_crcs(&item.value[range.clone()]).into(),
    }
}

/// Where an extent's bytes stand in the object.
fn part_of(value: &Bytes, offset_bytes: u64, extent: &Extent) -> Result<Range<usize>, ClientError> {
    let end_bytes = offset_bytes.checked_add(extent.length_bytes);
    let start = usize::try_from(offset_bytes).ok();
    let end = end_bytes.and_then(|end| usize::try_from(end).ok());
    match (start, end) {
        (Some(start), Some(end)) if end <= value.len() => Ok(start..end),
        _ => Err(ClientError::Answer {
            detail: "the extents are longer than the object",
        }),
    }
}
