//! Leaves in order, from any key on.

use super::{Keys, Link, Radix, Step, Symbol, common_len, symbol};

impl Radix {
    /// The leaves from the lowest key on that is `lower` or above it, or only above it.
    pub(in crate::objects) fn from(
        &self,
        lower: &[u8],
        inclusive: bool,
        keys: &impl Keys,
    ) -> Leaves<'_> {
        let mut leaves = Leaves {
            tree: self,
            next: None,
            path: Vec::new(),
        };
        let Some(near) = self.nearest(lower) else {
            return leaves;
        };
        let other = keys.key(near);
        let common = common_len(lower, other);
        let mut link = self.root;
        while !link.is_leaf() && self.depth(link) < common {
            let step = Step {
                node: link,
                symbol: symbol(lower, self.depth(link)),
            };
            leaves.path.push(Step {
                symbol: step.symbol + 1,
                ..step
            });
            link = self.child(step);
        }
        let (mine, theirs) = (symbol(lower, common), symbol(other, common));
        if !link.is_leaf() && self.depth(link) == common {
            // Either nobody is below `mine` here, or `lower` itself is, as an end.
            let symbol = mine + Symbol::from(mine == theirs && !inclusive);
            leaves.path.push(Step { node: link, symbol });
        } else if theirs > mine || (theirs == mine && inclusive) {
            leaves.enter(link);
        }
        leaves
    }

    /// Every leaf in the order of keys.
    pub(in crate::objects) fn iter(&self) -> Leaves<'_> {
        let mut leaves = Leaves {
            tree: self,
            next: None,
            path: Vec::new(),
        };
        if self.root != Link::NONE {
            leaves.enter(self.root);
        }
        leaves
    }
}

/// Leaves in the order of keys.
pub(in crate::objects) struct Leaves<'a> {
    tree: &'a Radix,
    next: Option<u32>,
    /// The nodes above, each with the symbol to go on from.
    path: Vec<Step>,
}

impl Leaves<'_> {
    fn enter(&mut self, link: Link) {
        if link.is_leaf() {
            self.next = Some(link.0);
        } else {
            self.path.push(Step {
                node: link,
                symbol: 0,
            });
        }
    }
}

impl Iterator for Leaves<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        loop {
            if let Some(leaf) = self.next.take() {
                return Some(leaf);
            }
            let top = self.path.last_mut()?;
            match self.tree.next(top.node, top.symbol) {
                Some((symbol, child)) => {
                    top.symbol = symbol + 1;
                    self.enter(child);
                }
                None => drop(self.path.pop()),
            }
        }
    }
}
