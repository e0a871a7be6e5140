//! The agent as it runs in a pod: named by flags, as root without a capability, reached by pods of
//! any uid.

use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use larder_types::{Epoch, SlabRef};
use larder_wire::agent::Event;
use rustix::process::{Gid, Pid, Signal, Uid, geteuid, kill_process};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

use super::fake_master::{Call, FakeMaster, MasterLink, soon};
use super::rig::{EPOCH, Rig, give, join, slab};

const PROGRAM: &str = env!("CARGO_BIN_EXE_larder-agent");

/// The configuration of a rig as all pods of a pool have it: without the name.
fn shared_file(rig: &Rig) -> String {
    let mut config = serde_json::to_value(&rig.config).expect("json");
    config.as_object_mut().expect("an object").remove("name");
    let path = rig.folder.path().join("agent.json");
    std::fs::write(&path, config.to_string()).expect("written");
    path.display().to_string()
}

fn mode(path: &Path) -> u32 {
    let metadata = std::fs::metadata(path).expect("there");
    metadata.permissions().mode() & 0o777
}

/// Tells a program to stop as kubelet does, and waits for its end.
async fn terminate(mut child: Child, link: &mut MasterLink) {
    kill_process(Pid::from_child(&child), Signal::TERM).expect("told");
    let Some(Call::Unmount(header)) = link.next_but_beats().await else {
        panic!("no unmount")
    };
    link.reply(&header, &()).await;
    let ended = tokio::task::spawn_blocking(move || child.wait());
    let status = soon("it ends", ended)
        .await
        .expect("no panic")
        .expect("waited");
    assert_eq!(status.code(), Some(0));
}

async fn serves(master: &FakeMaster, slab: SlabRef, epoch: Epoch) -> MasterLink {
    let (mut link, mount) = master.mount().await;
    assert_eq!(mount.name.as_str(), "small-0");
    link.command(epoch, vec![give(slab)]).await;
    assert_eq!(link.events(1).await, [Event::SlabReady { slab }]);
    link
}

#[tokio::test]
async fn flags_complete_the_file_and_modes_do_not_depend_on_the_umask() {
    let master = FakeMaster::new(EPOCH).await;
    let rig = Rig::new(master.addr());
    let file = shared_file(&rig);
    // The shell sets the umask and becomes the program.
    let child = Command::new("sh")
        .args(["-c", "umask 0177 && exec \"$@\"", "sh", PROGRAM])
        .args([
            "--config",
            &file,
            "--name",
            "small-0",
            "--advertise-addr",
            "127.0.0.1",
        ])
        .stderr(Stdio::null())
        .spawn()
        .expect("run");
    let mut link = serves(&master, slab(0, 1), EPOCH).await;
    let socket = &rig.config.socket_path;
    assert_eq!(mode(socket), 0o666);
    assert_eq!(mode(socket.parent().expect("a folder")), 0o755);
    assert_eq!(mode(&rig.config.state_dir), 0o700);
    terminate(child, &mut link).await;
}

#[test]
fn without_a_name_the_program_says_where_to_give_one() {
    let rig = Rig::new("127.0.0.1:9".parse().expect("an address"));
    let run = |more: &[&str]| {
        let run = Command::new(PROGRAM)
            .args(["--check-config", "--config", &shared_file(&rig)])
            .args(more)
            .output()
            .expect("run");
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        (run.status.code(), said)
    };
    let (code, said) = run(&[]);
    assert_eq!(code, Some(2));
    assert!(said.contains("name") && said.contains("--name"), "{said}");
    assert_eq!(run(&["--name", "small-0"]).0, Some(0));
    for wrong in [
        &["--name", "a/b"][..],
        &["--name", "n", "--cache-node", "nowhere"],
        &["--name", "n", "--pod-uid", "u"],
    ] {
        let (code, said) = run(wrong);
        assert_eq!(code, Some(2), "{said}");
    }
}

#[test]
fn where_there_is_no_cluster_the_flag_for_it_is_refused() {
    let rig = Rig::new("127.0.0.1:9".parse().expect("an address"));
    let run = Command::new(PROGRAM)
        .args(["--config", &shared_file(&rig), "--name", "small-0"])
        .args(["--cache-node", "cache/small-n1"])
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env("KUBECONFIG", rig.folder.path().join("no-such-file"))
        .env("HOME", rig.folder.path())
        .output()
        .expect("run");
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(1), "{said}");
    let sentence = said.lines().last().expect("a sentence");
    assert!(sentence.contains("--cache-node cache/small-n1"), "{said}");
    assert!(!rig.config.socket_path.exists());
}

#[tokio::test]
async fn root_without_a_capability_is_enough() {
    if !geteuid().is_root() {
        println!("skipped: only root can be root without capabilities");
        return;
    }
    if Command::new("setpriv").arg("--version").output().is_err() {
        println!("skipped: there is no setpriv");
        return;
    }
    let master = FakeMaster::new(EPOCH).await;
    let mut rig = Rig::new(master.addr());
    // The real /proc and /sys, as in a pod.
    rig.config.system_root = "/".into();
    let child = Command::new("setpriv")
        .args([
            "--bounding-set=-all",
            "--inh-caps=-all",
            "--no-new-privs",
            PROGRAM,
        ])
        .args(["--config", &shared_file(&rig), "--name", "small-0"])
        .stderr(Stdio::null())
        .spawn()
        .expect("run");
    let mut link = serves(&master, slab(0, 1), EPOCH).await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("read");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    assert_eq!(effective.map(str::trim), Some("0000000000000000"));
    terminate(child, &mut link).await;
}

#[tokio::test]
async fn any_uid_may_connect_and_sees_nothing_else() {
    if !geteuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let rig = Rig::new("127.0.0.1:9".parse().expect("an address"));
    std::fs::set_permissions(rig.folder.path(), Permissions::from_mode(0o755)).expect("opened");
    let agent = rig.start();
    let (socket, state) = (rig.config.socket_path.clone(), rig.config.state_dir.clone());
    // Of one thread alone, which ends with it.
    let other = std::thread::spawn(move || {
        set_thread_groups(&[]).expect("no groups");
        set_thread_gid(Gid::from_raw(54_321)).expect("another group");
        set_thread_uid(Uid::from_raw(54_321)).expect("another user");
        UnixStream::connect(&socket).expect("anybody may");
        let folder = socket.parent().expect("a folder");
        let denied = |what: std::io::Result<()>| {
            let error = what.expect_err("not for everybody");
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        };
        denied(std::fs::remove_file(&socket));
        denied(std::fs::write(folder.join("mine"), ""));
        denied(std::fs::read_dir(&state).map(drop));
        denied(std::fs::read(state.join("uid")).map(drop));
    });
    other.join().expect("as it should be");
    agent.stop();
    join(agent).await.expect("stopped");
}
