//! What an agent says that it holds, page by page, and what a generation that asks for it keeps.

use larder_types::{Attributes, Digest, GroupId, Memo, Pin};
use larder_wire::agent::{HeldObject, HeldRecord, HeldSlab};
use larder_wire::limit::{MAX_BATCH, MAX_INVENTORY_BYTES};
use proptest::prelude::*;

use super::super::inventory::Filling;
use super::*;

fn memo() -> Memo {
    Memo {
        stripe: 3,
        wanted: 2,
        attributes: Attributes {
            pin: Pin::Hard,
            group: Some(GroupId::new("prefix").expect("a name")),
            ..Attributes::default()
        },
    }
}

fn held(extent: Extent, counter: u64, written: Option<HeldObject>) -> HeldRecord {
    HeldRecord {
        extent,
        version: version(counter),
        written,
    }
}

/// What is said of an extent that a rig wrote.
fn object(extent: &Extent, digest: Digest) -> HeldObject {
    HeldObject {
        key: b"key".to_vec(),
        part: 0,
        parts: 1,
        object_bytes: extent.length_bytes,
        digest,
        memo: Memo::default(),
    }
}

/// All pages, each as full as `limit` lets it be.
fn pages(segments: &Segments, limit: impl Fn() -> Filling) -> Vec<InventoryPage> {
    let mut pages = vec![segments.fill_page(None, limit())];
    while let Some(next) = pages.last().and_then(|page| page.next) {
        assert!(pages.len() < 10_000, "it comes to no end");
        pages.push(segments.fill_page(Some(next), limit()));
    }
    pages
}

#[test]
fn a_written_record_says_what_its_receipt_said_and_all_of_its_object() {
    let mut rig = Rig::new();
    let one = extent(4096, 70_000);
    let capability = Capability {
        part: 1,
        parts: 3,
        object_bytes: 200_000,
        memo: memo(),
        ..Rig::capability(one, 1, Reach::Write)
    };
    let WriteStart::Go(ticket) = rig.begin_with(&capability).expect("free") else {
        panic!("nothing is written")
    };
    let page = rig.segments.inventory_page(None);
    assert_eq!(page.records, [held(one, 1, None)], "not whole yet");
    let receipt = rig.finish(ticket, 1).expect("written");
    let page = rig.segments.inventory_page(None);
    let tenant = tenant("a");
    let slab = slab(0, 1);
    assert_eq!(page.slabs, [HeldSlab { slab, tenant }]);
    let said = HeldObject {
        key: b"key".to_vec(),
        part: 1,
        parts: 3,
        object_bytes: 200_000,
        digest: receipt.digest,
        memo: memo(),
    };
    assert_eq!(page.records, [held(one, 1, Some(said))]);
    assert_eq!(page.next, None);
}

#[test]
fn what_is_erased_and_read_is_said_until_nobody_holds_it() {
    let mut rig = Rig::new();
    let (one, other) = (extent(0, 256), extent(256, 256));
    rig.write(one, 1).expect("written");
    let receipt = rig.write(other, 2).expect("written");
    let ticket = rig.read(one, 1).expect("written");
    rig.segments.erase(one, version(1));
    let said = Some(object(&other, receipt.digest));
    let after = held(other, 2, said);
    let records = |rig: &Rig| rig.segments.inventory_page(None).records;
    assert_eq!(records(&rig), [held(one, 1, None), after.clone()]);
    rig.segments.end_read(ticket);
    assert_eq!(records(&rig), [after]);
}

#[test]
fn a_record_stands_for_bytes_of_which_another_version_was_erased() {
    let mut rig = Rig::new();
    let one = extent(0, 512);
    let receipt = rig.write(one, 1).expect("written");
    let ticket = rig.read(one, 1).expect("written");
    // Never seen here, and a part of the range is in nobody's record.
    rig.segments.erase(extent(0, 1024), version(9));
    rig.segments.erase(extent(256, 1024), version(9));
    let said = object(&one, receipt.digest);
    let page = rig.segments.inventory_page(None);
    assert_eq!(page.records, [held(one, 1, Some(said))]);
    rig.segments.end_read(ticket);
}

