//! What every transport does alike.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use larder_transfer::transport::{ReadOp, TransferError, Transport, WriteOp};
use larder_types::{Epoch, Incarnation, Registration, Version};
use larder_wire::checksum::{block_crcs, digest};
use larder_wire::data::DataReason;
use larder_wire::{Capability, Reach, RootKey, SignedCapability};
use tokio::time::Instant;

use super::holder::{
    EPOCH, Holder, POOL_TIME, SLAB_BYTES, Wire, on_one_thread, payload, read, slab, tenant, write,
    write_op,
};

const SIZES: [u64; 9] = [
    1,
    255,
    256,
    257,
    65_535,
    65_536,
    65_537,
    128 * 1024,
    1024 * 1024 + 13,
];

/// A case: what it needs, and what it does.
type Case = for<'a> fn(&'a Holder, &'a dyn Transport) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

fn run(wire: Wire, case: Case) {
    on_one_thread(|| async {
        let holder = Holder::start().await;
        let transport = holder.transport(wire, "team-a").await;
        case(&holder, &*transport).await;
        holder.until_unheld().await;
    });
}

macro_rules! on {
    ($module:ident, $wire:ident, $($case:ident)*) => {
        mod $module {
            $(#[test]
            fn $case() {
                super::run(super::Wire::$wire, |holder, transport| {
                    Box::pin(super::$case(holder, transport))
                });
            })*
        }
    };
}

macro_rules! on_all {
    ($($case:ident,)*) => {
        on!(tcp, Tcp, $($case)*);
        on!(shm, Shm, $($case)*);
        on!(fake, Fake, $($case)*);
        on!(decorated, Decorated, $($case)*);
    };
}

on_all!(
    what_is_written_is_read,
    parts_are_read_by_whole_blocks,
    a_read_appends_and_an_error_leaves_the_buffer,
    a_repeated_write_gets_its_receipt_again,
    wrong_checksums_are_refused_and_the_write_can_be_repeated,
    short_and_long_payloads_are_refused,
    wrong_writes_are_refused,
    wrong_reads_are_refused,
    altered_capabilities_are_refused_at_every_byte,
    time_ends_capabilities,
    erased_is_gone_for_readers_and_late_writers,
    a_passed_deadline_gives_the_buffers_back,
    a_write_that_is_dropped_can_be_repeated,
    many_at_once,
);

fn reason<T: std::fmt::Debug>(result: Result<T, TransferError>) -> DataReason {
    match result {
        Err(TransferError::Refused(error)) => error.reason,
        other => panic!("not a refusal: {other:?}"),
    }
}

async fn what_is_written_is_read(holder: &Holder, transport: &dyn Transport) {
    for bytes in SIZES {
        let (grant, sent) = (holder.grant(bytes), payload(bytes, bytes));
        let done = write(transport, holder.sign(&grant.write), &sent).await;
        assert_eq!(done.payload, sent, "the payload comes back");
        let receipt = done.result.expect("written");
        receipt.verify(&holder.key).expect("signed");
        let crcs = block_crcs(&sent);
        assert_eq!(receipt.extent, grant.write.extent);
        assert_eq!(
            (receipt.version, receipt.digest),
            (grant.write.version, digest(&crcs, bytes))
        );
        let done = read(transport, holder.sign(&grant.read), 0, bytes).await;
        let facts = done.result.expect("read");
        assert_eq!(
            (facts.version, facts.block_crcs),
            (grant.write.version, crcs)
        );
        assert_eq!(done.buffer, sent, "{bytes} bytes");
    }
}

async fn parts_are_read_by_whole_blocks(holder: &Holder, transport: &dyn Transport) {
    let bytes = 300_000;
    let (grant, sent) = (holder.grant(bytes), payload(bytes, 1));
    holder.put(transport, &grant, &sent).await;
    for (offset, length) in [
        (0, 65_536),
        (65_536, 131_072),
        (262_144, 37_856),
        (65_536, 234_464),
        (0, 262_144),
    ] {
        let done = read(transport, holder.sign(&grant.read), offset, length).await;
        let part = sent.slice(offset as usize..(offset + length) as usize);
        let facts = done.result.expect("read");
        assert_eq!(facts.block_crcs, block_crcs(&part));
        assert_eq!(done.buffer, part);
    }
    for (offset, length) in [
        (1, 65_536),
        (0, 65_535),
        (65_536, 0),
        (0, 300_001),
        (327_680, 1),
        (u64::MAX - 65_535, 65_536),
        (0, u64::MAX),
        (65_536, 196_608 + 65_536),
    ] {
        let done = read(transport, holder.sign(&grant.read), offset, length).await;
        assert_eq!(
            reason(done.result),
            DataReason::OutOfBounds,
            "{offset} {length}"
        );
    }
}

