//! Objects over the wire: upserts, pins, leases, what is known of them, and many at once.

use larder_store::MAX_LISTED;
use larder_types::{Attributes, DataType, GroupId, Pin, Reason};
use larder_wire::master::{
    Exists, ListStats, ListedStats, Pin as PinCall, PutGrant, PutMode, PutStart, PutStartItem,
    PutStarted, Remove, RemovePrefix, RemovedSome, Stat, Stats,
};
use larder_wire::{CallResult, Kind};
use serde_json::Value;

use crate::peer::{Agent, AgentPeer, Client, end_item, key, reason, start_call};
use crate::rig::{Rig, token};

async fn start(client: &mut Client, item: PutStartItem) -> CallResult<PutGrant> {
    let call = PutStart { items: vec![item] };
    let started: CallResult<PutStarted> = client.0.call(Kind::PutStart, &call).await;
    started?.grants.pop().expect("one result")
}

fn upsert(text: &str, size_bytes: u64) -> PutStartItem {
    let mut item = start_call(&[text], size_bytes).items.remove(0);
    item.mode = PutMode::Upsert { if_unleased: false };
    item
}

async fn stats(client: &mut Client, keys: &[&str]) -> Stats {
    let keys = keys.iter().map(|text| key(text)).collect();
    client
        .0
        .call(Kind::Stat, &Stat { keys })
        .await
        .expect("an answer")
}

async fn remove(client: &mut Client, keys: &[&str], if_unleased: bool) -> Vec<CallResult<()>> {
    let keys = keys.iter().map(|text| key(text)).collect();
    let call = Remove { keys, if_unleased };
    client.0.call(Kind::Remove, &call).await.expect("an answer")
}

#[tokio::test]
async fn an_upsert_switches_at_its_end() {
    let rig = Rig::start().await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut client = Client::connect(&rig, "a").await;
    client.put("k", 1000, &[&agent]).await.expect("put");
    let refused = start(&mut client, start_call(&["k"], 10).items.remove(0)).await;
    assert_eq!(reason(refused), Reason::AlreadyExists);
    let old = client.get(&["k"]).await.remove(0).expect("there");
    assert_eq!(old.lease_ms, 10_000);
    let grant = start(&mut client, upsert("k", 2000))
        .await
        .expect("granted");
    assert_eq!(
        client.get(&["k"]).await.remove(0).expect("there").version,
        old.version
    );
    let done = client.end_one(end_item("k", &grant, &[&agent])).await;
    assert_eq!(done, Ok(()));
    let new = client.get(&["k"]).await.remove(0).expect("there");
    assert_eq!((new.version, new.size_bytes), (grant.version, 2000));
    rig.until_metric("larder_master_releasing_bytes", &[], 0.0)
        .await;
    let mut polite = upsert("k", 10);
    polite.mode = PutMode::Upsert { if_unleased: true };
    assert_eq!(reason(start(&mut client, polite).await), Reason::LeaseHeld);
    rig.check().await;
}

