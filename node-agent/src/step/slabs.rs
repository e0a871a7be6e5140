//! Slabs and the commands about them: each is done once and answered as often as it was received.

use std::collections::BTreeMap;

use larder_types::{Registration, SegmentGeneration, SlabRef, TenantId};
use larder_wire::agent::{Command, Event as Outcome, SegmentOffer};
use rand::Rng;
use rand::rngs::SmallRng;

use super::waits::{TooMany, Wait, Waits};
use super::{Action, DataOrder, Identity, MakeId, Note, SegmentShape, Settings};

/// Slabs by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlabCounts {
    /// Memory is being made.
    pub making: u64,
    /// Usable.
    pub held: u64,
    /// Taken back; readers may still hold bytes.
    pub taking: u64,
}

#[derive(Debug)]
enum State {
    Making {
        make: MakeId,
        tenant: TenantId,
        view_bytes: Option<u64>,
    },
    /// The data side was told and has not confirmed yet.
    Installing,
    Held,
    Taking,
}

#[derive(Debug)]
struct Entry {
    ordinal: usize,
    state: State,
}

#[derive(Debug)]
struct Segment {
    shape: SegmentShape,
    generation: SegmentGeneration,
}

#[derive(Debug)]
pub(super) struct Slabs {
    slab_bytes: u64,
    segments: Vec<Segment>,
    /// At most as many per segment as it has slabs.
    entries: BTreeMap<SlabRef, Entry>,
    /// As received on this link.
    waits: Waits,
    makes: u64,
}

impl Slabs {
    pub(super) fn new(settings: &Settings, random: &mut SmallRng) -> Self {
        let generation = SegmentGeneration(0);
        let segments = settings.segments.iter().map(|shape| Segment {
            shape: *shape,
            generation,
        });
        let mut slabs = Self {
            slab_bytes: settings.slab_bytes,
            segments: segments.collect(),
            entries: BTreeMap::new(),
            waits: Waits::default(),
            makes: 0,
        };
        slabs.renew_generations(random);
        slabs
    }

    /// A new life of all segments: nothing that was written before is in them.
    pub(super) fn renew_generations(&mut self, random: &mut SmallRng) {
        for segment in &mut self.segments {
            segment.generation = SegmentGeneration(random.random());
        }
    }

    pub(super) fn offers(&self) -> Vec<SegmentOffer> {
        let offers = self
            .segments
            .iter()
            .zip(0..)
            .map(|(segment, ordinal)| SegmentOffer {
                ordinal,
                generation: segment.generation,
                slabs: segment.shape.slabs,
                slab_bytes: self.slab_bytes,
                numa: segment.shape.numa,
            });
        offers.collect()
    }

    pub(super) fn counts(&self) -> SlabCounts {
        let mut counts = SlabCounts::default();
        for entry in self.entries.values() {
            match entry.state {
                State::Making { .. } | State::Installing => counts.making += 1,
                State::Held => counts.held += 1,
                State::Taking => counts.taking += 1,
            }
        }
        counts
    }

    pub(super) fn take_answers(&mut self) -> Vec<Outcome> {
        self.waits.take_answers()
    }

    /// Nobody is there any more to be answered. What is under way goes on.
    pub(super) fn forget_waits(&mut self) {
        self.waits = Waits::default();
    }

    /// Lets go of everything, unasked: nobody waits to hear that it is gone. What readers still
    /// hold then is the data side's to count.
    pub(super) fn empty(&mut self, actions: &mut Vec<Action>) {
        self.forget_waits();
        for (slab, entry) in std::mem::take(&mut self.entries) {
            if matches!(entry.state, State::Installing | State::Held) {
                actions.push(Action::Data(DataOrder::Take(slab)));
            }
        }
    }

    /// Forgets slabs whose memory is still being made: a master that asks what there is knows
    /// nothing of them. The memory is dropped when it comes.
    pub(super) fn drop_making(&mut self) {
        let is_made = |state: &State| !matches!(state, State::Making { .. });
        self.entries.retain(|_, entry| is_made(&entry.state));
    }

