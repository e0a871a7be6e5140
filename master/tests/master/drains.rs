//! Draining through the admin port, and tasks of tenants, with agents that obey.

use larder_types::{AgentName, Reason, TaskId};
use larder_wire::agent::Command;
use larder_wire::master::{TaskCreate, TaskItem, TaskQuery, TaskStatus, TaskWish};
use larder_wire::{CallResult, Kind};
use serde_json::{Value, json};

use crate::peer::{AgentPeer, Client, key, reason};
use crate::rig::{Rig, soon, token};

/// Asks until an agent's drain stands so; its document.
async fn until_state(rig: &Rig, name: &str, state: &str) -> Value {
    let turns = async {
        loop {
            let now = rig.document(&format!("/v1/agents/{name}/drain")).await;
            if now["state"] == state {
                return now;
            }
            tokio::task::yield_now().await;
        }
    };
    soon(state, turns).await
}

async fn change(rig: &Rig, method: &str, name: &str) -> u16 {
    let path = format!("/v1/agents/{name}/drain");
    let (status, _) = rig.http(method, &path, Some(&token("operator")), "").await;
    status
}

#[tokio::test]
async fn an_agent_is_drained_through_the_admin_port() {
    let rig = Rig::start().await;
    let first = AgentPeer::mount(&rig, "node-0", 10).await.serve();
    let mut client = Client::connect(&rig, "a").await;
    for text in ["k", "l", "m"] {
        client.put(text, 1_000, &[&first]).await.expect("room");
    }
    assert_eq!(
        until_state(&rig, "node-0", "active").await["blocked"],
        Value::Null
    );
    assert_eq!(change(&rig, "PUT", "node-0").await, 204);
    let alone = until_state(&rig, "node-0", "draining").await;
    assert_eq!(alone["slabs_left"], 1);
    assert_eq!(
        client
            .start_one("n", 1_000)
            .await
            .map_err(|e| e.reason)
            .err(),
        Some(Reason::NoAgents),
        "nothing new goes there"
    );
    let second = AgentPeer::mount(&rig, "node-1", 11).await.serve();
    let drained = until_state(&rig, "node-0", "drained").await;
    assert_eq!(
        (
            &drained["moved_objects"],
            &drained["moved_bytes"],
            &drained["bytes_left"]
        ),
        (&json!(3), &json!(3_000), &json!(0))
    );
    for grant in client.get(&["k", "l", "m"]).await {
        let grant = grant.expect("still there");
        let (extent, signed) = &grant.replicas[0].extents[0];
        assert_eq!(extent.slab.agent, second.id);
        assert_eq!(second.verify(signed).version, grant.version);
    }
    assert_eq!(change(&rig, "DELETE", "node-0").await, 204);
    until_state(&rig, "node-0", "active").await;
    assert_eq!(change(&rig, "PUT", "node-9").await, 400);
    rig.check().await;
}

#[tokio::test]
async fn the_order_of_a_copy_opens_source_and_target_and_nothing_else() {
    let rig = Rig::start().await;
    let first = AgentPeer::mount(&rig, "node-0", 10).await.serve();
    let mut client = Client::connect(&rig, "a").await;
    client.put("k", 1_000, &[&first]).await.expect("room");
    let mut second = AgentPeer::mount(&rig, "node-1", 11).await;
    assert_eq!(change(&rig, "PUT", "node-0").await, 204);
    let order = loop {
        let mut commands = second.commands().await.expect("commands").commands;
        match commands.pop() {
            Some(Command::Copy(order)) => break order,
            Some(other) => second.obey(vec![other]).await,
            None => {}
        }
    };
    let source = first.verify(&order.from[0].1);
    let target = second.agent.verify(&order.to[0].1);
    assert_eq!(source.version, target.version);
    assert_eq!(
        (source.reach, target.reach),
        (larder_wire::Reach::Read, larder_wire::Reach::Write)
    );
    assert_eq!(target.key, b"k");
    assert_eq!(order.sources[0].name, first.name);
    assert_eq!(order.digest, larder_types::Digest(7));
    assert!(!order.session_token.is_empty() && order.remaining_ms > 0);
    // It fails, and is tried again.
    let failed = larder_wire::agent::Event::CopyFailed {
        copy: order.copy,
        detail: "for the test".to_owned(),
    };
    second.say(vec![failed]).await;
    second.serve();
    until_state(&rig, "node-0", "drained").await;
    rig.check().await;
}

async fn create(client: &mut Client, items: Vec<TaskItem>) -> Vec<CallResult<TaskId>> {
    let call = TaskCreate { items };
    client
        .0
        .call(Kind::TaskCreate, &call)
        .await
        .expect("an answer")
}

async fn query(client: &mut Client, tasks: Vec<TaskId>) -> Vec<CallResult<TaskStatus>> {
    let call = TaskQuery { tasks };
    client
        .0
        .call(Kind::TaskQuery, &call)
        .await
        .expect("an answer")
}

fn copy(text: &str, target: &str) -> TaskItem {
    let targets = vec![AgentName::new(target).expect("a name")];
    TaskItem {
        key: key(text),
        wish: TaskWish::Copy { targets },
    }
}

#[tokio::test]
async fn b28_items_of_a_batch_of_tasks_succeed_and_fail_alone() {
    let rig = Rig::start().await;
    let first = AgentPeer::mount(&rig, "node-0", 10).await.serve();
    let mut client = Client::connect(&rig, "a").await;
    for text in ["k", "l"] {
        client.put(text, 1_000, &[&first]).await.expect("room");
    }
    AgentPeer::mount(&rig, "node-1", 11).await.serve();
    let items = vec![
        copy("k", "node-1"),
        copy("gone", "node-1"),
        copy("k", "node-9"),
        copy("l", "node-1"),
    ];
    let mut created = create(&mut client, items).await;
    let last = created.pop().expect("four").expect("noted");
    assert_eq!(reason(created.pop().expect("three")), Reason::AgentUnknown);
    assert_eq!(reason(created.pop().expect("two")), Reason::NotFound);
    let one = created.pop().expect("one").expect("noted");
    let done = async {
        loop {
            let stand = query(&mut client, vec![one, last]).await;
            if stand == [Ok(TaskStatus::Success), Ok(TaskStatus::Success)] {
                break;
            }
        }
    };
    soon("both tasks end", done).await;
    for grant in client.get(&["k", "l"]).await {
        assert_eq!(grant.expect("there").replicas.len(), 2);
    }
    let unknown = query(&mut client, vec![TaskId(1), one]).await;
    assert_eq!(
        unknown[0].as_ref().map_err(|e| e.reason),
        Err(Reason::TaskUnknown)
    );
    assert_eq!(unknown[1], Ok(TaskStatus::Success));
    rig.until_metric("larder_master_open_tasks", &[], 0.0).await;
    rig.check().await;
}
