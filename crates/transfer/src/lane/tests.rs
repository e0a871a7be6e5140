//! Frames in pieces, read ahead, cancelled, stalled; and hellos of all versions.

use std::future::ready;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;
use larder_types::{Epoch, Incarnation, PoolTime, Principal, SessionId};
use larder_wire::frame::NO_DEADLINE;
use larder_wire::limit::{MAX_BODY_BYTES, MAX_HELLO_BYTES, PROTOCOL_MAX, PROTOCOL_MIN};
use larder_wire::{
    Frame, FrameError, Header, Hello, Kind, Purpose, Refused, RefusedReason, encode_frame,
};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

fn block_on<F: Future<Output = ()>>(test: F) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(test);
}

fn ping(request: u64, payload: &[u8]) -> Vec<u8> {
    let mut frame = Frame::request(Kind::Ping, request, 9, NO_DEADLINE);
    frame.payload_bytes = payload.len() as u64;
    let mut bytes = Vec::new();
    encode_frame(&mut bytes, frame, &format!("body of {request}")).expect("encodes");
    bytes.extend_from_slice(payload);
    bytes
}

async fn take_payload(reader: &mut FrameReader, source: &mut DuplexStream, bytes: u64) -> Vec<u8> {
    let bytes = usize::try_from(bytes).expect("small");
    let mut payload = Vec::new();
    reader.take_ahead(bytes, |piece| payload.extend_from_slice(piece));
    let ahead = payload.len();
    payload.resize(bytes, 0);
    source
        .read_exact(&mut payload[ahead..])
        .await
        .expect("comes");
    payload
}

proptest! {
    #[test]
    fn frames_and_payloads_come_whole_however_they_are_cut(
        payloads in prop::collection::vec(0_usize..40_000, 1..6),
        pieces in prop::collection::vec(1_usize..20_000, 1..30),
    ) {
        block_on(async {
            let payloads: Vec<Vec<u8>> =
                payloads.iter().enumerate().map(|(n, len)| vec![n as u8 + 1; *len]).collect();
            let mut all: Vec<u8> = Vec::new();
            for (request, payload) in payloads.iter().enumerate() {
                all.extend(ping(request as u64, payload));
            }
            let (mut near, mut far) = duplex(64 * 1024);
            let sender = tokio::spawn(async move {
                let mut rest = &all[..];
                for piece in pieces.iter().cycle() {
                    let (now, later) = rest.split_at((*piece).min(rest.len()));
                    near.write_all(now).await.expect("taken");
                    rest = later;
                    if rest.is_empty() {
                        return;
                    }
                }
            });
            let mut reader = FrameReader::new(100);
            for (request, payload) in payloads.iter().enumerate() {
                let header = reader.next(&mut far).await.expect("a frame").expect("not the end");
                assert_eq!(header.request, request as u64);
                assert_eq!(reader.decode::<String>(), Ok(format!("body of {request}")));
                let got = take_payload(&mut reader, &mut far, header.payload_bytes).await;
                assert_eq!(&got, payload);
            }
            assert!(reader.next(&mut far).await.expect("in order").is_none());
            sender.await.expect("done");
        });
    }
}

#[test]
fn a_cancelled_read_loses_nothing() {
    block_on(async {
        let (mut near, mut far) = duplex(1024);
        let mut reader = FrameReader::new(100);
        for byte in ping(1, b"") {
            {
                let mut next = pin!(reader.next(&mut far));
                let mut context = Context::from_waker(Waker::noop());
                assert!(next.as_mut().poll(&mut context).is_pending());
            }
            near.write_all(&[byte]).await.expect("taken");
        }
        let header = reader
            .next(&mut far)
            .await
            .expect("a frame")
            .expect("not the end");
        assert_eq!(
            (header.request, reader.decode()),
            (1, Ok("body of 1".to_owned()))
        );
    });
}

#[test]
fn a_frame_that_has_begun_is_in_a_hurry() {
    block_on(async {
        // Every length at which a peer may stop, also where as much is missing as a header has.
        let long = "x".repeat(90);
        let mut frame = Vec::new();
        let ping = Frame::request(Kind::Ping, 1, 9, NO_DEADLINE);
        encode_frame(&mut frame, ping, &long).expect("encodes");
        for cut in 0..frame.len() {
            let (mut near, mut far) = duplex(1024);
            near.write_all(&frame[..cut]).await.expect("taken");
            let mut reader = FrameReader::new(200);
            let start = tokio::time::Instant::now();
            let limit = Duration::from_millis(STALL_MS * 3);
            let next = tokio::time::timeout(limit, reader.next(&mut far)).await;
            if cut == 0 {
                assert!(next.is_err(), "between frames a peer may idle");
            } else {
                let error = next.expect("in time").expect_err("stalled");
                assert!(matches!(error, LaneError::Stalled), "{cut}: {error:?}");
                assert!(start.elapsed() >= Duration::from_millis(STALL_MS));
            }
        }
    });
}

