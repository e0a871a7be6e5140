//! LRU: the entry that was not used for longest goes. The yardstick for the others; each use moves
//! the entry, and one scan of things that are used once drives everything else out.

use super::Policy;
use super::nodes::{EntryId, Nodes};
use super::queue::Queue;
use crate::objects::ObjectId;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lru {
    queue: Queue,
}

impl Policy for Lru {
    const NAME: &'static str = "lru";

    fn insert(&mut self, nodes: &mut Nodes, entry: EntryId, _again: bool) {
        self.queue.push(nodes, entry);
    }

    fn touch(&mut self, nodes: &mut Nodes, entry: EntryId) {
        self.queue.renew(nodes, entry);
    }

    fn remove(&mut self, nodes: &mut Nodes, entry: EntryId) {
        self.queue.unlink(nodes, entry);
    }

    fn victim(
        &mut self,
        nodes: &mut Nodes,
        steps: &mut u32,
        may: &mut dyn FnMut(ObjectId) -> bool,
    ) -> Option<EntryId> {
        let mut refused = 0;
        while *steps > 0 && refused < self.queue.len() {
            let entry = self.queue.front()?;
            *steps -= 1;
            if may(nodes.object(entry)) {
                return Some(entry);
            }
            refused += 1;
            self.queue.renew(nodes, entry);
        }
        None
    }

    fn len(&self) -> u32 {
        self.queue.len()
    }

    fn bytes(&self) -> u64 {
        self.queue.bytes()
    }
}
