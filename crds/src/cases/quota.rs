//! The rules of a quota's own fields.

use serde_json::{Value, json};

use super::figures::guarantee;
use super::{Case, Kind, set, set2};

pub(super) fn cases() -> Vec<Case> {
    let case = |at, path, message| Case::new(Kind::Quota, at, path, message);
    let selector = || {
        (
            "/spec/selector",
            Some(json!({ "matchLabels": { "team": "a" } })),
        )
    };
    let limit = |limit: Value| set("/spec/limit", limit);
    vec![
        case(
            "",
            "",
            "metadata.name must be at most 63 characters: each of its tenants carries it",
        )
        .passes(set("/metadata/name", "q".repeat(63)))
        .fails(set("/metadata/name", "q".repeat(64))),
        case(
            "spec",
            "spec",
            "must have exactly one of tenants and selector",
        )
        .passes(vec![])
        .passes(set2(("/spec/tenants", None), selector()))
        .fails(vec![selector()])
        .fails(vec![("/spec/tenants", None)]),
        case("spec", "spec", "must give guaranteed, limit or both")
            .passes(vec![("/spec/limit", None)])
            .passes(vec![("/spec/guaranteed", None)])
            .fails(set2(("/spec/limit", None), ("/spec/guaranteed", None))),
        case(
            "spec.poolRef",
            "spec.poolRef",
            "cannot be changed; create another CacheQuota",
        )
        .on_update()
        .passes(set("/spec/limit/bytes", "3Gi"))
        .fails(set("/spec/poolRef/name", "other")),
        case(
            "spec.limit",
            "spec.limit",
            "must give bytes, objects or both; leave limit out for no limit",
        )
        .passes(limit(json!({ "objects": 1 })))
        .fails(limit(json!({}))),
        case(
            "spec.limit.bytes",
            "spec.limit.bytes",
            "must be more than 0",
        )
        .passes(guarantee("1", "1"))
        .fails(set2(
            ("/spec/guaranteed", None),
            ("/spec/limit", Some(json!({ "bytes": "0" }))),
        )),
    ]
}
