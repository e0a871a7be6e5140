//! The status of a tenant: pure until the one patch, which is sent only when something differs.

use kube::Resource;
use larder_crds::{CachePool, CacheTenant, CacheTenantStatus, TenantSettings, rounded};

use super::apply::Answer;
use super::claims::Refusal;
use super::observe::Seen;
use crate::conditions::{Wanted, changed, guaranteed, merge};
use crate::context::Context;
use crate::error::ReconcileError;
use crate::master_api::{MasterView, Usage, coarse};
use crate::quota::shares::Shares;
use crate::reasons::{ConditionType, Reason};
use crate::status_patch;

/// What became of the spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It cannot be carried out.
    Refused(Refusal),
    /// It was carried out, and the master said this.
    Applied(Box<TenantSettings>, Answer),
}

impl Outcome {
    /// Whether the API server refuses what is needed.
    #[must_use]
    pub fn is_refused_by_api(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.reason == Reason::ApiRefused)
    }

    /// An error that people must deal with, as a condition; others come back.
    ///
    /// # Errors
    /// Every error that another try may cure.
    pub fn of_error(error: ReconcileError) -> Result<Self, ReconcileError> {
        let (reason, message) = error.for_people()?;
        Ok(Self::Refused(Refusal { reason, message }))
    }
}

/// The conditions of a tenant.
#[must_use]
pub fn conditions(outcome: &Outcome, seen: &Seen) -> Vec<Wanted> {
    use ConditionType::{Accepted, Ready};
    let (settings, answer) = match outcome {
        Outcome::Refused(refusal) => {
            let accepted = Wanted::new(Accepted, false, refusal.reason, refusal.message.clone());
            let message = "the tenant is not accepted";
            return vec![
                accepted,
                Wanted::new(Ready, false, Reason::NotAccepted, message),
            ];
        }
        Outcome::Applied(settings, answer) => (settings, answer),
    };
    let message = format!(
        "it is {} in pool {}",
        settings.tenant_id, settings.pool_name
    );
    let accepted = Wanted::new(Accepted, true, Reason::Accepted, message);
    let mut wanted = vec![accepted, quota_condition(settings, &seen.shares)];
    let looks = seen.looks.as_ref();
    let known = looks.and_then(|looks| looks.now.tenants.get(&settings.tenant_id));
    wanted.extend(guaranteed(
        settings.figures.guaranteed_bytes,
        seen.shares.refuses_tenant(&settings.name),
        known.map(|known| {
            (
                known.figures.guaranteed_bytes,
                known.effective_guaranteed_bytes,
            )
        }),
    ));
    wanted.push(ready(
        seen.pool.as_deref(),
        answer,
        "the master serves the tenant",
    ));
    wanted
}

fn quota_condition(settings: &TenantSettings, shares: &Shares) -> Wanted {
    let wanted = |status, reason, message: String| {
        Wanted::new(ConditionType::QuotaBound, status, reason, message)
    };
    let shared = settings.quota_of(&shares.quotas).map(|quota| &quota.name);
    match (&settings.quota_name, shared) {
        (Some(named), shared) if shared != Some(named) => {
            let message = format!("no CacheQuota {named} of the pool names this tenant");
            wanted(false, Reason::QuotaNotFound, message)
        }
        (_, Some(shared)) => {
            let message = format!("it shares CacheQuota {shared}");
            wanted(true, Reason::QuotaShared, message)
        }
        (_, None) => {
            let message = "no CacheQuota names it".to_owned();
            wanted(false, Reason::NoQuota, message)
        }
    }
}

/// Whether the master of a pool holds what it was told.
#[must_use]
pub fn ready(pool: Option<&CachePool>, answer: &Answer, serves: &str) -> Wanted {
    use ConditionType::Ready;
    let leaves = |pool: &CachePool| pool.metadata.deletion_timestamp.is_some();
    if pool.is_some_and(leaves) {
        let message = "the pool is being deleted";
        return Wanted::new(Ready, false, Reason::PoolDeleting, message);
    }
    match answer {
        Answer::Serving => Wanted::new(Ready, true, Reason::Serving, serves),
        Answer::Silent(why) => Wanted::new(Ready, false, Reason::MasterNotReached, why.clone()),
        Answer::Refused(why) => Wanted::new(Ready, false, Reason::MasterRefused, why.clone()),
    }
}

/// The new status, from the old one.
#[must_use]
pub fn next(
    tenant: &CacheTenant,
    wanted: &[Wanted],
    outcome: &Outcome,
    seen: &Seen,
    now: jiff::Timestamp,
) -> CacheTenantStatus {
    let old = tenant.status.clone().unwrap_or_default();
    let generation = tenant.metadata.generation;
    let mut status = CacheTenantStatus {
        observed_generation: generation,
        conditions: merge(&old.conditions, wanted, generation, now),
        ..CacheTenantStatus::default()
    };
    let Outcome::Applied(settings, _) = outcome else {
        return status;
    };
    let id = &settings.tenant_id;
    status.tenant_id = Some(id.clone());
    let shared = settings.quota_of(&seen.shares.quotas);
    status.quota = shared.map(|quota| quota.name.clone());
    let looks = seen.looks.as_ref();
    let usage_now = looks.and_then(|looks| usage(&looks.now, id));
    // Of a guarantee only: else a figure without meaning would stand in every status.
    status.effective_bytes = match looks.and_then(|looks| looks.now.tenants.get(id)) {
        Some(known) => {
            Some(known.effective_guaranteed_bytes).filter(|_| known.figures.guaranteed_bytes > 0)
        }
        None => old.effective_bytes,
    };
    let shown = old.used_bytes.zip(old.objects);
    let shown = shown.map(|(used_bytes, objects)| Usage {
        used_bytes,
        objects,
    });
    let usage = match usage_now {
        Some(now) => {
            let before = looks.and_then(|looks| looks.before.as_deref());
            Some(coarse(
                shown,
                before.and_then(|before| usage(before, id)),
                now,
            ))
        }
        // What was last known; the condition says that it is old.
        None => shown,
    };
    status.used_bytes = usage.map(|usage| usage.used_bytes);
    status.used = status.used_bytes.map(rounded);
    status.objects = usage.map(|usage| usage.objects);
    status
}

fn usage(view: &MasterView, id: &str) -> Option<Usage> {
    let tenant = view.tenants.get(id)?;
    Some(Usage {
        used_bytes: tenant.used_bytes,
        objects: tenant.objects,
    })
}

/// Writes the status if it differs, then tells the changes as events.
///
/// # Errors
/// [`ReconcileError::Api`].
pub async fn write(
    context: &Context,
    tenant: &CacheTenant,
    outcome: &Outcome,
    seen: &Seen,
) -> Result<(), ReconcileError> {
    let wanted = conditions(outcome, seen);
    let status = next(tenant, &wanted, outcome, seen, (context.now)());
    let old = tenant.status.clone().unwrap_or_default();
    if status == old {
        return Ok(());
    }
    if status_patch::write(context, tenant, &status).await? {
        let changes = changed(&old.conditions, &wanted);
        context.publish(&tenant.object_ref(&()), &changes).await;
    }
    Ok(())
}
