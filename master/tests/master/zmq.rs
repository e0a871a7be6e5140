//! Cache events on ZMQ, read by a Python program with the libraries that routers use.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use larder_master::Config;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::peer::{AgentPeer, Client};
use crate::rig::{Rig, soon, token};

/// Python with `pyzmq` and `msgspec` in a folder of the build, made once; why there is none.
async fn python() -> Result<PathBuf, String> {
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("zmq-venv");
    let python = venv.join("bin/python");
    if run(&python, &["-c", "import zmq, msgspec"]).await.is_ok() {
        return Ok(python);
    }
    let folder = venv.display().to_string();
    run(Path::new("python3"), &["-m", "venv", "--clear", &folder]).await?;
    let install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--retries",
        "1",
        "pyzmq>=25",
        "msgspec>=0.18",
    ];
    run(&python, &install).await?;
    Ok(python)
}

async fn run(program: &Path, arguments: &[&str]) -> Result<(), String> {
    let name = program.display();
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .await
        .map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name}: {}", said.lines().last().unwrap_or("")))
}

struct Subscriber {
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Subscriber {
    fn start(python: &Path, endpoint: &Value, topic: &str, schema: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/master/zmq_subscriber.py");
        let mut child = Command::new(python)
            .arg(script)
            .arg(endpoint["addr"].as_str().expect("an address"))
            .arg(endpoint["replay_addr"].as_str().expect("an address"))
            .args([topic, schema])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("python starts");
        let stdout = child.stdout.take().expect("piped");
        let lines = BufReader::new(stdout).lines();
        Self {
            _child: child,
            lines,
        }
    }

    async fn line(&mut self) -> String {
        let line = soon("a line of the subscriber", self.lines.next_line()).await;
        line.expect("text").expect("its error output says why")
    }

    /// The next event: its name and hash.
    async fn event(&mut self) -> (String, u64) {
        let line = self.line().await;
        let event: Value = serde_json::from_str(&line).expect("an event");
        let name = event["name"].as_str().expect("a name").to_owned();
        if name != "AllBlocksCleared" {
            assert_eq!(event["medium"], "EXTERNAL");
        }
        (name, event["hashes"][0].as_u64().unwrap_or(0))
    }
}

fn block(number: u64) -> String {
    format!("model@tp_rank:0@group:0@{number:016x}")
}

fn stored(hash: u64) -> (String, u64) {
    ("BlockStored".to_owned(), hash)
}

fn removed(hash: u64) -> (String, u64) {
    ("BlockRemoved".to_owned(), hash)
}

const NAMED: u64 = 0xfeed_0000_0000_0001;
const KEPT: u64 = 0xfeed_0000_0000_0002;
/// How long a probe may take to be heard before the next one is sent.
const PROBE_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);
const PROBE: u64 = 0xfeed_0000_0000_0003;
const LIVE: u64 = 0xfeed_0000_0000_0004;

/// What the subscriber has to hear, whether it came late or not.
async fn follows(rig: &Rig, python: &Path, endpoint: &Value, topic: &str, schema: &str) {
    let agent = AgentPeer::mount(rig, "node-0", 5).await.serve();
    let mut client = Client::connect(rig, "a").await;
    let put = async |client: &mut Client, hash| {
        assert_eq!(client.put(&block(hash), 100, &[&agent]).await, Ok(()));
    };
    put(&mut client, NAMED).await;
    put(&mut client, KEPT).await;
    assert_eq!(client.remove(&[&block(NAMED)]).await, [Ok(())]);
    // A key without a hash is left out, and counted.
    assert_eq!(client.put("other", 100, &[&agent]).await, Ok(()));
    let labels = [("tenant", "a"), ("reason", "no_hash")];
    rig.until_metric("larder_master_zmq_dropped_total", &labels, 1.0)
        .await;
    // It joins late and asks for what it missed.
    let mut subscriber = Subscriber::start(python, endpoint, topic, schema);
    assert_eq!(subscriber.event().await.0, "AllBlocksCleared");
    for expected in [stored(NAMED), stored(KEPT), removed(NAMED)] {
        assert_eq!(subscriber.event().await, expected);
    }
    assert_eq!(subscriber.line().await, "replayed");
    // Its subscription arrives some time: until then it misses what is published.
    loop {
        put(&mut client, PROBE).await;
        assert_eq!(client.remove(&[&block(PROBE)]).await, [Ok(())]);
        // A probe now and then: a flood of them would keep the subscriber from starting.
        let line = tokio::time::timeout(PROBE_PAUSE, subscriber.lines.next_line()).await;
        if let Ok(line) = line {
            assert_eq!(line.expect("text").as_deref(), Some("live"));
            break;
        }
    }
    put(&mut client, LIVE).await;
    // Numbers without a hole: each probe, then the one that was put.
    let mut probes = 0;
    loop {
        let event = subscriber.event().await;
        if event == stored(LIVE) {
            break;
        }
        let expected = [stored(PROBE), removed(PROBE)];
        assert_eq!(event, expected[probes % 2]);
        probes += 1;
    }
    assert!(probes >= 2);
    // The tenant goes, and all its blocks with it.
    let credential = token("operator");
    let (status, body) = rig
        .http("DELETE", "/v1/tenants/a", Some(&credential), "")
        .await;
    assert!((200..300).contains(&status), "{status} {body}");
    let mut last = [subscriber.event().await, subscriber.event().await];
    last.sort();
    assert_eq!(last, [removed(KEPT), removed(LIVE)]);
}

async fn rig_with(schema: &str, topic: Option<&str>) -> (Rig, Value) {
    let endpoint = serde_json::json!({
        "zmq": [{
            "tenant": "a", "addr": "127.0.0.1:0", "replay_addr": "127.0.0.1:0",
            "schema": schema, "topic": topic,
        }],
    });
    let change = |config: &mut Config| {
        config.events = Some(serde_json::from_value(endpoint).expect("valid"));
    };
    let rig = Rig::start_with(change).await;
    let ready = rig.config.ready_file.clone().expect("configured");
    let written = soon("the ready file", async {
        loop {
            if let Ok(text) = std::fs::read_to_string(&ready) {
                return text;
            }
            tokio::task::yield_now().await;
        }
    });
    let document: Value = serde_json::from_str(&written.await).expect("JSON");
    let endpoint = document["zmq"][0].clone();
    assert_eq!(endpoint["tenant"], "a");
    (rig, endpoint)
}

#[tokio::test]
async fn a_python_subscriber_follows_puts_removals_and_a_purge() {
    let python = match python().await {
        Ok(python) => python,
        Err(why) => {
            println!("skipped: no Python with pyzmq and msgspec: {why}");
            return;
        }
    };
    for (schema, topic) in [("array", None), ("map", Some("kv@pool@model"))] {
        let (rig, endpoint) = rig_with(schema, topic).await;
        let topic = topic.unwrap_or("a");
        follows(&rig, &python, &endpoint, topic, schema).await;
    }
}