async fn a_read_appends_and_an_error_leaves_the_buffer(holder: &Holder, transport: &dyn Transport) {
    let (grant, sent) = (holder.grant(200_000), payload(200_000, 2));
    holder.put(transport, &grant, &sent).await;
    let op = |capability: &Capability, buffer| ReadOp {
        capability: holder.sign(capability),
        offset_bytes: 0,
        length_bytes: 200_000,
        buffer,
        deadline: super::holder::soon(),
    };
    let done = transport
        .read(op(&grant.read, BytesMut::from(&b"head"[..])))
        .await;
    done.result.expect("read");
    assert_eq!(&done.buffer[..4], b"head");
    assert_eq!(done.buffer[4..], sent);
    let stale = Capability {
        version: Version::default(),
        ..grant.read
    };
    let before = done.buffer.clone();
    let done = transport.read(op(&stale, done.buffer)).await;
    assert_eq!(reason(done.result), DataReason::StaleVersion);
    assert_eq!(done.buffer, before);
}

async fn a_repeated_write_gets_its_receipt_again(holder: &Holder, transport: &dyn Transport) {
    for bytes in [500, 70_000] {
        let (grant, sent) = (holder.grant(bytes), payload(bytes, 3));
        let first = write(transport, holder.sign(&grant.write), &sent)
            .await
            .result;
        let again = write(transport, holder.sign(&grant.write), &sent)
            .await
            .result;
        assert_eq!(first.expect("written"), again.expect("written already"));
        let other = write(transport, holder.sign(&grant.write), &payload(bytes, 4))
            .await
            .result;
        assert_eq!(reason(other), DataReason::Checksum);
        let done = read(transport, holder.sign(&grant.read), 0, bytes).await;
        done.result.expect("read");
        assert_eq!(done.buffer, sent);
    }
}

async fn wrong_checksums_are_refused_and_the_write_can_be_repeated(
    holder: &Holder,
    transport: &dyn Transport,
) {
    for bytes in [64, 200_000] {
        let (grant, sent) = (holder.grant(bytes), payload(bytes, 5));
        let right = block_crcs(&sent);
        let mut wrong = right.clone();
        *wrong.last_mut().expect("one at least") ^= 1;
        let mut longer = right.clone();
        longer.push(0);
        for crcs in [wrong, longer, Vec::new(), right[1..].to_vec()] {
            let mut op = write_op(holder.sign(&grant.write), &sent);
            op.block_crcs = crcs.into();
            assert_eq!(
                reason(transport.write(op).await.result),
                DataReason::Checksum
            );
            let done = read(transport, holder.sign(&grant.read), 0, bytes).await;
            assert_eq!(
                reason(done.result),
                DataReason::StaleVersion,
                "nothing is written"
            );
        }
        holder.put(transport, &grant, &sent).await;
    }
}

async fn short_and_long_payloads_are_refused(holder: &Holder, transport: &dyn Transport) {
    // Lengths that go through a socket, and ones that are pulled from shared memory, whose end
    // an agent cannot see: there the checksums tell.
    for bytes in [300, 100_000] {
        let grant = holder.grant(bytes);
        for wrong in [
            payload(bytes - 1, 6),
            payload(bytes + 1, 6),
            payload(bytes + 70_000, 6),
        ] {
            let done = write(transport, holder.sign(&grant.write), &wrong).await;
            assert_eq!(done.payload, wrong);
            let reason = reason(done.result);
            assert!(
                matches!(reason, DataReason::OutOfBounds | DataReason::Checksum),
                "{reason:?}"
            );
        }
        holder.put(transport, &grant, &payload(bytes, 7)).await;
    }
    let beyond = holder.grant_at(SLAB_BYTES - 256, 512);
    let done = write(transport, holder.sign(&beyond.write), &payload(512, 8)).await;
    assert_eq!(reason(done.result), DataReason::OutOfBounds);
    let done = write(transport, holder.sign(&beyond.write), &Bytes::new()).await;
    assert_eq!(reason(done.result), DataReason::OutOfBounds);
}

/// The epoch before the holder's.
fn old_epoch() -> Epoch {
    Epoch {
        generation: EPOCH.generation,
        term: EPOCH.term - 1,
    }
}

fn registered(of: &Capability, registration: u64) -> Capability {
    let mut capability = of.clone();
    capability.extent.slab.registration = Registration(registration);
    capability
}

