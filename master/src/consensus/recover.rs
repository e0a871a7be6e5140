//! The state of a replica at its start: the newest snapshot, and the committed entries behind it.

use larder_oplog::{Position, Rebuild, Rebuilt, Through, remove_snapshot};
use larder_store::State;

use super::snapshots::{SnapshotsError, Volume, membership_of};
use super::{ConsensusError, StoredMembership};

/// What was made of the files.
pub(super) struct Recovered {
    pub(super) state: State,
    pub(super) applied: Option<Position>,
    pub(super) membership: StoredMembership,
}

/// Makes the state of everything that is known to be committed. The log is open, so there is one.
///
/// # Errors
/// [`ConsensusError`]: a record or every snapshot is damaged, or an op does not fit. Nothing may
/// be served then; an empty pool least of all.
pub(super) fn state(volume: &Volume) -> Result<Recovered, ConsensusError> {
    let rebuilt = Rebuild::begin(volume()?, Through::Committed).and_then(Rebuild::run);
    let (rebuilt, _) = rebuilt.map_err(SnapshotsError::from)?;
    let Rebuilt {
        state,
        applied,
        about,
        unusable,
        ..
    } = rebuilt;
    for one in unusable {
        let at = one.at;
        let why = larder_telemetry::error_chain(&one.why);
        tracing::warn!(%at, why, "a snapshot is damaged and is removed; an older one was used");
        remove_snapshot(&mut volume()?, at)?;
    }
    Ok(Recovered {
        state,
        applied,
        membership: membership_of(&about)?,
    })
}
