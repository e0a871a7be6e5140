//! Durable bytes: those that are written stay readable for ever, and others are refused.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use larder_oplog::{RecordError, decode_ops, decode_parts, encode_ops, encode_parts};
use larder_store::snapshot::Part;
use larder_store::{
    MountedSegment, Object, Op, QuotaPolicy, Releasing, RemovalCause, SlabPhase, Task, TaskWish,
    TenantPolicy,
};
use larder_types::{
    AgentId, AgentName, AgentUid, Attributes, DataType, Digest, Epoch, Extent, GroupId,
    Incarnation, Key, Labels, Pin, QuotaName, Reason, Registration, SegmentGeneration, SegmentId,
    SlabRef, TaskId, TenantId, Version,
};
use proptest::prelude::*;

/// `name = hex`, one op or part a line. A line once here is never changed.
const GOLDEN: &str = include_str!("records.txt");

fn tenant() -> TenantId {
    TenantId::new("team-a").expect("a name")
}

fn key() -> Key {
    Key::new(b"kv/\x00\xff").expect("short")
}

fn version(counter: u64) -> Version {
    Version {
        epoch: Epoch {
            generation: 300,
            term: 7,
        },
        counter,
    }
}

fn slab() -> SlabRef {
    SlabRef {
        agent: AgentId(1),
        segment: SegmentId(2),
        index: 3,
        registration: Registration(4),
    }
}

fn extent(offset_bytes: u64) -> Extent {
    Extent {
        slab: slab(),
        offset_bytes,
        length_bytes: 65_537,
    }
}

fn labels() -> Labels {
    let label = |text: &str| text.parse().ok();
    Labels {
        host: label("h1"),
        rack: None,
        zone: label("z1"),
        numa: Some(1),
    }
}

fn segment() -> MountedSegment {
    MountedSegment {
        id: SegmentId(2),
        ordinal: 1,
        generation: SegmentGeneration(9),
        slabs: 32,
        slab_bytes: 1 << 26,
        numa: 1,
    }
}

fn policy() -> TenantPolicy {
    TenantPolicy {
        guaranteed_bytes: 1,
        limit_bytes: Some(2),
        limit_objects: None,
        view_bytes: Some(3),
        limit_pinned_bytes: Some(4),
        cohort: QuotaName::new("shared").ok(),
        ..TenantPolicy::default()
    }
}

fn quota() -> QuotaPolicy {
    QuotaPolicy {
        limit_bytes: Some(5),
        ..QuotaPolicy::default()
    }
}

fn attributes() -> Attributes {
    Attributes {
        pin: Pin::Soft { ttl_ms: 1_000 },
        group: GroupId::new("g").ok(),
        data_type: DataType::try_from(1).expect("a type"),
    }
}

fn replicas() -> Vec<Vec<Extent>> {
    vec![vec![extent(0), extent(4_096)], vec![extent(8_192)]]
}

fn wish() -> TaskWish {
    TaskWish::Move {
        source: AgentId(1),
        target: AgentId(2),
    }
}

fn copy() -> TaskWish {
    let targets = vec![AgentId(3), AgentId(4)];
    TaskWish::Copy { targets }
}

/// One of each op, in the order of their places.
fn ops() -> Vec<Op> {
    [ops_of_pools(), ops_of_objects(), ops_of_people()].concat()
}

fn ops_of_pools() -> Vec<Op> {
    let (agent, segment_id, tenant) = (AgentId(1), SegmentId(2), tenant());
    vec![
        Op::AgentMounted {
            agent,
            name: AgentName::new("node-1").expect("a name"),
            uid: AgentUid(1 << 100),
            incarnation: Incarnation(5),
            segments: vec![segment()],
            labels: labels(),
        },
        Op::AgentForgotten { agent },
        Op::SegmentLost {
            segment: segment_id,
            generation: SegmentGeneration(9),
        },
        Op::SlabGive {
            slab: slab(),
            tenant: tenant.clone(),
        },
        Op::SlabReady { slab: slab() },
        Op::SlabTake { slab: slab() },
        Op::SlabReturned { slab: slab() },
        Op::TenantSet {
            tenant: tenant.clone(),
            policy: policy(),
        },
        Op::TenantDelete {
            tenant: tenant.clone(),
        },
        Op::TenantPurge {
            tenant: tenant.clone(),
            objects_max: 512,
        },
        Op::TenantForgotten {
            tenant: tenant.clone(),
        },
    ]
}

