//! The search for an order that explains the history of one key.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::counterexample::{Counterexample, Fault, SHOWN_MAX};
use super::events::{Event, events};
use super::limits::{Limits, Why};
use super::losses::Losses;
use super::operation::{Call, Operation, Value};
use super::slots::{SLOTS, Slots};

/// What became of a key.
pub(super) enum Verdict {
    Explained,
    Violated(Box<Counterexample>),
    Undecided(Why),
}

/// One way in which all answers so far can have come about.
#[derive(Clone, Copy)]
struct Configuration {
    held: Option<Value>,
    /// The pending operations that had their moment.
    done: Slots,
    /// The end of its order in [`Search::steps`], from 1; 0 is the beginning.
    last: u32,
}

/// One operation of an order, by its place, and the step before it.
struct Step {
    operation: u32,
    before: u32,
}

/// What a configuration must have come to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Aim {
    /// The operation of this slot had its moment.
    Done(usize),
    /// The key was just lost, or nothing more happened.
    Lost,
}

type Reached = Vec<Configuration>;

/// What was seen: configurations by what makes them differ for good, each with the unknown
/// operations that it used up.
type Seen = HashMap<(Option<Value>, Slots), Vec<Slots>>;

/// The search over one key. It owns all that it remembers.
pub(super) struct Search<'a> {
    operations: &'a [&'a Operation],
    events: Vec<Event>,
    limits: Limits,
    slots: Vec<usize>,
    /// The slot of each operation that is pending.
    slot_of: Vec<usize>,
    pending: Slots,
    unknown: Slots,
    looking: Slots,
    may_lose: bool,
    configurations: Vec<Configuration>,
    steps: Vec<Step>,
    called: usize,
    most: usize,
}