#[test]
fn a_generation_that_asks_what_there_is_keeps_it_and_cuts_writes() {
    let mut rig = Rig::new();
    let (one, other) = (extent(0, 256), extent(256, 256));
    rig.write(one, 1).expect("written");
    let late = rig.begin(other, 2).expect("free");
    let reader = rig.read(one, 1).expect("written");
    let before = rig.segments.inventory_page(None);
    let next = epoch(2, 1);
    let rose = rig.segments.see_epoch_keeping(next, PoolTime(0), NOW);
    assert_eq!(rose, Ok(true));
    assert_eq!(rig.segments.inventory_page(None), before);
    assert_eq!(reason(rig.finish(late, 2)), DataReason::StaleEpoch);
    assert_eq!(rig.segments.inventory_page(None), before);
    assert!(rig.segments.end_read(reader), "it is as it was");
    // One that does not ask starts empty, as ever.
    let empty = rig.segments.see_epoch(epoch(3, 1), PoolTime(0), NOW);
    assert_eq!(empty, Ok(true));
    let page = rig.segments.inventory_page(None);
    assert_eq!(page, InventoryPage::default());
}

#[test]
fn a_master_that_knows_nothing_of_a_slab_that_was_taken_may_give_its_number_again() {
    let mut rig = Rig::new();
    let one = slab(1, 8);
    rig.segments.give_slab(one, tenant("a"), memory(), None);
    rig.segments.take_slab(one);
    rig.segments.tenant_gone(&tenant("b"));
    rig.events();
    rig.segments.give_slab(one, tenant("a"), memory(), None);
    assert!(!rig.segments.has_slab(one), "its life is over");
    let rose = rig
        .segments
        .see_epoch_keeping(epoch(2, 1), PoolTime(0), NOW);
    assert_eq!(rose, Ok(true));
    assert!(!rig.segments.is_gone(&tenant("b")));
    rig.segments.give_slab(one, tenant("a"), memory(), None);
    assert!(rig.segments.has_slab(one));
}

#[test]
fn a_slab_that_is_taken_and_held_tells_the_next_generation_when_it_is_gone() {
    let mut rig = Rig::new();
    rig.write(extent(0, 256), 1).expect("written");
    let reader = rig.read(extent(0, 256), 1).expect("written");
    rig.segments.take_slab(slab(0, 1));
    let rose = rig
        .segments
        .see_epoch_keeping(epoch(2, 1), PoolTime(0), NOW);
    assert_eq!(rose, Ok(true));
    let page = rig.segments.inventory_page(None);
    assert_eq!(page, InventoryPage::default(), "it gives no access");
    rig.segments.end_read(reader);
    let slab = slab(0, 1);
    assert_eq!(rig.events(), [Event::SlabReturned { slab }]);
}

#[test]
fn another_life_of_the_slab_in_which_a_page_ended_begins_anew() {
    let mut rig = Rig::new();
    for counter in 1..4 {
        rig.write(extent(counter * 256, 256), counter)
            .expect("written");
    }
    let limit = || Filling {
        rows_left: 2,
        ..Filling::default()
    };
    let first = rig.segments.fill_page(None, limit());
    assert_eq!((first.slabs.len(), first.records.len()), (1, 2));
    let next = first.next.expect("one is left");
    let rest = rig.segments.fill_page(Some(next), limit());
    assert_eq!((rest.slabs.len(), rest.records.len()), (0, 1));
    rig.segments.take_slab(slab(0, 1));
    let gone = rig.segments.fill_page(Some(next), limit());
    assert_eq!(gone, InventoryPage::default());
    rig.segments
        .give_slab(slab(0, 2), tenant("b"), memory(), None);
    let anew = rig.segments.fill_page(Some(next), limit());
    let (slab, tenant) = (slab(0, 2), tenant("b"));
    assert_eq!(anew.slabs, [HeldSlab { slab, tenant }]);
}

