//! What `larder up` refuses, and how it says so. Nothing is started or left.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::pool::{FILE, Pool, Said, bare, say};

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
    let message = refused(FILE, &["--admin-port", &port], 2, "usage");
    assert!(
        message.contains(&port) && message.contains("--admin-port"),
        "{message}"
    );

    let same = ["--admin-port", "7", "--client-port", "7"];
    let message = refused(FILE, &same, 2, "usage");
    assert!(message.contains("both 7"), "{message}");

    let pool = Pool::new(FILE);
    let long = pool.beside(&"x".repeat(100));
    let message = pool.start(&["--dir", &long]).failed(2, "usage");
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
    assert!(!message.contains(" INFO "), "{message}");
}

#[test]
fn a_pool_without_agents_holds_nothing() {
    let none = FILE.replace("count: 2", "count: 0");
    let message = refused(&none, &[], 2, "usage");
    assert!(message.contains("spec.nodes.count is 0"), "{message}");
}

#[test]
fn a_master_that_hangs_takes_until_the_deadline() {
    // The kernel accepts for it, and nobody reads.
    let hung = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = hung.local_addr().expect("bound").to_string();
    let pool = Pool::new(FILE);
    let token = pool.beside("token");
    std::fs::write(&token, "secret").expect("room");
    let args = [
        "--master",
        &addr,
        "--token-file",
        &token,
        "--output",
        "json",
    ];
    let said = say(&[&args[..], &["--deadline", "200ms", "ls"]].concat());
    said.failed(5, "deadline_passed");
}

#[test]
fn wrong_arguments_are_documents_where_json_is_asked_for() {
    let message = say(&["up", "--output", "json"]).failed(2, "usage");
    assert!(message.contains("--file"), "{message}");
    let message = say(&["--output=json", "frobnicate"]).failed(2, "usage");
    assert!(message.contains("frobnicate"), "{message}");
    let alone = say(&[]);
    assert_eq!(alone.code, 2, "{alone:?}");
    assert!(
        alone.stderr.contains("Usage:") && !alone.stderr.contains("run-master"),
        "{alone:?}"
    );
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
    let none = pool.run(&["--output", "json", "ls"]).failed(1, "no_pool");
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
    let mut child = bare()
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    // Its reader goes away before it has read anything.
    drop(child.stdout.take());
    assert!(child.wait().expect("it ends").success());
    let script = pool.run(&["completions", "bash"]);
    assert!(script.code == 0 && String::from_utf8_lossy(&script.stdout).contains("larder"));
}

#[test]
fn a_folder_whose_name_is_no_text_is_not_made() {
    let pool = Pool::new(FILE);
    let base = pool.beside("");
    let odd = std::path::Path::new(&base).join(OsStr::from_bytes(b"odd\xff"));
    let file = pool.file();
    let up = ["up", "--detach", "-f", &file, "--output", "json"];
    let mut by_flag = bare();
    by_flag.arg("--dir").arg(&odd).args(up);
    let mut by_variable = bare();
    by_variable.env("XDG_RUNTIME_DIR", &odd).args(up);
    for mut command in [by_flag, by_variable] {
        let said = Said::from(command.output().expect("the program runs"));
        let message = said.failed(2, "usage");
        assert!(message.contains("--dir"), "{message}");
        assert!(!odd.exists());
    }
}

#[test]
fn a_value_that_no_slab_holds_is_not_read() {
    let pool = Pool::new(FILE);
    let (large, token) = (pool.beside("large"), pool.beside("token"));
    let file = std::fs::File::create(&large).expect("room");
    // It has a length, but nothing in it.
    file.set_len((1 << 30) + 1).expect("no room is needed");
    std::fs::write(&token, "secret").expect("room");
    let direct = ["--master", "127.0.0.1:1", "--token-file", &token];
    let put = ["--output", "json", "put", "k", &large];
    let message = say(&[&direct[..], &put].concat()).failed(2, "usage");
    assert!(
        message.contains("too large") && message.contains("1.0 GiB"),
        "{message}"
    );
}

#[test]
fn a_token_file_without_end_is_not_read_to_it() {
    let direct = ["--master", "127.0.0.1:1", "--token-file", "/dev/zero"];
    let message = say(&[&direct[..], &["--output", "json", "ls"]].concat()).failed(2, "usage");
    assert!(message.contains("too long for a token"), "{message}");
}

#[test]
fn a_token_that_others_can_read_is_warned_about() {
    let pool = Pool::new(FILE);
    let token = pool.beside("token");
    std::fs::write(&token, "secret").expect("room");
    for (mode, warned) in [(0o600, false), (0o640, true), (0o604, true)] {
        std::fs::set_permissions(&token, std::fs::Permissions::from_mode(mode)).expect("ours");
        let direct = ["--master", "127.0.0.1:1", "--token-file", &token];
        let said = say(&[&direct[..], &["--output", "json", "ls"]].concat());
        said.failed(1, "unreachable");
        assert_eq!(said.stderr.contains("chmod 600"), warned, "{said:?}");
        assert_eq!(said.stderr.lines().count(), usize::from(warned), "{said:?}");
    }
}
