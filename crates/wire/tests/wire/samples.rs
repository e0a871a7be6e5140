//! One value of every message, the same in every run.

use larder_types::{
    Access, AgentId, AgentName, AgentUid, Attributes, Borrowing, BoundKind, CopyId, DataType,
    Digest, Epoch, Extent, GroupId, Incarnation, Key, Memo, OnExceed, PoolTime, Principal,
    QuotaName, Reason, Registration, SegmentGeneration, SegmentId, SessionId, SlabRef, TaskId,
    TenantId, Version,
};
use larder_wire::agent::{
    Beat, Command, Commands, CopyOrder, Done, Event, Heartbeat, HeldObject, HeldRecord, HeldSlab,
    Inventory, Kept, Mount, Mounted, SegmentOffer, Unmount,
};
use larder_wire::data::{
    BufferRegistered, CloseView, DataError, DataReason, OpenView, Pull, Read, ReadEnd, ReadStart,
    RegisterBuffer, UnregisterBuffer, ViewOpened, Write,
};
use larder_wire::events::{CacheChange, CacheEvent, EventPage, Sequence, Subscribe};
use larder_wire::master::{
    AgentAddress, Exists, Get, List, ListStats, Listed, ListedStats, Located, ObjectGrant,
    ObjectStat, Pin, PutEnd, PutEndItem, PutGrant, PutMode, PutRevoke, PutStart, PutStartItem,
    PutStarted, Remove, RemovePrefix, RemovedSome, ReplicaGrant, Stat, Stats, TaskCreate, TaskItem,
    TaskQuery, TaskStatus, TaskWish, TenantUsage, Usage,
};
use larder_wire::quota::{CohortUsage, QuotaBound, TenantQuota};
use larder_wire::{
    AgentKey, CallError, CallResult, Capability, FrameError, Hello, Kind, Purpose, Reach, Receipt,
    Refused, RefusedReason, Reply, RootKey, SessionClaims, SignedCapability, Welcome, decode_body,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A message: its name, kind and body, and whether a body decodes as it.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) body: Vec<u8>,
    pub(crate) decodes: fn(Kind, &[u8]) -> Result<Vec<u8>, FrameError>,
}

pub(super) fn sample<T: Serialize + DeserializeOwned>(
    name: &'static str,
    kind: Kind,
    value: &T,
) -> Sample {
    let body = postcard::to_stdvec(value).expect("encodes");
    // Decoded and encoded again, since not every message can be compared.
    let decodes = |kind, body: &[u8]| {
        let value: T = decode_body(kind, body)?;
        postcard::to_stdvec(&value).map_err(|_| FrameError::Body { kind })
    };
    Sample {
        name,
        kind,
        body,
        decodes,
    }
}

pub(crate) fn root() -> RootKey {
    RootKey::new([0x5a; 32])
}

pub(crate) fn agent_key() -> AgentKey {
    root().agent_key(&agent_name(), Incarnation(0x1122_3344_5566_7788), 3)
}

pub(crate) fn agent_name() -> AgentName {
    AgentName::new("pool-small-0").expect("a name")
}

pub(crate) fn tenant() -> TenantId {
    TenantId::new("team-a").expect("a name")
}

pub(crate) fn epoch() -> Epoch {
    Epoch {
        generation: 2,
        term: 7,
    }
}

pub(crate) fn version() -> Version {
    Version {
        epoch: epoch(),
        counter: 300,
    }
}

fn slab() -> SlabRef {
    let (agent, segment) = (AgentId(5), SegmentId(9));
    SlabRef {
        agent,
        segment,
        index: 513,
        registration: Registration(1_000_000),
    }
}

pub(crate) fn extent() -> Extent {
    Extent {
        slab: slab(),
        offset_bytes: 0x10_0000,
        length_bytes: 0x1_0001,
    }
}

