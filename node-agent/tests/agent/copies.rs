//! Copies from one whole agent to another, and within one, as a master orders them.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use larder_node_agent::RunningAgent;
use larder_transfer::transport::{
    ReadOp, SessionSource, TcpOptions, TcpTransport, Transport, WriteOp,
};
use larder_types::{
    CopyId, Digest, Extent, Incarnation, Memo, PoolTime, Principal, SessionId, Version,
};
use larder_wire::agent::{Command, CopyOrder, Event, Mount};
use larder_wire::checksum::{block_crcs, digest};
use larder_wire::master::AgentAddress;
use larder_wire::{Capability, Reach, SessionClaims, SignedCapability};
use tokio::time::Instant;

use super::fake_master::{AGENT, FakeMaster, MasterLink, agent_key, signer};
use super::rig::{EPOCH, Rig, give, join, metric, slab, tenant};

const DEADLINE: Duration = Duration::from_secs(100);
const UNTIL: PoolTime = PoolTime(1_000_000);

fn version(counter: u64) -> Version {
    Version {
        epoch: EPOCH,
        counter,
    }
}

/// An agent with a master of its own, and a slab for tenant `a`.
struct Side {
    _rig: Rig,
    agent: RunningAgent,
    link: MasterLink,
    mount: Mount,
}

impl Side {
    async fn new() -> Self {
        let master = FakeMaster::new(EPOCH).await;
        let rig = Rig::new(master.addr());
        let agent = rig.start();
        let (mut link, mount) = master.mount().await;
        link.command(EPOCH, vec![give(slab(0, 1))]).await;
        assert_eq!(
            link.events(1).await,
            [Event::SlabReady { slab: slab(0, 1) }]
        );
        Self {
            _rig: rig,
            agent,
            link,
            mount,
        }
    }

    fn leave(&self, extent: Extent, version: Version, reach: Reach) -> SignedCapability {
        let capability = Capability {
            tenant: tenant("a"),
            incarnation: self.mount.incarnation,
            extent,
            version,
            reach,
            epoch: EPOCH,
            deadline: UNTIL,
            part: 0,
            parts: 1,
            object_bytes: extent.length_bytes,
            key: b"key".to_vec(),
            memo: Memo::default(),
        };
        SignedCapability::sign(&capability, &agent_key(&self.mount)).expect("signed")
    }

    fn tcp(&self) -> TcpTransport {
        let session = SessionSource::fixed(token(), "test", Incarnation(2));
        let addr = self.agent.data_addr().to_string();
        TcpTransport::new(addr, TcpOptions::default(), session)
    }

    async fn put(&self, extent: Extent, version: Version, payload: &Bytes) {
        let op = WriteOp {
            capability: self.leave(extent, version, Reach::Write),
            payload: payload.clone(),
            block_crcs: Arc::from(block_crcs(payload)),
            deadline: Instant::now() + DEADLINE,
        };
        self.tcp().write(op).await.result.expect("written");
    }

    async fn get(&self, extent: Extent, version: Version) -> Option<BytesMut> {
        let op = ReadOp {
            capability: self.leave(extent, version, Reach::Read),
            offset_bytes: 0,
            length_bytes: extent.length_bytes,
            buffer: BytesMut::new(),
            deadline: Instant::now() + DEADLINE,
        };
        let done = self.tcp().read(op).await;
        done.result.ok().map(|_| done.buffer)
    }

    fn address(&self) -> AgentAddress {
        AgentAddress {
            agent: AGENT,
            name: self.mount.name.clone(),
            incarnation: self.mount.incarnation,
            data_addr: self.agent.data_addr().to_string(),
        }
    }
}

fn token() -> Vec<u8> {
    let claims = SessionClaims {
        principal: Principal::Tenant(tenant("a")),
        session: SessionId(0),
        epoch: EPOCH,
        deadline: UNTIL,
    };
    let token = signer().sign(&claims).expect("signed");
    token.as_bytes().to_vec()
}

