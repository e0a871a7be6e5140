//! Transports against a peer that plays a script: it lies, breaks off, or falls silent.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use larder_transfer::lane::{Admission, FrameReader, FrameWriter, accept};
use larder_transfer::transport::{
    ReadDone, ReadOp, SessionSource, TcpOptions, TcpTransport, TransferError, Transport, WriteOp,
};
use larder_types::{Incarnation, Memo, PoolTime, Principal, SessionId, Version};
use larder_wire::checksum::block_crcs;
use larder_wire::data::{DataReason, Read, ReadEnd, ReadStart};
use larder_wire::frame::{FLAG_REPLY, NO_DEADLINE};
use larder_wire::limit::MAX_HELLO_BYTES;
use larder_wire::{
    Capability, Frame, Header, Kind, Reach, Refused, RefusedReason, RootKey, SignedCapability,
};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::holder::{EPOCH, INCARNATION, on_one_thread, payload, slab, soon, tenant};

/// What the peer does with one read, step by step.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// Closes before the hello is answered.
    CloseAtHello,
    /// Sends these bytes instead of a welcome.
    Say(&'static [u8]),
    /// Refuses the hello.
    Refuse(RefusedReason),
    /// Closes after the welcome.
    CloseAtRequest,
    /// Never answers.
    Silence,
    /// Answers a read like this, with so many bytes of frames and payload before it closes
    /// (`None` = all).
    Answer { change: Change, cut: Option<usize> },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Nothing,
    Torn,
    FlippedBit,
    WrongCrc,
    OneCrcMore,
    ShorterPayload,
    OtherRequest,
    OtherSession,
    OtherKind,
    NotAReply,
}

const BYTES: usize = 150_000;

fn sent() -> Bytes {
    payload(BYTES as u64, 21)
}

fn version() -> Version {
    Version {
        epoch: EPOCH,
        counter: 8,
    }
}

struct Peer {
    addr: String,
    accepted: Rc<Cell<usize>>,
}

/// Plays one step of the script for each connection; the last one for all that follow.
async fn peer(script: Vec<Step>) -> Peer {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("bound").to_string();
    let accepted = Rc::new(Cell::new(0));
    let count = Rc::clone(&accepted);
    tokio::task::spawn_local(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("accepts");
            let step = script[count.get().min(script.len() - 1)].clone();
            count.set(count.get() + 1);
            tokio::task::spawn_local(play(stream, step));
        }
    });
    Peer { addr, accepted }
}

async fn play(mut stream: TcpStream, step: Step) {
    let (mut reader, mut writer) = (FrameReader::new(MAX_HELLO_BYTES), FrameWriter::default());
    match &step {
        Step::CloseAtHello => return,
        Step::Say(bytes) => {
            let _ = stream.write_all(bytes).await;
            let _ = reader.next(&mut stream).await;
            return;
        }
        _ => {}
    }
    let refused = match &step {
        Step::Refuse(reason) => Some(Refused::new(*reason, "scripted")),
        _ => None,
    };
    let admission = Admission {
        session: SessionId(5),
        principal: Principal::Tenant(tenant("team-a")),
        incarnation: INCARNATION,
        epoch: EPOCH,
        pool_time: PoolTime(1),
        session_token: Vec::new(),
        session_token_ms: 0,
        name: "listener".to_owned(),
    };
    let admit = async |_| refused.map_or(Ok(admission), Err);
    if accept(&mut stream, &mut reader, &mut writer, admit)
        .await
        .is_err()
    {
        return;
    }
    if step == Step::CloseAtRequest {
        return;
    }
    while let Ok(Some(header)) = reader.next(&mut stream).await {
        match &step {
            // Keeps the connection open and reads no more from it.
            Step::Silence => std::future::pending().await,
            Step::Answer { change, cut } => {
                let body: Read = reader.decode().expect("a read");
                assert_eq!(body.length_bytes, BYTES as u64);
                let answer = answer(&header, *change);
                let cut = cut.unwrap_or(answer.len());
                if stream.write_all(&answer[..cut]).await.is_err() || cut < answer.len() {
                    return;
                }
            }
            other => panic!("{other:?} has no request"),
        }
    }
}

fn answer(header: &Header, change: Change) -> Vec<u8> {
    let mut payload = sent().to_vec();
    let mut block_crcs = block_crcs(&payload);
    let mut frame = Frame::reply(header, 0);
    match change {
        Change::FlippedBit => payload[BYTES - 1] ^= 0x10,
        Change::WrongCrc => block_crcs[1] ^= 1,
        Change::OneCrcMore => block_crcs.push(0),
        Change::ShorterPayload => payload.truncate(BYTES - 65_536),
        Change::OtherRequest => frame.request += 1,
        Change::OtherSession => frame.session += 1,
        Change::OtherKind => frame.kind = Kind::Write,
        Change::NotAReply => frame.flags = 0,
        Change::Nothing | Change::Torn => {}
    }
    frame.payload_bytes = payload.len() as u64;
    let mut bytes = Vec::new();
    let start = ReadStart {
        version: version(),
        block_crcs,
    };
    larder_wire::encode_frame(&mut bytes, frame, &start).expect("encodes");
    bytes.extend_from_slice(&payload);
    let end = Frame {
        kind: Kind::ReadEnd,
        flags: FLAG_REPLY,
        payload_bytes: 0,
        ..frame
    };
    let end = Frame {
        remaining_ms: NO_DEADLINE,
        ..end
    };
    let body = ReadEnd {
        unchanged: change != Change::Torn,
    };
    larder_wire::encode_frame(&mut bytes, end, &body).expect("encodes");
    bytes
}

