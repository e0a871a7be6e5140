//! A file that describes one pool, its tenants and its quotas: what `larder up` starts from.

use std::collections::BTreeMap;

use crate::document::{Document, DocumentError, DocumentProblem, parse_documents};
use crate::problem::Problem;
use crate::settings::{PoolSettings, QuotaSettings, TenantChoice, TenantSettings};

#[cfg(test)]
mod tests;

/// One pool, its tenants and its quotas, in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolFile {
    /// The pool.
    pub pool: PoolSettings,
    /// Its tenants, in the order of the file. Ids and names are used once.
    pub tenants: Vec<TenantSettings>,
    /// The quotas that tenants share, in the order of the file. Names are used once.
    pub quotas: Vec<QuotaSettings>,
}

impl PoolFile {
    /// Reads a file with exactly one CachePool and any number of CacheTenants and CacheQuotas that
    /// belong to it. `file` is what messages call it.
    ///
    /// # Errors
    /// [`DocumentError`] if a document is wrong, or the documents do not fit each other. With
    /// Kubernetes the operator finds the latter and reports them as conditions.
    pub fn parse(text: &str, file: &str) -> Result<Self, DocumentError> {
        let mut pools = Vec::new();
        let mut tenants = Vec::new();
        let mut quotas = Vec::new();
        let mut wrong = Wrong::default();
        for document in parse_documents(text, file)? {
            match document {
                Document::Pool(pool) => wrong.keep(file, pool.settings(), &mut pools),
                Document::Tenant(tenant) => wrong.keep(file, tenant.settings(), &mut tenants),
                Document::Quota(quota) => wrong.keep(file, quota.settings(), &mut quotas),
            }
        }
        let mut pools = pools.into_iter();
        let Some(pool) = pools.next() else {
            wrong.push(
                file.to_owned(),
                "",
                "has no CachePool; it must have exactly one",
            );
            return Err(DocumentError::Invalid(wrong.0));
        };
        for extra in pools {
            let document = format!("{file} (CachePool {})", extra.name);
            let message = format!("is a second CachePool beside {}; keep one", pool.name);
            wrong.push(document, "", &message);
        }
        check_tenants(file, &pool, &tenants, &mut wrong);
        check_quotas(file, &pool, &tenants, &quotas, &mut wrong);
        if wrong.0.is_empty() {
            Ok(Self {
                pool,
                tenants,
                quotas,
            })
        } else {
            Err(DocumentError::Invalid(wrong.0))
        }
    }
}

fn check_tenants(file: &str, pool: &PoolSettings, tenants: &[TenantSettings], wrong: &mut Wrong) {
    let mut names = BTreeMap::new();
    let mut ids = BTreeMap::new();
    for tenant in tenants {
        let document = format!("{file} (CacheTenant {})", tenant.name);
        if tenant.namespace != pool.namespace {
            let message = format!(
                "is {}, but the pool is in {}; a tenant is in the namespace of its pool",
                tenant.namespace, pool.namespace
            );
            wrong.push(document.clone(), "metadata.namespace", &message);
        }
        if tenant.pool_name != pool.name {
            let message = format!(
                "'{}' is not in this file, which has {}",
                tenant.pool_name, pool.name
            );
            wrong.push(document.clone(), "spec.poolRef.name", &message);
        }
        if names.insert(&tenant.name, ()).is_some() {
            wrong.push(
                document.clone(),
                "metadata.name",
                "is used by another CacheTenant",
            );
        }
        if let Some(other) = ids.insert(&tenant.tenant_id, &tenant.name) {
            let message = format!("'{}' is the id of CacheTenant {other}", tenant.tenant_id);
            wrong.push(document, "spec.tenantId", &message);
        }
    }
}

/// A quota of this file names only what stands in it: without a cluster nothing comes later.
fn check_quotas(
    file: &str,
    pool: &PoolSettings,
    tenants: &[TenantSettings],
    quotas: &[QuotaSettings],
    wrong: &mut Wrong,
) {
    let mut names = BTreeMap::new();
    for quota in quotas {
        let document = format!("{file} (CacheQuota {})", quota.name);
        if quota.namespace != pool.namespace {
            let message = format!(
                "is {}, but the pool is in {}; a quota is in the namespace of its pool",
                quota.namespace, pool.namespace
            );
            wrong.push(document.clone(), "metadata.namespace", &message);
        }
        if quota.pool_name != pool.name {
            let message = format!(
                "'{}' is not in this file, which has {}",
                quota.pool_name, pool.name
            );
            wrong.push(document.clone(), "spec.poolRef.name", &message);
        }
        if names.insert(&quota.name, ()).is_some() {
            let message = "is used by another CacheQuota";
            wrong.push(document.clone(), "metadata.name", message);
        }
        let TenantChoice::Named(named) = &quota.tenants else {
            continue;
        };
        for name in named {
            if !tenants.iter().any(|tenant| tenant.name == *name) {
                let message = format!("'{name}' is no CacheTenant of this file");
                wrong.push(document.clone(), "spec.tenants", &message);
            }
        }
    }
    for tenant in tenants {
        let Some(wanted) = tenant.quota_name.as_deref() else {
            continue;
        };
        if tenant
            .quota_of(quotas)
            .is_none_or(|quota| quota.name != wanted)
        {
            let document = format!("{file} (CacheTenant {})", tenant.name);
            let message = format!("no CacheQuota '{wanted}' of this file names this tenant");
            wrong.push(document, "spec.quotaRef.name", &message);
        }
    }
}

#[derive(Default)]
struct Wrong(Vec<DocumentProblem>);

impl Wrong {
    fn push(&mut self, document: String, path: &str, message: &str) {
        self.0.push(DocumentProblem {
            document,
            problem: Problem::new(path, message),
        });
    }

    fn keep<T>(&mut self, file: &str, settings: Result<T, crate::Problems>, kept: &mut Vec<T>) {
        match settings {
            Ok(settings) => kept.push(settings),
            // Not reached: `parse_documents` has made these settings once and found them sound.
            Err(problems) => self
                .0
                .extend(problems.into_iter().map(|problem| DocumentProblem {
                    document: file.to_owned(),
                    problem,
                })),
        }
    }
}