pub(crate) fn capability() -> Capability {
    Capability {
        tenant: tenant(),
        incarnation: Incarnation(0x1122_3344_5566_7788),
        extent: extent(),
        version: version(),
        reach: Reach::Write,
        epoch: epoch(),
        deadline: PoolTime(90_000),
        part: 0,
        parts: 1,
        object_bytes: 0x1_0001,
        key: b"model/\0\xff".to_vec(),
        memo: memo(),
    }
}

pub(crate) fn memo() -> Memo {
    Memo {
        stripe: 70_000,
        wanted: 2,
        attributes: attributes(),
    }
}

pub(crate) fn signed() -> SignedCapability {
    SignedCapability::sign(&capability(), &agent_key()).expect("signed")
}

pub(crate) fn receipt() -> Receipt {
    let incarnation = Incarnation(0x1122_3344_5566_7788);
    let digest = Digest(0xfeed_face_cafe_beef);
    Receipt::sign(incarnation, extent(), version(), digest, &agent_key())
}

pub(crate) fn claims() -> SessionClaims {
    SessionClaims {
        principal: Principal::Tenant(tenant()),
        session: SessionId(77),
        epoch: epoch(),
        deadline: PoolTime(3_600_000),
    }
}

fn key() -> Key {
    Key::new(*b"model/\0\xff").expect("a key")
}

fn refusal<T>() -> CallResult<T> {
    let detail = "4096 of 4096 bytes".to_owned();
    Err(CallError {
        reason: Reason::QuotaBytes,
        detail,
    })
}

fn reply<T>(answer: T) -> Reply<T> {
    Reply {
        epoch: epoch(),
        pool_time: PoolTime(12_345),
        answer,
    }
}

fn replicas() -> Vec<ReplicaGrant> {
    vec![ReplicaGrant {
        extents: vec![(extent(), signed())],
    }]
}

fn agents() -> Vec<AgentAddress> {
    vec![AgentAddress {
        agent: AgentId(5),
        name: agent_name(),
        incarnation: Incarnation(0x1122_3344_5566_7788),
        data_addr: "127.0.0.1:7070".to_owned(),
    }]
}

pub(crate) fn all() -> Vec<Sample> {
    let mut all = hellos();
    all.extend(puts_of_clients());
    all.extend(gets_of_clients());
    all.extend(tasks_of_clients());
    all.extend(usage_of_clients());
    all.extend(more_calls_of_clients());
    all.extend(calls_of_agents());
    all.extend(calls_of_data());
    all.extend(events());
    all.extend(super::engine_samples::all());
    all
}

fn events() -> Vec<Sample> {
    let stored = CacheChange::Stored {
        size_bytes: 65_537,
        replaces: Some(version()),
    };
    let changes = [
        stored,
        CacheChange::Removed,
        CacheChange::Evicted,
        CacheChange::Expired,
        CacheChange::Lost,
        CacheChange::Purged,
    ];
    let entries = changes.map(|change| CacheEvent {
        key: key(),
        version: version(),
        change,
    });
    let next = Sequence {
        epoch: epoch(),
        counter: 300,
    };
    let page = EventPage::Events {
        entries: entries.to_vec(),
        next,
        more: true,
    };
    let subscribe = Subscribe {
        from: Some(next),
        wait_ms: 10_000,
    };
    vec![
        sample("Subscribe", Kind::Subscribe, &subscribe),
        sample("EventPage", Kind::Subscribe, &reply(page)),
        sample("Gap", Kind::Subscribe, &reply(EventPage::Gap { next })),
    ]
}

