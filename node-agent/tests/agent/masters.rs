//! Mounting, heartbeats, commands, epochs, restarts of either side, stopping.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use larder_node_agent::epoch_file;
use larder_node_agent::maker::{MemfdMaker, SlabMaker};
use larder_transfer::SlabMemory;
use larder_types::{Epoch, Reason, SegmentId, SlabRef};
use larder_wire::CallError;
use larder_wire::agent::{Beat, Command, Event};

use super::fake_master::{Call, FakeMaster, SEGMENT, soon};
use super::rig::{EPOCH, Rig, get, give, join, metric, mounted, slab};

/// Makes a slab when the test says so.
#[derive(Debug)]
struct GatedMaker {
    started: SyncSender<String>,
    gate: Mutex<Receiver<()>>,
}

fn gated() -> (Arc<GatedMaker>, Receiver<String>, SyncSender<()>) {
    let (started, starts) = sync_channel(64);
    let (open, gate) = sync_channel(64);
    (
        Arc::new(GatedMaker {
            started,
            gate: Mutex::new(gate),
        }),
        starts,
        open,
    )
}

impl SlabMaker for GatedMaker {
    fn make(&self, name: &str, bytes: u64) -> Result<SlabMemory, String> {
        self.started
            .send(name.to_owned())
            .map_err(|_| "the test is over".to_owned())?;
        let gate = self.gate.lock().map_err(|_| "poisoned".to_owned())?;
        gate.recv().map_err(|_| "the test is over".to_owned())?;
        MemfdMaker.make(name, bytes)
    }
}

