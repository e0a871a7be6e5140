//! The status of a quota: pure until the one patch, which is sent only when something differs.

use kube::Resource;
use larder_crds::{
    CacheQuota, CacheQuotaStatus, MAX_ROWS, QuotaRow, QuotaSettings, TenantChoice, rounded,
};

use super::observe::Seen;
use crate::conditions::{Wanted, changed, guaranteed, merge, named};
use crate::context::Context;
use crate::error::ReconcileError;
use crate::master_api::{MasterView, Usage, coarse};
use crate::reasons::{ConditionType, Reason};
use crate::status_patch;
use crate::tenant::apply::Answer;
use crate::tenant::claims::Refusal;
use crate::tenant::status::ready;

/// What became of the spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It cannot be carried out.
    Refused(Refusal),
    /// It was carried out, and the master said this.
    Applied(QuotaSettings, Answer),
}

/// The conditions of a quota.
#[must_use]
pub fn conditions(outcome: &Outcome, seen: &Seen) -> Vec<Wanted> {
    use ConditionType::{Accepted, Ready, TenantsBound};
    let (settings, answer) = match outcome {
        Outcome::Refused(refusal) => {
            let accepted = Wanted::new(Accepted, false, refusal.reason, refusal.message.clone());
            let message = "the quota is not accepted";
            return vec![
                accepted,
                Wanted::new(Ready, false, Reason::NotAccepted, message),
            ];
        }
        Outcome::Applied(settings, answer) => (settings, answer),
    };
    let message = format!("it bounds tenants of pool {}", settings.pool_name);
    let mut wanted = vec![Wanted::new(Accepted, true, Reason::Accepted, message)];
    let missing: Vec<&String> = match &settings.tenants {
        TenantChoice::Labelled(_) => Vec::new(),
        TenantChoice::Named(names) => {
            let is_bound = |name: &String| seen.bound.iter().any(|bound| bound.name == *name);
            names.iter().filter(|name| !is_bound(name)).collect()
        }
    };
    wanted.push(if missing.is_empty() {
        let message = "every tenant that it names shares it";
        Wanted::new(TenantsBound, true, Reason::AllBound, message)
    } else {
        let names = named(missing.into_iter());
        let message = format!("not accepted in this pool, or bound by another quota: {names}");
        Wanted::new(TenantsBound, false, Reason::TenantsMissing, message)
    });
    let known = seen.looks.as_ref();
    let known = known.and_then(|looks| looks.now.quotas.get(&settings.name));
    wanted.extend(guaranteed(
        settings.figures.guaranteed_bytes,
        seen.shares.refuses_quota(&settings.name),
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
        "the master holds its tenants to it",
    ));
    wanted
}

/// The new status, from the old one.
#[must_use]
pub fn next(
    quota: &CacheQuota,
    wanted: &[Wanted],
    outcome: &Outcome,
    seen: &Seen,
    now: jiff::Timestamp,
) -> CacheQuotaStatus {
    let old = quota.status.clone().unwrap_or_default();
    let generation = quota.metadata.generation;
    let mut status = CacheQuotaStatus {
        observed_generation: generation,
        conditions: merge(&old.conditions, wanted, generation, now),
        ..CacheQuotaStatus::default()
    };
    let Outcome::Applied(settings, _) = outcome else {
        return status;
    };
    status.requested_bytes = Some(settings.figures.guaranteed_bytes);
    status.tenant_count = Some(u32::try_from(seen.bound.len()).unwrap_or(u32::MAX));
    let shown = old.used_bytes.zip(old.objects);
    let shown = shown.map(|(used_bytes, objects)| Usage {
        used_bytes,
        objects,
    });
    let looks = seen.looks.as_ref();
    let usage_now = looks.and_then(|looks| usage(&looks.now, &settings.name));
    let usage = match (looks, usage_now) {
        (Some(looks), Some(now)) => {
            let before = looks.before.as_deref();
            let before = before.and_then(|before| usage(before, &settings.name));
            status.effective_bytes = looks
                .now
                .quotas
                .get(&settings.name)
                .map(|known| known.effective_guaranteed_bytes);
            Some(coarse(shown, before, now))
        }
        // What was last known; the condition says that it is old.
        _ => {
            status.effective_bytes = old.effective_bytes;
            shown
        }
    };
    let names = seen.bound.iter().take(MAX_ROWS).map(|bound| &bound.name);
    let same_names = names.eq(old.tenants.iter().map(|row| &row.name));
    // Rows move only with the sum, or they would be written for every step of every tenant.
    status.tenants = if usage == shown && same_names {
        old.tenants
    } else {
        rows(seen)
    };
    status.used_bytes = usage.map(|usage| usage.used_bytes);
    status.used = status.used_bytes.map(rounded);
    status.objects = usage.map(|usage| usage.objects);
    status
}

fn usage(view: &MasterView, name: &str) -> Option<Usage> {
    let quota = view.quotas.get(name)?;
    Some(Usage {
        used_bytes: quota.charged_bytes,
        objects: quota.charged_objects,
    })
}

fn rows(seen: &Seen) -> Vec<QuotaRow> {
    let row = |bound: &super::Bound| {
        let looks = seen.looks.as_ref();
        let known = looks.and_then(|looks| looks.now.tenants.get(&bound.id));
        QuotaRow {
            name: bound.name.clone(),
            used_bytes: known.map_or(0, |known| known.used_bytes),
            objects: known.map_or(0, |known| known.objects),
        }
    };
    seen.bound.iter().take(MAX_ROWS).map(row).collect()
}

/// Writes the status if it differs, then tells the changes as events.
///
/// # Errors
/// [`ReconcileError::Api`].
pub async fn write(
    context: &Context,
    quota: &CacheQuota,
    outcome: &Outcome,
    seen: &Seen,
) -> Result<(), ReconcileError> {
    let wanted = conditions(outcome, seen);
    let status = next(quota, &wanted, outcome, seen, (context.now)());
    let old = quota.status.clone().unwrap_or_default();
    if status == old {
        return Ok(());
    }
    if status_patch::write(context, quota, &status).await? {
        let changes = changed(&old.conditions, &wanted);
        context.publish(&quota.object_ref(&()), &changes).await;
    }
    Ok(())
}
