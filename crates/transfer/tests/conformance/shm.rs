//! What only the Unix socket offers: lent buffers, pulled writes and views.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use larder_transfer::SharedBuffer;
use larder_transfer::lane::{FdStream, Lane, Socket};
use larder_transfer::transport::{ShmOptions, ShmTransport, Transport};
use larder_types::{Incarnation, Principal};
use larder_wire::agent::Event;
use larder_wire::checksum::block_crcs;
use larder_wire::data::{
    BufferRegistered, CloseView, DataError, DataReason, OpenView, Pull, RegisterBuffer,
    UnregisterBuffer, ViewOpened,
};
use larder_wire::{Hello, Kind, Purpose, Receipt};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use tokio::net::UnixStream;

use super::holder::{
    Holder, INCARNATION, on_one_thread, payload, read, soon, tenant, write, write_op,
};

async fn lane(holder: &Holder) -> Lane<FdStream> {
    let claims = holder.claims(Principal::Tenant(tenant("team-a")));
    let hello = Hello {
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
        name: "shm".to_owned(),
        incarnation: Incarnation(3),
    };
    let stream = UnixStream::connect(holder.unix_path())
        .await
        .expect("connected");
    Lane::open(FdStream::new(stream), &hello)
        .await
        .expect("greeted")
}

async fn call<B: serde::Serialize, T: serde::de::DeserializeOwned>(
    lane: &mut Lane<FdStream>,
    kind: Kind,
    body: &B,
) -> Result<T, DataError> {
    let header = lane.call(kind, body, &[], 60_000).await.expect("answered");
    lane.decode(&header).expect("decodes")
}

#[test]
fn a_view_is_the_slab_itself_and_holds_the_bytes() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let shm = holder.shm("team-a").await;
        let (grant, sent) = (holder.grant(300_000), payload(300_000, 61));
        holder.put(&shm, &grant, &sent).await;
        let signed = holder.sign(&grant.read);
        let view = shm.open_view(&signed, soon()).await.expect("opened");
        let again = shm.open_view(&signed, soon()).await.expect("opened");
        assert!(*view == *sent && view.verify());
        assert_eq!(
            (view.version(), view.block_crcs()),
            (grant.read.version, &block_crcs(&sent)[..])
        );
        assert_eq!(view.as_ptr(), again.as_ptr(), "one mapping for both");
        assert_eq!(holder.segments.with(|all| all.stats()).views, 2);
        // Erased while it is viewed: the bytes stay until both are closed.
        let (extent, version) = (grant.write.extent, grant.write.version);
        holder.segments.with(|all| {
            all.take_events();
            all.erase(extent, version);
        });
        let next = holder.grant_at(extent.offset_bytes, 300_000);
        let refused = write(&shm, holder.sign(&next.write), &payload(300_000, 62)).await;
        assert_eq!(
            refused.result.expect_err("still viewed").label(),
            "conflict"
        );
        assert!(*view == *sent);
        drop(view);
        while holder.segments.with(|all| all.stats()).views == 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(holder.segments.with(|all| all.take_events()), Vec::new());
        drop(again);
        holder.until_unheld().await;
        let events = holder.segments.with(|all| all.take_events());
        assert_eq!(events, [Event::Released { extent, version }]);
        let refused = shm.open_view(&signed, soon()).await.expect_err("erased");
        assert_eq!(refused.label(), "stale_version");
    });
}

#[test]
fn views_outlive_their_transport_and_die_with_their_connection() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let shm = holder.shm("team-a").await;
        let (grant, sent) = (holder.grant(70_000), payload(70_000, 63));
        holder.put(&shm, &grant, &sent).await;
        let view = shm
            .open_view(&holder.sign(&grant.read), soon())
            .await
            .expect("opened");
        drop(shm);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            holder.segments.with(|all| all.stats()).views,
            1,
            "the connection stays"
        );
        assert!(*view == *sent);
        holder.options.connections.close_tenant(&tenant("team-a"));
        holder.until_unheld().await;
        assert!(*view == *sent, "the memory stays readable");
        drop(view);
    });
}