/// What is wrong with it for both reads and writes, and the reason that must come.
fn wrong_for_all(of: &Capability) -> Vec<(Capability, DataReason)> {
    let other_life = Capability {
        incarnation: Incarnation(1),
        ..of.clone()
    };
    let mut of_b = Capability {
        tenant: tenant("team-b"),
        ..of.clone()
    };
    of_b.extent.slab = slab(1);
    let mut of_none = of.clone();
    of_none.extent.slab = slab(2);
    vec![
        (other_life, DataReason::StaleIncarnation),
        (of_b, DataReason::ForeignTenant),
        (registered(of, 39), DataReason::StaleRegistration),
        (registered(of, 41), DataReason::StaleRegistration),
        (of_none, DataReason::StaleRegistration),
    ]
}

async fn wrong_writes_are_refused(holder: &Holder, transport: &dyn Transport) {
    let (grant, sent) = (holder.grant(150_000), payload(150_000, 9));
    holder.put(transport, &grant, &sent).await;
    let fresh = holder.grant(150_000).write;
    let mut wrong = wrong_for_all(&fresh);
    let old = Capability {
        epoch: old_epoch(),
        ..fresh.clone()
    };
    wrong.push((old, DataReason::StaleEpoch));
    let reading = Capability {
        reach: Reach::Read,
        ..fresh.clone()
    };
    wrong.push((reading, DataReason::WrongAccess));
    let below = Capability {
        version: Version::default(),
        ..grant.write.clone()
    };
    wrong.push((below, DataReason::StaleVersion));
    for (capability, expected) in wrong {
        let done = write(transport, holder.sign(&capability), &sent).await;
        assert_eq!(reason(done.result), expected, "{capability:?}");
    }
    let done = read(transport, holder.sign(&grant.read), 0, 150_000).await;
    done.result.expect("none of them did anything");
    assert_eq!(done.buffer, sent);
}

async fn wrong_reads_are_refused(holder: &Holder, transport: &dyn Transport) {
    let (grant, sent) = (holder.grant(150_000), payload(150_000, 10));
    holder.put(transport, &grant, &sent).await;
    let right = grant.read;
    let mut wrong = wrong_for_all(&right);
    let writing = Capability {
        reach: Reach::Write,
        ..right.clone()
    };
    wrong.push((writing, DataReason::WrongAccess));
    let mut later = right.clone();
    later.version.counter = 9_999;
    wrong.push((later, DataReason::StaleVersion));
    wrong.push((holder.grant(150_000).read, DataReason::StaleVersion));
    for (capability, expected) in wrong {
        let done = read(transport, holder.sign(&capability), 0, 150_000).await;
        assert_eq!(reason(done.result), expected, "{capability:?}");
    }
    let old_reader = Capability {
        epoch: old_epoch(),
        ..right.clone()
    };
    let done = read(transport, holder.sign(&old_reader), 0, 150_000).await;
    done.result
        .expect("a reader may finish under the leader before");
    assert_eq!(done.buffer, sent);
    let name = larder_types::AgentName::new("pool-small-1").expect("a name");
    let other = RootKey::new([9; 32]).agent_key(&name, holder.options.incarnation, 1);
    let forged = SignedCapability::sign(&right, &other).expect("signed");
    let done = read(transport, forged, 0, 150_000).await;
    assert_eq!(reason(done.result), DataReason::Forged);
}

async fn altered_capabilities_are_refused_at_every_byte(
    holder: &Holder,
    transport: &dyn Transport,
) {
    let grant = holder.grant(64);
    holder.put(transport, &grant, &payload(64, 10)).await;
    let genuine = postcard::to_stdvec(&holder.sign(&grant.read)).expect("encodes");
    let mut tried = 0;
    for at in 0..genuine.len() {
        let mut bytes = genuine.clone();
        bytes[at] ^= 0x01;
        let Ok(altered) = postcard::from_bytes::<SignedCapability>(&bytes) else {
            continue;
        };
        let done = read(transport, altered, 0, 64).await;
        assert_eq!(reason(done.result), DataReason::Forged, "byte {at}");
        tried += 1;
    }
    assert!(
        tried > genuine.len() / 2,
        "{tried} of {} decoded",
        genuine.len()
    );
    read(transport, holder.sign(&grant.read), 0, 64)
        .await
        .result
        .expect("genuine");
}

async fn time_ends_capabilities(holder: &Holder, transport: &dyn Transport) {
    let (grant, fresh) = (holder.grant(1000), holder.grant(1000));
    let sent = payload(1000, 11);
    holder.put(transport, &grant, &sent).await;
    let left_ms = grant.read.deadline.since_ms(POOL_TIME);
    let before = holder.clock_ms.get();
    holder.clock_ms.set(before + left_ms);
    read(transport, holder.sign(&grant.read), 0, 1000)
        .await
        .result
        .expect("just in time");
    holder.clock_ms.set(before + left_ms + 1);
    let done = read(transport, holder.sign(&grant.read), 0, 1000).await;
    assert_eq!(reason(done.result), DataReason::Expired);
    let done = write(transport, holder.sign(&fresh.write), &sent).await;
    assert_eq!(reason(done.result), DataReason::Expired);
    assert!(
        TransferError::from(larder_wire::data::DataError::from(DataReason::Expired)).is_retryable()
    );
}

