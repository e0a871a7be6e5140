//! Pages of an agent's inventory: no page is longer than what was counted for it.

use larder_types::key::MAX_KEY_BYTES;
use larder_types::{
    AgentId, Attributes, DataType, Digest, Epoch, Extent, GroupId, Incarnation, Memo, Pin,
    Registration, SegmentId, SlabRef, TenantId, Version,
};
use larder_wire::agent::{HeldObject, HeldRecord, HeldSlab, Inventory};
use larder_wire::limit::{MAX_BATCH, MAX_BODY_BYTES, MAX_INVENTORY_BYTES};
use proptest::prelude::*;

/// Besides slabs and records: who says it, two lengths, and whether it is the last.
const AROUND_BYTES: usize = 5 + 10 + 10 + 10 + 1;

fn encoded_bytes(page: &Inventory) -> usize {
    postcard::to_stdvec(page).expect("encodes").len()
}

fn counted_bytes(page: &Inventory) -> usize {
    let slabs = page.slabs.iter().map(HeldSlab::encoded_bytes_max);
    let records = page.records.iter().map(HeldRecord::encoded_bytes_max);
    slabs.chain(records).sum()
}

/// As long as any can be.
fn longest_record(key_bytes: usize) -> HeldRecord {
    let epoch = Epoch {
        generation: u64::MAX,
        term: u64::MAX,
    };
    HeldRecord {
        extent: Extent {
            slab: longest_slab().slab,
            offset_bytes: u64::MAX,
            length_bytes: u64::MAX,
        },
        version: Version {
            epoch,
            counter: u64::MAX,
        },
        written: Some(HeldObject {
            key: vec![0xff; key_bytes],
            part: u16::MAX,
            parts: u16::MAX,
            object_bytes: u64::MAX,
            digest: Digest(u64::MAX),
            memo: Memo {
                stripe: u32::MAX,
                wanted: u8::MAX,
                attributes: Attributes {
                    pin: Pin::Soft { ttl_ms: u64::MAX },
                    group: GroupId::new(&"g".repeat(GroupId::MAX_BYTES)).ok(),
                    data_type: DataType::new(DataType::MAX).expect("known"),
                },
            },
        }),
    }
}

fn longest_slab() -> HeldSlab {
    HeldSlab {
        slab: SlabRef {
            agent: AgentId(u32::MAX),
            segment: SegmentId(u32::MAX),
            index: u16::MAX,
            registration: Registration(u64::MAX),
        },
        tenant: TenantId::new(&"t".repeat(TenantId::MAX_BYTES)).expect("a name"),
    }
}

fn page(slabs: Vec<HeldSlab>, records: Vec<HeldRecord>) -> Inventory {
    Inventory {
        agent: AgentId(u32::MAX),
        incarnation: Incarnation(u64::MAX),
        slabs,
        records,
        is_last: false,
    }
}

#[test]
fn the_longest_records_and_slabs_are_counted_to_the_byte() {
    for key_bytes in [1, 127, MAX_KEY_BYTES] {
        let one = page(Vec::new(), vec![longest_record(key_bytes)]);
        let two = page(Vec::new(), vec![longest_record(key_bytes); 2]);
        let counted = counted_bytes(&two) - counted_bytes(&one);
        let encoded = encoded_bytes(&two) - encoded_bytes(&one);
        assert!(
            encoded <= counted && counted <= encoded + 1,
            "{encoded} of {counted}"
        );
    }
    let one = page(vec![longest_slab()], Vec::new());
    let two = page(vec![longest_slab(); 2], Vec::new());
    let counted = counted_bytes(&two) - counted_bytes(&one);
    assert_eq!(encoded_bytes(&two) - encoded_bytes(&one), counted);
}

#[test]
fn the_fullest_page_fits_a_frame() {
    let (record, slab) = (longest_record(MAX_KEY_BYTES), longest_slab());
    let records = MAX_INVENTORY_BYTES / record.encoded_bytes_max();
    assert_eq!(records, 120, "with the longest names too");
    let slabs = vec![slab; MAX_BATCH];
    let full = page(slabs, vec![record; records]);
    assert!(encoded_bytes(&full) <= MAX_BODY_BYTES as usize);
}

proptest! {
    #[test]
    fn no_page_is_longer_than_what_was_counted(
        numbers in prop::array::uniform8(any::<u64>()),
        (part, parts, index) in any::<(u16, u16, u16)>(),
        (stripe, wanted) in any::<(u32, u8)>(),
        key in prop::collection::vec(any::<u8>(), 0..300),
        group in prop::option::of("[a-z]{1,128}"),
        is_whole in any::<bool>(),
        rows in 0_usize..5,
    ) {
        let mut record = longest_record(1);
        let mut slab = longest_slab();
        (slab.slab.index, slab.slab.registration) = (index, Registration(numbers[0]));
        record.extent = Extent {
            slab: slab.slab,
            offset_bytes: numbers[1],
            length_bytes: numbers[2],
        };
        record.version.counter = numbers[3];
        if let Some(object) = &mut record.written {
            (object.key, object.part, object.parts) = (key, part, parts);
            (object.object_bytes, object.digest) = (numbers[4], Digest(numbers[5]));
            (object.memo.stripe, object.memo.wanted) = (stripe, wanted);
            object.memo.attributes.pin = Pin::Soft { ttl_ms: numbers[6] };
            object.memo.attributes.group =
                group.map(|group| GroupId::new(&group).expect("a name"));
        }
        record.written = record.written.filter(|_| is_whole);
        let page = page(vec![slab; rows], vec![record; rows]);
        prop_assert!(encoded_bytes(&page) <= counted_bytes(&page) + AROUND_BYTES);
        let bytes = postcard::to_stdvec(&page).expect("encodes");
        prop_assert_eq!(postcard::from_bytes::<Inventory>(&bytes), Ok(page));
    }
}
