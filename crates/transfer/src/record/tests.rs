//! Tests of the record format: golden bytes, cuts and changes.

use proptest::prelude::*;

use super::*;

fn sample() -> Record {
    Record {
        offset_bytes: 0x1000,
        length_bytes: 65_537,
        version: Version {
            epoch: Epoch {
                generation: 3,
                term: 4,
            },
            counter: 5,
        },
        state: RecordState::Written,
        tenant: TenantId::new("team-a").expect("a name"),
        key: b"kv/1".as_slice().into(),
        part: 1,
        parts: 2,
        object_bytes: 131_074,
        block_crcs: [0xaabb_ccdd, 7].into(),
        stripe: 0x0102_0304,
        wanted: 3,
        attributes: Some(Box::new(Attributes {
            pin: Pin::Soft { ttl_ms: 0x0506 },
            group: Some(GroupId::new("g").expect("a name")),
            data_type: DataType::new(1).expect("known"),
        })),
    }
}

#[test]
fn the_bytes_of_format_1_never_change() {
    let bytes = sample().encode(128).expect("fits");
    #[rustfmt::skip]
    let golden: [u8; 111] = [
        128, 0, 0, 0,               // slot
        111, 0, 0, 0,               // used
        0, 0, 0, 0,                 // checksum, below
        1, 0,                       // format
        2, 6,                       // written, tenant
        4, 0,                       // key
        1, 0, 2, 0,                 // part 1 of 2
        1, 3,                       // CRC-32C, wanted
        2, 0, 0, 0,                 // blocks
        4, 3, 2, 1,                 // stripe
        0x00, 0x10, 0, 0, 0, 0, 0, 0,
        1, 0, 1, 0, 0, 0, 0, 0,
        2, 0, 2, 0, 0, 0, 0, 0,
        3, 0, 0, 0, 0, 0, 0, 0,
        4, 0, 0, 0, 0, 0, 0, 0,
        5, 0, 0, 0, 0, 0, 0, 0,
        1, 1, 1, 0,                 // a soft pin, KV cache, group
        0xdd, 0xcc, 0xbb, 0xaa,
        7, 0, 0, 0,
        b't', b'e', b'a', b'm', b'-', b'a',
        b'k', b'v', b'/', b'1',
        b'g',
        6, 5, 0, 0, 0, 0, 0, 0,     // how long the pin lasts
    ];
    assert_eq!(bytes[..8], golden[..8]);
    assert_eq!(bytes[12..], golden[12..]);
    assert_eq!(bytes[8..12], GOLDEN_CRC);
}

/// CRC-32C of the bytes above from the used length on, computed bit by bit elsewhere.
const GOLDEN_CRC: [u8; 4] = [161, 224, 19, 200];

#[test]
fn a_cut_record_is_an_error() {
    let bytes = sample().encode(128).expect("fits");
    for length in 0..bytes.len() {
        assert!(Record::decode(&bytes[..length]).is_err(), "{length} bytes");
    }
    assert_eq!(Record::decode(&bytes), Ok(Some(sample())));
}

#[test]
fn a_changed_bit_is_an_error() {
    let bytes = sample().encode(128).expect("fits");
    // The slot's own length is checked by the file; the state 0 is how a slot is freed.
    for bit in 32..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        if changed[14] == STATE_FREE {
            assert_eq!(Record::decode(&changed), Ok(None));
        } else {
            assert!(Record::decode(&changed).is_err(), "bit {bit}");
        }
    }
}

#[test]
fn another_format_is_named() {
    let mut bytes = sample().encode(128).expect("fits");
    bytes[12] = 2;
    assert_eq!(Record::decode(&bytes), Err(RecordError::Format(2)));
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut record = sample();
    record.key = vec![7; MAX_KEY_BYTES].into();
    assert_eq!(record.slot_bytes(), 8192);
    assert!(record.encode(8192).is_ok());
    assert!(matches!(
        record.encode(4096),
        Err(RecordError::TooLong { .. })
    ));
    record.key = vec![7; MAX_KEY_BYTES + 1].into();
    assert_eq!(record.encode(8192), Err(RecordError::Field("key")));
    record.length_bytes = u64::MAX;
    assert_eq!(record.slot_bytes(), u32::MAX);
}

#[test]
fn a_record_of_a_plain_put_is_in_the_shortest_slot() {
    let mut record = sample().with_memo(Memo {
        stripe: 1,
        wanted: 2,
        attributes: Attributes::default(),
    });
    assert_eq!(record.attributes, None);
    (record.length_bytes, record.block_crcs) = (65_536, [7].into());
    record.key = vec![b'k'; 40 - "team-a".len()].into();
    assert_eq!(record.slot_bytes(), MIN_SLOT_BYTES);
    assert!(record.encode(MIN_SLOT_BYTES).is_ok());
}

fn memo() -> impl Strategy<Value = Memo> {
    let pin = prop_oneof![
        Just(Pin::None),
        Just(Pin::Hard),
        any::<u64>().prop_map(|ttl_ms| Pin::Soft { ttl_ms })
    ];
    let group = proptest::option::of("[a-z0-9][a-zA-Z0-9._-]{0,127}");
    (any::<u32>(), any::<u8>(), pin, group, 0..=DataType::MAX).prop_map(
        |(stripe, wanted, pin, group, data_type)| Memo {
            stripe,
            wanted,
            attributes: Attributes {
                pin,
                group: group.map(|group| GroupId::new(&group).expect("a name")),
                data_type: DataType::new(data_type).expect("known"),
            },
        },
    )
}

prop_compose! {
    fn record()(
        numbers in proptest::array::uniform5(any::<u64>()),
        length_bytes in 1_u64..5_000_000,
        state in prop_oneof![
            Just(RecordState::Writing), Just(RecordState::Written), Just(RecordState::Erased)
        ],
        tenant in "[a-z0-9][a-zA-Z0-9._-]{0,127}",
        key in proptest::collection::vec(any::<u8>(), 0..4096),
        (part, parts) in any::<(u16, u16)>(),
        crc in any::<u32>(),
        memo in memo(),
    ) -> Record {
        let blocks = match state {
            RecordState::Written => larder_types::layout::blocks(length_bytes),
            _ => 0,
        };
        let [offset_bytes, object_bytes, generation, term, counter] = numbers;
        let record = Record {
            offset_bytes,
            length_bytes,
            version: Version { epoch: Epoch { generation, term }, counter },
            state,
            tenant: TenantId::new(&tenant).expect("a name"),
            key: key.into(),
            part,
            parts,
            object_bytes,
            block_crcs: (0..blocks).map(|i| crc.wrapping_add(i as u32)).collect(),
            stripe: 0,
            wanted: 0,
            attributes: None,
        };
        let record = record.with_memo(memo.clone());
        assert_eq!(record.memo(), memo);
        record
    }
}

proptest! {
    #[test]
    fn every_record_comes_back_from_its_slot(record in record()) {
        let mut slot = record.encode(record.slot_bytes()).expect("fits");
        slot.resize(record.slot_bytes() as usize, 0xee);
        prop_assert_eq!(Record::decode(&slot), Ok(Some(record)));
    }

    #[test]
    fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Record::decode(&bytes);
    }
}
