//! An adaptive radix tree over the keys of one table: order, prefixes and look-up.
//!
//! After Leis, Kemper and Neumann, "The Adaptive Radix Tree" (ICDE 2013): nodes of 4, 16, 48 or
//! 256 children, one byte of the key each. A path without branches is not stored: a node says at
//! which byte of the key it branches, and what is skipped is compared at the leaf, as in Morrison's
//! PATRICIA (JACM 1968). All keys below a node agree before its byte. A key that ends at a branch
//! hangs at `end`, below all bytes.
//!
//! A random key costs about one node for each four bits of the table's size, and a node in three
//! of the objects: 15 bytes each. Nothing is ever rebuilt: a step adds, widens, narrows or drops
//! one node.

mod insert;
mod leaves;
mod node;

use super::arena::Arena;
use node::{FortyEight, Full, Small};

/// Where keys of leaves stand.
pub(super) trait Keys {
    fn key(&self, leaf: u32) -> &[u8];
}

/// A leaf or a node: the top bit tells, then two bits for the kind of node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link(u32);

/// Bits of a node's number within its kind.
const NUMBER_BITS: u32 = 29;
const NUMBER: u32 = (1 << NUMBER_BITS) - 1;

/// Which arena a node lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Four,
    Sixteen,
    FortyEight,
    Full,
}

impl Link {
    /// No node has this number: memory ends long before.
    const NONE: Self = Self(u32::MAX);

    const fn leaf(leaf: u32) -> Self {
        Self(leaf & (u32::MAX >> 1))
    }

    const fn node(kind: Kind, number: u32) -> Self {
        Self(1 << 31 | (kind as u32) << NUMBER_BITS | number & NUMBER)
    }

    const fn is_leaf(self) -> bool {
        self.0 >> 31 == 0
    }

    const fn number(self) -> u32 {
        self.0 & NUMBER
    }

    const fn kind(self) -> Kind {
        match self.0 >> NUMBER_BITS & 3 {
            0 => Kind::Four,
            1 => Kind::Sixteen,
            2 => Kind::FortyEight,
            _ => Kind::Full,
        }
    }
}

/// What a node branches by: 0 is the end of the key, else the byte and one.
type Symbol = u16;

/// The symbol of a key at a byte that it has, or at its end.
fn symbol(key: &[u8], depth: usize) -> Symbol {
    key.get(depth).map_or(0, |byte| Symbol::from(*byte) + 1)
}

fn common_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The way from a node to one of its children.
#[derive(Clone, Copy)]
struct Step {
    node: Link,
    symbol: Symbol,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Radix {
    root: Link,
    four: Arena<Small<4>>,
    sixteen: Arena<Small<16>>,
    forty_eight: Arena<FortyEight>,
    full: Arena<Full>,
}

impl Default for Radix {
    fn default() -> Self {
        Self {
            root: Link::NONE,
            four: Arena::default(),
            sixteen: Arena::default(),
            forty_eight: Arena::default(),
            full: Arena::default(),
        }
    }
}

/// Calls a method of the node behind a link; `$none` if there is none, which does not happen.
macro_rules! on_node {
    ($tree:expr, $link:expr, $get:ident, $none:expr, $node:ident => $do:expr) => {
        match $link.kind() {
            Kind::Four => $tree.four.$get($link.number()).map_or($none, |$node| $do),
            Kind::Sixteen => $tree
                .sixteen
                .$get($link.number())
                .map_or($none, |$node| $do),
            Kind::FortyEight => $tree
                .forty_eight
                .$get($link.number())
                .map_or($none, |$node| $do),
            Kind::Full => $tree.full.$get($link.number()).map_or($none, |$node| $do),
        }
    };
}

impl Radix {
    /// The leaf of exactly this key.
    pub(super) fn get(&self, key: &[u8], keys: &impl Keys) -> Option<u32> {
        let mut link = self.root;
        while !link.is_leaf() {
            if link == Link::NONE {
                return None;
            }
            link = self.below(link, key);
        }
        (keys.key(link.0) == key).then_some(link.0)
    }

    /// Takes the leaf of exactly this key out.
    pub(super) fn remove(&mut self, key: &[u8], keys: &impl Keys) -> Option<u32> {
        let (mut link, mut parent, mut grandparent) = (self.root, None, None);
        while !link.is_leaf() {
            if link == Link::NONE {
                return None;
            }
            let (depth, child) = self.depth_and_child(link, key);
            grandparent = parent;
            parent = Some(Step {
                node: link,
                symbol: symbol(key, depth),
            });
            link = child;
        }
        if keys.key(link.0) != key {
            return None;
        }
        self.detach(parent, grandparent);
        Some(link.0)
    }

    /// Frees up to `chunks_max` chunks of memory of a tree without leaves; how many.
    pub(super) fn trim(&mut self, chunks_max: usize) -> usize {
        let mut freed = self.four.trim(chunks_max);
        freed += self.sixteen.trim(chunks_max - freed);
        freed += self.forty_eight.trim(chunks_max - freed);
        freed + self.full.trim(chunks_max - freed)
    }

    /// Whether no memory of a chunk is held.
    pub(super) fn is_unused(&self) -> bool {
        self.four.is_unused()
            && self.sixteen.is_unused()
            && self.forty_eight.is_unused()
            && self.full.is_unused()
    }