#[tokio::test]
async fn what_a_put_says_is_told_again() {
    let rig = Rig::start().await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut client = Client::connect(&rig, "a").await;
    let said = Attributes {
        pin: Pin::Soft { ttl_ms: 60_000 },
        group: Some(GroupId::new("prefix").expect("a name")),
        data_type: DataType::new(1).expect("known"),
    };
    let mut item = upsert("k", 1000);
    (item.strict, item.replicas) = (false, 3);
    item.preferred = vec![
        agent.name.clone(),
        larder_types::AgentName::new("gone").expect("one"),
    ];
    item.attributes = said.clone();
    let grant = start(&mut client, item).await.expect("granted");
    assert_eq!(
        (grant.replicas.len(), grant.wanted),
        (1, 3),
        "the deficit is visible"
    );
    assert!(
        !grant.preference_ignored,
        "the one replica is where it should be"
    );
    let done = client.end_one(end_item("k", &grant, &[&agent])).await;
    assert_eq!(done, Ok(()));

    let mut strict = upsert("l", 10);
    strict.replicas = 3;
    assert_eq!(
        reason(start(&mut client, strict).await),
        Reason::TooFewAgents
    );
    let mut elsewhere = upsert("m", 10);
    elsewhere.preferred = vec![larder_types::AgentName::new("gone").expect("a name")];
    let grant = start(&mut client, elsewhere).await.expect("granted");
    assert!(grant.preference_ignored);
    let mut many = upsert("n", 10);
    many.preferred = vec![agent.name.clone(); 17];
    assert_eq!(reason(start(&mut client, many).await), Reason::BadArgument);

    let Stats { agents, objects } = stats(&mut client, &["k", "none", "m"]).await;
    assert_eq!(agents, [(agent.id, agent.name.clone())]);
    let known = objects[0].clone().expect("there");
    assert_eq!(
        (known.attributes, known.wanted, known.leased),
        (said, 3, false)
    );
    assert_eq!(known.agents, [agent.id]);
    assert!((50_000..=60_000).contains(&known.pin_left_ms));
    let reasons: Vec<_> = objects[1..].iter().map(|one| reason(one.clone())).collect();
    assert_eq!(reasons, [Reason::NotFound, Reason::NotReady]);
}

#[tokio::test]
async fn pins_and_leases_go_over_the_wire() {
    let rig = Rig::start().await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut client = Client::connect(&rig, "a").await;
    for text in ["k", "l", "m"] {
        client.put(text, 1000, &[&agent]).await.expect("put");
    }
    let call = PinCall {
        items: vec![
            (key("k"), Pin::Hard),
            (key("none"), Pin::Hard),
            (key("l"), Pin::None),
        ],
    };
    let pinned: Vec<CallResult<()>> = client.0.call(Kind::Pin, &call).await.expect("an answer");
    assert_eq!((&pinned[0], &pinned[2]), (&Ok(()), &Ok(())));
    assert_eq!(reason(pinned[1].clone()), Reason::NotFound);
    assert_eq!(client.usage().await.pinned_bytes, 16_384);
    rig.until_metric("larder_master_pinned_bytes", &[("tenant", "a")], 16_384.0)
        .await;

    client.get(&["l"]).await.remove(0).expect("there");
    let probe = Exists {
        keys: vec![key("m"), key("none")],
        lease: true,
    };
    let found: Vec<CallResult<bool>> = client.0.call(Kind::Exists, &probe).await.expect("found");
    assert_eq!(found, [Ok(true), Ok(false)]);
    let removed = remove(&mut client, &["l", "m", "k"], true).await;
    let reasons: Vec<_> = removed[..2].iter().map(|one| reason(one.clone())).collect();
    assert_eq!(reasons, [Reason::LeaseHeld, Reason::LeaseHeld]);
    assert_eq!(removed[2], Ok(()), "a pin is no lease");
    assert_eq!(client.usage().await.pinned_bytes, 0);
    assert_eq!(
        remove(&mut client, &["l", "m"], false).await,
        [Ok(()), Ok(())]
    );
    rig.check().await;
}

/// More keys than one page, of one tenant among two.
async fn filled(rig: &Rig) -> (Agent, Client, usize) {
    let agent = AgentPeer::mount(rig, "node-0", 5).await.serve();
    let mut client = Client::connect(rig, "a").await;
    let count = MAX_LISTED + 200;
    let keys: Vec<String> = (0..count).map(|n| format!("{}/{n:05}", n % 2)).collect();
    for some in keys.chunks(500) {
        let some: Vec<&str> = some.iter().map(String::as_str).collect();
        let grants = client.start(&some, 1).await.grants;
        let items = some
            .iter()
            .zip(grants)
            .map(|(text, grant)| end_item(text, &grant.expect("granted"), &[&agent]));
        assert!(client.end(items.collect()).await.iter().all(Result::is_ok));
    }
    (agent, client, count)
}