fn hellos() -> Vec<Sample> {
    let hello = Hello {
        protocol_min: 1,
        protocol_max: 2,
        features: 0x8000_0000_0000_0001,
        credential: vec![0xde, 0xad],
        purpose: Purpose::Client,
        name: "bench".to_owned(),
        incarnation: Incarnation(42),
    };
    let as_agent = Hello {
        purpose: Purpose::Agent,
        ..hello.clone()
    };
    let welcome = Welcome {
        protocol: 1,
        features: 0,
        session: SessionId(77),
        principal: Principal::Tenant(tenant()),
        incarnation: Incarnation(43),
        epoch: epoch(),
        pool_time: PoolTime(12_345),
        session_token: vec![1, 2, 3],
        session_token_ms: 3_600_000,
        name: "m-0".to_owned(),
    };
    let to_agent = Welcome {
        principal: Principal::Agent(agent_name()),
        ..welcome.clone()
    };
    let refused = Refused::new(RefusedReason::Expired, "too old");
    let by_standby = Refused::not_leader(Some("m-1:7400".to_owned()));
    vec![
        sample("Hello", Kind::Hello, &hello),
        sample("Hello agent", Kind::Hello, &as_agent),
        sample("Welcome", Kind::Hello, &welcome),
        sample("Welcome agent", Kind::Hello, &to_agent),
        sample("Refused", Kind::Goodbye, &refused),
        sample("Refused by a standby", Kind::Goodbye, &by_standby),
        sample("Ping", Kind::Ping, &()),
    ]
}

fn puts_of_clients() -> Vec<Sample> {
    let item = PutStartItem {
        key: key(),
        size_bytes: 65_537,
        replicas: 2,
        preferred: vec![agent_name()],
        mode: PutMode::Upsert { if_unleased: true },
        strict: true,
        attributes: attributes(),
    };
    let plain = PutStartItem {
        preferred: vec![],
        mode: PutMode::Create,
        strict: false,
        attributes: Attributes::default(),
        ..item.clone()
    };
    let put_grant = PutGrant {
        version: version(),
        discard_ms: 30_000,
        replicas: replicas(),
        wanted: 2,
        preference_ignored: true,
    };
    let started = PutStarted {
        agents: agents(),
        grants: vec![Ok(put_grant), refusal()],
    };
    let end = PutEndItem {
        key: key(),
        version: version(),
        receipts: vec![receipt()],
    };
    let done: Vec<CallResult<()>> = vec![Ok(()), refusal()];
    vec![
        sample(
            "PutStart",
            Kind::PutStart,
            &PutStart {
                items: vec![item, plain],
            },
        ),
        sample("PutStarted", Kind::PutStart, &reply(started)),
        sample("PutEnd", Kind::PutEnd, &PutEnd { items: vec![end] }),
        sample("PutEnd answer", Kind::PutEnd, &reply(done)),
        sample(
            "PutRevoke",
            Kind::PutRevoke,
            &PutRevoke {
                items: vec![(key(), version())],
            },
        ),
    ]
}

fn gets_of_clients() -> Vec<Sample> {
    let object = ObjectGrant {
        version: version(),
        size_bytes: 65_537,
        digest: Digest(0xfeed_face_cafe_beef),
        replicas: replicas(),
        lease_ms: 10_000,
    };
    let located = Located {
        agents: agents(),
        objects: vec![Ok(object), refusal()],
    };
    let list = List {
        prefix: b"model/".to_vec(),
        after: Some(key()),
        limit: 100,
    };
    let (exists, remove) = (
        Exists {
            keys: vec![key()],
            lease: true,
        },
        Remove {
            keys: vec![key()],
            if_unleased: true,
        },
    );
    let found: Vec<CallResult<bool>> = vec![Ok(true), Ok(false), refusal()];
    vec![
        sample("Get", Kind::Get, &Get { keys: vec![key()] }),
        sample("Located", Kind::Get, &reply(located)),
        sample("Exists", Kind::Exists, &exists),
        sample("Exists answer", Kind::Exists, &reply(found)),
        sample("Remove", Kind::Remove, &remove),
        sample("List", Kind::List, &list),
        sample(
            "Listed",
            Kind::List,
            &reply(Listed {
                entries: vec![(key(), 9)],
                more: true,
            }),
        ),
    ]
}