    /// Forgets slabs that are not of this identity; true if there were any. The data side drops
    /// them by itself when it hears of the mount.
    pub(super) fn keep(&mut self, identity: &Identity) -> bool {
        let before = self.entries.len();
        self.entries.retain(|slab, _| {
            slab.agent == identity.agent && identity.segments.contains(&slab.segment)
        });
        self.entries.len() < before
    }

    pub(super) fn command(
        &mut self,
        command: Command,
        identity: Option<&Identity>,
        actions: &mut Vec<Action>,
    ) -> Result<(), TooMany> {
        match command {
            Command::SlabGive {
                slab,
                tenant,
                slab_bytes,
                view_bytes,
            } => {
                self.waits.receive(Wait::Ready(slab))?;
                self.give(slab, tenant, slab_bytes, view_bytes, identity, actions);
            }
            Command::SlabTake { slab } => {
                self.waits.receive(Wait::Returned(slab))?;
                self.let_go(slab, actions);
                if !self.entries.contains_key(&slab) {
                    // The data side notes that this life is over, and answers at once.
                    actions.push(Action::Data(DataOrder::Take(slab)));
                }
            }
            Command::Erase { extent, version } => {
                self.waits.receive(Wait::Released(extent, version))?;
                // Also for a slab that is being made or gone: the data side then refuses a late
                // write of that version, and answers at once.
                actions.push(Action::Data(DataOrder::Erase(extent, version)));
            }
            Command::TenantGone { tenant } => {
                actions.push(Action::Data(DataOrder::TenantGone(tenant)));
            }
            // The data side bounds them, and answers each.
            Command::Copy(order) => actions.push(Action::Data(DataOrder::Copy(order))),
        }
        Ok(())
    }

    fn fail(&mut self, slab: SlabRef, detail: String, actions: &mut Vec<Action>) {
        if let Some(detail) = self.waits.fail(slab, detail) {
            actions.push(Action::Note(Note::SlabRefused(slab, detail)));
        }
    }

    fn give(
        &mut self,
        slab: SlabRef,
        tenant: TenantId,
        slab_bytes: u64,
        view_bytes: Option<u64>,
        identity: Option<&Identity>,
        actions: &mut Vec<Action>,
    ) {
        match self.entries.get(&slab).map(|entry| &entry.state) {
            Some(State::Held) => return self.waits.answer(Wait::Ready(slab)),
            Some(State::Making { .. } | State::Installing) => return,
            Some(State::Taking) => {
                let detail = "readers still hold bytes of its former life".to_owned();
                return self.fail(slab, detail, actions);
            }
            None => {}
        }
        let ordinal = match self.place(slab, slab_bytes, identity) {
            Ok(ordinal) => ordinal,
            Err(detail) => return self.fail(slab, detail, actions),
        };
        self.makes += 1;
        let make = MakeId(self.makes);
        let state = State::Making {
            make,
            tenant,
            view_bytes,
        };
        self.entries.insert(slab, Entry { ordinal, state });
        actions.push(Action::MakeSlab {
            make,
            slab,
            ordinal,
        });
    }

    /// The segment in which the slab has room; the sentence says why it has not.
    fn place(
        &self,
        slab: SlabRef,
        slab_bytes: u64,
        identity: Option<&Identity>,
    ) -> Result<usize, String> {
        let known = identity.filter(|known| known.agent == slab.agent);
        let ordinal = known
            .and_then(|known| known.segments.iter().position(|id| *id == slab.segment))
            .ok_or_else(|| "it is not of a segment of this agent".to_owned())?;
        let segment = self
            .segments
            .get(ordinal)
            .ok_or_else(|| "no such segment".to_owned())?;
        if slab_bytes != self.slab_bytes {
            return Err(format!(
                "slabs here have {} bytes, not {slab_bytes}",
                self.slab_bytes
            ));
        }
        if u32::from(slab.index) >= segment.shape.slabs {
            return Err(format!(
                "the segment has only {} slabs",
                segment.shape.slabs
            ));
        }
        let first = SlabRef {
            registration: Registration(0),
            ..slab
        };
        let last = SlabRef {
            registration: Registration(u64::MAX),
            ..slab
        };
        if self.entries.range(first..=last).next().is_some() {
            return Err("its place is still taken under another registration".to_owned());
        }
        // After a start over, readers may hold slabs that the master does not know of.
        let used = self
            .entries
            .values()
            .filter(|entry| entry.ordinal == ordinal)
            .count();
        if used >= segment.shape.slabs as usize {
            return Err("readers still hold the memory of slabs that were taken back".to_owned());
        }
        Ok(ordinal)
    }

