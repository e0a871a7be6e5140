//! Tests of the file of records: slots, reuse and compaction.

use larder_types::{Epoch, TenantId, Version};

use super::*;
use crate::record::RecordState;

fn record(counter: u64, key_bytes: usize) -> Record {
    Record {
        offset_bytes: counter * 256,
        length_bytes: 256,
        version: Version {
            epoch: Epoch {
                generation: 1,
                term: 1,
            },
            counter,
        },
        state: RecordState::Writing,
        tenant: TenantId::new("t").expect("a name"),
        key: vec![b'k'; key_bytes].into(),
        part: 0,
        parts: 1,
        object_bytes: 256,
        block_crcs: [].into(),
        stripe: 0,
        wanted: 1,
        attributes: None,
    }
}

fn counters(file: &RecordFile) -> Vec<u64> {
    file.scan()
        .expect("a sound file")
        .iter()
        .map(|record| record.version.counter)
        .collect()
}

#[test]
fn records_are_added_changed_and_removed() {
    let mut file = RecordFile::create().expect("a file");
    assert!(file.scan().expect("an empty file").is_empty());
    let first = file.insert(&record(1, 4)).expect("added");
    let second = file.insert(&record(2, 4)).expect("added");
    let mut written = record(1, 4);
    written.state = RecordState::Written;
    written.block_crcs = [42].into();
    file.update(first, &written).expect("changed");
    assert_eq!(file.scan().expect("sound"), [written, record(2, 4)]);
    file.remove(first).expect("removed");
    assert_eq!(counters(&file), [2]);
    assert!(matches!(file.remove(first), Err(RecordFileError::NoSlot)));
    assert!(matches!(
        file.update(first, &record(1, 4)),
        Err(RecordFileError::NoSlot)
    ));
    file.remove(second).expect("removed");
    assert!(counters(&file).is_empty());
}

#[test]
fn a_freed_slot_serves_the_next_record_of_its_length() {
    let mut file = RecordFile::create().expect("a file");
    let first = file.insert(&record(1, 4)).expect("added");
    file.insert(&record(2, 4)).expect("added");
    let before = file.bytes();
    file.remove(first).expect("removed");
    file.insert(&record(3, 1000)).expect("added");
    assert_eq!(file.bytes(), before + 2048, "a longer one goes to the end");
    file.insert(&record(4, 35)).expect("added");
    assert_eq!(
        file.bytes(),
        before + 2048,
        "one of the same length takes the hole"
    );
    assert_eq!(counters(&file), [4, 2, 3]);
}

#[test]
fn a_record_that_does_not_fit_leaves_the_file_as_it_was() {
    let mut file = RecordFile::create().expect("a file");
    let slot = file.insert(&record(1, 4)).expect("added");
    let refused = file
        .update(slot, &record(1, 2000))
        .expect_err("too long for its slot");
    assert!(matches!(
        refused,
        RecordFileError::Record { at_bytes: 0, .. }
    ));
    assert_eq!(file.scan().expect("sound"), [record(1, 4)]);
    let refused = file
        .insert(&record(2, 5000))
        .expect_err("the key is too long");
    assert!(matches!(refused, RecordFileError::Record { .. }));
    assert_eq!(counters(&file), [1]);
}

#[test]
fn a_file_full_of_holes_is_written_afresh() {
    let mut file = RecordFile::create().expect("a file");
    let slots: Vec<SlotId> = (0..400)
        .map(|counter| file.insert(&record(counter, 4000)).expect("added"))
        .collect();
    let full = file.bytes();
    assert_eq!(full, 400 * 4096);
    for (counter, slot) in slots.iter().enumerate() {
        if counter % 20 != 0 {
            file.remove(*slot).expect("removed");
        }
    }
    assert!(
        file.bytes() <= 2 * 20 * 4096 + SLACK_BYTES,
        "{} bytes",
        file.bytes()
    );
    let kept: Vec<u64> = (0..400).step_by(20).collect();
    assert_eq!(counters(&file), kept);
    // The ids still name the same records.
    file.update(slots[20], &record(1020, 4000))
        .expect("changed");
    file.remove(slots[40]).expect("removed");
    let mut expected = kept;
    expected[1] = 1020;
    expected.remove(2);
    assert_eq!(counters(&file), expected);
}
