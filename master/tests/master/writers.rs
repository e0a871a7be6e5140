//! Writers that die, race, repeat themselves or lie.

use larder_types::{Digest, Incarnation, Reason};
use larder_wire::frame::NO_DEADLINE;
use larder_wire::master::PutEnd;
use larder_wire::{AgentKey, Kind, Receipt};

use crate::peer::{AgentPeer, Client, end_item, reason, start_call};
use crate::rig::{Rig, soon};

/// After a writer is gone its key is free and its space comes back.
async fn assert_free_again(rig: &Rig, agent: &crate::peer::Agent) {
    rig.until_metric("larder_master_pending_puts", &[], 0.0)
        .await;
    rig.until_metric("larder_master_releasing_bytes", &[], 0.0)
        .await;
    let mut second = Client::connect(rig, "a").await;
    assert_eq!(second.usage().await.reserved_bytes, 0);
    if second.exists(&["k"]).await == [Ok(true)] {
        assert_eq!(second.remove(&["k"]).await, [Ok(())]);
    }
    assert_eq!(second.put("k", 1 << 20, &[agent]).await, Ok(()));
    assert_eq!(second.remove(&["k"]).await, [Ok(())]);
    rig.until_metric("larder_master_releasing_bytes", &[], 0.0)
        .await;
    rig.check().await;
}

#[tokio::test]
async fn b01_a_writer_that_dies_at_any_step_blocks_nothing() {
    let rig = Rig::start().await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    for step in 0..5 {
        let mut writer = Client::connect(&rig, "a").await;
        if step == 0 {
            // Half a request.
            writer.0.write(b"LRD1\x10").await;
        } else {
            let request = writer
                .0
                .send(Kind::PutStart, &start_call(&["k"], 1 << 20), 60_000)
                .await;
            if step >= 2 {
                let reply = writer.0.reply(request).await.expect("an answer");
                let started: larder_wire::master::PutStarted = reply.answer;
                let grant = started.grants[0].clone().expect("granted");
                rig.until_metric("larder_master_pending_puts", &[], 1.0)
                    .await;
                let end = PutEnd {
                    items: vec![end_item("k", &grant, &[&agent])],
                };
                if step >= 3 {
                    writer.0.send(Kind::PutEnd, &end, NO_DEADLINE).await;
                }
                if step == 4 {
                    // It is done, and the writer never hears of it.
                    let mut other = Client::connect(&rig, "a").await;
                    soon("the end", async {
                        while other.exists(&["k"]).await != [Ok(true)] {}
                    })
                    .await;
                }
            }
        }
        drop(writer);
        assert_free_again(&rig, &agent).await;
    }
}

#[tokio::test]
async fn b01_a_put_without_an_end_is_taken_over_in_time_and_its_late_end_refused() {
    let rig = Rig::start_with(|config| config.put_discard_ms = 200).await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut zombie = Client::connect(&rig, "a").await;
    let mut second = Client::connect(&rig, "a").await;
    let old = zombie.start_one("k", 100).await.expect("granted");
    let new = soon("the key", async {
        loop {
            match second.start_one("k", 100).await {
                Ok(grant) => return grant,
                Err(error) => assert_eq!(error.reason, Reason::BeingWritten, "{error}"),
            }
        }
    })
    .await;
    assert!(new.version > old.version);
    let late = zombie.end_one(end_item("k", &old, &[&agent])).await;
    assert_eq!(reason(late), Reason::StaleOwner);
    // Nor may it end the put of the second, whose version it learned.
    let stolen = zombie.end_one(end_item("k", &new, &[&agent])).await;
    assert_eq!(reason(stolen), Reason::StaleOwner);
    assert_eq!(second.end_one(end_item("k", &new, &[&agent])).await, Ok(()));
    let found = second.get(&["k"]).await.remove(0).expect("found");
    assert_eq!(found.version, new.version);
    rig.check().await;
}

#[tokio::test]
async fn b02_of_two_writers_of_a_key_one_wins_and_a_repeated_end_is_the_same() {
    let rig = Rig::start().await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut one = Client::connect(&rig, "a").await;
    let mut two = Client::connect(&rig, "a").await;
    let keys: Vec<String> = (0..10).map(|n| format!("k{n}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    for _ in 0..20 {
        // Both saw nothing there, and both ask at once.
        let first = one
            .0
            .send(Kind::PutStart, &start_call(&keys, 100), 60_000)
            .await;
        let second = two
            .0
            .send(Kind::PutStart, &start_call(&keys, 100), 60_000)
            .await;
        let started =
            |reply: larder_wire::Reply<larder_wire::master::PutStarted>| reply.answer.grants;
        let first = started(one.0.reply(first).await.expect("an answer"));
        let second = started(two.0.reply(second).await.expect("an answer"));
        let mut won = [Vec::new(), Vec::new()];
        for ((text, first), second) in keys.iter().zip(first).zip(second) {
            let (winner, grant, lost) = match (first, second) {
                (Ok(grant), Err(lost)) => (0, grant, lost),
                (Err(lost), Ok(grant)) => (1, grant, lost),
                both => panic!("{text}: {both:?}"),
            };
            let expected = [Reason::BeingWritten, Reason::AlreadyExists];
            assert!(expected.contains(&lost.reason), "{lost}");
            won[winner].push(end_item(text, &grant, &[&agent]));
        }
        let [first, second] = won;
        for (client, items) in [(&mut one, first), (&mut two, second)] {
            assert!(client.end(items.clone()).await.iter().all(Result::is_ok));
            let again = client.end(items).await;
            assert!(
                again.iter().all(Result::is_ok),
                "an end may be repeated: {again:?}"
            );
        }
        assert!(one.remove(&keys).await.iter().all(Result::is_ok));
    }
    rig.check().await;
}

#[tokio::test]
async fn receipts_that_prove_nothing_are_refused() {
    let rig = Rig::start().await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut client = Client::connect(&rig, "a").await;
    let grant = client.start_one("k", 100).await.expect("granted");
    let honest = end_item("k", &grant, &[&agent]);
    let extent = grant.replicas[0].extents[0].0;
    let sign = |incarnation, extent, key: &AgentKey| {
        Receipt::sign(incarnation, extent, grant.version, Digest(7), key)
    };
    let mut elsewhere = extent;
    elsewhere.offset_bytes += 256;
    let mut nobody = extent;
    nobody.slab.agent.0 += 1;
    let mut altered = honest.receipts[0].clone();
    altered.digest = Digest(8);
    let made_up = AgentKey::new([9; 32], 1);
    let cases = [
        ("none", vec![]),
        (
            "twice",
            vec![honest.receipts[0].clone(), honest.receipts[0].clone()],
        ),
        ("altered", vec![altered]),
        ("forged", vec![sign(agent.incarnation, extent, &made_up)]),
        (
            "former life",
            vec![sign(Incarnation(4), extent, &agent.key)],
        ),
        (
            "another extent",
            vec![sign(agent.incarnation, elsewhere, &agent.key)],
        ),
        (
            "another agent",
            vec![sign(agent.incarnation, nobody, &agent.key)],
        ),
    ];
    for (what, receipts) in cases {
        let mut item = honest.clone();
        item.receipts = receipts;
        assert_eq!(
            reason(client.end_one(item).await),
            Reason::BadReceipt,
            "{what}"
        );
    }
    assert_eq!(
        client.end_one(honest).await,
        Ok(()),
        "the put was not hurt by that"
    );
    rig.check().await;
}