#[test]
fn a_page_takes_no_more_than_a_frame_has_room_for() {
    let mut rig = Rig::new();
    for counter in 0..600 {
        let capability = Capability {
            key: vec![b'k'; 4096],
            ..Rig::capability(extent(counter * 256, 256), counter + 1, Reach::Write)
        };
        let Ok(WriteStart::Go(ticket)) = rig.begin_with(&capability) else {
            panic!("it is free")
        };
        rig.finish(ticket, counter + 1).expect("written");
    }
    let pages = pages(&rig.segments, Filling::default);
    assert!(pages.len() >= 5, "{} pages", pages.len());
    for page in &pages {
        let encoded = postcard::to_stdvec(&page.records).expect("encodes");
        assert!(encoded.len() <= MAX_INVENTORY_BYTES);
    }
    let records: usize = pages.iter().map(|page| page.records.len()).sum();
    assert_eq!(records, 600);
}

#[test]
fn a_page_has_no_more_rows_than_a_batch() {
    let mut rig = Rig::new();
    for counter in 0..2500 {
        rig.write(extent(counter * 256, 1), counter + 1)
            .expect("written");
    }
    let pages = pages(&rig.segments, Filling::default);
    let rows: Vec<usize> = pages.iter().map(|page| page.records.len()).collect();
    assert_eq!(rows, [MAX_BATCH, MAX_BATCH, 2500 - 2 * MAX_BATCH]);
}

/// What is done to a range: units from, units long, and what.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Begin,
    Write,
    WriteAndErase,
    ReadAndErase,
    /// Erases a version that never was there, under a reader.
    EraseOther,
}

fn deed() -> impl Strategy<Value = (u16, u64, u64, Deed)> {
    let deeds = prop_oneof![
        Just(Deed::Begin),
        Just(Deed::Write),
        Just(Deed::WriteAndErase),
        Just(Deed::ReadAndErase),
        Just(Deed::EraseOther),
    ];
    (0..3_u16, 0..40_u64, 1..5_u64, deeds)
}

proptest! {
    /// However a walk is cut into pages, they say the same.
    #[test]
    fn pages_of_any_size_say_what_one_page_says(
        deeds in prop::collection::vec(deed(), 0..60),
        (slabs_left, rows_left) in (1..4_usize, 1..9_usize),
        (bytes_left, blocks_left) in (1..900_usize, 0..6_usize),
    ) {
        let mut rig = Rig::new();
        for index in 1..3 {
            let slab = slab(index, u64::from(index));
            rig.segments.give_slab(slab, tenant("a"), memory(), None);
        }
        let mut tickets = Vec::new();
        for (counter, (index, unit, units, deed)) in (1..).zip(deeds) {
            let mut at = extent(unit * 256, units * 256);
            at.slab = slab(index, u64::from(index.max(1)));
            if matches!(deed, Deed::EraseOther) {
                rig.segments.erase(at, version(counter));
                continue;
            }
            let Ok(ticket) = rig.begin(at, counter) else { continue };
            if matches!(deed, Deed::Begin) {
                continue;
            }
            rig.finish(ticket, counter).expect("nothing erased it");
            if matches!(deed, Deed::ReadAndErase) {
                tickets.push(rig.read(at, counter).expect("written"));
            }
            if !matches!(deed, Deed::Write) {
                rig.segments.erase(at, version(counter));
            }
        }
        let whole = rig.segments.inventory_page(None);
        prop_assert_eq!(whole.next, None);
        let limit = || Filling {
            page: InventoryPage::default(),
            slabs_left,
            rows_left,
            bytes_left,
            blocks_left,
        };
        let pages = pages(&rig.segments, limit);
        for page in &pages {
            prop_assert!(page.slabs.len() <= slabs_left && page.records.len() <= rows_left);
            let slabs = page.slabs.iter().map(HeldSlab::encoded_bytes_max);
            let records = page.records.iter().map(HeldRecord::encoded_bytes_max);
            let bytes = slabs.chain(records).sum::<usize>();
            let rows = page.slabs.len() + page.records.len();
            prop_assert!(bytes <= bytes_left || rows == 1, "{bytes} of {bytes_left}");
        }
        let slabs: Vec<_> = pages.iter().flat_map(|page| page.slabs.clone()).collect();
        let records: Vec<_> = pages.iter().flat_map(|page| page.records.clone()).collect();
        prop_assert_eq!(slabs, whole.slabs);
        let ends = records.iter().map(|held| (held.extent.slab, held.extent.offset_bytes));
        prop_assert!(ends.is_sorted());
        prop_assert_eq!(records, whole.records);
    }
}
