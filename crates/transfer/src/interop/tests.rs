//! Both roles against each other over loopback, and against peers that do what they should not.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, LocalSet, spawn_local, yield_now};
use tokio::time::{Instant, timeout};

use super::data::{DataHeader, Dialect, HEADER_BYTES, Opcode, Status};
use super::frame::{FrameDecoder, FrameKind, encode};
use super::heap::HeapSpace;
use super::*;

/// Generous: what takes so long will not end.
const LIMIT: Duration = Duration::from_secs(60);
const AT: u64 = 0x7f00_0000_1000;
const MIB: usize = 1 << 20;

fn local<F: Future<Output = ()>>(test: F) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().expect("a runtime");
    let limited = async { timeout(LIMIT, test).await.expect("ends") };
    LocalSet::new().block_on(&runtime, limited);
}

fn deadline() -> Instant {
    Instant::now() + LIMIT
}

async fn until(mut told: impl FnMut() -> bool) {
    while !told() {
        yield_now().await;
    }
}

async fn port() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("bound");
    (listener, addr)
}

/// Different at each place, and in each pattern.
fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    let table: Vec<u8> = (0..251_u8).map(|at| at.wrapping_mul(3) ^ seed).collect();
    table.into_iter().cycle().take(bytes).collect()
}

struct Rig {
    space: Rc<HeapSpace>,
    handshake: SocketAddr,
    data: SocketAddr,
    stop: watch::Sender<bool>,
    served: JoinHandle<std::io::Result<()>>,
}

impl Rig {
    async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    async fn start_with(change: impl FnOnce(&mut ListenOptions)) -> Self {
        let (handshakes, handshake) = port().await;
        let (payloads, data) = port().await;
        let mut options = ListenOptions::new(handshake.to_string(), "127.0.0.1".into());
        change(&mut options);
        let space = Rc::new(HeapSpace::default());
        let (stop, told) = watch::channel(false);
        let reached: Rc<dyn AddressSpace> = space.clone();
        let served = spawn_local(serve(handshakes, payloads, reached, options, told));
        Self {
            space,
            handshake,
            data,
            stop,
            served,
        }
    }

    async fn peer(&self) -> StockPeer {
        open(self.handshake).await.expect("described")
    }

    fn register(&self, bytes: Vec<u8>) {
        assert!(self.space.register(AT, bytes, true), "free");
    }
}

fn own() -> SegmentDesc {
    SegmentDesc {
        name: "us".into(),
        data_host: String::new(),
        data_port: None,
        dialect: Dialect::V2,
        buffers: Vec::new(),
    }
}

async fn open(addr: SocketAddr) -> Result<StockPeer, InteropError> {
    StockPeer::open(addr.to_string(), own(), PeerOptions::default(), deadline()).await
}

async fn idle_sockets(addr: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(TcpStream::connect(addr).await.expect("accepted"));
    }
    all
}

fn header(opcode: Opcode, dialect: Dialect, address: u64, bytes: u64) -> [u8; HEADER_BYTES] {
    let range = AddressRange { address, bytes };
    let header = DataHeader {
        opcode,
        dialect,
        range,
    };
    header.encode()
}

async fn status(stream: &mut TcpStream) -> Status {
    let mut raw = [0; 8];
    stream.read_exact(&mut raw).await.expect("a status");
    Status::decode(raw).expect("a status")
}

/// Reads until the peer closes the connection, for whatever reason.
async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    rest
}

/// Answers every handshake with this segment.
async fn describes(segment: SegmentDesc) -> SocketAddr {
    let (_, segment) = watch::channel(segment);
    describes_newest(segment).await
}

