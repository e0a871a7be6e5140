//! The entries of one tenant: a node of 16 bytes for each replica, found by its object.
//!
//! Nodes are doubly linked into queues, so an entry leaves from the middle at once and without a
//! trace. (Queues of numbers with late deletion were rejected: their stale entries have to be told
//! from those of the next object of the same number, and swept.) They lie in chunks; no growth
//! moves them, and a chunk in which nothing lives is given back.
//!
//! The node of an object's first entry lies at the number of the object. The few entries beyond
//! (further replicas, stripes) lie in a table of their own.

use std::collections::BTreeMap;

use crate::objects::ObjectId;

/// Nodes per chunk: 16 KiB.
const CHUNK: usize = 1024;
/// The bit that tells an entry of the second table.
const FURTHER: u32 = 1 << 31;
pub(super) const NIL: u32 = u32::MAX;

/// Sizes are kept in units of the smallest alignment, up to 64 GiB.
const UNIT_BYTES: u64 = larder_types::layout::SMALL_ALIGN_BYTES;
const UNIT_BITS: u32 = 28;
/// Times are kept in units of four seconds, modulo six days.
const TICK_MS: u64 = 4_000;
const TICK_BITS: u32 = 17;
/// How often it was used since it was last judged, up to this.
pub(crate) const MAX_HEAT: u8 = 3;

/// The number of a queue within its tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lane(u16);

impl Lane {
    /// How many there can be: what is left beside the time.
    pub(crate) const COUNT: u16 = (1 << (32 - TICK_BITS)) - 1;

    /// The lane of this number, which lies below [`Self::COUNT`].
    pub(crate) const fn new(number: u16) -> Self {
        Self(number)
    }

    /// Its number.
    pub(crate) const fn number(self) -> usize {
        self.0 as usize
    }
}

/// One entry: an object in one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryId(pub(super) u32);

#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) prev: u32,
    pub(super) next: u32,
    /// Size in units, then heat, whether it is in a main queue, whether the object has more.
    size: u32,
    /// One more than the lane, 0 for a node that is free; then the time of the last use.
    place: u32,
}

const IS_MAIN: u32 = 1 << 30;
const HAS_MORE: u32 = 1 << 31;
const HEAT_SHIFT: u32 = UNIT_BITS;
const UNITS: u32 = (1 << UNIT_BITS) - 1;
const TICKS: u32 = (1 << TICK_BITS) - 1;

impl Default for Node {
    fn default() -> Self {
        Self {
            prev: NIL,
            next: NIL,
            size: 0,
            place: 0,
        }
    }
}

/// An entry beyond the first of its object.
#[derive(Clone, Copy, Debug)]
struct Further {
    node: Node,
    object: ObjectId,
    /// The next of the same object, or the next free one.
    more: u32,
}

#[derive(Clone, Debug)]
struct Chunk {
    live: u32,
    nodes: Box<[Node]>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Nodes {
    chunks: Vec<Option<Chunk>>,
    further: Vec<Further>,
    /// The first free one of `further`.
    free: u32,
    /// The first further entry of objects that have one.
    more: BTreeMap<ObjectId, u32>,
}

impl Default for Nodes {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            further: Vec::new(),
            free: NIL,
            more: BTreeMap::new(),
        }
    }
}

impl Nodes {
    /// Makes an entry of an object in a lane; it is in no queue yet.
    pub(crate) fn add(
        &mut self,
        object: ObjectId,
        lane: Lane,
        size_bytes: u64,
        now_ms: u64,
    ) -> EntryId {
        let units = size_bytes.div_ceil(UNIT_BYTES).min(u64::from(UNITS));
        let node = Node {
            size: u32::try_from(units).unwrap_or(UNITS),
            place: (u32::from(lane.0) + 1) << TICK_BITS | tick(now_ms),
            ..Node::default()
        };
        let first = EntryId(object.0 & !FURTHER);
        if self.node(first).place >> TICK_BITS == 0 {
            self.set_first(first, node);
            return first;
        }
        self.change(first, |node| node.size |= HAS_MORE);
        let more = self.more.get(&object).copied().unwrap_or(NIL);
        let new = Further { node, object, more };
        let at = if self.free == NIL {
            self.further.push(new);
            u32::try_from(self.further.len() - 1).unwrap_or(0)
        } else {
            let at = self.free;
            self.free = self.further[at as usize].more;
            self.further[at as usize] = new;
            at
        };
        self.more.insert(object, at);
        EntryId(at | FURTHER)
    }

    fn set_first(&mut self, entry: EntryId, node: Node) {
        let (chunk, at) = (entry.0 as usize / CHUNK, entry.0 as usize % CHUNK);
        if self.chunks.len() <= chunk {
            // The list of chunks moves when it grows: 24 bytes for each 1,024 objects.
            self.chunks.resize(chunk + 1, None);
        }
        let held = self.chunks[chunk].get_or_insert_with(|| Chunk {
            live: 0,
            nodes: vec![Node::default(); CHUNK].into(),
        });
        held.live += 1;
        held.nodes[at] = node;
    }

