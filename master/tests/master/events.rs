//! Cache events over the wire: for whom, in which order, and what a late or slow one sees.

use larder_client::{ClientOptions, Credential, EventStream, GoneCause, Update};
use larder_master::Config;
use larder_types::{Epoch, Reason};
use larder_wire::Kind;
use larder_wire::events::{CacheChange, CacheEvent, EventPage, Sequence, Subscribe};
use larder_wire::frame::NO_DEADLINE;

use crate::peer::{AgentPeer, Client, key, reason};
use crate::rig::{Rig, soon, token};

/// Switches cache events on.
pub(crate) fn with_events(config: &mut Config) {
    config.events = Some(serde_json::from_str("{}").expect("valid"));
}

impl Client {
    async fn events(&mut self, from: Option<Sequence>, wait_ms: u32) -> EventPage {
        let call = Subscribe { from, wait_ms };
        let page = self.0.call(Kind::Subscribe, &call).await;
        page.expect("events are on")
    }

    async fn position(&mut self) -> Sequence {
        let (entries, next) = kept(self.events(None, 60_000).await);
        assert_eq!(entries, []);
        next
    }

    /// Key and name of each event from a number on; waits for the first at most so long.
    async fn told(&mut self, from: Sequence, wait_ms: u32) -> Vec<(String, &'static str)> {
        let (entries, _) = kept(self.events(Some(from), wait_ms).await);
        let named = entries.into_iter();
        named
            .map(|event| (event.key.to_string(), event.change.name()))
            .collect()
    }
}

/// The events of a page that is no gap, and the number behind them.
fn kept(page: EventPage) -> (Vec<CacheEvent>, Sequence) {
    match page {
        EventPage::Events { entries, next, .. } => Some((entries, next)),
        EventPage::Gap { .. } => None,
    }
    .expect("all is kept")
}

#[tokio::test]
async fn without_the_setting_there_are_none() {
    let rig = Rig::start().await;
    let mut client = Client::connect(&rig, "a").await;
    let call = Subscribe {
        from: None,
        wait_ms: 0,
    };
    let refused = client.0.call::<EventPage>(Kind::Subscribe, &call).await;
    assert_eq!(reason(refused), Reason::Unsupported);
}

#[tokio::test]
async fn puts_and_removals_are_told_to_their_tenant_alone() {
    let rig = Rig::start_with(with_events).await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut other = Client::connect(&rig, "b").await;
    let of_other = other.position().await;
    let mut client = Client::connect(&rig, "a").await;
    let start = client.position().await;
    for text in ["k1", "k2"] {
        assert_eq!(client.put(text, 100, &[&agent]).await, Ok(()));
    }
    assert_eq!(client.remove(&["k1", "none"]).await[0], Ok(()));
    let (entries, next) = kept(client.events(Some(start), 0).await);
    let stored = CacheChange::Stored {
        size_bytes: 100,
        replaces: None,
    };
    let changes: Vec<_> = entries.iter().map(|e| (&e.key, e.change)).collect();
    assert_eq!(
        changes,
        [
            (&key("k1"), stored),
            (&key("k2"), stored),
            (&key("k1"), CacheChange::Removed)
        ]
    );
    assert_eq!(entries[0].version, entries[2].version);
    assert!(entries[1].version > entries[0].version);
    assert_eq!(next.counter, start.counter + 3);
    assert_eq!(other.told(of_other, 0).await, []);
    for (name, value) in [("stored", 2.0), ("removed", 1.0), ("evicted", 0.0)] {
        let labels = [("tenant", "a"), ("change", name)];
        rig.until_metric("larder_master_events_total", &labels, value)
            .await;
    }
    rig.until_metric("larder_master_events_held", &[("tenant", "a")], 3.0)
        .await;
    // An epoch of another life is a gap, not an error.
    let former = Sequence {
        epoch: Epoch::default(),
        counter: 1,
    };
    let page = client.events(Some(former), 0).await;
    assert_eq!(page, EventPage::Gap { next });
    rig.until_metric("larder_master_event_gaps_total", &[("tenant", "a")], 1.0)
        .await;
}