/// Answers every handshake with the segment as it is then.
async fn describes_newest(segment: watch::Receiver<SegmentDesc>) -> SocketAddr {
    let (listener, addr) = port().await;
    spawn_local(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("somebody");
            let mut decoder = FrameDecoder::default();
            loop {
                let mut piece = [0; 1024];
                let read = stream.read(&mut piece).await.expect("a question");
                if decoder.feed(&piece[..read]).expect("right").is_some() {
                    break;
                }
            }
            let json = segment.borrow().encode().expect("text");
            let answer = encode(FrameKind::Metadata, &json).expect("short");
            stream.write_all(&answer).await.expect("taken");
        }
    });
    addr
}

#[test]
fn bytes_move_both_ways_over_one_connection() {
    local(async {
        let rig = Rig::start().await;
        rig.register(pattern(1, 3 * MIB));
        let peer = rig.peer().await;
        assert_eq!(peer.segment().name, rig.handshake.to_string());
        let mut got = vec![0; 3 * MIB];
        peer.read(AT, &mut got, deadline()).await.expect("read");
        assert_eq!(got, pattern(1, 3 * MIB));
        for (offset, bytes) in [(0, 1), (77, 2 * MIB + 5), (3 * MIB - 9, 9), (5, 0)] {
            let new = pattern(offset as u8 ^ 5, bytes);
            got[offset..offset + bytes].copy_from_slice(&new);
            let address = AT + offset as u64;
            peer.write(address, &new, deadline())
                .await
                .expect("written");
            let mut back = vec![0; bytes];
            peer.read(address, &mut back, deadline())
                .await
                .expect("read");
            assert_eq!(back, new);
        }
        assert_eq!(rig.space.contents(AT), Some(got));
    });
}

#[test]
fn the_old_dialect_works_with_a_connection_for_each_call() {
    local(async {
        let rig = Rig::start().await;
        rig.register(pattern(1, MIB));
        let mut segment = rig.peer().await.segment();
        segment.dialect = Dialect::V1;
        let peer = open(describes(segment).await).await.expect("described");
        for seed in 2..5 {
            let new = pattern(seed, MIB - 3);
            peer.write(AT + 3, &new, deadline()).await.expect("written");
            let contents = rig.space.contents(AT).expect("registered");
            assert!(contents[3..] == new, "a write that is done can be seen");
            let mut back = vec![0; MIB - 3];
            peer.read(AT + 3, &mut back, deadline())
                .await
                .expect("read");
            assert!(back == new);
        }
        rig.space.take_back(AT);
        let lost = peer.read(AT, &mut [0; 4], deadline()).await;
        assert!(
            matches!(lost, Err(InteropError::ConnectionLost)),
            "{lost:?}"
        );
    });
}

#[test]
fn a_hundred_idle_sockets_delay_nobody() {
    local(async {
        let crowded = |options: &mut ListenOptions| {
            options.handshakes_max = 16;
            options.data_connections_max = 16;
        };
        let rig = Rig::start_with(crowded).await;
        rig.register(pattern(1, MIB));
        let peer = rig.peer().await;
        peer.write(AT, &pattern(2, MIB), deadline())
            .await
            .expect("written");
        let before = Instant::now();
        let mut idle = idle_sockets(rig.handshake, 100).await;
        idle.extend(idle_sockets(rig.data, 100).await);
        let other = rig.peer().await;
        // The first peer's connection rests on a full port, and is not sent away for strangers.
        peer.write(AT, &pattern(3, MIB), deadline())
            .await
            .expect("written");
        other
            .write(AT, &pattern(4, MIB), deadline())
            .await
            .expect("written");
        assert_eq!(rig.space.contents(AT), Some(pattern(4, MIB)));
        // All of that was done before any of them could have been closed for its silence, and
        // still the oldest are gone.
        let hello = Duration::from_millis(listen::HELLO_TIMEOUT_MS);
        let closed = timeout(hello, rest(&mut idle[0])).await;
        assert!(closed.is_ok() || before.elapsed() > hello);
    });
}

