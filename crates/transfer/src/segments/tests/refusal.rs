//! Every reason to refuse a capability, each with all other checks passing, and their order.

use larder_wire::frame::HEADER_BYTES;
use larder_wire::{Frame, Kind, decode_body, encode_frame};

use super::*;

type Change = fn(&mut Capability);

fn refused_write(change: Change) -> DataReason {
    let mut rig = Rig::new();
    let mut capability = Rig::capability(extent(0, 1000), 1, Reach::Write);
    change(&mut capability);
    let refused = reason(rig.begin_with(&capability));
    assert_eq!(rig.segments.stats().writes, 0);
    assert_eq!(rig.segments.stats().records, 0);
    refused
}

fn refused_read(change: Change) -> DataReason {
    let mut rig = Rig::new();
    rig.write(extent(0, 1000), 1).expect("written");
    let mut capability = Rig::capability(extent(0, 1000), 1, Reach::Read);
    change(&mut capability);
    let signed = rig.sign(&capability);
    let (name, length) = (tenant("a"), capability.extent.length_bytes);
    let read = reason(rig.segments.begin_read(&name, &signed, 0, length, NOW));
    let view = reason(rig.segments.open_view(&name, &signed, NOW));
    assert_eq!(read, view);
    let stats = rig.segments.stats();
    assert_eq!((stats.reads, stats.views, stats.view_bytes), (0, 0, 0));
    read
}

#[test]
fn what_is_right_passes() {
    let mut rig = Rig::new();
    rig.write(extent(0, 1000), 1).expect("written");
    let ticket = rig.read(extent(0, 1000), 1).expect("readable");
    assert!(rig.segments.end_read(ticket));
}

#[test]
fn a_capability_of_another_key_is_forged() {
    let mut rig = Rig::new();
    let other = AgentKey::new([1; 32], 1);
    let capability = Rig::capability(extent(0, 1000), 1, Reach::Write);
    let signed = SignedCapability::sign(&capability, &other).expect("it encodes");
    let refused = rig.segments.begin_write(&tenant("a"), &signed, NOW);
    assert_eq!(reason(refused), DataReason::Forged);
    let unknown = AgentKey::new(*rig.key.bytes(), 2);
    let signed = SignedCapability::sign(&capability, &unknown).expect("it encodes");
    let refused = rig.segments.begin_write(&tenant("a"), &signed, NOW);
    assert_eq!(reason(refused), DataReason::Forged);
}

#[test]
fn before_the_mount_everything_is_forged() {
    let rig = Rig::new();
    let mut early = Segments::new(LIFE, Epoch::default());
    let signed = rig.sign(&Rig::capability(extent(0, 1000), 1, Reach::Write));
    assert_eq!(
        reason(early.begin_write(&tenant("a"), &signed, NOW)),
        DataReason::Forged
    );
}

#[test]
fn a_capability_altered_anywhere_is_forged() {
    let mut rig = Rig::new();
    let signed = rig.sign(&Rig::capability(extent(0, 1000), 1, Reach::Write));
    let frame = Frame::request(Kind::Write, 1, 0, 0);
    let mut genuine = Vec::new();
    encode_frame(&mut genuine, frame, &signed).expect("it encodes");
    genuine.drain(..HEADER_BYTES);
    let mut tried = 0;
    for bit in 0..genuine.len() * 8 {
        let mut bytes = genuine.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let Ok(altered) = decode_body::<SignedCapability>(Kind::Write, &bytes) else {
            continue;
        };
        if altered == signed {
            continue;
        }
        tried += 1;
        let refused = rig.segments.begin_write(&tenant("a"), &altered, NOW);
        assert_eq!(reason(refused), DataReason::Forged, "bit {bit}");
    }
    assert!(tried > 300, "{tried} alterations decoded");
}

