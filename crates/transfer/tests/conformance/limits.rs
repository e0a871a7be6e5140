//! Bounds of transports: sockets, time, and faults that are counted.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use larder_transfer::transport::{
    FaultPlan, Faulty, Metered, SessionSource, ShmOptions, ShmTransport, TcpOptions, TcpTransport,
    TransferError, Transport,
};
use larder_types::Incarnation;
use larder_wire::data::DataReason;
use rustix::net::{AddressFamily, SocketType, ipproto};
use tokio::time::Instant;

use super::holder::{
    Holder, INCARNATION, Meter, Wire, on_one_thread, payload, read, read_op, write, write_op,
};

#[test]
fn b13_thousands_of_transfers_use_a_few_sockets_which_close_when_idle() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let options = TcpOptions {
            lanes_max: 6,
            idle_close_ms: 30_000,
            incarnation: Some(INCARNATION),
            ..TcpOptions::default()
        };
        let session = holder.session("team-a");
        let transport = TcpTransport::new(holder.tcp_addr.clone(), options, session);
        let (grant, sent) = (holder.grant(4096), payload(4096, 51));
        holder.put(&transport, &grant, &sent).await;
        let one = async || {
            for _ in 0..60 {
                let done = read(&transport, holder.sign(&grant.read), 0, 4096).await;
                done.result.expect("read");
                assert_eq!(done.buffer, sent);
            }
        };
        let mut all: Vec<_> = (0..50).map(|_| Box::pin(one())).collect();
        std::future::poll_fn(|context| {
            all.retain_mut(|task| task.as_mut().poll(context).is_pending());
            if all.is_empty() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        assert_eq!(holder.counts.get("Read/ops"), 3_000);
        let connected = holder.counts.get("tcp/connected");
        assert!((1..=6).contains(&connected), "{connected} connections");
        assert_eq!(holder.options.connections.known() as u64, connected);
        assert_eq!(transport.idle_lanes() as u64, connected);
        tokio::time::pause();
        tokio::time::advance(Duration::from_millis(30_100)).await;
        while transport.idle_lanes() > 0 || holder.options.connections.known() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(holder.counts.get("tcp/closed/closed"), connected);
        tokio::time::resume();
        // And it goes on from nothing.
        read(&transport, holder.sign(&grant.read), 0, 4096)
            .await
            .result
            .expect("read");
    });
}

#[test]
fn b13_a_dead_lane_is_thrown_away_before_anything_is_sent() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        for wire in [Wire::Tcp, Wire::Shm] {
            let transport = holder.transport(wire, "team-a").await;
            let (grant, sent) = (holder.grant(300), payload(300, 52));
            holder.put(&*transport, &grant, &sent).await;
            // The holder ends the connection; the transport hears of it with the next call.
            let gone = super::holder::tenant("team-a");
            assert!(holder.options.connections.close_tenant(&gone) > 0);
            while holder.options.connections.known() > 0 {
                tokio::task::yield_now().await;
            }
            let done = read(&*transport, holder.sign(&grant.read), 0, 300).await;
            done.result.expect("a fresh connection serves it");
            assert_eq!(done.buffer, sent);
        }
    });
}

#[test]
fn b14_an_address_that_never_answers_is_an_error_within_the_limit() {
    on_one_thread(|| async {
        // A listener whose queue is full drops what comes, as a black hole does.
        let socket =
            rustix::net::socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::TCP))
                .expect("a socket");
        let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        rustix::net::bind(&socket, &any).expect("bound");
        rustix::net::listen(&socket, 0).expect("listens");
        let bound = rustix::net::getsockname(&socket).expect("a name");
        let bound = std::net::SocketAddr::try_from(bound).expect("an address");
        let mut fill = Vec::new();
        for _ in 0..4 {
            let limit = Duration::from_millis(200);
            fill.push(tokio::time::timeout(limit, tokio::net::TcpStream::connect(bound)).await);
        }
        assert!(fill.iter().any(Result::is_err), "the queue is not full");
        let options = TcpOptions {
            connect_timeout_ms: 300,
            ..TcpOptions::default()
        };
        let session = SessionSource::fixed(vec![1; 40], "test", Incarnation(1));
        let transport = TcpTransport::new(bound.to_string(), options, session);
        let holder = Holder::start().await;
        let grant = holder.grant(64);
        let done = read(&transport, holder.sign(&grant.read), 0, 64).await;
        let error = done.result.expect_err("nobody answers");
        let TransferError::Unreachable { addr, source } = &error else {
            panic!("{error:?}")
        };
        assert_eq!(*addr, bound.to_string());
        assert_eq!(source.kind(), std::io::ErrorKind::TimedOut);
        assert!(error.is_retryable() && error.is_about_agent());
    });
}

