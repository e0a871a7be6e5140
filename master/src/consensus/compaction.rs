//! When a snapshot is taken, and what of the log goes behind it.

use std::time::Duration;

use larder_oplog::snapshot_bytes;
use openraft::LogId;
use tokio::time::sleep;

use super::Raft;
use super::snapshots::Volume;
use super::store::Written;

/// After so many entries one is due whatever their size: with two snapshots and what came since, a
/// log of small entries stays well below the 4 Mi that it may have, which it must not reach, as
/// nothing could be purged any more while an append waits.
const GROWTH_ENTRIES: u64 = 1 << 20;
/// How often it is looked whether one is due.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Takes a snapshot whenever the log has grown by `growth_bytes` since the last one, and by as
/// much as that one has: so the log is never read again more often than it doubles. What is behind
/// the snapshot before the newest goes: if the newest is damaged one day, the one before and the
/// log behind it still make a whole state.
pub(super) async fn compact(raft: Raft, written: Written, volume: Volume, growth_bytes: u64) {
    let mut data = raft.data_metrics();
    let mut newest: Option<LogId<u64>> = data.borrow_and_update().snapshot;
    // What was found at the start counts: it may be the work of many short lives.
    let mut counted = 0;
    loop {
        sleep(LOOK_EVERY).await;
        let least = newest.map_or(0, |at| bytes_of(&volume, at));
        let applied = data.borrow().last_applied.map_or(0, |at| at.index);
        let entries = applied - newest.map_or(0, |at| at.index).min(applied);
        let is_due = written.bytes() - counted >= growth_bytes.max(least);
        if !is_due && entries < GROWTH_ENTRIES {
            continue;
        }
        let before = newest;
        counted = written.bytes();
        if raft.trigger().snapshot().await.is_err() {
            return;
        }
        // One that fails is said by openraft, which stops then: what it was made of is damaged. A
        // full disk only makes it wait.
        let is_newer = |data: &openraft::metrics::RaftDataMetrics<u64>| data.snapshot > before;
        newest = match data.wait_for(is_newer).await {
            Ok(data) => data.snapshot,
            Err(_) => return,
        };
        if let Some(before) = before
            && raft.trigger().purge_log(before.index).await.is_err()
        {
            return;
        }
    }
}

fn bytes_of(volume: &Volume, at: LogId<u64>) -> u64 {
    let at = super::convert::position(&at);
    let bytes = volume().ok().map(|mut disk| snapshot_bytes(&mut disk, at));
    bytes.and_then(Result::ok).unwrap_or(0)
}
