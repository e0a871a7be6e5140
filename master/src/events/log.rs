//! The cache events that are kept, by tenant: bounded as a whole, the oldest of the largest go
//! first. Pure.

use std::collections::{BTreeMap, VecDeque};

use larder_types::{Epoch, TenantId};
use larder_wire::events::{CacheEvent, EventPage, Sequence};
use larder_wire::limit::{MAX_BATCH, MAX_BODY_BYTES};

/// The most bytes of keys in one page: with the numbers beside 1,024 keys, at most 64 bytes each,
/// it stays below [`MAX_BODY_BYTES`].
const PAGE_MAX_BYTES: usize = MAX_BODY_BYTES as usize - 128 * 1024;
/// When there is no room, this part of the largest tenant's events goes at once, so that looking
/// for the largest costs little per event.
const DROPPED_PART: usize = 16;

/// How much is kept, of all tenants together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The most events.
    pub(crate) events: usize,
    /// The most bytes, keys included.
    pub(crate) bytes: usize,
}

/// The events of one tenant.
#[derive(Debug)]
struct TenantLog {
    /// The number of the first entry that is kept, or of the next one if none is.
    first: u64,
    entries: VecDeque<CacheEvent>,
    bytes: usize,
}

impl TenantLog {
    fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    fn drop_oldest(&mut self, count: usize) -> (usize, usize) {
        let gone: usize = self.entries.drain(..count).map(|e| event_bytes(&e)).sum();
        self.bytes = self.bytes.saturating_sub(gone);
        self.first += count as u64;
        (count, gone)
    }
}

/// Memory of one event. The queue may have twice the room of what it holds.
fn event_bytes(event: &CacheEvent) -> usize {
    size_of::<CacheEvent>() + event.key.as_bytes().len()
}

/// The events of one leader. A new leader begins anew, and its numbers have its epoch.
#[derive(Debug)]
pub(crate) struct EventLog {
    epoch: Epoch,
    limits: Limits,
    /// At most as many as tenants.
    tenants: BTreeMap<TenantId, TenantLog>,
    held: usize,
    bytes: usize,
    /// Above every number of a tenant that is gone: one of the same name continues there.
    floor: u64,
}

impl EventLog {
    pub(crate) const fn new(epoch: Epoch, limits: Limits) -> Self {
        Self {
            epoch,
            limits,
            tenants: BTreeMap::new(),
            held: 0,
            bytes: 0,
            floor: 1,
        }
    }

    /// Takes an event in; how many of which tenants were dropped for it, usually none.
    pub(crate) fn push(&mut self, tenant: &TenantId, event: CacheEvent) -> Vec<(TenantId, usize)> {
        let bytes = event_bytes(&event);
        if !self.tenants.contains_key(tenant) {
            let empty = TenantLog {
                first: self.floor,
                entries: VecDeque::new(),
                bytes: 0,
            };
            self.tenants.insert(tenant.clone(), empty);
        }
        if let Some(log) = self.tenants.get_mut(tenant) {
            log.entries.push_back(event);
            log.bytes += bytes;
            self.held += 1;
            self.bytes += bytes;
        }
        self.make_room()
    }

    fn make_room(&mut self) -> Vec<(TenantId, usize)> {
        let mut dropped = Vec::new();
        while self.held > self.limits.events || self.bytes > self.limits.bytes {
            let largest = self.tenants.iter_mut().max_by_key(|(_, log)| log.bytes);
            let Some((tenant, log)) = largest else { break };
            let (events, bytes) = log.drop_oldest(log.entries.len().div_ceil(DROPPED_PART));
            self.held = self.held.saturating_sub(events);
            self.bytes = self.bytes.saturating_sub(bytes);
            dropped.push((tenant.clone(), events));
        }
        dropped
    }

    /// The number of the tenant's next event.
    pub(crate) fn next(&self, tenant: &TenantId) -> Sequence {
        let counter = self.tenants.get(tenant).map_or(self.floor, TenantLog::next);
        Sequence {
            epoch: self.epoch,
            counter,
        }
    }

    /// What is kept of the tenant from a number on.
    pub(crate) fn read(&self, tenant: &TenantId, from: Sequence) -> EventPage {
        let next = self.next(tenant);
        let first = self.tenants.get(tenant).map_or(self.floor, |log| log.first);
        if from.epoch != self.epoch || !(first..=next.counter).contains(&from.counter) {
            return EventPage::Gap { next };
        }
        let mut bytes = 0;
        let fit = self.since(tenant, from.counter).take_while(|event| {
            bytes += event.key.as_bytes().len();
            bytes <= PAGE_MAX_BYTES
        });
        let entries: Vec<CacheEvent> = fit.take(MAX_BATCH).cloned().collect();
        let reached = Sequence {
            epoch: self.epoch,
            counter: from.counter + entries.len() as u64,
        };
        EventPage::Events {
            more: reached < next,
            next: reached,
            entries,
        }
    }

