//! A stock Mooncake engine and we, in both roles, contents compared. Needs its wheel:
//! `LARDER_PEER_PYTHON` names a Python that has it, or `target/bench/peer` holds one.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use larder_transfer::OwnMemory;
use larder_transfer::endpoint::{Endpoint, EndpointOptions};
use larder_transfer::interop::data::Dialect;
use larder_transfer::interop::{
    InteropError, ListenOptions, Notify, PeerOptions, SegmentDesc, StockPeer, serve,
};
use larder_types::{Incarnation, TenantId};
use larder_wire::engine::BufferAccess;
use libtest_mimic::{Arguments, Completion, Trial};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, timeout};

/// Generous: what takes so long will not end.
const LIMIT: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;
/// The memory of each side, in bytes.
const MEMORY_BYTES: u64 = 8 * MIB;
const BOTH: BufferAccess = BufferAccess {
    read: true,
    write: true,
};
/// Offset and bytes of what is moved: small, odd, and more than one step of either side.
const RANGES: [(u64, u64); 4] = [(0, 1), (4096, 4096), (77, 3 * MIB + 5), (0, MEMORY_BYTES)];

/// A Python with the wheel, or why there is none.
#[expect(clippy::disallowed_methods, reason = "the configuration of this test")]
fn python() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("LARDER_PEER_PYTHON") {
        return Ok(named.into());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = root.join("target/bench/peer/bin/python");
    if built.exists() {
        Ok(built)
    } else {
        Err("no Python with the stock engine; LARDER_PEER_PYTHON can name one".to_owned())
    }
}

/// The same bytes as `pattern` of the script.
fn pattern(seed: u8, bytes: u64) -> Vec<u8> {
    let table: Vec<u8> = (0..251_u8).map(|at| at.wrapping_mul(3) ^ seed).collect();
    let bytes = usize::try_from(bytes).expect("small");
    table.into_iter().cycle().take(bytes).collect()
}

/// An endpoint whose buffers the stock engine reaches.
fn endpoint() -> Endpoint {
    let tenant = TenantId::new("test").expect("a name");
    Endpoint::new(EndpointOptions::new(
        "test",
        Incarnation(1),
        tenant,
        b"unused".to_vec(),
    ))
}

fn deadline() -> Instant {
    Instant::now() + LIMIT
}

/// The process with the stock engine.
struct Engine {
    _child: Child,
    ask: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    port: u64,
    address: u64,
}

impl Engine {
    async fn start(python: &Path) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop_stock.py");
        let mut command = Command::new(python);
        command.arg(script).arg(MEMORY_BYTES.to_string());
        command
            .env("MC_FORCE_TCP", "1")
            .env("GLOG_minloglevel", "2");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().expect("Python starts");
        let ask = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut engine = Self {
            _child: child,
            ask,
            answers,
            port: 0,
            address: 0,
        };
        let started = engine.tell(json!({"what": "start"})).await;
        assert_eq!(started["code"], 0, "the engine starts: {started}");
        engine.port = started["port"].as_u64().expect("a port");
        engine.address = started["address"].as_u64().expect("an address");
        engine
    }

    async fn tell(&mut self, ask: Value) -> Value {
        let line = format!("{ask}\n");
        self.ask.write_all(line.as_bytes()).await.expect("it lives");
        let answer = self.answers.next_line().await.expect("it lives");
        let answer = answer.expect("it answers");
        serde_json::from_str(&answer).expect("JSON")
    }

    fn addr(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    async fn fill(&mut self, seed: u8, offset: u64, bytes: u64) {
        let fill = json!({"what": "fill", "seed": seed, "offset": offset, "bytes": bytes});
        self.tell(fill).await;
    }

    async fn holds(&mut self, seed: u8, offset: u64, bytes: u64) -> bool {
        let check = json!({"what": "check", "seed": seed, "offset": offset, "bytes": bytes});
        self.tell(check).await["same"] == true
    }
}

/// Runs a test on one thread, to its end and not for ever.
fn to_its_end(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().expect("a runtime");
    let limited = async { timeout(LIMIT, test).await.expect("ends") };
    LocalSet::new().block_on(&runtime, limited);
}

/// A test that needs the wheel; without it, it is skipped and says why.
fn trial<F: Future<Output = ()>>(
    name: &'static str,
    test: impl FnOnce(PathBuf) -> F + Send + 'static,
) -> Trial {
    Trial::ignorable_test(name, move || match python() {
        Err(why) => Ok(Completion::ignored_with(format!("skipped: {why}"))),
        Ok(python) => {
            to_its_end(test(python));
            Ok(Completion::Completed)
        }
    })
}

