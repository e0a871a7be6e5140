//! Tenants at their limits and beside each other, over the wire and the admin port.

use larder_types::{ErrorCode, Reason};
use larder_wire::master::{List, Listed, RemovePrefix, RemovedSome};
use larder_wire::{CallResult, Kind};
use serde_json::{Value, json};

use crate::peer::{Agent, AgentPeer, Client};
use crate::rig::{Rig, token};

const BLOCK: u64 = 512 << 10;

async fn set(rig: &Rig, tenant: &str, policy: Value) {
    let path = format!("/v1/tenants/{tenant}");
    let admin = token("operator");
    let (status, body) = rig
        .http("PUT", &path, Some(&admin), &policy.to_string())
        .await;
    assert_eq!(status, 204, "{body}");
}

async fn listed(client: &mut Client) -> Vec<String> {
    let list = List {
        prefix: vec![],
        after: None,
        limit: u32::MAX,
    };
    let page: Listed = client.0.call(Kind::List, &list).await.expect("listed");
    let keys = page.entries.into_iter().map(|(key, _)| key.to_string());
    keys.collect()
}

/// Twice what the tenant may hold; the keys that were answered with success.
async fn overfill(client: &mut Client, agent: &Agent) -> (Vec<String>, usize) {
    let (mut done, mut refused) = (Vec::new(), 0);
    for number in 0..16 {
        let name = format!("k{number:02}");
        match client.put(&name, BLOCK, &[agent]).await {
            Ok(()) => done.push(name),
            Err(error) => {
                assert_eq!(error.reason, Reason::QuotaBytes, "{error}");
                assert_eq!(error.code(), ErrorCode::TenantQuotaExceeded);
                refused += 1;
            }
        }
    }
    (done, refused)
}

#[tokio::test]
async fn b38_answers_at_a_limit_agree_with_what_is_stored() {
    let rig = Rig::start().await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    set(&rig, "b", json!({ "access": "ReadWrite" })).await;
    let mut beside = Client::connect(&rig, "b").await;
    beside.put("k00", BLOCK, &[&agent]).await.expect("room");
    let mut client = Client::connect(&rig, "a").await;

    let policy = json!({ "limit_bytes": 8 * BLOCK, "on_exceed": "Refuse" });
    set(&rig, "a", policy).await;
    let (done, refused) = overfill(&mut client, &agent).await;
    assert_eq!((done.len(), refused), (8, 8));
    assert_eq!(listed(&mut client).await, done, "nothing was evicted");
    assert_eq!(client.usage().await.used_bytes, 8 * BLOCK);
    let keys: Vec<&str> = done.iter().map(String::as_str).collect();
    assert!(client.remove(&keys).await.iter().all(Result::is_ok));

    let policy = json!({ "limit_bytes": 8 * BLOCK, "on_exceed": "EvictOwn" });
    set(&rig, "a", policy).await;
    let (done, refused) = overfill(&mut client, &agent).await;
    assert_eq!((done.len(), refused), (16, 0), "its own coldest make room");
    let left = listed(&mut client).await;
    assert!((4..=8).contains(&left.len()), "{left:?}");
    assert_eq!(client.usage().await.used_bytes, left.len() as u64 * BLOCK);
    assert_eq!(beside.exists(&["k00"]).await, [Ok(true)], "untouched");
    rig.check().await;
}

#[tokio::test]
async fn b40_bulk_calls_reach_one_tenant_only() {
    let rig = Rig::start().await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    set(&rig, "b", json!({ "access": "ReadWrite" })).await;
    let mut a = Client::connect(&rig, "a").await;
    let mut b = Client::connect(&rig, "b").await;
    let keys = ["k", "prefix/1", "prefix/2"];
    for text in keys {
        b.put(text, 1000, &[&agent]).await.expect("room");
    }
    let admin = token("operator");
    for round in 0..3 {
        for text in keys {
            a.put(text, 1000, &[&agent]).await.expect("room");
        }
        match round {
            0 => {
                let all = RemovePrefix {
                    prefix: vec![],
                    after: None,
                    limit: u32::MAX,
                    if_unleased: false,
                };
                let gone: CallResult<RemovedSome> = a.0.call(Kind::RemovePrefix, &all).await;
                assert_eq!(gone.expect("removed").removed, 3);
            }
            1 => {
                let path = "/v1/tenants/a/objects?pattern=.*";
                let (status, body) = rig.http("DELETE", path, Some(&admin), "").await;
                assert_eq!(status, 200, "{body}");
            }
            // A whole tenant goes; its ends are awaited by what it held.
            _ => {
                let (status, body) = rig.http("DELETE", "/v1/tenants/a", Some(&admin), "").await;
                assert!([202, 204].contains(&status), "{status} {body}");
                rig.until_metric("larder_master_objects", &[("tenant", "b")], 3.0)
                    .await;
            }
        }
        if round < 2 {
            assert_eq!(listed(&mut a).await, Vec::<String>::new());
        }
        assert_eq!(listed(&mut b).await, keys, "of the other tenant");
    }
    // The scope of an administrator is no tenant's.
    for path in ["/v1/tenants/b", "/v1/tenants/b/objects"] {
        let own = token("b");
        let (status, _) = rig.http("DELETE", path, Some(&own), "").await;
        assert_eq!(status, 403, "{path}");
    }
    assert_eq!(listed(&mut b).await, keys);
    rig.check().await;
}
