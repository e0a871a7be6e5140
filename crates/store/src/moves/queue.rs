//! What is to be copied: found by walks in steps, kept in a bounded queue.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use larder_types::{Key, PoolTime, TenantId};

use super::Why;
use crate::segment::SlabKey;
use crate::settings::Settings;

/// The most objects that wait for one reason. A walk stops when a part of the queue is full and
/// goes on when there is room; at about 200 bytes each for two copies of a name, 4 MiB in all.
pub(super) const QUEUED_MAX: usize = 4_096;
/// How often the wait before the next walk doubles while nothing moves.
const DOUBLINGS_MAX: u32 = 5;

pub(super) type Name = (TenantId, Key);

/// Where a walk over all objects is. The first pass looks for endangered ones only, so that they
/// are not found last.
#[derive(Clone, Debug)]
pub(super) struct InTables {
    pub(super) first: bool,
    /// In this tenant behind this key, or at the start.
    pub(super) behind: Option<(TenantId, Option<Key>)>,
}

/// Where a walk over the slabs that are to be emptied is: in this one from this offset on, in
/// bytes, or at the start.
pub(super) type InSlabs = Option<(SlabKey, u64)>;

/// Where a walk stands.
#[derive(Clone, Debug)]
enum Walk<P> {
    /// Nothing is to be looked for.
    Rests,
    /// Later, since something found no room before.
    Waits {
        until: PoolTime,
    },
    Goes(P),
}

/// A walk that begins when something happened and goes on in steps.
#[derive(Clone, Debug)]
pub(super) struct Walker<P> {
    walk: Walk<P>,
    start: P,
    /// Something changed behind the walk: it begins again when it is through.
    again: bool,
    /// Something found no room: the walk begins again after a while.
    put_off: bool,
    doublings: u32,
    retry_ms: u64,
}

impl<P: Clone> Walker<P> {
    fn new(start: P, goes: bool, settings: &Settings) -> Self {
        let walk = if goes {
            Walk::Goes(start.clone())
        } else {
            Walk::Rests
        };
        Self {
            walk,
            start,
            again: false,
            put_off: false,
            doublings: 0,
            retry_ms: settings.move_retry_ms,
        }
    }

    /// Looks at everything, now or again when the present walk is through.
    pub(super) fn look(&mut self) {
        self.doublings = 0;
        match self.walk {
            Walk::Goes(_) => self.again = true,
            Walk::Rests | Walk::Waits { .. } => self.walk = Walk::Goes(self.start.clone()),
        }
    }

    /// Something was not queued for want of room: looks at everything again.
    fn look_again(&mut self) {
        match self.walk {
            Walk::Goes(_) => self.again = true,
            // It comes anyway.
            Walk::Waits { .. } => {}
            Walk::Rests => self.walk = Walk::Goes(self.start.clone()),
        }
    }

    /// Looks at everything again after a while.
    pub(super) fn look_later(&mut self, now: PoolTime) {
        match self.walk {
            Walk::Goes(_) => self.put_off = true,
            Walk::Waits { .. } => {}
            Walk::Rests => self.wait(now),
        }
    }

    fn wait(&mut self, now: PoolTime) {
        let until = now.plus_ms(self.retry_ms.saturating_mul(1 << self.doublings));
        self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
        self.walk = Walk::Waits { until };
    }

    /// Where to go on, if a walk is under way or its time has come.
    pub(super) fn place(&mut self, now: PoolTime) -> Option<P> {
        if matches!(self.walk, Walk::Waits { until } if until <= now) {
            self.walk = Walk::Goes(self.start.clone());
        }
        match &self.walk {
            Walk::Goes(place) => Some(place.clone()),
            Walk::Rests | Walk::Waits { .. } => None,
        }
    }

    /// The walk has come so far.
    pub(super) fn stop_at(&mut self, place: P) {
        self.walk = Walk::Goes(place);
    }

    /// The walk is through.
    pub(super) fn passed(&mut self, now: PoolTime) {
        let (again, put_off) = (self.again, self.put_off);
        (self.again, self.put_off) = (false, false);
        if again {
            self.walk = Walk::Goes(self.start.clone());
        } else if put_off {
            self.wait(now);
        } else {
            self.walk = Walk::Rests;
        }
    }

    const fn rests(&self) -> bool {
        matches!(self.walk, Walk::Rests)
    }

