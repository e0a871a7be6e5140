//! Holds: what is going on in slabs, so that nothing is reused under it.

use std::collections::BTreeMap;

use larder_types::{Epoch, TenantId, Version};

use super::range::Span;

/// The most holds at once in one agent: about 30 MiB of them. Listeners bound their connections
/// and the views of each far below.
pub(super) const HOLDS_MAX: u32 = 262_144;

/// The number of a hold. One that ended never comes back: its place gets a new generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct HoldId {
    index: u32,
    generation: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HoldKind {
    Write { epoch: Epoch },
    Read,
    View { tenant: TenantId, bytes: u64 },
}

/// One operation on one extent.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    /// The slab's number in this process.
    pub(super) life: u64,
    pub(super) span: Span,
    pub(super) version: Version,
    pub(super) kind: HoldKind,
}

#[derive(Debug, Default)]
struct HoldPlace {
    generation: u32,
    hold: Option<Hold>,
}

/// All holds of an agent.
#[derive(Debug, Default)]
pub(super) struct Holds {
    places: Vec<HoldPlace>,
    free: Vec<u32>,
}

impl Holds {
    /// Notes a hold; `None` = there are as many as may be.
    pub(super) fn insert(&mut self, hold: Hold) -> Option<HoldId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.places.len())
                    .ok()
                    .filter(|i| *i < HOLDS_MAX)?;
                self.places.push(HoldPlace::default());
                index
            }
        };
        let place = self.places.get_mut(index as usize)?;
        place.hold = Some(hold);
        Some(HoldId {
            index,
            generation: place.generation,
        })
    }

    /// Ends a hold; `None` = it ended before.
    pub(super) fn remove(&mut self, id: HoldId) -> Option<Hold> {
        let place = self.places.get_mut(id.index as usize)?;
        if place.generation != id.generation {
            return None;
        }
        let hold = place.hold.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(id.index);
        Some(hold)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Hold> {
        self.places.iter().filter_map(|place| place.hold.as_ref())
    }
}

#[derive(Clone, Copy, Debug)]
struct Held {
    end: u64,
    count: u32,
}

/// The held ranges of one slab. Pairwise equal or disjoint, so one map by start is enough.
#[derive(Debug)]
pub(super) struct HeldSpans(BTreeMap<u64, Held>);

impl HeldSpans {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Adds a hold on `span`, which nothing but equal spans may overlap.
    pub(super) fn add(&mut self, span: Span) {
        let held = self.0.entry(span.start).or_insert(Held {
            end: span.end,
            count: 0,
        });
        held.count = held.count.saturating_add(1);
    }

    /// Takes one hold off `span`; true = nothing holds it any more.
    pub(super) fn release(&mut self, span: Span) -> bool {
        let Some(held) = self.0.get_mut(&span.start) else {
            return true;
        };
        held.count = held.count.saturating_sub(1);
        let last = held.count == 0;
        if last {
            self.0.remove(&span.start);
        }
        last
    }

    /// Whether anything holds a byte of `span`.
    pub(super) fn overlaps(&self, span: Span) -> bool {
        self.0
            .range(..span.end)
            .next_back()
            .is_some_and(|(_, held)| held.end > span.start)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
