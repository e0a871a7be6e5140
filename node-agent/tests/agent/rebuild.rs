//! A pool that lost its log, and an agent that lives: what it holds is told and still read.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use larder_node_agent::RunningAgent;
use larder_transfer::transport::{
    ReadOp, SessionSource, TcpOptions, TcpTransport, Transport, WriteOp,
};
use larder_types::{
    Attributes, Epoch, Extent, GroupId, Incarnation, Memo, Pin, PoolTime, Principal, Reason,
    SessionId, Version,
};
use larder_wire::agent::{Event, HeldObject, HeldRecord, HeldSlab, Inventory, Kept, Mount};
use larder_wire::checksum::{block_crcs, digest};
use larder_wire::{CallError, Capability, Reach, SessionClaims, SignedCapability};
use tokio::time::Instant;

use super::fake_master::{AGENT, Call, FakeMaster, MasterLink, SEGMENT, agent_key, signer};
use super::rig::{EPOCH, Rig, give, join, slab, tenant};

const DEADLINE: Duration = Duration::from_secs(100);
const NEXT: Epoch = Epoch {
    generation: EPOCH.generation + 1,
    term: 1,
};

fn version(counter: u64) -> Version {
    Version {
        epoch: EPOCH,
        counter,
    }
}

fn extent(number: u64) -> Extent {
    Extent {
        slab: slab(0, 1),
        offset_bytes: number * 131_072,
        length_bytes: 100_000,
    }
}

fn memo(number: u64) -> Memo {
    Memo {
        stripe: u32::try_from(number).expect("small"),
        wanted: 2,
        attributes: Attributes {
            pin: Pin::Hard,
            group: Some(GroupId::new("prefix").expect("a name")),
            ..Attributes::default()
        },
    }
}

/// To reach the extent and the version of this number, which the leader of `epoch` allows.
fn leave(mount: &Mount, number: u64, reach: Reach, epoch: Epoch) -> SignedCapability {
    let capability = Capability {
        tenant: tenant("a"),
        incarnation: mount.incarnation,
        extent: extent(number),
        version: version(number),
        reach,
        epoch,
        deadline: PoolTime(1_000_000),
        part: 0,
        parts: 1,
        object_bytes: 100_000,
        key: format!("key-{number}").into_bytes(),
        memo: memo(number),
    };
    SignedCapability::sign(&capability, &agent_key(mount)).expect("signed")
}

fn payload(number: u64) -> Bytes {
    let seed = usize::try_from(number).expect("small");
    (0..100_000)
        .map(|at| ((at * 7 + seed) % 251) as u8)
        .collect::<Vec<u8>>()
        .into()
}

fn record(number: u64) -> HeldRecord {
    HeldRecord {
        extent: extent(number),
        version: version(number),
        written: Some(HeldObject {
            key: format!("key-{number}").into_bytes(),
            part: 0,
            parts: 1,
            object_bytes: 100_000,
            digest: digest(&block_crcs(&payload(number)), 100_000),
            memo: memo(number),
        }),
    }
}

fn transport(agent: &RunningAgent, epoch: Epoch) -> TcpTransport {
    let claims = SessionClaims {
        principal: Principal::Tenant(tenant("a")),
        session: SessionId(1),
        epoch,
        deadline: PoolTime(1_000_000),
    };
    let token = signer().sign(&claims).expect("signed");
    let session = SessionSource::fixed(token.as_bytes().to_vec(), "test", Incarnation(2));
    let addr = agent.data_addr().to_string();
    TcpTransport::new(addr, TcpOptions::default(), session)
}

async fn put(agent: &RunningAgent, mount: &Mount, number: u64) {
    let payload = payload(number);
    let op = WriteOp {
        capability: leave(mount, number, Reach::Write, EPOCH),
        block_crcs: Arc::from(block_crcs(&payload)),
        payload,
        deadline: Instant::now() + DEADLINE,
    };
    let done = transport(agent, EPOCH).write(op).await;
    done.result.expect("written");
}

async fn get(agent: &RunningAgent, mount: &Mount, number: u64, epoch: Epoch) -> BytesMut {
    let op = ReadOp {
        capability: leave(mount, number, Reach::Read, epoch),
        offset_bytes: 0,
        length_bytes: 100_000,
        buffer: BytesMut::new(),
        deadline: Instant::now() + DEADLINE,
    };
    let done = transport(agent, epoch).read(op).await;
    done.result.expect("read");
    done.buffer
}

async fn page(link: &mut MasterLink) -> (larder_wire::Header, Inventory) {
    match link.next_but_beats().await {
        Some(Call::Inventory(header, page)) => (header, page),
        other => panic!("a page was due, not {other:?}"),
    }
}

#[tokio::test]
async fn an_agent_tells_a_pool_without_a_log_what_it_holds_and_serves_it() {
    let mut master = FakeMaster::new(EPOCH).await;
    let rig = Rig::new(master.addr());
    let agent = rig.start();
    let (mut link, mount) = master.mount().await;
    assert_eq!(mount.kept, None);
    link.command(EPOCH, vec![give(slab(0, 1))]).await;
    let ready = Event::SlabReady { slab: slab(0, 1) };
    assert_eq!(link.events(1).await, [ready]);
    for number in 1..4 {
        put(&agent, &mount, number).await;
    }
    // All masters go, with their disks. Who leads next knows of nothing.
    drop(link);
    master.epoch = NEXT;
    let mut link = master.accept().await;
    let again = link.answer_mount_asking().await;
    let kept = Kept {
        agent: AGENT,
        segments: vec![SEGMENT],
    };
    assert_eq!(again.kept, Some(kept));
    assert_eq!(again.segments, mount.segments, "the same life of the bytes");
    let (header, first) = page(&mut link).await;
    // It is refused once, and told again over another link, from the start.
    link.fail(&header, &CallError::new(Reason::Starting)).await;
    let mut link = master.accept().await;
    link.answer_mount_asking().await;
    let (header, second) = page(&mut link).await;
    assert_eq!(first, second);
    let held = HeldSlab {
        slab: slab(0, 1),
        tenant: tenant("a"),
    };
    assert_eq!(second.slabs, [held]);
    assert_eq!(second.records, [record(1), record(2), record(3)]);
    assert!(second.is_last);
    assert_eq!(
        (second.agent, second.incarnation),
        (AGENT, mount.incarnation)
    );
    link.reply(&header, &()).await;
    for number in 1..4 {
        let bytes = get(&agent, &mount, number, NEXT).await;
        assert_eq!(bytes, payload(number));
    }
    agent.stop();
    let Some(Call::Unmount(header)) = link.next_but_beats().await else {
        panic!("nothing more is told")
    };
    link.reply(&header, &()).await;
    join(agent).await.expect("stopped");
}
