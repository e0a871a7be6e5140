//! The buffers of a process: what is registered, who uses it, and what peers have to be told. Pure.
//!
//! A registration number is given once in the life of a process, so a frame that names an old one
//! finds nothing, whatever has come to lie there since. A buffer that is taken back goes when the
//! last slice on it has ended; nothing new begins meanwhile.

mod mirror;
mod model;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use slotmap::{SlotMap, new_key_type};

use super::plan::Place;

pub use mirror::{Mirror, MirrorError};
pub use model::{Access, BufferSpec, Changes, Described, Known, Refusal, Region, RegisterError};

/// The most regions of a buffer.
const REGIONS_MAX: usize = 4_096;
/// So many buffers that have gone are remembered for peers that ask what has changed; one that
/// knows less is told everything.
const GONE_MAX: usize = 4_096;

new_key_type! {
    /// A registered buffer. Stale ones find nothing.
    pub struct BufferKey;
}

#[derive(Debug)]
struct Buffer {
    registration: u64,
    epoch: u64,
    spec: BufferSpec,
    /// The revision in which it came or changed.
    revision: u64,
    /// Slices on it.
    uses: u64,
    /// It goes with the last of them.
    is_leaving: bool,
}

/// All buffers of a process.
#[derive(Debug)]
pub struct Buffers {
    count_max: usize,
    buffers: SlotMap<BufferKey, Buffer>,
    by_start: BTreeMap<u64, BufferKey>,
    by_registration: BTreeMap<u64, BufferKey>,
    by_revision: BTreeMap<u64, BufferKey>,
    registrations: u64,
    revision: u64,
    /// Revisions and registrations of what has gone, oldest first.
    gone: VecDeque<(u64, u64)>,
    /// Who knows fewer of them has missed something that is not remembered.
    gone_from: u64,
}

