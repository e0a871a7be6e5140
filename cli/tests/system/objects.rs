//! What a tenant does: put, get, exists, ls, stat, remove, bench.

use std::process::Stdio;

use serde_json::json;

use crate::pool::{Pool, bare, bytes, say};

#[test]
fn a_tenant_works_with_its_objects_through_every_agent() {
    let pool = Pool::up();
    for (at, length) in [1, 255, 4096, 65_537, 1 << 20].into_iter().enumerate() {
        let value = bytes(length, at as u64);
        let key = format!("dir/object-{at}");
        let (file, back) = (pool.beside("in"), pool.beside("out"));
        std::fs::write(&file, &value).expect("room");
        let put = pool.call("team-a", &["put", &key, &file]);
        assert_eq!(put.code, 0, "{put:?}");
        assert_eq!(put.json()["size_bytes"], length);
        for via in ["small-0", "small-1", "none"] {
            let got = pool.call("team-a", &["--via", via, "get", &key, &back]);
            assert_eq!(got.code, 0, "{via}: {got:?}");
            assert!(
                std::fs::read(&back).expect("written") == value,
                "{length} via {via}"
            );
        }
        let got = pool.call("team-a", &["get", &key]);
        assert!(got.stdout == value, "{length} to standard output");
    }

    let listed = pool.call("team-a", &["ls", "dir/"]).lines();
    assert_eq!(listed.len(), 5);
    assert_eq!(
        listed[4],
        json!({ "key": "dir/object-4", "size_bytes": 1 << 20 })
    );
    let page = pool
        .call("team-a", &["ls", "--after", "dir/object-1", "--limit", "2"])
        .lines();
    let keys: Vec<_> = page
        .iter()
        .map(|line| line["key"].as_str().expect("text"))
        .collect();
    assert_eq!(keys, ["dir/object-2", "dir/object-3"]);

    let usage = pool.call("team-a", &["stat"]).json();
    assert_eq!(usage["tenant"], "team-a");
    assert_eq!(
        (&usage["objects"], &usage["limit_objects"]),
        (&json!(5), &json!(100))
    );
    assert_eq!(usage["limit_bytes"], 8 << 20);
    assert_eq!(
        usage["pool"],
        json!({
            "capacity_bytes": 128 << 20, "agents": 2, "replica_factor": 1,
        })
    );

    let exists = pool.call("team-a", &["exists", "dir/object-0", "dir/nothing"]);
    assert_eq!(exists.code, 3, "{exists:?}");
    let there: Vec<_> = exists
        .lines()
        .iter()
        .map(|line| line["exists"].clone())
        .collect();
    assert_eq!(there, [true, false]);
    assert_eq!(
        pool.call("team-a", &["remove", "dir/object-0", "dir/object-1"])
            .code,
        0
    );
    assert_eq!(pool.call("team-a", &["exists", "dir/object-0"]).code, 3);
    pool.call("team-a", &["get", "dir/object-0"])
        .failed(3, "not_found");
    pool.call("team-a", &["remove", "dir/object-0"])
        .failed(3, "not_found");
    let usage = pool.call("team-a", &["stat"]).json();
    assert_eq!(usage["objects"], 3);
}

#[test]
fn objects_are_replaced_pinned_shown_and_removed_by_prefix() {
    let pool = Pool::up();
    let file = pool.beside("in");
    std::fs::write(&file, bytes(5000, 1)).expect("room");
    assert_eq!(pool.call("team-a", &["put", "p/a", &file]).code, 0);
    pool.call("team-a", &["put", "p/a", &file])
        .failed(4, "already_exists");
    std::fs::write(&file, bytes(7000, 2)).expect("room");
    let words = [
        "put", "p/a", &file, "--upsert", "--pin", "hard", "--group", "g",
    ];
    let put = pool.call("team-a", &words).json();
    assert_eq!(
        (&put["replicas"], &put["replicas_wanted"]),
        (&json!(1), &json!(1))
    );
    assert!(pool.call("team-a", &["get", "p/a"]).stdout == bytes(7000, 2));
    let known = pool.call("team-a", &["stat", "p/a"]).json();
    assert_eq!(
        (&known["pin"], &known["group"]),
        (&json!("hard"), &json!("g"))
    );
    assert_eq!(
        (&known["size_bytes"], &known["leased"]),
        (&json!(7000), &json!(true))
    );
    assert_eq!(
        pool.call("team-a", &["stat"]).json()["pinned_bytes"],
        16_384
    );
    assert_eq!(pool.call("team-a", &["unpin", "p/a"]).code, 0);
    assert_eq!(
        pool.call("team-a", &["pin", "p/a", "--as", "soft=10m"])
            .code,
        0
    );
    let known = pool.call("team-a", &["ls", "-l", "p/"]).lines();
    assert_eq!(known[0]["pin"], json!({ "soft_ms": 600_000 }));
    pool.call("team-a", &["stat", "none"])
        .failed(3, "not_found");
    pool.call("team-a", &["pin", "none"]).failed(3, "not_found");

    assert_eq!(pool.call("team-a", &["put", "p/b", &file]).code, 0);
    pool.call("team-a", &["rm", "--if-unleased", "p/a"])
        .failed(4, "lease_held");
    let gone = pool
        .call("team-a", &["rm", "--prefix", "p/", "--if-unleased"])
        .json();
    assert_eq!(gone, json!({ "removed": 1, "skipped": 1, "done": true }));
    let gone = pool.call("team-a", &["rm", "--prefix", ""]).json();
    assert_eq!(gone["removed"], 1);
    assert_eq!(pool.call("team-a", &["ls"]).lines().len(), 0);
}

