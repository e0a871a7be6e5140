//! An agent as the tests need it: it keeps records, obeys late, and checks that nothing is ever
//! written into memory that is still in use.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use larder_store::{Command, CopyOrder, Request, SegmentOffer};
use larder_types::layout::reserved_bytes;
use larder_types::{
    AgentId, AgentName, AgentUid, Epoch, Extent, Incarnation, Labels, Registration,
    SegmentGeneration, SegmentId, SlabRef, TenantId, Version,
};

/// A slab as the agent has it.
struct Slab {
    registration: Registration,
    tenant: TenantId,
    /// Version and aligned length by offset.
    records: BTreeMap<u64, (Version, u64)>,
}

pub(crate) struct SimAgent {
    pub(crate) name: AgentName,
    pub(crate) uid: AgentUid,
    pub(crate) incarnation: Incarnation,
    /// The process runs.
    pub(crate) up: bool,
    /// Its connection is mounted.
    pub(crate) connected: bool,
    /// The ticket of the mount that is asked and not answered. The answer to an earlier one went
    /// to a connection that is closed.
    pub(crate) mounting: Option<u64>,
    pub(crate) id: Option<AgentId>,
    pub(crate) epoch: Epoch,
    pub(crate) offers: Vec<SegmentOffer>,
    /// Where it says that it is.
    pub(crate) labels: Labels,
    /// What its heartbeats say.
    pub(crate) load_permille: u16,
    segments: Vec<SegmentId>,
    slabs: BTreeMap<(SegmentId, u16), Slab>,
    /// What was erased: no late write brings it back there.
    erased: BTreeSet<(SlabRef, u64, Version)>,
    /// Copies that are under way.
    pub(crate) copying: Vec<CopyOrder>,
    /// Readers hold whatever is to be erased: it stays, and is released when they let go.
    pub(crate) holds: bool,
    held: BTreeSet<(Extent, Version)>,
    pub(crate) inbox: VecDeque<Command>,
    pub(crate) outbox: VecDeque<Request>,
}

impl SimAgent {
    pub(crate) fn new(number: u32, slabs: u32, slab_bytes: u64) -> Self {
        let generation = SegmentGeneration(1);
        Self {
            name: AgentName::new(&format!("node-{number}")).expect("a name"),
            uid: AgentUid(u128::from(number) + 100),
            incarnation: Incarnation(1),
            up: true,
            connected: false,
            mounting: None,
            id: None,
            epoch: Epoch::default(),
            offers: vec![SegmentOffer {
                ordinal: 0,
                generation,
                slabs,
                slab_bytes,
                numa: 0,
            }],
            labels: Labels::default(),
            load_permille: 0,
            segments: Vec::new(),
            slabs: BTreeMap::new(),
            erased: BTreeSet::new(),
            holds: false,
            held: BTreeSet::new(),
            copying: Vec::new(),
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
        }
    }

    pub(crate) fn mount(&self) -> Request {
        Request::Mount {
            name: self.name.clone(),
            uid: self.uid,
            incarnation: self.incarnation,
            segments: self.offers.clone(),
            highest_epoch: self.epoch,
            labels: self.labels.clone(),
            kept: None,
        }
    }

    /// The leader accepted the mount. `is_known` says which records the log holds: in a new epoch
    /// all others are cut off, as the real agent does by acknowledging it.
    pub(crate) fn mounted(
        &mut self,
        epoch: Epoch,
        id: AgentId,
        segments: Vec<SegmentId>,
        outstanding: Vec<Command>,
        is_known: impl Fn(&Extent, Version) -> bool,
    ) {
        self.mounting = None;
        self.connected = true;
        self.id = Some(id);
        if epoch.generation > self.epoch.generation {
            // Another pool: numbers of the former one mean nothing in it.
            self.slabs.clear();
            self.held.clear();
        }
        self.slabs
            .retain(|(segment, _), _| segments.contains(segment));
        if epoch > self.epoch {
            for ((segment, index), slab) in &mut self.slabs {
                let (segment, index, registration) = (*segment, *index, slab.registration);
                let name = larder_types::SlabRef {
                    agent: id,
                    segment,
                    index,
                    registration,
                };
                slab.records.retain(|offset, (version, _)| {
                    let extent = Extent {
                        slab: name,
                        offset_bytes: *offset,
                        length_bytes: 0,
                    };
                    is_known(&extent, *version)
                });
            }
        }
        self.epoch = epoch;
        self.segments = segments;
        self.inbox = outstanding.into();
        self.outbox.clear();
        self.copying.clear();
        let incarnation = self.incarnation;
        self.outbox.push_back(Request::Heartbeat {
            agent: id,
            incarnation,
            load_permille: self.load_permille,
        });
    }

    /// Another life: nothing is left.
    pub(crate) fn restart(&mut self) {
        self.incarnation = Incarnation(self.incarnation.0 + 1);
        for offer in &mut self.offers {
            offer.generation = SegmentGeneration(offer.generation.0 + 1);
        }
        self.slabs.clear();
        self.held.clear();
        self.segments.clear();
        self.up = true;
        self.disconnect();
    }

    pub(crate) fn disconnect(&mut self) {
        self.connected = false;
        self.mounting = None;
        self.inbox.clear();
        self.outbox.clear();
        self.copying.clear();
    }

