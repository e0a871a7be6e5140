//! S3-FIFO: what is new waits in a small queue; only what is used there gets into the main one.
//! What was evicted not long ago and comes back goes there at once. A use moves nothing.
//!
//! After Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023. Three things
//! differ. Queues are balanced in bytes. One use in the small queue is enough, as an engine writes
//! a block once and reads it once for each prompt that shares it. And the small queue has half of
//! the bytes and not a tenth: a conversation comes back after minutes, and a tenth is past by
//! then. On the traffic of [`super::trace`] a tenth loses to LRU in caches that hold more than a
//! twentieth of all blocks; a half does not. A share that adapts by what the ghost finds was tried
//! and was worse than a half in small caches and no better in large ones.

use super::nodes::{EntryId, Nodes};
use super::queue::Queue;
use super::{MAX_CHANCES, Policy};
use crate::objects::ObjectId;

/// The small queue's share of all bytes: one in this many.
const SMALL_SHARE: u64 = 2;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct S3Fifo {
    small: Queue,
    main: Queue,
}

impl S3Fifo {
    /// Each entry, those of the small queue first.
    pub(crate) fn iter<'a>(&'a self, nodes: &'a Nodes) -> impl Iterator<Item = EntryId> + 'a {
        self.small.iter(nodes).chain(self.main.iter(nodes))
    }

    fn promote(&mut self, nodes: &mut Nodes, entry: EntryId) {
        self.small.unlink(nodes, entry);
        nodes.set_heat(entry, 0);
        nodes.set_main(entry, true);
        self.main.push(nodes, entry);
    }

    /// Whether the small queue has more than its share, or is all there is.
    fn small_is_next(&self) -> bool {
        let share = self.bytes() / SMALL_SHARE;
        self.small.len() > 0 && (self.main.len() == 0 || self.small.bytes() > share)
    }
}

impl Policy for S3Fifo {
    const NAME: &'static str = "s3-fifo";

    fn insert(&mut self, nodes: &mut Nodes, entry: EntryId, again: bool) {
        nodes.set_main(entry, again);
        let queue = if again {
            &mut self.main
        } else {
            &mut self.small
        };
        queue.push(nodes, entry);
    }

    fn touch(&mut self, nodes: &mut Nodes, entry: EntryId) {
        nodes.warm(entry);
    }

    fn remove(&mut self, nodes: &mut Nodes, entry: EntryId) {
        if nodes.is_main(entry) {
            self.main.unlink(nodes, entry);
        } else {
            self.small.unlink(nodes, entry);
        }
    }

    fn victim(
        &mut self,
        nodes: &mut Nodes,
        steps: &mut u32,
        may: &mut dyn FnMut(ObjectId) -> bool,
    ) -> Option<EntryId> {
        let (mut spared, mut refused) = (0, 0);
        while *steps > 0 {
            // When nothing of the main queue may go, the small one is next whatever its share.
            let is_main_through = refused >= self.main.len();
            let is_small = self.small_is_next() || (self.small.len() > 0 && is_main_through);
            if !is_small && is_main_through {
                return None;
            }
            let queue = if is_small { &self.small } else { &self.main };
            let entry = queue.front()?;
            *steps -= 1;
            let heat = nodes.heat(entry);
            let is_warm = heat > 0 && spared < MAX_CHANCES;
            if is_warm {
                spared += 1;
            } else if may(nodes.object(entry)) {
                return Some(entry);
            } else {
                refused += 1;
            }
            if is_small {
                self.promote(nodes, entry);
            } else {
                nodes.set_heat(entry, heat.saturating_sub(1));
                self.main.renew(nodes, entry);
            }
        }
        None
    }

    fn len(&self) -> u32 {
        self.small.len() + self.main.len()
    }

    fn bytes(&self) -> u64 {
        self.small.bytes() + self.main.bytes()
    }
}
