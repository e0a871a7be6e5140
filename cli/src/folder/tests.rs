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
    let _claim = run.create("p").expect("nothing stands there");
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
    let claim = run.create("p").expect("nothing stands there");
    let taken = || {
        let error = run.create("p").expect_err("this process runs it");
        assert!(matches!(error, CliError::Taken(_)), "{error:?}");
        error.to_string()
    };
    let error = taken();
    assert!(
        error.contains("starting or ending") && !error.contains("larder down"),
        "{error}"
    );
    run.write("pool.json", b"{}").expect("room");
    let error = taken();
    assert!(
        error.contains("up already") && error.contains("larder down --dir"),
        "{error}"
    );
    drop(claim);
    // Also where the claim could not be kept.
    assert_eq!(taken(), error);

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
    let claim = folder(place.path()).create("p").expect("empty");
    drop(claim);
    let other = tempfile::tempdir().expect("a folder");
    fs::write(other.path().join("thesis.tex"), "precious").expect("room");
    let error = folder(other.path())
        .create("p")
        .expect_err("not ours")
        .to_string();
    assert!(error.contains("holds other things"), "{error}");
    assert!(other.path().join("thesis.tex").exists());
    assert_eq!(fs::read_dir(other.path()).expect("there").count(), 1);
}

#[test]
fn logs_are_cut_and_show_their_end() {
    let place = tempfile::tempdir().expect("a folder");
    let run = folder(&place.path().join("p"));
    let _claim = run.create("p").expect("nothing stands there");
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
    let _claim = run.create("p").expect("nothing stands there");
    let me = run.supervisor().expect("readable").expect("marked").process;
    assert!(run.is_run_by(&me));
    let mut other = me.clone();
    other.start_ticks += 1;
    assert!(!run.is_run_by(&other));
    run.remove().expect("ours");
    assert!(!run.is_run_by(&me));
}

#[test]
fn of_many_only_one_gets_the_folder() {
    let place = tempfile::tempdir().expect("a folder");
    let run = folder(&place.path().join("p"));
    let go = std::sync::Barrier::new(8);
    let claims: Vec<_> = std::thread::scope(|scope| {
        let try_it = || {
            go.wait();
            run.create("p")
        };
        let all: Vec<_> = (0..8).map(|_| scope.spawn(try_it)).collect();
        all.into_iter()
            .map(|one| one.join().expect("no panic"))
            .collect()
    });
    assert_eq!(claims.iter().filter(|claim| claim.is_ok()).count(), 1);
    for error in claims.into_iter().filter_map(Result::err) {
        assert!(
            matches!(&error, CliError::Taken(why) if !why.contains("larder down")),
            "{error}"
        );
    }
}

#[test]
fn only_an_empty_folder_goes() {
    let place = tempfile::tempdir().expect("a folder");
    let run = folder(&place.path().join("p"));
    fs::create_dir(run.path()).expect("room");
    fs::write(run.join("supervisor.json.new"), "{").expect("room");
    fs::write(run.join("thesis.tex"), "precious").expect("room");
    run.remove_if_empty().expect("no failure");
    assert_eq!(fs::read_dir(run.path()).expect("there").count(), 2);
    fs::remove_file(run.join("thesis.tex")).expect("there");
    run.remove_if_empty().expect("no failure");
    assert!(!run.path().exists());
}