    /// Drops all entries of an object. They are in no queue any more.
    pub(crate) fn drop_all(&mut self, object: ObjectId) {
        let first = EntryId(object.0 & !FURTHER);
        if self.has_more(object) {
            let mut at = self.more.remove(&object).unwrap_or(NIL);
            while let Some(gone) = self.further.get_mut(at as usize) {
                let next = gone.more;
                *gone = Further {
                    node: Node::default(),
                    object: ObjectId(NIL),
                    more: self.free,
                };
                self.free = at;
                at = next;
            }
            if self.more.is_empty() {
                self.further = Vec::new();
                self.free = NIL;
            }
        }
        let (chunk, at) = (first.0 as usize / CHUNK, first.0 as usize % CHUNK);
        if let Some(slot) = self.chunks.get_mut(chunk)
            && let Some(held) = slot
            && held.nodes[at].place != 0
        {
            held.nodes[at] = Node::default();
            held.live -= 1;
            if held.live == 0 {
                *slot = None;
            }
        }
    }

    /// The entries of an object.
    pub(crate) fn of(&self, object: ObjectId) -> impl Iterator<Item = EntryId> + '_ {
        let first = EntryId(object.0 & !FURTHER);
        let present = self.node(first).place != 0;
        let mut at = NIL;
        if self.has_more(object) {
            at = self.more.get(&object).copied().unwrap_or(NIL);
        }
        let further = std::iter::from_fn(move || {
            let entry = self
                .further
                .get(at as usize)
                .map(|_| EntryId(at | FURTHER))?;
            at = self.further[at as usize].more;
            Some(entry)
        });
        present.then_some(first).into_iter().chain(further)
    }

    fn has_more(&self, object: ObjectId) -> bool {
        self.node(EntryId(object.0 & !FURTHER)).size & HAS_MORE != 0
    }

    /// The object of an entry.
    pub(crate) fn object(&self, entry: EntryId) -> ObjectId {
        if entry.0 & FURTHER == 0 {
            return ObjectId(entry.0);
        }
        let further = self.further.get((entry.0 & !FURTHER) as usize);
        further.map_or(ObjectId(NIL), |further| further.object)
    }

    /// The lane of an entry; `None` if there is no such entry.
    pub(crate) fn lane(&self, entry: EntryId) -> Option<Lane> {
        let lane = (self.node(entry).place >> TICK_BITS).checked_sub(1)?;
        u16::try_from(lane).ok().map(Lane)
    }

    /// The size of an entry, in bytes.
    pub(crate) fn size_bytes(&self, entry: EntryId) -> u64 {
        u64::from(self.node(entry).size & UNITS) * UNIT_BYTES
    }

    /// How often it was used since it was last judged, at most [`MAX_HEAT`].
    pub(crate) fn heat(&self, entry: EntryId) -> u8 {
        ((self.node(entry).size >> HEAT_SHIFT) & u32::from(MAX_HEAT)) as u8
    }

    pub(crate) fn set_heat(&mut self, entry: EntryId, heat: u8) {
        let heat = u32::from(heat.min(MAX_HEAT)) << HEAT_SHIFT;
        let mask = u32::from(MAX_HEAT) << HEAT_SHIFT;
        self.change(entry, |node| node.size = node.size & !mask | heat);
    }

    /// One use more.
    pub(crate) fn warm(&mut self, entry: EntryId) {
        let heat = self.heat(entry);
        self.set_heat(entry, heat + 1);
    }

    pub(crate) fn is_main(&self, entry: EntryId) -> bool {
        self.node(entry).size & IS_MAIN != 0
    }

    pub(crate) fn set_main(&mut self, entry: EntryId, is_main: bool) {
        let bit = if is_main { IS_MAIN } else { 0 };
        self.change(entry, |node| node.size = node.size & !IS_MAIN | bit);
    }

    /// Notes a use at this time.
    pub(crate) fn used_at(&mut self, entry: EntryId, now_ms: u64) {
        self.change(entry, |node| {
            node.place = node.place & !TICKS | tick(now_ms);
        });
    }

    /// How long it was not used, in milliseconds: to four seconds, modulo six days.
    pub(crate) fn age_ms(&self, entry: EntryId, now_ms: u64) -> u64 {
        let age = tick(now_ms).wrapping_sub(self.node(entry).place & TICKS) & TICKS;
        u64::from(age) * TICK_MS
    }

    /// The memory that the nodes take, in bytes.
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        let chunks = self.chunks.iter().flatten().count() * CHUNK * size_of::<Node>();
        let list = self.chunks.capacity() * size_of::<Option<Chunk>>();
        let index = self.more.len() * size_of::<(ObjectId, u32)>() * 2;
        chunks + list + index + self.further.capacity() * size_of::<Further>()
    }

    /// A copy of the node, or a free one where there is none.
    pub(super) fn node(&self, entry: EntryId) -> Node {
        if entry.0 & FURTHER != 0 {
            let further = self.further.get((entry.0 & !FURTHER) as usize);
            return further.map_or_else(Node::default, |further| further.node);
        }
        let chunk = self.chunks.get(entry.0 as usize / CHUNK);
        let chunk = chunk.and_then(Option::as_ref);
        chunk.map_or_else(Node::default, |held| held.nodes[entry.0 as usize % CHUNK])
    }

    pub(super) fn change(&mut self, entry: EntryId, how: impl FnOnce(&mut Node)) {
        let node = if entry.0 & FURTHER != 0 {
            let further = self.further.get_mut((entry.0 & !FURTHER) as usize);
            further.map(|further| &mut further.node)
        } else {
            let chunk = self.chunks.get_mut(entry.0 as usize / CHUNK);
            let chunk = chunk.and_then(Option::as_mut);
            chunk.map(|held| &mut held.nodes[entry.0 as usize % CHUNK])
        };
        if let Some(node) = node {
            how(node);
        }
    }
}

fn tick(now_ms: u64) -> u32 {
    u32::try_from((now_ms / TICK_MS) & u64::from(TICKS)).unwrap_or(0)
}
