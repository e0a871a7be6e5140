//! Deciding removals.

use larder_types::{Key, Reason, TenantId};

use super::{Outcome, Right, refuse};
use crate::leader::Leader;
use crate::op::{Op, RemovalCause};
use crate::reply::Reply;
use crate::state::State;

impl Leader {
    pub(super) fn remove(&mut self, state: &State, tenant: &TenantId, key: &Key) -> Outcome {
        let held = self.tenant(state, tenant, Right::Write)?;
        self.untouched(state, tenant, key)?;
        match (held.objects.get(key), self.overlay.pending(tenant, key)) {
            (Some(object), _) => {
                let version = object.version();
                let op = Op::Remove {
                    tenant: tenant.clone(),
                    key: key.clone(),
                    version,
                    cause: RemovalCause::Removed,
                };
                Ok(self.answer_with(vec![op], Reply::Done))
            }
            (None, Some(put)) => refuse(
                Reason::NotReady,
                format!("version {} is being written", put.version),
            ),
            (None, None) => refuse(Reason::NotFound, format!("key {key}")),
        }
    }
}
