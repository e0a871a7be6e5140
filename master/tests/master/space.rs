//! A full pool whose readers hold what was removed: a put waits for it, but not for ever.

use larder_types::Reason;
use larder_types::layout::MIN_SLAB_BYTES;
use larder_wire::agent::Command;
use larder_wire::master::PutStarted;
use larder_wire::{CallResult, Kind};

use crate::peer::{AgentPeer, Client, end_item, key, start_call};
use crate::rig::Rig;

/// An agent's slabs, each of them full with one object of the client, and one object removed.
/// The agent is asked to erase it and does not say that it has.
async fn full(rig: &Rig) -> (AgentPeer, Client, Vec<Command>) {
    let mut agent = AgentPeer::mount(rig, "node-0", 5).await;
    let mut client = Client::connect(rig, "a").await;
    for number in 0..8 {
        let name = format!("k{number}");
        let waits = send(&mut client, &name).await;
        let commands = agent.commands().await.expect("a slab is wanted").commands;
        agent.obey(commands).await;
        let started = reply(&mut client, waits).await;
        let grant = started.expect("granted");
        let end = end_item(&name, &grant, &[&agent.agent]);
        client.end_one(end).await.expect("complete");
    }
    assert_eq!(client.remove(&["k0"]).await, [Ok(())]);
    let erase = agent.commands().await.expect("an erasure").commands;
    assert!(matches!(erase[..], [Command::Erase { .. }]));
    (agent, client, erase)
}

async fn send(client: &mut Client, name: &str) -> u64 {
    let call = start_call(&[name], MIN_SLAB_BYTES);
    client.0.send(Kind::PutStart, &call, 60_000).await
}

async fn reply(client: &mut Client, request: u64) -> CallResult<larder_wire::master::PutGrant> {
    let reply = client.0.reply::<PutStarted>(request).await.expect("whole");
    reply.answer.grants.into_iter().next().expect("one result")
}

#[tokio::test]
async fn a_put_is_refused_while_readers_hold_what_was_removed() {
    let rig = Rig::start_with(|config| config.space_wait_ms = 1).await;
    let (mut agent, mut client, erase) = full(&rig).await;
    let waits = send(&mut client, "k8").await;
    let error = reply(&mut client, waits).await.expect_err("no space");
    assert_eq!(error.reason, Reason::NoSpace);
    let told = format!("{MIN_SLAB_BYTES} bytes are removed but still held by readers");
    assert!(error.detail.contains(&told), "{error}");
    // Nothing is left of it: the space goes to the next one.
    agent.obey(erase).await;
    rig.until_metric("larder_master_releasing_bytes", &[], 0.0)
        .await;
    let waits = send(&mut client, "k8").await;
    reply(&mut client, waits).await.expect("granted");
    rig.check().await;
}

#[tokio::test]
async fn a_put_is_granted_when_the_space_comes_back_in_time() {
    let rig = Rig::start_with(|config| config.space_wait_ms = 60_000).await;
    let (mut agent, mut client, erase) = full(&rig).await;
    let waits = send(&mut client, "k8").await;
    // The master takes the calls of a connection in order and answers this one first.
    let keys = vec![key("k8")];
    let exists = larder_wire::master::Exists { keys, lease: false };
    let later = client.0.send(Kind::Exists, &exists, 60_000).await;
    let found = client.0.reply::<Vec<CallResult<bool>>>(later).await;
    assert_eq!(found.expect("whole").answer, [Ok(false)]);
    agent.obey(erase).await;
    reply(&mut client, waits).await.expect("granted");
    rig.check().await;
}
