//! Adding a leaf.

use super::node::Small;
use super::{Keys, Kind, Link, Radix, Step, common_len, symbol};

impl Radix {
    /// Adds a leaf under a key that is not there; the leaf that is there instead, if one is.
    ///
    /// Mostly all bytes of the way are compared on it, and what is skipped at the top is the same
    /// for all: then no other key has to be fetched to see where a free place is.
    pub(in crate::objects) fn insert(
        &mut self,
        key: &[u8],
        leaf: u32,
        keys: &impl Keys,
    ) -> Option<u32> {
        if self.root == Link::NONE {
            self.root = Link::leaf(leaf);
            return None;
        }
        let (mut link, mut above, mut compared) = (self.root, None, 0);
        while !link.is_leaf() {
            let (depth, child) = self.depth_and_child(link, key);
            if depth > compared && !self.starts_as(link, key, compared..depth, keys) {
                return self.insert_apart(key, leaf, keys);
            }
            let here = symbol(key, depth);
            if child == Link::NONE {
                let grown = self.add(link, here, Link::leaf(leaf));
                self.replace(above, grown);
                return None;
            }
            above = Some(Step {
                node: link,
                symbol: here,
            });
            (link, compared) = (child, depth + 1);
        }
        let other = keys.key(link.0);
        let common = common_len(key, other);
        if common == key.len() && common == other.len() {
            return Some(link.0);
        }
        let forked = self.fork((other, link), (key, leaf), common);
        self.replace(above, forked);
        None
    }

    /// Whether all keys below a node have these bytes of `key`. The first of them tells.
    fn starts_as(
        &self,
        node: Link,
        key: &[u8],
        bytes: std::ops::Range<usize>,
        keys: &impl Keys,
    ) -> bool {
        let mut first = node;
        while !first.is_leaf() {
            let Some((_, child)) = self.next(first, 0) else {
                return false;
            };
            first = child;
        }
        let other = keys.key(first.0);
        key.get(bytes.clone())
            .is_some_and(|own| other.get(bytes) == Some(own))
    }

    /// A node for two keys that differ from byte `common` on.
    fn fork(&mut self, other: (&[u8], Link), new: (&[u8], u32), common: usize) -> Link {
        // Keys have at most 4,096 bytes.
        let depth = u16::try_from(common).unwrap_or(u16::MAX);
        let mut node = Small::<4>::new(depth);
        node.add(symbol(other.0, common), other.1);
        node.add(symbol(new.0, common), Link::leaf(new.1));
        Link::node(Kind::Four, self.four.add(node))
    }

    /// As [`Self::insert`], where the way leaves the key before its end.
    fn insert_apart(&mut self, key: &[u8], leaf: u32, keys: &impl Keys) -> Option<u32> {
        let near = self.nearest(key)?;
        let other = keys.key(near);
        let common = common_len(key, other);
        if common == key.len() && common == other.len() {
            return Some(near);
        }
        let (mut link, mut above) = (self.root, None);
        while !link.is_leaf() {
            let (depth, child) = self.depth_and_child(link, key);
            if depth >= common {
                break;
            }
            above = Some(Step {
                node: link,
                symbol: symbol(key, depth),
            });
            link = child;
        }
        let grown = if !link.is_leaf() && self.depth(link) == common {
            self.add(link, symbol(key, common), Link::leaf(leaf))
        } else {
            self.fork((other, link), (key, leaf), common)
        };
        self.replace(above, grown);
        None
    }
}