#[tokio::test]
async fn a_prefix_is_listed_and_removed_by_pages() {
    let rig = Rig::start().await;
    let (agent, mut client, count) = filled(&rig).await;
    let list = |after| ListStats {
        prefix: vec![],
        after,
        limit: u32::MAX,
    };
    let page: ListedStats = client
        .0
        .call(Kind::ListStats, &list(None))
        .await
        .expect("listed");
    assert_eq!((page.entries.len(), page.more), (MAX_LISTED, true));
    assert_eq!(page.agents, [(agent.id, agent.name.clone())]);
    let after = page.entries.last().map(|(key, _)| key.clone());
    let rest: ListedStats = client
        .0
        .call(Kind::ListStats, &list(after))
        .await
        .expect("listed");
    assert_eq!((rest.entries.len(), rest.more), (200, false));

    let (mut after, mut removed, mut pages) = (None, 0, 0);
    loop {
        let call = RemovePrefix {
            prefix: vec![],
            after,
            limit: u32::MAX,
            if_unleased: true,
        };
        let some: CallResult<RemovedSome> = client.0.call(Kind::RemovePrefix, &call).await;
        let some = some.expect("removed");
        (removed, pages) = (removed + some.removed, pages + 1);
        after = some.last;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((removed, pages), (count as u64, 2));
    assert_eq!(client.usage().await.objects, 0);
    rig.until_metric("larder_master_releasing_bytes", &[], 0.0)
        .await;
    rig.check().await;
}

#[tokio::test]
async fn an_administrator_lists_and_removes_by_pattern() {
    let rig = Rig::start().await;
    let (_agent, mut client, count) = filled(&rig).await;
    let admin = token("operator");
    let ask = async |method: &str, query: &str| {
        let path = format!("/v1/tenants/a/objects?{query}");
        let (status, body) = rig.http(method, &path, Some(&admin), "").await;
        let body: Value = serde_json::from_str(&body).expect("JSON");
        (status, body)
    };
    let (status, found) = ask("GET", "pattern=1/.*7$").await;
    assert_eq!(status, 200);
    let objects = found["objects"].as_array().expect("a list");
    assert_eq!((objects.len(), &found["next"]), (count / 10, &Value::Null));
    assert_eq!(found["scanned"], count);
    assert_eq!(objects[0]["key"], "1/00007");
    let (_, first) = ask("GET", "").await;
    let next = first["next"].as_str().expect("there is more");
    let (_, rest) = ask("GET", &format!("after={next}")).await;
    assert_eq!(rest["objects"].as_array().map(Vec::len), Some(200));

    client.get(&["1/00007"]).await.remove(0).expect("there");
    let (status, done) = ask("DELETE", "pattern=7$&prefix=1/&if_unleased=true").await;
    assert_eq!(status, 200, "{done}");
    assert_eq!(
        (&done["removed"], &done["skipped"]),
        (&(count / 10 - 1).into(), &1.into())
    );
    let (_, done) = ask("DELETE", "pattern=7$").await;
    assert_eq!(done["removed"], 1);
    assert_eq!(client.usage().await.objects, (count - count / 10) as u64);

    for wrong in ["pattern=(", "after=zz", "patern=a"] {
        let (status, refusal) = ask("GET", wrong).await;
        assert_eq!(status, 400, "{wrong}");
        assert_eq!(refusal["error"]["code"], -600, "{wrong}");
    }
    let path = "/v1/tenants/none/objects";
    assert_eq!(rig.http("GET", path, Some(&admin), "").await.0, 404);
    for credential in [None, Some(token("a"))] {
        let path = "/v1/tenants/a/objects";
        let (status, _) = rig.http("DELETE", path, credential.as_deref(), "").await;
        assert!([401, 403].contains(&status));
    }
    rig.check().await;
}
