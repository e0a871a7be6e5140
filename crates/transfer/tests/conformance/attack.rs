//! What listeners do with strangers, garbage and peers that break the rules.

use std::time::Duration;

use larder_transfer::lane::{FrameWriter, Lane, LaneError};
use larder_transfer::transport::Transport;
use larder_types::{AgentName, Incarnation, PoolTime, Principal};
use larder_wire::frame::{HEADER_BYTES, NO_DEADLINE};
use larder_wire::limit::{MAX_HELLO_BYTES, PROTOCOL_MAX};
use larder_wire::{
    Frame, Hello, Kind, Purpose, RefusedReason, RootKey, SessionClaims, SessionSigner, encode_frame,
};
use proptest::prelude::{Strategy, any};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::holder::{EPOCH, Holder, POOL_TIME, on_one_thread, payload, read, tenant};

trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// A raw connection to either listener.
async fn connect(holder: &Holder, listener: &str) -> Box<dyn Stream> {
    match listener {
        "tcp" => Box::new(
            TcpStream::connect(&holder.tcp_addr)
                .await
                .expect("connected"),
        ),
        _ => Box::new(
            UnixStream::connect(holder.unix_path())
                .await
                .expect("connected"),
        ),
    }
}

/// Reads until the listener closes.
async fn rest(stream: &mut (dyn Stream + '_)) -> Vec<u8> {
    let mut all = Vec::new();
    // A reset is a close too.
    let _ = stream.read_to_end(&mut all).await;
    all
}

fn hello(holder: &Holder) -> Hello {
    let claims = holder.claims(Principal::Tenant(tenant("team-a")));
    hello_with(
        holder
            .signer
            .sign(&claims)
            .expect("signed")
            .as_bytes()
            .to_vec(),
    )
}

fn hello_with(credential: Vec<u8>) -> Hello {
    Hello {
        protocol_min: 1,
        protocol_max: PROTOCOL_MAX,
        features: 0,
        credential,
        purpose: Purpose::Client,
        name: "attack".to_owned(),
        incarnation: Incarnation(3),
    }
}

fn frame_bytes<B: serde::Serialize>(frame: Frame, body: &B) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_frame(&mut bytes, frame, body).expect("encodes");
    bytes
}

fn hello_bytes(hello: &Hello) -> Vec<u8> {
    frame_bytes(Frame::request(Kind::Hello, 1, 0, 5_000), hello)
}

async fn refused(holder: &Holder, listener: &str, hello: &Hello) -> RefusedReason {
    let error = match listener {
        "tcp" => {
            let stream = TcpStream::connect(&holder.tcp_addr)
                .await
                .expect("connected");
            Lane::open(stream, hello).await.map(drop)
        }
        _ => {
            let stream = UnixStream::connect(holder.unix_path())
                .await
                .expect("connected");
            Lane::open(stream, hello).await.map(drop)
        }
    };
    match error {
        Err(LaneError::Refused(refused)) => refused.reason,
        other => panic!("not refused: {other:?}"),
    }
}

/// Still serves those who belong here.
async fn still_serves(holder: &Holder, transport: &dyn Transport) {
    let grant = holder.grant(5_000);
    let sent = payload(5_000, 31);
    holder.put(transport, &grant, &sent).await;
    let done = read(transport, holder.sign(&grant.read), 0, 5_000).await;
    done.result.expect("read");
    assert_eq!(done.buffer, sent);
}

#[test]
fn b52_bytes_of_other_protocols_are_closed_and_counted() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        for listener in ["tcp", "unix"] {
            let said: [&[u8]; 4] = [
                b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
                b"X",
                &[0; 100_000],
            ];
            for bytes in said {
                let mut stream = connect(&holder, listener).await;
                // It may be closed while it is still being written to.
                let _ = stream.write_all(bytes).await;
                assert!(
                    rest(&mut *stream).await.is_empty(),
                    "no answer in another protocol"
                );
            }
            holder.until(&format!("{listener}/hello/magic"), 4).await;
        }
        assert_eq!(
            holder.counts.get("tcp/greeted") + holder.counts.get("unix/greeted"),
            0
        );
        still_serves(&holder, &holder.tcp("team-a")).await;
    });
}

