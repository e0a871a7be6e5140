//! Files of `larder up`.

use super::*;
use crate::Access;

fn refusal(text: &str) -> String {
    PoolFile::parse(text, "pool.yaml").unwrap_err().to_string()
}

fn pool(name: &str) -> String {
    format!(
        "---\napiVersion: larder.dev/v1alpha1\nkind: CachePool\nmetadata: {{name: {name}}}\n\
         spec: {{tiers: [{{name: memory, medium: Dram, size: 1Gi}}]}}\n"
    )
}

fn tenant(metadata: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: larder.dev/v1alpha1\nkind: CacheTenant\nmetadata: {{{metadata}}}\n\
         spec: {{{spec}}}\n"
    )
}

#[test]
fn the_small_sample_is_what_the_readme_says() {
    let text = include_str!("../../../manifests/samples/pool-small.yaml");
    let file = PoolFile::parse(text, "pool-small.yaml").unwrap();
    let pool = &file.pool;
    assert_eq!(
        (pool.name.as_str(), pool.namespace.as_str()),
        ("pool-small", "default")
    );
    assert_eq!((pool.masters, pool.agents, pool.replica_factor), (1, 2, 1));
    assert_eq!(
        (pool.node_dram_bytes, pool.slab_bytes),
        (512 << 20, 16 << 20)
    );
    let tenants: Vec<_> = file
        .tenants
        .iter()
        .map(|t| {
            (
                t.tenant_id.as_str(),
                t.access,
                t.figures.limit_bytes,
                t.figures.limit_objects,
            )
        })
        .collect();
    assert_eq!(
        tenants,
        [
            ("team-a", Access::ReadWrite, Some(256 << 20), None),
            ("team-b", Access::ReadWrite, Some(64 << 20), Some(1000)),
        ]
    );
}

#[test]
fn a_pool_without_tenants_is_a_pool() {
    let file = PoolFile::parse(&pool("demo"), "pool.yaml").unwrap();
    assert_eq!((file.pool.name.as_str(), file.tenants.len()), ("demo", 0));
}

#[test]
fn documents_that_do_not_fit_are_refused() {
    let a = tenant("name: a", "poolRef: {name: demo}");
    assert_eq!(
        refusal(""),
        "pool.yaml: has no CachePool; it must have exactly one"
    );
    assert_eq!(
        refusal(&a),
        "pool.yaml: has no CachePool; it must have exactly one"
    );
    assert_eq!(
        refusal(&(pool("demo") + &pool("more"))),
        "pool.yaml (CachePool more): is a second CachePool beside demo; keep one"
    );
    assert_eq!(
        refusal(&(pool("demo") + &tenant("name: a", "poolRef: {name: demon}"))),
        "pool.yaml (CacheTenant a): spec.poolRef.name: 'demon' is not in this file, which has demo"
    );
    assert_eq!(
        refusal(&(pool("demo") + &tenant("name: a, namespace: ml", "poolRef: {name: demo}"))),
        "pool.yaml (CacheTenant a): metadata.namespace: is ml, but the pool is in default; a \
         tenant is in the namespace of its pool"
    );
    assert_eq!(
        refusal(
            &(pool("demo") + &a + &tenant("name: b", "poolRef: {name: demo}, tenantId: default.a"))
        ),
        "pool.yaml (CacheTenant b): spec.tenantId: 'default.a' is the id of CacheTenant a"
    );
    assert!(
        refusal(&(pool("demo") + &a + &a)).starts_with(
            "pool.yaml (CacheTenant a): metadata.name: is used by another CacheTenant"
        )
    );
}

fn quota(name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: larder.dev/v1alpha1\nkind: CacheQuota\nmetadata: {{name: {name}}}\n\
         spec: {{limit: {{bytes: 1Gi}}, {spec}}}\n"
    )
}

#[test]
fn quotas_fit_their_pool_and_tenants() {
    let tenants = tenant("name: a", "poolRef: {name: demo}, quotaRef: {name: team}")
        + &tenant("name: b", "poolRef: {name: demo}");
    let team = quota("team", "poolRef: {name: demo}, tenants: [a]");
    let file = PoolFile::parse(&(pool("demo") + &tenants + &team), "pool.yaml").unwrap();
    let shares = |at: usize| {
        file.tenants[at]
            .quota_of(&file.quotas)
            .map(|q| q.name.as_str())
    };
    assert_eq!((shares(0), shares(1)), (Some("team"), None));

    let wrong = quota("team", "poolRef: {name: other}, tenants: [a, c]");
    let found = refusal(&(pool("demo") + &tenants + &wrong + &wrong));
    let one = "pool.yaml (CacheQuota team): spec.poolRef.name: 'other' is not in this file, which \
               has demo";
    let none = "pool.yaml (CacheQuota team): spec.tenants: 'c' is no CacheTenant of this file";
    let twice = "pool.yaml (CacheQuota team): metadata.name: is used by another CacheQuota";
    let lonely = "pool.yaml (CacheTenant a): spec.quotaRef.name: no CacheQuota 'team' of this \
                  file names this tenant";
    assert_eq!(
        found.lines().collect::<Vec<_>>(),
        [one, none, one, twice, none, lonely]
    );
}
