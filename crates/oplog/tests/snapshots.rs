//! Snapshot files: whole or not there, whatever happens; and a state through one.

use larder_oplog::{
    BLOCK_BYTES_MAX, Disk, FakeDisk, Operation, Position, SnapshotError, SnapshotReader,
    SnapshotWriter, StdDisk, decode_parts, encode_parts, remove_snapshot, snapshots,
};
use larder_store::snapshot::{Builder, Walk};
use larder_store::{MountedSegment, Op, State, TenantPolicy, apply, check};
use larder_types::{
    AgentId, AgentName, AgentUid, Attributes, Digest, Epoch, Extent, Incarnation, Key, Labels,
    Registration, SegmentGeneration, SegmentId, SlabRef, TenantId, Version,
};

const AT: Position = Position { term: 3, index: 70 };

fn blocks() -> Vec<Vec<u8>> {
    vec![b"one".to_vec(), Vec::new(), vec![7; 5_000]]
}

fn write(disk: &mut impl Disk, at: Position) -> Result<(), SnapshotError> {
    let mut writer = SnapshotWriter::begin(disk, at, b"members")?;
    for block in blocks() {
        writer.write(disk, &block)?;
    }
    writer.finish(disk)
}

fn read(disk: &mut impl Disk, at: Position) -> Result<Vec<Vec<u8>>, SnapshotError> {
    let (mut reader, about) = SnapshotReader::open(disk, at)?;
    assert_eq!(about, b"members");
    let mut found = Vec::new();
    while let Some(block) = reader.next(disk)? {
        found.push(block);
    }
    assert!(reader.next(disk)?.is_none(), "its end stays its end");
    Ok(found)
}

fn suite(disk: &mut impl Disk) {
    assert_eq!(snapshots(disk).expect("a list"), []);
    let later = Position {
        term: 4,
        index: 100,
    };
    for at in [later, AT] {
        write(disk, at).expect("room");
    }
    assert_eq!(snapshots(disk).expect("a list"), [AT, later]);
    assert_eq!(read(disk, AT).expect("whole"), blocks());
    remove_snapshot(disk, AT).expect("removed");
    remove_snapshot(disk, AT).expect("again");
    assert_eq!(snapshots(disk).expect("a list"), [later]);
    assert!(matches!(read(disk, AT), Err(SnapshotError::Disk(_))));
    let mut writer = SnapshotWriter::begin(disk, AT, b"").expect("room");
    let large = writer.write(disk, &vec![0; BLOCK_BYTES_MAX + 1]);
    assert!(matches!(large, Err(SnapshotError::TooLarge { .. })));
    // The one that was not ended is in nobody's way.
    write(disk, AT).expect("room");
    assert_eq!(read(disk, AT).expect("whole"), blocks());
}

#[test]
fn both_disks_hold_them() {
    suite(&mut FakeDisk::new());
    let folder = tempfile::tempdir().expect("a folder");
    suite(&mut StdDisk::open(folder.path().join("snapshots")).expect("a disk"));
}

#[test]
fn a_crash_at_any_step_leaves_it_whole_or_not_there() {
    let mut ended = 0;
    for steps in 0..12 {
        for seed in 0..40 {
            let mut disk = FakeDisk::new();
            disk.stop_after(steps);
            let is_done = write(&mut disk, AT).is_ok();
            disk.crash(seed);
            disk.revive();
            let found = snapshots(&mut disk).expect("a list");
            assert!(!is_done || found == [AT], "it was durable");
            for at in found {
                ended += 1;
                assert_eq!(read(&mut disk, at).expect("whole"), blocks());
            }
            write(&mut disk, AT).expect("room");
            assert_eq!(read(&mut disk, AT).expect("whole"), blocks());
        }
    }
    assert!(ended > 0);
}

#[test]
fn a_full_disk_can_be_tried_again() {
    let mut disk = FakeDisk::new();
    disk.set_capacity_bytes(Some(1_000));
    let full = write(&mut disk, AT).expect_err("no room");
    assert!(full.is_retryable(), "{full}");
    disk.set_capacity_bytes(None);
    write(&mut disk, AT).expect("room");
    disk.fail(Operation::Sync, 0);
    let failed = write(&mut disk, AT).expect_err("a failed sync");
    assert!(!failed.is_retryable(), "{failed}");
}

