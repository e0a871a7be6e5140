//! Clients of a whole agent: over tcp, over the socket, and those that have no business there.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use larder_node_agent::RunningAgent;
use larder_transfer::transport::{
    ReadOp, SessionSource, ShmOptions, ShmTransport, TcpOptions, TcpTransport, TransferError,
    Transport, View, WriteOp,
};
use larder_types::{Extent, Incarnation, Memo, PoolTime, Principal, SessionId, TenantId, Version};
use larder_wire::agent::{Command, Event, Mount};
use larder_wire::checksum::block_crcs;
use larder_wire::{Capability, Reach, RefusedReason, SessionClaims, SignedCapability};
use tokio::time::Instant;

use super::fake_master::{FakeMaster, MasterLink, agent_key, signer};
use super::rig::{EPOCH, Rig, give, join, metric, slab, tenant};

const DEADLINE: Duration = Duration::from_secs(100);
const VERSION: Version = Version {
    epoch: EPOCH,
    counter: 1,
};

fn session(of: &TenantId, deadline: PoolTime) -> SessionSource {
    let claims = SessionClaims {
        principal: Principal::Tenant(of.clone()),
        session: SessionId(1),
        epoch: EPOCH,
        deadline,
    };
    let token = signer().sign(&claims).expect("signed");
    SessionSource::fixed(token.as_bytes().to_vec(), "test", Incarnation(2))
}

fn capability(mount: &Mount, extent: Extent, reach: Reach) -> SignedCapability {
    let capability = Capability {
        tenant: tenant("a"),
        incarnation: mount.incarnation,
        extent,
        version: VERSION,
        reach,
        epoch: EPOCH,
        deadline: PoolTime(1_000_000),
        part: 0,
        parts: 1,
        object_bytes: extent.length_bytes,
        key: b"key".to_vec(),
        memo: Memo::default(),
    };
    SignedCapability::sign(&capability, &agent_key(mount)).expect("signed")
}

/// An agent with one slab for tenant `a`.
async fn serving() -> (Rig, RunningAgent, MasterLink, Mount) {
    let master = FakeMaster::new(EPOCH).await;
    let rig = Rig::new(master.addr());
    let agent = rig.start();
    let (mut link, mount) = master.mount().await;
    link.command(EPOCH, vec![give(slab(0, 1))]).await;
    assert_eq!(
        link.events(1).await,
        [Event::SlabReady { slab: slab(0, 1) }]
    );
    (rig, agent, link, mount)
}

fn payload(bytes: usize) -> Bytes {
    (0..bytes)
        .map(|at| (at * 7 % 251) as u8)
        .collect::<Vec<u8>>()
        .into()
}

fn write_op(capability: SignedCapability, payload: &Bytes) -> WriteOp {
    WriteOp {
        capability,
        payload: payload.clone(),
        block_crcs: Arc::from(block_crcs(payload)),
        deadline: Instant::now() + DEADLINE,
    }
}

fn read_op(capability: SignedCapability, length_bytes: u64) -> ReadOp {
    ReadOp {
        capability,
        offset_bytes: 0,
        length_bytes,
        buffer: BytesMut::new(),
        deadline: Instant::now() + DEADLINE,
    }
}

#[tokio::test]
async fn a_client_writes_and_reads_by_tcp_and_views_by_the_socket() {
    let (_rig, agent, mut link, mount) = serving().await;
    let extent = Extent {
        slab: slab(0, 1),
        offset_bytes: 4096,
        length_bytes: 200_000,
    };
    let payload = payload(200_000);
    let of = || session(&tenant("a"), PoolTime(1_000_000));
    let options = TcpOptions {
        incarnation: Some(mount.incarnation),
        ..TcpOptions::default()
    };
    let tcp = TcpTransport::new(agent.data_addr().to_string(), options, of());
    let done = tcp
        .write(write_op(capability(&mount, extent, Reach::Write), &payload))
        .await;
    let receipt = done.result.expect("written");
    receipt
        .verify(&agent_key(&mount))
        .expect("signed by the agent");
    assert_eq!(receipt.extent, extent);
    let read = capability(&mount, extent, Reach::Read);
    let done = tcp.read(read_op(read.clone(), 200_000)).await;
    done.result.expect("read");
    assert_eq!(done.buffer, payload);
    let path = agent.socket_path().to_owned();
    let shm = ShmTransport::connect(path, ShmOptions::default(), of())
        .await
        .expect("connected");
    let view = shm
        .open_view(&read, Instant::now() + DEADLINE)
        .await
        .expect("a view");
    assert_eq!(&view[..], &payload[..]);

    let moved = "larder_agent_written_bytes_total";
    assert_eq!(
        metric(&agent, moved, &[("transport", "tcp")]).await,
        200_000
    );
    let views = "larder_agent_views_bytes";
    assert_eq!(metric(&agent, views, &[("tenant", "a")]).await, 200_000);
    assert_eq!(metric(&agent, "larder_agent_records", &[]).await, 1);

    erase_under(&agent, &mut link, extent, view).await;
    let done = tcp.read(read_op(read, 200_000)).await;
    assert!(
        matches!(done.result, Err(TransferError::Refused(_))),
        "{:?}",
        done.result
    );
    drop((tcp, shm, link));
    agent.stop();
    join(agent).await.expect("stopped");
}

