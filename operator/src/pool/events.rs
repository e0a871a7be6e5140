//! Whether the tenants exist whose events a pool publishes.

use std::collections::BTreeSet;

use larder_crds::{EventsSettings, TenantSettings};

use crate::conditions::{Wanted, named};
use crate::reasons::{ConditionType, Reason};

/// The condition of a pool with ZMQ endpoints; `None` without any. An endpoint of an unknown
/// tenant is no error: it is open and silent until there is one.
#[must_use]
pub fn condition(events: Option<&EventsSettings>, tenants: &[TenantSettings]) -> Option<Wanted> {
    let endpoints = events.map(|events| &events.zmq)?;
    if endpoints.is_empty() {
        return None;
    }
    let wanted = |status, reason, message: String| {
        Some(Wanted::new(
            ConditionType::EventsPublished,
            status,
            reason,
            message,
        ))
    };
    let is_known = |id: &str| tenants.iter().any(|tenant| tenant.tenant_id == id);
    let unknown: BTreeSet<&String> = endpoints
        .iter()
        .map(|endpoint| &endpoint.tenant)
        .filter(|id| !is_known(id))
        .collect();
    if unknown.is_empty() {
        let message = format!("{} endpoints publish events", endpoints.len());
        return wanted(true, Reason::EventTenantsKnown, message);
    }
    let names = named(unknown.into_iter());
    let message = format!("no accepted CacheTenant has the id of spec.events.zmq: {names}");
    wanted(false, Reason::EventTenantUnknown, message)
}