#[test]
fn every_changed_byte_and_every_cut_is_found() {
    let mut disk = FakeDisk::new();
    write(&mut disk, AT).expect("room");
    let name = disk.names().next().expect("a file").to_owned();
    let whole = disk.bytes(&name).expect("bytes").to_vec();
    for at in 0..whole.len() {
        // What is filled by zeroes of the header and nothing reads stands under its checksum too.
        let mut changed = whole.clone();
        changed[at] ^= 1 << (at % 8);
        disk.put(&name, Some(&changed));
        let found = read(&mut disk, AT).expect_err("changed");
        assert!(
            matches!(found, SnapshotError::Damaged { .. }),
            "{at}: {found}"
        );
    }
    for length in 0..whole.len() {
        disk.put(&name, Some(&whole[..length]));
        let found = read(&mut disk, AT).expect_err("cut");
        assert!(
            matches!(found, SnapshotError::Damaged { .. }),
            "{length}: {found}"
        );
    }
    disk.put(&name, Some(&[&whole[..], b"x"].concat()));
    assert!(read(&mut disk, AT).is_err(), "longer");
}

/// The only slab of the pool.
fn slab() -> SlabRef {
    SlabRef {
        agent: AgentId(1),
        segment: SegmentId(1),
        index: 0,
        registration: Registration((5 << 40) | 1),
    }
}

/// A tenant and an agent that has made a slab for it.
fn setup(tenant: &TenantId) -> Vec<Op> {
    let segment = MountedSegment {
        id: SegmentId(1),
        ordinal: 0,
        generation: SegmentGeneration(1),
        slabs: 2,
        slab_bytes: 1 << 26,
        numa: 0,
    };
    let slab = slab();
    vec![
        Op::TenantSet {
            tenant: tenant.clone(),
            policy: TenantPolicy::default(),
        },
        Op::AgentMounted {
            agent: AgentId(1),
            name: AgentName::new("node-1").expect("a name"),
            uid: AgentUid(1),
            incarnation: Incarnation(1),
            segments: vec![segment],
            labels: Labels::default(),
        },
        Op::SlabGive {
            slab,
            tenant: tenant.clone(),
        },
        Op::SlabReady { slab },
    ]
}

/// A pool with one agent and objects of 4 KiB, some of which are being released.
fn state(objects: u64) -> State {
    let (mut state, slab) = (State::new(5), slab());
    let tenant = TenantId::new("team-a").expect("a name");
    let mut ops = setup(&tenant);
    for number in 0..objects {
        let (tenant, key) = (
            tenant.clone(),
            Key::new(format!("k{number}")).expect("short"),
        );
        let version = Version {
            epoch: Epoch {
                generation: 5,
                term: 1,
            },
            counter: number + 1,
        };
        let extent = Extent {
            slab,
            offset_bytes: number * 4_096,
            length_bytes: 4_096,
        };
        ops.push(Op::PutEnd {
            tenant: tenant.clone(),
            key: key.clone(),
            version,
            size_bytes: 4_096,
            digest: Digest(number),
            replicas: vec![vec![extent]],
            wanted: 1,
            attributes: Attributes::default(),
            replaces: None,
        });
        if number % 7 == 0 {
            let cause = larder_store::RemovalCause::Removed;
            ops.push(Op::Remove {
                tenant,
                key,
                version,
                cause,
            });
        }
    }
    for op in &ops {
        assert_eq!(apply(&mut state, op).corruption, None, "{op:?}");
    }
    state
}

#[test]
fn a_state_comes_back_from_a_file_with_its_digest() {
    let state = state(5_000);
    let mut disk = FakeDisk::new();
    let mut writer = SnapshotWriter::begin(&mut disk, AT, b"").expect("room");
    let mut walk = Walk::default();
    let mut blocks = 0;
    loop {
        let parts = walk.next(&state, 1_000);
        if parts.is_empty() {
            break;
        }
        let block = encode_parts(parts).expect("written");
        writer.write(&mut disk, &block).expect("room");
        blocks += 1;
    }
    writer.finish(&mut disk).expect("room");
    assert!(blocks > 3, "{blocks} blocks");

    let (mut reader, _) = SnapshotReader::open(&mut disk, AT).expect("there");
    let mut builder = Builder::default();
    while let Some(block) = reader.next(&mut disk).expect("whole") {
        for part in decode_parts(&block).expect("readable") {
            builder.take(part).expect("fits");
        }
    }
    let restored = builder.finish().expect("all of it");
    assert_eq!(restored.digest(), state.digest());
    assert!(restored == state);
    assert_eq!(check(&restored), []);
}
