//! Starts, stops and restarts.

use larder_types::Epoch;
use larder_wire::RefusedReason;
use serde_json::Value;

use crate::peer::{AgentPeer, Client};
use crate::rig::Rig;

fn epoch(client: &Client) -> Epoch {
    client.0.welcome.as_ref().expect("a welcome").epoch
}

#[tokio::test]
async fn a_restart_keeps_what_is_there_and_leads_in_a_new_term() {
    let rig = Rig::start().await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut client = Client::connect(&rig, "a").await;
    client.put("k", 10, &[&agent]).await.expect("put");
    let first = epoch(&client);
    assert_eq!(
        first,
        Epoch {
            generation: 1,
            term: 1
        }
    );
    let (stopped, folder, config) = rig.stop();
    stopped.expect("a graceful stop");
    assert_eq!(
        client.0.goodbye().await.expect("a goodbye").reason,
        RefusedReason::Stopping
    );

    let rig = Rig::start_in(folder, config).await;
    let mut client = Client::connect(&rig, "a").await;
    assert_eq!(
        epoch(&client),
        Epoch {
            generation: 1,
            term: 2
        }
    );
    AgentPeer::mount(&rig, "node-0", 5).await.serve();
    assert_eq!(client.exists(&["k"]).await, [Ok(true)]);
    rig.check().await;
}

#[tokio::test]
async fn the_ready_file_tells_the_real_addresses() {
    let rig = Rig::start().await;
    Client::connect(&rig, "a").await;
    let path = rig.config.ready_file.clone().expect("configured");
    let text = std::fs::read_to_string(path).expect("it serves, so the file is there");
    let ready: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(ready["client_addr"], rig.client_addr.to_string());
    assert_eq!(ready["admin_addr"], rig.admin_addr.to_string());
    assert_eq!(ready["name"], "small-master-0");
    assert_eq!(ready["pid"], std::process::id());
    assert!(
        rig.client_addr.ip().is_loopback(),
        "bound to what was configured only"
    );
}

#[tokio::test]
async fn b66_a_client_may_come_before_any_agent() {
    let rig = Rig::start().await;
    let mut client = Client::connect(&rig, "a").await;
    assert!(
        client
            .start_one("k", 10)
            .await
            .expect_err("no agents")
            .reason
            .is_retryable()
    );
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    assert_eq!(client.put("k", 10, &[&agent]).await, Ok(()));
}
