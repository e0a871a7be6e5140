//! What is known of a peer's buffers. Nothing that a peer says is believed to be sound. Pure.

use std::collections::BTreeMap;

use super::{Changes, Described, Known, REGIONS_MAX};
use crate::engine::plan::Place;

/// The buffers of a peer, as it told them.
#[derive(Debug, Default)]
pub struct Mirror {
    by_start: BTreeMap<u64, Described>,
    starts: BTreeMap<u64, u64>,
    /// Of all buffers together.
    regions: usize,
    known: Known,
}

/// What a peer said makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MirrorError {
    /// A buffer has no bytes, leaves the address space, or its regions do not fit it.
    #[error("the peer describes a buffer of {bytes} bytes from {start:#x} that cannot be")]
    Unsound {
        /// Its address.
        start: u64,
        /// How long it is said to be, in bytes.
        bytes: u64,
    },
    /// Two buffers have the same bytes.
    #[error("the peer describes two buffers that overlap at {start:#x}")]
    Overlap {
        /// The address of the later one.
        start: u64,
    },
    /// More buffers, or regions of them, than are kept of a peer.
    #[error("the peer describes more than {count_max} buffers, or regions of them")]
    TooMany {
        /// How many are kept.
        count_max: usize,
    },
}

impl Mirror {
    /// What to ask with.
    #[must_use]
    pub const fn known(&self) -> Known {
        self.known
    }

    /// How many buffers are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Whether none is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Takes in what has changed.
    ///
    /// # Errors
    /// [`MirrorError`]; nothing is known of the peer then.
    pub fn take(&mut self, changes: Changes, count_max: usize) -> Result<(), MirrorError> {
        if changes.is_whole {
            *self = Self::default();
        }
        for registration in changes.removed {
            self.forget(registration);
        }
        for buffer in changes.added {
            if let Err(error) = self.add(buffer, count_max) {
                *self = Self::default();
                return Err(error);
            }
        }
        self.known = changes.known;
        Ok(())
    }

    /// All that are known, in the order of their addresses.
    pub fn all(&self) -> impl Iterator<Item = &Described> {
        self.by_start.values()
    }

    /// The buffer that holds `bytes` from `address` on, and where in it they begin.
    #[must_use]
    pub fn find(&self, address: u64, bytes: u64) -> Option<(&Described, u64)> {
        let (start, buffer) = self.by_start.range(..=address).next_back()?;
        let offset = address - start;
        let end = offset.checked_add(bytes)?;
        (bytes > 0 && end <= buffer.bytes).then_some((buffer, offset))
    }

    /// The epoch of a registration.
    #[must_use]
    pub fn epoch_of(&self, registration: u64) -> Option<u64> {
        self.get(registration).map(|buffer| buffer.epoch)
    }

    /// Bytes from a place to the end of its region; 0 if there is no such place.
    #[must_use]
    pub fn until_edge(&self, place: Place) -> u64 {
        let buffer = self.get(place.registration);
        buffer.map_or(0, |buffer| {
            super::until_edge(&buffer.regions, buffer.bytes, place.offset_bytes)
        })
    }

    fn get(&self, registration: u64) -> Option<&Described> {
        self.by_start.get(self.starts.get(&registration)?)
    }

    fn forget(&mut self, registration: u64) {
        if let Some(start) = self.starts.remove(&registration) {
            let gone = self.by_start.remove(&start);
            self.regions -= gone.map_or(0, |buffer| buffer.regions.len());
        }
    }

    fn add(&mut self, buffer: Described, count_max: usize) -> Result<(), MirrorError> {
        let (start, bytes) = (buffer.start, buffer.bytes);
        let unsound = MirrorError::Unsound { start, bytes };
        let end = start.checked_add(bytes).ok_or_else(|| unsound.clone())?;
        let mut last = 0;
        for region in &buffer.regions {
            if region.end_bytes <= last {
                return Err(unsound);
            }
            last = region.end_bytes;
        }
        let has_many = buffer.regions.len() > REGIONS_MAX;
        if bytes == 0 || has_many || (last != bytes && !buffer.regions.is_empty()) {
            return Err(unsound);
        }
        // One that has changed.
        self.forget(buffer.registration);
        let before = self.by_start.range(..end).next_back();
        if before.is_some_and(|(_, other)| other.start + other.bytes > start) {
            return Err(MirrorError::Overlap { start });
        }
        let regions = self.regions + buffer.regions.len();
        if self.by_start.len() >= count_max || regions > count_max {
            return Err(MirrorError::TooMany { count_max });
        }
        self.regions = regions;
        self.starts.insert(buffer.registration, start);
        self.by_start.insert(start, buffer);
        Ok(())
    }
}
