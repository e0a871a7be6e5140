//! Which tenants of a pool are accepted: ids and ServiceAccounts belong to the oldest claimant.
//!
//! One ServiceAccount is one tenant of a pool, since a token is all that a client shows. Pure, and
//! written twice on purpose: for a whole pool in one pass, and for one tenant without sorting
//! thousands; a property test keeps the two equal.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;
use larder_crds::{CacheTenant, TenantSettings};

use crate::names::PoolId;
use crate::reasons::Reason;

/// Most bytes of the identity ConfigMap's entries; the API server takes 1 MiB, and the roles and
/// brackets need a few hundred.
const IDENTITY_BYTES_MAX: usize = 900_000;
/// An entry of the identity file without id and account.
const ENTRY_BYTES: usize = 64;
/// An entry of the tenants file without the id: names of keys, four numbers and a quota's name.
const POLICY_BYTES: usize = 290;
/// What a guarantee and other figures add to it.
const FIGURES_BYTES: usize = 150;

/// Why a tenant is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason of the condition.
    pub reason: Reason,
    /// A sentence with the names.
    pub message: String,
}

/// ServiceAccounts that are roles of this pool, as `namespace/name`.
#[must_use]
pub fn reserved(pool: &PoolId, operator_account: &str) -> [String; 3] {
    let own = |name: String| format!("{}/{name}", pool.namespace);
    [
        own(pool.master()),
        own(pool.agent()),
        operator_account.to_owned(),
    ]
}

/// What the tenant's spec alone says against it.
fn own_refusal(tenant: &CacheTenant, reserved: &[String]) -> Result<TenantSettings, Refusal> {
    let settings = tenant.settings().map_err(|problems| Refusal {
        reason: Reason::InvalidSpec,
        message: problems.to_string(),
    })?;
    for account in subjects(tenant) {
        if reserved.contains(&account) {
            let message = format!("ServiceAccount {account} belongs to Larder itself");
            return Err(Refusal {
                reason: Reason::SubjectReserved,
                message,
            });
        }
    }
    Ok(settings)
}

/// Whether `tenant` is accepted among `all` tenants of its pool (itself included or not).
///
/// # Errors
/// The first [`Refusal`].
pub fn judge(
    tenant: &CacheTenant,
    all: &[Arc<CacheTenant>],
    reserved: &[String],
) -> Result<TenantSettings, Refusal> {
    let settings = own_refusal(tenant, reserved)?;
    let (order, id, mine) = (order(tenant), id(tenant), subjects(tenant));
    let mut bytes = size_bytes(tenant);
    // The oldest claimant is told, so that the message does not change with the order of a list.
    let mut by_id: Option<&CacheTenant> = None;
    let mut by_subject: Option<(&CacheTenant, String)> = None;
    for other in all.iter().map(Arc::as_ref) {
        if self::order(other) >= order {
            continue;
        }
        bytes += size_bytes(other);
        if self::id(other) == id
            && by_id.is_none_or(|known| self::order(other) < self::order(known))
        {
            by_id = Some(other);
        }
        if let Some(shared) = subjects(other)
            .into_iter()
            .find(|account| mine.contains(account))
            && by_subject
                .as_ref()
                .is_none_or(|(known, _)| self::order(other) < self::order(known))
        {
            by_subject = Some((other, shared));
        }
    }
    if let Some(other) = by_id {
        let message = format!("CacheTenant {} already has the id {id}", other.name_any());
        return Err(Refusal {
            reason: Reason::TenantIdTaken,
            message,
        });
    }
    if let Some((other, account)) = by_subject {
        let message = format!("CacheTenant {} already names {account}", other.name_any());
        return Err(Refusal {
            reason: Reason::SubjectTaken,
            message,
        });
    }
    if bytes > IDENTITY_BYTES_MAX {
        let message = format!("the tenants up to this one need {bytes} bytes");
        return Err(Refusal {
            reason: Reason::PoolFull,
            message,
        });
    }
    Ok(settings)
}

