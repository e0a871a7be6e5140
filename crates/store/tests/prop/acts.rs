//! What may happen in a random sequence.

use larder_types::Pin;
use proptest::prelude::*;

use super::{AGENTS, TENANTS};
use crate::world::SLAB;

#[derive(Clone, Debug)]
pub(super) enum Act {
    Start {
        session: u64,
        tenant: usize,
        key: u8,
        size_bytes: u64,
        replicas: u8,
        near: Option<u8>,
        upsert: bool,
        /// A pin, a group, and whether fewer replicas will do.
        said: (Pin, bool, bool),
    },
    Write(prop::sample::Index),
    End(prop::sample::Index),
    Revoke(prop::sample::Index),
    Remove {
        tenant: usize,
        key: u8,
        if_unleased: bool,
    },
    RemovePrefix {
        tenant: usize,
        limit: usize,
        if_unleased: bool,
    },
    Pin {
        tenant: usize,
        key: u8,
        pin: Pin,
    },
    Read {
        tenant: usize,
        key: u8,
    },
    /// Readers on an agent hold what is to be erased, or let go of it.
    Hold {
        agent: usize,
        holds: bool,
    },
    List {
        tenant: usize,
    },
    CloseSession(u64),
    SetTenant {
        tenant: usize,
        limit_bytes: Option<u64>,
        guaranteed_bytes: u64,
        borrows: bool,
        shares: bool,
    },
    /// Sets what tenants share, or releases it.
    SetQuota {
        limit_bytes: Option<u64>,
        guaranteed_bytes: u64,
    },
    DeleteQuota,
    DeleteTenant(usize),
    Commit,
    Acknowledge,
    /// Everything moves a little.
    Run(usize),
    Step(usize),
    Mount(usize),
    Disconnect {
        agent: usize,
        kills: bool,
    },
    Restart(usize),
    Unmount(usize),
    Pass(u64),
    FailOver(usize),
    Drain {
        agent: usize,
        on: bool,
    },
    /// Somebody says where an agent is, or takes that back.
    Label {
        agent: usize,
        host: Option<u8>,
        zone: Option<u8>,
    },
    Task {
        tenant: usize,
        key: u8,
        /// From one agent to another; a copy if there is no source.
        source: Option<u8>,
        target: u8,
    },
    CancelTask(usize),
}

pub(super) fn acts() -> impl Strategy<Value = Vec<Act>> {
    let of = 0..TENANTS.len();
    let any_put = any::<prop::sample::Index>;
    let size = prop_oneof![
        1..5_000u64,
        60_000..70_000u64,
        200_000..900_000u64,
        Just(SLAB),
        SLAB..3 * SLAB,
        Just(4 * SLAB + 1),
    ];
    let near = prop::option::of(1..6u8);
    let replicas = prop_oneof![3 => Just(1u8), 2 => Just(2u8), 1 => Just(3u8)];
    let pin = || {
        prop_oneof![
            4 => Just(Pin::None),
            1 => Just(Pin::Hard),
            1 => (1..60_000u64).prop_map(|ttl_ms| Pin::Soft { ttl_ms }),
        ]
    };
    let said = (pin(), any::<bool>(), any::<bool>());
    let who = (1..6u64, of.clone(), 0..12u8);
    let start = (who, size, replicas, near, any::<bool>(), said).prop_map(
        |((session, tenant, key), size_bytes, replicas, near, upsert, said)| Act::Start {
            session,
            tenant,
            key,
            size_bytes,
            replicas,
            near,
            upsert,
            said,
        },
    );
    let name = || (of.clone(), 0..12u8);
    let on_objects = prop_oneof![
        24 => start,
        24 => any_put().prop_map(Act::Write),
        24 => any_put().prop_map(Act::End),
        3 => any_put().prop_map(Act::Revoke),
        8 => (name(), any::<bool>()).prop_map(|((tenant, key), if_unleased)| Act::Remove {
            tenant,
            key,
            if_unleased,
        }),
        1 => (of.clone(), 1..9usize, any::<bool>()).prop_map(|(tenant, limit, if_unleased)| {
            Act::RemovePrefix { tenant, limit, if_unleased }
        }),
        4 => (name(), pin()).prop_map(|((tenant, key), pin)| Act::Pin { tenant, key, pin }),
        4 => (of.clone(), 0..12u8).prop_map(|(tenant, key)| Act::Read { tenant, key }),
        1 => of.clone().prop_map(|tenant| Act::List { tenant }),
        4 => (of, 0..12u8, prop::option::of(1..6u8), 1..6u8).prop_map(
            |(tenant, key, source, target)| Act::Task { tenant, key, source, target }
        ),
        1 => (1..6u64).prop_map(Act::CloseSession),
    ];
    let act = prop_oneof![90 => on_objects, 84 => on_pool()];
    prop::collection::vec(act, 1..400)
}

/// What happens around the objects: tenants, time, the log, agents, the leader.
fn on_pool() -> impl Strategy<Value = Act> {
    let of = 0..TENANTS.len();
    let agent = || 0..AGENTS;
    let limit = || prop::option::of(prop_oneof![Just(300_000u64), Just(3 * SLAB)]);
    let guaranteed = || prop_oneof![3 => Just(0u64), 1 => Just(1u64), 1 => Just(5 * SLAB)];
    let (borrows, shares) = (prop::bool::weighted(0.9), prop::bool::weighted(0.3));
    let pass = prop_oneof![
        8 => Just(100u64),
        4 => Just(1_500),
        2 => Just(4_000),
        1 => Just(12_000),
        1 => Just(31_000),
    ];
    prop_oneof![
        2 => (of.clone(), limit(), guaranteed(), borrows, shares).prop_map(
            |(tenant, limit_bytes, guaranteed_bytes, borrows, shares)| {
                Act::SetTenant { tenant, limit_bytes, guaranteed_bytes, borrows, shares }
            }
        ),
        1 => (limit(), guaranteed()).prop_map(|(limit_bytes, guaranteed_bytes)| {
            Act::SetQuota { limit_bytes, guaranteed_bytes }
        }),
        1 => Just(Act::DeleteQuota),
        1 => of.prop_map(Act::DeleteTenant),
        20 => Just(Act::Commit),
        10 => Just(Act::Acknowledge),
        20 => agent().prop_map(Act::Step),
        20 => (1..6usize).prop_map(Act::Run),
        4 => agent().prop_map(Act::Mount),
        1 => (agent(), any::<bool>()).prop_map(|(agent, kills)| Act::Disconnect { agent, kills }),
        1 => (agent(), any::<bool>()).prop_map(|(agent, holds)| Act::Hold { agent, holds }),
        1 => agent().prop_map(Act::Restart),
        1 => agent().prop_map(Act::Unmount),
        4 => pass.prop_map(Act::Pass),
        1 => (0..4usize).prop_map(Act::FailOver),
        2 => (agent(), any::<bool>()).prop_map(|(agent, on)| Act::Drain { agent, on }),
        1 => (agent(), prop::option::of(1..4u8), prop::option::of(1..4u8)).prop_map(
            |(agent, host, zone)| Act::Label { agent, host, zone }
        ),
        1 => (0..4usize).prop_map(Act::CancelTask),
    ]
}
