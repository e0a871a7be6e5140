//! Snapshots, as the administration port of masters tells of them.

use larder_types::Epoch;
use serde::Deserialize;

/// `GET /v1/snapshots/{name}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SnapshotDocument {
    /// `Taking`, `Uploading`, `Ready` or `Failed`.
    pub phase: String,
    /// Why it failed.
    pub reason: String,
    /// Where it is kept.
    pub location: String,
    /// The master that took it.
    pub master: String,
    /// The epoch of its state.
    pub epoch: Epoch,
    /// The objects in it.
    pub objects: u64,
    /// The size of its file, in bytes.
    pub size_bytes: u64,
    /// The digest of its state.
    pub digest: String,
    /// When it was taken, in ms since 1970.
    pub taken_unix_ms: i64,
}

/// What several masters say of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotLook {
    /// What the one says that has it.
    pub found: Option<SnapshotDocument>,
    /// How many answered.
    pub answered: u32,
}

impl SnapshotLook {
    /// One more answered. What is there counts before what is on its way.
    pub(in crate::master_api) fn add(&mut self, found: Option<SnapshotDocument>) {
        self.answered += 1;
        let rank = |document: &Option<SnapshotDocument>| document.as_ref().map(|one| one.rank());
        if rank(&found) > rank(&self.found) {
            self.found = found;
        }
    }
}

impl SnapshotDocument {
    fn rank(&self) -> u8 {
        match self.phase.as_str() {
            "Ready" => 2,
            "Failed" => 0,
            _ => 1,
        }
    }
}
