//! What a listener gives back when its peer dies, stalls or is sent away.

use std::time::Duration;

use larder_transfer::lane::{FrameReader, Lane};
use larder_transfer::transport::Transport;
use larder_types::{Incarnation, Principal};
use larder_wire::agent::Event;
use larder_wire::checksum::block_crcs;
use larder_wire::data::{DataError, Read, ReadEnd, ReadStart, Write};
use larder_wire::frame::NO_DEADLINE;
use larder_wire::limit::MAX_BODY_BYTES;
use larder_wire::{Frame, Hello, Kind, Purpose, Receipt, Refused, RefusedReason, encode_frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::holder::{Grant, Holder, on_one_thread, payload, read, tenant, write};

fn hello(holder: &Holder) -> Hello {
    let claims = holder.claims(Principal::Tenant(tenant("team-a")));
    Hello {
        protocol_min: 1,
        protocol_max: 1,
        features: 0,
        credential: holder
            .signer
            .sign(&claims)
            .expect("signed")
            .as_bytes()
            .to_vec(),
        purpose: Purpose::Client,
        name: "peer".to_owned(),
        incarnation: Incarnation(3),
    }
}

async fn lane(holder: &Holder) -> Lane<TcpStream> {
    let stream = TcpStream::connect(&holder.tcp_addr)
        .await
        .expect("connected");
    Lane::open(stream, &hello(holder)).await.expect("greeted")
}

/// A write's frame with its payload.
fn write_bytes(holder: &Holder, grant: &Grant, session: u32, remaining_ms: u32) -> Vec<u8> {
    let sent = payload(grant.bytes(), 41);
    let body = Write {
        capability: holder.sign(&grant.write),
        block_crcs: block_crcs(&sent),
    };
    let mut frame = Frame::request(Kind::Write, 1, session, remaining_ms);
    frame.payload_bytes = sent.len() as u64;
    let mut bytes = Vec::new();
    encode_frame(&mut bytes, frame, &body).expect("encodes");
    bytes.extend_from_slice(&sent);
    bytes
}

/// A greeted connection, its session, and what belongs to it.
async fn raw(holder: &Holder) -> (TcpStream, u32, FrameReader) {
    let (stream, reader, _, welcome) = lane(holder).await.into_parts();
    (
        stream,
        u32::try_from(welcome.session.0).expect("small"),
        reader,
    )
}

#[test]
fn a_writer_that_dies_at_any_point_holds_nothing() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let grant = holder.grant(200_000);
        let whole = write_bytes(&holder, &grant, 0, NO_DEADLINE).len();
        let payload_at = whole - 200_000;
        let cuts = [
            1,
            39,
            40,
            41,
            payload_at - 1,
            payload_at,
            payload_at + 1,
            payload_at + 65_536,
            whole - 1,
        ];
        for cut in cuts {
            let (mut stream, session, _) = raw(&holder).await;
            let bytes = write_bytes(&holder, &grant, session, NO_DEADLINE);
            stream.write_all(&bytes[..cut]).await.expect("sent");
            drop(stream);
        }
        holder
            .until("tcp/closed/truncated", cuts.len() as u64)
            .await;
        holder.until_unheld().await;
        // The extent can still be written, and then erased and used again.
        let transport = holder.tcp("team-a");
        holder.put(&transport, &grant, &payload(200_000, 41)).await;
        holder
            .segments
            .with(|all| all.erase(grant.write.extent, grant.write.version));
        let released = Event::Released {
            extent: grant.write.extent,
            version: grant.write.version,
        };
        assert!(
            holder
                .segments
                .with(|all| all.take_events())
                .contains(&released)
        );
    });
}

