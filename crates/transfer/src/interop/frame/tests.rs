//! Frames whole, in pieces, cut off, too long and of no kind.

use proptest::prelude::*;

use super::*;

const KINDS: [FrameKind; 5] = [
    FrameKind::Connection,
    FrameKind::Metadata,
    FrameKind::Notify,
    FrameKind::Probe,
    FrameKind::Legacy,
];

fn fed(bytes: &[u8]) -> Result<Option<Frame>, FrameError> {
    FrameDecoder::default().feed(bytes)
}

#[test]
fn the_bytes_are_those_of_stock_engines() {
    let notify = b"{\"name\":\"a\",\"notify_msg\":\"b\"}\n";
    let bytes = encode(FrameKind::Notify, notify).expect("short");
    let golden = b"\x1f\0\0\0\0\0\0\0\x02{\"name\":\"a\",\"notify_msg\":\"b\"}\n";
    assert_eq!(bytes, golden);
    let bytes = encode(FrameKind::Legacy, b"{}").expect("short");
    assert_eq!(bytes, b"\x02\0\0\0\0\0\0\0{}");
    let marked = fed(b"\x03\0\0\0\0\0\0\0\xff{}")
        .expect("a frame")
        .expect("whole");
    assert_eq!(
        (marked.kind, &marked.json[..]),
        (FrameKind::Legacy, &b"{}"[..])
    );
}

#[test]
fn a_length_is_refused_before_anything_is_waited_for() {
    assert_eq!(fed(&[0; 8]), Err(FrameError::Empty));
    let limit_bytes = MAX_FRAME_BYTES;
    for bytes in [limit_bytes + 1, u64::MAX, u64::from_le_bytes(*b"GET / HT")] {
        let refused = Err(FrameError::TooLong { bytes, limit_bytes });
        assert_eq!(fed(&bytes.to_le_bytes()), refused);
    }
    let longest = usize::try_from(limit_bytes).expect("fits") - 1;
    let json = vec![b' '; longest];
    let bytes = encode(FrameKind::Metadata, &json).expect("just fits");
    assert_eq!(fed(&bytes).expect("just fits").expect("whole").json, json);
    let json = vec![b' '; longest + 1];
    assert!(matches!(
        encode(FrameKind::Metadata, &json),
        Err(FrameError::TooLong { .. })
    ));
}

#[test]
fn kinds_that_nobody_speaks_are_refused_at_their_byte() {
    for kind in 0..=u8::MAX {
        let mut bytes = 9_u64.to_le_bytes().to_vec();
        bytes.push(kind);
        let known = matches!(kind, 0..=3 | 0xff | b'{');
        let expected = if known {
            Ok(None)
        } else {
            Err(FrameError::Kind(kind))
        };
        assert_eq!(fed(&bytes), expected);
    }
}

#[test]
fn what_follows_a_frame_is_refused() {
    let mut bytes = encode(FrameKind::Probe, b"{}").expect("short");
    bytes.extend(b"xyz");
    assert_eq!(fed(&bytes), Err(FrameError::Trailing { bytes: 3 }));
}

proptest! {
    #[test]
    fn frames_come_whole_however_they_are_cut(
        kind in prop::sample::select(&KINDS[..]),
        text in prop::collection::vec(any::<u8>(), 0..3_000),
        pieces in prop::collection::vec(1_usize..400, 1..20),
    ) {
        let mut json = b"{".to_vec();
        json.extend(text);
        let bytes = encode(kind, &json).expect("short");
        let mut decoder = FrameDecoder::default();
        prop_assert_eq!(decoder.finish(), Ok(()));
        let mut rest = &bytes[..];
        for piece in pieces.iter().cycle() {
            let (now, later) = rest.split_at((*piece).min(rest.len()));
            rest = later;
            let done = decoder.feed(now).expect("right so far");
            if rest.is_empty() {
                prop_assert_eq!(done, Some(Frame { kind, json }));
                break;
            }
            prop_assert_eq!(done, None);
            let came = bytes.len() - rest.len();
            prop_assert_eq!(decoder.finish(), Err(FrameError::Truncated { bytes: came }));
        }
    }

    #[test]
    fn garbage_is_refused_or_waited_for_and_never_kept_beyond_the_limit(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        length in prop::option::of(0_u64..300),
    ) {
        if let (Some(length), true) = (length, bytes.len() >= 8) {
            bytes[..8].copy_from_slice(&length.to_le_bytes());
        }
        let mut decoder = FrameDecoder::default();
        for byte in &bytes {
            match decoder.feed(std::slice::from_ref(byte)) {
                Ok(None) => {}
                Ok(Some(frame)) => {
                    let again = encode(frame.kind, &frame.json);
                    prop_assert!(again.is_ok() || frame.json.is_empty());
                    break;
                }
                Err(_) => break,
            }
        }
    }
}
