//! An object to put, with its checksums.

use std::sync::Arc;

use bytes::Bytes;
use larder_types::{Digest, Key};
use larder_wire::checksum::{block_crcs, digest};

/// From this size the checksums are computed on the pool of blocking threads: below, the hop there
/// costs more than the 0.1 ms that the computation takes.
const CHECKSUM_INLINE_BYTES: usize = 2 * 1024 * 1024;

/// An object to put, with what was computed of it.
pub(super) struct Item {
    pub(super) key: Key,
    pub(super) value: Bytes,
    pub(super) crcs: Arc<[u32]>,
    pub(super) digest: Digest,
}

/// Computes the checksums of an object.
pub(super) async fn checked(key: Key, value: Bytes) -> Item {
    let crcs = if value.len() < CHECKSUM_INLINE_BYTES {
        block_crcs(&value)
    } else {
        let bytes = value.clone();
        let computed = tokio::task::spawn_blocking(move || block_crcs(&bytes)).await;
        // Only a stopping runtime loses the task.
        computed.unwrap_or_else(|_| block_crcs(&value))
    };
    let digest = digest(&crcs, value.len() as u64);
    Item {
        key,
        value,
        crcs: crcs.into(),
        digest,
    }
}