#[test]
fn another_agent_or_life_is_stale() {
    let other_agent: Change = |c| c.extent.slab.agent = AgentId(4);
    let other_life: Change = |c| c.incarnation = Incarnation(78);
    for change in [other_agent, other_life] {
        assert_eq!(refused_write(change), DataReason::StaleIncarnation);
        assert_eq!(refused_read(change), DataReason::StaleIncarnation);
    }
}

#[test]
fn another_tenant_reaches_nothing() {
    assert_eq!(
        refused_write(|c| c.tenant = tenant("b")),
        DataReason::ForeignTenant
    );
    assert_eq!(
        refused_read(|c| c.tenant = tenant("b")),
        DataReason::ForeignTenant
    );

    // A genuine capability on another tenant's connection.
    let mut rig = Rig::new();
    let signed = rig.sign(&Rig::capability(extent(0, 1000), 1, Reach::Write));
    let refused = rig.segments.begin_write(&tenant("b"), &signed, NOW);
    assert_eq!(reason(refused), DataReason::ForeignTenant);

    // A genuine capability of tenant b for a slab of tenant a.
    let mut capability = Rig::capability(extent(0, 1000), 1, Reach::Write);
    capability.tenant = tenant("b");
    let signed = rig.sign(&capability);
    let refused = rig.segments.begin_write(&tenant("b"), &signed, NOW);
    assert_eq!(reason(refused), DataReason::StaleRegistration);
}

#[test]
fn a_capability_opens_in_one_direction_only() {
    assert_eq!(
        refused_write(|c| c.reach = Reach::Read),
        DataReason::WrongAccess
    );
    assert_eq!(
        refused_read(|c| c.reach = Reach::Write),
        DataReason::WrongAccess
    );
}

#[test]
fn a_deadline_is_kept_to_the_millisecond() {
    assert_eq!(
        refused_write(|c| c.deadline = PoolTime(POOL_NOW - 1)),
        DataReason::Expired
    );
    assert_eq!(
        refused_read(|c| c.deadline = PoolTime(POOL_NOW - 1)),
        DataReason::Expired
    );

    let mut rig = Rig::new();
    let signed = rig.sign(&Rig::capability(extent(0, 1000), 1, Reach::Write));
    let late = LocalMs(NOW.0 + 1_001);
    let refused = rig.segments.begin_write(&tenant("a"), &signed, late);
    assert_eq!(reason(refused), DataReason::Expired);
    let just = LocalMs(NOW.0 + 1_000);
    let WriteStart::Go(ticket) = rig
        .segments
        .begin_write(&tenant("a"), &signed, just)
        .expect("ok")
    else {
        panic!("nothing is written yet")
    };
    rig.segments.abort_write(ticket);
}

#[test]
fn without_a_word_about_the_time_nothing_is_in_time() {
    let rig = Rig::new();
    let mut deaf = Segments::new(LIFE, Epoch::default());
    deaf.mounted(
        AgentId(3),
        vec![SegmentId(5)],
        rig.key.clone(),
        verifier(&rig.root),
    );
    let signed = rig.sign(&Rig::capability(extent(0, 1000), 1, Reach::Write));
    assert_eq!(
        reason(deaf.begin_write(&tenant("a"), &signed, NOW)),
        DataReason::Expired
    );
    assert_eq!(deaf.pool_time(NOW), PoolTime(0));
}

#[test]
fn another_slab_or_life_of_it_is_stale() {
    let changes: [Change; 3] = [
        |c| c.extent.slab.registration = Registration(2),
        |c| c.extent.slab.index = 1,
        |c| c.extent.slab.segment = SegmentId(6),
    ];
    for change in changes {
        assert_eq!(refused_write(change), DataReason::StaleRegistration);
        assert_eq!(refused_read(change), DataReason::StaleRegistration);
    }
}

