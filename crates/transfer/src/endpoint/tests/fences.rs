//! No byte comes into memory that its owner uses for something else, however late it comes.

use bytes::BytesMut;
use larder_types::{Epoch, PoolTime, Principal, SessionId};
use larder_wire::engine::{Changes, Described, EngineWrite, Known};
use larder_wire::frame::{FLAG_ERROR, FLAG_REPLY};
use larder_wire::limit::{MAX_HELLO_BYTES, PROTOCOL_MAX, PROTOCOL_MIN};
use larder_wire::{Frame, Header, Hello, Kind, Purpose, Welcome, encode_frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

use super::*;
use crate::lane::{Admission, FrameReader, FrameWriter, Lane, accept, session_bits};

/// A lane to an endpoint, for bytes that an honest peer would not send.
async fn raw(addr: &str) -> (TcpStream, FrameReader, Welcome) {
    let hello = Hello {
        protocol_min: PROTOCOL_MIN,
        protocol_max: PROTOCOL_MAX,
        features: 0,
        credential: b"of the engines".to_vec(),
        purpose: Purpose::Engine,
        name: "raw".to_owned(),
        incarnation: Incarnation(9),
    };
    let stream = TcpStream::connect(addr).await.expect("loopback");
    let lane = Lane::open(stream, &hello).await.expect("served");
    let (stream, reader, _, welcome) = lane.into_parts();
    (stream, reader, welcome)
}

/// How the owner cuts off what it allowed.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Unregister,
    Fence,
}

async fn cut_in_the_middle(cut: Cut) {
    let there = served(2).await;
    let (memory, key) = buffer(&there.endpoint, MIB, 1);
    let (mut stream, mut reader, welcome) = raw(&there.addr).await;
    let (bytes, half) = (MIB, 400_000);
    let mut frame = Frame::request(Kind::EngineWrite, 5, session_bits(&welcome), 1_000);
    frame.payload_bytes = bytes;
    let body = EngineWrite {
        registration: 1,
        epoch: 1,
        offset_bytes: 0,
    };
    let mut out = Vec::new();
    encode_frame(&mut out, frame, &body).expect("short");
    let payload = pattern(2, bytes);
    out.extend_from_slice(&payload[..half]);
    stream.write_all(&out).await.expect("open");
    while content(&memory)[half - 1] != payload[half - 1] {
        tokio::task::yield_now().await;
    }
    let refusal = match cut {
        Cut::Unregister => {
            there.endpoint.unregister(key).await.expect("there");
            Refusal::StaleRegistration
        }
        Cut::Fence => {
            assert_eq!(there.endpoint.fence(key), Ok(2));
            Refusal::StaleEpoch
        }
    };
    // From here on the memory is the owner's alone.
    memory.copy_in(0, &pattern(3, bytes)).expect("in range");
    stream.write_all(&payload[half..]).await.expect("open");
    let header = reader.next(&mut stream).await.expect("whole").expect("one");
    assert!(header.has(FLAG_REPLY) && header.has(FLAG_ERROR) && header.request == 5);
    assert_eq!(
        reader.decode::<Refusal>().expect("a refusal"),
        refusal,
        "{cut:?}"
    );
    assert!(content(&memory) == pattern(3, bytes), "{cut:?}: touched");
}

#[test]
fn a_buffer_that_is_cut_off_in_the_middle_of_a_write_is_not_touched_any_more() {
    for cut in [Cut::Unregister, Cut::Fence] {
        run(cut_in_the_middle(cut));
    }
}

/// A peer that describes one buffer and then does with its rails what a test wants.
struct Fake {
    addr: String,
    /// Connections after the first one, which is for control.
    rails: tokio::sync::mpsc::Receiver<(TcpStream, FrameReader, u32)>,
}

const FAR: u64 = 1 << 40;

async fn fake(bytes: u64) -> Fake {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    // Little of what nobody reads fits in.
    socket.set_recv_buffer_size(4_096).expect("allowed");
    socket
        .bind("127.0.0.1:0".parse().expect("an address"))
        .expect("loopback");
    let listener = socket.listen(64).expect("bound");
    let addr = listener.local_addr().expect("bound").to_string();
    let (give, rails) = tokio::sync::mpsc::channel(16);
    spawn_local(async move {
        let mut is_first = true;
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut reader = FrameReader::new(MAX_HELLO_BYTES);
            let mut writer = FrameWriter::default();
            let admission = Admission {
                session: SessionId(7),
                principal: Principal::Tenant(tenant("a")),
                incarnation: Incarnation(2),
                epoch: Epoch::default(),
                pool_time: PoolTime::default(),
                session_token: Vec::new(),
                session_token_ms: 0,
                name: "fake".to_owned(),
            };
            let admit = |_| std::future::ready(Ok(admission));
            let accepted = accept(&mut stream, &mut reader, &mut writer, admit).await;
            let session = session_bits(&accepted.expect("a hello").welcome);
            if std::mem::take(&mut is_first) {
                spawn_local(describe(stream, reader, bytes));
            } else if give.send((stream, reader, session)).await.is_err() {
                return;
            }
        }
    });
    Fake { addr, rails }
}