    /// The tenant's events from `counter` on, those that are kept.
    pub(crate) fn since<'a>(
        &'a self,
        tenant: &TenantId,
        counter: u64,
    ) -> impl Iterator<Item = &'a CacheEvent> + use<'a> {
        self.tenants.get(tenant).into_iter().flat_map(move |log| {
            let skipped = counter.saturating_sub(log.first);
            let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
            log.entries.range(skipped.min(log.entries.len())..)
        })
    }

    /// The tenant is gone, and its events with it.
    pub(crate) fn forget(&mut self, tenant: &TenantId) {
        if let Some(log) = self.tenants.remove(tenant) {
            self.held = self.held.saturating_sub(log.entries.len());
            self.bytes = self.bytes.saturating_sub(log.bytes);
            self.floor = self.floor.max(log.next());
        }
    }

    /// Each tenant with events, and how many are kept.
    pub(crate) fn held(&self) -> impl Iterator<Item = (&TenantId, usize)> {
        self.tenants
            .iter()
            .map(|(tenant, log)| (tenant, log.entries.len()))
    }

    /// Memory of all that is kept, in bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use larder_types::{Key, Version};
    use larder_wire::events::CacheChange;
    use proptest::prelude::*;

    use super::*;

    fn tenant(number: usize) -> TenantId {
        TenantId::new(&format!("t{number}")).expect("a name")
    }

    fn event(counter: u64, key_bytes: usize) -> CacheEvent {
        CacheEvent {
            key: Key::new(vec![b'k'; key_bytes]).expect("a key"),
            version: Version {
                epoch: Epoch::default(),
                counter,
            },
            change: CacheChange::Removed,
        }
    }

    fn at(counter: u64) -> Sequence {
        Sequence {
            epoch: epoch(),
            counter,
        }
    }

    fn epoch() -> Epoch {
        Epoch {
            generation: 4,
            term: 1,
        }
    }

    proptest! {
        /// Against a model that keeps everything: what is read is a suffix of what was pushed,
        /// never of another tenant, within the bounds, and gaps are told.
        #[test]
        fn pages_are_what_happened_or_a_gap(
            pushes in prop::collection::vec((0_usize..3, 1_usize..300), 1..400),
            from in 0_u64..450,
        ) {
            let limits = Limits { events: 64, bytes: 12_000 };
            let mut log = EventLog::new(epoch(), limits);
            let mut model: HashMap<usize, Vec<CacheEvent>> = HashMap::new();
            let mut dropped: HashMap<TenantId, usize> = HashMap::new();
            for (counter, (of, key_bytes)) in pushes.into_iter().enumerate() {
                let event = event(counter as u64, key_bytes);
                model.entry(of).or_default().push(event.clone());
                for (tenant, events) in log.push(&tenant(of), event) {
                    *dropped.entry(tenant).or_default() += events;
                }
                prop_assert!(log.held <= limits.events && log.bytes <= limits.bytes);
            }
            for (of, pushed) in &model {
                let tenant = tenant(*of);
                let lost = dropped.get(&tenant).copied().unwrap_or(0);
                let next = pushed.len() as u64 + 1;
                prop_assert_eq!(log.next(&tenant), at(next));
                match log.read(&tenant, at(from)) {
                    EventPage::Gap { next: told } => {
                        prop_assert_eq!(told, at(next));
                        prop_assert!(from <= lost as u64 || from > next);
                    }
                    EventPage::Events { entries, next: told, more } => {
                        prop_assert!(from > lost as u64 && from <= next);
                        let expected = &pushed[from as usize - 1..];
                        prop_assert_eq!(&entries[..], expected);
                        prop_assert_eq!((told, more), (at(next), false));
                    }
                }
            }
            let held: usize = log.held().map(|(_, held)| held).sum();
            prop_assert_eq!(held, log.held);
            let gone: usize = dropped.values().sum();
            prop_assert_eq!(held + gone, model.values().map(Vec::len).sum::<usize>());
        }
    }

    #[test]
    fn another_epoch_is_a_gap() {
        let mut log = EventLog::new(
            epoch(),
            Limits {
                events: 8,
                bytes: 8_000,
            },
        );
        log.push(&tenant(0), event(1, 3));
        let former = Sequence {
            epoch: Epoch::default(),
            counter: 1,
        };
        let page = log.read(&tenant(0), former);
        assert_eq!(page, EventPage::Gap { next: at(2) });
    }

    #[test]
    fn a_tenant_that_comes_back_gets_new_numbers() {
        let limits = Limits {
            events: 8,
            bytes: 8_000,
        };
        let mut log = EventLog::new(epoch(), limits);
        for counter in 0..5 {
            log.push(&tenant(0), event(counter, 3));
        }
        log.forget(&tenant(0));
        assert_eq!((log.held, log.bytes), (0, 0));
        assert_eq!(log.next(&tenant(0)), at(6));
        log.push(&tenant(0), event(9, 3));
        let page = log.read(&tenant(0), at(2));
        assert_eq!(page, EventPage::Gap { next: at(7) });
    }

    #[test]
    fn long_keys_make_short_pages() {
        let limits = Limits {
            events: 4_096,
            bytes: 64 << 20,
        };
        let mut log = EventLog::new(epoch(), limits);
        for counter in 0..1_500 {
            log.push(&tenant(0), event(counter, 4_096));
        }
        let mut from = at(1);
        let mut seen = 0;
        while let EventPage::Events {
            entries,
            next,
            more,
        } = log.read(&tenant(0), from)
        {
            let page = larder_wire::Reply {
                epoch: epoch(),
                pool_time: larder_types::PoolTime(u64::MAX),
                answer: log.read(&tenant(0), from),
            };
            let mut out = Vec::new();
            let frame = larder_wire::Frame::request(larder_wire::Kind::Subscribe, 1, 0, 0);
            larder_wire::encode_frame(&mut out, frame, &page).expect("it fits a frame");
            seen += entries.len();
            from = next;
            if !more {
                break;
            }
        }
        assert_eq!(seen, 1_500);
    }
}