#[test]
fn beyond_the_limit_of_views_a_read_copies() {
    on_one_thread(|| async {
        let holder = Holder::start_as(INCARNATION, 64, Some(500_000)).await;
        let shm = holder.shm("team-a").await;
        let (grant, sent) = (holder.grant(300_000), payload(300_000, 64));
        holder.put(&shm, &grant, &sent).await;
        let signed = holder.sign(&grant.read);
        let view = shm.open_view(&signed, soon()).await.expect("opened");
        let refused = shm
            .open_view(&signed, soon())
            .await
            .expect_err("600,000 are too many");
        assert_eq!(refused.label(), "view_limit");
        let done = read(&shm, signed.clone(), 0, 300_000).await;
        done.result.expect("read by copy");
        assert_eq!(done.buffer, sent);
        assert_eq!(holder.counts.get("Read/ops"), 1);
        drop(view);
        holder.until_unheld().await;
        read(&shm, signed, 0, 300_000)
            .await
            .result
            .expect("read from a view");
        assert_eq!(holder.counts.get("Read/ops"), 1);
    });
}

#[test]
fn a_lent_buffer_is_pulled_from_where_it_lies() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let shm = holder.shm("team-a").await;
        let mut buffer = shm.buffer(1_000_000).expect("memory");
        let sent = payload(1_000_000, 65);
        buffer.write_at(0, &sent).expect("fits");
        let lent = shm.lend(buffer);
        for (from, to) in [
            (0, 1_000_000),
            (65_536, 400_000),
            (1, 100_001),
            (999_000, 1_000_000),
        ] {
            let part = lent.slice(from..to);
            let grant = holder.grant((to - from) as u64);
            holder.put(&shm, &grant, &part).await;
            let done = read(&shm, holder.sign(&grant.read), 0, grant.bytes()).await;
            done.result.expect("read");
            assert_eq!(done.buffer, sent[from..to]);
        }
        assert_eq!(
            holder.counts.get("Pull/ops"),
            3,
            "the short one went through the socket"
        );
        // Memory at the same address under another owner is another buffer.
        drop(lent);
        for seed in 66..70 {
            let mut buffer = shm.buffer(1_000_000).expect("memory");
            buffer.write_at(0, &payload(1_000_000, seed)).expect("fits");
            let grant = holder.grant(1_000_000);
            holder.put(&shm, &grant, &shm.lend(buffer)).await;
        }
    });
}

#[test]
fn payload_longer_than_the_staging_buffer_goes_through_the_socket() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let options = ShmOptions {
            staging_max_bytes: 200_000,
            ..ShmOptions::default()
        };
        let session = holder.session("team-a");
        let shm = ShmTransport::connect(holder.unix_path().into(), options, session).await;
        let shm = shm.expect("connected");
        for (bytes, pulled) in [(200_000, 1), (200_001, 1), (150_000, 2), (4_000_000, 2)] {
            let (grant, sent) = (holder.grant(bytes), payload(bytes, bytes));
            holder.put(&shm, &grant, &sent).await;
            assert_eq!(holder.counts.get("Pull/ops"), pulled, "{bytes}");
            let done = read(&shm, holder.sign(&grant.read), 0, bytes).await;
            done.result.expect("read");
            assert_eq!(done.buffer, sent);
        }
        assert_eq!(shm.name(), "shm");
    });
}

#[test]
fn an_open_that_is_dropped_leaks_no_view() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let shm = holder.shm("team-a").await;
        let (grant, sent) = (holder.grant(70_000), payload(70_000, 71));
        holder.put(&shm, &grant, &sent).await;
        let signed = holder.sign(&grant.read);
        let kept = shm.open_view(&signed, soon()).await.expect("opened");
        for steps in 0..8 {
            let mut opening = pin!(shm.open_view(&signed, soon()));
            for _ in 0..steps {
                let mut context = Context::from_waker(Waker::noop());
                if let Poll::Ready(opened) = opening.as_mut().poll(&mut context) {
                    assert!(*opened.expect("opened") == *sent);
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        // The next open takes the late answers and closes their views.
        let next = shm.open_view(&signed, soon()).await.expect("opened");
        assert!(*next == *sent && *kept == *sent);
        while holder.segments.with(|all| all.stats()).views > 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            holder.counts.get("unix/greeted"),
            2,
            "one for views, one lane"
        );
        drop((kept, next));
        holder.until_unheld().await;
    });
}

