//! What a put beyond its quota is told, and what may be evicted for it.

use larder_types::{
    AgentId, AgentName, AgentUid, Epoch, Incarnation, OnExceed, PoolTime, QuotaName, Reason,
    SegmentGeneration, SegmentId, TenantId,
};

use super::Charge;
use crate::leader::Leader;
use crate::op::{MountedSegment, Op};
use crate::request::{QuotaPolicy, TenantPolicy};
use crate::settings::Settings;
use crate::state::State;

const MIB: u64 = 1024 * 1024;

fn red() -> TenantId {
    TenantId::new("red").expect("an id")
}

fn team() -> QuotaName {
    QuotaName::new("team").expect("a name")
}

/// A pool of 16 MiB with one tenant.
fn pool(policy: TenantPolicy) -> (State, Leader) {
    let mut state = State::new(1);
    let segment = MountedSegment {
        id: SegmentId(1),
        ordinal: 0,
        generation: SegmentGeneration(1),
        slabs: 8,
        slab_bytes: 2 * MIB,
        numa: 0,
    };
    let mounted = Op::AgentMounted {
        agent: AgentId(1),
        name: AgentName::new("node").expect("a name"),
        uid: AgentUid(1),
        incarnation: Incarnation(1),
        segments: vec![segment],
        labels: larder_types::Labels::default(),
    };
    let tenant = red();
    for op in [mounted, Op::TenantSet { tenant, policy }] {
        assert_eq!(crate::apply(&mut state, &op).corruption, None);
    }
    let epoch = Epoch {
        generation: 1,
        term: 1,
    };
    let leader = Leader::new(&state, epoch, Settings::default(), PoolTime(0));
    (state, leader)
}

fn asks(bytes: u64) -> Charge {
    Charge { bytes, objects: 1 }
}

#[test]
fn limits_hold_to_the_byte_and_without_overflow() {
    let (state, mut leader) = pool(TenantPolicy {
        limit_bytes: Some(MIB),
        limit_objects: Some(1),
        ..TenantPolicy::default()
    });
    let mut judge = |asked| leader.admit_put(&state, &red(), asked);
    assert_eq!(judge(asks(MIB)), Ok(()));
    let exceeded = judge(asks(MIB + 1)).expect_err("one too many");
    assert_eq!(exceeded.refusal.reason, Reason::QuotaBytes);
    let detail = "limit 1048576, used 0, reserved 0, asked 1048577";
    assert_eq!(exceeded.refusal.detail, detail);
    assert_eq!(exceeded.evict, None, "it has nothing that could go");
    assert!(judge(asks(u64::MAX)).is_err());
    let two = Charge {
        bytes: 1,
        objects: 2,
    };
    let exceeded = judge(two).expect_err("one too many");
    assert_eq!(exceeded.refusal.reason, Reason::QuotaObjects);
    assert_eq!(exceeded.evict, None);
}

#[test]
fn nothing_is_evicted_where_any_broken_bound_says_refuse() {
    let (mut state, mut leader) = pool(TenantPolicy {
        cohort: Some(team()),
        limit_bytes: Some(2 * MIB),
        ..TenantPolicy::default()
    });
    let policy = QuotaPolicy {
        limit_bytes: Some(MIB),
        on_exceed: OnExceed::Refuse,
        ..QuotaPolicy::default()
    };
    let quota = team();
    assert_eq!(
        crate::apply(&mut state, &Op::QuotaSet { quota, policy }).corruption,
        None
    );
    let exceeded = leader
        .admit_put(&state, &red(), asks(MIB + 1))
        .expect_err("the quota's");
    assert_eq!(exceeded.evict, None);
    let exceeded = leader
        .admit_put(&state, &red(), asks(4 * MIB))
        .expect_err("both");
    assert_eq!(exceeded.refusal.reason, Reason::QuotaBytes);
    assert_eq!(exceeded.evict, None);
}

/// What is charged may be more than what is taken, so the pool's size bounds nobody here.
#[test]
fn beyond_the_pool_space_itself_decides() {
    let (state, mut leader) = pool(TenantPolicy {
        limit_bytes: Some(1 << 40),
        ..TenantPolicy::default()
    });
    assert_eq!(leader.admit_put(&state, &red(), asks(17 * MIB)), Ok(()));
    let limit = leader.quota_report(&state, &red()).share.limit_bytes;
    assert_eq!(limit, Some(16 * MIB), "shown as what it comes to");
}