#[test]
fn b17_a_writer_that_stalls_is_cut_off_and_gives_back_what_it_held() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let grant = holder.grant(200_000);
        let (mut stream, session, _) = raw(&holder).await;
        let bytes = write_bytes(&holder, &grant, session, NO_DEADLINE);
        stream
            .write_all(&bytes[..bytes.len() - 1])
            .await
            .expect("sent");
        // Stalls within a header, too; and idles between frames, which is allowed.
        let (mut within_header, other, _) = raw(&holder).await;
        let ping = write_bytes(&holder, &grant, other, NO_DEADLINE);
        within_header.write_all(&ping[..20]).await.expect("sent");
        let mut idle = lane(&holder).await;
        while holder.segments.with(|all| all.stats()).writes == 0 {
            tokio::task::yield_now().await;
        }
        let (extent, version) = (grant.write.extent, grant.write.version);
        holder.segments.with(|all| {
            all.take_events();
            all.erase(extent, version);
            assert_eq!(
                all.take_events(),
                Vec::new(),
                "the writer still holds the bytes"
            );
        });
        tokio::time::pause();
        tokio::time::advance(Duration::from_millis(30_100)).await;
        holder.until("tcp/closed/stalled", 2).await;
        holder.until_unheld().await;
        let events = holder.segments.with(|all| all.take_events());
        assert_eq!(events, [Event::Released { extent, version }]);
        tokio::time::resume();
        idle.call(Kind::Ping, &(), &[], 1_000)
            .await
            .expect("idling is no stall");
    });
}

#[test]
fn a_write_ends_with_its_callers_deadline() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let grant = holder.grant(200_000);
        let (mut stream, session, _) = raw(&holder).await;
        let bytes = write_bytes(&holder, &grant, session, 2_000);
        stream
            .write_all(&bytes[..bytes.len() - 1])
            .await
            .expect("sent");
        while holder.segments.with(|all| all.stats()).writes == 0 {
            tokio::task::yield_now().await;
        }
        tokio::time::pause();
        tokio::time::advance(Duration::from_millis(2_100)).await;
        holder.until("tcp/closed/stalled", 1).await;
        holder.until_unheld().await;
    });
}

#[test]
fn a_refused_write_leaves_the_lane_usable() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let mut lane = lane(&holder).await;
        let grant = holder.grant(3_000_000);
        let sent = payload(3_000_000, 42);
        let body = Write {
            capability: holder.sign(&grant.read),
            block_crcs: block_crcs(&sent),
        };
        for _ in 0..3 {
            let header = lane
                .call(Kind::Write, &body, &sent, 60_000)
                .await
                .expect("answered");
            lane.decode::<Receipt, DataError>(&header)
                .expect("decodes")
                .expect_err("refused");
        }
        let right = Write {
            capability: holder.sign(&grant.write),
            ..body
        };
        let header = lane
            .call(Kind::Write, &right, &sent, 60_000)
            .await
            .expect("answered");
        lane.decode::<Receipt, DataError>(&header)
            .expect("decodes")
            .expect("written");
        assert_eq!(holder.counts.get("Write/wrong_access"), 3);
        assert_eq!(holder.counts.get("Write/bytes"), 3_000_000);
        assert_eq!(holder.counts.get("tcp/greeted"), 1);
    });
}

#[test]
fn a_read_of_what_is_erased_meanwhile_says_so() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        // Longer than the buffers of both sockets, so that the holder is still sending.
        let grant = holder.grant(15_000_000);
        let sent = payload(15_000_000, 43);
        holder.put(&holder.tcp("team-a"), &grant, &sent).await;
        let (mut stream, session, mut reader) = raw(&holder).await;
        reader.set_max_body_bytes(MAX_BODY_BYTES);
        let body = Read {
            capability: holder.sign(&grant.read),
            offset_bytes: 0,
            length_bytes: grant.bytes(),
        };
        let mut request = Vec::new();
        let frame = Frame::request(Kind::Read, 7, session, NO_DEADLINE);
        encode_frame(&mut request, frame, &body).expect("encodes");
        stream.write_all(&request).await.expect("sent");
        let header = reader
            .next(&mut stream)
            .await
            .expect("a frame")
            .expect("not the end");
        assert_eq!(header.payload_bytes, grant.bytes());
        reader.decode::<ReadStart>().expect("decodes");
        let (extent, version) = (grant.write.extent, grant.write.version);
        holder.segments.with(|all| {
            all.take_events();
            all.erase(extent, version);
            assert_eq!(
                all.take_events(),
                Vec::new(),
                "a send still holds the bytes"
            );
        });
        let mut got = Vec::new();
        reader.take_ahead(usize::MAX, |piece| got.extend_from_slice(piece));
        let mut chunk = vec![0; 1 << 20];
        while got.len() < sent.len() {
            let room = chunk.len().min(sent.len() - got.len());
            let bytes = stream.read(&mut chunk[..room]).await.expect("payload");
            assert_ne!(bytes, 0);
            got.extend_from_slice(&chunk[..bytes]);
        }
        assert!(
            got == sent,
            "nothing wrote there, since nobody said released"
        );
        let header = reader
            .next(&mut stream)
            .await
            .expect("a frame")
            .expect("not the end");
        assert_eq!((header.kind, header.request), (Kind::ReadEnd, 7));
        assert!(!reader.decode::<ReadEnd>().expect("decodes").unchanged);
        let events = holder.segments.with(|all| all.take_events());
        assert_eq!(events, [Event::Released { extent, version }]);
    });
}

