//! The CacheNode's status: written when something changed and never else; and the end of a
//! membership.

use std::net::SocketAddr;
use std::path::Path;

use larder_node_agent::RunningAgent;
use larder_node_agent::cache_node::Pauses;
use larder_wire::agent::Beat;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::fake_api::{Did, EAGER, FakeApi, RESTLESS, member_at, owner};
use super::fake_master::{Call, FakeMaster, MasterLink};
use super::rig::{EPOCH, Rig, SLAB_BYTES, get, give, join, mounted, slab};

/// Neither a master nor an API server is there.
const NOWHERE: &str = "127.0.0.1:9";

fn nowhere() -> SocketAddr {
    NOWHERE.parse().expect("an address")
}

fn ready(status: &Value) -> &Value {
    let conditions = status["conditions"].as_array().expect("a list");
    let mut ready = conditions.iter().filter(|one| one["type"] == "Ready");
    let found = ready.next().expect("the condition");
    assert!(ready.next().is_none());
    found
}

fn state(status: &Value) -> (&str, &str) {
    let ready = ready(status);
    (
        ready["status"].as_str().expect("a text"),
        ready["reason"].as_str().expect("a text"),
    )
}

/// A member whose status is written.
async fn member(pauses: Pauses) -> (Rig, FakeMaster, FakeApi, RunningAgent, MasterLink) {
    let master = FakeMaster::new(EPOCH).await;
    let mut api = FakeApi::new().await;
    let rig = Rig::new(master.addr());
    let agent = rig.start_member(api.member(pauses));
    let (link, _) = master.mount().await;
    assert_eq!(state(&api.written().await), ("True", "Serving"));
    (rig, master, api, agent, link)
}

/// Answers heartbeats for as long as the agent is there, and counts them.
async fn answer_beats(mut link: MasterLink, count: watch::Sender<usize>) {
    while let Some(Call::Heartbeat(header, _)) = link.next().await {
        link.reply(&header, &Beat { known: true }).await;
        count.send_modify(|count| *count += 1);
    }
}

#[tokio::test]
async fn one_write_at_the_start_and_none_while_heartbeats_go_on() {
    let master = FakeMaster {
        heartbeat_ms: 20,
        ..FakeMaster::new(EPOCH).await
    };
    let mut api = FakeApi::new().await;
    let rig = Rig::new(master.addr());
    let agent = rig.start_member(api.member(RESTLESS));
    let (count, mut counted) = watch::channel(0);
    let (link, _) = master.mount().await;
    let beats = tokio::spawn(answer_beats(link, count));
    assert_eq!(state(&api.written().await), ("True", "Serving"));
    let status = api.status().clone();
    assert_eq!(status["observedGeneration"], 1);
    assert_eq!(status["agentUid"], "pod-uid");
    assert_eq!(status["address"], agent.advertised_addr());
    assert_eq!(status["incarnation"].as_str().map(str::len), Some(16));
    assert_eq!(status["segments"], 1);
    let memory = &status["memory"];
    assert_eq!(memory["totalBytes"], 4 * SLAB_BYTES);
    assert_eq!(memory["usedBytes"], 0);
    assert_eq!(
        (&memory["total"], &memory["used"]),
        (&json!("8Mi"), &json!("0"))
    );
    let capabilities = status["capabilities"].as_array().expect("a list");
    assert_eq!(capabilities.len(), 7);
    assert!(capabilities.iter().all(|one| one["reason"].is_string()));
    for _ in 0..50 {
        assert_eq!(api.next().await, Did::Read);
    }
    let (_, did) = api
        .until(None, counted.wait_for(|count| *count >= 50))
        .await;
    assert!(did.iter().all(|did| *did == Did::Read), "{did:?}");
    assert_eq!(*api.status(), status);
    agent.stop();
    api.until(None, join(agent)).await.0.expect("stopped");
    beats.await.expect("no panic");
}

#[tokio::test]
async fn a_change_is_one_write() {
    let (_rig, _master, mut api, agent, mut link) = member(EAGER).await;
    link.command(EPOCH, vec![give(slab(0, 1))]).await;
    let (status, _) = tokio::join!(api.written(), link.events(1));
    assert_eq!(status["memory"]["usedBytes"], SLAB_BYTES);
    assert_eq!(state(&status), ("True", "Serving"));
    drop(link);
    agent.stop();
    let (ended, did) = api.until(None, join(agent)).await;
    ended.expect("stopped");
    let writes = did.iter().filter(|did| **did != Did::Read).count();
    assert_eq!(writes, 1, "that it stops: {did:?}");
    assert_eq!(state(api.status()), ("False", "Stopped"));
    assert_eq!(api.status()["segments"], 0);
}

