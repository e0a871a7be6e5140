//! SIEVE: one queue that nothing moves in, and a hand that walks from old to new. It spares what
//! was used since it last came by and takes the first that was not.
//!
//! After Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024.

use super::nodes::{EntryId, Nodes};
use super::queue::Queue;
use super::{MAX_CHANCES, Policy};
use crate::objects::ObjectId;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sieve {
    queue: Queue,
    /// The entry to judge next; the oldest if there is none.
    hand: Option<EntryId>,
}

impl Policy for Sieve {
    const NAME: &'static str = "sieve";

    fn insert(&mut self, nodes: &mut Nodes, entry: EntryId, _again: bool) {
        self.queue.push(nodes, entry);
    }

    fn touch(&mut self, nodes: &mut Nodes, entry: EntryId) {
        nodes.set_heat(entry, 1);
    }

    fn remove(&mut self, nodes: &mut Nodes, entry: EntryId) {
        if self.hand == Some(entry) {
            self.hand = self.queue.after(nodes, entry);
        }
        self.queue.unlink(nodes, entry);
    }

    fn victim(
        &mut self,
        nodes: &mut Nodes,
        steps: &mut u32,
        may: &mut dyn FnMut(ObjectId) -> bool,
    ) -> Option<EntryId> {
        let (mut spared, mut refused) = (0, 0);
        while *steps > 0 && refused < self.queue.len() {
            let entry = self.hand.or_else(|| self.queue.front())?;
            *steps -= 1;
            self.hand = Some(entry);
            if nodes.heat(entry) > 0 && spared < MAX_CHANCES {
                spared += 1;
                nodes.set_heat(entry, 0);
            } else if may(nodes.object(entry)) {
                return Some(entry);
            } else {
                refused += 1;
            }
            self.hand = self.queue.after(nodes, entry);
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