async fn describe(mut stream: TcpStream, mut reader: FrameReader, bytes: u64) {
    let mut writer = FrameWriter::default();
    while let Ok(Some(header)) = reader.next(&mut stream).await {
        let changes = Changes {
            is_whole: true,
            removed: Vec::new(),
            added: vec![Described {
                registration: 1,
                epoch: 1,
                start: FAR,
                bytes,
                regions: Vec::new(),
                access: BOTH,
            }],
            known: Known {
                added: 1,
                removed: 1,
            },
            has_more: false,
        };
        writer
            .push(Frame::reply(&header, 0), &changes)
            .expect("short");
        writer.flush(&mut stream).await.expect("open");
    }
}

/// The first request that comes over any rail.
async fn first_request(fake: &mut Fake) -> (TcpStream, FrameReader, Header) {
    let (give, got) = oneshot::channel();
    let give = Rc::new(std::cell::RefCell::new(Some(give)));
    loop {
        let (mut stream, mut reader, _) = fake.rails.recv().await.expect("rails come");
        let give = Rc::clone(&give);
        spawn_local(async move {
            let Ok(Some(header)) = reader.next(&mut stream).await else {
                return;
            };
            if let Some(give) = give.borrow_mut().take() {
                let _ = give.send((stream, reader, header));
            }
        });
        if fake.rails.is_empty() {
            return got.await.expect("a request");
        }
    }
}

/// How a caller ends what takes too long.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Deadline,
    Cancel,
    Drop,
}

fn one_lane() -> EndpointOptions {
    let mut options = options(1);
    options.lanes = 1;
    // The peer's silence is part of the test.
    options.stall_ms = 60_000;
    options
}

async fn late_answer(ending: Ending) {
    let bytes = 300_000;
    let mut fake = fake(bytes).await;
    let here = Endpoint::new(one_lane());
    let (local, key) = buffer(&here, bytes, 1);
    let peer = here.open(&fake.addr).await.expect("it answers");
    let range = [Range {
        local_address: local.address(),
        remote_address: FAR,
        bytes,
    }];
    let limit_ms = if matches!(ending, Ending::Deadline) {
        2_000
    } else {
        30_000
    };
    let asked = Asked::by(Instant::now() + Duration::from_millis(limit_ms));
    let pending = here.submit(peer, Direction::Read, &range, asked);
    let pending = pending.expect("taken");
    let (mut stream, _reader, header) = first_request(&mut fake).await;
    let mut frame = Frame::reply(&header, 0);
    frame.payload_bytes = bytes;
    let mut out = Vec::new();
    encode_frame(&mut out, frame, &()).expect("short");
    let payload = pattern(2, bytes);
    out.extend_from_slice(&payload[..100_000]);
    stream.write_all(&out).await.expect("open");
    while content(&local)[99_999] != payload[99_999] {
        tokio::task::yield_now().await;
    }
    match ending {
        Ending::Deadline => {
            assert_eq!(pending.await.transfers, [Err(Failure::DeadlinePassed)]);
        }
        Ending::Cancel => {
            pending.cancel();
            assert_eq!(pending.await.transfers, [Err(Failure::Cancelled)]);
        }
        Ending::Drop => drop(pending),
    }
    assert!(here.0.shared.is_at_rest(), "{ending:?}");
    here.unregister(key).await.expect("nothing holds it");
    local.copy_in(0, &pattern(3, bytes)).expect("in range");
    stream.write_all(&payload[100_000..]).await.expect("open");
    // The rail goes on behind it: another read on it is answered.
    let (next, _) = buffer(&here, 8, 4);
    let range = [Range {
        local_address: next.address(),
        remote_address: FAR,
        bytes: 8,
    }];
    let pending = here.submit(peer, Direction::Read, &range, soon());
    let mut reader = FrameReader::new(1 << 20);
    let header = reader.next(&mut stream).await.expect("whole").expect("one");
    let mut frame = Frame::reply(&header, 0);
    frame.payload_bytes = 8;
    let mut out = Vec::new();
    encode_frame(&mut out, frame, &()).expect("short");
    out.extend_from_slice(&pattern(5, 8));
    stream.write_all(&out).await.expect("open");
    assert_eq!(pending.expect("taken").await.transfers, [Ok(())]);
    assert!(content(&next) == pattern(5, 8));
    assert!(content(&local) == pattern(3, bytes), "{ending:?}: touched");
}

#[test]
fn what_comes_after_the_end_of_a_read_does_not_reach_its_buffer() {
    for ending in [Ending::Deadline, Ending::Cancel, Ending::Drop] {
        run(late_answer(ending));
    }
}

fn answer_to(request: u64, of: &Header, payload: &[u8]) -> Vec<u8> {
    let mut frame = Frame::reply(of, 0);
    frame.request = request;
    frame.payload_bytes = payload.len() as u64;
    let mut out = Vec::new();
    encode_frame(&mut out, frame, &()).expect("short");
    out.extend_from_slice(payload);
    out
}