#[test]
fn foreign_bytes_are_known_by_the_first_of_them() {
    block_on(async {
        for said in ["G", "L-", "LRD", "LRD2"] {
            let (mut near, mut far) = duplex(64);
            near.write_all(said.as_bytes()).await.expect("taken");
            let limit = Duration::from_secs(1);
            let mut reader = FrameReader::new(100);
            let next = tokio::time::timeout(limit, reader.next(&mut far)).await;
            match next {
                Ok(error) => {
                    let error = error.expect_err("foreign");
                    assert!(
                        matches!(error, LaneError::Frame(FrameError::Magic(_))),
                        "{error:?}"
                    );
                }
                Err(_) => assert_eq!(said, "LRD", "may still become a frame"),
            }
        }
    });
}

#[test]
fn a_flush_that_was_cancelled_goes_on_where_it_stopped() {
    block_on(async {
        let (mut near, mut far) = duplex(16);
        let mut writer = FrameWriter::default();
        let frame = Frame::request(Kind::Ping, 1, 9, NO_DEADLINE);
        writer.push(frame, &"first").expect("fits");
        {
            let mut flush = pin!(writer.flush(&mut near));
            let mut context = Context::from_waker(Waker::noop());
            assert!(flush.as_mut().poll(&mut context).is_pending());
        }
        assert!(writer.pending_bytes() > 0);
        writer
            .push(
                Frame {
                    request: 2,
                    ..frame
                },
                &"second",
            )
            .expect("fits");
        let payload = vec![7; 1000];
        let sender = tokio::spawn(async move {
            writer
                .push(
                    Frame {
                        request: 3,
                        payload_bytes: 1000,
                        ..frame
                    },
                    &"third",
                )
                .expect("fits");
            writer
                .flush_with(&mut near, &payload)
                .await
                .expect("flushed");
            assert!(writer.is_empty());
        });
        let mut reader = FrameReader::new(100);
        for (request, body) in [(1, "first"), (2, "second"), (3, "third")] {
            let header = reader
                .next(&mut far)
                .await
                .expect("a frame")
                .expect("not the end");
            assert_eq!(
                (header.request, reader.decode()),
                (request, Ok(body.to_owned()))
            );
            let got = take_payload(&mut reader, &mut far, header.payload_bytes).await;
            assert_eq!(got, vec![7; got.len()]);
        }
        sender.await.expect("done");
    });
}

#[test]
fn what_is_taken_back_is_not_sent() {
    let mut writer = FrameWriter::default();
    let frame = Frame::request(Kind::Ping, 1, 9, NO_DEADLINE);
    writer.push(frame, &"kept").expect("fits");
    let before = writer.pending_bytes();
    writer.push(frame, &"not").expect("fits");
    assert_eq!(writer.push_payload(8, |_| Err("no")), Err("no"));
    writer.take_back(before);
    assert_eq!(writer.waiting().len(), before);
    writer.sent(before);
    assert!(writer.is_empty());
}

fn hello(protocol_min: u16, protocol_max: u16) -> Hello {
    Hello {
        protocol_min,
        protocol_max,
        features: 0,
        credential: b"token".to_vec(),
        purpose: Purpose::Client,
        name: "test".to_owned(),
        incarnation: Incarnation(4),
    }
}

fn admission() -> Admission {
    Admission {
        session: SessionId(0x1_0000_0005),
        principal: Principal::Operator,
        incarnation: Incarnation(6),
        epoch: Epoch {
            generation: 1,
            term: 2,
        },
        pool_time: PoolTime(3),
        session_token: vec![1],
        session_token_ms: 4,
        name: "listener".to_owned(),
    }
}

/// Both ends of one hello.
async fn meet(
    hello: Hello,
    admitted: Result<Admission, Refused>,
) -> (
    Result<Lane<DuplexStream>, LaneError>,
    Result<Accepted, LaneError>,
) {
    let (near, mut far) = duplex(64 * 1024);
    let mut reader = FrameReader::new(MAX_HELLO_BYTES);
    let mut writer = FrameWriter::default();
    let accepting = accept(&mut far, &mut reader, &mut writer, |_| ready(admitted));
    let opening = Lane::open(near, &hello);
    tokio::join!(opening, accepting)
}

#[test]
fn the_newest_common_protocol_is_spoken() {
    block_on(async {
        for (min, max) in [
            (0, PROTOCOL_MAX),
            (PROTOCOL_MIN, PROTOCOL_MAX),
            (PROTOCOL_MIN, 900),
        ] {
            let (lane, accepted) = meet(hello(min, max), Ok(admission())).await;
            let (lane, accepted) = (lane.expect("greeted"), accepted.expect("accepted"));
            assert_eq!(*lane.welcome(), accepted.welcome);
            assert_eq!(lane.welcome().protocol, PROTOCOL_MAX);
            assert_eq!(session_bits(lane.welcome()), 5);
            assert_eq!(
                (accepted.name.as_str(), accepted.incarnation),
                ("test", Incarnation(4))
            );
        }
        for (min, max) in [(PROTOCOL_MAX + 1, 900), (0, PROTOCOL_MIN - 1), (9, 2)] {
            let (lane, accepted) = meet(hello(min, max), Ok(admission())).await;
            for error in [
                lane.map(drop).expect_err("no"),
                accepted.map(drop).expect_err("no"),
            ] {
                let LaneError::Refused(refused) = error else {
                    panic!("{error:?}")
                };
                assert_eq!(refused.reason, RefusedReason::Protocol);
            }
        }
    });
}