fn tasks_of_clients() -> Vec<Sample> {
    vec![
        sample(
            "TaskCreate",
            Kind::TaskCreate,
            &TaskCreate {
                items: vec![
                    TaskItem {
                        key: key(),
                        wish: TaskWish::Copy {
                            targets: vec![agent_name()],
                        },
                    },
                    TaskItem {
                        key: key(),
                        wish: TaskWish::Move {
                            source: agent_name(),
                            target: agent_name(),
                        },
                    },
                ],
            },
        ),
        sample(
            "TaskCreate answer",
            Kind::TaskCreate,
            &reply(vec![Ok(TaskId(300)), refusal()]),
        ),
        sample(
            "TaskQuery",
            Kind::TaskQuery,
            &TaskQuery {
                tasks: vec![TaskId(300)],
            },
        ),
        sample(
            "TaskQuery answer",
            Kind::TaskQuery,
            &reply(vec![
                Ok(TaskStatus::Pending),
                Ok(TaskStatus::Processing),
                Ok(TaskStatus::Success),
                Ok(TaskStatus::Failed(Reason::NotFound)),
                refusal(),
            ]),
        ),
    ]
}

fn usage_of_clients() -> Vec<Sample> {
    let usage = TenantUsage {
        tenant: tenant(),
        used_bytes: 1 << 30,
        pinned_bytes: 1 << 20,
        reserved_bytes: 4096,
        limit_bytes: Some(1 << 31),
        objects: 12,
        limit_objects: None,
        pool_capacity_bytes: 1 << 40,
        agents: 2,
        replica_factor: 1,
        quota: tenant_quota(),
    };
    vec![
        sample("Usage", Kind::Usage, &Usage {}),
        sample("TenantUsage", Kind::Usage, &reply(usage)),
        sample("CallError", Kind::Get, &CallError::new(Reason::NotLeader)),
        sample(
            "Access",
            Kind::Usage,
            &[Access::ReadWrite, Access::ReadOnly, Access::WriteOnly],
        ),
    ]
}

fn attributes() -> Attributes {
    Attributes {
        pin: larder_types::Pin::Soft { ttl_ms: 60_000 },
        group: Some(GroupId::new("prefix-7").expect("a name")),
        data_type: DataType::new(1).expect("known"),
    }
}

fn more_calls_of_clients() -> Vec<Sample> {
    let pin = Pin {
        items: vec![
            (key(), larder_types::Pin::Hard),
            (key(), larder_types::Pin::None),
        ],
    };
    let object = ObjectStat {
        version: version(),
        size_bytes: 65_537,
        digest: Digest(0xfeed_face_cafe_beef),
        agents: vec![AgentId(5)],
        wanted: 2,
        attributes: attributes(),
        pin_left_ms: 59_000,
        leased: true,
    };
    let names = vec![(AgentId(5), agent_name())];
    let stats = Stats {
        agents: names.clone(),
        objects: vec![Ok(object.clone()), refusal()],
    };
    let list = ListStats {
        prefix: b"model/".to_vec(),
        after: None,
        limit: 100,
    };
    let listed = ListedStats {
        agents: names,
        entries: vec![(key(), object)],
        more: false,
    };
    let prefix = RemovePrefix {
        prefix: b"model/".to_vec(),
        after: Some(key()),
        limit: 1000,
        if_unleased: true,
    };
    let some = RemovedSome {
        removed: 999,
        skipped: 1,
        last: Some(key()),
    };
    vec![
        sample("Pin", Kind::Pin, &pin),
        sample("Stat", Kind::Stat, &Stat { keys: vec![key()] }),
        sample("Stats", Kind::Stat, &reply(stats)),
        sample("ListStats", Kind::ListStats, &list),
        sample("ListedStats", Kind::ListStats, &reply(listed)),
        sample("RemovePrefix", Kind::RemovePrefix, &prefix),
        sample("RemovedSome", Kind::RemovePrefix, &reply(some)),
    ]
}

