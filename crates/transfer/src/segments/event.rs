//! What is to be told to the master: each thing once, however often it was asked for.

use std::collections::{BTreeMap, BTreeSet};

use larder_types::{Extent, SlabRef, Version};
use larder_wire::agent::Event;

/// Events that wait to be fetched.
///
/// Bound: one or two for each slab, and one `Released` for each extent erased since the last
/// fetch. The shell fetches after each batch of commands (at most 1,024) and each tick.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    ready: BTreeSet<SlabRef>,
    failed: BTreeMap<SlabRef, String>,
    released: BTreeSet<(Extent, Version)>,
    returned: BTreeSet<SlabRef>,
}

impl EventQueue {
    pub(super) fn ready(&mut self, slab: SlabRef) {
        self.ready.insert(slab);
    }

    pub(super) fn failed(&mut self, slab: SlabRef, detail: String) {
        self.failed.insert(slab, detail);
    }

    pub(super) fn released(&mut self, extent: Extent, version: Version) {
        self.released.insert((extent, version));
    }

    pub(super) fn returned(&mut self, slab: SlabRef) {
        // What was not told about its life does not matter any more.
        self.ready.remove(&slab);
        self.returned.insert(slab);
    }

    pub(super) fn take(&mut self) -> Vec<Event> {
        let queue = std::mem::take(self);
        let ready = queue
            .ready
            .into_iter()
            .map(|slab| Event::SlabReady { slab });
        let failed = queue
            .failed
            .into_iter()
            .map(|(slab, detail)| Event::SlabFailed { slab, detail });
        let released = queue
            .released
            .into_iter()
            .map(|(extent, version)| Event::Released { extent, version });
        let returned = queue
            .returned
            .into_iter()
            .map(|slab| Event::SlabReturned { slab });
        ready
            .chain(failed)
            .chain(released)
            .chain(returned)
            .collect()
    }
}
