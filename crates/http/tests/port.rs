//! A port with strangers: silence holds no place, and an answer that is being given is not cut.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use larder_http::{Limits, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};

/// Longer than any test: what ends sooner did not end by a time limit.
const NEVER_MS: u64 = 3_600_000;
/// A hang of anything ends a test after this long. Nothing is judged by it.
const HANG: Duration = Duration::from_secs(60);

const LIMITS: Limits = Limits {
    connections_max: 4,
    head_ms: NEVER_MS,
    life_ms: NEVER_MS,
};

struct Rig {
    addr: SocketAddr,
    /// `/slow` was asked.
    asked: Arc<Notify>,
    /// `/slow` may be answered.
    go_on: Arc<Notify>,
    stop: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<()>,
}

impl Rig {
    async fn start(limits: Limits) -> Self {
        let (asked, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let slow = {
            let (asked, go_on) = (Arc::clone(&asked), Arc::clone(&go_on));
            move || async move {
                asked.notify_one();
                go_on.notified().await;
                "slow"
            }
        };
        let router = Router::new()
            .route("/", get(|| async { "here" }))
            .route("/slow", get(slow));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("bound");
        let (stop, stopped) = oneshot::channel();
        let stopped = async { drop(stopped.await) };
        let served = tokio::spawn(serve(listener, router, limits, stopped));
        Self {
            addr,
            asked,
            go_on,
            stop,
            served,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.expect("connected")
    }

    async fn ask(&self, path: &str) -> TcpStream {
        let mut stream = self.connect().await;
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        stream
    }
}

/// What comes until the end.
async fn rest(mut stream: TcpStream) -> String {
    let mut text = String::new();
    let read = stream.read_to_string(&mut text);
    // A reset is an end too.
    drop(tokio::time::timeout(HANG, read).await.expect("an end"));
    text
}

#[tokio::test]
async fn silent_connections_make_room_oldest_first() {
    let rig = Rig::start(LIMITS).await;
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(rig.connect().await);
    }
    silent[0].write_all(b"GET / HT").await.expect("a part");
    assert!(rest(rig.ask("/").await).await.ends_with("here"));
    assert_eq!(rest(silent.remove(0)).await, "", "the oldest had to go");
    for mut stream in silent {
        let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.expect("still there");
        assert!(rest(stream).await.ends_with("here"));
    }
}

#[tokio::test]
async fn whoever_is_being_answered_keeps_its_place() {
    let limits = Limits {
        connections_max: 2,
        ..LIMITS
    };
    let rig = Rig::start(limits).await;
    let slow = [rig.ask("/slow").await, rig.ask("/slow").await];
    rig.asked.notified().await;
    // Both places may be taken now: this one waits until one is left.
    let quick = rig.ask("/").await;
    rig.go_on.notify_one();
    rig.go_on.notify_one();
    let quick = rest(quick);
    let answers = async {
        for stream in slow {
            rig.go_on.notify_one();
            assert!(rest(stream).await.ends_with("slow"));
        }
    };
    let (quick, ()) = tokio::join!(quick, answers);
    assert!(quick.ends_with("here"), "{quick}");
}

#[tokio::test]
async fn a_head_that_does_not_come_ends_the_connection() {
    let rig = Rig::start(Limits {
        head_ms: 1,
        ..LIMITS
    })
    .await;
    let mut part = rig.connect().await;
    // The connection may have ended before this.
    drop(part.write_all(b"GET / HTTP/1.1\r\nHost:").await);
    assert!(!rest(part).await.contains("here"));
    assert_eq!(rest(rig.connect().await).await, "");
}

#[tokio::test]
async fn a_life_has_an_end_and_a_stop_waits_for_answers() {
    let limits = Limits {
        life_ms: 1,
        ..LIMITS
    };
    let rig = Rig::start(limits).await;
    assert_eq!(rest(rig.connect().await).await, "");

    let rig = Rig::start(LIMITS).await;
    let (slow, silent) = (rig.ask("/slow").await, rig.connect().await);
    rig.asked.notified().await;
    drop(rig.stop);
    assert_eq!(rest(silent).await, "");
    rig.go_on.notify_one();
    assert!(rest(slow).await.ends_with("slow"));
    rig.served.await.expect("no panic");
}
