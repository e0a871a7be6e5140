//! Deciding what concerns quotas that tenants share: set and delete.

use larder_types::{QuotaName, Reason};

use super::{Outcome, Stop, refuse};
use crate::leader::Leader;
use crate::op::Op;
use crate::reply::{Reply, WaitOn};
use crate::request::QuotaPolicy;
use crate::state::State;

/// Refuses a guarantee of more than may be held: it would be kept from others for nothing.
pub(super) fn within_limit(guaranteed_bytes: u64, limit_bytes: Option<u64>) -> Result<(), Stop> {
    match limit_bytes.filter(|limit_bytes| guaranteed_bytes > *limit_bytes) {
        None => Ok(()),
        Some(limit_bytes) => {
            let detail =
                format!("guaranteed {guaranteed_bytes}, limit {limit_bytes}: raise the limit");
            refuse(Reason::BadArgument, detail)
        }
    }
}

impl Leader {
    pub(super) fn quota_set(
        &self,
        state: &State,
        quota: &QuotaName,
        policy: &QuotaPolicy,
    ) -> Outcome {
        self.quota_untouched(quota)?;
        within_limit(policy.guaranteed_bytes, policy.limit_bytes)?;
        match state.quota(quota) {
            Some(held) if held == policy => return Ok(self.answer(Reply::Done)),
            Some(_) => {}
            None => {
                // As many as tenants: a quota of nobody is of no use.
                let new = |name: &&QuotaName| state.quota(name).is_none();
                let coming = self.overlay.quotas.iter().filter(new).count();
                let (held, most) = (state.quotas.len() + coming, self.settings.max_tenants);
                if held >= most {
                    return refuse(Reason::Overloaded, format!("{held} quotas, at most {most}"));
                }
            }
        }
        let op = Op::QuotaSet {
            quota: quota.clone(),
            policy: policy.clone(),
        };
        Ok(self.answer_with(vec![op], Reply::Done))
    }

    /// One that is not there is deleted already.
    pub(super) fn quota_delete(&self, state: &State, quota: &QuotaName) -> Outcome {
        self.quota_untouched(quota)?;
        if state.quota(quota).is_none() {
            return Ok(self.answer(Reply::Done));
        }
        let op = Op::QuotaDelete {
            quota: quota.clone(),
        };
        Ok(self.answer_with(vec![op], Reply::Done))
    }

    fn quota_untouched(&self, quota: &QuotaName) -> Result<(), Stop> {
        if self.overlay.quotas.contains(quota) {
            return Err(Stop::Wait(WaitOn::Quota(quota.clone())));
        }
        Ok(())
    }
}
