//! Agents: mounts, reconnects, silence, epochs, deleted tenants.

use larder_types::{Epoch, Reason};
use larder_wire::agent::{Command, Event, Mounted, Unmount};
use larder_wire::frame::NO_DEADLINE;
use larder_wire::{CallResult, Kind, Purpose, RefusedReason};

use crate::peer::{AgentPeer, Client, Peer, end_item, hello, mount, reason, start_call, tenant};
use crate::rig::{Rig, soon, token};

#[tokio::test]
async fn an_agent_that_reconnects_hears_again_what_is_to_be_done() {
    let rig = Rig::start().await;
    let mut agent = AgentPeer::mount(&rig, "node-0", 5).await;
    assert!(agent.agent.outstanding.is_empty());
    let mut client = Client::connect(&rig, "a").await;
    let waits = client
        .0
        .send(Kind::PutStart, &start_call(&["k"], 10), 60_000)
        .await;
    let asked = agent.commands().await.expect("a slab is wanted").commands;
    // The connection breaks before it is made.
    let number = agent.agent.id;
    drop(agent);
    let mut again = AgentPeer::mount(&rig, "node-0", 5).await;
    assert_eq!(again.agent.id, number);
    assert_eq!(again.agent.outstanding, asked);
    again.obey(asked).await;
    // The put did not wait for an agent that may never come back; it may be tried again.
    let reply = client
        .0
        .reply::<larder_wire::master::PutStarted>(waits)
        .await
        .expect("whole");
    let grant = match reply.answer.grants[0].clone() {
        Ok(grant) => grant,
        Err(error) => {
            assert!(error.reason.is_retryable(), "{error}");
            client.start_one("k", 10).await.expect("granted")
        }
    };
    let known = again.agent.clone();
    client
        .end_one(end_item("k", &grant, &[&known]))
        .await
        .expect("complete");

    assert_eq!(client.remove(&["k"]).await, [Ok(())]);
    let erase = again.commands().await.expect("an erasure").commands;
    assert!(matches!(erase[..], [Command::Erase { .. }]));
    drop(again);
    let mut third = AgentPeer::mount(&rig, "node-0", 5).await;
    assert_eq!(third.agent.outstanding, erase);
    third.obey(erase).await;
    rig.until_metric("larder_master_releasing_bytes", &[], 0.0)
        .await;
    rig.check().await;
}

#[tokio::test]
async fn the_last_mount_of_an_agent_takes_the_place_of_the_one_before() {
    let rig = Rig::start().await;
    let mut first = AgentPeer::mount(&rig, "node-0", 5).await;
    let mut second = AgentPeer::mount(&rig, "node-0", 5).await;
    let refused = first.peer.goodbye().await.expect("a reason");
    assert_eq!(refused.reason, RefusedReason::Busy);
    assert!(second.beat().await);
    let page = rig.metrics().await;
    let alive = [("state", "alive")];
    let agents = larder_telemetry::exposition::value(&page, "larder_master_agents", &alive);
    assert_eq!(
        agents,
        Some(1.0),
        "the end of the first connection does not hurt the second"
    );
}

#[tokio::test]
async fn a_restarted_agent_has_lost_its_bytes_and_is_mounted_anew() {
    let rig = Rig::start().await;
    let mut old = AgentPeer::mount(&rig, "node-0", 5).await;
    let mut client = Client::connect(&rig, "a").await;
    let waits = client
        .0
        .send(Kind::PutStart, &start_call(&["k"], 10), 60_000)
        .await;
    let commands = old.commands().await.expect("a slab").commands;
    old.obey(commands).await;
    let reply = client
        .0
        .reply::<larder_wire::master::PutStarted>(waits)
        .await
        .expect("whole");
    let grant = reply.answer.grants[0].clone().expect("granted");
    let known = old.agent.clone();
    client
        .end_one(end_item("k", &grant, &[&known]))
        .await
        .expect("complete");

    let new = AgentPeer::mount(&rig, "node-0", 6).await;
    assert_eq!(new.agent.id, known.id);
    assert_ne!(new.agent.segments, known.segments);
    assert_ne!(
        new.agent.key.bytes(),
        known.key.bytes(),
        "a key for each incarnation"
    );
    assert_eq!(
        old.peer.goodbye().await.expect("a reason").reason,
        RefusedReason::Busy
    );
    old.peer = AgentPeer::connect(&rig, "node-0").await;
    assert!(
        !old.beat().await,
        "the former process is told that it is not known"
    );
    let gone = client.get(&["k"]).await.remove(0);
    assert!(gone.is_err(), "{gone:?}");
    // What the former process says changes nothing.
    let (extent, _) = &grant.replicas[0].extents[0];
    old.say(vec![Event::SlabReady { slab: extent.slab }]).await;
    new.serve();
    assert!(client.start_one("k", 10).await.is_ok());
    rig.check().await;
}

