//! What `larder up` refuses, and how it says so. Nothing is started or left.

use std::net::TcpListener;

use crate::pool::{FILE, Pool};

#[track_caller]
fn refused(file: &str, more: &[&str], code: i32, reason: &str) -> String {
    let pool = Pool::new(file);
    let message = pool.start(more).failed(code, reason);
    assert!(!pool.dir().exists(), "{message}");
    message
}

#[test]
fn an_invalid_file_names_the_field() {
    for (from, to, field) in [
        ("size: 64Mi", "size: lots", "spec.tiers[0].size"),
        ("slabSize: 2Mi", "slabSize: 3Mi", "spec.tiers[0].slabSize"),
        ("nodes: {count: 2}", "nodes: {count: 2, coutn: 3}", "coutn"),
        (
            "poolRef: {name: small}, tenantId: team-b",
            "poolRef: {name: other}",
            "spec.poolRef.name",
        ),
        ("tenantId: team-b", "tenantId: team-a", "spec.tenantId"),
        ("kind: CachePool", "kind: CachePond", "kind"),
    ] {
        assert!(FILE.contains(from), "{from}");
        let message = refused(&FILE.replace(from, to), &[], 2, "invalid_file");
        assert!(message.contains(field), "{from} -> {to}: {message}");
    }
    let message = refused("a: [", &[], 2, "invalid_file");
    assert!(message.contains("YAML"), "{message}");
    let tenants_only = FILE.split_once("---\n").expect("documents").1;
    let message = refused(tenants_only, &[], 2, "invalid_file");
    assert!(message.contains("no CachePool"), "{message}");
    let role = FILE.replace("team-b", "operator");
    let message = refused(&role, &[], 2, "usage");
    assert!(message.contains("spec.tenantId"), "{message}");
}

#[test]
fn what_the_machine_cannot_give_is_one_sentence() {
    let huge = FILE.replace("size: 64Mi, slabSize: 2Mi", "size: 900Gi, slabSize: 64Mi");
    let message = refused(&huge, &[], 4, "cannot_start");
    assert!(
        message.contains("1.7 TiB") && message.contains("spec.tiers[0].size"),
        "{message}"
    );
    assert_eq!(message.lines().count(), 1);

    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let message = refused(FILE, &["--admin-port", &port], 4, "cannot_start");
    assert!(
        message.contains(&port) && message.contains("--admin-port"),
        "{message}"
    );

    let pool = Pool::new(FILE);
    let long = pool.beside(&"x".repeat(100));
    let message = pool.start(&["--dir", &long]).failed(4, "cannot_start");
    assert!(message.contains("--dir"), "{message}");
}

#[test]
fn a_process_that_does_not_start_is_reported_with_its_log() {
    let message = refused(FILE, &["--log-filter", "=["], 1, "program");
    assert!(
        message.contains("small-master-0 did not start"),
        "{message}"
    );
    assert!(message.contains("=["), "the log is shown: {message}");
}

#[test]
fn a_missing_file_and_wrong_arguments_are_usage() {
    let pool = Pool::new(FILE);
    let message = pool
        .run(&["up", "-f", "/no/such", "--output", "json"])
        .failed(2, "usage");
    assert!(message.contains("/no/such"), "{message}");
    assert_eq!(pool.run(&["up"]).code, 2);
    assert_eq!(pool.run(&["frobnicate"]).code, 2);
    assert_eq!(pool.run(&["--deadline", "soon", "ls"]).code, 2);
    let none = pool.run(&["--output", "json", "ls"]).failed(3, "no_pool");
    assert!(none.contains("larder up"), "{none}");
    let human = pool.run(&["ls"]);
    assert!(
        human.stdout.is_empty() && human.stderr.starts_with("error: no pool"),
        "{human:?}"
    );
}

#[test]
fn help_version_and_completions_need_no_pool() {
    let pool = Pool::new(FILE);
    let help = pool.run(&["--help"]);
    assert!(help.code == 0 && String::from_utf8_lossy(&help.stdout).contains("Exit codes"));
    assert_eq!(
        pool.run(&["version", "--output", "json"]).json()["protocol"],
        1
    );
    let script = pool.run(&["completions", "bash"]);
    assert!(script.code == 0 && String::from_utf8_lossy(&script.stdout).contains("larder"));
}