fn ops_of_objects() -> Vec<Op> {
    let remove = |cause| Op::Remove {
        tenant: tenant(),
        key: key(),
        version: version(1),
        cause,
    };
    let (tenant, key, version) = (tenant(), key(), version(1));
    let (agent, segment_id) = (AgentId(1), SegmentId(2));
    vec![
        Op::PutEnd {
            tenant: tenant.clone(),
            key: key.clone(),
            version,
            size_bytes: 131_074,
            digest: Digest(0x0102_0304_0506_0708),
            replicas: replicas(),
            wanted: 3,
            attributes: attributes(),
            replaces: Some(self::version(0)),
        },
        remove(RemovalCause::Removed),
        remove(RemovalCause::Evicted),
        remove(RemovalCause::Expired),
        Op::Released {
            extents: vec![(extent(0), version)],
        },
        Op::SegmentSwept {
            segment: segment_id,
            objects_max: 256,
        },
        Op::ReplicaAdded {
            tenant: tenant.clone(),
            key: key.clone(),
            version,
            extents: vec![extent(0)],
            instead_of: Some(agent),
        },
        Op::ReplicaDropped {
            tenant: tenant.clone(),
            key: key.clone(),
            version,
            agent,
        },
    ]
}

fn ops_of_people() -> Vec<Op> {
    let (tenant, key, version, agent) = (tenant(), key(), version(1), AgentId(1));
    let quota_name = QuotaName::new("shared").expect("a name");
    vec![
        Op::PinSet {
            tenant: tenant.clone(),
            key: key.clone(),
            version,
            pin: Pin::Hard,
        },
        Op::AgentDrain {
            agent,
            draining: true,
        },
        Op::AgentLabels {
            agent,
            labels: labels(),
        },
        Op::TaskCreated {
            task: TaskId(6),
            tenant: tenant.clone(),
            key: key.clone(),
            version,
            wish: wish(),
        },
        Op::TaskCreated {
            task: TaskId(7),
            tenant,
            key,
            version,
            wish: copy(),
        },
        Op::TaskEnded {
            task: TaskId(6),
            outcome: Ok(()),
        },
        Op::TaskEnded {
            task: TaskId(7),
            outcome: Err(Reason::NotFound),
        },
        Op::QuotaSet {
            quota: quota_name.clone(),
            policy: quota(),
        },
        Op::QuotaDelete { quota: quota_name },
        Op::PoolBegun { generation: 300 },
        Op::PoolRebuilding {
            generation: 301,
            knows_agents: true,
        },
        Op::AgentAdopted {
            agent: AgentId(1),
            name: AgentName::new("node-1").expect("valid"),
            uid: AgentUid(7),
            incarnation: Incarnation(8),
            segments: vec![segment()],
            labels: Labels::default(),
        },
        Op::SlabAdopted {
            slab: slab(),
            tenant: TenantId::new("team-a").expect("valid"),
        },
        Op::ExtentFound {
            extent: extent(4096),
            version: self::version(9),
        },
        Op::PoolRebuilt,
        Op::PoolVersion { version: 2 },
    ]
}

/// One of each part, in the order of their places.
fn parts() -> Vec<Part> {
    [parts_above_slabs(), parts_of_slabs()].concat()
}

fn parts_above_slabs() -> Vec<Part> {
    vec![
        Part::Head {
            generation: 300,
            next_registration: 1 << 41,
            next_agent: 2,
            next_segment: 3,
            next_task: 7,
        },
        Part::Quota {
            quota: QuotaName::new("shared").expect("a name"),
            policy: quota(),
        },
        Part::Tenant {
            tenant: tenant(),
            policy: policy(),
            deleting: true,
            lost: vec![SegmentId(1)],
        },
        Part::Agent {
            agent: AgentId(1),
            name: AgentName::new("node-1").expect("a name"),
            uid: AgentUid(1 << 100),
            incarnation: Incarnation(5),
            segments: vec![SegmentId(2)],
            draining: true,
            said: labels(),
            set: Labels::default(),
        },
        Part::Segment {
            segment: segment(),
            agent: AgentId(1),
            is_lost: true,
        },
    ]
}