#[test]
fn limits_rights_and_tenants_hold() {
    let pool = Pool::up();
    let file = pool.beside("in");
    std::fs::write(&file, bytes(1 << 20, 1)).expect("room");
    let mut refused = None;
    for at in 0..9 {
        // Pinned, as what is cold would make room for the next one.
        let words = ["put", &format!("k{at}"), &file, "--pin", "hard"];
        let put = pool.call("team-a", &words);
        if put.code != 0 {
            refused = Some((at, put.failed(4, "quota_bytes")));
            break;
        }
    }
    let (at, message) = refused.expect("9 MiB are more than the limit of 8");
    assert_eq!(at, 8);
    assert!(message.contains("spec.limit.bytes"), "{message}");

    pool.call("team-a", &["put", "k0", &file])
        .failed(4, "already_exists");
    // Another tenant sees nothing, and has the same keys for itself.
    pool.call("team-b", &["get", "k0"]).failed(3, "not_found");
    assert_eq!(pool.call("team-b", &["ls"]).lines().len(), 0);
    assert_eq!(pool.call("team-b", &["exists", "k0"]).code, 3);
    assert_eq!(pool.call("team-b", &["put", "k0", &file]).code, 0);
    assert_eq!(pool.call("team-b", &["remove", "k0"]).code, 0);
    assert_eq!(pool.call("team-a", &["exists", "k0"]).code, 0);
    pool.call("team-c", &["put", "k", &file])
        .failed(4, "access_denied");

    // At the limit, room comes back with a remove.
    assert_eq!(pool.call("team-a", &["remove", "k1"]).code, 0);
    assert_eq!(pool.call("team-a", &["put", "k1", &file]).code, 0);

    let wrong = pool.beside("wrong.token");
    std::fs::write(&wrong, "0".repeat(64)).expect("room");
    pool.call("team-a", &["--token-file", &wrong, "ls"])
        .failed(4, "hello_refused");
    let usage = pool.run(&["--tenant", "team-x", "--output", "json", "ls"]);
    let message = usage.failed(2, "usage");
    assert!(message.contains("team-a, team-b, team-c"), "{message}");
    let several = pool.run(&["--output", "json", "ls"]).failed(2, "usage");
    assert!(several.contains("--tenant"), "{several}");
}

