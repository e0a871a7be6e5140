//! Run folders: who may take one, and who may not.

use super::logs::LOG_MAX_BYTES;
use super::*;

fn folder(at: &Path) -> RunFolder {
    RunFolder::at(at).expect("an absolute path")
}

#[test]
fn a_new_folder_is_private_and_marked() {
    let place = tempfile::tempdir().expect("a folder");
    let run = folder(&place.path().join("a/b"));
    run.create("p").expect("nothing stands there");
    let mode = fs::metadata(run.path()).expect("made").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let token = run.write("tokens/x.token", b"secret").expect("room");
    assert_eq!(
        fs::metadata(token).expect("made").permissions().mode() & 0o777,
        0o600
    );
    let supervisor = run.supervisor().expect("readable").expect("marked");
    assert!(supervisor.process.is_running() && supervisor.pool == "p");
    run.remove().expect("ours");
    run.remove().expect("removing nothing is no failure");
    assert!(!run.path().exists());
}

#[test]
fn a_folder_in_use_is_not_taken() {
    let place = tempfile::tempdir().expect("a folder");
    let run = folder(&place.path().join("p"));
    run.create("p").expect("nothing stands there");
    let error = run
        .create("p")
        .expect_err("this process runs it")
        .to_string();
    assert!(
        error.contains("up already") && error.contains("larder down --dir"),
        "{error}"
    );

    let mut supervisor = run.supervisor().expect("readable").expect("marked");
    supervisor.process.start_ticks += 1;
    run.write_supervisor(&supervisor).expect("room");
    let error = run.create("p").expect_err("somebody left it").to_string();
    assert!(error.contains("without cleaning up"), "{error}");
    let error = run.document().expect_err("nothing runs").to_string();
    assert!(error.contains("larder down --dir"), "{error}");
}

#[test]
fn a_folder_with_other_things_is_not_taken_and_an_empty_one_is() {
    let place = tempfile::tempdir().expect("a folder");
    folder(place.path()).create("p").expect("empty");
    let other = tempfile::tempdir().expect("a folder");
    fs::write(other.path().join("thesis.tex"), "precious").expect("room");
    let error = folder(other.path())
        .create("p")
        .expect_err("not ours")
        .to_string();
    assert!(error.contains("holds other things"), "{error}");
    assert!(other.path().join("thesis.tex").exists());
}

#[test]
fn logs_are_cut_and_show_their_end() {
    let place = tempfile::tempdir().expect("a folder");
    let run = folder(&place.path().join("p"));
    run.create("p").expect("nothing stands there");
    assert_eq!(run.log_tail("m"), "");
    let mut log = run.open_log("m").expect("room");
    let line = "x".repeat(1023) + "\n";
    for _ in 0..=LOG_MAX_BYTES / 1024 {
        log.write_all(line.as_bytes()).expect("room");
    }
    run.trim_logs().expect("ours");
    assert_eq!(fs::metadata(run.log("m")).expect("there").len(), 0);
    log.write_all(b"one\ntwo\n").expect("the writer goes on");
    assert_eq!(run.log_tail("m"), "\n  one\n  two");
    assert_eq!(run.log_faults("m"), None);
    log.write_all(b"T  INFO a: x\nT  WARN a: y\nerror: no port\n")
        .expect("room");
    let faults = run.log_faults("m").expect("some");
    assert_eq!(faults, "no port; its log has:\n  T  WARN a: y");
}

#[test]
fn a_folder_is_run_by_one_process() {
    let place = tempfile::tempdir().expect("a folder");
    let run = folder(&place.path().join("p"));
    run.create("p").expect("nothing stands there");
    let me = run.supervisor().expect("readable").expect("marked").process;
    assert!(run.is_run_by(&me));
    let mut other = me.clone();
    other.start_ticks += 1;
    assert!(!run.is_run_by(&other));
    run.remove().expect("ours");
    assert!(!run.is_run_by(&me));
}
