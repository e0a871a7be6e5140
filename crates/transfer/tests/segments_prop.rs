//! Random histories of slabs against a naive model that keeps every 256-byte unit by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use larder_transfer::record::RecordState;
use larder_transfer::segments::ViewTicket;
use larder_transfer::{LocalMs, ReadTicket, Segments, SlabMemory, WriteStart, WriteTicket};
use larder_types::{
    AgentId, Attributes, Epoch, Extent, GroupId, Incarnation, Memo, Pin, PoolTime, Registration,
    SegmentId, SlabRef, TenantId, Version,
};
use larder_wire::agent::{Event, HeldObject, HeldRecord, HeldSlab};
use larder_wire::data::DataReason;
use larder_wire::{
    AgentKey, Capability, Reach, RootKey, SessionSigner, SessionVerifier, SignedCapability,
    checksum,
};
use proptest::prelude::*;

const UNIT: u64 = 256;
const UNITS: usize = 32;
const NOW: LocalMs = LocalMs(0);

#[derive(Clone, Copy, Debug)]
struct Spot {
    place: u16,
    unit: u64,
    length_bytes: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Give(u16),
    /// The version is this far below the newest; 0 = a new one.
    Begin(Spot, u64),
    /// Which of the open writes, and whether the bytes arrive changed.
    Finish(usize, bool),
    Abort(usize),
    Erase(Spot, u64),
    /// Erases what stands there.
    EraseRecord(usize),
    Read(usize),
    EndRead(usize),
    View(usize),
    CloseView(usize),
    Take(u16),
    Term,
    Generation,
    /// A generation that is made from what is here.
    Rebuild,
}

