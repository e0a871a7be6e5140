//! Headers and statuses: golden bytes, and everything that is none.

use proptest::prelude::*;

use super::*;

#[test]
fn the_bytes_are_those_of_stock_engines() {
    let range = AddressRange {
        address: 0x7f01_0203_0405_0607,
        bytes: 0x10_0000,
    };
    for (opcode, dialect, byte) in [
        (Opcode::Read, Dialect::V1, 0),
        (Opcode::Write, Dialect::V1, 1),
        (Opcode::Read, Dialect::V2, 0x80),
        (Opcode::Write, Dialect::V2, 0x81),
    ] {
        let header = DataHeader {
            opcode,
            dialect,
            range,
        };
        let mut golden = *b"\0\0\x10\0\0\0\0\0\x07\x06\x05\x04\x03\x02\x01\x7f\0\0\0\0\0\0\0\0";
        golden[16] = byte;
        assert_eq!(header.encode(), golden);
        // What some releases leave behind the opcode means nothing.
        golden[17..].fill(0xa5);
        assert_eq!(DataHeader::decode(&golden), Ok(header));
    }
    assert_eq!(Status::Done.encode(), *b"\0\0\0\0VTCM");
    assert_eq!(Status::Rejected.encode(), *b"\x01\0\0\0VTCM");
}

#[test]
fn versions_name_dialects() {
    let all = [0, 1, 2, 3, u64::MAX].map(Dialect::of_version);
    let (old, new) = (Dialect::V1, Dialect::V2);
    assert_eq!(all, [old, old, new, new, new]);
}

proptest! {
    #[test]
    fn headers_of_known_opcodes_come_back_and_others_are_refused(raw in any::<[u8; 24]>()) {
        match DataHeader::decode(&raw) {
            Ok(header) => prop_assert_eq!(&header.encode()[..17], &raw[..17]),
            Err(error) => {
                prop_assert_eq!(error, DataError::Opcode(raw[16]));
                prop_assert!(raw[16] & !V2 > 1);
            }
        }
    }

    #[test]
    fn statuses_come_back_and_payload_is_none(code in any::<u32>(), raw in any::<[u8; 8]>()) {
        let status = Status::decode(Status::Other(code).encode()).expect("a status");
        prop_assert_eq!(status.code(), code);
        prop_assert_eq!(status == Status::Done, code == 0);
        if raw[4..] != *b"VTCM" {
            let refused = Err(DataError::Status(u64::from_le_bytes(raw)));
            prop_assert_eq!(Status::decode(raw), refused);
        }
    }
}
