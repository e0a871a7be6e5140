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
                t.limit_bytes,
                t.limit_objects,
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