#[test]
fn buffers_that_are_no_sealed_memory_are_refused() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let mut lane = lane(&holder).await;
        let register = |length_bytes| RegisterBuffer { length_bytes };
        let none = call::<_, BufferRegistered>(&mut lane, Kind::RegisterBuffer, &register(9)).await;
        assert_eq!(
            none.expect_err("no descriptor").reason,
            DataReason::BufferRefused
        );
        let file = std::fs::File::open("/proc/self/exe").expect("a file");
        lane.stream_mut().send_fd(OwnedFd::from(file));
        let other =
            call::<_, BufferRegistered>(&mut lane, Kind::RegisterBuffer, &register(9)).await;
        assert_eq!(other.expect_err("a file").reason, DataReason::BufferRefused);
        let buffer = SharedBuffer::create(4096).expect("memory");
        let pass = || buffer.fd().try_clone_to_owned().expect("a descriptor");
        lane.stream_mut().send_fd(pass());
        let long =
            call::<_, BufferRegistered>(&mut lane, Kind::RegisterBuffer, &register(4097)).await;
        assert_eq!(
            long.expect_err("too long").reason,
            DataReason::BufferRefused
        );
        lane.stream_mut().send_fd(pass());
        let known =
            call::<_, BufferRegistered>(&mut lane, Kind::RegisterBuffer, &register(4096)).await;
        let known = known.expect("registered").buffer;
        // Pulls beyond its end, from a number that is not, and after it was taken back.
        let grant = holder.grant(4096);
        let pull = |buffer, offset_bytes| Pull {
            capability: holder.sign(&grant.write),
            buffer,
            offset_bytes,
            block_crcs: block_crcs(&[0; 4096]),
        };
        for (buffer, offset, reason) in [
            (known, 1, DataReason::OutOfBounds),
            (known, u64::MAX, DataReason::OutOfBounds),
            (known + 1, 0, DataReason::BufferUnknown),
        ] {
            let refused = call::<_, Receipt>(&mut lane, Kind::Pull, &pull(buffer, offset)).await;
            assert_eq!(refused.expect_err("refused").reason, reason);
        }
        call::<_, Receipt>(&mut lane, Kind::Pull, &pull(known, 0))
            .await
            .expect("written");
        let body = UnregisterBuffer { buffer: known };
        call::<_, ()>(&mut lane, Kind::UnregisterBuffer, &body)
            .await
            .expect("taken back");
        let gone = call::<_, ()>(&mut lane, Kind::UnregisterBuffer, &body).await;
        assert_eq!(gone.expect_err("gone").reason, DataReason::BufferUnknown);
        // So many and no more.
        let mut last = Ok(0);
        for _ in 0..65 {
            lane.stream_mut().send_fd(pass());
            let answer: Result<BufferRegistered, _> =
                call(&mut lane, Kind::RegisterBuffer, &register(4096)).await;
            last = answer.map(|registered| registered.buffer);
        }
        assert_eq!(last.expect_err("64 are the most").reason, DataReason::Limit);
    });
}

#[test]
fn views_of_a_connection_are_its_own() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let (grant, sent) = (holder.grant(70_000), payload(70_000, 72));
        holder.put(&holder.tcp("team-a"), &grant, &sent).await;
        let (mut one, mut two) = (lane(&holder).await, lane(&holder).await);
        let body = OpenView {
            capability: holder.sign(&grant.read),
        };
        let first: ViewOpened = call(&mut one, Kind::OpenView, &body).await.expect("opened");
        assert!(first.carries_memory && one.stream_mut().take_fd().is_some());
        let second: ViewOpened = call(&mut one, Kind::OpenView, &body).await.expect("opened");
        assert!(!second.carries_memory && one.stream_mut().take_fd().is_none());
        let other: ViewOpened = call(&mut two, Kind::OpenView, &body).await.expect("opened");
        assert!(
            other.carries_memory,
            "another connection has no mapping yet"
        );
        let close = CloseView { view: second.view };
        let foreign = call::<_, ()>(&mut two, Kind::CloseView, &close).await;
        assert_eq!(foreign.is_err(), second.view != other.view);
        call::<_, ()>(&mut one, Kind::CloseView, &close)
            .await
            .expect("closed");
        call::<_, ()>(&mut one, Kind::CloseView, &close)
            .await
            .expect_err("closed already");
        drop((one, two));
        holder.until_unheld().await;
    });
}