#[test]
fn no_extent_leaves_its_slab() {
    let changes: [Change; 8] = [
        |c| c.extent.length_bytes = 0,
        |c| c.extent.offset_bytes = 1,
        |c| c.extent.offset_bytes = SLAB_BYTES,
        |c| (c.extent.offset_bytes, c.extent.length_bytes) = (SLAB_BYTES - 256, 257),
        |c| c.extent.length_bytes = SLAB_BYTES + 1,
        |c| (c.extent.offset_bytes, c.extent.length_bytes) = (256, 65_536),
        |c| c.extent.length_bytes = u64::MAX,
        |c| (c.extent.offset_bytes, c.extent.length_bytes) = (u64::MAX - 255, 256),
    ];
    for change in changes {
        assert_eq!(refused_write(change), DataReason::OutOfBounds);
        assert_eq!(refused_read(change), DataReason::OutOfBounds);
    }
}

#[test]
fn a_write_describes_its_object() {
    let changes: [Change; 4] = [
        |c| c.key.clear(),
        |c| c.key = vec![1; 4097],
        |c| (c.part, c.parts) = (1, 1),
        |c| c.object_bytes = 999,
    ];
    for change in changes {
        assert_eq!(refused_write(change), DataReason::OutOfBounds);
    }
}

#[test]
fn a_read_asks_for_whole_blocks_within_the_extent() {
    let mut rig = Rig::new();
    let whole = extent(0, 150_000);
    rig.write(whole, 1).expect("written");
    let signed = rig.sign(&Rig::capability(whole, 1, Reach::Read));
    let name = tenant("a");
    for (offset, length) in [
        (0, 0),
        (1, 65_536),
        (0, 65_535),
        (131_072, 18_929),
        (65_536, u64::MAX),
        (0, 150_001),
    ] {
        let refused = rig.segments.begin_read(&name, &signed, offset, length, NOW);
        assert_eq!(
            reason(refused),
            DataReason::OutOfBounds,
            "{offset}+{length}"
        );
    }
    let crcs = checksum::block_crcs(&payload(150_000, 1));
    for (offset, length, blocks) in [
        (0, 150_000, 0..3),
        (65_536, 65_536, 1..2),
        (131_072, 18_928, 2..3),
        (0, 65_536, 0..1),
    ] {
        let ticket = rig
            .segments
            .begin_read(&name, &signed, offset, length, NOW)
            .expect("whole");
        assert_eq!(ticket.block_crcs, crcs[blocks]);
        assert_eq!(checksum::block_crcs(&bytes_of(&ticket)), ticket.block_crcs);
        assert!(rig.segments.end_read(ticket));
    }
}

#[test]
fn an_old_epoch_may_read_but_not_write() {
    let mut rig = Rig::new();
    rig.write(extent(0, 1000), 1).expect("written");
    rig.segments
        .see_epoch(epoch(1, 2), PoolTime(POOL_NOW), NOW)
        .expect("newer");
    let old = Rig::capability(extent(4096, 1000), 2, Reach::Write);
    assert_eq!(reason(rig.begin_with(&old)), DataReason::StaleEpoch);
    let ticket = rig
        .read(extent(0, 1000), 1)
        .expect("reads finish across a fail-over");
    assert!(rig.segments.end_read(ticket));
    let unheard: Change = |c| c.epoch = epoch(2, 1);
    assert_eq!(refused_write(unheard), DataReason::StaleEpoch);
}

#[test]
fn only_the_version_that_stands_there_is_read() {
    assert_eq!(
        refused_read(|c| c.version = version(2)),
        DataReason::StaleVersion
    );
    assert_eq!(
        refused_read(|c| c.version = version(0)),
        DataReason::StaleVersion
    );
    assert_eq!(
        refused_read(|c| c.extent.length_bytes = 999),
        DataReason::StaleVersion
    );
    assert_eq!(
        refused_read(|c| c.extent.offset_bytes = 256),
        DataReason::StaleVersion
    );
    assert_eq!(
        refused_read(|c| c.extent.length_bytes = 2000),
        DataReason::StaleVersion
    );

    let mut rig = Rig::new();
    let ticket = rig.begin(extent(0, 1000), 1).expect("begun");
    assert_eq!(
        reason(rig.read(extent(0, 1000), 1)),
        DataReason::StaleVersion,
        "not yet written"
    );
    rig.segments.abort_write(ticket);
    assert_eq!(
        reason(rig.view(extent(0, 1000), 1)),
        DataReason::StaleVersion
    );
}

