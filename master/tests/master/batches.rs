//! Calls of clients: round trips, batches with mixed results, what tenants see of each other.

use larder_types::{Digest, PoolTime, Reason, Version};
use larder_wire::master::{List, Listed, PutRevoke, TenantUsage};
use larder_wire::{Kind, Reach};

use crate::peer::{AgentPeer, Client, end_item, key, reason, start_call, tenant};
use crate::rig::Rig;

#[tokio::test]
async fn an_object_is_put_found_listed_and_removed() {
    let rig = Rig::start().await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut client = Client::connect(&rig, "a").await;
    assert_eq!(client.exists(&["k"]).await, [Ok(false)]);

    let mut started = client.start(&["k"], 1000).await;
    let grant = started.grants.pop().expect("one").expect("granted");
    assert_eq!(started.agents.len(), 1);
    assert_eq!(started.agents[0].name, agent.name);
    assert_eq!(started.agents[0].data_addr, "127.0.0.1:9");
    let (extent, signed) = &grant.replicas[0].extents[0];
    let leave = agent.verify(signed);
    assert_eq!(leave.extent, *extent);
    assert_eq!((leave.reach, leave.part, leave.parts), (Reach::Write, 0, 1));
    assert_eq!((leave.tenant, leave.key), (tenant("a"), b"k".to_vec()));
    assert_eq!((leave.version, leave.object_bytes), (grant.version, 1000));
    assert!(leave.deadline > PoolTime(0) && grant.discard_ms <= 30_000);
    assert_eq!(reason(client.get(&["k"]).await.remove(0)), Reason::NotReady);

    assert_eq!(
        client.end_one(end_item("k", &grant, &[&agent])).await,
        Ok(())
    );
    let found = client.get(&["k"]).await.remove(0).expect("found");
    assert_eq!((found.version, found.size_bytes), (grant.version, 1000));
    assert_eq!(found.digest, Digest(7));
    let leave = agent.verify(&found.replicas[0].extents[0].1);
    assert_eq!((leave.reach, leave.extent), (Reach::Read, *extent));
    assert!(leave.key.is_empty() && leave.deadline >= PoolTime(60_000));

    let listed: Listed = client
        .0
        .call(
            Kind::List,
            &List {
                prefix: Vec::new(),
                after: None,
                limit: 10,
            },
        )
        .await
        .expect("listed");
    assert_eq!(
        (listed.entries, listed.more),
        (vec![(key("k"), 1000)], false)
    );
    let usage = client.usage().await;
    assert_eq!(
        (usage.tenant, usage.used_bytes, usage.objects),
        (tenant("a"), 16_384, 1)
    );
    assert_eq!(
        (usage.reserved_bytes, usage.agents, usage.replica_factor),
        (0, 1, 1)
    );
    assert_eq!(usage.pool_capacity_bytes, 16 << 20);

    assert_eq!(client.remove(&["k"]).await, [Ok(())]);
    assert_eq!(reason(client.get(&["k"]).await.remove(0)), Reason::NotFound);
    rig.until_metric("larder_master_releasing_bytes", &[], 0.0)
        .await;
    rig.check().await;
}

#[tokio::test]
async fn each_item_of_a_batch_has_its_own_result() {
    let rig = Rig::start().await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut client = Client::connect(&rig, "a").await;
    client.put("old", 10, &[&agent]).await.expect("put");

    let keys = ["old", "new", "new", "new2"];
    let grants = client.start(&keys, 10).await.grants;
    assert_eq!(
        grants[0].as_ref().map_err(|e| e.reason).err(),
        Some(Reason::AlreadyExists)
    );
    assert_eq!(
        grants[2].as_ref().map_err(|e| e.reason).err(),
        Some(Reason::BeingWritten)
    );
    let new = grants[1].clone().expect("granted");
    let new2 = grants[3].clone().expect("granted");

    let mut stale = end_item("new2", &new2, &[&agent]);
    stale.version = Version::default();
    let ends = client
        .end(vec![stale, end_item("new", &new, &[&agent])])
        .await;
    assert_eq!(reason(ends[0].clone()), Reason::StaleEpoch);
    assert_eq!(ends[1], Ok(()));
    let objects = client.get(&["none", "new", "old"]).await;
    let found: Vec<bool> = objects.iter().map(Result::is_ok).collect();
    assert_eq!(found, [false, true, true]);
    assert_eq!(
        client.exists(&["old", "none", "new2"]).await,
        [Ok(true), Ok(false), Ok(false)]
    );

    let revoke = PutRevoke {
        items: vec![(key("new2"), new2.version), (key("x"), new.version)],
    };
    let revoked: Vec<larder_wire::CallResult<()>> = client
        .0
        .call(Kind::PutRevoke, &revoke)
        .await
        .expect("an answer");
    // The first when the agent has erased it, the second because there is nothing to give up.
    assert_eq!(revoked, [Ok(()), Ok(())]);
    assert_eq!(client.start(&[], 1).await.grants, []);
    rig.check().await;
}