#[test]
fn a_reader_that_dies_gives_back_what_it_held() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let grant = holder.grant(15_000_000);
        holder
            .put(&holder.tcp("team-a"), &grant, &payload(15_000_000, 44))
            .await;
        let (mut stream, session, _) = raw(&holder).await;
        let body = Read {
            capability: holder.sign(&grant.read),
            offset_bytes: 0,
            length_bytes: grant.bytes(),
        };
        let mut request = Vec::new();
        let frame = Frame::request(Kind::Read, 7, session, NO_DEADLINE);
        encode_frame(&mut request, frame, &body).expect("encodes");
        stream.write_all(&request).await.expect("sent");
        stream.readable().await.expect("an answer begins");
        assert_eq!(holder.segments.with(|all| all.stats()).reads, 1);
        drop(stream);
        holder.until_unheld().await;
        holder.until("tcp/closed/io", 1).await;
    });
}

#[test]
fn a_deleted_tenant_is_cut_off_in_the_middle() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let grant = holder.grant(200_000);
        let transport = holder.tcp("team-b");
        let shm = holder.shm("team-a").await;
        let (mut stream, session, _) = raw(&holder).await;
        let bytes = write_bytes(&holder, &grant, session, NO_DEADLINE);
        stream
            .write_all(&bytes[..bytes.len() - 1])
            .await
            .expect("sent");
        let foreign = read(&transport, holder.sign(&grant.read), 0, 200_000).await;
        foreign.result.expect_err("of another tenant");
        while holder.segments.with(|all| all.stats()).writes == 0 {
            tokio::task::yield_now().await;
        }
        let gone = tenant("team-a");
        holder.segments.with(|all| all.tenant_gone(&gone));
        assert_eq!(holder.options.connections.close_tenant(&gone), 2);
        holder.until("tcp/closed/revoked", 1).await;
        holder.until("unix/closed/revoked", 1).await;
        holder.until_unheld().await;
        assert_eq!(
            holder.options.connections.known(),
            1,
            "the other tenant's stays"
        );
        let deadline = super::holder::soon();
        let refused = shm.open_view(&holder.sign(&grant.read), deadline).await;
        assert_eq!(refused.expect_err("gone").label(), "hello_refused");
    });
}

#[test]
fn a_stopping_agent_says_goodbye() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let transport = holder.tcp("team-a");
        let grant = holder.grant(70_000);
        holder.put(&transport, &grant, &payload(70_000, 45)).await;
        let (mut stream, _, mut reader) = raw(&holder).await;
        reader.set_max_body_bytes(MAX_BODY_BYTES);
        holder.shutdown.send(true).expect("the listeners hear it");
        holder.until("tcp/closed/stopping", 2).await;
        assert_eq!(
            reader
                .next(&mut stream)
                .await
                .expect("the end")
                .map(|header| header.kind),
            None
        );
        let done = read(&transport, holder.sign(&grant.read), 0, 70_000).await;
        assert_eq!(
            done.result.expect_err("nobody listens").label(),
            "unreachable"
        );
        let refused = Refused::new(RefusedReason::Stopping, String::new());
        assert!(larder_transfer::transport::TransferError::HelloRefused(refused).is_retryable());
    });
}

#[test]
fn too_many_connections_are_told_so() {
    on_one_thread(|| async {
        let holder = Holder::start_as(super::holder::INCARNATION, 2, None).await;
        let (first, second) = (lane(&holder).await, lane(&holder).await);
        let transport = holder.tcp("team-a");
        let grant = holder.grant(100);
        let sent = payload(100, 46);
        let done = write(&transport, holder.sign(&grant.write), &sent).await;
        let error = done.result.expect_err("no room");
        assert_eq!(error.label(), "hello_refused");
        assert!(error.is_retryable());
        drop(first);
        while holder.options.connections.known() == 2 {
            tokio::task::yield_now().await;
        }
        holder.put(&transport, &grant, &sent).await;
        assert_eq!(transport.name(), "tcp");
        drop(second);
    });
}