fn capability(reach: Reach) -> SignedCapability {
    let name = larder_types::AgentName::new("pool-small-0").expect("a name");
    let key = RootKey::new([9; 32]).agent_key(&name, INCARNATION, 1);
    let extent = larder_types::Extent {
        slab: slab(0),
        offset_bytes: 0,
        length_bytes: BYTES as u64,
    };
    let capability = Capability {
        tenant: tenant("team-a"),
        incarnation: INCARNATION,
        extent,
        version: version(),
        reach,
        epoch: EPOCH,
        deadline: PoolTime(1_000),
        part: 0,
        parts: 1,
        object_bytes: BYTES as u64,
        key: b"key".to_vec(),
        memo: Memo::default(),
    };
    SignedCapability::sign(&capability, &key).expect("signed")
}

fn transport(peer: &Peer) -> TcpTransport {
    let session = SessionSource::fixed(vec![1; 40], "test", Incarnation(1));
    TcpTransport::new(peer.addr.clone(), TcpOptions::default(), session)
}

fn read_op(deadline: Instant) -> ReadOp {
    ReadOp {
        capability: capability(Reach::Read),
        offset_bytes: 0,
        length_bytes: BYTES as u64,
        buffer: BytesMut::from(&b"before"[..]),
        deadline,
    }
}

async fn read_from(peer: &Peer) -> ReadDone {
    transport(peer).read(read_op(soon())).await
}

/// Runs a read against one step and returns the error after checking the buffer.
async fn error_of(step: Step) -> TransferError {
    let peer = peer(vec![step]).await;
    let done = read_from(&peer).await;
    assert_eq!(
        &done.buffer[..],
        b"before",
        "an error leaves the buffer as it was"
    );
    done.result.expect_err("an error")
}

#[test]
fn the_script_without_changes_is_an_agent() {
    on_one_thread(|| async {
        let peer = peer(vec![Step::Answer {
            change: Change::Nothing,
            cut: None,
        }])
        .await;
        let transport = transport(&peer);
        for _ in 0..3 {
            let done = transport.read(read_op(soon())).await;
            assert_eq!(done.result.expect("read").version, version());
            assert_eq!(done.buffer[6..], sent());
        }
        assert_eq!((peer.accepted.get(), transport.idle_lanes()), (1, 1));
    });
}

#[test]
fn lies_about_bytes_are_found() {
    on_one_thread(|| async {
        let step = |change| Step::Answer { change, cut: None };
        let torn = error_of(step(Change::Torn)).await;
        assert!(
            matches!(torn, TransferError::Torn) && torn.is_retryable(),
            "{torn:?}"
        );
        for change in [Change::FlippedBit, Change::WrongCrc] {
            let error = error_of(step(change)).await;
            assert!(
                matches!(error, TransferError::Corrupt) && error.is_retryable(),
                "{error:?}"
            );
        }
        for change in [
            Change::OneCrcMore,
            Change::ShorterPayload,
            Change::OtherRequest,
            Change::OtherSession,
            Change::OtherKind,
            Change::NotAReply,
        ] {
            let error = error_of(step(change)).await;
            assert!(
                matches!(error, TransferError::Protocol(_)),
                "{change:?}: {error:?}"
            );
            assert!(!error.is_retryable());
        }
    });
}

#[test]
fn a_lane_after_a_lie_is_not_used_again() {
    on_one_thread(|| async {
        for (change, again) in [
            (Change::Torn, false),
            (Change::FlippedBit, true),
            (Change::OtherRequest, true),
        ] {
            let lie = Step::Answer { change, cut: None };
            let truth = Step::Answer {
                change: Change::Nothing,
                cut: None,
            };
            let peer = peer(vec![lie, truth]).await;
            let transport = transport(&peer);
            let done = transport.read(read_op(soon())).await;
            done.result.expect_err("a lie");
            // A torn read is no fault of the connection.
            assert_eq!(transport.idle_lanes(), usize::from(!again), "{change:?}");
            if again {
                let done = transport.read(read_op(soon())).await;
                done.result.expect("the truth");
                assert_eq!(peer.accepted.get(), 2);
            }
        }
    });
}