    /// Stops all use of a slab. Afterwards it is `Taking`, or gone if it never had memory.
    fn let_go(&mut self, slab: SlabRef, actions: &mut Vec<Action>) {
        let Some(entry) = self.entries.get_mut(&slab) else {
            return;
        };
        match &entry.state {
            State::Taking => {}
            State::Installing | State::Held => {
                entry.state = State::Taking;
                actions.push(Action::Data(DataOrder::Take(slab)));
                let detail = "it was taken back before it was ready".to_owned();
                self.fail(slab, detail, actions);
            }
            // The memory is dropped when it comes: nobody knows its number any more.
            State::Making { .. } => {
                self.entries.remove(&slab);
                let detail = "it was taken back before it was made".to_owned();
                self.fail(slab, detail, actions);
            }
        }
    }

    /// Memory was made, or not.
    pub(super) fn made(
        &mut self,
        made: MakeId,
        result: Result<(), String>,
        actions: &mut Vec<Action>,
    ) {
        let is_it = |state: &State| matches!(state, State::Making { make, .. } if *make == made);
        let wanted = self
            .entries
            .iter_mut()
            .find(|(_, entry)| is_it(&entry.state));
        let Some((slab, entry)) = wanted else {
            if result.is_ok() {
                actions.push(Action::DropMade(made));
            }
            return;
        };
        let slab = *slab;
        if let Err(detail) = result {
            self.entries.remove(&slab);
            return self.fail(slab, detail, actions);
        }
        let state = std::mem::replace(&mut entry.state, State::Installing);
        let State::Making {
            make,
            tenant,
            view_bytes,
        } = state
        else {
            return;
        };
        actions.push(Action::Data(DataOrder::Give {
            make,
            slab,
            tenant,
            view_bytes,
        }));
    }

    /// The data side did something.
    pub(super) fn happened(&mut self, outcomes: Vec<Outcome>, actions: &mut Vec<Action>) {
        for outcome in outcomes {
            match outcome {
                Outcome::SlabReady { slab } => {
                    let entry = self.entries.get_mut(&slab);
                    if let Some(Entry {
                        state: state @ State::Installing,
                        ..
                    }) = entry
                    {
                        *state = State::Held;
                        self.waits.answer(Wait::Ready(slab));
                    }
                }
                Outcome::SlabReturned { slab } => {
                    let entry = self.entries.get(&slab);
                    if entry.is_some_and(|entry| matches!(entry.state, State::Taking)) {
                        self.entries.remove(&slab);
                        self.waits.answer_gone(slab);
                    } else {
                        // It was not here when it was taken.
                        self.waits.answer(Wait::Returned(slab));
                    }
                }
                Outcome::Released { extent, version } => {
                    self.waits.answer(Wait::Released(extent, version));
                }
                Outcome::Copied { .. } | Outcome::CopyFailed { .. } => {
                    self.waits.tell(outcome);
                }
                Outcome::SlabFailed { slab, detail } => {
                    let entry = self.entries.get(&slab);
                    if entry.is_some_and(|entry| matches!(entry.state, State::Installing)) {
                        self.entries.remove(&slab);
                        self.fail(slab, detail, actions);
                    }
                }
            }
        }
    }
}