#[tokio::test]
async fn b06_a_silent_agent_is_suspect_first_and_lost_later() {
    let rig = Rig::start_with(|config| {
        config.agent_suspect_ms = 100;
        config.agent_ttl_ms = 400;
    })
    .await;
    let mut agent = AgentPeer::mount(&rig, "node-0", 5).await;
    rig.until_metric("larder_master_agents", &[("state", "suspect")], 1.0)
        .await;
    rig.until_metric("larder_master_capacity_bytes", &[], 0.0)
        .await;
    assert!(!agent.beat().await, "it has to mount again");
    let mut client = Client::connect(&rig, "a").await;
    assert_eq!(reason(client.start_one("k", 10).await), Reason::NoAgents);
    let offer = mount("node-0", 5, 0);
    let mounted: Mounted = agent.peer.call(Kind::Mount, &offer).await.expect("mounted");
    assert_ne!(
        mounted.segments, agent.agent.segments,
        "nothing of before is known"
    );
    rig.check().await;
}

#[tokio::test]
async fn b06_heartbeats_keep_an_agent_over_a_connection_of_their_own() {
    let rig = Rig::start_with(|config| {
        config.agent_suspect_ms = 100;
        config.agent_ttl_ms = 400;
    })
    .await;
    let mounted = AgentPeer::mount(&rig, "node-0", 5).await;
    let peer = AgentPeer::connect(&rig, "node-0").await;
    let mut heart = AgentPeer {
        peer,
        agent: mounted.agent.clone(),
    };
    let page_time = |page: &serde_json::Value| page["pool_time_ms"].as_u64().expect("a number");
    let began = page_time(&rig.document("/v1/status").await);
    // Well over its time to live, counted by the master's own clock.
    while page_time(&rig.document("/v1/status").await) < began + 1_000 {
        assert!(heart.beat().await);
    }
    let status = rig.document("/v1/status").await;
    assert_eq!(status["agents"], 1, "{status}");
}

#[tokio::test]
async fn an_agent_that_leaves_takes_its_segments_along() {
    let rig = Rig::start().await;
    let mut agent = AgentPeer::mount(&rig, "node-0", 5).await;
    let unmount = Unmount {
        agent: agent.agent.id,
        incarnation: agent.agent.incarnation,
    };
    assert_eq!(agent.peer.call::<()>(Kind::Unmount, &unmount).await, Ok(()));
    assert!(!agent.beat().await);
    assert_eq!(rig.document("/v1/status").await["capacity_bytes"], 0);
    let again: CallResult<()> = agent.peer.call(Kind::Unmount, &unmount).await;
    assert!(
        again.is_err() || again == Ok(()),
        "twice is no fault: {again:?}"
    );
    rig.check().await;
}

#[tokio::test]
async fn an_agent_mounts_only_under_its_own_name_and_speaks_for_itself() {
    let rig = Rig::start().await;
    let mut liar = AgentPeer::connect(&rig, "node-1").await;
    liar.send(Kind::Mount, &mount("node-0", 5, 0), NO_DEADLINE)
        .await;
    let refused = liar.goodbye().await.expect("a reason");
    assert_eq!(refused.reason, RefusedReason::Role);

    let mut victim = AgentPeer::mount(&rig, "node-0", 5).await;
    let mut other = AgentPeer::mount(&rig, "node-1", 6).await;
    let mut client = Client::connect(&rig, "a").await;
    let mut call = start_call(&["k"], 10);
    call.items[0].preferred = vec![victim.agent.name.clone()];
    let waits = client.0.send(Kind::PutStart, &call, 60_000).await;
    let commands = victim.commands().await.expect("a slab").commands;
    let [Command::SlabGive { slab, .. }] = commands[..] else {
        panic!("{commands:?}")
    };
    // The other one says that the victim's slab is ready, as itself and in the victim's name.
    other.say(vec![Event::SlabReady { slab }]).await;
    let own = std::mem::replace(&mut other.agent, victim.agent.clone());
    other.say(vec![Event::SlabReady { slab }]).await;
    assert!(!other.beat().await);
    other.agent = own;
    assert!(other.beat().await);
    let page = rig.metrics().await;
    let ready = [("state", "ready")];
    let slabs = larder_telemetry::exposition::value(&page, "larder_master_slabs", &ready);
    assert_eq!(slabs, Some(0.0));
    victim.obey(commands).await;
    let reply = client
        .0
        .reply::<larder_wire::master::PutStarted>(waits)
        .await
        .expect("whole");
    assert!(reply.answer.grants[0].is_ok());
}

