//! Which tenants share which quota, and in a strict pool whose guarantees fit. Pure.
//!
//! The one owner of what a master is told of figures: tenants and quotas both ask here, and so do
//! the files from which a master starts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt;
use larder_crds::{CachePool, CacheQuota, CacheTenant, Overcommit, QuotaSettings, TenantSettings};

use crate::context::Context;
use crate::master_api::{PolicyFigures, QuotaPolicy, TenantPolicy};
use crate::names::PoolId;
use crate::tenant::claims;

/// Most quotas of one pool, oldest first: 256 of at most 500 bytes fit a ConfigMap beside its
/// tenants.
pub const QUOTAS_MAX: usize = 256;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// The quotas that count: sound, not leaving, oldest first, at most [`QUOTAS_MAX`].
    pub quotas: Vec<QuotaSettings>,
    /// Names of CacheTenants whose guarantees do not fit any more.
    refused_tenants: BTreeSet<String>,
    /// The same of CacheQuotas.
    refused_quotas: BTreeSet<String>,
}

impl Shares {
    /// Of a pool as the watches know it.
    #[must_use]
    pub fn of(context: &Context, pool: &CachePool) -> Self {
        let id = PoolId::of(pool);
        let quotas = context.stores.quotas_of(&id.namespace, &id.name);
        let is_strict = pool.spec.quotas.overcommit == Overcommit::Refuse;
        // Only a strict pool has to look at all tenants for each of them.
        let tenants = if is_strict {
            context.stores.tenants_of(&id.namespace, &id.name)
        } else {
            Vec::new()
        };
        let reserved = claims::reserved(&id, &context.service_account());
        Self::judge(pool, &tenants, &reserved, &quotas)
    }

