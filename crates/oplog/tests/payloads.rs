//! Payloads of entries: golden bytes, and bytes that are none.

use larder_oplog::{PAYLOAD_OVERHEAD_BYTES, Payload, RecordError};
use proptest::prelude::*;

fn ops(term: u64, ops: &[u8]) -> Payload {
    let ops = ops.to_vec();
    Payload::Ops { term, ops }
}

/// Bytes once here are never changed.
fn golden() -> Vec<(Payload, &'static [u8])> {
    vec![
        (Payload::Blank, &[0]),
        (
            ops(0x0102_0304_0506_0708, &[1, 0]),
            &[1, 8, 7, 6, 5, 4, 3, 2, 1, 1, 0],
        ),
        (ops(7, &[]), &[1, 7, 0, 0, 0, 0, 0, 0, 0]),
        (Payload::Members(b"abc".to_vec()), &[2, b'a', b'b', b'c']),
        (Payload::Members(Vec::new()), &[2]),
    ]
}

#[test]
fn payloads_are_the_bytes_that_they_were() {
    for (payload, bytes) in golden() {
        assert_eq!(payload.encode(), bytes, "{payload:?}");
        assert_eq!(Payload::decode(bytes).expect("readable"), payload);
    }
    let most = ops(u64::MAX, &[]).encode();
    assert_eq!(most.len(), PAYLOAD_OVERHEAD_BYTES);
}

#[test]
fn what_is_no_payload_is_refused() {
    let term_cut = &[1, 1, 2, 3, 4, 5, 6, 7, 8];
    for length in 0..term_cut.len() {
        let found = Payload::decode(&term_cut[..length]);
        assert!(matches!(found, Err(RecordError::Damaged(_))), "{length}");
    }
    assert!(Payload::decode(&[0, 0]).is_err(), "longer than nothing");
    for tag in 3..=u8::MAX {
        let found = Payload::decode(&[tag, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!(matches!(found, Err(RecordError::Damaged(_))), "{tag}");
    }
}

#[test]
fn ops_of_another_term_are_skipped() {
    let payload = ops(3, &[1, 0]);
    assert_eq!(payload.ops_of(3), Some(&[1, 0][..]));
    assert_eq!(payload.ops_of(4), None);
    assert_eq!(payload.ops_of(2), None);
    assert_eq!(Payload::Blank.ops_of(3), None);
    assert_eq!(Payload::Members(vec![1]).ops_of(3), None);
}

proptest! {
    #[test]
    fn what_is_read_is_written_the_same(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(payload) = Payload::decode(&bytes) {
            prop_assert_eq!(payload.encode(), bytes);
        }
    }
}
