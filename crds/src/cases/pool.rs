//! The rules of a pool's own fields: its name, nodes, masters, tiers and slabs.

use serde_json::json;

use super::figures::storage;
use super::{Case, Kind, SIZE, SLAB, set, set2, sizes, tier};

pub(super) fn pool_cases() -> Vec<Case> {
    let case = |at, path, message| Case::new(Kind::Pool, at, path, message);
    let replicas = |count: u32| ("/spec/placement", Some(json!({ "replicaFactor": count })));
    let rack = |key: String| set("/spec/nodes/rackLabel", key);
    vec![
        case(
            "",
            "",
            "metadata.name must be at most 40 characters of a-z, 0-9 and '-' and \
             start with a letter",
        )
        .passes(set("/metadata/name", "a".repeat(40)))
        .passes(set("/metadata/name", "p-1"))
        .fails(set("/metadata/name", "a".repeat(41)))
        .fails(set("/metadata/name", "1a"))
        .fails(set("/metadata/name", "a.b")),
        case(
            "spec",
            "spec.placement.replicaFactor",
            "must not be larger than nodes.count: replicas of an object are on different nodes",
        )
        .passes(vec![replicas(3)])
        .passes(set2(("/spec/nodes", Some(json!({}))), replicas(3)))
        .passes(set("/spec/nodes/count", 0))
        .fails(set2(("/spec/nodes/count", Some(json!(2))), replicas(3))),
        case(
            "spec.nodes.rackLabel",
            "spec.nodes.rackLabel",
            "must have at most 63 characters behind the '/', as every label key",
        )
        .passes(rack("rack".to_owned()))
        .passes(rack(format!("example.com/{}", "r".repeat(63))))
        .fails(rack("r".repeat(64)))
        .fails(rack(format!("example.com/{}", "r".repeat(64)))),
        case(
            "spec.tiers",
            "spec.tiers",
            "must be exactly one tier; more tiers come with SSD as a medium",
        )
        .passes(vec![])
        .fails(set("/spec/tiers/1", tier("more"))),
        case(
            "spec.tiers",
            "spec.tiers",
            "a tier cannot be removed or renamed; create another pool",
        )
        .on_update()
        .passes(vec![])
        .passes(set(SIZE, "2Gi"))
        .fails(set("/spec/tiers/0", tier("other"))),
    ]
}

pub(super) fn slab_cases() -> Vec<Case> {
    let case = |path, message| Case::new(Kind::Pool, "spec.tiers[]", path, message);
    let slab_size = "spec.tiers[0].slabSize";
    vec![
        case(
            slab_size,
            "must be a power of two from 2Mi (one huge page) to 1Gi",
        )
        .passes(sizes("8Gi", "2Mi"))
        .passes(sizes("8Gi", "1Gi"))
        .passes(sizes("8Gi", "1024Mi"))
        .passes(sizes("8Gi", "2097152"))
        .passes(sizes("8Gi", "65536Ki"))
        .fails(sizes("8Gi", "1Mi"))
        .fails(sizes("8Gi", "2Gi"))
        .fails(sizes("8Gi", "48Mi"))
        .fails(sizes("8Gi", "64M"))
        .fails(sizes("8Gi", "4194305")),
        case(
            slab_size,
            "must not be larger than size (slabSize is 64Mi when it is absent)",
        )
        .passes(sizes("16Mi", "16Mi"))
        .fails(sizes("16Mi", "32Mi"))
        .fails(set2((SIZE, Some(json!("63Mi"))), (SLAB, None)))
        .fails(sizes("0", "2Mi")),
        case(
            "spec.tiers[0].size",
            "must be at most 16384 slabs; choose a larger slabSize",
        )
        .passes(sizes("32Gi", "2Mi"))
        .passes(sizes("16Ti", "1Gi"))
        .passes(sizes("100Gi", "8Mi"))
        .fails(sizes("34359738369", "2Mi"))
        .fails(sizes("17Ti", "1Gi"))
        .fails(sizes("4Pi", "1Gi")),
        case(slab_size, "cannot be changed; create another pool")
            .on_update()
            .passes(set(SLAB, "65536Ki"))
            .passes(vec![(SLAB, None)])
            .fails(set(SLAB, "32Mi")),
    ]
}

pub(super) fn masters_cases() -> Vec<Case> {
    let case = |at, path, message| Case::new(Kind::Pool, at, path, message);
    let masters = |count: u32| set("/spec/masters", json!({ "replicas": count }));
    vec![
        case(
            "spec.masters.replicas",
            "spec.masters.replicas",
            "must be 1, 3 or 5: an even number survives no more losses than one less",
        )
        .passes(masters(1))
        .passes(set("/spec/masters", json!({})))
        .passes(masters(5))
        .fails(masters(2))
        .fails(masters(4)),
        case(
            "spec.masters",
            "spec.masters.replicas",
            "can only be changed with storage: without volumes masters forget with their pods",
        )
        .on_update()
        .passes(masters(1))
        .fails(masters(3)),
        case(
            "spec.masters",
            "spec.masters",
            "cannot be changed, as volumes of a StatefulSet cannot; create another pool",
        )
        .on_update()
        .passes(set("/spec/masters", json!({})))
        .passes(set(
            "/spec/masters",
            json!({ "oplog": { "sync": "Always" } }),
        ))
        .fails(storage("1Gi")),
        case(
            "spec.masters.storage.size",
            "spec.masters.storage.size",
            "must be at least 1Gi: the log and two snapshots of the pool lie there",
        )
        .passes(storage("1Gi"))
        .fails(storage("1G")),
    ]
}