#[test]
fn a_port_full_of_requests_turns_others_away() {
    local(async {
        let rig = Rig::start_with(|options| options.data_connections_max = 2).await;
        rig.register(vec![0; MIB]);
        let mut busy = idle_sockets(rig.data, 2).await;
        for (at, stream) in busy.iter_mut().enumerate() {
            let half = header(Opcode::Write, Dialect::V2, AT + at as u64, 2);
            stream.write_all(&half).await.expect("taken");
            stream.write_all(&[7]).await.expect("taken");
        }
        let stored = || rig.space.contents(AT).is_some_and(|all| all[..2] == [7, 7]);
        until(stored).await;
        let mut third = TcpStream::connect(rig.data).await.expect("accepted");
        assert_eq!(rest(&mut third).await, [0_u8; 0]);
        for stream in &mut busy {
            stream.write_all(&[8]).await.expect("taken");
            assert_eq!(status(stream).await, Status::Done);
        }
    });
}

#[test]
fn ranges_outside_of_buffers_are_refused_in_every_way() {
    local(async {
        let rig = Rig::start().await;
        rig.register(vec![1; MIB]);
        assert!(
            rig.space.register(AT + MIB as u64, vec![2; 10], false),
            "free"
        );
        let peer = rig.peer().await;
        for (address, bytes) in [(AT - 1, 1), (AT + MIB as u64 - 1, 2), (0, 1), (u64::MAX, 1)] {
            let written = peer.write(address, &vec![9; bytes], deadline()).await;
            assert!(
                matches!(written, Err(InteropError::NotFound { .. })),
                "{written:?}"
            );
            for dialect in [Dialect::V1, Dialect::V2] {
                for opcode in [Opcode::Write, Opcode::Read] {
                    let mut raw = TcpStream::connect(rig.data).await.expect("accepted");
                    let head = header(opcode, dialect, address, bytes as u64);
                    raw.write_all(&head).await.expect("taken");
                    let _ = raw.write_all(&[9]).await;
                    if dialect == Dialect::V2 {
                        assert_eq!(status(&mut raw).await, Status::Rejected);
                        raw.shutdown().await.expect("open");
                    }
                    assert_eq!(rest(&mut raw).await, [0_u8; 0], "and closed");
                }
            }
        }
        let read_only = peer.write(AT + MIB as u64, &[9], deadline()).await;
        assert!(
            matches!(read_only, Err(InteropError::Rejected { code: 1 })),
            "{read_only:?}"
        );
        let mut out = [0; 10];
        peer.read(AT + MIB as u64, &mut out, deadline())
            .await
            .expect("may be read");
        assert_eq!(out, [2; 10]);
        // Too long for any memory, and never sent.
        let mut raw = TcpStream::connect(rig.data).await.expect("accepted");
        let endless = header(Opcode::Write, Dialect::V2, AT, u64::MAX - AT);
        raw.write_all(&endless).await.expect("taken");
        assert_eq!(status(&mut raw).await, Status::Rejected);
        assert_eq!(rig.space.contents(AT), Some(vec![1; MIB]));
    });
}

#[test]
fn a_buffer_that_is_taken_back_is_not_touched_any_more() {
    local(async {
        let rig = Rig::start().await;
        for dialect in [Dialect::V1, Dialect::V2] {
            rig.register(vec![1; 4 * MIB]);
            let mut raw = TcpStream::connect(rig.data).await.expect("accepted");
            let head = header(Opcode::Write, dialect, AT, 4 * MIB as u64);
            raw.write_all(&head).await.expect("taken");
            raw.write_all(&vec![2; MIB]).await.expect("taken");
            until(|| rig.space.contents(AT).is_some_and(|all| all[MIB - 1] == 2)).await;
            let old = rig.space.take_back(AT).expect("registered");
            assert!(old[..MIB] == vec![2; MIB] && old[MIB..] == vec![1; 3 * MIB]);
            // Another buffer at the same place is another buffer.
            rig.register(vec![3; 4 * MIB]);
            let _ = raw.write_all(&vec![2; 3 * MIB]).await;
            if dialect == Dialect::V2 {
                assert_eq!(status(&mut raw).await, Status::Rejected);
                raw.shutdown().await.expect("open");
            }
            assert_eq!(rest(&mut raw).await, [0_u8; 0]);
            assert_eq!(rig.space.take_back(AT), Some(vec![3; 4 * MIB]));
        }
    });
}