impl<'a> Search<'a> {
    pub(super) fn new(operations: &'a [&'a Operation], losses: &Losses, limits: Limits) -> Self {
        let start = Configuration {
            held: None,
            done: Slots::default(),
            last: 0,
        };
        Self {
            operations,
            events: events(operations, losses),
            limits,
            slots: vec![0; SLOTS],
            slot_of: vec![0; operations.len()],
            pending: Slots::default(),
            unknown: Slots::default(),
            looking: Slots::default(),
            may_lose: *losses == Losses::Any,
            configurations: vec![start],
            steps: Vec::new(),
            called: 0,
            most: 1,
        }
    }

    /// The most configurations that one moment needed.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    pub(super) fn run(&mut self) -> Verdict {
        for event in std::mem::take(&mut self.events) {
            let gone_on = match event {
                Event::Opens => {
                    self.may_lose = true;
                    Ok(())
                }
                Event::Closes => {
                    let starts = std::mem::take(&mut self.configurations);
                    let reached = self.reach(&starts, Aim::Lost);
                    self.may_lose = false;
                    reached.map(|reached| {
                        self.configurations = reached;
                        self.drop_weaker();
                    })
                }
                Event::Called(index) => self.call(index),
                Event::Expired(index) => self.expire(index),
                Event::Answered(index) => match self.answer(index) {
                    Ok(true) => Ok(()),
                    Ok(false) => return Verdict::Violated(Box::new(self.explain(index))),
                    Err(why) => Err(why),
                },
            };
            if let Err(why) = gone_on {
                return Verdict::Undecided(why);
            }
        }
        Verdict::Explained
    }

    fn call(&mut self, index: usize) -> Result<(), Why> {
        let slot = self.pending.free().ok_or(Why::Pending)?;
        let operation = self.operations[index];
        self.slots[slot] = index;
        self.slot_of[index] = slot;
        self.called += 1;
        self.pending.add(slot);
        if operation.is_unknown() {
            self.unknown.add(slot);
        }
        if operation.only_looks() {
            self.looking.add(slot);
            let mut configurations = std::mem::take(&mut self.configurations);
            for one in &mut configurations {
                self.look(one)?;
            }
            self.configurations = configurations;
        }
        Ok(())
    }

    /// Leaves the configurations that explain the answer; `false` if none does. They stay as they
    /// were then.
    fn answer(&mut self, index: usize) -> Result<bool, Why> {
        let slot = self.slot_of[index];
        let (mut reached, rest) = self.reach_at_once(slot)?;
        if !rest.is_empty() {
            reached.extend(self.reach(&rest, Aim::Done(slot))?);
        }
        if reached.is_empty() {
            return Ok(false);
        }
        for one in &mut reached {
            one.done.take(slot);
        }
        self.pending.take(slot);
        self.looking.take(slot);
        self.configurations = reached;
        self.drop_weaker();
        Ok(true)
    }

    /// Those in which it had its moment by now, and those in which it will have none.
    fn expire(&mut self, index: usize) -> Result<(), Why> {
        let slot = self.slot_of[index];
        let open = |one: &&Configuration| !one.done.has(slot);
        let starts: Vec<Configuration> = self.configurations.iter().filter(open).copied().collect();
        let reached = self.reach(&starts, Aim::Done(slot))?;
        self.configurations.extend(reached);
        for one in &mut self.configurations {
            one.done.take(slot);
        }
        self.pending.take(slot);
        self.unknown.take(slot);
        self.drop_weaker();
        Ok(())
    }

    /// The fast path: those that come to the answer in no or one step, and the rest. If all else
    /// that is pending is of unknown outcome, one step is enough where it can be taken: what the
    /// others do before it they can do later, or it would overwrite it.
    fn reach_at_once(&mut self, slot: usize) -> Result<(Reached, Reached), Why> {
        let is_alone = (self.pending & !self.unknown).is_only(slot);
        let mut reached = Vec::with_capacity(self.configurations.len());
        let mut rest = Vec::new();
        for at in 0..self.configurations.len() {
            let one = self.configurations[at];
            let next = match (one.done.has(slot), is_alone) {
                (true, _) => Some(one),
                (false, true) => self.advance(&one, slot)?,
                (false, false) => None,
            };
            match next {
                Some(next) => reached.push(next),
                None => rest.push(one),
            }
        }
        Ok((reached, rest))
    }

    /// All configurations that come to the aim from these, and no further.
    fn reach(&mut self, starts: &[Configuration], aim: Aim) -> Result<Reached, Why> {
        let mut seen = Seen::new();
        let mut reached = Vec::new();
        let mut queue: VecDeque<Configuration> = VecDeque::new();
        for one in starts {
            if aim == Aim::Lost {
                reached.push(*one);
            }
            if self.is_new(&mut seen, one) {
                queue.push_back(*one);
            }
        }
        // First in, first out: those that used few operations come first and make the others
        // needless.
        let mut count = queue.len();
        while let Some(one) = queue.pop_front() {
            if matches!(aim, Aim::Done(slot) if one.done.has(slot)) {
                reached.push(one);
                continue;
            }
            let mut nexts = Vec::new();
            self.ways(&one, &mut nexts)?;
            if self.may_lose && one.held.is_some() {
                let mut lost = Configuration { held: None, ..one };
                self.look(&mut lost)?;
                if aim == Aim::Lost {
                    reached.push(lost);
                }
                nexts.push(lost);
            }
            for next in nexts {
                if self.is_new(&mut seen, &next) {
                    count += 1;
                    queue.push_back(next);
                }
            }
            if count > self.limits.configurations_max {
                return Err(Why::Configurations);
            }
        }
        self.most = self.most.max(count);
        Ok(reached)
    }

    /// Every pending operation that changes something and can have its moment now.
    fn ways(&mut self, one: &Configuration, nexts: &mut Vec<Configuration>) -> Result<(), Why> {
        let mut has_unknown_removal = false;
        for slot in (self.pending & !self.looking & !one.done).iter() {
            let operation = self.operations[self.slots[slot]];
            if operation.is_unknown() && operation.call == Call::Remove {
                // All of them are alike from now on.
                if std::mem::replace(&mut has_unknown_removal, true) {
                    continue;
                }
            }
            nexts.extend(self.advance(one, slot)?);
        }
        Ok(())
    }

    /// Whether nothing was seen that can do as much and used up no more.
    fn is_new(&self, seen: &mut Seen, one: &Configuration) -> bool {
        let used = one.done & self.unknown;
        let alike = seen
            .entry((one.held, one.done & !self.unknown))
            .or_default();
        if alike.iter().any(|fewer| fewer.is_within(&used)) {
            return false;
        }
        alike.push(used);
        true
    }

    /// Drops each configuration that used up more than another one that is else the same.
    fn drop_weaker(&mut self) {
        if self.configurations.len() < 2 {
            return;
        }
        let mut configurations = std::mem::take(&mut self.configurations);
        configurations.sort_by_key(|one| (one.done & self.unknown).len());
        let mut seen = Seen::new();
        configurations.retain(|one| self.is_new(&mut seen, one));
        self.configurations = configurations;
    }

    /// The configuration after the operation of this slot had its moment, if it can.
    fn advance(&mut self, one: &Configuration, slot: usize) -> Result<Option<Configuration>, Why> {
        let index = self.slots[slot];
        let Some(held) = self.operations[index].after(one.held) else {
            return Ok(None);
        };
        let mut next = Configuration { held, ..*one };
        self.mark(&mut next, slot)?;
        self.look(&mut next)?;
        Ok(Some(next))
    }

    /// Gives every pending operation that only looks its moment, if it fits now.
    fn look(&mut self, one: &mut Configuration) -> Result<(), Why> {
        if self.looking.is_empty() {
            return Ok(());
        }
        for slot in (self.pending & self.looking & !one.done).iter() {
            if self.operations[self.slots[slot]].after(one.held).is_some() {
                self.mark(one, slot)?;
            }
        }
        Ok(())
    }

    fn mark(&mut self, one: &mut Configuration, slot: usize) -> Result<(), Why> {
        if self.steps.len() >= self.limits.steps_max {
            return Err(Why::Steps);
        }
        let index = u32::try_from(self.slots[slot]).map_err(|_| Why::Steps)?;
        self.steps.push(Step {
            operation: index,
            before: one.last,
        });
        one.done.add(slot);
        one.last = u32::try_from(self.steps.len()).map_err(|_| Why::Steps)?;
        Ok(())
    }

    /// The order of a configuration, last first, as places of operations.
    fn order(&self, one: &Configuration) -> impl Iterator<Item = usize> {
        let mut last = one.last;
        std::iter::from_fn(move || {
            let step = self.steps.get((last as usize).checked_sub(1)?)?;
            last = step.before;
            Some(step.operation as usize)
        })
    }

    fn explain(&self, index: usize) -> Counterexample {
        let operation = self.operations[index];
        let longest = self.configurations.iter();
        let longest = longest.max_by_key(|one| self.order(one).count());
        let order: Vec<usize> = longest.map_or(Vec::new(), |one| self.order(one).collect());
        let done = longest.map_or(Slots::default(), |one| one.done);
        let held: BTreeSet<_> = self.configurations.iter().map(|one| one.held).collect();
        let mut pending: Vec<usize> = (self.pending & !done)
            .iter()
            .map(|s| self.slots[s])
            .collect();
        pending.retain(|other| *other != index);
        let ended_ns = operation.ended_ns.unwrap_or(u64::MAX);
        let called = self.operations.iter().copied();
        let called = called.filter(|one| one.invoked_ns <= ended_ns);
        let shown = |places: &mut dyn Iterator<Item = &usize>| -> Vec<Operation> {
            let places = places.take(SHOWN_MAX);
            places
                .map(|place| self.operations[*place].clone())
                .collect()
        };
        let mut last = shown(&mut order.iter());
        last.reverse();
        Counterexample {
            key: operation.key.clone(),
            fault: Fault::guess(operation, called),
            operation: operation.clone(),
            prefix: self.called,
            held: held.into_iter().collect(),
            order: last,
            order_length: order.len(),
            pending: shown(&mut pending.iter()),
        }
    }
}
