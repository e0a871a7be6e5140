//! Starts that are refused, each with a sentence, and the program itself.

use std::process::{Command, Stdio};

use larder_node_agent::AgentError;
use larder_telemetry::error_chain;

use super::fake_master::{Call, FakeMaster, soon};
use super::rig::{EPOCH, Rig, get, give, join, slab};

fn nowhere() -> Rig {
    Rig::new("127.0.0.1:9".parse().expect("an address"))
}

#[tokio::test]
async fn a_second_agent_on_the_same_state_is_refused() {
    let rig = nowhere();
    let agent = rig.start();
    let mut second = nowhere();
    second.config.state_dir = rig.config.state_dir.clone();
    let error = second.refused();
    assert!(matches!(error, AgentError::State(_)), "{error}");
    let sentence = error_chain(&error);
    assert!(
        sentence.contains("another agent runs on the state folder"),
        "{sentence}"
    );
    assert!(!second.config.socket_path.exists());
    agent.stop();
    join(agent).await.expect("stopped");
    let agent = second.start();
    agent.stop();
    join(agent).await.expect("free again");
}

#[tokio::test]
async fn a_second_agent_on_the_same_socket_is_refused() {
    let rig = nowhere();
    let agent = rig.start();
    let mut second = nowhere();
    second.config.socket_path = rig.config.socket_path.clone();
    let sentence = error_chain(&second.refused());
    assert!(
        sentence.contains("another agent serves the socket"),
        "{sentence}"
    );
    assert!(
        rig.config.socket_path.exists(),
        "the first one's is left alone"
    );
    agent.stop();
    join(agent).await.expect("stopped");
}

#[test]
fn b14_an_address_that_others_cannot_reach_is_refused() {
    let mut rig = nowhere();
    rig.config.single_node = false;
    let sentence = error_chain(&rig.refused());
    for part in ["loopback", "advertise_addr", "single_node"] {
        assert!(sentence.contains(part), "{sentence}");
    }
    assert!(!rig.config.socket_path.exists());
}

#[test]
fn a_taken_port_names_its_key() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let addr = taken.local_addr().expect("an address").to_string();
    let mut rig = nowhere();
    rig.config.metrics_addr = addr.clone();
    let sentence = error_chain(&rig.refused());
    assert!(
        sentence.contains("metrics_addr") && sentence.contains(&addr),
        "{sentence}"
    );
}

#[test]
fn more_memory_than_the_machine_has_is_one_sentence() {
    let mut rig = nowhere();
    rig.config.system_root = "/".into();
    rig.config.slab_bytes = 16 << 30;
    rig.config.dram_bytes = 1 << 47;
    let error = rig.refused();
    assert!(matches!(error, AgentError::Limit(_)), "{error}");
    let sentence = error_chain(&error);
    assert!(
        sentence.contains("140737488355328") && !sentence.contains('\n'),
        "{sentence}"
    );
    assert!(!rig.config.state_dir.exists(), "nothing was made");
}

#[test]
fn a_missing_or_empty_token_is_named() {
    let rig = nowhere();
    std::fs::write(&rig.config.token_file, " \n").expect("written");
    let sentence = error_chain(&rig.refused());
    assert!(
        sentence.contains("token_file") && sentence.contains("empty"),
        "{sentence}"
    );
    std::fs::remove_file(&rig.config.token_file).expect("removed");
    assert!(error_chain(&rig.refused()).contains("token_file"));
}

#[test]
fn a_damaged_epoch_is_not_taken_for_the_lowest() {
    let rig = nowhere();
    std::fs::create_dir_all(&rig.config.state_dir).expect("made");
    std::fs::write(rig.config.state_dir.join("epoch"), "").expect("written");
    let sentence = error_chain(&rig.refused());
    assert!(sentence.contains("damaged"), "{sentence}");
}

fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_larder-agent"));
    program
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    program
}

#[test]
fn the_program_checks_its_configuration() {
    let rig = nowhere();
    let path = rig.folder.path().join("agent.json");
    let mut text = serde_json::to_value(&rig.config).expect("json");
    std::fs::write(&path, text.to_string()).expect("written");
    let run = || {
        program()
            .arg("--config")
            .arg(&path)
            .arg("--check-config")
            .output()
            .expect("run")
    };
    assert!(run().status.success());
    text["sise"] = 1.into();
    std::fs::write(&path, text.to_string()).expect("written");
    let refused = run();
    assert_eq!(refused.status.code(), Some(2));
    let sentence = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(sentence.contains("sise"), "{sentence}");
    assert!(
        program()
            .arg("--version")
            .output()
            .expect("run")
            .status
            .success()
    );
    assert!(
        program()
            .arg("--help")
            .output()
            .expect("run")
            .status
            .success()
    );
}

#[tokio::test]
async fn the_program_stops_on_sigterm() {
    let master = FakeMaster::new(EPOCH).await;
    let rig = Rig::new(master.addr());
    let path = rig.folder.path().join("agent.json");
    std::fs::write(&path, serde_json::to_string(&rig.config).expect("json")).expect("written");
    let mut child = program()
        .arg("--config")
        .arg(&path)
        .stderr(Stdio::null())
        .spawn()
        .expect("run");
    let (mut link, _) = master.mount().await;
    // It answers when it is mounted.
    link.command(EPOCH, vec![give(slab(0, 1))]).await;
    link.events(1).await;
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("told");
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
    assert!(!rig.config.socket_path.exists() && !rig.ready_file().exists());
}

#[tokio::test]
async fn silent_connections_do_not_keep_a_probe_out() {
    let rig = nowhere();
    let agent = rig.start();
    let mut silent = Vec::new();
    // More than there are places.
    for _ in 0..100 {
        let stream = tokio::net::TcpStream::connect(agent.metrics_addr()).await;
        silent.push(stream.expect("connected"));
    }
    let asked = get(agent.metrics_addr(), "/healthz");
    let (status, _) = soon("a probe is answered", asked).await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    drop(silent);
    agent.stop();
    join(agent).await.expect("stopped");
}