    /// A leaf whose key has the longest beginning in common with `key`.
    fn nearest(&self, key: &[u8]) -> Option<u32> {
        let mut link = self.root;
        while !link.is_leaf() {
            if link == Link::NONE {
                return None;
            }
            let below = self.below(link, key);
            link = if below == Link::NONE {
                self.next(link, 0)?.1
            } else {
                below
            };
        }
        Some(link.0)
    }

    fn depth(&self, link: Link) -> usize {
        on_node!(self, link, get, 0, node => usize::from(node.depth()))
    }

    /// At which byte a node branches, and its child on the way to `key`.
    fn depth_and_child(&self, link: Link, key: &[u8]) -> (usize, Link) {
        on_node!(self, link, get, (0, Link::NONE), node => {
            let depth = usize::from(node.depth());
            let child = match key.get(depth) {
                Some(byte) => node.find(*byte),
                None if depth == key.len() => node.end(),
                None => Link::NONE,
            };
            (depth, child)
        })
    }

    /// The child on the way to `key`.
    fn below(&self, link: Link, key: &[u8]) -> Link {
        self.depth_and_child(link, key).1
    }

    fn child(&self, step: Step) -> Link {
        on_node!(self, step.node, get, Link::NONE, node => match step.symbol.checked_sub(1) {
            None => node.end(),
            Some(byte) => u8::try_from(byte).map_or(Link::NONE, |byte| node.find(byte)),
        })
    }

    /// The first child of `symbol` or above.
    fn next(&self, link: Link, symbol: Symbol) -> Option<(Symbol, Link)> {
        on_node!(self, link, get, None, node => {
            if symbol == 0 && node.end() != Link::NONE {
                return Some((0, node.end()));
            }
            let next = node.next_from(symbol.saturating_sub(1));
            next.map(|(byte, child)| (Symbol::from(byte) + 1, child))
        })
    }

    /// Hangs `child` in the place of what the step leads to.
    fn replace(&mut self, above: Option<Step>, child: Link) {
        match above {
            None => self.root = child,
            Some(Step { node, symbol }) => {
                on_node!(self, node, get_mut, (), held => held.replace(symbol, child));
            }
        }
    }

    /// Adds a child under a symbol that the node does not have; the node, which may be another.
    fn add(&mut self, link: Link, symbol: Symbol, child: Link) -> Link {
        let added = on_node!(self, link, get_mut, true, node => node.add(symbol, child));
        if added {
            return link;
        }
        let wider = self.rebuilt(
            link,
            match link.kind() {
                Kind::Four => Kind::Sixteen,
                Kind::Sixteen => Kind::FortyEight,
                Kind::FortyEight | Kind::Full => Kind::Full,
            },
        );
        on_node!(self, wider, get_mut, true, node => node.add(symbol, child));
        wider
    }

    /// Takes the child out that `parent` leads to, and the parent too if one child is left.
    fn detach(&mut self, parent: Option<Step>, grandparent: Option<Step>) {
        let Some(Step { node: link, symbol }) = parent else {
            self.root = Link::NONE;
            return;
        };
        let (count, has_end) = on_node!(self, link, get_mut, (2, false), node => {
            node.remove(symbol);
            (usize::from(node.count()), node.end() != Link::NONE)
        });
        if count + usize::from(has_end) == 1 {
            let only = self.next(link, 0).map_or(Link::NONE, |(_, child)| child);
            self.give_back(link);
            self.replace(grandparent, only);
            return;
        }
        // Narrower only when well below the limit, so that a node does not change back and forth.
        let narrower = match link.kind() {
            Kind::Sixteen if count <= 3 => Kind::Four,
            Kind::FortyEight if count <= 12 => Kind::Sixteen,
            Kind::Full if count <= 40 => Kind::FortyEight,
            _ => return,
        };
        let link = self.rebuilt(link, narrower);
        self.replace(grandparent, link);
    }

    /// The same node as another kind.
    fn rebuilt(&mut self, link: Link, kind: Kind) -> Link {
        let depth = u16::try_from(self.depth(link)).unwrap_or(u16::MAX);
        let mut children = Vec::with_capacity(257);
        let mut from = 0;
        while let Some((symbol, child)) = self.next(link, from) {
            children.push((symbol, child));
            from = symbol + 1;
        }
        self.give_back(link);
        let new = match kind {
            Kind::Four => Link::node(kind, self.four.add(Small::new(depth))),
            Kind::Sixteen => Link::node(kind, self.sixteen.add(Small::new(depth))),
            Kind::FortyEight => Link::node(kind, self.forty_eight.add(FortyEight::new(depth))),
            Kind::Full => Link::node(kind, self.full.add(Full::new(depth))),
        };
        for (symbol, child) in children {
            on_node!(self, new, get_mut, true, node => node.add(symbol, child));
        }
        new
    }

    fn give_back(&mut self, link: Link) {
        match link.kind() {
            Kind::Four => self.four.give_back(link.number()),
            Kind::Sixteen => self.sixteen.give_back(link.number()),
            Kind::FortyEight => self.forty_eight.give_back(link.number()),
            Kind::Full => self.full.give_back(link.number()),
        }
    }
}

#[cfg(test)]
mod tests;