impl Buffers {
    /// None yet, and at most so many.
    #[must_use]
    pub fn new(count_max: usize) -> Self {
        Self {
            count_max,
            buffers: SlotMap::with_key(),
            by_start: BTreeMap::new(),
            by_registration: BTreeMap::new(),
            by_revision: BTreeMap::new(),
            registrations: 0,
            revision: 0,
            gone: VecDeque::new(),
            gone_from: 0,
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffers.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// Registers a buffer, in time that grows with the logarithm of how many there are.
    ///
    /// # Errors
    /// [`RegisterError`]; nothing is registered.
    pub fn register(&mut self, spec: BufferSpec) -> Result<BufferKey, RegisterError> {
        self.check(&spec)?;
        self.registrations += 1;
        self.revision += 1;
        let (start, registration, revision) = (spec.start, self.registrations, self.revision);
        let key = self.buffers.insert(Buffer {
            registration,
            epoch: 1,
            spec,
            revision,
            uses: 0,
            is_leaving: false,
        });
        self.by_start.insert(start, key);
        self.by_registration.insert(registration, key);
        self.by_revision.insert(revision, key);
        Ok(key)
    }

    /// Registers all of them, or none.
    ///
    /// # Errors
    /// The number of the first that cannot be, and why.
    pub fn register_all(
        &mut self,
        specs: Vec<BufferSpec>,
    ) -> Result<Vec<BufferKey>, (usize, RegisterError)> {
        let mut keys = Vec::with_capacity(specs.len());
        for (number, spec) in specs.into_iter().enumerate() {
            match self.register(spec) {
                Ok(key) => keys.push(key),
                Err(error) => {
                    keys.into_iter().for_each(|key| self.erase(key));
                    return Err((number, error));
                }
            }
        }
        Ok(keys)
    }

    fn check(&self, spec: &BufferSpec) -> Result<(), RegisterError> {
        let (start, bytes) = (spec.start, spec.bytes);
        if bytes == 0 {
            return Err(RegisterError::Empty { start });
        }
        let Some(end) = start.checked_add(bytes) else {
            return Err(RegisterError::Overflow { start, bytes });
        };
        let mut ends = spec.regions.iter().map(|region| region.end_bytes);
        let follow = ends.clone().zip(ends.clone().skip(1)).all(|(a, b)| a < b);
        let is_whole = spec
            .regions
            .last()
            .is_none_or(|last| last.end_bytes == bytes);
        if !follow || !is_whole || ends.next() == Some(0) || spec.regions.len() > REGIONS_MAX {
            return Err(RegisterError::Regions { bytes });
        }
        // None overlaps another, so only the last one that begins before the end can.
        let before = self.by_start.range(..end).next_back();
        if let Some(other) = before.and_then(|(_, key)| self.buffers.get(*key))
            && other.spec.start + other.spec.bytes > start
        {
            return Err(RegisterError::Overlap {
                start,
                bytes,
                other_start: other.spec.start,
                other_bytes: other.spec.bytes,
            });
        }
        let count = self.buffers.len();
        if count >= self.count_max {
            return Err(RegisterError::TooMany { count });
        }
        Ok(())
    }

    /// Takes a buffer back. True: it has gone; false: it goes with the last slice on it, and its
    /// bytes must not be used for anything else until [`Buffers::release`] says so. Peers are
    /// refused from now on.
    ///
    /// # Errors
    /// [`RegisterError::Stale`].
    pub fn unregister(&mut self, key: BufferKey) -> Result<bool, RegisterError> {
        let buffer = self.buffers.get_mut(key).ok_or(RegisterError::Stale)?;
        if buffer.is_leaving {
            return Err(RegisterError::Stale);
        }
        buffer.is_leaving = true;
        let is_idle = buffer.uses == 0;
        if is_idle {
            self.erase(key);
        }
        Ok(is_idle)
    }

    /// Cuts off what peers were allowed until now: frames of an older epoch are refused. The new
    /// epoch.
    ///
    /// # Errors
    /// [`RegisterError::Stale`].
    pub fn fence(&mut self, key: BufferKey) -> Result<u64, RegisterError> {
        let next = self.revision + 1;
        let buffer = self.buffers.get_mut(key).ok_or(RegisterError::Stale)?;
        buffer.epoch += 1;
        self.by_revision.remove(&buffer.revision);
        self.by_revision.insert(next, key);
        buffer.revision = next;
        self.revision = next;
        Ok(buffer.epoch)
    }

    /// A slice begins on `bytes` from `offset` on, asked for by this process itself.
    ///
    /// # Errors
    /// [`Refusal`]; nothing begins.
    pub fn hold(&mut self, key: BufferKey, offset: u64, bytes: u64) -> Result<(), Refusal> {
        let buffer = self.buffers.get_mut(key);
        let buffer = buffer.filter(|buffer| !buffer.is_leaving);
        let buffer = buffer.ok_or(Refusal::StaleRegistration)?;
        buffer.check_range(offset, bytes)?;
        buffer.uses += 1;
        Ok(())
    }

    /// Holds the buffer of a place that was found a moment ago.
    pub(super) fn hold_number(&mut self, registration: u64) {
        let key = self.by_registration.get(&registration).copied();
        if let Some(buffer) = key.and_then(|key| self.buffers.get_mut(key)) {
            buffer.uses += 1;
        }
    }

    /// Whether a peer may do what it wants now: the buffer. It holds nothing, so whoever moves
    /// bytes for a peer asks again before each step, and a buffer that was taken back or fenced in
    /// between is not touched any more.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn allows(
        &self,
        (registration, epoch): (u64, u64),
        offset: u64,
        bytes: u64,
        wants: Access,
    ) -> Result<BufferKey, Refusal> {
        let key = self.by_registration.get(&registration).copied();
        let key = key.ok_or(Refusal::StaleRegistration)?;
        let buffer = self.buffers.get(key).filter(|buffer| !buffer.is_leaving);
        let buffer = buffer.ok_or(Refusal::StaleRegistration)?;
        if epoch != buffer.epoch {
            return Err(Refusal::StaleEpoch);
        }
        let may = buffer.spec.access;
        if (wants.read && !may.read) || (wants.write && !may.write) {
            return Err(Refusal::NotAllowed);
        }
        buffer.check_range(offset, bytes)?;
        Ok(key)
    }

    /// A slice has ended for good. True: the buffer went with it.
    pub fn release(&mut self, key: BufferKey) -> bool {
        let Some(buffer) = self.buffers.get_mut(key) else {
            return false;
        };
        buffer.uses = buffer.uses.saturating_sub(1);
        let goes = buffer.is_leaving && buffer.uses == 0;
        if goes {
            self.erase(key);
        }
        goes
    }

    /// The buffer that holds `bytes` from `address` on, and where in it they begin.
    #[must_use]
    pub fn find(&self, address: u64, bytes: u64) -> Option<(BufferKey, u64)> {
        let (start, key) = self.by_start.range(..=address).next_back()?;
        let offset = address - start;
        let buffer = self.buffers.get(*key).filter(|buffer| !buffer.is_leaving)?;
        buffer.check_range(offset, bytes).ok()?;
        Some((*key, offset))
    }

    /// The same, as a place.
    #[must_use]
    pub fn place_of(&self, address: u64, bytes: u64) -> Option<Place> {
        let (key, offset_bytes) = self.find(address, bytes)?;
        let registration = self.buffers.get(key)?.registration;
        Some(Place {
            registration,
            offset_bytes,
        })
    }

    /// The buffer of a registration.
    #[must_use]
    pub fn key_of(&self, registration: u64) -> Option<BufferKey> {
        self.by_registration.get(&registration).copied()
    }

    /// Bytes from a place to the end of its region; 0 if there is no such place.
    #[must_use]
    pub fn until_edge(&self, place: Place) -> u64 {
        let buffer = self.key_of(place.registration);
        let spec = buffer
            .and_then(|key| self.buffers.get(key))
            .map(|buffer| &buffer.spec);
        spec.map_or(0, |spec| {
            until_edge(&spec.regions, spec.bytes, place.offset_bytes)
        })
    }

    /// What is known of a buffer.
    #[must_use]
    pub fn get(&self, key: BufferKey) -> Option<Described> {
        self.buffers.get(key).map(Buffer::described)
    }

    /// What has changed beyond what is known: at most so many buffers at once.
    #[must_use]
    pub fn changes(&self, known: Known, count_max: usize) -> Changes {
        let is_foreign = known.added > self.revision || known.removed > self.revision;
        let is_whole = known == Known::default() || known.removed < self.gone_from || is_foreign;
        let since = if is_whole { Known::default() } else { known };
        let mut newer = self.by_revision.range(since.added + 1..);
        let added: Vec<_> = newer.by_ref().take(count_max.max(1)).collect();
        let has_more = newer.next().is_some();
        let through = match added.last() {
            Some((last, _)) if has_more => **last,
            _ => self.revision,
        };
        let added = added.into_iter();
        let added = added.filter_map(|(_, key)| Some(self.buffers.get(*key)?.described()));
        let gone = self.gone.iter().rev();
        let gone = gone.take_while(|(at, _)| *at > since.removed && !is_whole);
        Changes {
            is_whole,
            removed: gone.map(|(_, registration)| *registration).collect(),
            added: added.collect(),
            known: Known {
                added: through,
                removed: self.revision,
            },
            has_more,
        }
    }

    fn erase(&mut self, key: BufferKey) {
        let Some(buffer) = self.buffers.remove(key) else {
            return;
        };
        self.by_start.remove(&buffer.spec.start);
        self.by_registration.remove(&buffer.registration);
        self.by_revision.remove(&buffer.revision);
        self.revision += 1;
        self.gone.push_back((self.revision, buffer.registration));
        if self.gone.len() > GONE_MAX
            && let Some((at, _)) = self.gone.pop_front()
        {
            self.gone_from = at;
        }
    }
}

/// Bytes from an offset to the end of its region.
fn until_edge(regions: &[Region], bytes: u64, offset: u64) -> u64 {
    let region = regions.partition_point(|region| region.end_bytes <= offset);
    let end = regions.get(region).map_or(bytes, |region| region.end_bytes);
    end.saturating_sub(offset)
}

impl Buffer {
    fn check_range(&self, offset: u64, bytes: u64) -> Result<(), Refusal> {
        let end = offset.checked_add(bytes).ok_or(Refusal::OutOfRange)?;
        if bytes == 0 || end > self.spec.bytes {
            return Err(Refusal::OutOfRange);
        }
        Ok(())
    }

    fn described(&self) -> Described {
        Described {
            registration: self.registration,
            epoch: self.epoch,
            start: self.spec.start,
            bytes: self.spec.bytes,
            regions: self.spec.regions.clone(),
            access: self.spec.access,
        }
    }
}