#[tokio::test]
async fn mounts_says_that_it_is_ready_and_gives_a_slab() {
    let master = FakeMaster::new(EPOCH).await;
    let rig = Rig::new(master.addr());
    let agent = rig.start();
    let (mut link, mount) = master.mount().await;
    assert_eq!(mount.name.as_str(), "small-0");
    assert_eq!(mount.data_addr, agent.data_addr().to_string());
    assert_eq!(mount.highest_epoch, Epoch::default());
    assert_eq!(mount.segments.len(), 1);
    assert_eq!((mount.segments[0].slabs, mount.segments[0].ordinal), (4, 0));
    link.command(EPOCH, vec![give(slab(2, 9))]).await;
    assert_eq!(
        link.events(1).await,
        [Event::SlabReady { slab: slab(2, 9) }]
    );
    assert!(get(agent.metrics_addr(), "/readyz").await.0.contains("200"));
    assert!(metric(&agent, "larder_agent_slabs", &[("state", "held")]).await >= 1);
    assert!(metric(&agent, "larder_agent_epoch_term", &[]).await >= 2);
    // Saved before the mount was obeyed.
    let saved = epoch_file::load(&rig.config.state_dir.join("epoch")).expect("saved");
    assert_eq!(saved, EPOCH);
    // Written beside the loop when it mounted; whoever started it reads its addresses there.
    let told = loop {
        match std::fs::read_to_string(rig.ready_file()) {
            Ok(told) => break told,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    agent.stop();
    let Some(Call::Unmount(header)) = link.next_but_beats().await else {
        panic!("no unmount")
    };
    let told: serde_json::Value = serde_json::from_str(&told).expect("json");
    assert_eq!(told["client_addr"], agent.data_addr().to_string());
    assert_eq!(told["metrics_addr"], agent.metrics_addr().to_string());
    assert_eq!(told["pid"], std::process::id());
    assert_eq!(told["socket"], agent.socket_path().display().to_string());
    link.reply(&header, &()).await;
    let (data_addr, socket) = (agent.data_addr(), agent.socket_path().to_owned());
    join(agent).await.expect("stopped");
    assert!(!socket.exists() && !rig.ready_file().exists());
    assert!(
        std::net::TcpStream::connect(data_addr).is_err(),
        "nobody listens any more"
    );
}

#[tokio::test]
async fn two_numa_nodes_are_two_segments() {
    let master = FakeMaster::new(EPOCH).await;
    let mut rig = Rig::new(master.addr());
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    // Its processors need not be here: memory then comes from wherever there is some.
    rig.config.system_root = fixtures.join("server");
    let agent = rig.start();
    let (mut link, mount) = master.mount().await;
    let offers: Vec<_> = mount
        .segments
        .iter()
        .map(|s| (s.ordinal, s.slabs, s.numa))
        .collect();
    assert_eq!(offers, [(0, 2, 0), (1, 2, 1)]);
    let other = SlabRef {
        segment: SegmentId(SEGMENT.0 + 1),
        ..slab(1, 2)
    };
    link.command(EPOCH, vec![give(slab(0, 1)), give(other)])
        .await;
    let mut events = link.events(2).await;
    events.sort_by_key(|event| format!("{event:?}"));
    assert_eq!(
        events,
        [slab(0, 1), other].map(|slab| Event::SlabReady { slab })
    );
    let labels = [("capability", "numa"), ("reason", "ok")];
    assert_eq!(
        metric(&agent, "larder_agent_capability_available", &labels).await,
        1
    );
    let labels = [("capability", "gds"), ("reason", "unused")];
    assert_eq!(
        metric(&agent, "larder_agent_capability_available", &labels).await,
        0
    );
    drop(link);
    agent.stop();
    join(agent).await.expect("stopped");
}

#[tokio::test]
async fn b06_a_slow_slab_does_not_delay_heartbeats() {
    let master = FakeMaster {
        heartbeat_ms: 1_000,
        ..FakeMaster::new(EPOCH).await
    };
    let rig = Rig::new(master.addr());
    let (maker, starts, open) = gated();
    let agent = rig.start_with(maker);
    let (mut link, _) = master.mount().await;
    link.command(EPOCH, vec![give(slab(0, 1)), give(slab(1, 2))])
        .await;
    let begun = tokio::task::spawn_blocking(move || starts.recv().map(|name| (name, starts)));
    let (name, _starts) = begun.await.expect("no panic").expect("making has begun");
    assert_eq!(name, "larder-10-0-1");
    // The maker stands still. Heartbeats go on, as many as one waits for.
    for _ in 0..3 {
        match link.next().await {
            Some(Call::Heartbeat(header, _)) => link.reply(&header, &Beat { known: true }).await,
            other => panic!("a heartbeat was due, not {other:?}"),
        }
    }
    assert!(get(agent.metrics_addr(), "/readyz").await.0.contains("200"));
    open.send(()).expect("the maker waits");
    assert_eq!(
        link.events(1).await,
        [Event::SlabReady { slab: slab(0, 1) }]
    );
    open.send(()).expect("the maker waits");
    assert_eq!(
        link.events(1).await,
        [Event::SlabReady { slab: slab(1, 2) }]
    );
    drop(link);
    agent.stop();
    join(agent).await.expect("stopped");
}

#[tokio::test]
async fn commands_of_a_lower_epoch_are_not_obeyed() {
    let master = FakeMaster::new(EPOCH).await;
    let rig = Rig::new(master.addr());
    let (maker, starts, open) = gated();
    let agent = rig.start_with(maker);
    let (mut link, _) = master.mount().await;
    let lower = Epoch {
        generation: EPOCH.generation,
        term: EPOCH.term - 1,
    };
    link.command(lower, vec![give(slab(0, 1))]).await;
    assert!(
        link.next_but_beats().await.is_none(),
        "it leaves without an answer"
    );
    let (mut link, mount) = master.mount().await;
    assert_eq!(mount.highest_epoch, EPOCH);
    link.command(EPOCH, vec![give(slab(1, 2))]).await;
    open.send(()).expect("the maker lives");
    assert_eq!(
        link.events(1).await,
        [Event::SlabReady { slab: slab(1, 2) }]
    );
    let begun: Vec<String> = starts.try_iter().collect();
    assert_eq!(begun, ["larder-10-1-2"], "only what the living epoch said");
    assert!(
        metric(
            &agent,
            "larder_agent_refused_total",
            &[("reason", "lower_epoch")]
        )
        .await
            >= 1
    );
    drop(link);
    agent.stop();
    join(agent).await.expect("stopped");
}

#[tokio::test]
async fn number_and_epoch_outlive_the_process() {
    let master = FakeMaster::new(EPOCH).await;
    let rig = Rig::new(master.addr());
    let agent = rig.start();
    let (link, first) = master.mount().await;
    mounted(&agent).await;
    drop(link);
    agent.stop();
    join(agent).await.expect("stopped");
    let agent = rig.start();
    // A leader of the past finds that out from the mount, and is not obeyed.
    let old = FakeMaster {
        epoch: Epoch {
            generation: 4,
            term: 1,
        },
        ..master
    };
    let (mut link, second) = old.mount().await;
    assert_eq!(second.highest_epoch, EPOCH);
    assert_eq!(second.uid, first.uid);
    assert_ne!(second.incarnation, first.incarnation);
    assert_ne!(second.segments[0].generation, first.segments[0].generation);
    assert!(
        link.next_but_beats().await.is_none(),
        "it leaves the old leader"
    );
    agent.stop();
    join(agent).await.expect("stopped");
}

#[tokio::test]
async fn a_pool_that_starts_over_gets_empty_segments() {
    let master = FakeMaster::new(EPOCH).await;
    let rig = Rig::new(master.addr());
    let agent = rig.start();
    let (mut link, before) = master.mount().await;
    link.command(EPOCH, vec![give(slab(0, 1))]).await;
    assert_eq!(
        link.events(1).await,
        [Event::SlabReady { slab: slab(0, 1) }]
    );
    drop(link);
    let next = Epoch {
        generation: EPOCH.generation + 1,
        term: 0,
    };
    let master = FakeMaster {
        epoch: next,
        ..master
    };
    // The first mount offers the old life; having heard of the new pool it mounts a new one.
    let (mut link, same) = master.mount().await;
    assert_eq!(same.segments[0].generation, before.segments[0].generation);
    let afresh = link.answer_mount(Vec::new()).await;
    assert_ne!(afresh.segments[0].generation, before.segments[0].generation);
    assert_eq!(afresh.highest_epoch, next);
    // The numbers of the old life may come again: it is a new slab.
    link.command(
        next,
        vec![give(slab(0, 1)), Command::SlabTake { slab: slab(3, 1) }],
    )
    .await;
    let mut events = link.events(2).await;
    events.sort_by_key(|event| format!("{event:?}"));
    let wanted = [
        Event::SlabReady { slab: slab(0, 1) },
        Event::SlabReturned { slab: slab(3, 1) },
    ];
    assert_eq!(events, wanted);
    assert!(metric(&agent, "larder_agent_slabs", &[("state", "held")]).await <= 1);
    drop(link);
    agent.stop();
    join(agent).await.expect("stopped");
}

#[tokio::test]
async fn b66_waits_for_a_master_that_is_not_there_yet() {
    // The address of a master that comes later.
    let addr = FakeMaster::new(EPOCH).await.addr();
    let rig = Rig::new(addr);
    let agent = rig.start();
    let (status, why) = get(agent.metrics_addr(), "/readyz").await;
    assert!(
        status.contains("503") && why.contains("not mounted"),
        "{status} {why}"
    );
    assert!(
        get(agent.metrics_addr(), "/healthz")
            .await
            .0
            .contains("200"),
        "live all the same"
    );
    assert!(
        get(agent.metrics_addr(), "/v1/status")
            .await
            .0
            .contains("404"),
        "nothing else is served"
    );
    assert!(!rig.ready_file().exists());
    let master = FakeMaster::at(&addr.to_string(), EPOCH).await;
    // Starting, too, is no reason to give up.
    let mut link = master.accept().await;
    let Some(Call::Mount(header, _)) = link.next().await else {
        panic!("a mount was due")
    };
    link.fail(&header, &CallError::new(Reason::Starting)).await;
    assert!(link.next().await.is_none());
    let (mut link, _) = master.mount().await;
    link.command(EPOCH, vec![give(slab(0, 1))]).await;
    link.events(1).await;
    assert!(get(agent.metrics_addr(), "/readyz").await.0.contains("200"));
    drop(link);
    agent.stop();
    join(agent).await.expect("stopped");
}

#[tokio::test]
async fn follows_a_master_that_names_the_leader() {
    let follower = FakeMaster::new(EPOCH).await;
    let leader = FakeMaster::new(EPOCH).await;
    let other = FakeMaster::new(EPOCH).await;
    let mut rig = Rig::new(follower.addr());
    rig.config
        .masters
        .extend([other.addr().to_string(), leader.addr().to_string()]);
    let agent = rig.start();
    let mut link = follower.accept().await;
    let Some(Call::Mount(header, _)) = link.next().await else {
        panic!("a mount was due")
    };
    let detail = format!("the leader is {}", leader.addr());
    link.fail(
        &header,
        &CallError {
            reason: Reason::NotLeader,
            detail,
        },
    )
    .await;
    let (link, _) = leader.mount().await;
    drop(link);
    agent.stop();
    join(agent).await.expect("stopped");
}

#[tokio::test]
async fn a_forgotten_agent_mounts_again() {
    let master = FakeMaster {
        heartbeat_ms: 1_000,
        ..FakeMaster::new(EPOCH).await
    };
    let rig = Rig::new(master.addr());
    let agent = rig.start();
    let (mut link, before) = master.mount().await;
    let Some(Call::Heartbeat(header, beat)) = link.next().await else {
        panic!("a beat was due")
    };
    assert_eq!(beat.highest_epoch, EPOCH);
    link.reply(&header, &Beat { known: false }).await;
    let after = link.answer_mount(Vec::new()).await;
    assert_ne!(after.segments[0].generation, before.segments[0].generation);
    assert_eq!(after.incarnation, before.incarnation);
    drop(link);
    agent.stop();
    join(agent).await.expect("stopped");
}

#[tokio::test]
async fn stops_although_the_master_does_not_answer() {
    let master = FakeMaster::new(EPOCH).await;
    let rig = Rig::new(master.addr());
    let agent = rig.start();
    let (mut link, _) = master.mount().await;
    mounted(&agent).await;
    agent.stop();
    assert!(matches!(
        link.next_but_beats().await,
        Some(Call::Unmount(..))
    ));
    let socket = agent.socket_path().to_owned();
    soon("it stops", join(agent)).await.expect("stopped");
    assert!(!socket.exists() && !rig.ready_file().exists());
}

#[tokio::test]
async fn an_agent_that_cannot_say_that_it_is_ready_ends_with_the_reason() {
    let master = FakeMaster::new(EPOCH).await;
    let mut rig = Rig::new(master.addr());
    let missing = rig.ready_file().with_file_name("no-such-folder/ready.json");
    rig.config.ready_file = Some(missing);
    let agent = rig.start();
    let (_link, _) = master.mount().await;
    let error = join(agent).await.expect_err("nobody would hear of it");
    assert!(error.to_string().contains("no-such-folder"), "{error}");
}

#[tokio::test]
async fn an_agent_that_never_could_keep_its_epoch_ends_with_the_reason() {
    let master = FakeMaster::new(EPOCH).await;
    let rig = Rig::new(master.addr());
    let agent = rig.start();
    std::fs::remove_dir_all(&rig.config.state_dir).expect("its own");
    let mounted = async {
        let _link = master.mount().await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = join(agent) => {
            let error = ended.expect_err("nobody would hear of it");
            assert!(error.to_string().contains("state"), "{error}");
        }
        () = mounted => {}
    }
}