/// Whether the id of `tenant` is its own: no older claimant has it. Only then may its bytes at the
/// master be removed with it.
#[must_use]
pub fn owns_id(tenant: &CacheTenant, all: &[Arc<CacheTenant>]) -> bool {
    let mut others = all.iter().map(Arc::as_ref);
    !others.any(|other| id(other) == id(tenant) && order(other) < order(tenant))
}

/// The id of a tenant in its pool, checked or not.
#[must_use]
pub fn id(tenant: &CacheTenant) -> String {
    let spelled = tenant.spec.tenant_id.clone();
    spelled.unwrap_or_else(|| {
        format!(
            "{}.{}",
            tenant.namespace().unwrap_or_default(),
            tenant.name_any()
        )
    })
}

/// The accepted ones of all tenants of one pool, oldest first.
#[must_use]
pub fn accepted(all: &[Arc<CacheTenant>], reserved: &[String]) -> Vec<TenantSettings> {
    let mut tenants: Vec<&CacheTenant> = all.iter().map(Arc::as_ref).collect();
    tenants.sort_by_key(|tenant| order(tenant));
    let mut ids: BTreeMap<String, ()> = BTreeMap::new();
    let mut accounts: BTreeMap<String, ()> = BTreeMap::new();
    let mut bytes = 0;
    let mut accepted = Vec::new();
    for tenant in tenants {
        bytes += size_bytes(tenant);
        // Claims count even of a tenant that is refused: else a change of one could make another
        // tenant's clients somebody else from one moment to the next. And of one that is being
        // deleted: until the master has forgotten it, its bytes are there under its id.
        let id_is_free = ids.insert(id(tenant), ()).is_none();
        let mut accounts_are_free = true;
        for account in subjects(tenant) {
            accounts_are_free &= accounts.insert(account, ()).is_none();
        }
        if is_alive(tenant)
            && id_is_free
            && accounts_are_free
            && bytes <= IDENTITY_BYTES_MAX
            && let Ok(settings) = own_refusal(tenant, reserved)
        {
            accepted.push(settings);
        }
    }
    accepted
}

fn is_alive(tenant: &CacheTenant) -> bool {
    tenant.metadata.deletion_timestamp.is_none()
}

/// Age first, then the name, which is unique among the tenants of one pool.
fn order(tenant: &CacheTenant) -> (Option<jiff::Timestamp>, &str) {
    let created = tenant
        .metadata
        .creation_timestamp
        .as_ref()
        .map(|time| time.0);
    (created, tenant.metadata.name.as_deref().unwrap_or_default())
}

/// Its ServiceAccounts as `namespace/name`, each once.
fn subjects(tenant: &CacheTenant) -> Vec<String> {
    let own = tenant.metadata.namespace.as_deref().unwrap_or_default();
    let accounts = tenant
        .spec
        .subjects
        .iter()
        .map(|subject| &subject.service_account);
    let mut accounts: Vec<String> = accounts
        .map(|a| format!("{}/{}", a.namespace.as_deref().unwrap_or(own), a.name))
        .collect();
    accounts.sort();
    accounts.dedup();
    accounts
}