#[test]
fn broken_frames_of_strangers_are_closed_and_counted() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let good = hello_bytes(&hello(&holder));
        let mut flipped = good.clone();
        *flipped.last_mut().expect("bytes") ^= 1;
        let mut unknown = good.clone();
        unknown[4..6].copy_from_slice(&999_u16.to_le_bytes());
        let mut oversize = good.clone();
        oversize[16..20].copy_from_slice(&(MAX_HELLO_BYTES + 1).to_le_bytes());
        let mut payload_too = good.clone();
        payload_too[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
        let mut trailing = Vec::new();
        let frame = Frame::request(Kind::Hello, 1, 0, 5_000);
        encode_frame(&mut trailing, frame, &(hello(&holder), 7_u8)).expect("encodes");
        let other = frame_bytes(Frame::request(Kind::Ping, 1, 0, 5_000), &());
        let cases: [(&str, Vec<u8>); 7] = [
            ("crc", flipped),
            ("kind", unknown),
            ("oversize", oversize),
            ("oversize", payload_too),
            ("body", trailing),
            ("kind", other),
            ("truncated", good[..good.len() - 1].to_vec()),
        ];
        for (label, bytes) in cases {
            let name = format!("tcp/hello/{label}");
            let before = holder.counts.get(&name);
            let mut stream = connect(&holder, "tcp").await;
            stream.write_all(&bytes).await.expect("sent");
            stream.shutdown().await.expect("ended");
            let answer = rest(&mut *stream).await;
            assert_eq!(
                answer.is_empty(),
                label == "truncated",
                "{label}: a clear goodbye"
            );
            holder.until(&name, before + 1).await;
        }
        still_serves(&holder, &holder.tcp("team-a")).await;
    });
}

#[test]
fn a_hello_that_ends_at_any_byte_holds_nothing() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let good = hello_bytes(&hello(&holder));
        for cut in 0..good.len() {
            let mut stream = connect(&holder, "unix").await;
            stream.write_all(&good[..cut]).await.expect("sent");
        }
        holder.until("unix/connected", good.len() as u64).await;
        let ended = |holder: &Holder| {
            holder.counts.get("unix/hello/truncated") + holder.counts.get("unix/hello/closed")
        };
        while ended(&holder) < good.len() as u64 {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            holder.counts.get("unix/hello/closed"),
            1,
            "only the empty one was in order"
        );
        while holder.options.connections.strangers() > 0 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn nobody_comes_in_without_a_right_session() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let token = |claims: &SessionClaims| {
            holder
                .signer
                .sign(claims)
                .expect("signed")
                .as_bytes()
                .to_vec()
        };
        let right = holder.claims(Principal::Tenant(tenant("team-a")));
        let stranger = SessionSigner::new(&RootKey::new([8; 32])).expect("a signer");
        let foreign = stranger.sign(&right).expect("signed").as_bytes().to_vec();
        let late = SessionClaims {
            deadline: PoolTime(POOL_TIME.0 - 1),
            ..right.clone()
        };
        let mut altered = token(&right);
        altered[3] ^= 1;
        let agent = Principal::Agent(AgentName::new("pool-small-0").expect("a name"));
        let newer = Hello {
            protocol_min: PROTOCOL_MAX + 1,
            protocol_max: 90,
            ..hello(&holder)
        };
        let as_agent = Hello {
            purpose: Purpose::Agent,
            ..hello(&holder)
        };
        for listener in ["tcp", "unix"] {
            let cases = [
                (hello_with(Vec::new()), RefusedReason::Credential),
                (hello_with(vec![0; 9_000]), RefusedReason::Credential),
                (hello_with(b"team-a".to_vec()), RefusedReason::Credential),
                (hello_with(foreign.clone()), RefusedReason::Credential),
                (hello_with(altered.clone()), RefusedReason::Credential),
                (hello_with(token(&late)), RefusedReason::Expired),
                (
                    hello_with(token(&holder.claims(agent.clone()))),
                    RefusedReason::Role,
                ),
                (
                    hello_with(token(&holder.claims(Principal::Admin))),
                    RefusedReason::Role,
                ),
                (newer.clone(), RefusedReason::Protocol),
                (as_agent.clone(), RefusedReason::Role),
            ];
            for (hello, expected) in cases {
                assert_eq!(
                    refused(&holder, listener, &hello).await,
                    expected,
                    "{hello:?}"
                );
            }
            holder
                .until(&format!("{listener}/hello/credential"), 5)
                .await;
            assert_eq!(holder.counts.get(&format!("{listener}/greeted")), 0);
        }
        assert_eq!(holder.options.connections.known(), 0);
    });
}

#[test]
fn b14_idle_strangers_delay_nobody() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        // More than the set of strangers holds: the oldest make room.
        let mut idle = Vec::new();
        for _ in 0..300 {
            idle.push(connect(&holder, "tcp").await);
        }
        let transport = holder.tcp("team-a");
        for _ in 0..20 {
            still_serves(&holder, &transport).await;
        }
        holder.until("tcp/connected", 301).await;
        assert!(holder.options.connections.strangers() <= 256);
        // Those that are left have five seconds from when they came, and one to read why.
        tokio::time::pause();
        while holder.options.connections.strangers() > 0 {
            tokio::time::advance(Duration::from_millis(500)).await;
        }
        let (made_room, timed_out) = (
            holder.counts.get("tcp/hello/crowded"),
            holder.counts.get("tcp/hello/hello_timeout"),
        );
        assert_eq!(made_room + timed_out, 300);
        assert!(made_room >= 44, "{made_room}");
        still_serves(&holder, &transport).await;
    });
}

/// A greeted raw connection and its session.
async fn greeted(holder: &Holder) -> (TcpStream, u32) {
    let stream = TcpStream::connect(&holder.tcp_addr)
        .await
        .expect("connected");
    let lane = Lane::open(stream, &hello(holder)).await.expect("greeted");
    let (stream, _, _, welcome) = lane.into_parts();
    (stream, u32::try_from(welcome.session.0).expect("small"))
}