#[test]
fn a_writer_hears_of_a_refusal_while_it_sends_and_a_reader_of_the_end() {
    local(async {
        let rig = Rig::start().await;
        let bytes = 64 * MIB;
        rig.register(vec![1; bytes]);
        let peer = rig.peer().await;
        let all = vec![2; bytes];
        let take_back = async {
            until(|| rig.space.contents(AT).is_some_and(|all| all[0] == 2)).await;
            rig.space.take_back(AT)
        };
        let (written, old) = tokio::join!(peer.write(AT, &all, deadline()), take_back);
        assert!(
            matches!(written, Err(InteropError::Rejected { code: 1 })),
            "{written:?}"
        );
        assert_eq!(old.expect("registered")[bytes - 1], 1, "it was cut off");
        rig.register(vec![1; bytes]);
        let mut raw = TcpStream::connect(rig.data).await.expect("accepted");
        let head = header(Opcode::Read, Dialect::V2, AT, bytes as u64);
        raw.write_all(&head).await.expect("taken");
        assert_eq!(status(&mut raw).await, Status::Done);
        rig.space.take_back(AT);
        assert!(rest(&mut raw).await.len() < bytes, "the end comes early");
        let gone = peer.read(AT, &mut [0; 4], deadline()).await;
        assert!(
            matches!(gone, Err(InteropError::Rejected { code: 1 })),
            "{gone:?}"
        );
    });
}

#[test]
fn garbage_closes_its_connection_and_nothing_else() {
    local(async {
        let rig = Rig::start().await;
        rig.register(vec![1; 100]);
        let http = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
        let mut kind = 3_u64.to_le_bytes().to_vec();
        kind.extend([9, b'{', b'}']);
        let not_json = encode(FrameKind::Metadata, b"{\"a\":").expect("short");
        let mut twice = encode(FrameKind::Probe, b"{}").expect("short");
        twice.extend(twice.clone());
        let zeros = vec![0; 64];
        for garbage in [&http, &kind, &not_json, &twice, &zeros, &vec![0xff; 64]] {
            let mut raw = TcpStream::connect(rig.handshake).await.expect("accepted");
            raw.write_all(garbage).await.expect("taken");
            assert_eq!(rest(&mut raw).await, [0_u8; 0], "{garbage:?}");
        }
        for garbage in [&http, &vec![0xff; 64], &vec![2; 24]] {
            let mut raw = TcpStream::connect(rig.data).await.expect("accepted");
            raw.write_all(garbage).await.expect("taken");
            assert_eq!(rest(&mut raw).await, [0_u8; 0], "{garbage:?}");
        }
        // A stranger that leaves within a frame, a header and a payload.
        for (addr, cut) in [
            (rig.handshake, kind[..5].to_vec()),
            (rig.data, vec![0; 7]),
            (
                rig.data,
                header(Opcode::Write, Dialect::V1, AT, 100).to_vec(),
            ),
        ] {
            let mut raw = TcpStream::connect(addr).await.expect("accepted");
            raw.write_all(&cut).await.expect("taken");
            raw.shutdown().await.expect("open");
            assert_eq!(rest(&mut raw).await, [0_u8; 0]);
        }
        let peer = rig.peer().await;
        peer.write(AT, &[5; 100], deadline())
            .await
            .expect("written");
        assert_eq!(rig.space.contents(AT), Some(vec![5; 100]));
    });
}