#[test]
fn a_peer_has_no_say_in_what_another_one_was_asked() {
    run(async {
        let bytes = 1_000;
        let (mut honest, mut other) = (fake(bytes).await, fake(bytes).await);
        let here = Endpoint::new(one_lane());
        let mut asked = Vec::new();
        for addr in [&honest.addr, &other.addr] {
            let (local, _) = buffer(&here, bytes, 1);
            let peer = here.open(addr).await.expect("it answers");
            let range = [Range {
                local_address: local.address(),
                remote_address: FAR,
                bytes,
            }];
            let pending = here.submit(peer, Direction::Read, &range, soon());
            asked.push((local, pending.expect("taken")));
        }
        let (mut stream, _reader, header) = first_request(&mut honest).await;
        let (mut other_stream, _other_reader, other_header) = first_request(&mut other).await;
        let forged = answer_to(header.request, &other_header, &pattern(7, bytes));
        other_stream.write_all(&forged).await.expect("open");
        // It is shown the door for it.
        let mut rest = Vec::new();
        let _ = other_stream.read_to_end(&mut rest).await;
        let (local, pending) = asked.swap_remove(0);
        assert!(
            content(&local) == pattern(1, bytes),
            "filled by the wrong peer"
        );
        let right = answer_to(header.request, &header, &pattern(8, bytes));
        stream.write_all(&right).await.expect("open");
        assert_eq!(pending.await.transfers, [Ok(())]);
        assert!(content(&local) == pattern(8, bytes));
    });
}

#[test]
fn who_waits_hears_of_the_end_of_the_endpoint() {
    run(async {
        let fake = fake(8).await;
        let here = Endpoint::new(one_lane());
        let (local, _) = buffer(&here, 8, 1);
        let peer = here.open(&fake.addr).await.expect("it answers");
        let range = [Range {
            local_address: local.address(),
            remote_address: FAR,
            bytes: 8,
        }];
        let pending = here.submit(peer, Direction::Read, &range, soon());
        drop(here);
        let outcome = pending.expect("taken").await;
        assert_eq!(outcome.transfers, [Err(Failure::PeerGone)]);
    });
}

#[test]
fn a_write_that_is_over_sends_nothing_of_what_comes_to_lie_in_its_buffer() {
    run(async {
        let bytes = 64 * MIB;
        let mut fake = fake(bytes).await;
        let mut options = one_lane();
        options.send_buffer_bytes = Some(16 << 10);
        let here = Endpoint::new(options);
        let (local, key) = buffer(&here, bytes, 1);
        let peer = here.open(&fake.addr).await.expect("it answers");
        let range = [Range {
            local_address: local.address(),
            remote_address: FAR,
            bytes,
        }];
        let asked = Asked::by(Instant::now() + Duration::from_secs(2));
        let pending = here.submit(peer, Direction::Write, &range, asked);
        // Nobody reads there, so the sockets are full at some point.
        let (mut stream, reader, header) = first_request(&mut fake).await;
        let outcome = pending.expect("taken").await;
        assert_eq!(outcome.transfers, [Err(Failure::DeadlinePassed)]);
        here.unregister(key).await.expect("nothing holds it");
        local
            .copy_in(0, &vec![0xee; usize::try_from(bytes).expect("small")])
            .expect("in range");
        let mut came = BytesMut::from(reader.ahead());
        while stream.read_buf(&mut came).await.expect("closed in order") > 0 {}
        let sent = usize::try_from(header.payload_bytes).expect("small");
        assert!(came.len() < sent, "all of it fitted into the sockets");
        assert!(came[..] == pattern(1, bytes)[..came.len()], "other bytes");
    });
}

#[test]
fn a_peer_in_another_life_is_not_written_to_by_what_was_known_of_the_former() {
    run(async {
        let there = served(2).await;
        let (old, _) = buffer(&there.endpoint, MIB, 1);
        let here = Endpoint::new(options(1));
        let (local, _) = buffer(&here, MIB, 2);
        let peer = here.open(&there.addr).await.expect("it listens");
        let range = [whole(&local, &old)];
        let done = here.transfer(peer, Direction::Write, &range, soon()).await;
        done.expect("done");
        let addr = there.addr.clone();
        drop(there);
        while TcpStream::connect(&addr).await.is_ok() {
            tokio::task::yield_now().await;
        }
        let again = served_at(options(3), &addr).await;
        let (new, _) = buffer(&again.endpoint, MIB, 3);
        // Whether the break or the other life is noticed first, nothing is written.
        let pending = here.submit(peer, Direction::Write, &range, soon());
        let outcome = pending.expect("taken").await;
        assert!(outcome.transfers[0].is_err(), "{outcome:?}");
        assert!(content(&new) == pattern(3, MIB), "touched");
        let range = [whole(&local, &new)];
        let done = here.transfer(peer, Direction::Write, &range, soon()).await;
        done.expect("it is asked what it has now");
        assert!(content(&new) == pattern(2, MIB));
        assert!(content(&old) == pattern(2, MIB), "the former one's");
    });
}
