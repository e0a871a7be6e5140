//! What the owner of a log chooses: sizes, bounds and when to sync.

use crate::error::LogError;

/// The most bytes of one batch of entries with their headers: 32 MiB, two of the largest entries.
pub const BATCH_BYTES_MAX: usize = 32 << 20;
/// The most bytes of [`Options::segment_bytes`]; with a batch on top of it a file stays below
/// 2 GiB, so that an offset fits 32 bits.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;
const SEGMENT_BYTES_MIN: u64 = 4 << 10;
/// How long after a sync of an idle log a mark is due.
pub const SETTLE_MS: u64 = 1_000;

/// When appended entries are made durable. Votes, truncations and purges always are before the
/// call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncPolicy {
    /// At most this long after they were appended. A loss of power takes at most so much of what
    /// this replica acknowledged; a quorum of replicas that lose power at once can lose an
    /// acknowledged entry. A replica that lost power says so when opened
    /// ([`Opened::trust`](crate::Opened::trust)) and has to join anew.
    Interval {
        /// In milliseconds.
        ms: u64,
    },
    /// Before they are acknowledged: the owner calls [`Log::sync`](crate::Log::sync) first. No
    /// loss of power, of all replicas either, takes an acknowledged entry.
    Always,
    /// When the kernel likes, at the end of a segment and at a clean stop. A loss of power takes
    /// any number of acknowledged entries from this replica, which says so like under `Interval`.
    Never,
}

impl Default for SyncPolicy {
    fn default() -> Self {
        Self::Interval { ms: 20 }
    }
}

impl SyncPolicy {
    /// When the owner is to call [`Log::sync`](crate::Log::sync), on the clock by which it did so
    /// last at `last_sync_ms`; `None`: not before more is appended.
    ///
    /// `is_unsynced`: something was appended since. `is_unmarked`: the log does not yet say of
    /// itself that all of it is durable, so one more sync, of 32 bytes, is due once it is idle.
    #[must_use]
    pub fn next_sync_ms(
        self,
        is_unsynced: bool,
        is_unmarked: bool,
        last_sync_ms: u64,
    ) -> Option<u64> {
        match (self, is_unsynced) {
            (Self::Never, _) => None,
            (Self::Always, true) => Some(last_sync_ms),
            (Self::Interval { ms }, true) => Some(last_sync_ms.saturating_add(ms)),
            (_, false) => is_unmarked.then(|| last_sync_ms.saturating_add(SETTLE_MS)),
        }
    }
}

/// What the owner of a log chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// A segment that has this many bytes is followed by the next one: 64 MiB unless chosen,
    /// 4 KiB to 1 GiB. It may exceed that by one batch.
    pub segment_bytes: u64,
    /// More bytes than this in all segments refuse an append: 8 GiB unless chosen.
    pub bytes_max: u64,
    /// More entries than this refuse an append: 4 Mi unless chosen, 64 MiB of memory.
    pub entries_max: u64,
    /// When entries are made durable.
    pub policy: SyncPolicy,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            bytes_max: 8 << 30,
            entries_max: 4 << 20,
            policy: SyncPolicy::default(),
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), LogError> {
        if (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&self.segment_bytes) {
            return Ok(());
        }
        Err(LogError::Option {
            option: "segment_bytes",
            range: "choose 4096 to 1073741824 bytes",
        })
    }
}
