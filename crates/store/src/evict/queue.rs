//! Queues of entries: doubly linked through their nodes.

use super::nodes::{EntryId, NIL, Nodes};

/// A queue of entries, from the oldest on.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    head: u32,
    tail: u32,
    len: u32,
    bytes: u64,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            head: NIL,
            tail: NIL,
            len: 0,
            bytes: 0,
        }
    }
}

impl Queue {
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The oldest.
    pub(crate) fn front(&self) -> Option<EntryId> {
        named(self.head)
    }

    /// The one behind `entry`.
    pub(crate) fn after(&self, nodes: &Nodes, entry: EntryId) -> Option<EntryId> {
        named(nodes.node(entry).next)
    }

    /// Adds an entry as the newest.
    pub(crate) fn push(&mut self, nodes: &mut Nodes, entry: EntryId) {
        let last = self.tail;
        nodes.change(entry, |node| (node.prev, node.next) = (last, NIL));
        match named(last) {
            Some(last) => nodes.change(last, |node| node.next = entry.0),
            None => self.head = entry.0,
        }
        self.tail = entry.0;
        self.len += 1;
        self.bytes += nodes.size_bytes(entry);
    }

    /// Each entry, from the oldest on.
    pub(crate) fn iter<'a>(&'a self, nodes: &'a Nodes) -> impl Iterator<Item = EntryId> + 'a {
        std::iter::successors(self.front(), |entry| self.after(nodes, *entry))
    }

    /// Takes an entry of this queue out.
    pub(crate) fn unlink(&mut self, nodes: &mut Nodes, entry: EntryId) {
        let node = nodes.node(entry);
        let (prev, next) = (node.prev, node.next);
        match named(prev) {
            Some(prev) => nodes.change(prev, |node| node.next = next),
            None => self.head = next,
        }
        match named(next) {
            Some(next) => nodes.change(next, |node| node.prev = prev),
            None => self.tail = prev,
        }
        nodes.change(entry, |node| (node.prev, node.next) = (NIL, NIL));
        self.len = self.len.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(nodes.size_bytes(entry));
    }

    /// Makes the entry the newest.
    pub(crate) fn renew(&mut self, nodes: &mut Nodes, entry: EntryId) {
        self.unlink(nodes, entry);
        self.push(nodes, entry);
    }
}

const fn named(number: u32) -> Option<EntryId> {
    if number == NIL {
        None
    } else {
        Some(EntryId(number))
    }
}