#[test]
fn a_refusal_reaches_the_other_side() {
    block_on(async {
        let refused = Refused::new(RefusedReason::Role, "not here");
        let (lane, accepted) = meet(hello(1, 1), Err(refused.clone())).await;
        for error in [
            lane.map(drop).expect_err("no"),
            accepted.map(drop).expect_err("no"),
        ] {
            let LaneError::Refused(told) = error else {
                panic!("{error:?}")
            };
            assert_eq!(told, refused);
        }
    });
}

#[test]
fn a_hello_has_five_seconds_at_either_end() {
    block_on(async {
        let (mut near, mut far) = duplex(1024);
        let mut reader = FrameReader::new(MAX_HELLO_BYTES);
        let mut writer = FrameWriter::default();
        let start = tokio::time::Instant::now();
        // One byte a second is no stall, but still no hello.
        let trickle = tokio::spawn(async move {
            let frame = ping(1, b"");
            let mut second = tokio::time::interval(Duration::from_secs(1));
            for byte in frame {
                if near.write_all(&[byte]).await.is_err() {
                    return;
                }
                second.tick().await;
            }
        });
        let admit = |_| ready(Ok(admission()));
        let error = accept(&mut far, &mut reader, &mut writer, admit)
            .await
            .expect_err("slow");
        assert!(matches!(error, LaneError::HelloTimeout), "{error:?}");
        assert!(start.elapsed() < Duration::from_secs(6));
        drop(far);
        trickle.await.expect("ends");
        let (near, _far) = duplex(1024);
        let error = Lane::open(near, &hello(1, 1))
            .await
            .map(drop)
            .expect_err("silent");
        assert!(
            matches!(error, LaneError::HelloTimeout) && error.is_retryable(),
            "{error:?}"
        );
    });
}

#[test]
fn payload_is_seen_while_it_comes_and_ends_with_the_stream() {
    block_on(async {
        let (lane, accepted) = {
            let (near, mut far) = duplex(64 * 1024);
            let mut reader = FrameReader::new(MAX_HELLO_BYTES);
            let mut writer = FrameWriter::default();
            let admit = |_| ready(Ok(admission()));
            let accepting = accept(&mut far, &mut reader, &mut writer, admit);
            let hello = hello(1, 1);
            let (lane, accepted) = tokio::join!(Lane::open(near, &hello), accepting);
            accepted.expect("accepted");
            (lane.expect("greeted"), far)
        };
        let (mut lane, mut far) = (lane, accepted);
        let sender = tokio::spawn(async move {
            let mut raw = Frame::request(Kind::Read, 1, 5, NO_DEADLINE);
            raw.flags = FLAG_REPLY;
            raw.payload_bytes = 200_000;
            let mut bytes = Vec::new();
            encode_frame(&mut bytes, raw, &()).expect("encodes");
            bytes.extend((0..150_000_u32).map(|n| (n % 251) as u8));
            far.write_all(&bytes).await.expect("taken");
        });
        let request = lane.send(Kind::Read, &(), b"", 1_000).await.expect("sent");
        let header = lane.answer(Kind::Read, request).await.expect("answered");
        assert_eq!(header.payload_bytes, 200_000);
        let mut buffer = BytesMut::from(&b"head"[..]);
        let mut seen = Vec::new();
        let short = lane
            .payload(&mut buffer, 200_000, |part| seen.push(part.len()))
            .await;
        assert!(
            matches!(short, Err(LaneError::Frame(FrameError::Truncated))),
            "{short:?}"
        );
        assert_eq!(buffer.len(), 150_004);
        assert!(
            buffer[4..]
                .iter()
                .zip(0_u32..)
                .all(|(byte, n)| u32::from(*byte) == n % 251)
        );
        assert!(seen.len() > 1 && seen.is_sorted() && seen.last() == Some(&150_000));
        sender.await.expect("done");
    });
}

#[test]
fn a_header_says_no_more_than_its_limit() {
    let frame = ping(1, b"");
    let raw = frame.first_chunk().expect("a header");
    assert!(Header::decode(raw, MAX_BODY_BYTES).is_ok());
    let mut reader = FrameReader::new(3);
    let mut source = &frame[..];
    let mut next = pin!(reader.next(&mut source));
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(Err(error)) = next.as_mut().poll(&mut context) else {
        panic!("no answer")
    };
    assert_eq!(error.label(), "oversize");
}