fn payload(bytes: usize) -> Bytes {
    let at = (0..bytes).map(|at| (at * 11 % 251) as u8);
    at.collect::<Vec<u8>>().into()
}

fn digest_of(payload: &Bytes) -> Digest {
    digest(&block_crcs(payload), payload.len() as u64)
}

fn extent(offset_bytes: u64, length_bytes: u64) -> Extent {
    Extent {
        slab: slab(0, 1),
        offset_bytes,
        length_bytes,
    }
}

fn order(
    number: u64,
    (from, read): (&Side, Extent),
    (to, write): (&Side, Extent),
    payload: &Bytes,
) -> Command {
    Command::Copy(Box::new(CopyOrder {
        copy: CopyId(version(1_000 + number)),
        tenant: tenant("a"),
        size_bytes: payload.len() as u64,
        digest: digest_of(payload),
        session_token: token(),
        sources: vec![from.address()],
        from: vec![(read, from.leave(read, version(number), Reach::Read))],
        to: vec![(write, to.leave(write, version(number), Reach::Write))],
        remaining_ms: 100_000,
    }))
}

fn copied(number: u64, payload: &Bytes) -> Event {
    Event::Copied {
        copy: CopyId(version(1_000 + number)),
        digest: digest_of(payload),
    }
}

fn failed(event: &Event, number: u64) -> &str {
    match event {
        Event::CopyFailed { copy, detail } if *copy == CopyId(version(1_000 + number)) => detail,
        other => panic!("copy {number} should have failed: {other:?}"),
    }
}

#[tokio::test]
async fn an_object_is_copied_to_another_agent_under_its_version() {
    let (source, mut target) = (Side::new().await, Side::new().await);
    let payload = payload(1_500_000);
    let (read, write) = (extent(4096, 1_500_000), extent(65_536, 1_500_000));
    source.put(read, version(1), &payload).await;
    let command = order(1, (&source, read), (&target, write), &payload);
    target.link.command(EPOCH, vec![command.clone()]).await;
    assert_eq!(target.link.events(1).await, [copied(1, &payload)]);
    let bytes = target.get(write, version(1)).await.expect("it is there");
    assert_eq!(bytes, payload);
    // Told again, it answers again and copies nothing.
    target.link.command(EPOCH, vec![command]).await;
    assert_eq!(target.link.events(1).await, [copied(1, &payload)]);
    let copies = "larder_agent_copies_total";
    let labels = [("result", "done")];
    assert_eq!(metric(&target.agent, copies, &labels).await, 2);
    let running = metric(&target.agent, "larder_agent_copies", &[]).await;
    assert_eq!(running, 0);
    for side in [source, target] {
        drop(side.link);
        side.agent.stop();
        join(side.agent).await.expect("it ends");
    }
}

#[tokio::test]
async fn an_object_is_copied_within_an_agent() {
    let mut side = Side::new().await;
    let payload = payload(300_000);
    let (read, write) = (extent(0, 300_000), extent(1 << 20, 300_000));
    side.put(read, version(1), &payload).await;
    let command = order(1, (&side, read), (&side, write), &payload);
    side.link.command(EPOCH, vec![command]).await;
    assert_eq!(side.link.events(1).await, [copied(1, &payload)]);
    let erase = Command::Erase {
        extent: read,
        version: version(1),
    };
    side.link.command(EPOCH, vec![erase]).await;
    side.link.events(1).await;
    assert!(side.get(read, version(1)).await.is_none());
    assert_eq!(side.get(write, version(1)).await.expect("kept"), payload);
}