    /// The same from lists.
    #[must_use]
    pub fn judge(
        pool: &CachePool,
        tenants: &[Arc<CacheTenant>],
        reserved: &[String],
        quotas: &[Arc<CacheQuota>],
    ) -> Self {
        let mut quotas: Vec<&CacheQuota> = quotas.iter().map(Arc::as_ref).collect();
        quotas.sort_by_key(|quota| age(*quota));
        let alive = quotas
            .iter()
            .filter(|q| q.metadata.deletion_timestamp.is_none());
        let sound: Vec<(Age<'_>, QuotaSettings)> = alive
            .filter_map(|quota| Some((age(*quota), quota.settings().ok()?)))
            .take(QUOTAS_MAX)
            .collect();
        let mut shares = Self {
            quotas: sound.iter().map(|(_, settings)| settings.clone()).collect(),
            ..Self::default()
        };
        let strict = pool.spec.quotas.overcommit == Overcommit::Refuse;
        if let Some((whole, slab)) = promised_bytes(pool).filter(|_| strict) {
            shares.refuse(tenants, reserved, &sound, whole, slab);
        }
        shares
    }

    /// Goes through all guarantees from the oldest on and refuses those that do not fit.
    fn refuse(
        &mut self,
        tenants: &[Arc<CacheTenant>],
        reserved: &[String],
        quotas: &[(Age<'_>, QuotaSettings)],
        whole: u64,
        slab: u64,
    ) {
        let accepted = claims::accepted(tenants, reserved);
        let ages: BTreeMap<&str, Age<'_>> = tenants
            .iter()
            .map(|tenant| {
                (
                    tenant.metadata.name.as_deref().unwrap_or_default(),
                    age(&**tenant),
                )
            })
            .collect();
        let of_tenants = accepted.iter().map(|tenant| {
            let age = ages.get(tenant.name.as_str()).copied().unwrap_or_default();
            (age, Claim::Tenant(tenant))
        });
        let of_quotas = quotas
            .iter()
            .map(|(age, quota)| (*age, Claim::Quota(quota)));
        let mut claims: Vec<_> = of_quotas.chain(of_tenants).collect();
        claims.sort_by_key(|(age, _)| *age);
        let mut units: BTreeMap<String, Unit> = BTreeMap::new();
        let mut given = 0u64;
        for (_, claim) in claims {
            let (name, before) = match claim {
                Claim::Tenant(tenant) => match tenant.quota_of(&self.quotas) {
                    Some(quota) => (format!("quota/{}", quota.name), None),
                    None => (format!("tenant/{}", tenant.name), None),
                },
                Claim::Quota(quota) => (format!("quota/{}", quota.name), Some(())),
            };
            let unit = units.get(&name).copied().unwrap_or_default();
            let mut then = unit;
            match (claim, before) {
                (Claim::Quota(quota), Some(())) => {
                    then.own = whole_slabs(quota.figures.guaranteed_bytes, slab);
                }
                (Claim::Tenant(tenant), _) => {
                    let wish = whole_slabs(tenant.figures.guaranteed_bytes, slab);
                    then.members = then.members.saturating_add(wish);
                }
                (Claim::Quota(_), None) => {}
            }
            let more = then.bytes().saturating_sub(unit.bytes());
            if given.saturating_add(more) <= whole {
                given = given.saturating_add(more);
                units.insert(name, then);
                continue;
            }
            match claim {
                Claim::Tenant(tenant) => self.refused_tenants.insert(tenant.name.clone()),
                Claim::Quota(quota) => self.refused_quotas.insert(quota.name.clone()),
            };
        }
    }

    /// What the master shall know of a tenant.
    #[must_use]
    pub fn tenant(&self, tenant: &TenantSettings) -> TenantPolicy {
        let mut figures = PolicyFigures::from(&tenant.figures);
        if self.refuses_tenant(&tenant.name) {
            figures.guaranteed_bytes = 0;
        }
        TenantPolicy {
            tenant: tenant.tenant_id.clone(),
            access: tenant.access,
            figures,
            view_bytes: tenant.view_bytes,
            cohort: tenant
                .quota_of(&self.quotas)
                .map(|quota| quota.name.clone()),
        }
    }

    /// What the master shall know of a quota.
    #[must_use]
    pub fn quota(&self, quota: &QuotaSettings) -> QuotaPolicy {
        let mut figures = PolicyFigures::from(&quota.figures);
        if self.refuses_quota(&quota.name) {
            figures.guaranteed_bytes = 0;
        }
        QuotaPolicy {
            quota: quota.name.clone(),
            figures,
        }
    }

    /// Whether the guarantee of the CacheTenant of this name does not fit.
    #[must_use]
    pub fn refuses_tenant(&self, name: &str) -> bool {
        self.refused_tenants.contains(name)
    }

    /// Whether the guarantee of the CacheQuota of this name does not fit.
    #[must_use]
    pub fn refuses_quota(&self, name: &str) -> bool {
        self.refused_quotas.contains(name)
    }
}

/// Who asks for a guarantee.
#[derive(Clone, Copy)]
enum Claim<'a> {
    Tenant(&'a TenantSettings),
    Quota(&'a QuotaSettings),
}

/// What a quota with its tenants, or a tenant without one, is guaranteed, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Unit {
    own: u64,
    members: u64,
}

impl Unit {
    fn bytes(self) -> u64 {
        self.own.max(self.members)
    }
}

/// Age first, then the name.
type Age<'a> = (Option<jiff::Timestamp>, &'a str);

fn age<K: kube::Resource>(object: &K) -> Age<'_> {
    let metadata = object.meta();
    let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
    (created, metadata.name.as_deref().unwrap_or_default())
}

/// What the spec promises on the nodes that the pool should have, and the size of a slab, both in
/// bytes. From the spec, not from what is mounted: a node that is off for an hour must not take
/// guarantees away and give them back. `None` until the number of nodes is known.
fn promised_bytes(pool: &CachePool) -> Option<(u64, u64)> {
    let settings = pool.settings().ok()?;
    let nodes = pool.status.as_ref()?.nodes.as_ref()?.desired;
    let slabs = settings.node_dram_bytes / settings.slab_bytes;
    let node = slabs.saturating_mul(settings.slab_bytes);
    Some((node.saturating_mul(u64::from(nodes)), settings.slab_bytes))
}

fn whole_slabs(bytes: u64, slab: u64) -> u64 {
    bytes.checked_next_multiple_of(slab).unwrap_or(bytes)
}

/// The name of a quota of a pool, with its namespace.
#[must_use]
pub fn key(quota: &CacheQuota) -> String {
    format!(
        "CacheQuota {}/{}",
        quota.namespace().unwrap_or_default(),
        quota.name_any()
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool(overcommit: &str, nodes: u32) -> CachePool {
        serde_json::from_value(json!({
            "apiVersion": "larder.dev/v1alpha1", "kind": "CachePool",
            "metadata": { "name": "p", "namespace": "apps", "uid": "u" },
            "spec": {
                "tiers": [{
                    "name": "memory", "medium": "Dram", "size": "64Mi", "slabSize": "16Mi",
                }],
                "quotas": { "overcommit": overcommit },
            },
            "status": { "nodes": { "desired": nodes, "ready": 0 } },
        }))
        .expect("a pool")
    }

    fn metadata(name: &str, created: u8) -> serde_json::Value {
        json!({
            "name": name, "namespace": "apps",
            "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z"),
        })
    }

    fn tenant(name: &str, created: u8, guaranteed: &str) -> Arc<CacheTenant> {
        Arc::new(
            serde_json::from_value(json!({
                "apiVersion": "larder.dev/v1alpha1", "kind": "CacheTenant",
                "metadata": metadata(name, created),
                "spec": { "poolRef": { "name": "p" }, "guaranteed": { "bytes": guaranteed } },
            }))
            .expect("a tenant"),
        )
    }

    fn quota(name: &str, created: u8, guaranteed: &str, tenants: &[&str]) -> Arc<CacheQuota> {
        Arc::new(
            serde_json::from_value(json!({
                "apiVersion": "larder.dev/v1alpha1", "kind": "CacheQuota",
                "metadata": metadata(name, created),
                "spec": {
                    "poolRef": { "name": "p" }, "tenants": tenants,
                    "guaranteed": { "bytes": guaranteed },
                },
            }))
            .expect("a quota"),
        )
    }

    #[test]
    fn the_oldest_quota_has_a_tenant() {
        let quotas = [
            quota("young", 2, "1", &["a"]),
            quota("old", 1, "1", &["a", "b"]),
        ];
        let shares = Shares::judge(&pool("Warn", 1), &[], &[], &quotas);
        let names: Vec<_> = shares
            .quotas
            .iter()
            .map(|quota| quota.name.as_str())
            .collect();
        assert_eq!(names, ["old", "young"]);
        let of = |name: &str| {
            let settings = tenant(name, 1, "16Mi").settings().expect("sound");
            shares.tenant(&settings)
        };
        assert_eq!(of("a").cohort.as_deref(), Some("old"));
        assert_eq!(of("c").cohort, None);
        assert_eq!(of("c").figures.guaranteed_bytes, 16 << 20);
    }

    #[test]
    fn a_strict_pool_gives_the_youngest_nothing() {
        // 64 MiB in all, in slabs of 16 MiB.
        let tenants = [
            tenant("a", 1, "20Mi"),
            tenant("late", 5, "1"),
            tenant("member", 3, "16Mi"),
            tenant("large", 2, "48Mi"),
        ];
        let quotas = [quota("team", 4, "32Mi", &["member"])];
        let shares = Shares::judge(&pool("Refuse", 1), &tenants, &[], &quotas);
        // a 32, then large does not fit, member 16, team 16 more, and nothing is left.
        for (name, refused) in [
            ("a", false),
            ("large", true),
            ("member", false),
            ("late", true),
        ] {
            assert_eq!(shares.refuses_tenant(name), refused, "{name}");
        }
        assert!(!shares.refuses_quota("team"));
        let late = tenants[1].settings().expect("sound");
        assert_eq!(shares.tenant(&late).figures.guaranteed_bytes, 0);
        let more = Shares::judge(&pool("Refuse", 2), &tenants, &[], &quotas);
        assert!(!more.refuses_tenant("late") && !more.refuses_tenant("large"));
        let warned = Shares::judge(&pool("Warn", 1), &tenants, &[], &quotas);
        assert!(!warned.refuses_tenant("late"));
    }
}