#[tokio::test]
async fn a_node_without_a_master_says_so() {
    let pauses = Pauses {
        lost_ms: 0,
        ..EAGER
    };
    let master = FakeMaster::new(EPOCH).await;
    let mut api = FakeApi::new().await;
    let rig = Rig::new(master.addr());
    let agent = rig.start_member(api.member(pauses));
    assert_eq!(state(&api.written().await), ("False", "NotMounted"));
    let (link, _) = master.mount().await;
    assert_eq!(state(&api.written().await), ("True", "Serving"));
    drop((link, master));
    assert_eq!(state(&api.written().await), ("False", "NotMounted"));
    let live = get(agent.metrics_addr(), "/healthz").await.0;
    assert!(live.contains("200"), "no reason to restart it: {live}");
    let ready = get(agent.metrics_addr(), "/readyz").await.0;
    assert!(ready.contains("503"), "{ready}");
    agent.stop();
    api.until(None, join(agent)).await.0.expect("stopped");
}

#[tokio::test]
async fn an_edit_by_hand_is_undone() {
    let (_rig, _master, mut api, agent, link) = member(RESTLESS).await;
    let before = api.status().clone();
    let others = json!({
        "type": "Drained", "status": "False", "reason": "No", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let mut edited = ready(&before).clone();
    edited["status"] = json!("False");
    api.edit(&json!({ "status": {
        "conditions": [others, edited],
        "capabilities": [{ "name": "flying", "available": true }],
        "address": null,
    } }));
    // A look may be on its way that read the state of before.
    let wrote = loop {
        if let Did::Wrote(patch) = api.next().await {
            break patch;
        }
    };
    assert_eq!(wrote["status"]["capabilities"], before["capabilities"]);
    let mut after = api.status().clone();
    let kept = after["conditions"]
        .as_array_mut()
        .expect("a list")
        .remove(0);
    assert_eq!(kept, others, "somebody else's condition stays");
    after["conditions"][0]["lastTransitionTime"] = ready(&before)["lastTransitionTime"].clone();
    assert_eq!(after, before);
    for _ in 0..10 {
        assert_eq!(api.next().await, Did::Read);
    }
    drop(link);
    agent.stop();
    api.until(None, join(agent)).await.0.expect("stopped");
}

#[tokio::test]
async fn refusals_are_tried_again_and_stop_nothing() {
    let master = FakeMaster::new(EPOCH).await;
    let mut api = FakeApi::new().await;
    let rig = Rig::new(master.addr());
    let agent = rig.start_member(api.member(EAGER));
    let (mut link, _) = master.mount().await;
    for code in [404, 403, 500, 401] {
        assert_eq!(api.refuse(code).await, Did::Read, "{code}");
    }
    for code in [409, 403, 404, 422, 503] {
        assert_eq!(api.next().await, Did::Read, "{code}");
        assert!(matches!(api.refuse(code).await, Did::Wrote(_)), "{code}");
    }
    // Somebody else writes between read and write: their condition is not lost.
    assert_eq!(api.next().await, Did::Read);
    let others = json!([{
        "type": "Drained", "status": "False", "reason": "No", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    api.edit(&json!({ "status": { "conditions": others } }));
    assert!(matches!(api.next().await, Did::Wrote(_)));
    assert_eq!(api.status()["conditions"], others, "the write was refused");
    let status = api.written().await;
    assert_eq!(status["conditions"].as_array().map(Vec::len), Some(2));
    // All that time the agent did its work.
    link.command(EPOCH, vec![give(slab(0, 1))]).await;
    link.events(1).await;
    assert!(get(agent.metrics_addr(), "/readyz").await.0.contains("200"));
    drop(link);
    agent.stop();
    api.until(None, join(agent)).await.0.expect("stopped");
}

#[tokio::test]
async fn an_object_that_appears_late_is_written() {
    let master = FakeMaster::new(EPOCH).await;
    let mut api = FakeApi::new().await;
    let node = api.node.take();
    let rig = Rig::new(master.addr());
    let agent = rig.start_member(api.member(EAGER));
    let (link, _) = master.mount().await;
    for _ in 0..5 {
        assert_eq!(api.next().await, Did::Read);
    }
    api.node = node;
    assert_eq!(state(&api.written().await), ("True", "Serving"));
    drop(link);
    agent.stop();
    api.until(None, join(agent)).await.0.expect("stopped");
}

/// Stops an agent; what is left of socket, its folder, and the state folder.
async fn stop(
    rig: &Rig,
    api: &mut FakeApi,
    code: Option<u16>,
    agent: RunningAgent,
    mut link: MasterLink,
) -> (bool, bool, bool) {
    agent.stop();
    let unmounted = async {
        let Some(Call::Unmount(header)) = link.next_but_beats().await else {
            panic!("no unmount")
        };
        link.reply(&header, &()).await;
    };
    let ended = async { tokio::join!(join(agent), unmounted).0 };
    api.until(code, ended).await.0.expect("stopped");
    left(rig)
}

fn left(rig: &Rig) -> (bool, bool, bool) {
    let socket = &rig.config.socket_path;
    let folder = socket.parent().map(Path::exists);
    (
        socket.exists(),
        folder.expect("a folder"),
        rig.config.state_dir.exists(),
    )
}

const ALL_GONE: (bool, bool, bool) = (false, false, false);
const FOLDERS_STAY: (bool, bool, bool) = (false, true, true);

#[tokio::test]
async fn a_restart_keeps_the_folders() {
    let (rig, _master, mut api, agent, link) = member(EAGER).await;
    assert_eq!(stop(&rig, &mut api, None, agent, link).await, FOLDERS_STAY);
    assert_eq!(state(api.status()), ("False", "Stopped"));
}

#[tokio::test]
async fn an_agent_whose_cache_node_is_gone_removes_its_folders() {
    let (rig, _master, mut api, agent, link) = member(EAGER).await;
    api.node = None;
    assert_eq!(stop(&rig, &mut api, None, agent, link).await, ALL_GONE);
}

#[tokio::test]
async fn an_agent_whose_cache_node_is_going_removes_its_folders() {
    let (rig, _master, mut api, agent, link) = member(EAGER).await;
    api.edit(&json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }));
    assert_eq!(stop(&rig, &mut api, None, agent, link).await, ALL_GONE);
}

#[tokio::test]
async fn a_cache_node_may_go_after_the_agent_was_told_to_stop() {
    let (rig, _master, mut api, agent, mut link) = member(EAGER).await;
    agent.stop();
    // It is asked first, then tells that it stops, then asks again.
    assert_eq!(state(&api.written().await), ("False", "Stopped"));
    assert_eq!(api.next().await, Did::Read);
    api.node = None;
    let hang_up = async { drop(link.next_but_beats().await) };
    let ended = async { tokio::join!(join(agent), hang_up).0 };
    api.until(None, ended).await.0.expect("stopped");
    assert_eq!(left(&rig), ALL_GONE);
}

#[tokio::test]
async fn rights_that_go_with_the_pool_are_understood() {
    for code in [403, 401] {
        let (rig, _master, mut api, agent, link) = member(EAGER).await;
        assert_eq!(
            stop(&rig, &mut api, Some(code), agent, link).await,
            ALL_GONE
        );
    }
}

#[tokio::test]
async fn the_folder_of_a_later_pool_of_that_name_is_left_to_it() {
    let (rig, _master, mut api, agent, link) = member(EAGER).await;
    api.edit(&json!({ "metadata": { "ownerReferences": [owner("another-uid")] } }));
    assert_eq!(
        stop(&rig, &mut api, None, agent, link).await,
        (false, true, false)
    );
}

#[tokio::test]
async fn a_cache_node_that_was_made_again_by_hand_is_still_of_the_pool() {
    let (rig, _master, mut api, agent, link) = member(EAGER).await;
    api.edit(&json!({ "metadata": { "uid": "another-node-uid" }, "status": null }));
    assert_eq!(stop(&rig, &mut api, None, agent, link).await, FOLDERS_STAY);
}

#[tokio::test]
async fn an_api_server_that_is_away_changes_nothing() {
    let master = FakeMaster::new(EPOCH).await;
    let rig = Rig::new(master.addr());
    let agent = rig.start_member(member_at(nowhere(), EAGER));
    let (mut link, _) = master.mount().await;
    mounted(&agent).await;
    link.command(EPOCH, vec![give(slab(0, 1))]).await;
    link.events(1).await;
    assert!(get(agent.metrics_addr(), "/readyz").await.0.contains("200"));
    drop(link);
    agent.stop();
    join(agent).await.expect("stopped");
    assert_eq!(left(&rig), FOLDERS_STAY);
}