#[tokio::test]
async fn a_copy_is_cut_as_its_order_says() {
    const BLOCK: u64 = 65_536;
    let (source, mut target) = (Side::new().await, Side::new().await);
    let payload = payload(300_000);
    let places = |lengths: &[u64], from: u64| {
        let place = |(at, length): (u64, &u64)| extent(from + at * 262_144, *length);
        (0..).zip(lengths).map(place).collect::<Vec<Extent>>()
    };
    let read = places(&[BLOCK, 2 * BLOCK, 300_000 - 3 * BLOCK], 4096);
    let write = places(&[3 * BLOCK, 300_000 - 3 * BLOCK], 65_536);
    let mut start = 0;
    for place in &read {
        let end = start + usize::try_from(place.length_bytes).expect("small");
        source
            .put(*place, version(1), &payload.slice(start..end))
            .await;
        start = end;
    }
    let ordered = |number, to: &[Extent]| {
        let from = read
            .iter()
            .map(|place| (*place, source.leave(*place, version(1), Reach::Read)));
        let to = to
            .iter()
            .map(|place| (*place, target.leave(*place, version(1), Reach::Write)));
        let Command::Copy(order) = order(number, (&source, read[0]), (&target, write[0]), &payload)
        else {
            unreachable!("an order")
        };
        Command::Copy(Box::new(CopyOrder {
            from: from.collect(),
            to: to.collect(),
            ..*order
        }))
    };
    // Cut within a block, the checksums are none of the object's.
    let odd = ordered(2, &places(&[BLOCK + 256, 300_000 - BLOCK - 256], 1 << 20));
    let good = ordered(1, &write);
    target.link.command(EPOCH, vec![odd, good]).await;
    let events = target.link.events(2).await;
    assert!(failed(&events[0], 2).contains("fit"), "{events:?}");
    assert_eq!(events[1], copied(1, &payload));
    let mut bytes = BytesMut::new();
    for place in &write {
        bytes.extend(target.get(*place, version(1)).await.expect("it is there"));
    }
    assert_eq!(bytes, payload);
}

#[tokio::test]
async fn b28_one_bad_order_leaves_the_rest_of_a_batch_alone() {
    let (source, mut target) = (Side::new().await, Side::new().await);
    let payload = payload(1_000);
    let mut commands = Vec::new();
    for number in 1..=20 {
        let place = extent(4096 * number, 1_000);
        // The tenth is gone at its source.
        if number != 10 {
            source.put(place, version(number), &payload).await;
        }
        commands.push(order(number, (&source, place), (&target, place), &payload));
    }
    target.link.command(EPOCH, commands).await;
    let mut events = target.link.events(20).await;
    events.sort_by_key(|event| match event {
        Event::Copied { copy, .. } | Event::CopyFailed { copy, .. } => *copy,
        other => panic!("no answer to an order: {other:?}"),
    });
    for (event, number) in events.iter().zip(1..) {
        if number == 10 {
            let detail = failed(event, number);
            assert!(detail.contains("not read from small-0"), "{detail}");
        } else {
            assert_eq!(*event, copied(number, &payload));
        }
    }
}

#[tokio::test]
async fn bytes_with_another_digest_and_agents_that_are_gone_are_no_copy() {
    let (source, mut target) = (Side::new().await, Side::new().await);
    let (one, other) = (payload(1_000), payload(1_001).slice(1..));
    let place = extent(0, 1_000);
    source.put(place, version(1), &one).await;
    let wrong = order(1, (&source, place), (&target, place), &other);
    target.link.command(EPOCH, vec![wrong]).await;
    let events = target.link.events(1).await;
    assert!(failed(&events[0], 1).contains("digest"), "{events:?}");

    let command = order(1, (&source, place), (&target, extent(8192, 1_000)), &one);
    drop(source.link);
    source.agent.stop();
    join(source.agent).await.expect("it ends");
    target.link.command(EPOCH, vec![command]).await;
    let events = target.link.events(1).await;
    assert!(failed(&events[0], 1).contains("not read"), "{events:?}");
    let erase = Command::Erase {
        extent: extent(8192, 1_000),
        version: version(1),
    };
    target.link.command(EPOCH, vec![erase]).await;
    let released = Event::Released {
        extent: extent(8192, 1_000),
        version: version(1),
    };
    assert_eq!(target.link.events(1).await, [released]);
}
