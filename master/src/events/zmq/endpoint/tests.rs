//! An endpoint against peers that speak its protocol directly, well and badly.

use std::net::SocketAddr;
use std::time::Duration;

use larder_telemetry::{Component, exposition};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::super::zmtp::{FromPeer, GREETING_BYTES, greeting, ready, take_frame};
use super::*;
use crate::events::config::ZmqSchema;

/// A hang of anything ends a test after this long. Nothing is judged by it.
const HANG: Duration = Duration::from_secs(60);

struct Bench {
    registry: Registry,
    batches: mpsc::Sender<Batch>,
    count: watch::Receiver<usize>,
    addr: SocketAddr,
    replay_addr: SocketAddr,
}

impl Bench {
    async fn new(high_water: usize) -> Self {
        let registry = Registry::new(Component::Master);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let replay = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("bound");
        let replay_addr = replay.local_addr().expect("bound");
        let rules = Rules {
            tenant: TenantId::new("a").expect("a name"),
            topic: Bytes::from_static(b"kv"),
            shape: Shape {
                schema: ZmqSchema::Array,
                medium: "M".to_owned(),
            },
            high_water,
            replay_batches: 3,
        };
        let (batches, queue) = mpsc::channel(64);
        let (counted, count) = watch::channel(0);
        let endpoint = Endpoint::new(rules, registry.clone(), counted);
        tokio::spawn(endpoint.run(listener, Some(replay), queue));
        Self {
            registry,
            batches,
            count,
            addr,
            replay_addr,
        }
    }

    async fn publish(&self, missed: u64, hash: u64) {
        let changes = vec![BlockChange::Stored(hash)];
        let batch = Batch { missed, changes };
        self.batches.send(batch).await.expect("it serves");
    }

    fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let page = exposition::parse(&self.registry.render()).expect("a valid page");
        exposition::value(&page, name, labels).unwrap_or(0.0)
    }
}

/// The other end.
struct Socket {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Of a message whose end was not read.
    parts: Vec<Vec<u8>>,
}

