//! Two endpoints, or one and a peer that misbehaves, on loopback.

mod fences;
mod rails;

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use larder_types::{Incarnation, TenantId};
use larder_wire::RefusedReason;
use larder_wire::engine::{BufferAccess, Notice, Refusal};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio::time::Instant;

use super::*;
use crate::lane::LaneError;

const BOTH: BufferAccess = BufferAccess {
    read: true,
    write: true,
};
const MIB: u64 = 1 << 20;

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).expect("a name")
}

fn options(life: u64) -> EndpointOptions {
    let secret = b"of the engines".to_vec();
    EndpointOptions::new("test", Incarnation(life), tenant("a"), secret)
}

fn soon() -> Asked {
    Asked::by(Instant::now() + Duration::from_secs(30))
}

/// Bytes that differ from place to place and from seed to seed.
fn pattern(seed: u64, bytes: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut all: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| next()).collect();
    all.truncate(usize::try_from(bytes).expect("small"));
    all
}

fn content(memory: &OwnMemory) -> Vec<u8> {
    let mut out = vec![0; usize::try_from(memory.bytes()).expect("small")];
    memory.copy_out(0, &mut out).expect("in range");
    out
}

/// Memory that is registered at an endpoint.
fn buffer(endpoint: &Endpoint, bytes: u64, seed: u64) -> (Arc<OwnMemory>, BufferKey) {
    let memory = Arc::new(OwnMemory::create(bytes).expect("memory"));
    memory.copy_in(0, &pattern(seed, bytes)).expect("in range");
    let key = endpoint.register(Arc::clone(&memory), BOTH, Vec::new());
    (memory, key.expect("free"))
}

/// All of one buffer against all of another.
fn whole(local: &OwnMemory, remote: &OwnMemory) -> Range {
    Range {
        local_address: local.address(),
        remote_address: remote.address(),
        bytes: local.bytes().min(remote.bytes()),
    }
}

/// An endpoint that serves; where, and what stops it.
struct Served {
    endpoint: Endpoint,
    addr: String,
    _stop: watch::Sender<bool>,
}

async fn served_at(options: EndpointOptions, addr: &str) -> Served {
    let endpoint = Endpoint::new(options);
    let listener = TcpListener::bind(addr).await.expect("loopback");
    let addr = listener.local_addr().expect("bound").to_string();
    let (stop, stopped) = watch::channel(false);
    let server = endpoint.clone();
    spawn_local(async move { server.serve(listener, stopped).await });
    Served {
        endpoint,
        addr,
        _stop: stop,
    }
}

async fn served(life: u64) -> Served {
    served_at(options(life), "127.0.0.1:0").await
}

/// Runs a test on one thread, to its end and not for ever.
fn run(test: impl Future<Output = ()> + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        tokio::time::timeout(Duration::from_secs(120), test)
            .await
            .expect("within two minutes");
    });
}

#[test]
fn bytes_of_all_sizes_go_both_ways_and_are_the_same() {
    run(async {
        let (there, here) = (served(2).await, Endpoint::new(options(1)));
        for (seed, bytes) in [1, 4_096, 65_536, 65_537, 3 * MIB + 5, 40 * MIB]
            .into_iter()
            .enumerate()
        {
            let seed = seed as u64;
            let (remote, remote_key) = buffer(&there.endpoint, bytes, 100 + seed);
            let (local, local_key) = buffer(&here, bytes, 200 + seed);
            let peer = here.open(&there.addr).await.expect("it listens");
            let range = [whole(&local, &remote)];
            let outcome = here.transfer(peer, Direction::Write, &range, soon()).await;
            assert_eq!(outcome.expect("done").transfers, [Ok(())]);
            assert!(
                content(&remote) == pattern(200 + seed, bytes),
                "{bytes} written"
            );
            remote
                .copy_in(0, &pattern(300 + seed, bytes))
                .expect("in range");
            let outcome = here.transfer(peer, Direction::Read, &range, soon()).await;
            assert_eq!(outcome.expect("done").transfers, [Ok(())]);
            assert!(
                content(&local) == pattern(300 + seed, bytes),
                "{bytes} read"
            );
            here.close(peer);
            here.unregister(local_key).await.expect("there");
            there.endpoint.unregister(remote_key).await.expect("there");
        }
    });
}