#[test]
fn values_come_from_standard_input_and_addresses_from_arguments() {
    let pool = Pool::up();
    let document = pool.document();
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    let (master, token) = (
        text(&document["masters"][0]["client_addr"]),
        text(&document["tokens"]["team-b"]),
    );
    let direct = ["--master", &master, "--token-file", &token];
    let mut put = bare()
        .args(direct)
        .args(["put", "typed", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut stdin = put.stdin.take().expect("piped");
    std::io::Write::write_all(&mut stdin, b"hello\n").expect("it reads");
    drop(stdin);
    assert!(put.wait().expect("it ends").success());
    let socket = text(&document["agents"][1]["socket"]);
    let got = say(&[&direct[..], &["--socket", &socket, "get", "typed"]].concat());
    assert_eq!(got.stdout, b"hello\n", "{got:?}");
    let empty = say(&[&direct[..], &["--output", "json", "put", "none", "-"]].concat());
    empty.failed(2, "empty_value");
    let message = say(&["--master", &master, "--output", "json", "ls"]).failed(2, "usage");
    assert!(message.contains("--token-file"), "{message}");
    let both = pool.run(&[&direct[..], &["--output", "json", "ls"]].concat());
    let message = both.failed(2, "usage");
    assert!(
        message.contains("--master") && message.contains("--dir"),
        "{message}"
    );
    let admin = text(&document["masters"][0]["admin_addr"]);
    let wrong = ["--master", &admin, "--token-file", &token];
    let message = say(&[&wrong[..], &["--output", "json", "ls"]].concat()).failed(1, "unreachable");
    assert!(message.contains("answers HTTP"), "{message}");

    // Variables that name another pool do not stand against a flag; empty ones are none.
    let got = pool
        .command(&["--tenant", "team-b", "get", "typed"])
        .env("LARDER_MASTERS", "127.0.0.1:1")
        .env("LARDER_TOKEN_FILE", "/no/such")
        .env("LARDER_SOCKET", "/no/such")
        .env("XDG_RUNTIME_DIR", "")
        .output()
        .expect("the program runs");
    assert_eq!(got.stdout, b"hello\n", "{got:?}");
    let got = bare()
        .args(["get", "typed"])
        .env("LARDER_MASTERS", &master)
        .env("LARDER_TOKEN_FILE", &token)
        .env("LARDER_DIR", "")
        .output()
        .expect("the program runs");
    assert_eq!(got.stdout, b"hello\n", "{got:?}");
}

#[test]
fn the_variables_of_a_pod_are_enough() {
    let pool = Pool::up();
    let document = pool.document();
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    let master = text(&document["masters"][0]["client_addr"]);
    let token = text(&document["tokens"]["team-b"]);
    // As in a pod whose node has no socket: bytes go by tcp, and that is said.
    let got = bare()
        .args(["--output", "json", "status"])
        .env("LARDER_MASTERS", master.replace("127.0.0.1", "localhost"))
        .env("LARDER_TOKEN_FILE", &token)
        .env("LARDER_TENANT", "team-b")
        .env("LARDER_SOCKET", "/no/such/agent.sock")
        .env("LARDER_SOCKET_FOLDER", "/no/such")
        .env("LARDER_TOKEN_AUDIENCE", "larder")
        .env("LARDER_POOL", "small")
        .output()
        .expect("the program runs");
    let said = String::from_utf8_lossy(&got.stderr);
    assert!(said.contains("bytes go by tcp"), "{got:?}");
    let status: serde_json::Value = serde_json::from_slice(&got.stdout).expect("JSON");
    assert_eq!(status["principal"]["Tenant"], "team-b", "{status}");
    assert_eq!(status["local"], false, "{status}");
}

#[test]
fn what_cannot_be_used_is_an_argument_at_fault() {
    let pool = Pool::up();
    let folder = pool.beside("");
    for args in [
        &["put", "k", "/no/such"][..],
        &["put", "k", &folder],
        &["--token-file", "/no/such", "ls"],
        &["--token-file", "/bin/sh", "ls"],
    ] {
        let said = pool.call("team-b", args);
        assert_eq!(said.code, 2, "{args:?}: {said:?}");
    }
    let file = pool.beside("in");
    std::fs::write(&file, b"bytes").expect("room");
    assert_eq!(pool.call("team-b", &["put", "k", &file]).code, 0);
    for target in ["/no/such/file", &folder] {
        let said = pool.call("team-b", &["get", "k", target]);
        assert_eq!(said.code, 2, "{target}: {said:?}");
    }
    // Its reader goes away before it has read anything.
    let mut get = pool
        .command(&["--tenant", "team-b", "get", "k", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    drop(get.stdout.take());
    let said = get.wait_with_output().expect("it ends");
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    let said = pool.call("team-b", &["put", "--replicas", "0", "l", &file]);
    assert!(said.failed(2, "usage").contains("1..=3"));
}

#[test]
fn each_of_several_keys_has_one_line() {
    let pool = Pool::up();
    let file = pool.beside("in");
    std::fs::write(&file, b"bytes").expect("room");
    assert_eq!(pool.call("team-b", &["put", "k", &file]).code, 0);
    let removed = pool.call("team-b", &["remove", "none", "k"]);
    assert_eq!(removed.code, 3, "{removed:?}");
    let expected = [
        json!({ "key": "none", "removed": false, "reason": "not_found" }),
        json!({ "key": "k", "removed": true }),
    ];
    assert_eq!(removed.lines(), expected);
}

#[test]
fn bench_checks_bytes_and_leaves_nothing() {
    let pool = Pool::up();
    let args = ["bench", "mix", "--size", "64Ki", "-n", "40", "--depth", "4"];
    for via in ["small-0", "none"] {
        let said = pool.call("team-b", &[&["--via", via], &args[..]].concat());
        assert_eq!(said.code, 0, "{said:?}");
        let lines = said.lines();
        let names: Vec<_> = lines.iter().map(|line| line["name"].clone()).collect();
        assert_eq!(names, ["bench.put", "bench.get"]);
        assert!(
            lines
                .iter()
                .all(|line| line["samples"] == 40 && line["unit"] == "GB/s")
        );
        assert_eq!(lines[0]["config"]["shared_memory"], via != "none");
    }
    assert_eq!(pool.call("team-b", &["ls"]).lines().len(), 0);
    pool.call("team-b", &["bench", "--depth", "0"])
        .failed(2, "usage");

    let file = pool.beside("in");
    std::fs::write(&file, bytes(4096, 1)).expect("room");
    let put = pool.call("team-b", &["put", "bench/00000000", &file]);
    assert_eq!(put.code, 0, "{put:?}");
    let get = ["bench", "get", "-n", "1", "--size"];
    let message = pool
        .call("team-b", &[&get[..], &["64Ki"]].concat())
        .failed(2, "usage");
    assert!(
        message.contains("has 4096 bytes and --size is 65536"),
        "{message}"
    );
    let message = pool
        .call("team-b", &[&get[..], &["4Ki"]].concat())
        .failed(1, "wrong");
    assert!(message.contains("was not put by larder bench"), "{message}");
    pool.call("team-b", &["bench", "put", "-n", "1"])
        .failed(4, "taken");
}