#[test]
fn a_peer_that_dies_at_any_frame_is_a_lost_connection() {
    on_one_thread(|| async {
        for step in [Step::CloseAtHello, Step::Say(b"LRD1")] {
            let error = error_of(step).await;
            assert!(
                matches!(error, TransferError::Unreachable { .. }),
                "{error:?}"
            );
            assert!(error.is_retryable() && error.is_about_agent());
        }
        let error = error_of(Step::CloseAtRequest).await;
        assert!(matches!(error, TransferError::ConnectionLost), "{error:?}");
        assert!(error.is_retryable() && error.is_about_agent());
        let frame = answer_bytes();
        let start = frame - BYTES - 42;
        for cut in [
            0,
            1,
            39,
            40,
            start - 1,
            start,
            start + 1,
            start + 65_536,
            frame - 42,
            frame - 1,
        ] {
            let step = Step::Answer {
                change: Change::Nothing,
                cut: Some(cut),
            };
            let error = error_of(step).await;
            assert!(
                matches!(error, TransferError::ConnectionLost),
                "{cut}: {error:?}"
            );
        }
    });
}

/// Length of the whole scripted answer, in bytes; the end frame has 41.
fn answer_bytes() -> usize {
    let mut bytes = Vec::new();
    let frame = Frame::request(Kind::Read, 1, 5, NO_DEADLINE);
    larder_wire::encode_frame(&mut bytes, frame, &()).expect("encodes");
    let raw = bytes[..40].try_into().expect("a header");
    let header = Header::decode(raw, 0).expect("decodes");
    answer(&header, Change::Nothing).len()
}

#[test]
fn b16_a_stranger_on_the_port_gets_no_call() {
    on_one_thread(|| async {
        // Another process of ours that took the port.
        let peer_of_ours = peer(vec![Step::Silence]).await;
        let options = TcpOptions {
            incarnation: Some(Incarnation(99)),
            ..TcpOptions::default()
        };
        let session = SessionSource::fixed(vec![1; 40], "test", Incarnation(1));
        let transport = TcpTransport::new(peer_of_ours.addr.clone(), options, session);
        let done = transport.read(read_op(soon())).await;
        match done.result.expect_err("a stranger") {
            TransferError::Refused(error) => {
                assert_eq!(error.reason, DataReason::StaleIncarnation);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(transport.idle_lanes(), 0);
        // Somebody else's server.
        for said in [
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            b"SSH-2.0-x\r\n",
            b"\0\0\0\0",
        ] {
            let error = error_of(Step::Say(said)).await;
            assert!(matches!(error, TransferError::Protocol(_)), "{error:?}");
        }
        for reason in [
            RefusedReason::Credential,
            RefusedReason::Expired,
            RefusedReason::Busy,
        ] {
            let error = error_of(Step::Refuse(reason)).await;
            let TransferError::HelloRefused(refused) = &error else {
                panic!("{error:?}")
            };
            assert_eq!(refused.reason, reason);
            assert_eq!(error.is_retryable(), reason != RefusedReason::Credential);
        }
    });
}

#[test]
fn b17_a_silent_peer_costs_no_more_than_the_deadline() {
    on_one_thread(|| async {
        let peer = peer(vec![Step::Silence]).await;
        let transport = transport(&peer);
        // The hello goes through while time stands; then nothing else happens, so time runs to
        // whatever is waited for.
        let warm_up = transport.read(read_op(Instant::now() + Duration::from_millis(500)));
        assert!(matches!(
            warm_up.await.result,
            Err(TransferError::DeadlinePassed)
        ));
        tokio::time::pause();
        let start = Instant::now();
        let limit = Duration::from_secs(20);
        let done = transport.read(read_op(start + limit)).await;
        assert!(
            matches!(done.result, Err(TransferError::DeadlinePassed)),
            "{:?}",
            done.result
        );
        assert_eq!(&done.buffer[..], b"before");
        assert!(start.elapsed() < limit + Duration::from_secs(1));
        let op = WriteOp {
            capability: capability(Reach::Write),
            payload: sent(),
            block_crcs: block_crcs(&sent()).into(),
            deadline: Instant::now() + limit,
        };
        let done = transport.write(op).await;
        assert!(
            matches!(done.result, Err(TransferError::DeadlinePassed)),
            "{:?}",
            done.result
        );
        assert_eq!(done.payload, sent());
        assert_eq!(
            transport.idle_lanes(),
            0,
            "the lanes of cut calls are closed"
        );
    });
}

#[test]
fn b19_a_late_answer_finds_its_connection_closed() {
    on_one_thread(|| async {
        let slow = Step::Answer {
            change: Change::FlippedBit,
            cut: None,
        };
        let right = Step::Answer {
            change: Change::Nothing,
            cut: None,
        };
        let peer = peer(vec![Step::Silence, right, slow]).await;
        let transport = transport(&peer);
        let op = read_op(Instant::now() + Duration::from_millis(500));
        let mut done = transport.read(op).await;
        assert!(matches!(done.result, Err(TransferError::DeadlinePassed)));
        // The same buffer is used at once; whatever the first peer still says cannot reach it.
        let mut op = read_op(soon());
        std::mem::swap(&mut op.buffer, &mut done.buffer);
        let done = transport.read(op).await;
        done.result.expect("the next connection answers");
        assert_eq!(done.buffer[6..], sent());
        assert_eq!(peer.accepted.get(), 2);
    });
}