fn main() -> ExitCode {
    let tests = vec![
        trial(
            "we_read_and_write_the_memory_of_a_stock_engine",
            we_read_and_write,
        ),
        trial(
            "a_stock_engine_refuses_what_it_has_not_and_we_hear_it",
            it_refuses,
        ),
        trial(
            "a_stock_engine_reads_and_writes_our_memory",
            it_reads_and_writes,
        ),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

async fn open(engine: &Engine) -> Result<StockPeer, InteropError> {
    let own = SegmentDesc {
        name: "larder".into(),
        data_host: String::new(),
        data_port: None,
        dialect: Dialect::V2,
        buffers: Vec::new(),
    };
    StockPeer::open(engine.addr(), own, PeerOptions::default(), deadline()).await
}

async fn we_read_and_write(python: PathBuf) {
    let mut engine = Engine::start(&python).await;
    let peer = open(&engine).await.expect("described");
    let segment = peer.segment();
    assert_eq!(
        (segment.name.clone(), segment.dialect),
        (engine.addr(), Dialect::V2)
    );
    assert_eq!(segment.buffers.len(), 1);
    for (at, (offset, bytes)) in RANGES.into_iter().enumerate() {
        let seed = at as u8 + 1;
        let address = engine.address + offset;
        engine.fill(seed, offset, bytes).await;
        let mut got = vec![0; usize::try_from(bytes).expect("small")];
        peer.read(address, &mut got, deadline())
            .await
            .expect("read");
        assert!(
            got == pattern(seed, bytes),
            "{bytes} bytes are read from {offset}"
        );
        let new = pattern(seed + 100, bytes);
        peer.write(address, &new, deadline())
            .await
            .expect("written");
        assert!(
            engine.holds(seed + 100, offset, bytes).await,
            "{bytes} bytes are written"
        );
    }
    peer.probe(deadline()).await.expect("it lives");
    let notify = Notify {
        name: "larder".into(),
        message: "over \"there\"".into(),
    };
    peer.notify(&notify, deadline()).await.expect("taken");
    let told = engine.tell(json!({"what": "notifies"})).await;
    assert_eq!(told["notifies"], json!([["larder", "over \"there\""]]));
}

async fn it_refuses(python: PathBuf) {
    let mut engine = Engine::start(&python).await;
    let peer = open(&engine).await.expect("described");
    let beyond = engine.address + MEMORY_BYTES;
    let missing = peer.read(beyond, &mut [0; 10], deadline()).await;
    assert!(
        matches!(missing, Err(InteropError::NotFound { .. })),
        "{missing:?}"
    );
    peer.write(engine.address, &[1; 100], deadline())
        .await
        .expect("written");
    let gone = engine.tell(json!({"what": "unregister"})).await;
    assert_eq!(gone["code"], 0);
    // Described before, so that only the engine itself can refuse.
    let written = peer
        .write(engine.address, &vec![2; 4 << 20], deadline())
        .await;
    assert!(
        matches!(written, Err(InteropError::Rejected { code: 1 })),
        "{written:?}"
    );
    let read = peer.read(engine.address, &mut [0; 100], deadline()).await;
    assert!(
        matches!(read, Err(InteropError::Rejected { code: 1 })),
        "{read:?}"
    );
    drop(engine);
    let again = open_gone(&peer).await;
    assert!(again, "an engine that ended is told apart");
}

/// Whether the peer is found to be gone, once its process has ended.
async fn open_gone(peer: &StockPeer) -> bool {
    loop {
        match peer.refresh(deadline()).await {
            Err(InteropError::Unavailable { .. }) => return true,
            // It is being ended.
            Err(InteropError::ConnectionLost) | Ok(()) => {}
            Err(_) => return false,
        }
    }
}

async fn it_reads_and_writes(python: PathBuf) {
    let handshakes = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let payloads = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let name = handshakes.local_addr().expect("bound").to_string();
    let handshake_addr = name.clone();
    let data_addr = payloads.local_addr().expect("bound");
    let endpoint = endpoint();
    let memory = Arc::new(OwnMemory::create(MEMORY_BYTES).expect("memory"));
    memory
        .copy_in(0, &pattern(0, MEMORY_BYTES))
        .expect("in range");
    let register = || {
        let registered = endpoint.register(Arc::clone(&memory), BOTH, Vec::new());
        registered.expect("free")
    };
    let key = register();
    let (notifies, mut inbox) = mpsc::channel(4);
    let mut options = ListenOptions::new(name.clone(), "127.0.0.1".into());
    options.notifies = Some(notifies);
    let (stop, told) = watch::channel(false);
    let reached = endpoint.address_space();
    let served = spawn_local(serve(handshakes, payloads, reached, options, told));

    // Somebody who says nothing, on both ports.
    let mut idle = Vec::new();
    for _ in 0..50 {
        idle.push(TcpStream::connect(&handshake_addr).await.expect("accepted"));
        idle.push(TcpStream::connect(data_addr).await.expect("accepted"));
    }
    let mut engine = Engine::start(&python).await;
    let moves = |what: &str, offset: u64, bytes: u64| {
        let remote = memory.address() + offset;
        json!({"what": what, "peer": name, "offset": 0, "remote": remote, "bytes": bytes})
    };
    for (at, (offset, bytes)) in RANGES.into_iter().enumerate() {
        let seed = at as u8 + 1;
        engine.fill(seed, 0, bytes).await;
        assert_eq!(engine.tell(moves("write", offset, bytes)).await["code"], 0);
        let mut ours = vec![0; usize::try_from(bytes).expect("small")];
        memory.copy_out(offset, &mut ours).expect("in range");
        assert!(ours == pattern(seed, bytes), "{bytes} bytes are written");
        engine.fill(0, 0, bytes).await;
        assert_eq!(engine.tell(moves("read", offset, bytes)).await["code"], 0);
        assert!(engine.holds(seed, 0, bytes).await, "{bytes} bytes are read");
    }
    let probed = engine.tell(json!({"what": "probe", "peer": name})).await;
    assert_eq!(probed["code"], 0);
    let mut with_notify = moves("write", 0, 10);
    with_notify["notify"] = json!(["k", "v"]);
    assert_eq!(engine.tell(with_notify).await["code"], 0);
    let notify = inbox.recv().await.expect("sent");
    assert_eq!((&notify.name[..], &notify.message[..]), ("k", "v"));

    endpoint.unregister(key).await.expect("registered");
    for what in ["write", "read"] {
        let refused = engine.tell(moves(what, 0, 10)).await;
        assert_ne!(refused["code"], 0, "{what} of a buffer that was taken back");
    }
    register();
    assert_eq!(engine.tell(moves("read", 0, 10)).await["code"], 0);
    stop.send(true).expect("served");
    served.await.expect("no panic").expect("served");
}
