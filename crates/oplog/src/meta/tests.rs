//! The bytes of the state are what the crate's doc says, and any other byte is found.

use super::*;

fn full() -> Meta {
    Meta {
        vote: Some(Vote {
            term: 5,
            voted_for: Some(2),
            committed: true,
        }),
        purged: Some(Position { term: 4, index: 90 }),
        first_sequence: 3,
        boot: BootId(*b"0123456789abcdef"),
        clean_end: Some((6, 4_096)),
        doubt: Some(Some(Position { term: 5, index: 99 })),
        acknowledges_synced: true,
        is_wiping: false,
        is_tail_lost: false,
    }
}

#[test]
fn a_state_has_these_bytes() {
    let bytes = full().encode();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let golden = [
        "4c415244524d4554",
        "0100",
        "ff00",
        "00000000",
        "0500000000000000",
        "0200000000000000",
        "0400000000000000",
        "5a00000000000000",
        "0300000000000000",
        "30313233343536373839616263646566",
        "0600000000000000",
        "0010000000000000",
        "0500000000000000",
        "6300000000000000",
        &"00".repeat(36),
        "be6826f8",
    ];
    assert_eq!(hex, golden.concat());
}

#[test]
fn every_field_comes_back() {
    let empty = Meta::new(BootId([0; 16]), SyncPolicy::Never);
    let doubted = Meta {
        doubt: Some(None),
        is_wiping: true,
        is_tail_lost: true,
        ..empty
    };
    for meta in [full(), empty, doubted] {
        assert_eq!(Meta::parse(&meta.encode()).expect("a state"), meta);
    }
}

#[test]
fn any_other_byte_or_length_is_damage() {
    let bytes = full().encode();
    for at in 0..bytes.len() {
        let mut bytes = bytes;
        bytes[at] ^= 0x10;
        let error = Meta::parse(&bytes).expect_err("damage");
        assert!(matches!(error, LogError::Damaged { .. }), "{at}: {error}");
    }
    for bytes in [&bytes[..META_BYTES - 1], &[&bytes[..], &[0]].concat()] {
        let error = Meta::parse(bytes).expect_err("damage");
        assert!(matches!(error, LogError::Damaged { .. }), "{error}");
    }
}

#[test]
fn a_newer_state_is_told_from_a_damaged_one() {
    let mut bytes = full().encode();
    bytes[8] = 2;
    let crc = crc32c::crc32c(&bytes[..META_BYTES - 4]);
    bytes[META_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    let error = Meta::parse(&bytes).expect_err("newer");
    assert!(
        matches!(error, LogError::Newer { version: 2, .. }),
        "{error}"
    );
}
