//! Numbers for metrics and tests.

use larder_types::TenantId;

use super::Segments;
use super::hold::HoldKind;

/// What is counted as it happens.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) late_completions: u64,
    pub(super) stale_commands: u64,
    pub(super) slabs_returned: u64,
}

/// A picture of the segments at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentsStats {
    /// Slabs that give access.
    pub slabs: usize,
    /// Slabs that are taken or dropped but still held.
    pub leaving_slabs: usize,
    /// Memory of both, in bytes.
    pub slab_bytes: u64,
    /// Records, writing or written.
    pub records: usize,
    /// Payload of the written ones, in bytes.
    pub written_bytes: u64,
    /// Erasure marks.
    pub marks: usize,
    /// Length of the files of records, in bytes.
    pub record_file_bytes: u64,
    /// Changes that a file of records would not take.
    pub record_file_failures: u64,
    /// Writes in progress.
    pub writes: usize,
    /// Reads in progress.
    pub reads: usize,
    /// Open views.
    pub views: usize,
    /// What open views hold, in bytes.
    pub view_bytes: u64,
    /// Erasures that wait for the last hold.
    pub waiting_releases: usize,
    /// Payload of those, in bytes.
    pub waiting_bytes: u64,
    /// Tickets that came back after their version or slab had ended.
    pub late_completions: u64,
    /// Commands about a life of a slab that was over, or that contradicted an earlier one.
    pub stale_commands: u64,
    /// Slabs whose memory was freed.
    pub slabs_returned: u64,
}

impl Segments {
    /// What each tenant holds in views, in bytes; also tenants that hold nothing now.
    pub fn views_by_tenant(&self) -> impl Iterator<Item = (&TenantId, u64)> {
        self.views.by_tenant()
    }

    /// A picture of this moment; walks slabs and holds, so not for every operation.
    #[must_use]
    pub fn stats(&self) -> SegmentsStats {
        let mut stats = SegmentsStats {
            slabs: self.open.len(),
            leaving_slabs: self.slabs.len().saturating_sub(self.open.len()),
            view_bytes: self.views.held_bytes(),
            late_completions: self.counters.late_completions,
            stale_commands: self.counters.stale_commands,
            slabs_returned: self.counters.slabs_returned,
            ..SegmentsStats::default()
        };
        for slab in self.slabs.values() {
            stats.slab_bytes += slab.memory.bytes();
            stats.waiting_releases += slab.waiting();
            stats.waiting_bytes = stats.waiting_bytes.saturating_add(slab.waiting_bytes());
            if let Some(table) = &slab.table {
                stats.records += table.records();
                stats.written_bytes += table.written_bytes();
                stats.marks += table.marks();
                stats.record_file_bytes += table.file().bytes();
                stats.record_file_failures += table.file_failures();
            }
        }
        for hold in self.holds.iter() {
            match hold.kind {
                HoldKind::Write { .. } => stats.writes += 1,
                HoldKind::Read => stats.reads += 1,
                HoldKind::View { .. } => stats.views += 1,
            }
        }
        stats
    }
}
