//! What the admin port is told of quotas.

use larder_types::{QuotaName, Reason, TenantId};
use larder_wire::CallError;
use serde_json::{Value, json};

use super::Leading;
use crate::event::AdminAnswer;
use crate::log::Log;
use crate::{quota, rpc};

/// A document of a wire type. These serialize always; if one did not, it is our fault.
fn document(value: &impl serde::Serialize) -> AdminAnswer {
    serde_json::to_value(value).map_err(|error| CallError {
        reason: Reason::Internal,
        detail: error.to_string(),
    })
}

impl<L: Log> Leading<L> {
    /// The same document that the tenant itself gets.
    pub(super) fn tenant_quota(&mut self, tenant: &TenantId) -> AdminAnswer {
        let core = &mut self.core;
        let Some(usage) = core.leader.usage_of(&core.state, tenant) else {
            return Err(CallError {
                reason: Reason::TenantUnknown,
                detail: format!("tenant {tenant}"),
            });
        };
        document(&rpc::tenant_usage(
            tenant,
            &usage,
            &self.core.desk(&self.agents),
        ))
    }

    pub(super) fn quota(&mut self, name: &QuotaName) -> AdminAnswer {
        let core = &mut self.core;
        match core.leader.cohort_report(&core.state, name) {
            Some(report) => document(&quota::of_cohort(&report)),
            None => Err(CallError {
                reason: Reason::NotFound,
                detail: format!("quota {name}"),
            }),
        }
    }

    pub(super) fn quotas(&mut self) -> Value {
        let core = &mut self.core;
        let names: Vec<QuotaName> = core.state.quotas().map(|(name, _)| name.clone()).collect();
        let reports = names
            .iter()
            .filter_map(|name| core.leader.cohort_report(&core.state, name))
            .map(|report| quota::of_cohort(&report));
        json!({ "quotas": reports.collect::<Vec<_>>() })
    }
}
