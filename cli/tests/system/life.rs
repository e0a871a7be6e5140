//! A pool's life: up, watched over, down; and what is left when it dies otherwise.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::pool::{FILE, Pool, Said, runs};

/// Far more than anything here takes; only a fault reaches it.
const PATIENCE: Duration = Duration::from_secs(120);

fn kill(pid: u64, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a number")).expect("not 0");
    kill_process(pid, signal).expect("it runs");
}

#[track_caller]
fn nothing_left(pool: &Pool, pids: &[u64]) {
    assert!(!pool.dir().exists());
    let left: Vec<_> = pids.iter().filter(|pid| runs(**pid)).collect();
    assert!(left.is_empty(), "{left:?} still run");
}

#[test]
fn up_status_and_down_agree_and_leave_nothing() {
    let pool = Pool::new(FILE);
    let said = pool.start(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    let document = said.json();
    assert_eq!(document, pool.document());
    assert_eq!(document["pool"], "small");
    assert_eq!(document["masters"][0]["role"], "leader");
    let names: Vec<_> = document["agents"]
        .as_array()
        .expect("a list")
        .iter()
        .collect();
    assert_eq!(
        (&names[0]["name"], &names[1]["name"]),
        (&"small-0".into(), &"small-1".into())
    );
    for file in document["tokens"].as_object().expect("a map").values() {
        let facts = std::fs::metadata(file.as_str().expect("a path")).expect("there");
        assert_eq!(
            std::os::unix::fs::PermissionsExt::mode(&facts.permissions()) & 0o777,
            0o600
        );
    }
    let again = pool.start(&[]).failed(4, "taken");
    assert!(again.contains("larder down --dir"), "{again}");

    let pids = pool.pids();
    assert!(
        pids.len() == 4 && pids.iter().all(|pid| runs(*pid)),
        "{pids:?}"
    );
    let down = pool.run(&["down", "--output", "json"]);
    assert_eq!(
        (down.code, &down.json()["was_running"]),
        (0, &Value::Bool(true)),
        "{down:?}"
    );
    nothing_left(&pool, &pids);
    let down = pool.run(&["down", "--output", "json"]);
    assert_eq!(
        (down.code, &down.json()["was_running"]),
        (0, &Value::Bool(false)),
        "{down:?}"
    );
    pool.run(&["status", "--output", "json"])
        .failed(1, "no_pool");
    assert_eq!(pool.start(&[]).code, 0, "it can be started again");
}

#[test]
fn a_killed_supervisor_takes_the_others_along_and_down_cleans() {
    let pool = Pool::up();
    let pids = pool.pids();
    kill(pids[0], Signal::KILL);
    let until = Instant::now() + PATIENCE;
    while runs(pids[0]) {
        assert!(Instant::now() < until, "a killed process ends");
    }
    let said = pool
        .run(&["status", "--output", "json"])
        .failed(1, "no_pool");
    assert!(said.contains("larder down --dir"), "{said}");
    let left = pool.run(&["down", "--output", "json"]);
    assert_eq!(
        (left.code, &left.json()["was_running"]),
        (0, &Value::Bool(false)),
        "{left:?}"
    );
    nothing_left(&pool, &pids);
}

#[test]
fn a_pool_whose_run_folder_is_gone_stops() {
    let pool = Pool::up();
    let pids = pool.pids();
    std::fs::remove_dir_all(pool.dir()).expect("ours");
    let until = Instant::now() + PATIENCE;
    while pids.iter().any(|pid| runs(*pid)) {
        assert!(Instant::now() < until, "{pids:?} still run");
        std::thread::yield_now();
    }
    nothing_left(&pool, &pids);
}

#[test]
fn a_process_that_dies_is_started_again_where_it_was() {
    let pool = Pool::up();
    let before = pool.document();
    let pid = before["agents"][1]["pid"].as_u64().expect("a number");
    kill(pid, Signal::KILL);
    let until = Instant::now() + PATIENCE;
    let after = loop {
        let now = pool.document();
        if now["agents"][1]["pid"] != pid {
            break now;
        }
        assert!(Instant::now() < until, "{now}");
    };
    for name in ["client_addr", "metrics_addr", "socket"] {
        assert_eq!(after["agents"][1][name], before["agents"][1][name]);
    }
    let file = pool.beside("in");
    std::fs::write(&file, b"bytes").expect("room");
    let put = pool.call("team-b", &["--via", "small-1", "put", "k", &file]);
    assert_eq!(put.code, 0, "{put:?}");
}

#[test]
fn a_master_that_dies_comes_back_at_its_address_and_knows_what_it_did() {
    let pool = Pool::up();
    let file = pool.beside("in");
    std::fs::write(&file, b"bytes").expect("room");
    assert_eq!(pool.call("team-b", &["put", "old", &file]).code, 0);
    let before = pool.document();
    kill(
        before["masters"][0]["pid"].as_u64().expect("a number"),
        Signal::KILL,
    );
    let until = Instant::now() + PATIENCE;
    loop {
        let put = pool.call("team-b", &["put", "new", &file]);
        if put.code == 0 {
            break;
        }
        assert!(Instant::now() < until, "{put:?}");
    }
    assert_eq!(pool.call("team-b", &["get", "old"]).stdout, b"bytes");
    assert_eq!(pool.call("team-b", &["get", "new"]).stdout, b"bytes");
    let after = pool.document();
    assert_eq!(
        after["masters"][0]["client_addr"],
        before["masters"][0]["client_addr"]
    );
    assert_ne!(after["masters"][0]["pid"], before["masters"][0]["pid"]);
}

#[test]
fn a_pool_in_the_foreground_stops_with_its_signal() {
    let pool = Pool::new(FILE);
    let mut child = pool
        .command(&["up", "-f", &pool.file(), "--output", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped"))
        .read_line(&mut line)
        .expect("a line");
    let document: Value = serde_json::from_str(&line).expect("the document");
    assert_eq!(document, pool.document());
    let pids = pool.pids();
    assert_eq!(pids[0], u64::from(child.id()));
    kill(pids[0], Signal::INT);
    assert!(child.wait().expect("it ends").success());
    nothing_left(&pool, &pids);
}

#[test]
fn of_many_at_once_one_is_up_and_the_others_are_told() {
    let pool = Pool::new(FILE);
    let file = pool.file();
    let start = || {
        pool.command(&["up", "--detach", "-f", &file, "--output", "json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs")
    };
    let all: Vec<_> = (0..5).map(|_| start()).collect();
    let said = all
        .into_iter()
        .map(|one| Said::from(one.wait_with_output().expect("it ends")));
    let (up, others): (Vec<_>, Vec<_>) = said.partition(|said| said.code == 0);
    assert_eq!(up.len(), 1, "{up:?} {others:?}");
    for other in &others {
        let message = other.failed(4, "taken");
        let is_up = message.contains("is up already");
        assert_eq!(message.contains("larder down"), is_up, "{message}");
    }
    assert_eq!(up[0].json(), pool.document());
}

#[test]
fn a_pool_that_is_stopped_while_it_starts_leaves_nothing() {
    for (signal, detach) in [
        (Signal::TERM, false),
        (Signal::HUP, false),
        (Signal::TERM, true),
    ] {
        let pool = Pool::new(FILE);
        let file = pool.file();
        let mut args = vec!["up", "-f", &file];
        args.extend(detach.then_some("--detach"));
        let mut child = pool
            .command(&args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program runs");
        let until = Instant::now() + PATIENCE;
        // From its first moment on there are handlers.
        while !pool.dir().exists() {
            assert!(Instant::now() < until, "it makes its folder");
            std::hint::spin_loop();
        }
        kill(u64::from(child.id()), signal);
        let status = child.wait().expect("it ends");
        assert!(status.code().is_some(), "{status} with {signal:?}");
        nothing_left(&pool, &[]);
    }
}

#[test]
fn down_removes_a_folder_that_an_early_end_left_empty() {
    let pool = Pool::new(FILE);
    std::fs::create_dir(pool.dir()).expect("room");
    let down = pool.run(&["down", "--output", "json"]);
    assert_eq!(down.code, 0, "{down:?}");
    assert!(!pool.dir().exists());
    std::fs::create_dir(pool.dir()).expect("room");
    std::fs::write(pool.dir().join("thesis.tex"), "precious").expect("room");
    assert_eq!(pool.run(&["down"]).code, 0);
    assert!(pool.dir().join("thesis.tex").exists());
}
