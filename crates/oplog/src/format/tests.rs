//! The bytes of a segment are what the crate's doc says, and no bytes make the parser panic.

use proptest::prelude::*;

use super::*;

const PLACE: Place = Place {
    sequence: 7,
    offset: 64,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_header_has_these_bytes() {
    let header = Header {
        sequence: 7,
        previous: Some(Position { term: 3, index: 99 }),
        starts_over: true,
    };
    let golden = [
        "4c415244524c4f47",
        "0100",
        "03",
        "0000000000",
        "0700000000000000",
        "0300000000000000",
        "6300000000000000",
        "0000000000000000000000000000000000000000",
        "b97b8a10",
    ];
    assert_eq!(hex(&header.encode()), golden.concat());
    assert_eq!(Header::parse(&header.encode(), 7), Ok(header));
}

#[test]
fn a_record_has_these_bytes() {
    let mut bytes = Vec::new();
    let at = Position {
        term: 3,
        index: 100,
    };
    encode(&mut bytes, Kind::Entry, at, b"larder", PLACE);
    let golden = [
        "06000000",
        "d80f5ef8",
        "8150a9c5",
        "01000000",
        "0300000000000000",
        "6400000000000000",
        "6c6172646572",
    ];
    assert_eq!(hex(&bytes), golden.concat());
    let (record, payload) = parse(&bytes, PLACE).expect("a record");
    assert_eq!(
        (record.kind, record.at, payload),
        (Kind::Entry, at, &b"larder"[..])
    );
    assert_eq!(record.bytes(), bytes.len() as u64);
}

#[test]
fn a_newer_header_is_told_from_a_damaged_one() {
    let header = Header {
        sequence: 0,
        previous: None,
        starts_over: false,
    };
    let mut bytes = header.encode();
    bytes[8] = 2;
    assert!(matches!(Header::parse(&bytes, 0), Err(Flaw::Bad(_))));
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(Header::parse(&bytes, 0), Err(Flaw::Newer(2)));
}

#[test]
fn a_record_of_another_place_is_none() {
    let mut bytes = Vec::new();
    encode(&mut bytes, Kind::Entry, Position::default(), b"x", PLACE);
    for (sequence, offset) in [(8, 64), (7, 65), (0, 0)] {
        let place = Place { sequence, offset };
        assert!(matches!(parse(&bytes, place), Err(Flaw::Bad(_))));
    }
}

#[test]
fn a_record_cut_short_is_short_and_not_bad() {
    let mut bytes = Vec::new();
    encode(
        &mut bytes,
        Kind::Entry,
        Position::default(),
        b"payload",
        PLACE,
    );
    for length in 0..bytes.len() {
        assert_eq!(parse(&bytes[..length], PLACE), Err(Flaw::Short), "{length}");
    }
}

#[test]
fn good_records_behind_a_bad_one_are_found_wherever_it_ends() {
    let mut bytes = vec![0; 64];
    let mut ends: Vec<u64> = Vec::new();
    for (index, kind) in [Kind::Entry, Kind::Entry, Kind::Mark, Kind::Entry]
        .into_iter()
        .enumerate()
    {
        let place = Place {
            sequence: 7,
            offset: bytes.len() as u64,
        };
        let payload: &[u8] = if kind == Kind::Entry { &[9; 100] } else { &[] };
        // The mark says that the first entry is durable.
        let index = if kind == Kind::Mark {
            ends[0]
        } else {
            index as u64
        };
        encode(
            &mut bytes,
            kind,
            Position { term: 1, index },
            payload,
            place,
        );
        ends.push(bytes.len() as u64);
    }
    let behind = |records, has_mark| Behind { records, has_mark };
    assert_eq!(look_behind(&bytes, 7, 64), behind(3, true));
    assert_eq!(look_behind(&bytes, 7, ends[0]), behind(2, false));
    assert_eq!(look_behind(&bytes, 7, ends[1]), behind(1, false));
    assert_eq!(look_behind(&bytes, 7, ends[2]), behind(0, false));
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Header::parse(&bytes, 0).is_err());
        prop_assert!(parse(&bytes, PLACE).is_err());
        prop_assert_eq!(look_behind(&bytes, 7, 0), Behind::default());
    }

    #[test]
    fn what_is_written_is_read(
        term: u64,
        index: u64,
        payload in prop::collection::vec(any::<u8>(), 0..200),
        sequence: u64,
        offset: u64,
        flip: prop::sample::Index,
        mask in 1..=u8::MAX,
    ) {
        let (at, place) = (Position { term, index }, Place { sequence, offset });
        let mut bytes = Vec::new();
        encode(&mut bytes, Kind::Entry, at, &payload, place);
        let (record, found) = parse(&bytes, place).expect("a record");
        prop_assert_eq!((record.at, found), (at, &payload[..]));
        let flip = flip.index(bytes.len());
        bytes[flip] ^= mask;
        prop_assert!(parse(&bytes, place).is_err());
    }
}
