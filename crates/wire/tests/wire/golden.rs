//! What the bytes are: a change here is a change of the protocol and needs a new kind.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use larder_types::{ErrorCode, Reason};
use larder_wire::data::DataReason;
use larder_wire::frame::{FLAG_REPLY, HEADER_BYTES};
use larder_wire::{Frame, Header, Kind, RefusedReason, SessionSigner, encode_frame};

use super::samples::{Sample, all, claims, root};

/// `name = hex`, one message a line.
const GOLDEN: &str = include_str!("golden.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("into memory");
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = (0..text.len()).step_by(2);
    digits
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex"))
        .collect()
}

fn frame(sample: &Sample) -> Frame {
    Frame {
        kind: sample.kind,
        class: 3,
        flags: FLAG_REPLY,
        request: 0x0102_0304_0506_0708,
        remaining_ms: 2_500,
        payload_bytes: 0x0a0b_0c0d,
        session: 0x5566_7788,
    }
}

#[test]
fn every_message_is_the_bytes_that_it_was() {
    let known: BTreeMap<&str, &str> = GOLDEN
        .lines()
        .filter_map(|line| line.split_once(" ="))
        .collect();
    let mut lines = String::new();
    for sample in all() {
        writeln!(lines, "{} = {}", sample.name, hex(&sample.body)).expect("into memory");
    }
    for sample in all() {
        let expected = known.get(sample.name).copied().unwrap_or_default().trim();
        assert_eq!(
            hex(&sample.body),
            expected,
            "{}; all of them:\n{lines}",
            sample.name
        );
        let again = (sample.decodes)(sample.kind, &unhex(expected)).expect("decodes");
        assert_eq!(hex(&again), expected, "{}", sample.name);
    }
    assert_eq!(known.len(), all().len(), "no line without its message");
}

#[test]
fn every_kind_has_a_message() {
    let sampled: BTreeSet<Kind> = all().iter().map(|sample| sample.kind).collect();
    // What masters say to each other stands with them.
    let mut expected: BTreeSet<Kind> = Kind::ALL.iter().copied().collect();
    expected.remove(&Kind::Peer);
    assert_eq!(sampled, expected);
}

#[test]
fn the_header_lies_where_it_lay() {
    let samples = all();
    let ping = samples
        .iter()
        .find(|sample| sample.kind == Kind::Ping)
        .expect("a ping");
    let mut bytes = Vec::new();
    encode_frame(&mut bytes, frame(ping), &()).expect("encodes");
    assert_eq!(
        hex(&bytes),
        concat!(
            "4c524431",         // magic
            "0200",             // kind
            "03",               // class
            "01",               // flags
            "0807060504030201", // request
            "00000000",         // body
            "c4090000",         // remaining
            "0d0c0b0a00000000", // payload
            "88776655",         // session
            "bea99c68",         // CRC-32C, with these four bytes as 0
        )
    );
    let header = bytes[..HEADER_BYTES].try_into().expect("a header");
    let header = Header::decode(header, 0).expect("decodes");
    assert_eq!(
        (header.kind, header.class, header.flags),
        (Kind::Ping, 3, FLAG_REPLY)
    );
    assert_eq!(
        (header.request, header.remaining_ms),
        (0x0102_0304_0506_0708, 2_500)
    );
    assert_eq!(
        (header.payload_bytes, header.session),
        (0x0a0b_0c0d, 0x5566_7788)
    );
}

#[test]
fn numbers_of_kinds_and_reasons_stay() {
    let kinds: Vec<u16> = Kind::ALL.iter().map(|kind| *kind as u16).collect();
    let mut expected = vec![1, 2, 3];
    expected.extend(16..=27);
    expected.extend(30..=37);
    expected.extend(48..=55);
    expected.extend([64, 72, 80, 81, 82, 83, 84]);
    assert_eq!(kinds, expected);
    // Postcard numbers variants by their place: adding at the end is the only safe change.
    let data: Vec<&str> = DataReason::ALL
        .iter()
        .map(|reason| reason.label())
        .collect();
    let first = [
        "forged",
        "expired",
        "foreign_tenant",
        "wrong_access",
        "stale_incarnation",
    ];
    assert_eq!(data[..5], first);
    assert_eq!(
        (data.len(), data[17], data[18]),
        (19, "internal", "records")
    );
    for (place, reason) in DataReason::ALL.iter().enumerate() {
        assert_eq!(postcard::to_stdvec(reason).expect("encodes"), [place as u8]);
    }
    for (place, reason) in Reason::ALL.iter().enumerate() {
        assert_eq!(postcard::to_stdvec(reason).expect("encodes"), [place as u8]);
    }
    for (reason, place) in [(RefusedReason::Stopping, 6), (RefusedReason::NotLeader, 7)] {
        assert_eq!(postcard::to_stdvec(&reason).expect("encodes"), [place]);
    }
    let code = postcard::to_stdvec(&ErrorCode::ObjectNotFound).expect("encodes");
    assert_eq!(hex(&code), "ff0a", "zigzag of -704");
}

#[test]
fn a_session_token_is_the_bytes_that_it_was() {
    let signer = SessionSigner::new(&root()).expect("a signer");
    let token = signer.sign(&claims()).expect("signed");
    let split = token.as_bytes().len() - 64;
    assert_eq!(
        hex(&token.as_bytes()[..split]),
        "00067465616d2d614d020780dddb01"
    );
    assert_eq!(
        hex(&token.as_bytes()[split..split + 16]),
        "4dce08c13adb6d08444afced15436ac0"
    );
}
