//! An administrator empties an agent, and looks at tasks.

use serde_json::{Value, json};

use crate::pool::{Pool, Said};

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

#[test]
fn an_agent_is_emptied_and_filled_again_and_every_object_stays() {
    let pool = Pool::up();
    let file = pool.beside("object");
    std::fs::write(&file, vec![7; 300_000]).expect("room");
    let keys: Vec<String> = (0..6).map(|at| format!("k{at}")).collect();
    for key in &keys {
        let said = pool.call("team-b", &["put", key, &file]);
        assert_eq!(said.code, 0, "{said:?}");
    }
    let holder = pool.call("team-b", &["stat", "k0"]).json()["agents"][0].clone();
    let holder = holder.as_str().expect("a name").to_owned();
    let before = document(&pool, &["drain", "status", &holder]);
    assert_eq!(before["state"], "active");
    assert!(before["objects_left"].as_u64() > Some(0), "{before}");
    let drained = document(
        &pool,
        &["drain", "start", &holder, "--wait", "--within", "60s"],
    );
    let figures = ["state", "objects_left", "bytes_left"].map(|field| drained[field].clone());
    assert_eq!(figures, [json!("drained"), json!(0), json!(0)]);
    let out = pool.beside("again");
    for key in &keys {
        let stat = pool.call("team-b", &["stat", key]).json();
        assert_ne!(stat["agents"], json!([holder]), "{stat}");
        let said = pool.call("team-b", &["get", key, &out]);
        assert_eq!(said.code, 0, "{said:?}");
        assert_eq!(std::fs::read(&out).expect("written"), vec![7; 300_000]);
    }
    let active = document(&pool, &["drain", "cancel", &holder]);
    assert_eq!(active, json!({ "name": holder, "state": "active" }));
    let said = administer(&pool, &["drain", "status", &holder, "--wait"]);
    assert!(said.failed(4, "taken").contains("drain start"));
    let said = administer(&pool, &["drain", "start", "nobody"]);
    assert!(
        said.failed(3, "not_found")
            .contains("no agent of that name")
    );

    let tasks = document(&pool, &["tasks", "list", "--of", "team-b", "--open"]);
    assert_eq!(tasks, json!({ "tasks": [], "next": null }));
    let said = administer(&pool, &["tasks", "cancel", "7"]);
    assert!(said.failed(3, "not_found").contains("no task of that id"));
}