fn commands() -> Vec<Command> {
    let give = Command::SlabGive {
        slab: slab(),
        tenant: tenant(),
        slab_bytes: 64 << 20,
        view_bytes: Some(1 << 20),
    };
    vec![
        give,
        Command::SlabTake { slab: slab() },
        Command::Erase {
            extent: extent(),
            version: version(),
        },
        Command::TenantGone { tenant: tenant() },
        Command::Copy(Box::new(CopyOrder {
            copy: CopyId(version()),
            tenant: tenant(),
            size_bytes: 0x1_0001,
            digest: Digest(0xfeed_face_cafe_beef),
            session_token: vec![1, 2, 3],
            sources: vec![AgentAddress {
                agent: AgentId(5),
                name: agent_name(),
                incarnation: Incarnation(43),
                data_addr: "127.0.0.1:7070".to_owned(),
            }],
            from: vec![(extent(), signed())],
            to: vec![(extent(), signed())],
            remaining_ms: 60_000,
        })),
    ]
}

fn agent_events() -> Vec<Event> {
    vec![
        Event::SlabReady { slab: slab() },
        Event::SlabFailed {
            slab: slab(),
            detail: "no memory".to_owned(),
        },
        Event::SlabReturned { slab: slab() },
        Event::Released {
            extent: extent(),
            version: version(),
        },
        Event::Copied {
            copy: CopyId(version()),
            digest: Digest(0xfeed_face_cafe_beef),
        },
        Event::CopyFailed {
            copy: CopyId(version()),
            detail: "no connection".to_owned(),
        },
    ]
}

