//! The rules of a tenant's own fields.

use serde_json::{Value, json};

use super::{Case, Kind, TENANT_ID, set, set2};

fn case(at: &'static str, path: &'static str, message: &'static str) -> Case {
    Case::new(Kind::Tenant, at, path, message)
}

pub(super) fn cases() -> Vec<Case> {
    [identity_cases(), limit_cases()].concat()
}

/// What names the tenant and its pool.
fn identity_cases() -> Vec<Case> {
    let name = |length| ("/metadata/name", Some(json!("t".repeat(length))));
    vec![
        case(
            "",
            "",
            "metadata.name must be at most 64 characters, or spec.tenantId must be given",
        )
        .passes(vec![name(65)])
        .passes(set2(name(64), (TENANT_ID, None)))
        .fails(set2(name(65), (TENANT_ID, None))),
        case(
            "",
            "",
            "metadata.name must be at most 242 characters: the ConfigMap <name>-connection is \
             named after it; choose a shorter name",
        )
        .passes(vec![name(242)])
        .fails(vec![name(243)]),
        case(
            "spec",
            "spec.tenantId",
            "cannot be set, changed or removed after creation; create another CacheTenant",
        )
        .on_update()
        .passes(vec![])
        .passes(set("/spec/access", "ReadOnly"))
        .fails(set(TENANT_ID, "team-b"))
        .fails(vec![(TENANT_ID, None)]),
        case(
            "spec.poolRef",
            "spec.poolRef",
            "cannot be changed; create another CacheTenant",
        )
        .on_update()
        .passes(set("/spec/viewBytes", "0"))
        .fails(set("/spec/poolRef/name", "other")),
    ]
}

/// What the tenant may hold, said by itself or by its quota.
fn limit_cases() -> Vec<Case> {
    let limit = |limit: Value| set("/spec/limit", limit);
    let quota_ref = || ("/spec/quotaRef", Some(json!({ "name": "team" })));
    vec![
        case(
            "spec.limit",
            "spec.limit",
            "must give bytes, objects or both; leave limit out for no limit",
        )
        .passes(limit(json!({ "objects": 1 })))
        .passes(limit(json!({ "bytes": "1", "objects": 1 })))
        .passes(vec![("/spec/limit", None)])
        .fails(limit(json!({})))
        .fails(limit(json!({ "bytes": null }))),
        case(
            "spec.limit.bytes",
            "spec.limit.bytes",
            "must be more than 0",
        )
        .passes(set("/spec/limit/bytes", "1"))
        .fails(set("/spec/limit/bytes", "0"))
        .fails(set("/spec/limit/bytes", "0Gi")),
        case(
            "spec",
            "spec.quotaRef",
            "takes the figures of that CacheQuota; leave quotaRef out, or guaranteed, limit, \
             pinned, borrowing and onExceed",
        )
        .passes(set2(("/spec/limit", None), quota_ref()))
        .fails(vec![quota_ref()])
        .fails(vec![
            ("/spec/limit", None),
            quota_ref(),
            ("/spec/onExceed", Some(json!("EvictOwn"))),
        ]),
    ]
}
