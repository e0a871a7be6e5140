//! The program as its pod runs it: an ordinary user, secrets by its group, one folder to write.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::rig::{Folder, soon};

/// User and group of the pod.
const USER: u32 = 65_532;
const PROGRAM: &str = env!("CARGO_BIN_EXE_larder-master");

fn program() -> Command {
    let mut command = Command::new(PROGRAM);
    command.uid(USER).gid(USER).env_clear().current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Why this cannot be tried here.
fn obstacle(folder: &Path) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can start a program as another user".to_owned());
    }
    let all = folder.ancestors().chain(Path::new(PROGRAM).ancestors());
    let closed = |path: &&Path| {
        let facts = std::fs::metadata(path);
        facts.is_ok_and(|facts| facts.mode() & 0o001 == 0)
    };
    let closed = all.filter(|path| *path != folder).find(closed)?;
    Some(format!("other users cannot enter {}", closed.display()))
}

#[tokio::test]
async fn the_user_of_a_pod_needs_its_group_and_one_folder() {
    let folder = Folder::new();
    if let Some(reason) = obstacle(&folder.0) {
        println!("skipped: {reason}");
        return;
    }
    let mode = |path: &Path, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("own file");
    };
    mode(&folder.0, 0o755);
    // As kubelet makes them with `fsGroup`: a Secret, and an emptyDir.
    let root_key = folder.write("root.key", &"5c".repeat(32));
    mode(&root_key, 0o440);
    chown(&root_key, Some(0), Some(USER)).expect("root");
    let state = folder.0.join("state");
    std::fs::create_dir(&state).expect("a folder");
    chown(&state, Some(0), Some(USER)).expect("root");
    mode(&state, 0o2777);
    let config = json!({
        "pool": "small",
        "name": "small-master-0",
        "client_addr": "127.0.0.1:0",
        "admin_addr": "127.0.0.1:0",
        "state_dir": state,
        "root_key_file": root_key,
        "identities_file": folder.write("identities.json", "[]"),
        "tenants_file": folder.write("tenants.json", "[]"),
        "ready_file": state.join("ready.json"),
    });
    let file = folder.write("master.json", &config.to_string());
    let mut master = program()
        .arg("--config")
        .arg(&file)
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let ready = soon("the master is ready", async {
        loop {
            if let Ok(text) = std::fs::read_to_string(state.join("ready.json")) {
                break text;
            }
            let ended = master.try_wait().expect("a child");
            assert!(ended.is_none(), "the master ended: {ended:?}");
            tokio::task::yield_now().await;
        }
    })
    .await;
    let ready: Value = serde_json::from_str(&ready).expect("JSON");
    assert_eq!(ready["pid"], master.id());
    let pid = rustix::process::Pid::from_child(&master);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("signalled");
    assert!(master.wait().expect("a child").success());

    // Another group's file is no secret of this process, and says so.
    chown(&root_key, Some(USER), Some(0)).expect("root");
    let output = program()
        .arg("--config")
        .arg(&file)
        .stderr(Stdio::piped())
        .output()
        .expect("started");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("mode 0440 and group 0"), "{text}");
}
