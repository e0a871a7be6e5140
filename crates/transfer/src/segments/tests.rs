//! Tests of segments: a rig that plays the master, and the tests by subject.

mod copies;
mod inventory;
mod lifecycle;
mod refusal;
mod reuse;

use std::sync::Arc;

use larder_types::{
    AgentId, AgentName, Epoch, Extent, Incarnation, PoolTime, Principal, Registration, SegmentId,
    SessionId, SlabRef, TenantId, Version,
};
use larder_wire::agent::Event;
use larder_wire::data::{DataError, DataReason};
use larder_wire::{
    AgentKey, Capability, Reach, Receipt, RootKey, SessionClaims, SessionSigner, SessionVerifier,
    SignedCapability, TokenError, checksum,
};

use super::*;
use crate::memory::SlabMemory;

const SLAB_BYTES: u64 = 1024 * 1024;
const NOW: LocalMs = LocalMs(1_000);
/// Pool time at [`NOW`].
const POOL_NOW: u64 = 50_000;
const LIFE: Incarnation = Incarnation(77);

/// An agent with one slab of tenant `a`, and the keys of its master.
struct Rig {
    segments: Segments,
    root: RootKey,
    key: AgentKey,
}

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).expect("a name")
}

fn epoch(generation: u64, term: u64) -> Epoch {
    Epoch { generation, term }
}

fn version(counter: u64) -> Version {
    Version {
        epoch: epoch(1, 1),
        counter,
    }
}

fn slab(index: u16, registration: u64) -> SlabRef {
    SlabRef {
        agent: AgentId(3),
        segment: SegmentId(5),
        index,
        registration: Registration(registration),
    }
}

/// An extent of the slab that every rig has.
fn extent(offset_bytes: u64, length_bytes: u64) -> Extent {
    Extent {
        slab: slab(0, 1),
        offset_bytes,
        length_bytes,
    }
}

fn memory() -> Arc<SlabMemory> {
    Arc::new(SlabMemory::create("test-slab", SLAB_BYTES).expect("a slab"))
}

fn payload(length: u64, seed: u64) -> Vec<u8> {
    (0..length)
        .map(|i| ((i * 31 + seed * 17) % 251) as u8)
        .collect()
}

fn reason<T: std::fmt::Debug>(result: Result<T, DataError>) -> DataReason {
    result.expect_err("it must be refused").reason
}

impl Rig {
    fn new() -> Self {
        let root = RootKey::new([9; 32]);
        let name = AgentName::new("pool-0").expect("a name");
        let key = root.agent_key(&name, LIFE, 1);
        let mut segments = Segments::new(LIFE, Epoch::default());
        let rose = segments
            .see_epoch(epoch(1, 1), PoolTime(POOL_NOW), NOW)
            .expect("new");
        assert!(rose);
        let verifier = verifier(&root);
        segments.mounted(AgentId(3), vec![SegmentId(5)], key.clone(), verifier);
        segments.give_slab(slab(0, 1), tenant("a"), memory(), Some(200_000));
        assert_eq!(
            segments.take_events(),
            [Event::SlabReady { slab: slab(0, 1) }]
        );
        Self {
            segments,
            root,
            key,
        }
    }

    fn capability(extent: Extent, counter: u64, reach: Reach) -> Capability {
        Capability {
            tenant: tenant("a"),
            incarnation: LIFE,
            extent,
            version: version(counter),
            reach,
            epoch: epoch(1, 1),
            deadline: PoolTime(POOL_NOW + 1_000),
            part: 0,
            parts: 1,
            object_bytes: extent.length_bytes,
            key: if reach == Reach::Write {
                b"key".to_vec()
            } else {
                Vec::new()
            },
            memo: larder_types::Memo::default(),
        }
    }

    fn sign(&self, capability: &Capability) -> SignedCapability {
        SignedCapability::sign(capability, &self.key).expect("it encodes")
    }

    fn begin_with(&mut self, capability: &Capability) -> Result<WriteStart, DataError> {
        let signed = self.sign(capability);
        self.segments.begin_write(&tenant("a"), &signed, NOW)
    }

    fn begin(&mut self, extent: Extent, counter: u64) -> Result<WriteTicket, DataError> {
        match self.begin_with(&Self::capability(extent, counter, Reach::Write))? {
            WriteStart::Go(ticket) => Ok(ticket),
            WriteStart::Already(..) => panic!("version {counter} is written already"),
        }
    }

    /// Puts the payload of `counter` into a begun write and finishes it.
    fn finish(&mut self, ticket: WriteTicket, counter: u64) -> Result<Receipt, DataError> {
        let bytes = payload(ticket.length_bytes, counter);
        ticket
            .memory
            .copy_in(ticket.offset_bytes, &bytes)
            .expect("fits");
        let own = ticket
            .memory
            .block_crcs(ticket.offset_bytes, ticket.length_bytes);
        let source = checksum::block_crcs(&bytes);
        self.segments
            .finish_write(ticket, &source, &own.expect("fits"))
    }

    fn write(&mut self, extent: Extent, counter: u64) -> Result<Receipt, DataError> {
        let ticket = self.begin(extent, counter)?;
        self.finish(ticket, counter)
    }

    fn read(&mut self, extent: Extent, counter: u64) -> Result<ReadTicket, DataError> {
        let signed = self.sign(&Self::capability(extent, counter, Reach::Read));
        self.segments
            .begin_read(&tenant("a"), &signed, 0, extent.length_bytes, NOW)
    }

    fn view(&mut self, extent: Extent, counter: u64) -> Result<ViewTicket, DataError> {
        let signed = self.sign(&Self::capability(extent, counter, Reach::Read));
        self.segments.open_view(&tenant("a"), &signed, NOW)
    }

    fn events(&mut self) -> Vec<Event> {
        self.segments.take_events()
    }

    /// The file beside the slab says what the table says.
    fn assert_noted(&self) {
        let sorted = |mut records: Vec<crate::record::Record>| {
            records.sort_by_key(|r| (r.offset_bytes, r.version, r.length_bytes));
            records
        };
        let file = self
            .segments
            .scan_records(slab(0, 1))
            .expect("a sound file");
        assert_eq!(sorted(file), sorted(self.segments.records(slab(0, 1))));
    }
}

fn verifier(root: &RootKey) -> SessionVerifier {
    let signer = SessionSigner::new(root).expect("a key");
    SessionVerifier::new(signer.verify_key().expect("a key"))
}

fn released(extent: Extent, counter: u64) -> Event {
    Event::Released {
        extent,
        version: version(counter),
    }
}

fn bytes_of(ticket: &ReadTicket) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(ticket.length_bytes).expect("small")];
    ticket
        .memory
        .copy_out(ticket.offset_bytes, &mut bytes)
        .expect("fits");
    bytes
}