#[test]
fn a_write_needs_a_higher_version_than_any_that_stands_there() {
    let mut rig = Rig::new();
    rig.write(extent(512, 512), 5).expect("written");
    for (offset, length, counter) in [(512, 512, 4), (512, 511, 5), (0, 1024, 5), (768, 256, 5)] {
        let refused = rig.begin(extent(offset, length), counter);
        assert_eq!(
            reason(refused),
            DataReason::StaleVersion,
            "{offset}+{length} v{counter}"
        );
    }
    rig.write(extent(0, 512), 4).expect("the neighbour is free");
    rig.write(extent(1024, 256), 3).expect("the other one too");
    rig.assert_noted();
}

#[test]
fn checks_come_in_their_order() {
    // Everything is wrong; each step mends the reason that the one before gave.
    let mut rig = Rig::new();
    rig.write(extent(0, 1000), 9).expect("written");
    let mut capability = Rig::capability(extent(1, 0), 1, Reach::Read);
    capability.extent.slab = slab(7, 7);
    capability.extent.slab.agent = AgentId(8);
    capability.tenant = tenant("b");
    capability.deadline = PoolTime(0);
    capability.epoch = epoch(0, 0);
    let steps: [(DataReason, Change); 8] = [
        (DataReason::StaleIncarnation, |c| {
            c.extent.slab.agent = AgentId(3)
        }),
        (DataReason::ForeignTenant, |c| c.tenant = tenant("a")),
        (DataReason::WrongAccess, |c| c.reach = Reach::Write),
        (DataReason::Expired, |c| c.deadline = PoolTime(u64::MAX)),
        (DataReason::StaleRegistration, |c| {
            c.extent.slab = slab(0, 1)
        }),
        (DataReason::OutOfBounds, |c| {
            (c.extent, c.key, c.object_bytes) = (extent(0, 1000), b"k".to_vec(), 1000);
        }),
        (DataReason::StaleEpoch, |c| c.epoch = epoch(1, 1)),
        (DataReason::StaleVersion, |c| c.version = version(10)),
    ];
    let forged = SignedCapability::sign(&capability, &AgentKey::new([0; 32], 1)).expect("encodes");
    let refused = rig.segments.begin_write(&tenant("a"), &forged, NOW);
    assert_eq!(reason(refused), DataReason::Forged);
    for (expected, mend) in steps {
        assert_eq!(reason(rig.begin_with(&capability)), expected);
        mend(&mut capability);
    }
    assert!(matches!(rig.begin_with(&capability), Ok(WriteStart::Go(_))));
}

#[test]
fn views_are_capped_by_bytes_for_each_tenant() {
    let mut rig = Rig::new();
    let (first, second) = (extent(0, 150_000), extent(163_840, 60_000));
    rig.write(first, 1).expect("written");
    rig.write(second, 2).expect("written");
    let held = rig.view(first, 1).expect("150,000 of 200,000");
    assert_eq!(reason(rig.view(second, 2)), DataReason::ViewLimit);
    let ticket = rig.read(second, 2).expect("a copy is always possible");
    assert!(rig.segments.end_read(ticket));
    rig.segments.close_view(held);
    let held = rig.view(second, 2).expect("60,000 of 200,000");
    let more = rig
        .view(second, 2)
        .expect("120,000: a second view counts again");
    assert_eq!(rig.segments.stats().view_bytes, 120_000);
    rig.segments.close_view(held);
    rig.segments.close_view(more);
    assert_eq!(rig.segments.stats().view_bytes, 0);
    rig.segments
        .give_slab(slab(0, 1), tenant("a"), memory(), None);
    let held = rig.view(first, 1).expect("no limit any more");
    let more = rig.view(second, 2).expect("no limit any more");
    rig.segments.close_view(held);
    rig.segments.close_view(more);
}