#[test]
fn many_ranges_go_in_one_request() {
    run(async {
        let (there, here) = (served(2).await, Endpoint::new(options(1)));
        let (remote, _) = buffer(&there.endpoint, 4 * MIB, 1);
        let (local, _) = buffer(&here, 4 * MIB, 2);
        let peer = here.open(&there.addr).await.expect("it listens");
        // Each second block of 4 KiB, in reverse at the peer.
        let blocks = 512_u64;
        let ranges: Vec<Range> = (0..blocks)
            .map(|number| Range {
                local_address: local.address() + number * 8_192,
                remote_address: remote.address() + (blocks - 1 - number) * 8_192 + 4_096,
                bytes: 4_096,
            })
            .collect();
        let outcome = here.transfer(peer, Direction::Write, &ranges, soon()).await;
        assert!(outcome.expect("done").transfers.iter().all(Result::is_ok));
        let (before, sent, after) = (pattern(1, 4 * MIB), pattern(2, 4 * MIB), content(&remote));
        for number in 0..usize::try_from(blocks).expect("small") {
            let (from, to) = (number * 8_192, (511 - number) * 8_192);
            assert!(after[to + 4_096..to + 8_192] == sent[from..from + 4_096]);
            assert!(after[to..to + 4_096] == before[to..to + 4_096], "untouched");
        }
    });
}

#[test]
fn a_transfer_goes_on_when_nobody_looks() {
    run(async {
        let (there, here) = (served(2).await, Endpoint::new(options(1)));
        let (remote, _) = buffer(&there.endpoint, MIB, 1);
        let (local, _) = buffer(&here, MIB, 2);
        let peer = here.open(&there.addr).await.expect("it listens");
        let range = [whole(&local, &remote)];
        let pending = here.submit(peer, Direction::Write, &range, soon());
        let pending = pending.expect("taken");
        while content(&remote) != pattern(2, MIB) {
            tokio::task::yield_now().await;
        }
        assert_eq!(pending.await.transfers, [Ok(())]);
        assert!(here.0.shared.is_at_rest());
    });
}

