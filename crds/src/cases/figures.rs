//! The rules of figures: the bound of every size, and what tenants and quotas have in common.

use serde_json::json;

use super::{Case, Edit, Kind, SIZE, SLAB, TOO_LARGE, set, set2};

pub(super) fn guarantee(guaranteed: &str, limit: &str) -> Vec<Edit> {
    set2(
        ("/spec/guaranteed", Some(json!({ "bytes": guaranteed }))),
        ("/spec/limit", Some(json!({ "bytes": limit }))),
    )
}

/// A volume of so many bytes for each master.
pub(super) fn storage(size: &str) -> Vec<Edit> {
    set("/spec/masters", json!({ "storage": { "size": size } }))
}

/// The bound that every size has. Beyond it a size of a tier breaks other rules too.
pub(super) fn size_cases() -> Vec<Case> {
    let case = |kind, at, path| Case::new(kind, at, path, TOO_LARGE);
    vec![
        case(Kind::Pool, "spec.tiers[].size", "spec.tiers[0].size")
            .passes(set(SIZE, "1Ti"))
            .fails(set(SIZE, "5Pi"))
            .fails(set(SIZE, "999999999999999999Pi")),
        case(
            Kind::Pool,
            "spec.tiers[].slabSize",
            "spec.tiers[0].slabSize",
        )
        .passes(set(SLAB, "1Gi"))
        .fails(set(SLAB, "5Pi")),
        case(
            Kind::Pool,
            "spec.masters.storage.size",
            "spec.masters.storage.size",
        )
        .passes(storage("4Pi"))
        .fails(storage("5Pi")),
        case(Kind::Tenant, "spec.limit.bytes", "spec.limit.bytes")
            .passes(set("/spec/limit/bytes", "4Pi"))
            .fails(set("/spec/limit/bytes", "5Pi"))
            .fails(set("/spec/limit/bytes", "99999999999999999999"))
            .fails(set("/spec/limit/bytes", "999999999999999999Pi")),
        case(
            Kind::Tenant,
            "spec.guaranteed.bytes",
            "spec.guaranteed.bytes",
        )
        .passes(guarantee("1Gi", "1Gi"))
        .fails(guarantee("5Pi", "5Pi")),
        case(Kind::Tenant, "spec.pinned.bytes", "spec.pinned.bytes")
            .passes(set("/spec/pinned", json!({ "bytes": "0" })))
            .fails(set("/spec/pinned", json!({ "bytes": "5Pi" }))),
        case(
            Kind::Quota,
            "spec.guaranteed.bytes",
            "spec.guaranteed.bytes",
        )
        .passes(guarantee("1", "4Pi"))
        .fails(guarantee("5Pi", "5Pi")),
        case(Kind::Quota, "spec.limit.bytes", "spec.limit.bytes")
            .passes(guarantee("1Gi", "4Pi"))
            .fails(guarantee("1Gi", "5Pi")),
        case(Kind::Quota, "spec.pinned.bytes", "spec.pinned.bytes")
            .passes(set("/spec/pinned/bytes", "0"))
            .fails(set("/spec/pinned/bytes", "5Pi")),
        case(Kind::Tenant, "spec.viewBytes", "spec.viewBytes")
            .passes(set("/spec/viewBytes", "4Pi"))
            .passes(set("/spec/viewBytes", "0"))
            .fails(set("/spec/viewBytes", "4097Ti")),
    ]
}

/// What the figures of a tenant and of a quota have in common.
pub(super) fn figure_cases() -> Vec<Case> {
    let of = |kind| {
        let case = move |at, path, message| Case::new(kind, at, path, message);
        let no_guarantee = || ("/spec/guaranteed", None);
        let borrowing = |word: &str| ("/spec/borrowing", Some(json!(word)));
        [
            case(
                "spec",
                "spec.guaranteed",
                "must not be more than limit.bytes",
            )
            .passes(guarantee("1Gi", "1024Mi"))
            .passes(set2(
                ("/spec/guaranteed", Some(json!({ "bytes": "9Gi" }))),
                ("/spec/limit", Some(json!({ "objects": 1 }))),
            ))
            .fails(guarantee("1Gi", "1023Mi")),
            case(
                "spec",
                "spec.borrowing",
                "must be Allowed without guaranteed, or nothing could be stored",
            )
            .passes(set2(no_guarantee(), borrowing("Allowed")))
            .passes(vec![
                ("/spec/guaranteed", Some(json!({ "bytes": "1Gi" }))),
                borrowing("Forbidden"),
            ])
            .fails(set2(no_guarantee(), borrowing("Forbidden"))),
            case(
                "spec.guaranteed.bytes",
                "spec.guaranteed.bytes",
                "must be more than 0",
            )
            .passes(guarantee("1", "1Gi"))
            .fails(guarantee("0", "1Gi")),
        ]
    };
    [of(Kind::Tenant), of(Kind::Quota)]
        .into_iter()
        .flatten()
        .collect()
}