async fn erased_is_gone_for_readers_and_late_writers(holder: &Holder, transport: &dyn Transport) {
    let (grant, late) = (holder.grant(90_000), holder.grant(90_000));
    let sent = payload(90_000, 12);
    holder.put(transport, &grant, &sent).await;
    holder.segments.with(|all| {
        all.erase(grant.write.extent, grant.write.version);
        all.erase(late.write.extent, late.write.version);
    });
    let done = read(transport, holder.sign(&grant.read), 0, 90_000).await;
    assert_eq!(reason(done.result), DataReason::StaleVersion);
    for gone in [&grant, &late] {
        let done = write(transport, holder.sign(&gone.write), &sent).await;
        assert_eq!(reason(done.result), DataReason::StaleVersion);
    }
    let next = holder.grant_at(grant.write.extent.offset_bytes, 90_000);
    holder.put(transport, &next, &sent).await;
}

async fn a_passed_deadline_gives_the_buffers_back(holder: &Holder, transport: &dyn Transport) {
    let (grant, sent) = (holder.grant(1024 * 1024), payload(1024 * 1024, 13));
    let passed = Instant::now()
        .checked_sub(Duration::from_millis(1))
        .unwrap_or_else(Instant::now);
    let op = WriteOp {
        deadline: passed,
        ..write_op(holder.sign(&grant.write), &sent)
    };
    let done = transport.write(op).await;
    assert!(
        matches!(done.result, Err(TransferError::DeadlinePassed)),
        "{:?}",
        done.result
    );
    assert_eq!(done.payload, sent);
    until_written(holder, transport, &grant, &sent).await;
    let op = ReadOp {
        capability: holder.sign(&grant.read),
        offset_bytes: 0,
        length_bytes: grant.bytes(),
        buffer: BytesMut::from(&b"kept"[..]),
        deadline: passed,
    };
    let done = transport.read(op).await;
    assert!(
        matches!(done.result, Err(TransferError::DeadlinePassed)),
        "{:?}",
        done.result
    );
    assert_eq!(&done.buffer[..], b"kept");
}

/// Repeats a write until the remains of an earlier attempt are cleared away.
async fn until_written(
    holder: &Holder,
    transport: &dyn Transport,
    grant: &super::holder::Grant,
    sent: &Bytes,
) {
    loop {
        match write(transport, holder.sign(&grant.write), sent)
            .await
            .result
        {
            Ok(receipt) => return receipt.verify(&holder.key).expect("signed"),
            Err(error) => assert_eq!(reason::<()>(Err(error)), DataReason::Conflict),
        }
        tokio::task::yield_now().await;
    }
}

async fn a_write_that_is_dropped_can_be_repeated(holder: &Holder, transport: &dyn Transport) {
    let (grant, sent) = (holder.grant(4 * 1024 * 1024), payload(4 * 1024 * 1024, 14));
    // Dropped after each number of steps that it may take, in turn with the holder.
    for steps in 0..12 {
        let mut writing = pin!(transport.write(write_op(holder.sign(&grant.write), &sent)));
        let mut ended = false;
        for _ in 0..steps {
            let mut context = Context::from_waker(Waker::noop());
            ended = ended || matches!(writing.as_mut().poll(&mut context), Poll::Ready(_));
            if ended {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    until_written(holder, transport, &grant, &sent).await;
    let done = read(transport, holder.sign(&grant.read), 0, grant.bytes()).await;
    done.result.expect("read");
    assert_eq!(done.buffer, sent);
}

async fn many_at_once(holder: &Holder, transport: &dyn Transport) {
    let one = async |seed: u64| {
        let bytes = 1 + seed * 7_001;
        let (grant, sent) = (holder.grant(bytes), payload(bytes, seed));
        for _ in 0..3 {
            holder.put(transport, &grant, &sent).await;
            let done = read(transport, holder.sign(&grant.read), 0, bytes).await;
            done.result.expect("read");
            assert_eq!(done.buffer, sent);
        }
    };
    let mut all: Vec<_> = (0..40).map(|seed| Box::pin(one(seed))).collect();
    std::future::poll_fn(|context| {
        all.retain_mut(|task| task.as_mut().poll(context).is_pending());
        if all.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}
