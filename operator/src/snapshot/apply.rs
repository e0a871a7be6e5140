//! Having a snapshot taken: once, by the leader.

use kube::ResourceExt;
use larder_crds::{CacheSnapshot, SnapshotPhase};

use super::observe::Seen;
use crate::context::Context;
use crate::master_api::{MasterError, SnapshotDocument};

/// What the masters say of the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is there.
    Kept(SnapshotDocument),
    /// A master is at it.
    UnderWay(SnapshotDocument),
    /// It was not taken, for this reason.
    Failed(String),
    /// It was there and is so no more.
    Lost,
    /// Another one is being taken, or so many are kept that it has to wait.
    Waits(String),
    /// They could not be asked.
    Silent(String),
}

/// Looks for the snapshot, and has it taken where it never was.
pub async fn apply(context: &Context, snapshot: &CacheSnapshot, seen: &Seen) -> Answer {
    let Some(pool) = seen.pool_id() else {
        return Answer::Silent("the pool is gone".to_owned());
    };
    let name = snapshot.name_any();
    let look = match context.master_api.snapshot(&pool, &name).await {
        Ok(look) => look,
        Err(error) => return Answer::Silent(larder_telemetry::error_chain(&error)),
    };
    if let Some(found) = look.found {
        return told(found);
    }
    if seen.phase == Some(SnapshotPhase::Ready) {
        let (answered, masters) = (look.answered, seen.masters());
        if answered >= masters {
            return Answer::Lost;
        }
        let why = format!("{answered} of {masters} masters answer, and none of them has it");
        return Answer::Silent(why);
    }
    match context.master_api.take_snapshot(&pool, &name).await {
        Ok(begun) => told(begun),
        Err(error) => {
            let text = larder_telemetry::error_chain(&error);
            match error {
                // The next look shows what is in the way, or that it is there after all.
                MasterError::Refused { status: 409, .. } => Answer::Waits(text),
                MasterError::Refused { .. } if !error.is_retryable() => Answer::Failed(text),
                _ => Answer::Silent(text),
            }
        }
    }
}

fn told(found: SnapshotDocument) -> Answer {
    match found.phase.as_str() {
        "Ready" => Answer::Kept(found),
        "Failed" => Answer::Failed(found.reason),
        _ => Answer::UnderWay(found),
    }
}