fn calls_of_agents() -> Vec<Sample> {
    let offer = SegmentOffer {
        ordinal: 1,
        generation: SegmentGeneration(0xabc),
        slabs: 16,
        slab_bytes: 64 << 20,
        numa: 1,
    };
    let mount = Mount {
        name: agent_name(),
        uid: AgentUid(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
        incarnation: Incarnation(43),
        data_addr: "127.0.0.1:7070".to_owned(),
        segments: vec![offer],
        highest_epoch: epoch(),
        labels: "host=h-1,zone=z.2,numa=1".parse().expect("labels"),
        kept: Some(Kept {
            agent: AgentId(5),
            segments: vec![SegmentId(9)],
        }),
    };
    let fresh = Mount {
        kept: None,
        ..mount.clone()
    };
    let mounted = Mounted {
        agent: AgentId(5),
        segments: vec![SegmentId(9)],
        capability_key: [7; 32],
        key_id: 3,
        session_key: [8; 32],
        heartbeat_ms: 1000,
        outstanding: commands(),
        wants_inventory: true,
    };
    let (agent, incarnation) = (AgentId(5), Incarnation(43));
    let beat = Heartbeat {
        agent,
        incarnation,
        highest_epoch: epoch(),
        load_permille: 250,
    };
    let commands = Commands {
        epoch: epoch(),
        pool_time: PoolTime(12_345),
        commands: commands(),
    };
    vec![
        sample("Mount", Kind::Mount, &mount),
        sample("Mount of a new process", Kind::Mount, &fresh),
        sample("Mounted", Kind::Mount, &reply(Ok::<_, CallError>(mounted))),
        sample("Heartbeat", Kind::Heartbeat, &beat),
        sample("Beat", Kind::Heartbeat, &reply(Beat { known: true })),
        sample("Commands", Kind::Commands, &commands),
        sample(
            "Done",
            Kind::Done,
            &Done {
                agent,
                incarnation,
                events: agent_events(),
            },
        ),
        sample("Unmount", Kind::Unmount, &Unmount { agent, incarnation }),
        sample("Inventory", Kind::Inventory, &inventory()),
        sample("Inventory answer", Kind::Inventory, &reply(())),
    ]
}

pub(crate) fn inventory() -> Inventory {
    let whole = HeldRecord {
        extent: extent(),
        version: version(),
        written: Some(HeldObject {
            key: b"model/\0\xff".to_vec(),
            part: 0,
            parts: 1,
            object_bytes: 0x1_0001,
            digest: Digest(0xfeed_face_cafe_beef),
            memo: memo(),
        }),
    };
    let broken = HeldRecord {
        written: None,
        ..whole.clone()
    };
    Inventory {
        agent: AgentId(5),
        incarnation: Incarnation(43),
        slabs: vec![HeldSlab {
            slab: slab(),
            tenant: tenant(),
        }],
        records: vec![whole, broken],
        is_last: true,
    }
}

fn calls_of_data() -> Vec<Sample> {
    let block_crcs = vec![0xe306_9283, 1];
    let write = Write {
        capability: signed(),
        block_crcs: block_crcs.clone(),
    };
    let read = Read {
        capability: signed(),
        offset_bytes: 65_536,
        length_bytes: 1,
    };
    let start = ReadStart {
        version: version(),
        block_crcs: block_crcs.clone(),
    };
    let pull = Pull {
        capability: signed(),
        buffer: 4,
        offset_bytes: 4096,
        block_crcs: block_crcs.clone(),
    };
    let opened = ViewOpened {
        view: 6,
        version: version(),
        slab: slab(),
        slab_bytes: 64 << 20,
        carries_memory: true,
        offset_bytes: 0x10_0000,
        length_bytes: 0x1_0001,
        block_crcs,
    };
    let detail = "65537 of 65536 bytes".to_owned();
    let error = DataError {
        reason: DataReason::ViewLimit,
        detail,
    };
    vec![
        sample("Write", Kind::Write, &write),
        sample("Receipt", Kind::Write, &receipt()),
        sample("Read", Kind::Read, &read),
        sample("ReadStart", Kind::Read, &start),
        sample("ReadEnd", Kind::ReadEnd, &ReadEnd { unchanged: true }),
        sample(
            "RegisterBuffer",
            Kind::RegisterBuffer,
            &RegisterBuffer { length_bytes: 4096 },
        ),
        sample(
            "BufferRegistered",
            Kind::RegisterBuffer,
            &BufferRegistered { buffer: 4 },
        ),
        sample(
            "UnregisterBuffer",
            Kind::UnregisterBuffer,
            &UnregisterBuffer { buffer: 4 },
        ),
        sample("Pull", Kind::Pull, &pull),
        sample(
            "OpenView",
            Kind::OpenView,
            &OpenView {
                capability: signed(),
            },
        ),
        sample("ViewOpened", Kind::OpenView, &opened),
        sample("CloseView", Kind::CloseView, &CloseView { view: 6 }),
        sample("DataError", Kind::Read, &error),
    ]
}

fn tenant_quota() -> TenantQuota {
    TenantQuota {
        guaranteed_bytes: 1 << 29,
        effective_guaranteed_bytes: 1 << 28,
        effective_limit_bytes: Some(1 << 31),
        effective_pinned_bytes: 1 << 20,
        borrowing: Borrowing::Forbidden,
        on_exceed: OnExceed::Refuse,
        borrowed_bytes: 3,
        lent_bytes: 2,
        cohort: Some(CohortUsage {
            quota: QuotaName::new("team").expect("a name"),
            is_set: true,
            tenants: 2,
            guaranteed_bytes: 1,
            effective_guaranteed_bytes: 1 << 21,
            limit_bytes: None,
            effective_limit_bytes: None,
            limit_objects: Some(9),
            limit_pinned_bytes: None,
            borrowing: Borrowing::Allowed,
            on_exceed: OnExceed::EvictOwn,
            charged_bytes: 70_000,
            charged_objects: 4,
        }),
        bounds: vec![QuotaBound {
            kind: BoundKind::Memory,
            limit: None,
            charged: 5,
            room: Some(0),
            on_exceed: OnExceed::Refuse,
        }],
        pool_requested_bytes: 1 << 41,
        overcommitted: true,
    }
}