#[test]
fn who_does_not_finish_its_hello_is_closed() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build();
    let test = async {
        let rig = Rig::start().await;
        let hello = Duration::from_millis(listen::HELLO_TIMEOUT_MS);
        for (addr, begun) in [
            (rig.handshake, &b""[..]),
            (rig.handshake, b"\x08\0\0\0\0\0\0\0\x01{"),
            (rig.data, b""),
            (rig.data, b"\x08\0\0"),
        ] {
            let before = Instant::now();
            let mut raw = TcpStream::connect(addr).await.expect("accepted");
            raw.write_all(begun).await.expect("taken");
            assert_eq!(rest(&mut raw).await, [0_u8; 0]);
            assert!(before.elapsed() >= hello, "the clock is a fake one");
        }
    };
    LocalSet::new().block_on(&runtime.expect("a runtime"), test);
}

#[test]
fn messages_arrive_or_their_sender_knows() {
    local(async {
        let (notifies, mut inbox) = mpsc::channel(2);
        let rig = Rig::start_with(|options| options.notifies = Some(notifies)).await;
        let peer = rig.peer().await;
        peer.probe(deadline()).await.expect("it lives");
        let notify = |name: &str| Notify {
            name: name.into(),
            message: "done".into(),
        };
        for name in ["a", "b"] {
            peer.notify(&notify(name), deadline()).await.expect("taken");
        }
        let full = peer.notify(&notify("c"), deadline()).await;
        assert!(
            matches!(full, Err(InteropError::ConnectionLost)),
            "{full:?}"
        );
        assert_eq!(inbox.recv().await, Some(notify("a")));
        assert_eq!(inbox.recv().await, Some(notify("b")));
        peer.notify(&notify("d"), deadline())
            .await
            .expect("room again");
        assert_eq!(inbox.recv().await, Some(notify("d")));
        let mut raw = TcpStream::connect(rig.handshake).await.expect("accepted");
        let ask = encode(FrameKind::Connection, b"{\"qp_num\":[1]}").expect("short");
        raw.write_all(&ask).await.expect("taken");
        let mut answer = Vec::new();
        raw.read_to_end(&mut answer).await.expect("an answer");
        let answer = FrameDecoder::default()
            .feed(&answer)
            .expect("a frame")
            .expect("whole");
        assert_eq!(answer.kind, FrameKind::Connection);
        assert!(answer.json.starts_with(b"{\"reply_msg\":"), "{answer:?}");
    });
}

#[test]
fn silence_is_told_apart_from_absence() {
    local(async {
        let (listener, addr) = port().await;
        let soon = Instant::now() + Duration::from_millis(50);
        let options = PeerOptions::default();
        let silent = StockPeer::open(addr.to_string(), own(), options, soon).await;
        assert!(
            matches!(silent, Err(InteropError::DeadlinePassed)),
            "{silent:?}"
        );
        drop(listener);
        let absent = open(addr).await;
        assert!(
            matches!(absent, Err(InteropError::Unavailable { .. })),
            "{absent:?}"
        );
        assert!(absent.is_err_and(|error| error.is_retryable()));
        let nowhere = open(describes(own()).await).await.expect("described");
        let missing = nowhere.read(AT, &mut [0], deadline()).await;
        assert!(
            matches!(missing, Err(InteropError::NotFound { .. })),
            "{missing:?}"
        );
        let mut segment = own();
        segment.data_port = Some(addr.port());
        let range = AddressRange {
            address: AT,
            bytes: 10,
        };
        segment.buffers.push(BufferDesc {
            name: String::new(),
            range,
        });
        let peer = open(describes(segment).await).await.expect("described");
        let refused = peer.write(AT, &[1], deadline()).await;
        assert!(
            matches!(refused, Err(InteropError::Unavailable { .. })),
            "{refused:?}"
        );
    });
}