    /// Whether a walk is under way for something that has just happened.
    const fn hurries(&self) -> bool {
        self.doublings == 0 && matches!(self.walk, Walk::Goes(_))
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    waiting: BTreeMap<Why, VecDeque<Name>>,
    queued: BTreeSet<Name>,
    /// Finds what is missing.
    pub(super) tables: Walker<InTables>,
    /// Finds what lies where nothing is to lie.
    pub(super) slabs: Walker<InSlabs>,
    /// Replicas that were missing on the last whole walk, and those counted on this one.
    missing: u64,
    pub(super) counted: u64,
}

impl Queue {
    /// The queue of a new leader, which walks over all that there is.
    pub(crate) fn new(goes: bool, settings: &Settings) -> Self {
        let start = InTables {
            first: true,
            behind: None,
        };
        Self {
            waiting: BTreeMap::new(),
            queued: BTreeSet::new(),
            tables: Walker::new(start, goes, settings),
            slabs: Walker::new(None, goes, settings),
            missing: 0,
            counted: 0,
        }
    }

    /// Looks again after a while for what could not be done.
    pub(crate) fn look_later(&mut self, why: Why, now: PoolTime) {
        match why {
            Why::Endangered | Why::Missing => self.tables.look_later(now),
            Why::Drain | Why::Compact => self.slabs.look_later(now),
            // A task waits by itself.
            Why::Task => {}
        }
    }

    /// Looks for everything.
    pub(crate) fn look(&mut self) {
        self.tables.look();
        self.slabs.look();
    }

    /// Looks for what is missing.
    pub(crate) fn look_for_missing(&mut self) {
        self.tables.look();
    }

    /// Looks for what lies where nothing is to lie.
    pub(super) fn look_at_slabs(&mut self) {
        self.slabs.look();
    }

    /// Something moved: what waits may fit now.
    pub(super) const fn moved(&mut self) {
        self.tables.doublings = 0;
        self.slabs.doublings = 0;
    }

    /// Whether a walk may go on at once.
    pub(super) fn hurries(&self) -> bool {
        (self.tables.hurries() || self.slabs.hurries())
            && Why::ALL.into_iter().all(|why| self.has_room(why))
    }

    /// All objects were looked at.
    pub(super) fn tables_passed(&mut self, now: PoolTime) {
        self.missing = self.counted;
        self.counted = 0;
        self.tables.passed(now);
    }

    /// Replicas that are missing, as far as is known.
    pub(crate) const fn missing(&self) -> u64 {
        self.missing
    }

    /// Whether an agent that comes may change something: replicas are missing, or nobody knows yet.
    pub(crate) fn has_something(&self) -> bool {
        self.missing > 0 || self.len() > 0 || !self.tables.rests()
    }

    /// A put ended with fewer replicas than were asked for.
    pub(crate) const fn misses(&mut self, replicas: u64) {
        self.missing = self.missing.saturating_add(replicas);
    }

    /// A missing replica was made.
    pub(crate) fn mended(&mut self) {
        self.missing = self.missing.saturating_sub(1);
        // A walk that is under way may have counted it already: it counts once more.
        if matches!(self.tables.walk, Walk::Goes(_)) {
            self.tables.again = true;
        }
    }

    /// Whether one more that waits for this fits.
    pub(super) fn has_room(&self, why: Why) -> bool {
        self.waiting.get(&why).map_or(0, VecDeque::len) < QUEUED_MAX
    }

    /// Queues an object. Where there is no room a walk finds it again.
    pub(crate) fn push(&mut self, why: Why, name: Name) {
        if self.has_room(why) {
            self.push_back(why, name);
        } else if matches!(why, Why::Drain | Why::Compact) {
            self.slabs.look_again();
        } else {
            self.tables.look_again();
        }
    }

    /// Puts an object back that cannot be begun in this turn.
    pub(super) fn push_back(&mut self, why: Why, name: Name) {
        if self.queued.insert(name.clone()) {
            self.waiting.entry(why).or_default().push_back(name);
        }
    }

    /// The most urgent object.
    pub(super) fn pop(&mut self) -> Option<(Why, Name)> {
        let mut waiting = self.waiting.iter_mut();
        let (why, names) = waiting.find(|(_, names)| !names.is_empty())?;
        let (why, name) = (*why, names.pop_front()?);
        self.queued.remove(&name);
        Some((why, name))
    }

    pub(crate) fn len(&self) -> usize {
        self.queued.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_queue_has_no_room_for_is_found_again() {
        let mut queue = Queue::new(false, &Settings::default());
        let tenant = TenantId::new("red").expect("an id");
        let name = |number: usize| {
            let key = Key::try_from(format!("k{number}").as_str()).expect("a key");
            (tenant.clone(), key)
        };
        for why in [Why::Endangered, Why::Drain] {
            for number in 0..QUEUED_MAX {
                queue.push(
                    why,
                    (TenantId::new(why.label()).expect("an id"), name(number).1),
                );
            }
        }
        assert!(queue.tables.place(PoolTime(0)).is_none());
        queue.push(Why::Endangered, name(0));
        queue.push(Why::Drain, name(1));
        assert!(queue.tables.place(PoolTime(0)).is_some());
        assert!(queue.slabs.place(PoolTime(0)).is_some());
    }
}