#[tokio::test]
async fn objects_of_a_lost_agent_are_told_and_so_is_its_tenants_end() {
    let rig = Rig::start_with(with_events).await;
    let peer = AgentPeer::mount(&rig, "node-0", 5).await;
    let (id, incarnation) = (peer.agent.id, peer.agent.incarnation);
    let agent = peer.serve();
    let mut client = Client::connect(&rig, "a").await;
    assert_eq!(client.put("k", 100, &[&agent]).await, Ok(()));
    let before = client.position().await;
    let mut leaving = AgentPeer::connect(&rig, "node-0").await;
    let unmount = larder_wire::agent::Unmount {
        agent: id,
        incarnation,
    };
    leaving
        .call::<()>(Kind::Unmount, &unmount)
        .await
        .expect("gone");
    // The books are put right in steps, which begin with the next tick.
    let told = client.told(before, 30_000).await;
    assert_eq!(told, [("k".to_owned(), "lost")]);
    let agent = AgentPeer::mount(&rig, "node-1", 6).await.serve();
    assert_eq!(client.put("k", 100, &[&agent]).await, Ok(()));
    let path = "/v1/tenants/a";
    let (status, _) = rig.http("DELETE", path, Some(&token("operator")), "").await;
    assert!((200..300).contains(&status), "{status}");
    // Its series go with it.
    let gone = async {
        loop {
            let page = rig.metrics().await;
            let labels = [("tenant", "a"), ("change", "purged")];
            let name = "larder_master_events_total";
            let tenants = rig.document("/v1/tenants").await.to_string();
            if !tenants.contains(r#""tenant":"a""#)
                && larder_telemetry::exposition::value(&page, name, &labels).is_none()
            {
                break;
            }
        }
    };
    soon("the tenant is gone", gone).await;
}

#[tokio::test]
async fn a_subscriber_that_waits_is_told_at_once_or_at_its_end() {
    let rig = Rig::start_with(with_events).await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut client = Client::connect(&rig, "a").await;
    let mut waiting = Client::connect(&rig, "a").await;
    let from = Some(waiting.position().await);
    let call = Subscribe {
        from,
        wait_ms: 30_000,
    };
    let first = waiting.0.send(Kind::Subscribe, &call, NO_DEADLINE).await;
    // A gauge of a tenant shows with its first event; so this one is of no use for knowing that
    // the call has arrived. Its answer comes whichever is first.
    assert_eq!(client.put("k", 100, &[&agent]).await, Ok(()));
    let page = waiting.0.reply::<EventPage>(first).await.expect("told");
    let (entries, next) = kept(page.answer);
    assert_eq!(entries.len(), 1);
    let call = Subscribe {
        from: Some(next),
        wait_ms: 20,
    };
    let second = waiting.0.send(Kind::Subscribe, &call, NO_DEADLINE).await;
    let page = waiting.0.reply::<EventPage>(second).await.expect("told");
    let nothing = EventPage::Events {
        entries: Vec::new(),
        next,
        more: false,
    };
    assert_eq!(page.answer, nothing);
    // More calls that wait than one connection may have: the oldest is answered.
    let call = Subscribe {
        from: Some(next),
        wait_ms: 30_000,
    };
    let mut calls = Vec::new();
    for _ in 0..17 {
        calls.push(waiting.0.send(Kind::Subscribe, &call, NO_DEADLINE).await);
    }
    let page = waiting.0.reply::<EventPage>(calls[0]).await.expect("told");
    assert_eq!(page.answer, nothing);
    rig.until_metric("larder_master_event_subscribers", &[("tenant", "a")], 16.0)
        .await;
    drop(waiting);
    rig.until_metric("larder_master_event_subscribers", &[("tenant", "a")], 0.0)
        .await;
}

async fn follow(rig: &Rig) -> EventStream {
    let token = Credential::new(&token("a")).expect("a token");
    let options = ClientOptions::new(vec![rig.client_addr.to_string()], token);
    let client = larder_client::Client::connect(options).await;
    client.expect("connected").events()
}

async fn next(stream: &mut EventStream) -> Update {
    soon("an update", stream.next()).await.expect("no error")
}

#[tokio::test]
async fn the_client_library_follows_from_a_snapshot_on() {
    let rig = Rig::start_with(with_events).await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut client = Client::connect(&rig, "a").await;
    for text in ["k1", "k2", "k3"] {
        assert_eq!(client.put(text, 100, &[&agent]).await, Ok(()));
    }
    assert_eq!(client.remove(&["k2"]).await, [Ok(())]);
    let mut stream = follow(&rig).await;
    assert_eq!(next(&mut stream).await, Update::Reset);
    for text in ["k1", "k3"] {
        let present = Update::Present {
            key: key(text),
            size_bytes: 100,
        };
        assert_eq!(next(&mut stream).await, present);
    }
    assert_eq!(next(&mut stream).await, Update::Synced);
    assert_eq!(client.put("k2", 7, &[&agent]).await, Ok(()));
    assert_eq!(client.remove(&["k1"]).await, [Ok(())]);
    let stored = next(&mut stream).await;
    let Update::Stored {
        key: stored_key,
        size_bytes: 7,
        replaces: None,
        ..
    } = stored
    else {
        panic!("{stored:?}");
    };
    assert_eq!(stored_key, key("k2"));
    let gone = next(&mut stream).await;
    let Update::Gone {
        cause: GoneCause::Removed,
        key: gone_key,
        ..
    } = gone
    else {
        panic!("{gone:?}");
    };
    assert_eq!(gone_key, key("k1"));
}

#[tokio::test]
async fn a_subscriber_that_was_away_too_long_begins_anew() {
    let small = |config: &mut Config| {
        let text = r#"{"capacity":8192,"capacity_bytes":1048576}"#;
        config.events = Some(serde_json::from_str(text).expect("valid"));
    };
    let rig = Rig::start_with(small).await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut client = Client::connect(&rig, "a").await;
    let mut stream = follow(&rig).await;
    assert_eq!(next(&mut stream).await, Update::Reset);
    assert_eq!(next(&mut stream).await, Update::Synced);
    // Long keys fill what is kept: 600 events of 4 KiB are more than 1 MiB.
    let long = "k".repeat(4_000);
    for _ in 0..300 {
        assert_eq!(client.put(&long, 1, &[&agent]).await, Ok(()));
        assert_eq!(client.remove(&[&long]).await, [Ok(())]);
    }
    assert_eq!(client.put("last", 1, &[&agent]).await, Ok(()));
    let mut updates = Vec::new();
    while updates.last() != Some(&Update::Synced) {
        updates.push(next(&mut stream).await);
    }
    let present = Update::Present {
        key: key("last"),
        size_bytes: 1,
    };
    assert_eq!(updates, [Update::Reset, present, Update::Synced]);
}