#[test]
fn the_memory_of_a_view_cannot_be_written() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let (grant, sent) = (holder.grant(70_000), payload(70_000, 73));
        holder.put(&holder.tcp("team-a"), &grant, &sent).await;
        let mut lane = lane(&holder).await;
        let body = OpenView {
            capability: holder.sign(&grant.read),
        };
        let opened: ViewOpened = call(&mut lane, Kind::OpenView, &body)
            .await
            .expect("opened");
        let fd = lane.stream_mut().take_fd().expect("a descriptor");
        assert_eq!(
            rustix::io::pwrite(&fd, b"x", opened.offset_bytes),
            Err(rustix::io::Errno::BADF)
        );
        assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(rustix::io::Errno::INVAL));
        let flags = rustix::io::fcntl_getfd(&fd).expect("flags");
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    });
}

#[test]
fn descriptors_that_nobody_asked_for_are_closed() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let lane = lane(&holder).await;
        let session = u32::try_from(lane.welcome().session.0).expect("small");
        let (stream, mut reader, _, _) = lane.into_parts();
        let (pipe, ours) = rustix::pipe::pipe().expect("a pipe");
        let mut ping = Vec::new();
        // 20 pings with five descriptors each.
        for request in 1..=20 {
            ping.clear();
            let frame = larder_wire::Frame::request(Kind::Ping, request, session, 60_000);
            larder_wire::encode_frame(&mut ping, frame, &()).expect("encodes");
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fds = [ours.as_fd(); 5];
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
            let parts = [IoSlice::new(&ping)];
            let sent = rustix::net::sendmsg(&stream, &parts, &mut control, SendFlags::empty());
            assert_eq!(sent, Ok(ping.len()));
        }
        let mut stream = stream;
        for request in 1..=20 {
            let header = reader
                .next(&mut stream)
                .await
                .expect("a frame")
                .expect("not the end");
            assert_eq!(header.request, request);
        }
        // Both ends are in this process: closing ours and the connection leaves no writer.
        drop((stream, ours));
        holder.until("unix/closed/closed", 1).await;
        while holder.options.connections.known() > 0 {
            tokio::task::yield_now().await;
        }
        rustix::fs::fcntl_setfl(&pipe, rustix::fs::OFlags::NONBLOCK).expect("set");
        assert_eq!(
            rustix::io::read(&pipe, &mut [0; 1]),
            Ok(0),
            "every copy was closed"
        );
    });
}

#[test]
fn a_pull_of_changing_memory_is_refused_or_right() {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let mut lane = lane(&holder).await;
        let mut buffer = SharedBuffer::create(4_000_000).expect("memory");
        lane.stream_mut()
            .send_fd(buffer.fd().try_clone_to_owned().expect("a descriptor"));
        let body = RegisterBuffer {
            length_bytes: 4_000_000,
        };
        let registered: BufferRegistered = call(&mut lane, Kind::RegisterBuffer, &body)
            .await
            .expect("registered");
        let (grant, sent) = (holder.grant(4_000_000), payload(4_000_000, 74));
        buffer.write_at(0, &sent).expect("fits");
        let pull = Pull {
            capability: holder.sign(&grant.write),
            buffer: registered.buffer,
            offset_bytes: 0,
            block_crcs: block_crcs(&sent),
        };
        let request = lane
            .send(Kind::Pull, &pull, &[], 60_000)
            .await
            .expect("sent");
        while holder.segments.with(|all| all.stats()).writes == 0 {
            tokio::task::yield_now().await;
        }
        // The agent copies in steps; the last ones are still to come.
        buffer
            .write_at(3_999_999, &[!sent[3_999_999]])
            .expect("fits");
        let header = lane.answer(Kind::Pull, request).await.expect("answered");
        let refused = lane.decode::<Receipt, DataError>(&header).expect("decodes");
        assert_eq!(refused.expect_err("changed").reason, DataReason::Checksum);
        buffer.write_at(0, &sent).expect("fits");
        let _: Receipt = call(&mut lane, Kind::Pull, &pull).await.expect("written");
        let mut op = write_op(holder.sign(&grant.write), &sent);
        op.deadline = soon();
        holder
            .tcp("team-a")
            .write(op)
            .await
            .result
            .expect("the same over tcp");
    });
}