/// The bytes are free only when the view has ended.
async fn erase_under(agent: &RunningAgent, link: &mut MasterLink, extent: Extent, view: View) {
    let version = VERSION;
    let erase = Command::Erase { extent, version };
    link.command(EPOCH, vec![erase, give(slab(1, 2))]).await;
    let ready = Event::SlabReady { slab: slab(1, 2) };
    assert_eq!(link.events(1).await, [ready]);
    let erasing = metric(agent, "larder_agent_erasing_bytes", &[]).await;
    assert_eq!(erasing, extent.length_bytes);
    drop(view);
    let released = Event::Released { extent, version };
    assert_eq!(link.events(1).await, [released]);
}

#[tokio::test]
async fn who_proves_nothing_reaches_nothing() {
    let (_rig, agent, mut link, mount) = serving().await;
    let extent = Extent {
        slab: slab(0, 1),
        offset_bytes: 0,
        length_bytes: 256,
    };
    let addr = agent.data_addr().to_string();
    let write = |session: SessionSource| {
        let (addr, payload) = (addr.clone(), payload(256));
        let op = write_op(capability(&mount, extent, Reach::Write), &payload);
        async move {
            TcpTransport::new(addr, TcpOptions::default(), session)
                .write(op)
                .await
                .result
        }
    };
    let forged = SessionSource::fixed(vec![1; 100], "test", Incarnation(2));
    let refused = write(forged).await;
    let Err(TransferError::HelloRefused(refused)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(refused.reason, RefusedReason::Credential);
    let refused = write(session(&tenant("a"), PoolTime(1))).await;
    let Err(TransferError::HelloRefused(refused)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(refused.reason, RefusedReason::Expired);
    let refused = write(session(&tenant("b"), PoolTime(1_000_000))).await;
    assert!(
        matches!(refused, Err(TransferError::Refused(_))),
        "{refused:?}"
    );
    let foreign = [("reason", "foreign_tenant")];
    assert!(metric(&agent, "larder_agent_refused_total", &foreign).await >= 1);

    // A tenant that is deleted is cut off, and not let in again.
    write(session(&tenant("a"), PoolTime(1_000_000)))
        .await
        .expect("still good");
    link.command(
        EPOCH,
        vec![
            Command::TenantGone {
                tenant: tenant("a"),
            },
            give(slab(1, 3)),
        ],
    )
    .await;
    link.events(1).await;
    drop(link);
    agent.stop();
    join(agent).await.expect("stopped");
}

#[tokio::test]
async fn another_protocol_is_closed_and_counted() {
    let (_rig, agent, link, _) = serving().await;
    let addr = agent.data_addr();
    let talk = tokio::task::spawn_blocking(move || {
        let mut stream = std::net::TcpStream::connect(addr).expect("connected");
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            .expect("sent");
        // Closed by the agent, with or without a reset.
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    });
    assert!(talk.await.expect("no panic").is_empty());
    let labels = [("listener", "tcp"), ("reason", "magic")];
    assert!(metric(&agent, "larder_wire_refused_total", &labels).await >= 1);
    assert!(metric(&agent, "larder_wire_connections", &[("listener", "tcp")]).await == 0);
    drop(link);
    agent.stop();
    join(agent).await.expect("stopped");
}
