//! Deciding what concerns tenants: set and delete.

use larder_types::{Reason, TenantId};

use super::quota::within_limit;
use super::{Outcome, Stop, refuse};
use crate::leader::Leader;
use crate::op::Op;
use crate::reply::{Reply, WaitOn};
use crate::request::TenantPolicy;
use crate::state::State;

impl Leader {
    pub(super) fn tenant_set(
        &mut self,
        state: &State,
        id: &TenantId,
        policy: &TenantPolicy,
    ) -> Outcome {
        self.tenant_untouched(id)?;
        within_limit(policy.guaranteed_bytes, policy.limit_bytes)?;
        match state.tenant(id) {
            Some(tenant) if tenant.deleting => {
                let left = tenant.objects.len();
                return refuse(Reason::TenantHasObjects, format!("{left} objects are left"));
            }
            Some(tenant) if tenant.policy == *policy => return Ok(self.answer(Reply::Done)),
            Some(_) => {}
            None => {
                let (held, most) = (state.tenants.len(), self.settings.max_tenants);
                if held >= most {
                    return refuse(
                        Reason::Overloaded,
                        format!("{held} tenants, at most {most}"),
                    );
                }
            }
        }
        let op = Op::TenantSet {
            tenant: id.clone(),
            policy: policy.clone(),
        };
        Ok(self.answer_with(vec![op], Reply::Done))
    }

    /// Answers when nobody reaches the tenant's objects any more; they are removed in steps by
    /// [`Leader::tick`]. A tenant that is not there is deleted already.
    pub(super) fn tenant_delete(&mut self, state: &State, id: &TenantId) -> Outcome {
        self.tenant_untouched(id)?;
        if state.tenant(id).is_none_or(|tenant| tenant.deleting) {
            return Ok(self.answer(Reply::Done));
        }
        Ok(self.answer_with(vec![Op::TenantDelete { tenant: id.clone() }], Reply::Done))
    }

    fn tenant_untouched(&self, id: &TenantId) -> Result<(), Stop> {
        match self.overlay.tenant_op(id) {
            Some(_) => Err(Stop::Wait(WaitOn::Tenant(id.clone()))),
            None => Ok(()),
        }
    }
}