#[test]
fn b16_an_agent_that_restarts_is_another_one() {
    on_one_thread(|| async {
        let before = Holder::start().await;
        let transport = before.tcp("team-a");
        let (grant, sent) = (before.grant(300), payload(300, 53));
        before.put(&transport, &grant, &sent).await;
        let after = Holder::start_as(Incarnation(0xbeef), 64, None).await;
        let options = TcpOptions {
            incarnation: Some(INCARNATION),
            ..TcpOptions::default()
        };
        let stale = TcpTransport::new(after.tcp_addr.clone(), options, after.session("team-a"));
        let done = read(&stale, before.sign(&grant.read), 0, 300).await;
        match done.result.expect_err("another process") {
            TransferError::Refused(error) => {
                assert_eq!(error.reason, DataReason::StaleIncarnation);
                assert!(error.reason.is_retryable());
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(after.counts.get("Read/ops"), 0);
        // Without the check the capability still opens nothing there.
        let unchecked = TcpTransport::new(
            after.tcp_addr.clone(),
            TcpOptions::default(),
            after.session("team-a"),
        );
        let done = read(&unchecked, before.sign(&grant.read), 0, 300).await;
        assert_eq!(done.result.expect_err("other keys").label(), "forged");
    });
}

#[test]
fn a_call_waits_for_a_lane_only_until_its_deadline() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let options = TcpOptions {
            lanes_max: 1,
            ..TcpOptions::default()
        };
        let session = holder.session("team-a");
        let transport = TcpTransport::new(holder.tcp_addr.clone(), options, session);
        let (grant, sent) = (holder.grant(2_000_000), payload(2_000_000, 54));
        let writing = transport.write(write_op(holder.sign(&grant.write), &sent));
        let mut reading = read_op(holder.sign(&grant.read), 0, 64);
        reading.deadline = Instant::now() + Duration::from_millis(20);
        let waiting = transport.read(reading);
        // The write has the lane but is not polled while the read waits for it.
        let mut writing = std::pin::pin!(writing);
        std::future::poll_fn(|context| {
            assert!(writing.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        assert_eq!(
            waiting.await.result.expect_err("no lane").label(),
            "deadline_passed"
        );
        writing.await.result.expect("written");
    });
}

/// What clients need of a holder that runs on another thread.
struct Elsewhere {
    tcp: TcpTransport,
    shm_path: std::path::PathBuf,
    session: SessionSource,
    grants: Vec<(
        larder_wire::SignedCapability,
        larder_wire::SignedCapability,
        bytes::Bytes,
    )>,
}

#[test]
fn clients_on_many_threads_share_one_transport() {
    let (send, receive) = std::sync::mpsc::sync_channel(1);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let holding = std::thread::spawn(move || {
        on_one_thread(|| async move {
            let holder = Holder::start().await;
            let grants = (0..60).map(|seed| {
                let sent = payload(1 + seed * 4_099, seed);
                let grant = holder.grant(sent.len() as u64);
                (holder.sign(&grant.write), holder.sign(&grant.read), sent)
            });
            let elsewhere = Elsewhere {
                tcp: holder.tcp("team-a"),
                shm_path: holder.unix_path().into(),
                session: holder.session("team-a"),
                grants: grants.collect(),
            };
            send.send(elsewhere).expect("the clients wait");
            stopped.await.expect_err("the clients are done");
            holder.until_unheld().await;
        });
    });
    let Elsewhere {
        tcp,
        shm_path,
        session,
        grants,
    } = receive.recv().expect("a holder");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let shm = ShmTransport::connect(shm_path, ShmOptions::default(), session).await;
        let transports: [Arc<dyn Transport>; 2] =
            [Arc::new(tcp), Arc::new(shm.expect("connected"))];
        let mut tasks = tokio::task::JoinSet::new();
        for (index, (write_to, read_from, sent)) in grants.into_iter().enumerate() {
            let [one, other] = [0, 1].map(|n| Arc::clone(&transports[(index + n) % 2]));
            tasks.spawn(async move {
                write(&*one, write_to, &sent).await.result.expect("written");
                for transport in [&one, &other, &one] {
                    let length = sent.len() as u64;
                    let done = read(&**transport, read_from.clone(), 0, length).await;
                    done.result.expect("read");
                    assert_eq!(done.buffer, sent);
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("no panic");
        }
    });
    drop(stop);
    holding.join().expect("the holder ends");
}

#[test]
fn faults_by_seed_never_give_wrong_bytes() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        for (seed, wire) in [(1, Wire::Fake), (2, Wire::Tcp), (3, Wire::Shm)] {
            let plan = FaultPlan {
                seed,
                lose_before: 80,
                lose_after: 80,
                delay: 20,
                delay_max_ms: 2,
                flip: 100,
                truncate: 80,
            };
            let meter = Meter::default();
            let inner = Boxed(holder.transport(wire, "team-a").await);
            let transport = Metered::new(Faulty::new(inner, plan), meter.clone());
            let mut calls = 0;
            for round in 0..60 {
                let bytes = 1 + round * 1_777;
                let (grant, sent) = (holder.grant(bytes), payload(bytes, round));
                loop {
                    calls += 1;
                    match write(&transport, holder.sign(&grant.write), &sent)
                        .await
                        .result
                    {
                        Ok(receipt) => break receipt.verify(&holder.key).expect("signed"),
                        Err(error) => expected_fault(&error),
                    }
                }
                loop {
                    calls += 1;
                    let done = read(&transport, holder.sign(&grant.read), 0, bytes).await;
                    match done.result {
                        Ok(_) => break assert_eq!(done.buffer, sent),
                        Err(error) => {
                            expected_fault(&error);
                            assert!(done.buffer.is_empty());
                        }
                    }
                }
            }
            let broken = transport.inner().broken();
            assert!(broken > 30 && broken < calls / 2, "{broken} of {calls}");
            assert_eq!(meter.calls(), calls);
        }
    });
}

fn expected_fault(error: &TransferError) {
    let labels = ["connection_lost", "corrupt", "checksum", "out_of_bounds"];
    assert!(labels.contains(&error.label()), "{error:?}");
}

/// A transport behind a pointer.
#[derive(Debug)]
struct Boxed(Box<dyn Transport>);

impl Transport for Boxed {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn write(
        &self,
        op: larder_transfer::transport::WriteOp,
    ) -> larder_transfer::transport::BoxFuture<'_, larder_transfer::transport::WriteDone> {
        self.0.write(op)
    }
    fn read(
        &self,
        op: larder_transfer::transport::ReadOp,
    ) -> larder_transfer::transport::BoxFuture<'_, larder_transfer::transport::ReadDone> {
        self.0.read(op)
    }
}