fn size_bytes(tenant: &CacheTenant) -> usize {
    let id = id(tenant).len();
    let entries = subjects(tenant)
        .iter()
        .map(|account| account.len() + id + ENTRY_BYTES)
        .sum();
    let spec = &tenant.spec;
    let has_figures = spec.guaranteed.is_some()
        || spec.pinned.is_some()
        || spec.borrowing.is_some()
        || spec.on_exceed.is_some();
    let figures = if has_figures { FIGURES_BYTES } else { 0 };
    usize::max(entries, id + POLICY_BYTES + figures)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn tenant(name: &str, created: u8, id: Option<&str>, accounts: &[&str]) -> Arc<CacheTenant> {
        let subjects: Vec<_> = accounts
            .iter()
            .map(|name| json!({"serviceAccount": {"name": name}}))
            .collect();
        let mut object = json!({
            "apiVersion": "larder.dev/v1alpha1", "kind": "CacheTenant",
            "metadata": {
                "name": name, "namespace": "apps",
                "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z"),
            },
            "spec": { "poolRef": { "name": "p" }, "subjects": subjects },
        });
        if let Some(id) = id {
            object["spec"]["tenantId"] = json!(id);
        }
        Arc::new(serde_json::from_value(object).expect("a tenant"))
    }

    fn reason(tenant: &CacheTenant, all: &[Arc<CacheTenant>]) -> Option<Reason> {
        let reserved = ["apps/p-master".to_owned()];
        judge(tenant, all, &reserved)
            .err()
            .map(|refusal| refusal.reason)
    }

    #[test]
    fn the_oldest_claimant_wins() {
        let all = [
            tenant("b", 1, Some("x"), &["one"]),
            tenant("a", 2, Some("x"), &["two"]),
            tenant("c", 3, Some("y"), &["one"]),
            tenant("d", 4, None, &["p-master"]),
            tenant("e", 5, Some("_bad"), &[]),
            tenant("f", 6, None, &["three", "three"]),
        ];
        let reasons: Vec<_> = all.iter().map(|tenant| reason(tenant, &all)).collect();
        let expected = [
            None,
            Some(Reason::TenantIdTaken),
            Some(Reason::SubjectTaken),
            Some(Reason::SubjectReserved),
            Some(Reason::InvalidSpec),
            None,
        ];
        assert_eq!(reasons, expected);
    }

    #[test]
    fn a_tenant_that_is_being_deleted_keeps_its_claims_and_proves_nothing() {
        let mut first = tenant("a", 1, Some("x"), &["one"]);
        let second = tenant("b", 2, Some("x"), &["one"]);
        let time = first.metadata.creation_timestamp.clone();
        Arc::make_mut(&mut first).metadata.deletion_timestamp = time;
        let all = [first.clone(), second.clone()];
        assert_eq!(reason(&second, &all), Some(Reason::TenantIdTaken));
        assert!(accepted(&all, &[]).is_empty());
        assert!(owns_id(&first, &all) && !owns_id(&second, &all));
        assert_eq!(reason(&second, std::slice::from_ref(&second)), None);
    }

    #[test]
    fn the_identity_file_has_a_bound() {
        let long = "s".repeat(253);
        let many: Vec<_> = (0..64)
            .map(|at| format!("{}{at:02}", &long[..251]))
            .collect();
        let accounts: Vec<_> = many.iter().map(String::as_str).collect();
        let mut all = Vec::new();
        for at in 0..60 {
            let namespace = format!("n{at}");
            let mut one = tenant(&format!("t{at:02}"), at, None, &accounts);
            let own = Arc::make_mut(&mut one);
            for subject in &mut own.spec.subjects {
                subject.service_account.namespace = Some(namespace.clone());
            }
            all.push(one);
        }
        let fit = accepted(&all, &[]).len();
        assert!(fit < 60 && fit > 20, "{fit}");
        assert_eq!(reason(&all[fit], &all), Some(Reason::PoolFull));
    }

    proptest! {
        #[test]
        fn both_ways_agree(
            rows in prop::collection::vec(
                (0..4u8, 0..5u8, prop::collection::vec(0..6u8, 0..3)),
                0..9,
            )
        ) {
            let all: Vec<_> = rows.iter().enumerate().map(|(at, (created, id, accounts))| {
                let accounts: Vec<_> = accounts.iter().map(|a| format!("s{a}")).collect();
                let accounts: Vec<_> = accounts.iter().map(String::as_str).collect();
                let id = format!("id{id}");
                tenant(&format!("t{at}"), *created, (id != "id4").then_some(&id), &accounts)
            }).collect();
            let reserved = ["apps/s5".to_owned()];
            let one_by_one = all.iter().filter_map(|t| judge(t, &all, &reserved).ok());
            let mut one_by_one: Vec<_> = one_by_one.map(|settings| settings.name).collect();
            let mut at_once: Vec<_> =
                accepted(&all, &reserved).into_iter().map(|settings| settings.name).collect();
            one_by_one.sort();
            at_once.sort();
            prop_assert_eq!(one_by_one, at_once);
        }
    }
}