fn spot() -> impl Strategy<Value = Spot> {
    (0..2_u16, 0..UNITS as u64, 1..6_u64, 0..UNIT).prop_map(|(place, unit, units, less)| Spot {
        place,
        unit,
        length_bytes: units * UNIT - less,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let any_index = any::<usize>();
    prop_oneof![
        2 => (0..2_u16).prop_map(Step::Give),
        12 => (spot(), 0..4_u64).prop_map(|(spot, back)| Step::Begin(spot, back)),
        10 => (any_index, prop::bool::weighted(0.1)).prop_map(|(i, bad)| Step::Finish(i, bad)),
        2 => any_index.prop_map(Step::Abort),
        4 => (spot(), 0..6_u64).prop_map(|(spot, back)| Step::Erase(spot, back)),
        6 => any_index.prop_map(Step::EraseRecord),
        6 => any_index.prop_map(Step::Read),
        6 => any_index.prop_map(Step::EndRead),
        3 => any_index.prop_map(Step::View),
        3 => any_index.prop_map(Step::CloseView),
        1 => (0..2_u16).prop_map(Step::Take),
        1 => Just(Step::Term),
        1 => Just(Step::Generation),
        1 => Just(Step::Rebuild),
    ]
}

/// What the model knows about one unit of an open slab.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Unit {
    record: Option<(Extent, Version, RecordState)>,
    refused: Option<Version>,
}

#[derive(Clone, Debug)]
struct Held {
    /// Distinguishes slabs of different lives of the pool with equal numbers.
    life: u64,
    extent: Extent,
    version: Version,
    term: u64,
}

struct World {
    segments: Segments,
    key: AgentKey,
    generation: u64,
    /// Rises with each generation that starts empty.
    life: u64,
    term: u64,
    registration: u64,
    counter: u64,
    open: BTreeMap<u16, (SlabRef, Vec<Unit>)>,
    leaving: Vec<SlabRef>,
    writes: Vec<(WriteTicket, Held)>,
    reads: Vec<(ReadTicket, Held)>,
    views: Vec<(ViewTicket, Held)>,
    waiting: BTreeSet<(Extent, Version)>,
    /// Every version that was erased, by life, slab and unit.
    erased: BTreeSet<(u64, SlabRef, u64, Version)>,
    expected: Vec<Event>,
}

fn tenant() -> TenantId {
    TenantId::new("t").expect("a name")
}

fn units(extent: &Extent) -> std::ops::Range<u64> {
    extent.offset_bytes / UNIT..(extent.offset_bytes + extent.length_bytes).div_ceil(UNIT)
}

fn overlap(a: &Extent, b: &Extent) -> bool {
    let (x, y) = (units(a), units(b));
    a.slab == b.slab && x.start < y.end && y.start < x.end
}

fn payload(extent: &Extent, version: Version) -> Vec<u8> {
    let seed = version.counter * 7 + extent.offset_bytes;
    (0..extent.length_bytes)
        .map(|i| ((i + seed) % 253) as u8)
        .collect()
}

/// Different in records of different versions.
fn memo(version: Version) -> Memo {
    let counter = version.counter;
    let pins = [Pin::None, Pin::Hard, Pin::Soft { ttl_ms: counter }];
    Memo {
        stripe: counter as u32,
        wanted: (counter % 5) as u8,
        attributes: Attributes {
            pin: pins[counter as usize % 3],
            group: counter
                .is_multiple_of(2)
                .then(|| GroupId::new("group").expect("a name")),
            ..Attributes::default()
        },
    }
}

/// What is said of a written record.
fn held_object(extent: &Extent, version: Version) -> HeldObject {
    let crcs = checksum::block_crcs(&payload(extent, version));
    HeldObject {
        key: b"key".to_vec(),
        part: 0,
        parts: 1,
        object_bytes: extent.length_bytes,
        digest: checksum::digest(&crcs, extent.length_bytes),
        memo: memo(version),
    }
}

impl World {
    fn new() -> Self {
        let root = RootKey::new([3; 32]);
        let name = "agent".parse().expect("a name");
        let key = root.agent_key(&name, Incarnation(1), 1);
        let signer = SessionSigner::new(&root).expect("a key");
        let verifier = SessionVerifier::new(signer.verify_key().expect("a key"));
        let mut segments = Segments::new(Incarnation(1), Epoch::default());
        segments
            .see_epoch(
                Epoch {
                    generation: 1,
                    term: 1,
                },
                PoolTime(0),
                NOW,
            )
            .expect("new");
        segments.mounted(AgentId(1), vec![SegmentId(1)], key.clone(), verifier);
        Self {
            segments,
            key,
            generation: 1,
            life: 1,
            term: 1,
            registration: 0,
            counter: 1,
            open: BTreeMap::new(),
            leaving: Vec::new(),
            writes: Vec::new(),
            reads: Vec::new(),
            views: Vec::new(),
            waiting: BTreeSet::new(),
            erased: BTreeSet::new(),
            expected: Vec::new(),
        }
    }

    fn version(&self, back: u64) -> Version {
        Version {
            epoch: Epoch {
                generation: 1,
                term: 1,
            },
            counter: self.counter.saturating_sub(back).max(1),
        }
    }

    fn extent(&self, spot: Spot) -> Option<Extent> {
        let (slab, _) = self.open.get(&spot.place)?;
        Some(Extent {
            slab: *slab,
            offset_bytes: spot.unit * UNIT,
            length_bytes: spot.length_bytes,
        })
    }

    fn sign(&self, extent: Extent, version: Version, reach: Reach) -> SignedCapability {
        let capability = Capability {
            tenant: tenant(),
            incarnation: Incarnation(1),
            extent,
            version,
            reach,
            epoch: Epoch {
                generation: self.generation,
                term: self.term,
            },
            deadline: PoolTime(1),
            part: 0,
            parts: 1,
            object_bytes: extent.length_bytes,
            key: b"key".to_vec(),
            memo: memo(version),
        };
        SignedCapability::sign(&capability, &self.key).expect("it encodes")
    }

    fn held(&self, extent: Extent, version: Version) -> Held {
        Held {
            life: self.life,
            extent,
            version,
            term: self.term,
        }
    }

    fn holds(&self) -> impl Iterator<Item = &Held> {
        let writes = self.writes.iter().map(|(_, held)| held);
        let reads = self.reads.iter().map(|(_, held)| held);
        writes
            .chain(reads)
            .chain(self.views.iter().map(|(_, held)| held))
    }

    fn is_held(&self, extent: &Extent) -> bool {
        self.holds()
            .any(|h| h.life == self.life && overlap(&h.extent, extent))
    }

    /// Every written record of the model, once.
    fn written(&self) -> Vec<(Extent, Version)> {
        let all = self
            .open
            .values()
            .flat_map(|(_, units)| units)
            .filter_map(|unit| unit.record);
        let written = all.filter(|(_, _, state)| *state == RecordState::Written);
        written
            .map(|(e, v, _)| (e, v))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }

    fn expect_write(&self, extent: &Extent, version: Version) -> Result<bool, DataReason> {
        let Some((_, slab)) = self.open.get(&extent.slab.index) else {
            return Err(DataReason::StaleRegistration);
        };
        if units(extent).end > UNITS as u64 {
            return Err(DataReason::OutOfBounds);
        }
        let touched: Vec<Unit> = units(extent).map(|u| slab[u as usize]).collect();
        match touched[0].record {
            Some((e, v, RecordState::Written)) if (e, v) == (*extent, version) => return Ok(true),
            Some((e, v, _)) if (e, v) == (*extent, version) => {
                return if self.is_held(extent) {
                    Err(DataReason::Conflict)
                } else {
                    Ok(false)
                };
            }
            _ => {}
        }
        let stale = touched.iter().any(|unit| {
            unit.refused >= Some(version) || unit.record.is_some_and(|(_, v, _)| v >= version)
        });
        match (stale, self.is_held(extent)) {
            (true, _) => Err(DataReason::StaleVersion),
            (_, true) => Err(DataReason::Conflict),
            _ => Ok(false),
        }
    }

    fn begin(&mut self, extent: Extent, version: Version) {
        let expected = self.expect_write(&extent, version);
        let signed = self.sign(extent, version, Reach::Write);
        let ticket = match self.segments.begin_write(&tenant(), &signed, NOW) {
            Err(error) => return assert_eq!(Err(error.reason), expected),
            Ok(WriteStart::Already(receipt, crcs)) => {
                assert_eq!(Ok(true), expected);
                receipt.verify(&self.key).expect("genuine");
                return assert_eq!(crcs, checksum::block_crcs(&payload(&extent, version)));
            }
            Ok(WriteStart::Go(ticket)) => ticket,
        };
        assert_eq!(Ok(false), expected);
        let life = self.life;
        for unit in units(&extent) {
            let fenced = (life, extent.slab, unit, version);
            assert!(
                !self.erased.contains(&fenced),
                "an erased version is written again"
            );
        }
        for (_, other) in &self.writes {
            let same_slab = other.life == life;
            assert!(
                !(same_slab && overlap(&other.extent, &extent)),
                "two writers in one place"
            );
        }
        // Half of the bytes land at once, the others when the write is finished.
        let bytes = payload(&extent, version);
        ticket
            .memory
            .copy_in(ticket.offset_bytes, &bytes[..bytes.len() / 2])
            .expect("fits");
        let slab = &mut self
            .open
            .get_mut(&extent.slab.index)
            .expect("it was written to")
            .1;
        let older: Vec<(Extent, Version, RecordState)> = units(&extent)
            .filter_map(|u| slab[u as usize].record)
            .collect();
        for (old, old_version, _) in older.into_iter().filter(|(_, v, _)| *v != version) {
            for unit in units(&old) {
                let unit = &mut slab[unit as usize];
                (unit.record, unit.refused) = (None, unit.refused.max(Some(old_version)));
            }
        }
        for unit in units(&extent) {
            let record = Some((extent, version, RecordState::Writing));
            let again = slab[unit as usize].record == record;
            // A repeat changes nothing; a new record covers what was refused.
            let refused = if again {
                slab[unit as usize].refused
            } else {
                None
            };
            slab[unit as usize] = Unit { record, refused };
        }
        let held = self.held(extent, version);
        self.writes.push((ticket, held));
    }

    fn finish(&mut self, at: usize, changed: bool) {
        let (ticket, held) = self.writes.swap_remove(at);
        let bytes = payload(&held.extent, held.version);
        let half = bytes.len() / 2;
        let rest = ticket.offset_bytes + half as u64;
        ticket.memory.copy_in(rest, &bytes[half..]).expect("fits");
        let own = ticket
            .memory
            .block_crcs(ticket.offset_bytes, ticket.length_bytes);
        let own = own.expect("fits");
        assert_eq!(
            own,
            checksum::block_crcs(&bytes),
            "somebody else wrote there"
        );
        let source = if changed {
            vec![own[0] ^ 1]
        } else {
            own.clone()
        };
        let record = (held.extent, held.version, RecordState::Writing);
        let term = self.term;
        let stands = self.stands(&held, record);
        let outcome = self.segments.finish_write(ticket, &source, &own);
        let expected = match (stands, held.term < term, changed) {
            (false, _, _) => Err(DataReason::StaleVersion),
            (_, true, _) => Err(DataReason::StaleEpoch),
            (_, _, true) => Err(DataReason::Checksum),
            _ => Ok(()),
        };
        assert_eq!(outcome.map(|_| ()).map_err(|error| error.reason), expected);
        if expected.is_ok() {
            let slab = &mut self
                .open
                .get_mut(&held.extent.slab.index)
                .expect("it stands")
                .1;
            for unit in units(&held.extent) {
                slab[unit as usize].record =
                    Some((held.extent, held.version, RecordState::Written));
            }
        }
        self.ended(&held);
    }

    fn stands(&self, held: &Held, record: (Extent, Version, RecordState)) -> bool {
        let slab = self.open.get(&held.extent.slab.index);
        let first = units(&held.extent).start as usize;
        held.life == self.life
            && slab.is_some_and(|(slab, units)| {
                *slab == held.extent.slab && units[first].record == Some(record)
            })
    }

    fn erase(&mut self, extent: Extent, version: Version) {
        self.segments.erase(extent, version);
        if let Some((_, slab)) = self.open.get_mut(&extent.slab.index) {
            let mut touched: BTreeSet<u64> = units(&extent).filter(|u| *u < UNITS as u64).collect();
            let meant: Vec<Extent> = touched
                .iter()
                .filter_map(|u| slab[*u as usize].record)
                .filter(|(_, v, _)| *v == version)
                .map(|(e, _, _)| e)
                .collect();
            touched.extend(meant.iter().flat_map(units));
            for u in touched {
                let unit = &mut slab[u as usize];
                unit.record = unit.record.filter(|(_, v, _)| *v != version);
                if unit.record.is_none_or(|(_, v, _)| v < version) {
                    unit.refused = unit.refused.max(Some(version));
                }
                self.erased.insert((self.life, extent.slab, u, version));
            }
        }
        self.waiting.insert((extent, version));
        self.settle();
    }

    /// Moves what nothing holds any more to the expected events.
    fn settle(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        for (extent, version) in waiting {
            if self.is_held(&extent) {
                self.waiting.insert((extent, version));
            } else {
                self.expected.push(Event::Released { extent, version });
            }
        }
        let whole = |slab: SlabRef| Extent {
            slab,
            offset_bytes: 0,
            length_bytes: UNITS as u64 * UNIT,
        };
        for slab in std::mem::take(&mut self.leaving) {
            if self.is_held(&whole(slab)) {
                self.leaving.push(slab);
            } else {
                self.expected.push(Event::SlabReturned { slab });
            }
        }
    }

    fn ended(&mut self, held: &Held) {
        if held.life == self.life {
            self.settle();
        }
    }

    fn read(&mut self, at: usize) {
        let written = self.written();
        let Some((extent, version)) = pick(&written, at).copied() else {
            return;
        };
        let signed = self.sign(extent, version, Reach::Read);
        let length = extent.length_bytes;
        let ticket = self.segments.begin_read(&tenant(), &signed, 0, length, NOW);
        let ticket = ticket.expect("it is written");
        let held = self.held(extent, version);
        self.reads.push((ticket, held));
    }

    fn end_read(&mut self, at: usize) {
        let (ticket, held) = self.reads.swap_remove(at);
        let mut bytes = vec![0; ticket.length_bytes as usize];
        ticket
            .memory
            .copy_out(ticket.offset_bytes, &mut bytes)
            .expect("fits");
        assert_eq!(
            bytes,
            payload(&held.extent, held.version),
            "held bytes changed"
        );
        assert_eq!(ticket.block_crcs, checksum::block_crcs(&bytes));
        let record = (held.extent, held.version, RecordState::Written);
        let stands = self.stands(&held, record);
        assert_eq!(self.segments.end_read(ticket), stands);
        self.ended(&held);
    }

    fn view(&mut self, at: usize) {
        let written = self.written();
        let Some((extent, version)) = pick(&written, at).copied() else {
            return;
        };
        let signed = self.sign(extent, version, Reach::Read);
        let ticket = self
            .segments
            .open_view(&tenant(), &signed, NOW)
            .expect("it is written");
        let held = self.held(extent, version);
        self.views.push((ticket, held));
    }

    fn close_view(&mut self, at: usize) {
        let (ticket, held) = self.views.swap_remove(at);
        let mut bytes = vec![0; ticket.length_bytes as usize];
        ticket
            .memory
            .copy_out(ticket.offset_bytes, &mut bytes)
            .expect("fits");
        assert_eq!(
            bytes,
            payload(&held.extent, held.version),
            "viewed bytes changed"
        );
        self.segments.close_view(ticket);
        self.ended(&held);
    }

    fn give(&mut self, place: u16) {
        let memory = Arc::new(SlabMemory::create("prop", UNITS as u64 * UNIT).expect("memory"));
        let slab = self.open.get(&place).map_or_else(
            || {
                self.registration += 1;
                SlabRef {
                    agent: AgentId(1),
                    segment: SegmentId(1),
                    index: place,
                    registration: Registration(self.registration),
                }
            },
            |(slab, _)| *slab,
        );
        self.segments.give_slab(slab, tenant(), memory, None);
        self.expected.push(Event::SlabReady { slab });
        self.open
            .entry(place)
            .or_insert_with(|| (slab, vec![Unit::default(); UNITS]));
    }

    fn take(&mut self, place: u16) {
        let Some((slab, _)) = self.open.remove(&place) else {
            return;
        };
        self.segments.take_slab(slab);
        self.expected
            .retain(|event| *event != Event::SlabReady { slab });
        self.leaving.push(slab);
        self.settle();
    }

    fn rise(&mut self, step: &Step) {
        // Also within a new generation: what was begun before it is late by this.
        self.term += 1;
        if !matches!(step, Step::Term) {
            self.generation += 1;
        }
        let epoch = Epoch {
            generation: self.generation,
            term: self.term,
        };
        if matches!(step, Step::Rebuild) {
            let rose = self.segments.see_epoch_keeping(epoch, PoolTime(0), NOW);
            return assert_eq!(rose, Ok(true));
        }
        if matches!(step, Step::Generation) {
            self.life += 1;
            self.registration = 0;
            self.open.clear();
            self.leaving.clear();
            self.waiting.clear();
            self.expected.clear();
        }
        assert_eq!(self.segments.see_epoch(epoch, PoolTime(0), NOW), Ok(true));
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Give(place) => self.give(place),
            Step::Begin(spot, back) => {
                if back == 0 {
                    self.counter += 1;
                }
                let version = self.version(back);
                if let Some(extent) = self.extent(spot) {
                    self.begin(extent, version);
                }
            }
            Step::Finish(at, bad) if !self.writes.is_empty() => {
                self.finish(at % self.writes.len(), bad);
            }
            Step::Abort(at) if !self.writes.is_empty() => {
                let (ticket, held) = self.writes.swap_remove(at % self.writes.len());
                self.segments.abort_write(ticket);
                self.ended(&held);
            }
            Step::Erase(spot, back) => {
                let version = self.version(back);
                if let Some(extent) = self.extent(spot) {
                    self.erase(extent, version);
                }
            }
            Step::EraseRecord(at) => {
                if let Some((extent, version)) = pick(&self.written(), at).copied() {
                    self.erase(extent, version);
                }
            }
            Step::Read(at) => self.read(at),
            Step::EndRead(at) if !self.reads.is_empty() => self.end_read(at % self.reads.len()),
            Step::View(at) => self.view(at),
            Step::CloseView(at) if !self.views.is_empty() => {
                self.close_view(at % self.views.len());
            }
            Step::Take(place) => self.take(place),
            Step::Term | Step::Generation | Step::Rebuild => self.rise(&step),
            _ => {}
        }
    }

    fn check(&mut self) {
        let stats = self.segments.stats();
        assert_eq!(stats.writes, self.writes.len());
        assert_eq!(
            (stats.reads, stats.views),
            (self.reads.len(), self.views.len())
        );
        assert_eq!(stats.waiting_releases, self.waiting.len());
        assert!(
            stats.marks <= UNITS * self.open.len(),
            "{} marks",
            stats.marks
        );
        assert_eq!(stats.record_file_failures, 0);
        for (slab, units) in self.open.values() {
            self.check_slab(*slab, units);
        }
        self.check_inventory();
        let events = self.segments.take_events();
        for event in &events {
            if let Event::Released { extent, .. } = event {
                assert!(!self.is_held(extent), "released while it is held");
            }
        }
        let text = |events: &[Event]| -> BTreeSet<String> {
            events.iter().map(|event| format!("{event:?}")).collect()
        };
        assert_eq!(text(&events), text(&self.expected));
        self.expected.clear();
    }

    /// The page lists each open slab, each record, and what is erased and held, once.
    fn check_inventory(&self) {
        let page = self.segments.inventory_page(None);
        assert_eq!(page.next, None, "so little fits one page");
        let slabs = self.open.values().map(|(slab, _)| HeldSlab {
            slab: *slab,
            tenant: tenant(),
        });
        assert_eq!(page.slabs, slabs.collect::<Vec<_>>());
        let mut expected = BTreeMap::new();
        for (extent, version, state) in self
            .open
            .values()
            .flat_map(|(_, units)| units)
            .filter_map(|unit| unit.record)
        {
            let written = state == RecordState::Written;
            let object = written.then(|| held_object(&extent, version));
            expected.insert(extent, (version, object));
        }
        // Of what waits the first in order, where nothing else says that the bytes are taken.
        for (extent, version) in &self.waiting {
            let is_whole = units(extent).end <= UNITS as u64;
            let is_open = self.open.values().any(|(slab, _)| *slab == extent.slab);
            if is_whole && is_open && !expected.keys().any(|other| overlap(other, extent)) {
                expected.insert(*extent, (*version, None));
            }
        }
        let expected = expected
            .into_iter()
            .map(|(extent, (version, written))| HeldRecord {
                extent,
                version,
                written,
            });
        assert_eq!(page.records, expected.collect::<Vec<_>>());
    }

    fn check_slab(&self, slab: SlabRef, units: &[Unit]) {
        let mut seen = vec![Unit::default(); UNITS];
        let mut table = self.segments.records(slab);
        for record in &table {
            let extent = Extent {
                slab,
                offset_bytes: record.offset_bytes,
                length_bytes: record.length_bytes,
            };
            for unit in self::units(&extent) {
                let seen = &mut seen[unit as usize];
                if record.state == RecordState::Erased {
                    assert_eq!(seen.refused.replace(record.version), None, "marks overlap");
                } else {
                    let found = Some((extent, record.version, record.state));
                    assert_eq!(std::mem::replace(&mut seen.record, found), None);
                }
            }
        }
        assert_eq!(seen, units);
        let mut file = self.segments.scan_records(slab).expect("a sound file");
        for records in [&mut table, &mut file] {
            records.sort_by_key(|record| (record.offset_bytes, record.state as u8));
        }
        assert_eq!(table, file);
    }
}

fn pick<T>(from: &[T], at: usize) -> Option<&T> {
    from.get(at.checked_rem(from.len())?)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn histories_agree_with_the_model(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        world.give(0);
        world.give(1);
        for step in steps {
            world.run(step);
            world.check();
        }
        while !world.writes.is_empty() {
            world.finish(0, false);
        }
        while !world.reads.is_empty() {
            world.end_read(0);
        }
        while !world.views.is_empty() {
            world.close_view(0);
        }
        world.check();
        world.take(0);
        world.take(1);
        world.check();
        let stats = world.segments.stats();
        prop_assert_eq!((stats.slabs, stats.leaving_slabs, stats.slab_bytes), (0, 0, 0));
        prop_assert_eq!((stats.records, stats.marks, stats.record_file_bytes), (0, 0, 0));
        prop_assert_eq!((stats.view_bytes, stats.waiting_releases), (0, 0));
    }
}
