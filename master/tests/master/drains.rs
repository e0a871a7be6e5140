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
        (&alone["objects_left"], &alone["extents_left"]),
        (&json!(3), &json!(3))
    );
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
    assert_eq!(change(&rig, "PUT", "node-9").await, 404);
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

#[tokio::test]
async fn tasks_are_listed_in_pages_and_canceled_by_an_administrator() {
    let rig = Rig::start().await;
    let first = AgentPeer::mount(&rig, "node-0", 10).await.serve();
    let mut client = Client::connect(&rig, "a").await;
    client.put("k", 1_000, &[&first]).await.expect("room");
    // It does not obey, so its tasks stay open.
    let _second = AgentPeer::mount(&rig, "node-1", 11).await;
    let wish = || TaskItem {
        key: key("k"),
        wish: TaskWish::Move {
            source: AgentName::new("node-0").expect("a name"),
            target: AgentName::new("node-1").expect("a name"),
        },
    };
    let created = create(&mut client, vec![wish(), wish(), wish()]).await;
    let ids: Vec<String> = created
        .into_iter()
        .map(|task| task.expect("noted").to_string())
        .collect();
    let page = rig.document("/v1/tasks?limit=2&open=true").await;
    let numbers = |page: &Value| -> Vec<String> {
        let tasks = page["tasks"].as_array().expect("a list").iter();
        let number = |task: &Value| task["task"].as_str().expect("a number").to_owned();
        tasks.map(number).collect()
    };
    assert_eq!(numbers(&page), ids[..2]);
    assert_eq!(page["next"], json!(ids[1]));
    let task = &page["tasks"][0];
    let shown = ["tenant", "key", "wish", "source"].map(|field| task[field].clone());
    assert_eq!(shown, ["a", "k", "move", "node-0"].map(|text| json!(text)));
    assert_eq!(task["targets"], json!(["node-1"]));
    let rest = rig.document(&format!("/v1/tasks?after={}", ids[1])).await;
    assert_eq!(
        (numbers(&rest), &rest["next"]),
        (ids[2..].to_vec(), &Value::Null)
    );
    let others = rig.document("/v1/tasks?tenant=b").await;
    assert_eq!(numbers(&others), Vec::<String>::new());
    let path = format!("/v1/tasks/{}", ids[2]);
    let answer = |method: &'static str, path: String| {
        let rig = &rig;
        async move {
            rig.http(method, &path, Some(&token("operator")), "")
                .await
                .0
        }
    };
    assert_eq!(answer("DELETE", path.clone()).await, 204);
    let canceled = rig.document(&path).await;
    assert_eq!(
        (&canceled["status"], &canceled["reason"]),
        (&json!("failed"), &json!("task_canceled"))
    );
    let open = rig.document("/v1/tasks?open=true").await;
    assert_eq!(numbers(&open), ids[..2]);
    for (path, status) in [
        ("/v1/tasks/7", 404),
        ("/v1/tasks/x", 400),
        ("/v1/tasks?limit=0", 400),
    ] {
        assert_eq!(answer("GET", path.to_owned()).await, status, "{path}");
    }
    rig.check().await;
}
