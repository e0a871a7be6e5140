//! Writing a quota: its figures into the master.

use super::observe::Seen;
use crate::context::Context;
use crate::master_api::{MasterError, QuotaPolicy};
use crate::names::PoolId;
use crate::tenant::apply::Answer;

/// Tells the master when its last look does not show these figures: after a change, and after a
/// restart for which its file of quotas came too late.
pub async fn apply(context: &Context, pool: &PoolId, policy: &QuotaPolicy, seen: &Seen) -> Answer {
    let Some(looks) = &seen.looks else {
        return Answer::Silent(format!(
            "the master of pool {} does not answer yet",
            pool.name
        ));
    };
    let known = looks.now.quotas.get(&policy.quota);
    if known.is_some_and(|known| known.figures == policy.figures) {
        return Answer::Serving;
    }
    match context.master_api.set_quota(pool, policy).await {
        Ok(()) => Answer::Serving,
        Err(error) => {
            let text = larder_telemetry::error_chain(&error);
            match error {
                MasterError::Refused { .. } if !error.is_retryable() => Answer::Refused(text),
                _ => Answer::Silent(text),
            }
        }
    }
}
