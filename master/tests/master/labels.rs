//! Where agents are, through the admin port.

use serde_json::{Value, json};

use crate::peer::AgentPeer;
use crate::rig::{Rig, token};

async fn set(rig: &Rig, name: &str, body: &str) -> u16 {
    let path = format!("/v1/agents/{name}/labels");
    let (status, _) = rig.http("PUT", &path, Some(&token("operator")), body).await;
    status
}

async fn agent(rig: &Rig, name: &str) -> Value {
    let agents = rig.document("/v1/agents").await;
    let mut agents = agents["agents"].as_array().expect("a list").iter();
    let found = agents.find(|agent| agent["name"] == name);
    found.expect("it is known").clone()
}

#[tokio::test]
async fn labels_are_set_through_the_admin_port_and_shown() {
    let rig = Rig::start().await;
    let peer = AgentPeer::mount(&rig, "node-0", 10).await;
    let shown = agent(&rig, "node-0").await;
    let own = json!({"host": "node-0", "rack": null, "zone": null, "numa": null});
    assert_eq!(shown["labels"], own);
    assert_eq!(
        (&shown["id"], &shown["online"], &shown["used_bytes"]),
        (&json!(peer.agent.id.0), &json!(true), &json!(0))
    );
    assert_eq!(
        shown["capacity_bytes"],
        8 * larder_types::layout::MIN_SLAB_BYTES
    );
    let body = r#"{"host": "h1", "zone": "z.1"}"#;
    assert_eq!(set(&rig, "node-0", body).await, 204);
    let now = json!({"host": "h1", "rack": null, "zone": "z.1", "numa": null});
    assert_eq!(agent(&rig, "node-0").await["labels"], now);
    // What is left out is cleared.
    assert_eq!(set(&rig, "node-0", "{}").await, 204);
    assert_eq!(agent(&rig, "node-0").await["labels"], own);
    assert_eq!(set(&rig, "node-9", body).await, 404);
    for body in [
        "",
        "[]",
        r#"{"host": ""}"#,
        r#"{"rack": "a b"}"#,
        r#"{"row": "r"}"#,
    ] {
        assert_eq!(set(&rig, "node-0", body).await, 422, "{body}");
    }
    rig.check().await;
}