#[tokio::test]
async fn a_batch_has_limits_by_items_and_by_bytes() {
    let rig = Rig::start().await;
    AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut client = Client::connect(&rig, "a").await;
    let many = vec!["k"; 1025];
    assert_eq!(
        reason(client.try_start(&many, 1).await),
        Reason::BadArgument
    );
    let long: Vec<String> = (0..240)
        .map(|n| format!("{n:04}{}", "x".repeat(4092)))
        .collect();
    let mut call = start_call(&long.iter().map(String::as_str).collect::<Vec<_>>(), 1);
    call.items.iter_mut().for_each(|item| item.replicas = 3);
    let refused: larder_wire::CallResult<larder_wire::master::PutStarted> =
        client.0.call(Kind::PutStart, &call).await;
    assert_eq!(
        reason(refused),
        Reason::BadArgument,
        "its answer would be too long"
    );
    // The connection goes on.
    assert_eq!(client.exists(&["k"]).await, [Ok(false)]);
}

#[tokio::test]
async fn a_list_of_the_longest_keys_is_cut_by_bytes_and_goes_on() {
    let rig = Rig::start().await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut client = Client::connect(&rig, "a").await;
    let keys: Vec<String> = (0..400)
        .map(|n| format!("{n:04}{}", "x".repeat(4092)))
        .collect();
    for some in keys.chunks(100) {
        let some: Vec<&str> = some.iter().map(String::as_str).collect();
        let grants = client.start(&some, 1).await.grants;
        let items = some
            .iter()
            .zip(grants)
            .map(|(text, grant)| end_item(text, &grant.expect("granted"), &[&agent]));
        assert!(client.end(items.collect()).await.iter().all(Result::is_ok));
    }
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let call = List {
            prefix: b"0".to_vec(),
            after: after.clone(),
            limit: 1024,
        };
        let listed: Listed = client.0.call(Kind::List, &call).await.expect("listed");
        after = listed.entries.last().map(|(key, _)| key.clone());
        seen.extend(listed.entries.into_iter().map(|(key, _)| key.to_string()));
        if !listed.more {
            break;
        }
    }
    assert_eq!(seen, keys);
}

#[tokio::test]
async fn a_tenant_sees_only_its_own_keys_and_obeys_its_policy() {
    let rig = Rig::start().await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut a = Client::connect(&rig, "a").await;
    let mut b = Client::connect(&rig, "b").await;
    a.put("secret", 10, &[&agent]).await.expect("put");
    assert_eq!(b.exists(&["secret"]).await, [Ok(false)]);
    assert_eq!(reason(b.get(&["secret"]).await.remove(0)), Reason::NotFound);
    let all = List {
        prefix: Vec::new(),
        after: None,
        limit: 10,
    };
    let listed: Listed = b.0.call(Kind::List, &all).await.expect("listed");
    assert!(listed.entries.is_empty());
    let usage: TenantUsage = b.usage().await;
    assert_eq!(
        (usage.tenant, usage.objects, usage.limit_objects),
        (tenant("b"), 0, Some(10))
    );
    assert_eq!(reason(b.start_one("own", 10).await), Reason::AccessDenied);
    assert_eq!(
        reason(b.remove(&["secret"]).await.remove(0)),
        Reason::AccessDenied
    );
    assert_eq!(
        reason(a.start_one("large", 64 << 20).await),
        Reason::QuotaBytes
    );
    assert_eq!(a.exists(&["secret"]).await, [Ok(true)]);
}

#[tokio::test]
async fn a_call_that_waits_is_answered_at_its_deadline() {
    let rig = Rig::start().await;
    let mut agent = AgentPeer::mount(&rig, "node-0", 5).await;
    let mut client = Client::connect(&rig, "a").await;
    // The slab is asked for and never made.
    let late = client
        .0
        .send(Kind::PutStart, &start_call(&["k"], 10), 50)
        .await;
    let commands = agent.commands().await.expect("a slab is wanted");
    let reply = client
        .0
        .reply::<larder_wire::master::PutStarted>(late)
        .await
        .expect("whole");
    assert_eq!(
        reason(reply.answer.grants[0].clone()),
        Reason::DeadlinePassed
    );
    // When it is made after all, the next call has it.
    agent.obey(commands.commands).await;
    assert!(client.start_one("k", 10).await.is_ok());
    rig.check().await;
}

#[tokio::test]
async fn what_waits_does_not_block_what_does_not() {
    let rig = Rig::start().await;
    let mut agent = AgentPeer::mount(&rig, "node-0", 5).await;
    let mut client = Client::connect(&rig, "a").await;
    let waits = client
        .0
        .send(Kind::PutStart, &start_call(&["k"], 10), 60_000)
        .await;
    let commands = agent.commands().await.expect("a slab is wanted");
    assert_eq!(
        client.exists(&["k"]).await,
        [Ok(false)],
        "answered while the put waits"
    );
    agent.obey(commands.commands).await;
    let reply = client
        .0
        .reply::<larder_wire::master::PutStarted>(waits)
        .await
        .expect("whole");
    assert!(reply.answer.grants[0].is_ok());
}

#[tokio::test]
async fn without_agents_a_put_is_refused_as_retryable() {
    let rig = Rig::start().await;
    let mut client = Client::connect(&rig, "a").await;
    let error = client.start_one("k", 10).await.expect_err("no agents");
    assert_eq!(error.reason, Reason::NoAgents);
    assert!(error.reason.is_retryable());
}