fn parts_of_slabs() -> Vec<Part> {
    let slab_in = |phase| Part::Slab {
        slab: slab(),
        tenant: tenant(),
        phase,
    };
    let task = |outcome| Part::Task {
        id: TaskId(6),
        task: Task {
            tenant: tenant(),
            key: key(),
            version: version(1),
            wish: wish(),
            outcome,
        },
    };
    vec![
        slab_in(SlabPhase::Giving),
        slab_in(SlabPhase::Ready),
        slab_in(SlabPhase::Taking),
        Part::Releasing {
            slab: slab(),
            offset_bytes: 256,
            releasing: Releasing {
                length_bytes: 300,
                version: version(1),
            },
        },
        task(None),
        task(Some(Ok(()))),
        task(Some(Err(Reason::NotFound))),
        Part::Object {
            tenant: tenant(),
            key: key(),
            object: Object {
                version: version(1),
                size_bytes: 131_074,
                digest: Digest(0x0102_0304_0506_0708),
                replicas: replicas(),
                wanted: 3,
                attributes: attributes(),
            },
        },
        Part::End {
            digest: u64::MAX,
            objects: 1,
        },
        Part::Life {
            rebuilding: true,
            knows_agents: false,
            version: 2,
        },
        Part::Doomed {
            extent: extent(4096),
            version: version(9),
        },
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("into memory");
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = (0..text.len()).step_by(2);
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    digits.map(byte).collect()
}

fn name(debug: &str) -> &str {
    debug.split([' ', '{']).next().unwrap_or_default()
}

#[test]
fn every_record_is_the_bytes_that_it_was() {
    let known: BTreeMap<&str, &str> = GOLDEN
        .lines()
        .filter_map(|line| line.split_once(" = "))
        .collect();
    let mut lines = String::new();
    let (mut written, mut expected) = (Vec::new(), Vec::new());
    for (at, op) in ops().into_iter().enumerate() {
        let line = format!("op {at} {}", op.name());
        let bytes = hex(&encode_ops(std::slice::from_ref(&op)).expect("written"));
        writeln!(lines, "{line} = {bytes}").expect("into memory");
        let golden = known.get(line.as_str()).copied().unwrap_or_default();
        if !golden.is_empty() {
            assert_eq!(decode_ops(&unhex(golden)).expect("readable"), [op]);
        }
        written.push(bytes);
        expected.push(golden.to_owned());
    }
    for (at, part) in parts().into_iter().enumerate() {
        let debug = format!("{part:?}");
        let line = format!("part {at} {}", name(&debug));
        let bytes = hex(&encode_parts(vec![part.clone()]).expect("written"));
        writeln!(lines, "{line} = {bytes}").expect("into memory");
        let golden = known.get(line.as_str()).copied().unwrap_or_default();
        if !golden.is_empty() {
            assert_eq!(decode_parts(&unhex(golden)).expect("readable"), [part]);
        }
        written.push(bytes);
        expected.push(golden.to_owned());
    }
    assert_eq!(written, expected, "all of them:\n{lines}");
}

/// The list above is worth something only if it has each of them.
#[test]
fn no_place_in_a_list_is_left_out() {
    let places = |blocks: Vec<Vec<u8>>| -> Vec<u8> {
        // The format, the count of one, the place.
        let mut places: Vec<u8> = blocks.iter().map(|block| block[2]).collect();
        places.dedup();
        places
    };
    let ops = ops()
        .into_iter()
        .map(|op| encode_ops(&[op]).expect("written"));
    let parts = parts()
        .into_iter()
        .map(|part| encode_parts(vec![part]).expect("written"));
    assert_eq!(places(ops.collect()), (0..31).collect::<Vec<u8>>());
    assert_eq!(places(parts.collect()), (0..12).collect::<Vec<u8>>());
    // One more would be an op or a part that is missing above.
    assert!(matches!(
        decode_ops(&[1, 1, 31]),
        Err(RecordError::Damaged(_))
    ));
    assert!(matches!(
        decode_parts(&[1, 1, 12]),
        Err(RecordError::Damaged(_))
    ));
}

#[test]
fn what_is_cut_longer_or_of_a_later_release_is_refused() {
    let whole = encode_ops(&ops()).expect("written");
    assert_eq!(decode_ops(&whole).expect("readable"), ops());
    for length in 0..whole.len() {
        assert!(decode_ops(&whole[..length]).is_err(), "{length} bytes");
    }
    let longer = [&whole[..], &[0]].concat();
    assert!(matches!(
        decode_ops(&longer),
        Err(RecordError::Damaged(None))
    ));
    let mut later = whole;
    later[0] = 2;
    let later = decode_ops(&later).expect_err("a later format");
    assert!(matches!(later, RecordError::Format { found: 2 }), "{later}");
    assert!(!later.is_retryable());
}

proptest! {
    #[test]
    fn random_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for format in [None, Some(1)] {
            if let (Some(format), Some(first)) = (format, bytes.first_mut()) {
                *first = format;
            }
            if let Ok(ops) = decode_ops(&bytes) {
                let again = encode_ops(&ops).expect("written");
                prop_assert_eq!(decode_ops(&again).expect("again"), ops);
            }
            drop(decode_parts(&bytes));
        }
    }
}
