//! Objects as the table keeps them: 88 bytes each in the usual case, with the key.

use std::collections::BTreeMap;

use larder_types::{Attributes, Epoch, Extent, Key, Pin, SlabRef, layout};

/// Offsets are kept in units of the smallest alignment.
const UNIT: u64 = layout::SMALL_ALIGN_BYTES;

/// The number of a value within its [`Interned`].
pub(super) type Number = u32;

/// Values that many objects share, each kept once and counted.
#[derive(Clone, Debug)]
pub(super) struct Interned<T> {
    values: Vec<(T, u32)>,
    numbers: BTreeMap<T, Number>,
    free: Vec<Number>,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            numbers: BTreeMap::new(),
            free: Vec::new(),
        }
    }
}

impl<T: Copy + Ord + Default> Interned<T> {
    /// How many are in use.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.numbers.len()
    }

    /// The value of a number that is in use.
    pub(super) fn value(&self, number: Number) -> T {
        self.values
            .get(number as usize)
            .map_or_else(T::default, |(value, _)| *value)
    }

    /// Counts one more use.
    pub(super) fn take(&mut self, value: T) -> Number {
        if let Some(number) = self.numbers.get(&value) {
            if let Some((_, uses)) = self.values.get_mut(*number as usize) {
                *uses += 1;
            }
            return *number;
        }
        let number = if let Some(number) = self.free.pop() {
            self.values[number as usize] = (value, 1);
            number
        } else {
            self.values.push((value, 1));
            u32::try_from(self.values.len() - 1).unwrap_or(u32::MAX)
        };
        self.numbers.insert(value, number);
        number
    }

    /// Counts one use less.
    pub(super) fn give_back(&mut self, number: Number) {
        let Some((value, uses)) = self.values.get_mut(number as usize) else {
            return;
        };
        *uses = uses.saturating_sub(1);
        if *uses == 0 {
            self.numbers.remove(value);
            self.free.push(number);
        }
    }
}

/// Values that all objects of a table draw from.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared {
    pub(super) epochs: Interned<Epoch>,
    pub(super) slabs: Interned<SlabOrder>,
}

/// A slab; with a default, as interned values have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SlabOrder(pub(super) SlabRef);

impl Default for SlabOrder {
    fn default() -> Self {
        Self(SlabRef {
            agent: larder_types::AgentId(0),
            segment: larder_types::SegmentId(0),
            index: 0,
            registration: larder_types::Registration(0),
        })
    }
}

/// An extent, without what its slab says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) slab: Number,
    /// In units of 256 bytes: a slab has less than 2^32 of them.
    pub(super) offset_units: u32,
    pub(super) length_bytes: u64,
    /// Which replica it belongs to, from 0.
    pub(super) replica: u8,
}

impl Place {
    pub(super) fn extent(self, shared: &Shared) -> Extent {
        Extent {
            slab: shared.slabs.value(self.slab).0,
            offset_bytes: u64::from(self.offset_units) * UNIT,
            length_bytes: self.length_bytes,
        }
    }
}

/// What few objects have.
#[derive(Clone, Debug, Default)]
pub(super) struct More {
    pub(super) attributes: Attributes,
    /// All extents by replica; empty if the object has one replica of one extent.
    pub(super) places: Vec<Place>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) key: Key,
    pub(super) counter: u64,
    pub(super) size_bytes: u64,
    pub(super) digest: u64,
    pub(super) more: Option<Box<More>>,
    pub(super) epoch: Number,
    /// The only extent, as long as the object, unless `more` has places.
    slab: Number,
    offset_units: u32,
    pub(super) wanted: u8,
}

const _: () = assert!(
    size_of::<Option<Record>>() == 88,
    "as the memory figures say"
);

impl Record {
    /// A record without extents.
    pub(super) fn new(key: &Key, object: &super::NewObject<'_>, shared: &mut Shared) -> Self {
        let mut new = Self {
            key: key.clone(),
            counter: object.version.counter,
            size_bytes: object.size_bytes,
            digest: object.digest.0,
            more: None,
            epoch: shared.epochs.take(object.version.epoch),
            slab: Number::MAX,
            offset_units: 0,
            wanted: object.wanted,
        };
        if *object.attributes != Attributes::default() {
            new.more = Some(Box::new(More {
                attributes: object.attributes.clone(),
                places: Vec::new(),
            }));
        }
        new.place(object.replicas, shared);
        new
    }

    /// Sets the extents of a record that has none.
    pub(super) fn place(&mut self, replicas: &[Vec<Extent>], shared: &mut Shared) {
        let mut place = |(replica, extent): (u8, &Extent)| Place {
            slab: shared.slabs.take(SlabOrder(extent.slab)),
            offset_units: u32::try_from(extent.offset_bytes / UNIT).unwrap_or(u32::MAX),
            length_bytes: extent.length_bytes,
            replica,
        };
        if let [replica] = replicas
            && let [extent] = replica.as_slice()
            && extent.length_bytes == self.size_bytes
        {
            let Place {
                slab, offset_units, ..
            } = place((0, extent));
            (self.slab, self.offset_units) = (slab, offset_units);
            return;
        }
        let places = (0u8..)
            .zip(replicas)
            .flat_map(|(replica, extents)| extents.iter().map(move |extent| (replica, extent)))
            .map(place)
            .collect();
        self.slab = Number::MAX;
        self.more.get_or_insert_default().places = places;
    }

    /// Takes all extents out.
    pub(super) fn displace(&mut self, shared: &mut Shared) {
        for place in self.places() {
            shared.slabs.give_back(place.slab);
        }
        self.slab = Number::MAX;
        if let Some(more) = &mut self.more {
            more.places = Vec::new();
            if more.attributes == Attributes::default() {
                self.more = None;
            }
        }
    }

    /// Sets its pin.
    pub(super) fn set_pin(&mut self, pin: Pin) {
        self.more.get_or_insert_default().attributes.pin = pin;
        let is_plain =
            |more: &More| more.places.is_empty() && more.attributes == Attributes::default();
        if self.more.as_deref().is_some_and(is_plain) {
            self.more = None;
        }
    }

    /// Its extents by replica.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> + '_ {
        let only = (self.slab != Number::MAX).then_some(Place {
            slab: self.slab,
            offset_units: self.offset_units,
            length_bytes: self.size_bytes,
            replica: 0,
        });
        let more = self
            .more
            .iter()
            .flat_map(|more| more.places.iter().copied());
        only.into_iter().chain(more)
    }

    /// How many extents it has.
    pub(super) fn extent_count(&self) -> usize {
        if self.slab != Number::MAX {
            return 1;
        }
        self.more.as_ref().map_or(0, |more| more.places.len())
    }

    pub(super) fn replica_count(&self) -> u8 {
        if self.slab != Number::MAX {
            return 1;
        }
        self.more
            .as_ref()
            .and_then(|more| more.places.last())
            .map_or(0, |last| last.replica + 1)
    }
}
