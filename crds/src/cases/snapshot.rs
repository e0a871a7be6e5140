//! The rules of a snapshot's own fields, and of what a pool says of snapshots.

use serde_json::{Value, json};

use super::{Case, Edit, Kind, set, set2};

fn from(folder: Option<&str>) -> Edit {
    let mut from = json!({ "name": "before" });
    if let Some(folder) = folder {
        from["folder"] = json!(folder);
    }
    ("/spec/bootstrap", Some(json!({ "fromSnapshot": from })))
}

fn store() -> Edit {
    let store: Value = json!({
        "endpoint": "http://store:9000",
        "bucket": "snapshots",
        "credentialsSecret": { "name": "keys" },
    });
    ("/spec/snapshots", Some(json!({ "objectStore": store })))
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            Kind::Snapshot,
            "",
            "",
            "metadata.name must be at most 63 characters of a-z, 0-9 and '-'",
        )
        .passes(set("/metadata/name", "s".repeat(63)))
        .fails(set("/metadata/name", "s".repeat(64)))
        .fails(set("/metadata/name", "a.b")),
        Case::new(
            Kind::Snapshot,
            "spec.poolRef",
            "spec.poolRef",
            "cannot be changed; create another CacheSnapshot",
        )
        .on_update()
        .passes(set("/spec/deletionPolicy", "Retain"))
        .fails(set("/spec/poolRef/name", "other")),
        Case::new(
            Kind::Pool,
            "spec",
            "spec.bootstrap",
            "fromSnapshot needs snapshots.objectStore, where the snapshot is looked for",
        )
        .passes(set("/spec/bootstrap", json!({})))
        .passes(vec![store()])
        .passes(set2(store(), from(None)))
        .passes(vec![from(Some("/snapshots"))])
        .fails(vec![from(None)])
        .fails(set2(("/spec/snapshots", Some(json!({}))), from(None))),
    ]
}
