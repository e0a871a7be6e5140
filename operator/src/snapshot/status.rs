//! The status of a snapshot: pure until the one patch, which is sent only when something differs.

use jiff::Timestamp;
use kube::Resource;
use larder_crds::{CacheSnapshot, CacheSnapshotStatus, SnapshotPhase, rounded};

use super::apply::Answer;
use crate::conditions::{Wanted, changed, merge};
use crate::context::Context;
use crate::error::ReconcileError;
use crate::master_api::SnapshotDocument;
use crate::reasons::{ConditionType, Reason};
use crate::status_patch;
use crate::tenant::claims::Refusal;

/// What became of the spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It cannot be carried out now.
    Refused(Refusal),
    /// The masters said this.
    Asked(Answer),
}

/// The conditions of a snapshot.
#[must_use]
pub fn conditions(outcome: &Outcome, pool: &str) -> Vec<Wanted> {
    use ConditionType::{Accepted, Ready};
    let answer = match outcome {
        Outcome::Refused(refusal) => {
            let message = "the snapshot is not accepted";
            return vec![
                Wanted::new(Accepted, false, refusal.reason, refusal.message.clone()),
                Wanted::new(Ready, false, Reason::NotAccepted, message),
            ];
        }
        Outcome::Asked(answer) => answer,
    };
    let message = format!("it is of pool {pool}");
    let accepted = Wanted::new(Accepted, true, Reason::Accepted, message);
    let ready = match answer {
        Answer::Kept(found) => {
            let message = format!("it is kept in {}", found.location);
            Wanted::new(Ready, true, Reason::SnapshotKept, message)
        }
        Answer::UnderWay(_) => {
            let message = "a master is at it";
            Wanted::new(Ready, false, Reason::SnapshotUnderWay, message)
        }
        Answer::Waits(why) => Wanted::new(Ready, false, Reason::SnapshotWaits, why.clone()),
        Answer::Failed(why) => Wanted::new(Ready, false, Reason::SnapshotFailed, why.clone()),
        Answer::Lost => {
            let message = "it is not where it was kept any more";
            Wanted::new(Ready, false, Reason::SnapshotLost, message)
        }
        Answer::Silent(why) => Wanted::new(Ready, false, Reason::MasterNotReached, why.clone()),
    };
    vec![accepted, ready]
}

/// The new status, from the old one.
#[must_use]
pub fn next(
    snapshot: &CacheSnapshot,
    wanted: &[Wanted],
    outcome: &Outcome,
    now: Timestamp,
) -> CacheSnapshotStatus {
    let old = snapshot.status.clone().unwrap_or_default();
    let generation = snapshot.metadata.generation;
    let conditions = merge(&old.conditions, wanted, generation, now);
    let phase = match outcome {
        Outcome::Asked(Answer::Kept(_)) => SnapshotPhase::Ready,
        Outcome::Asked(Answer::UnderWay(found)) if found.phase == "Uploading" => {
            SnapshotPhase::Uploading
        }
        Outcome::Asked(Answer::UnderWay(_)) => SnapshotPhase::Taking,
        Outcome::Asked(Answer::Failed(_) | Answer::Lost) => SnapshotPhase::Failed,
        // What is there stays there while nobody can be asked.
        Outcome::Refused(_) | Outcome::Asked(Answer::Waits(_) | Answer::Silent(_)) => {
            old.phase.unwrap_or(SnapshotPhase::Pending)
        }
    };
    let status = CacheSnapshotStatus {
        phase: Some(phase),
        observed_generation: generation,
        conditions,
        ..old
    };
    match outcome {
        Outcome::Asked(Answer::Kept(found)) => with_facts(status, found),
        _ => status,
    }
}

fn with_facts(status: CacheSnapshotStatus, found: &SnapshotDocument) -> CacheSnapshotStatus {
    let taken = Timestamp::from_millisecond(found.taken_unix_ms).ok();
    CacheSnapshotStatus {
        size_bytes: Some(found.size_bytes),
        size: Some(rounded(found.size_bytes)),
        objects: Some(found.objects),
        epoch: Some(found.epoch.to_string()),
        digest: Some(found.digest.clone()),
        location: Some(found.location.clone()),
        master: Some(found.master.clone()),
        // Seconds are what the API server's times have.
        taken_at: taken.map(|taken| taken.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        ..status
    }
}

/// Writes the status if it differs, then tells the changes as events.
///
/// # Errors
/// [`ReconcileError::Api`].
pub async fn write(
    context: &Context,
    snapshot: &CacheSnapshot,
    outcome: &Outcome,
) -> Result<(), ReconcileError> {
    let wanted = conditions(outcome, &snapshot.spec.pool_ref.name);
    let status = next(snapshot, &wanted, outcome, (context.now)());
    let old = snapshot.status.clone().unwrap_or_default();
    if status == old {
        return Ok(());
    }
    if status_patch::write(context, snapshot, &status).await? {
        let changes = changed(&old.conditions, &wanted);
        context.publish(&snapshot.object_ref(&()), &changes).await;
    }
    Ok(())
}
