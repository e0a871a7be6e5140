//! Frames cut short, too long, altered or made up.

use larder_wire::frame::{HEADER_BYTES, NO_DEADLINE};
use larder_wire::limit::{MAX_BODY_BYTES, MAX_HELLO_BYTES, MAX_PAYLOAD_BYTES};
use larder_wire::{Frame, FrameError, Header, Kind, decode_body, encode_frame};
use proptest::prelude::*;

use super::samples::{Sample, all};

/// A body of exactly these bytes.
struct RawBody<'a>(&'a [u8]);

impl serde::Serialize for RawBody<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeTuple;
        let mut tuple = serializer.serialize_tuple(self.0.len())?;
        for byte in self.0 {
            tuple.serialize_element(byte)?;
        }
        tuple.end()
    }
}

fn encode(kind: Kind, body: &[u8]) -> Result<Vec<u8>, FrameError> {
    let mut bytes = Vec::new();
    encode_frame(
        &mut bytes,
        Frame::request(kind, 5, 6, NO_DEADLINE),
        &RawBody(body),
    )?;
    Ok(bytes)
}

/// What a receiver does with a frame's bytes.
fn decode(bytes: &[u8], sample: &Sample) -> Result<Vec<u8>, FrameError> {
    let raw = bytes
        .first_chunk::<HEADER_BYTES>()
        .ok_or(FrameError::Truncated)?;
    let header = Header::decode(raw, MAX_BODY_BYTES)?;
    let body = &bytes[HEADER_BYTES..];
    let body = body
        .get(..header.body_bytes as usize)
        .ok_or(FrameError::Truncated)?;
    header.verify(body)?;
    (sample.decodes)(header.kind, body)
}

#[test]
fn every_frame_comes_back_and_cut_anywhere_it_does_not() {
    for sample in all() {
        let bytes = encode(sample.kind, &sample.body).expect("encodes");
        assert_eq!(
            decode(&bytes, &sample).as_ref(),
            Ok(&sample.body),
            "{}",
            sample.name
        );
        for cut in 0..bytes.len() {
            let error = decode(&bytes[..cut], &sample).expect_err("cut");
            assert_eq!(error, FrameError::Truncated, "{} at {cut}", sample.name);
        }
    }
}

#[test]
fn a_body_cut_anywhere_or_continued_does_not_decode() {
    for sample in all() {
        let expected = Err(FrameError::Body { kind: sample.kind });
        for cut in 0..sample.body.len() {
            let decoded = (sample.decodes)(sample.kind, &sample.body[..cut]);
            assert_eq!(decoded, expected, "{} at {cut}", sample.name);
        }
        let longer = [&sample.body[..], &[0]].concat();
        assert_eq!(
            (sample.decodes)(sample.kind, &longer),
            expected,
            "{}",
            sample.name
        );
    }
}

#[test]
fn a_frame_altered_at_any_byte_is_refused() {
    for sample in all() {
        let genuine = encode(sample.kind, &sample.body).expect("encodes");
        for at in 0..genuine.len() {
            for bit in 0..8 {
                let mut bytes = genuine.clone();
                bytes[at] ^= 1 << bit;
                let decoded = decode(&bytes, &sample);
                assert!(decoded.is_err(), "{} byte {at} bit {bit}", sample.name);
            }
        }
    }
}