impl Socket {
    async fn connect(addr: SocketAddr, kind: &str) -> Self {
        let mut stream = TcpStream::connect(addr).await.expect("a listener");
        stream.write_all(&greeting()).await.expect("sent");
        stream.write_all(&ready(kind)).await.expect("sent");
        let mut first = [0; GREETING_BYTES];
        stream.read_exact(&mut first).await.expect("a greeting");
        Self {
            stream,
            buffer: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// All that a subscriber says comes in one piece: greeting, handshake and subscription.
    async fn connect_at_once(addr: SocketAddr) -> Self {
        let mut all = greeting().to_vec();
        all.extend_from_slice(&ready("SUB"));
        push_message(&mut all, &[b"\x01kv"]);
        let mut stream = TcpStream::connect(addr).await.expect("a listener");
        stream.write_all(&all).await.expect("sent");
        let mut first = [0; GREETING_BYTES];
        stream.read_exact(&mut first).await.expect("a greeting");
        Self {
            stream,
            buffer: Vec::new(),
            parts: Vec::new(),
        }
    }

    async fn send(&mut self, parts: &[&[u8]]) {
        let mut out = Vec::new();
        push_message(&mut out, parts);
        self.stream.write_all(&out).await.expect("sent");
    }

    /// The next frame; `None` at the end.
    async fn frame(&mut self) -> Option<FromPeer> {
        let read = async {
            loop {
                if let Some(frame) = take_frame(&mut self.buffer).expect("valid") {
                    return Some(frame);
                }
                match self.stream.read_buf(&mut self.buffer).await {
                    Ok(0) | Err(_) => return None,
                    Ok(_) => {}
                }
            }
        };
        timeout(HANG, read).await.expect("a frame or the end")
    }

    /// The next message; `None` at the end. Nothing is lost if it is dropped while it waits.
    async fn message(&mut self) -> Option<Vec<Vec<u8>>> {
        loop {
            match self.frame().await? {
                FromPeer::Part(part, more) => {
                    self.parts.push(part);
                    if !more {
                        return Some(std::mem::take(&mut self.parts));
                    }
                }
                FromPeer::Command(..) => {}
            }
        }
    }
}

fn seq_of(message: &[Vec<u8>]) -> u64 {
    u64::from_be_bytes(message[1].as_slice().try_into().expect("eight bytes"))
}

/// Publishes until the subscription of `socket` has arrived; the number of the first message.
async fn until_heard(bench: &Bench, socket: &mut Socket) -> Vec<Vec<u8>> {
    loop {
        bench.publish(0, 1).await;
        tokio::select! {
            biased;
            message = socket.message() => return message.expect("still open"),
            () = tokio::task::yield_now() => {}
        }
    }
}

#[tokio::test]
async fn a_subscriber_hears_its_topic_and_sees_what_is_missing() {
    let mut bench = Bench::new(100).await;
    let mut other = Socket::connect(bench.addr, "SUB").await;
    other.send(&[b"\x01elsewhere"]).await;
    let mut socket = Socket::connect(bench.addr, "XSUB").await;
    socket.send(&[b"\x01k"]).await;
    let first = until_heard(&bench, &mut socket).await;
    assert_eq!(first[0], b"kv");
    bench.publish(2, 0xfeed).await;
    let mut last = seq_of(&first);
    loop {
        let message = socket.message().await.expect("open");
        let is_the_one = message[2].windows(3).any(|part| part == [0xcd, 0xfe, 0xed]);
        // Two that were missed before it left their numbers out.
        assert_eq!(seq_of(&message), last + if is_the_one { 3 } else { 1 });
        last = seq_of(&message);
        if is_the_one {
            break;
        }
    }
    let _ = timeout(HANG, bench.count.wait_for(|count| *count == 2)).await;
    assert_eq!(*bench.count.borrow(), 2);
    drop(socket);
    drop(other);
    let gone = timeout(HANG, bench.count.wait_for(|count| *count == 0)).await;
    assert!(gone.is_ok());
}

/// It says nothing more: what came with the handshake must not wait for more bytes.
#[tokio::test]
async fn a_subscription_that_comes_with_the_handshake_is_heard() {
    let bench = Bench::new(8).await;
    let mut socket = Socket::connect_at_once(bench.addr).await;
    let heard = timeout(HANG, until_heard(&bench, &mut socket)).await;
    assert_eq!(heard.expect("it hears")[0], b"kv");
}

#[tokio::test]
async fn what_is_kept_is_repeated_in_order_with_an_end() {
    let bench = Bench::new(100).await;
    for hash in 0..5 {
        bench.publish(0, hash).await;
    }
    for (kind, from, expected) in [
        ("REQ", 0, vec![2, 3, 4]),
        ("DEALER", 3, vec![3, 4]),
        ("DEALER", 9, vec![]),
    ] {
        let mut socket = Socket::connect(bench.replay_addr, kind).await;
        // Asked twice on one connection.
        for _ in 0..2 {
            let number: u64 = from;
            socket.send(&[b"", &number.to_be_bytes()]).await;
            let mut seen = Vec::new();
            loop {
                let message = socket.message().await.expect("open");
                assert_eq!((message.len(), message[0].as_slice()), (3, &b""[..]));
                if message[2].is_empty() {
                    assert_eq!(message[1], [0xff; 8]);
                    break;
                }
                seen.push(seq_of(&message));
            }
            assert_eq!(seen, expected, "{kind} from {from}");
        }
    }
}

#[tokio::test]
async fn a_subscriber_that_does_not_read_loses_messages_and_costs_nobody() {
    let bench = Bench::new(1).await;
    let mut stuck = Socket::connect(bench.addr, "SUB").await;
    stuck.send(&[b"\x01"]).await;
    until_heard(&bench, &mut stuck).await;
    let labels = [("tenant", "a"), ("reason", "peer")];
    let full = async {
        while bench.value("larder_master_zmq_dropped_total", &labels) < 1.0 {
            for _ in 0..200 {
                bench.publish(0, 1).await;
            }
        }
    };
    timeout(HANG, full).await.expect("its queue is full");
    // The endpoint still takes others.
    let mut socket = Socket::connect(bench.replay_addr, "REQ").await;
    socket.send(&[b"", &0_u64.to_be_bytes()]).await;
    assert!(socket.message().await.is_some());
}

#[tokio::test]
async fn peers_of_the_wrong_kind_are_closed() {
    let bench = Bench::new(1).await;
    let mut wrong = Socket::connect(bench.addr, "REQ").await;
    while let Some(frame) = wrong.frame().await {
        assert!(matches!(frame, FromPeer::Command(..)));
    }
    let mut stream = TcpStream::connect(bench.addr).await.expect("a listener");
    let request = [b'G'; GREETING_BYTES];
    stream.write_all(&request).await.expect("sent");
    let mut answer = Vec::new();
    // Closed with unread bytes, it may end as a reset.
    drop(
        timeout(HANG, stream.read_to_end(&mut answer))
            .await
            .expect("closed"),
    );
    let mut greedy = Socket::connect(bench.addr, "SUB").await;
    for topic in 0..=16_u8 {
        greedy.send(&[&[1, topic]]).await;
    }
    while greedy.frame().await.is_some() {}
    let mut odd = Socket::connect(bench.replay_addr, "DEALER").await;
    odd.send(&[b"", b"short"]).await;
    while let Some(frame) = odd.frame().await {
        assert!(matches!(frame, FromPeer::Command(..)));
    }
}
