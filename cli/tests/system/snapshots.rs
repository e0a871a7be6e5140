//! An administrator keeps a snapshot, and a later pool begins from it.

use serde_json::{Value, json};

use crate::pool::{FILE, Pool, Said, say};

fn administer(pool: &Pool, args: &[&str]) -> Said {
    let mut all = vec!["--output", "json"];
    all.extend(args);
    pool.run(&all)
}

fn document(pool: &Pool, args: &[&str]) -> Value {
    let said = administer(pool, args);
    assert_eq!(said.code, 0, "{said:?}");
    said.json()
}

/// The pool file without its tenants, with a snapshot to begin from.
fn from(folder: &str, name: &str) -> String {
    let pool = FILE.split("---\n").next().expect("a pool");
    format!("{pool}  bootstrap: {{fromSnapshot: {{name: {name}, folder: {folder}}}}}\n")
}

#[test]
fn a_snapshot_is_taken_read_and_deleted_and_a_pool_begins_from_it() {
    let pool = Pool::up();
    let file = pool.beside("object");
    std::fs::write(&file, vec![7; 100_000]).expect("room");
    let said = pool.call("team-b", &["put", "k", &file]);
    assert_eq!(said.code, 0, "{said:?}");
    let taken = document(&pool, &["snapshot", "take", "before"]);
    assert_eq!(
        (&taken["phase"], &taken["objects"]),
        (&json!("Ready"), &json!(1))
    );
    let list = document(&pool, &["snapshot", "list"]);
    assert_eq!(list["snapshots"][0], taken);
    let folder = taken["location"].as_str().expect("a folder");
    let read = say(&["--output", "json", "inspect", folder]);
    assert_eq!(read.code, 0, "{read:?}");
    let read = read.json();
    assert_eq!(
        (&read["tenants"], &read["findings"]),
        (&json!(3), &json!([]))
    );
    assert_eq!(read["manifest"]["digest"], taken["digest"]);
    administer(&pool, &["snapshot", "take", "before"]).failed(4, "refused");
    assert_eq!(say(&["snapshot", "take", "No"]).code, 2, "no name");

    // Into a pool of the same name without a file of tenants: they are those of the snapshot.
    let above = std::path::Path::new(folder)
        .parent()
        .expect("a folder above");
    let above = above.to_str().expect("text");
    let other = Pool::new(&from(above, "before"));
    let said = other.start(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    let again = document(&other, &["snapshot", "take", "again"]);
    assert_eq!(
        (&again["objects"], &again["epoch"]["generation"]),
        (&json!(0), &json!(2))
    );
    let folder = again["location"].as_str().expect("a folder");
    let read = say(&["--output", "json", "inspect", folder]).json();
    assert_eq!(read["tenants"], 3, "{read}");

    // One bit of its file.
    let manifest = &read["manifest"];
    let (index, term) = (&manifest["index"], &manifest["epoch"]["term"]);
    let name = format!(
        "snapshot-{:020}-{:020}",
        index.as_u64().expect("an index"),
        term.as_u64().expect("a term")
    );
    let path = std::path::Path::new(folder).join(name);
    let mut bytes = std::fs::read(&path).expect("its file");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).expect("written");
    let read = say(&["--output", "json", "inspect", folder]);
    assert_eq!(read.code, 1, "{read:?}");
    assert!(read.json().to_string().contains("checksum"), "{read:?}");

    let deleted = document(&pool, &["snapshot", "delete", "before"]);
    assert_eq!(deleted, json!({ "name": "before", "deleted": true }));
    let list = document(&pool, &["snapshot", "list"]);
    assert_eq!(list["snapshots"], json!([]));

    // A pool that cannot begin from what it names does not begin.
    let none = Pool::new(&from(above, "before"));
    let said = none.start(&[]);
    assert_ne!(said.code, 0, "{said:?}");
    let text = format!("{}{}", String::from_utf8_lossy(&said.stdout), said.stderr);
    assert!(text.contains("is not there"), "{text}");
}