#[test]
fn each_of_many_at_once_hears_of_its_own_end() {
    run(async {
        let (there, here) = (served(2).await, Endpoint::new(options(1)));
        let (remote, _) = buffer(&there.endpoint, MIB, 1);
        let (local, _) = buffer(&here, MIB, 2);
        let peer = here.open(&there.addr).await.expect("it listens");
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..16 {
            let here = here.clone();
            let range = Range {
                local_address: local.address() + number * 65_536,
                remote_address: remote.address() + number * 65_536,
                bytes: 65_536,
            };
            tasks.spawn_local(async move {
                for _ in 0..50 {
                    let done = here
                        .transfer(peer, Direction::Write, &[range], soon())
                        .await;
                    done.expect("done");
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.expect("no panic");
        }
        assert!(content(&remote) == pattern(2, MIB));
        assert!(here.0.shared.is_at_rest());
    });
}

#[test]
fn only_peers_of_the_tenant_with_the_secret_are_served() {
    run(async {
        let there = served(2).await;
        let _known = buffer(&there.endpoint, MIB, 1);
        let mut wrong = options(1);
        wrong.credential = b"of somebody else".to_vec();
        let refused = Endpoint::new(wrong).open(&there.addr).await;
        assert_eq!(refusal_of(refused), Some(RefusedReason::Credential));
        // One whose judge knows tenants apart.
        let mut judging = options(3);
        judging.trust = Trust::new(tenant("a"), |shown| {
            Ok(tenant(std::str::from_utf8(shown).expect("text")))
        });
        let judging = served_at(judging, "127.0.0.1:0").await;
        for (name, reason) in [("b", Some(RefusedReason::Role)), ("a", None)] {
            let mut named = options(4);
            named.credential = name.as_bytes().to_vec();
            let opened = Endpoint::new(named).open(&judging.addr).await;
            assert_eq!(refusal_of(opened), reason, "{name}");
        }
        assert_eq!(there.endpoint.0.shared.connections.known(), 0);
    });
}

fn refusal_of(opened: Result<PeerKey, CallError>) -> Option<RefusedReason> {
    match opened {
        Ok(_) => None,
        Err(CallError::Lane {
            source: LaneError::Refused(refused),
            ..
        }) => Some(refused.reason),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn idle_sockets_do_not_keep_a_peer_out() {
    run(async {
        let (there, here) = (served(2).await, Endpoint::new(options(1)));
        let _known = buffer(&there.endpoint, MIB, 1);
        let mut idle = Vec::new();
        for _ in 0..300 {
            idle.push(TcpStream::connect(&there.addr).await.expect("loopback"));
        }
        // A server that serves one after the other would need 5 s for each: longer than tests run.
        here.open(&there.addr).await.expect("they do not matter");
        assert!(there.endpoint.0.shared.connections.strangers() <= 256);
    });
}

#[test]
fn nothing_is_left_of_peers_that_were_opened_and_closed() {
    run(async {
        let (there, here) = (served(2).await, Endpoint::new(options(1)));
        let (remote, _) = buffer(&there.endpoint, MIB, 1);
        let (local, _) = buffer(&here, MIB, 2);
        let range = [whole(&local, &remote)];
        for _ in 0..200 {
            let peer = here.open(&there.addr).await.expect("it listens");
            let done = here.transfer(peer, Direction::Read, &range, soon()).await;
            done.expect("done");
            let pending = here.submit(peer, Direction::Read, &range, soon());
            let pending = pending.expect("taken");
            here.close(peer);
            assert_eq!(pending.await.transfers, [Err(Failure::PeerGone)]);
            let late = here.submit(peer, Direction::Read, &range, soon());
            assert_eq!(late.err(), Some(SubmitError::NoPeer));
        }
        assert!(here.0.shared.is_at_rest());
        assert!(here.0.shared.look(|state| state.peers.is_empty()));
        while there.endpoint.0.shared.connections.known() > 0 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn notices_arrive_in_order_and_their_line_has_an_end() {
    run(async {
        let mut few = options(2);
        few.notices_max = 3;
        let there = served_at(few, "127.0.0.1:0").await;
        let here = Endpoint::new(options(1));
        let peer = here.open(&there.addr).await.expect("it listens");
        let notice = |number: u8| Notice {
            name: "step".to_owned(),
            message: vec![number],
        };
        for number in 0..3 {
            here.notify(peer, &notice(number)).await.expect("room");
        }
        let full = here.notify(peer, &notice(3)).await.expect_err("no room");
        assert!(matches!(full, CallError::Refused(Refusal::Busy)), "{full}");
        assert!(full.is_retryable());
        for number in 0..3 {
            assert_eq!(there.endpoint.notice().await, notice(number));
        }
        here.notify(peer, &notice(4)).await.expect("room again");
        assert_eq!(there.endpoint.notice().await, notice(4));
        let long = Notice {
            name: "x".repeat(300),
            message: Vec::new(),
        };
        let refused = here.notify(peer, &long).await.expect_err("too long");
        assert!(matches!(refused, CallError::Refused(Refusal::TooLong)));
    });
}

#[test]
fn what_is_not_there_is_said_apart_from_who_is_not() {
    run(async {
        let (there, here) = (served(2).await, Endpoint::new(options(1)));
        let (remote, _) = buffer(&there.endpoint, 4_096, 1);
        let (local, _) = buffer(&here, 4_096, 2);
        let peer = here.open(&there.addr).await.expect("it listens");
        let beyond = Range {
            remote_address: remote.address() + 1,
            ..whole(&local, &remote)
        };
        let failed = here
            .transfer(peer, Direction::Read, &[beyond], soon())
            .await;
        let failed = failed.expect_err("one byte too many");
        let is_absent = matches!(
            failed,
            TransferFailed::Submit(SubmitError::NotRemote { number: 0, .. })
        );
        assert!(is_absent && !failed.is_retryable(), "{failed}");
        let nobody = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let addr = nobody.local_addr().expect("bound").to_string();
        drop(nobody);
        let failed = here.open(&addr).await.expect_err("nobody listens");
        assert!(matches!(failed, CallError::Unreachable { .. }), "{failed}");
        assert!(failed.is_retryable());
    });
}