/// A metric label, and what a peer of this session must send to be counted under it.
type Breach = (&'static str, fn(u32) -> Vec<u8>);

#[test]
fn frames_that_break_the_rules_end_a_known_connection() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let cases: [Breach; 6] = [
            ("session", |session| {
                frame_bytes(Frame::request(Kind::Ping, 1, session + 1, NO_DEADLINE), &())
            }),
            ("request", |session| {
                let mut frame = Frame::request(Kind::Ping, 1, session, NO_DEADLINE);
                frame.flags = larder_wire::frame::FLAG_REPLY;
                frame_bytes(frame, &())
            }),
            ("body", |session| {
                frame_bytes(Frame::request(Kind::Write, 1, session, NO_DEADLINE), &())
            }),
            ("magic", |_| {
                b"garbage that is longer than a header, as garbage is".to_vec()
            }),
            ("oversize", |session| {
                let frame = Frame::request(Kind::Ping, 1, session, NO_DEADLINE);
                let mut bytes = frame_bytes(frame, &());
                bytes[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
                bytes
            }),
            ("truncated", |session| {
                let frame = Frame::request(Kind::Ping, 1, session, NO_DEADLINE);
                frame_bytes(frame, &())[..HEADER_BYTES - 1].to_vec()
            }),
        ];
        for (label, bytes) in cases {
            let (mut stream, session) = greeted(&holder).await;
            stream.write_all(&bytes(session)).await.expect("sent");
            stream.shutdown().await.expect("ended");
            rest(&mut stream).await;
            holder.until(&format!("tcp/closed/{label}"), 1).await;
        }
        still_serves(&holder, &holder.tcp("team-a")).await;
    });
}

#[test]
fn calls_of_other_listeners_are_refused_and_the_lane_stays() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let stream = TcpStream::connect(&holder.tcp_addr)
            .await
            .expect("connected");
        let mut lane = Lane::open(stream, &hello(&holder)).await.expect("greeted");
        let offered = [
            Kind::Hello,
            Kind::Goodbye,
            Kind::Ping,
            Kind::Write,
            Kind::Read,
        ];
        for kind in Kind::ALL.iter().filter(|kind| !offered.contains(kind)) {
            let header = lane
                .call(*kind, &(), b"payload", 1_000)
                .await
                .expect("answered");
            let refused = lane.decode::<(), larder_wire::data::DataError>(&header);
            let refused = refused.expect("an error").expect_err("refused");
            assert_eq!(
                refused.reason,
                larder_wire::data::DataReason::Unsupported,
                "{kind:?}"
            );
        }
        let header = lane
            .call(Kind::Ping, &(), &[], 1_000)
            .await
            .expect("answered");
        lane.decode::<(), ()>(&header)
            .expect("decodes")
            .expect("pong");
    });
}

#[test]
fn b52_random_frames_never_stop_the_listener() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let mut runner = TestRunner::deterministic();
        let bodies = proptest::collection::vec(any::<u8>(), 0..400);
        let kinds = proptest::sample::select(Kind::ALL.to_vec());
        let calls = (kinds, bodies, any::<bool>());
        for round in 0..300_u64 {
            let (kind, body, is_whole) = calls.new_tree(&mut runner).expect("a tree").current();
            let (mut stream, session) = greeted(&holder).await;
            let frame = Frame::request(kind, round, session, 1_000);
            // Well-formed frames around random bodies, and random bytes right away.
            let mut bytes = Vec::new();
            if is_whole {
                let mut writer = FrameWriter::default();
                writer.push(frame, &RawBody(body)).expect("short");
                writer.flush(&mut bytes).await.expect("into memory");
            } else {
                bytes = body;
            }
            // It may be closed while it is still being written to.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            rest(&mut stream).await;
        }
        holder.until_unheld().await;
        while holder.options.connections.known() > 0 {
            tokio::task::yield_now().await;
        }
        still_serves(&holder, &holder.tcp("team-a")).await;
    });
}

/// A body of exactly these bytes.
struct RawBody(Vec<u8>);

impl serde::Serialize for RawBody {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeTuple;
        let mut tuple = serializer.serialize_tuple(self.0.len())?;
        for byte in &self.0 {
            tuple.serialize_element(byte)?;
        }
        tuple.end()
    }
}

#[test]
fn the_epoch_and_time_of_the_agent_stand_in_the_welcome() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let stream = TcpStream::connect(&holder.tcp_addr)
            .await
            .expect("connected");
        let lane = Lane::open(stream, &hello(&holder)).await.expect("greeted");
        let welcome = lane.welcome();
        assert_eq!(welcome.epoch, EPOCH);
        assert_eq!(welcome.incarnation, holder.options.incarnation);
        assert_eq!(welcome.principal, Principal::Tenant(tenant("team-a")));
        assert_eq!(welcome.pool_time, POOL_TIME);
        assert!(welcome.session_token.is_empty());
    });
}
