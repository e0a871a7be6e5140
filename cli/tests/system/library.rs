//! The client library against a real pool: batches, buffers, views, dropped futures.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use larder_client::{Client, ClientError, ClientOptions, Credential, Key, Reason};
use serde_json::Value;

use crate::pool::{Pool, bytes};

/// Far more than anything here takes; only a fault reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client of team-b behind the socket of this agent, or behind none.
async fn client(document: &Value, agent: Option<usize>) -> Client {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let token = std::fs::read_to_string(text(&document["tokens"]["team-b"])).expect("a token");
    let masters = vec![text(&document["masters"][0]["client_addr"])];
    let mut options = ClientOptions::new(masters, Credential::new(&token).expect("a token"));
    options.agent_socket = agent.map(|at| text(&document["agents"][at]["socket"]).into());
    options.default_deadline = PATIENCE;
    Client::connect(options).await.expect("the pool is up")
}

fn key(text: impl AsRef<str>) -> Key {
    Key::try_from(text.as_ref()).expect("a key")
}

#[track_caller]
fn reason<T: std::fmt::Debug>(result: &Result<T, ClientError>) -> Option<Reason> {
    result.as_ref().expect_err("refused").reason()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_item_of_a_batch_has_its_own_result() {
    const COUNT: usize = 1_500;
    let pool = Pool::up();
    let document = pool.document();
    let near = client(&document, Some(0)).await;
    near.put(key("k7"), Bytes::from_static(b"first"))
        .await
        .expect("room");
    let values: Vec<Bytes> = (0..COUNT)
        .map(|n| bytes(1 + n * 17 % 9_000, n as u64).into())
        .collect();
    let mut items: Vec<_> = values
        .iter()
        .enumerate()
        .map(|(n, value)| (key(format!("k{n}")), value.clone()))
        .collect();
    items[9].1 = Bytes::new();
    let put = near.put_batch(items).await;
    assert_eq!(put.len(), COUNT);
    for (n, result) in put.iter().enumerate() {
        match n {
            7 => assert_eq!(reason(result), Some(Reason::AlreadyExists)),
            9 => assert_eq!(reason(result), Some(Reason::EmptyValue)),
            _ => assert_eq!(
                result.as_ref().expect("room").size_bytes,
                values[n].len() as u64
            ),
        }
    }
    let keys: Vec<Key> = (0..COUNT).map(|n| key(format!("k{n}"))).collect();
    for agent in [Some(0), Some(1), None] {
        let got = client(&document, agent).await.get_batch(keys.clone()).await;
        for (n, result) in got.iter().enumerate() {
            match n {
                7 => assert_eq!(result.as_ref().expect("there"), "first"),
                9 => assert_eq!(reason(result), Some(Reason::NotFound)),
                _ => assert!(
                    result.as_ref().expect("there") == &values[n],
                    "{n} via {agent:?}"
                ),
            }
        }
    }
    let there = near.exists_batch(keys.clone()).await;
    assert!(
        there
            .iter()
            .enumerate()
            .all(|(n, is)| *is.as_ref().expect("asked") == (n != 9))
    );
    let removed = near.remove_batch(keys).await;
    assert_eq!(removed.iter().filter(|one| one.is_ok()).count(), COUNT - 1);
    assert_eq!(reason(&removed[9]), Some(Reason::NotFound));
    assert_eq!(near.usage().await.expect("asked").objects, 0);
}

#[tokio::test]
async fn buffers_are_kept_lent_and_given_back() {
    let pool = Pool::up();
    let document = pool.document();
    let near = client(&document, Some(1)).await;
    let value = bytes(300_000, 3);
    let mut lent = near.shared_buffer(1 << 20).await.expect("memory");
    lent.write_at(4096, &value).expect("it fits");
    let lent = near.lend(lent);
    near.put(key("lent"), lent.slice(4096..4096 + value.len()))
        .await
        .expect("room");

    for client in [&near, &client(&document, None).await] {
        let buffer = BytesMut::from(&b"before"[..]);
        let (buffer, info) = client.get_into(key("lent"), buffer).await;
        assert_eq!(info.expect("there").size_bytes, value.len() as u64);
        assert!(buffer[..6] == *b"before" && buffer[6..] == value);
        let (buffer, info) = client.get_into(key("none"), buffer).await;
        assert_eq!(reason(&info), Some(Reason::NotFound));
        assert_eq!(buffer.len(), 6 + value.len(), "as before");
    }
}

#[tokio::test]
async fn a_view_is_local_and_outlives_its_object() {
    let pool = Pool::up();
    let document = pool.document();
    let (here, there) = (
        client(&document, Some(0)).await,
        client(&document, Some(1)).await,
    );
    for length in [4_096, 1 << 20] {
        let value = bytes(length, length as u64);
        let name = key(format!("v{length}"));
        here.put(name.clone(), value.clone().into())
            .await
            .expect("room");
        let view = here
            .get_view(name.clone())
            .await
            .expect("it is on this node");
        assert!(*view == *value && view.verify());
        let error = there
            .get_view(name.clone())
            .await
            .expect_err("it is on the other node");
        assert!(matches!(error, ClientError::NotLocal { .. }), "{error:?}");
        here.remove(name.clone()).await.expect("there");
        // The bytes stay while they are looked at, also when others want the room.
        for n in 0..20 {
            let other = key(format!("{length}-{n}"));
            here.put(other, bytes(length, n).into())
                .await
                .expect("room");
        }
        assert!(*view == *value && view.verify());
        let gone = here.get_view(name).await;
        assert_eq!(reason(&gone), Some(Reason::NotFound));
    }
    let far = client(&document, None).await;
    let error = far.get_view(key("4096-1")).await.expect_err("no socket");
    assert!(matches!(error, ClientError::NotLocal { .. }), "{error:?}");
    let error = far.shared_buffer(1).await.expect_err("no socket");
    assert!(matches!(error, ClientError::NotLocal { .. }), "{error:?}");
}

#[tokio::test]
async fn the_first_put_of_a_client_goes_to_the_agent_of_its_socket() {
    let pool = Pool::up();
    let document = pool.document();
    for n in 0..10 {
        let fresh = client(&document, Some(n % 2)).await;
        let (name, value) = (key(format!("first-{n}")), bytes(70_000, n as u64));
        fresh
            .put(name.clone(), value.clone().into())
            .await
            .expect("room");
        let view = fresh.get_view(name).await.expect("it is on this node");
        assert!(*view == *value);
    }
}

#[tokio::test]
async fn a_put_that_is_dropped_gives_its_room_and_key_back() {
    let pool = Pool::up();
    let client = client(&pool.document(), None).await;
    let value: Bytes = bytes(1 << 20, 5).into();
    for polls in 0..40 {
        let name = key(format!("dropped-{polls}"));
        let mut put = Box::pin(client.put(name.clone(), value.clone()));
        for _ in 0..polls {
            tokio::select! {
                biased;
                _ = &mut put => break,
                () = tokio::task::yield_now() => {}
            }
        }
        drop(put);
    }
    let until = Instant::now() + PATIENCE;
    loop {
        let usage = client.usage().await.expect("asked");
        if usage.reserved_bytes == 0 {
            break;
        }
        assert!(Instant::now() < until, "{usage:?}");
    }
    for polls in 0..40 {
        let name = key(format!("dropped-{polls}"));
        match client.put(name.clone(), value.clone()).await {
            Err(error) if error.reason() == Some(Reason::AlreadyExists) => {}
            put => drop(put.expect("the key is free")),
        }
        assert!(client.get(name.clone()).await.expect("there") == value);
        client.remove(name).await.expect("there");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clones_share_a_client_among_tasks() {
    let pool = Pool::up();
    let client = client(&pool.document(), Some(0)).await;
    let tasks = (0..32_u64).map(|task| {
        let client = client.clone();
        tokio::spawn(async move {
            for round in 0..8 {
                let (name, value) = (key(format!("t{task}")), bytes(70_000, task * 100 + round));
                client
                    .put(name.clone(), value.clone().into())
                    .await
                    .expect("room");
                assert!(client.get(name.clone()).await.expect("there") == value);
                client.remove(name).await.expect("there");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no wrong byte");
    }
}