    /// Writes an extent of a put and its receipt; whether it could.
    ///
    /// # Panics
    /// If the extent overlaps a record that nobody erased: the fault that must never be.
    pub(crate) fn write(&mut self, tenant: &TenantId, extent: &Extent, version: Version) -> bool {
        let erased = (extent.slab, extent.offset_bytes, version);
        if !self.up || version.epoch < self.epoch || self.erased.contains(&erased) {
            return false;
        }
        self.store(tenant, extent, version)
    }

    /// Has the record of an extent; whether its slab is there.
    fn store(&mut self, tenant: &TenantId, extent: &Extent, version: Version) -> bool {
        let place = (extent.slab.segment, extent.slab.index);
        let Some(slab) = self
            .slabs
            .get_mut(&place)
            .filter(|slab| slab.registration == extent.slab.registration && slab.tenant == *tenant)
        else {
            return false;
        };
        let aligned = reserved_bytes(extent.length_bytes).expect("small");
        let (start, end) = (extent.offset_bytes, extent.offset_bytes + aligned);
        for (offset, (other, length)) in &slab.records {
            let overlaps = *offset < end && start < offset + length;
            assert!(
                !overlaps || *other == version,
                "{version} is written over {other}: {extent:?}"
            );
        }
        slab.records.insert(start, (version, aligned));
        true
    }

    /// Ends a copy: the bytes were read, or could not be.
    ///
    /// # Panics
    /// As [`Self::write`].
    pub(crate) fn end_copy(&mut self, order: &CopyOrder, was_read: bool) {
        let agent = self.id.expect("it was told by number");
        let copy = order.copy;
        let stores = |extent: &Extent| self.store(&order.tenant, extent, order.version);
        let answer = if was_read && order.to.iter().all(stores) {
            let digest = order.digest;
            Request::Copied {
                agent,
                copy,
                digest,
            }
        } else {
            let detail = "not read or no slab".to_owned();
            Request::CopyFailed {
                agent,
                copy,
                detail,
            }
        };
        self.outbox.push_back(answer);
    }

    /// Whether the bytes of an extent are there.
    pub(crate) fn reads(&self, extent: &Extent, version: Version) -> bool {
        self.slabs
            .get(&(extent.slab.segment, extent.slab.index))
            .is_some_and(|slab| {
                slab.registration == extent.slab.registration
                    && slab.records.get(&extent.offset_bytes).map(|(v, _)| *v) == Some(version)
            })
    }

    /// Readers let go of all that they hold.
    pub(crate) fn let_go(&mut self) {
        self.holds = false;
        let held = std::mem::take(&mut self.held);
        let erase = |(extent, version)| Command::Erase { extent, version };
        self.inbox.extend(held.into_iter().map(erase));
    }

    /// Obeys one command. `fails` lets a slab fail.
    pub(crate) fn obey(&mut self, fails: bool) {
        let Some(command) = self.inbox.pop_front() else {
            return;
        };
        match command {
            Command::SlabGive { slab, tenant, .. } => {
                let place = (slab.segment, slab.index);
                let held = self.slabs.get(&place).map(|held| held.registration);
                if held == Some(slab.registration) {
                    self.outbox.push_back(Request::SlabReady { slab });
                } else if fails {
                    let detail = "no memory".to_owned();
                    self.outbox.push_back(Request::SlabFailed { slab, detail });
                } else {
                    assert!(
                        held.is_none(),
                        "{slab:?} is given while it is held as {held:?}"
                    );
                    let registration = slab.registration;
                    let new = Slab {
                        registration,
                        tenant,
                        records: BTreeMap::new(),
                    };
                    self.slabs.insert(place, new);
                    self.outbox.push_back(Request::SlabReady { slab });
                }
            }
            Command::SlabTake { slab } => {
                let place = (slab.segment, slab.index);
                if self
                    .slabs
                    .get(&place)
                    .is_some_and(|s| s.registration == slab.registration)
                {
                    let gone = self.slabs.remove(&place).expect("looked up");
                    assert!(
                        gone.records.is_empty(),
                        "{slab:?} is taken with {:?}",
                        gone.records
                    );
                }
                self.outbox.push_back(Request::SlabReturned { slab });
            }
            Command::Erase { extent, version } => self.erase(extent, version),
            Command::TenantGone { .. } => {}
            Command::Copy(order) => {
                if self
                    .copying
                    .iter()
                    .all(|copying| copying.copy != order.copy)
                {
                    self.copying.push(*order);
                }
            }
        }
    }

    /// Erases an extent, unless a reader holds it; then later.
    fn erase(&mut self, extent: Extent, version: Version) {
        self.erased
            .insert((extent.slab, extent.offset_bytes, version));
        if self.holds && self.reads(&extent, version) {
            self.held.insert((extent, version));
            return;
        }
        self.held.remove(&(extent, version));
        let place = (extent.slab.segment, extent.slab.index);
        if let Some(slab) = self.slabs.get_mut(&place)
            && slab.registration == extent.slab.registration
            && slab
                .records
                .get(&extent.offset_bytes)
                .is_some_and(|(v, _)| *v == version)
        {
            slab.records.remove(&extent.offset_bytes);
        }
        let agent = extent.slab.agent;
        let extents = vec![(extent, version)];
        self.outbox.push_back(Request::Released { extents, agent });
    }
}