#[test]
fn lengths_beyond_the_limits_are_refused_before_memory_is_taken() {
    let genuine = encode(Kind::Ping, &[]).expect("encodes");
    let with = |at: usize, bytes: &[u8], max_body_bytes| {
        let mut header: [u8; HEADER_BYTES] = genuine[..].try_into().expect("a header");
        header[at..at + bytes.len()].copy_from_slice(bytes);
        Header::decode(&header, max_body_bytes).map(drop)
    };
    for limit in [0, MAX_HELLO_BYTES, MAX_BODY_BYTES] {
        assert_eq!(with(16, &limit.to_le_bytes(), limit), Ok(()));
        let (bytes, max_bytes) = (u64::from(limit) + 1, u64::from(limit));
        let refused = FrameError::Oversize {
            what: "body",
            bytes,
            max_bytes,
        };
        assert_eq!(with(16, &(limit + 1).to_le_bytes(), limit), Err(refused));
    }
    assert_eq!(with(24, &MAX_PAYLOAD_BYTES.to_le_bytes(), 0), Ok(()));
    let bytes = MAX_PAYLOAD_BYTES + 1;
    let refused = FrameError::Oversize {
        what: "payload",
        bytes,
        max_bytes: MAX_PAYLOAD_BYTES,
    };
    assert_eq!(with(24, &bytes.to_le_bytes(), 0), Err(refused));
    assert_eq!(with(0, b"GET ", 0), Err(FrameError::Magic(*b"GET ")));
    assert_eq!(with(0, b"LRD2", 0), Err(FrameError::Magic(*b"LRD2")));
    for kind in 0..=u16::MAX {
        let known = Kind::from_number(kind).is_some();
        let expected = if known {
            Ok(())
        } else {
            Err(FrameError::Kind(kind))
        };
        assert_eq!(with(4, &kind.to_le_bytes(), 0), expected);
    }
}

#[test]
fn a_body_that_is_too_long_is_not_sent() {
    let limit = MAX_BODY_BYTES as usize;
    assert_eq!(
        encode(Kind::Get, &vec![7; limit]).map(|bytes| bytes.len()),
        Ok(limit + 40)
    );
    let mut out = b"before".to_vec();
    let frame = Frame::request(Kind::Get, 5, 6, NO_DEADLINE);
    let body = vec![7; limit + 1];
    let error = encode_frame(&mut out, frame, &RawBody(&body)).expect_err("too long");
    assert!(
        matches!(error, FrameError::Oversize { what: "body", .. }),
        "{error}"
    );
    assert_eq!(out, b"before");
}

#[test]
fn frames_stand_one_behind_the_other() {
    let mut out = Vec::new();
    for request in 1..=3 {
        let frame = Frame::request(Kind::Ping, request, 6, NO_DEADLINE);
        encode_frame(&mut out, frame, &request).expect("encodes");
    }
    let mut rest = &out[..];
    for request in 1..=3_u64 {
        let header = Header::decode(rest.first_chunk().expect("a header"), 100).expect("decodes");
        let end = HEADER_BYTES + header.body_bytes as usize;
        header.verify(&rest[HEADER_BYTES..end]).expect("genuine");
        assert_eq!(header.request, request);
        assert_eq!(
            decode_body(Kind::Ping, &rest[HEADER_BYTES..end]),
            Ok(request)
        );
        rest = &rest[end..];
    }
    assert!(rest.is_empty());
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        for sample in all() {
            // Whatever decodes must encode again; most does not decode.
            let _ = (sample.decodes)(sample.kind, &bytes);
            let _ = decode(&bytes, &sample);
        }
    }

    #[test]
    fn random_headers_with_our_magic_never_panic(
        mut bytes in prop::array::uniform32(any::<u8>()),
        rest in prop::array::uniform8(any::<u8>()),
        limit in any::<u32>(),
    ) {
        bytes[..4].copy_from_slice(b"LRD1");
        let header: [u8; 40] = [&bytes[..], &rest[..]].concat().try_into().expect("40 bytes");
        if let Ok(decoded) = Header::decode(&header, limit) {
            prop_assert!(decoded.body_bytes <= limit);
            prop_assert!(decoded.payload_bytes <= MAX_PAYLOAD_BYTES);
            let _ = decoded.verify(&rest);
        }
    }

    #[test]
    fn messages_with_random_changes_never_panic(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        with in prop::collection::vec(any::<u8>(), 1..12),
    ) {
        let samples = all();
        let sample = which.get(&samples);
        let mut body = sample.body.clone();
        if !body.is_empty() {
            let at = at.index(body.len());
            let end = (at + with.len()).min(body.len());
            body.splice(at..end, with);
        }
        for other in &samples {
            let _ = (other.decodes)(other.kind, &body);
        }
    }
}