#[tokio::test]
async fn an_agent_of_a_later_generation_makes_the_pool_start_over_above_it() {
    let rig = Rig::start_with(|config| config.bootstrap.inventory_wait_ms = 200).await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut client = Client::connect(&rig, "a").await;
    client.put("k", 10, &[&agent]).await.expect("put");
    let generation = client
        .0
        .welcome
        .as_ref()
        .expect("a welcome")
        .epoch
        .generation;

    let mut elder = AgentPeer::connect(&rig, "node-1").await;
    let offer = mount("node-1", 6, generation + 40);
    elder.send(Kind::Mount, &offer, NO_DEADLINE).await;
    let refused = elder.goodbye().await.expect("a reason");
    assert_eq!(refused.reason, RefusedReason::Stopping);
    let refused = client.0.goodbye().await.expect("a reason");
    assert_eq!(
        refused.reason,
        RefusedReason::Stopping,
        "everybody has to come again"
    );

    let mut elder = AgentPeer::connect(&rig, "node-1").await;
    let _: Mounted = elder.call(Kind::Mount, &offer).await.expect("mounted");
    let mut client = Client::connect(&rig, "a").await;
    let epoch = client.0.welcome.as_ref().expect("a welcome").epoch;
    assert_eq!(
        epoch,
        Epoch {
            generation: generation + 41,
            term: 1
        }
    );
    // Nobody is told that a key is not there before everybody could say what they hold.
    let mut waits = 0;
    loop {
        let told = client.exists(&["k"]).await;
        match &told[..] {
            [Err(error)] if error.reason == Reason::Starting => waits += 1,
            _ => break assert_eq!(told, [Ok(false)], "a clean miss"),
        }
    }
    assert!(waits > 0, "it waited for agents");
    rig.check().await;
}

/// Agents that know of a log that is lost may be still to come.
#[tokio::test]
async fn a_pool_that_began_tells_nobody_what_is_missing_before_an_agent_came() {
    let rig = Rig::start_with(|config| config.bootstrap.inventory_wait_ms = 600_000).await;
    let mut client = Client::connect(&rig, "a").await;
    for _ in 0..3 {
        let told = client.exists(&["k"]).await;
        assert!(
            matches!(&told[..], [Err(error)] if error.reason == Reason::Starting),
            "{told:?}"
        );
    }
    let _agent = AgentPeer::mount(&rig, "node-0", 5).await;
    assert_eq!(client.exists(&["k"]).await, [Ok(false)]);
}

/// As after the disk of a master was lost: the same generation is lived again.
#[tokio::test]
async fn an_agent_of_another_life_of_this_generation_makes_the_pool_start_over_above_it() {
    let rig = Rig::start().await;
    let known = AgentPeer::mount(&rig, "node-0", 5).await;
    let epoch = known.peer.welcome.as_ref().expect("a welcome").epoch;

    // It learned the epoch from this life, so it may come again, as another process too.
    let mut again = AgentPeer::connect(&rig, "node-0").await;
    let offer = mount("node-0", 6, epoch.generation);
    let _: Mounted = again.call(Kind::Mount, &offer).await.expect("mounted");
    let client = Client::connect(&rig, "a").await;
    assert_eq!(client.0.welcome.as_ref().expect("a welcome").epoch, epoch);

    let mut stranger = AgentPeer::connect(&rig, "node-1").await;
    let offer = mount("node-1", 7, epoch.generation);
    stranger.send(Kind::Mount, &offer, NO_DEADLINE).await;
    let refused = stranger.goodbye().await.expect("a reason");
    assert_eq!(refused.reason, RefusedReason::Stopping);
    let mut stranger = AgentPeer::connect(&rig, "node-1").await;
    let _: Mounted = stranger.call(Kind::Mount, &offer).await.expect("mounted");
    let client = Client::connect(&rig, "a").await;
    let now = client.0.welcome.as_ref().expect("a welcome").epoch;
    assert_eq!(now.generation, epoch.generation + 1);
    rig.check().await;
}

#[tokio::test]
async fn a_deleted_tenant_is_gone_at_the_agents_and_its_sessions_end() {
    let rig = Rig::start().await;
    let mut agent = AgentPeer::mount(&rig, "node-0", 5).await;
    let mut client = Client::connect(&rig, "a").await;
    let waits = client
        .0
        .send(Kind::PutStart, &start_call(&["k"], 10), 60_000)
        .await;
    let commands = agent.commands().await.expect("a slab").commands;
    agent.obey(commands).await;
    let reply = client
        .0
        .reply::<larder_wire::master::PutStarted>(waits)
        .await
        .expect("whole");
    let grant = reply.answer.grants[0].clone().expect("granted");
    let known = agent.agent.clone();
    client
        .end_one(end_item("k", &grant, &[&known]))
        .await
        .expect("complete");

    let operator = token("operator");
    let (status, _) = rig
        .http("DELETE", "/v1/tenants/a", Some(&operator), "")
        .await;
    assert_eq!(status, 204);
    let refused = client.0.goodbye().await.expect("a reason");
    assert_eq!(refused.reason, RefusedReason::Credential);
    let commands = agent.commands().await.expect("commands").commands;
    assert_eq!(
        commands[0],
        Command::TenantGone {
            tenant: tenant("a")
        }
    );
    let mut stranger = Peer::connect(rig.client_addr).await;
    let refused = stranger
        .say_hello(&hello("a", Purpose::Client))
        .await
        .expect_err("gone");
    assert_eq!(refused.reason, RefusedReason::Credential);

    agent.obey(commands).await;
    agent.serve();
    soon("the end of the tenant", async {
        while rig
            .document("/v1/tenants")
            .await
            .to_string()
            .contains("\"a\"")
        {}
    })
    .await;
    rig.check().await;
}