#[test]
fn buffers_that_come_later_are_found() {
    local(async {
        let rig = Rig::start().await;
        let peer = rig.peer().await;
        rig.register(vec![1; 100]);
        peer.write(AT, &[2; 100], deadline())
            .await
            .expect("asked again");
        assert_eq!(peer.segment().buffers.len(), 1);
        peer.refresh(deadline()).await.expect("described");
        rig.space.take_back(AT);
        let taken = peer.read(AT, &mut [0; 100], deadline()).await;
        assert!(
            matches!(taken, Err(InteropError::Rejected { code: 1 })),
            "{taken:?}"
        );
        peer.refresh(deadline()).await.expect("described");
        let gone = peer.read(AT, &mut [0; 100], deadline()).await;
        assert!(
            matches!(gone, Err(InteropError::NotFound { .. })),
            "{gone:?}"
        );
    });
}

#[test]
fn a_peer_that_moved_is_found_again() {
    local(async {
        let (before, after) = (Rig::start().await, Rig::start().await);
        before.register(vec![1; 100]);
        after.register(vec![2; 100]);
        let segment_of = async |rig: &Rig| rig.peer().await.segment();
        let (segment, told) = watch::channel(segment_of(&before).await);
        let peer = open(describes_newest(told).await).await.expect("described");
        let mut got = [0; 100];
        peer.read(AT, &mut got, deadline()).await.expect("read");
        assert_eq!(got, [1; 100]);
        segment.send_replace(segment_of(&after).await);
        before.stop.send(true).expect("served");
        before.served.await.expect("no panic").expect("served");
        let gone = peer.read(AT, &mut got, deadline()).await;
        assert!(gone.is_err_and(|error| error.is_retryable()));
        peer.refresh(deadline()).await.expect("described");
        peer.read(AT, &mut got, deadline()).await.expect("read");
        assert_eq!(got, [2; 100]);
    });
}

#[test]
fn of_many_who_ask_at_once_none_is_turned_away() {
    local(async {
        let rig = Rig::start_with(|options| options.handshakes_max = 4).await;
        let ask = encode(FrameKind::Probe, b"{}").expect("short");
        // All of them have asked before the first is accepted: nothing here waits for an answer.
        let mut all = Vec::new();
        for _ in 0..40 {
            let mut stream = std::net::TcpStream::connect(rig.handshake).expect("accepted");
            std::io::Write::write_all(&mut stream, &ask).expect("taken");
            stream.set_nonblocking(true).expect("a socket");
            all.push(TcpStream::from_std(stream).expect("a socket"));
        }
        for stream in &mut all {
            assert!(rest(stream).await.ends_with(b"\"success\"}\n"));
        }
    });
}

#[test]
fn a_shutdown_lets_requests_finish_and_ends_the_rest() {
    local(async {
        let rig = Rig::start().await;
        rig.register(vec![1; 2]);
        let peer = rig.peer().await;
        peer.write(AT, &[2; 2], deadline()).await.expect("written");
        let mut resting = TcpStream::connect(rig.data).await.expect("accepted");
        let mut busy = TcpStream::connect(rig.data).await.expect("accepted");
        let head = header(Opcode::Write, Dialect::V2, AT, 2);
        busy.write_all(&head).await.expect("taken");
        busy.write_all(&[7]).await.expect("taken");
        until(|| rig.space.contents(AT) == Some(vec![7, 2])).await;
        rig.stop.send(true).expect("served");
        assert_eq!(rest(&mut resting).await, [0_u8; 0]);
        busy.write_all(&[8]).await.expect("taken");
        assert_eq!(status(&mut busy).await, Status::Done);
        assert_eq!(rest(&mut busy).await, [0_u8; 0]);
        rig.served.await.expect("no panic").expect("served");
        assert_eq!(rig.space.contents(AT), Some(vec![7, 8]));
        let lost = peer.write(AT, &[9; 2], deadline()).await;
        assert!(
            matches!(lost, Err(InteropError::Unavailable { .. })),
            "{lost:?}"
        );
    });
}
