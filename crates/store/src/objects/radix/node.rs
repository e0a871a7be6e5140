//! The nodes of the tree: sorted bytes for few children, arrays by byte for many.

use super::{Link, Symbol};

/// Up to `N` children, their bytes sorted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Small<const N: usize> {
    depth: u16,
    count: u8,
    bytes: [u8; N],
    end: Link,
    links: [Link; N],
}

/// Up to 48 children; a byte array says where each lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct FortyEight {
    depth: u16,
    count: u8,
    /// The place of each byte's child, and one; 0 is none.
    places: [u8; 256],
    end: Link,
    links: [Link; 48],
}

/// A child for each byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Full {
    depth: u16,
    count: u16,
    end: Link,
    links: [Link; 256],
}

/// The byte of a symbol that is not the end.
fn byte_of(symbol: Symbol) -> Option<u8> {
    u8::try_from(symbol.checked_sub(1)?).ok()
}

impl<const N: usize> Small<N> {
    pub(super) const fn new(depth: u16) -> Self {
        Self {
            depth,
            count: 0,
            bytes: [0; N],
            end: Link::NONE,
            links: [Link::NONE; N],
        }
    }

    pub(super) const fn depth(&self) -> u16 {
        self.depth
    }

    pub(super) fn count(&self) -> u16 {
        u16::from(self.count)
    }

    pub(super) const fn end(&self) -> Link {
        self.end
    }

    /// The place of a byte. Compares all at once: which one it is cannot be predicted.
    fn place(&self, byte: u8) -> Option<usize> {
        let mut equal = 0u32;
        for (place, held) in self.bytes.iter().enumerate() {
            equal |= u32::from(*held == byte) << place;
        }
        equal &= (1 << self.count) - 1;
        (equal != 0).then_some(equal.trailing_zeros() as usize)
    }

    pub(super) fn find(&self, byte: u8) -> Link {
        self.place(byte)
            .and_then(|place| self.links.get(place))
            .map_or(Link::NONE, |link| *link)
    }

    pub(super) fn next_from(&self, byte: u16) -> Option<(u8, Link)> {
        let held = &self.bytes[..usize::from(self.count)];
        let place = held.partition_point(|held| u16::from(*held) < byte);
        Some((*held.get(place)?, self.links[place]))
    }

    pub(super) fn replace(&mut self, symbol: Symbol, child: Link) {
        match byte_of(symbol) {
            None => self.end = child,
            Some(byte) => {
                if let Some(place) = self.place(byte) {
                    self.links[place] = child;
                }
            }
        }
    }

    /// Adds a child; whether there was room.
    pub(super) fn add(&mut self, symbol: Symbol, child: Link) -> bool {
        let Some(byte) = byte_of(symbol) else {
            self.end = child;
            return true;
        };
        let count = usize::from(self.count);
        if count == N {
            return false;
        }
        let place = self.bytes[..count].partition_point(|held| *held < byte);
        self.bytes.copy_within(place..count, place + 1);
        self.links.copy_within(place..count, place + 1);
        self.bytes[place] = byte;
        self.links[place] = child;
        self.count += 1;
        true
    }

    pub(super) fn remove(&mut self, symbol: Symbol) {
        let Some(byte) = byte_of(symbol) else {
            self.end = Link::NONE;
            return;
        };
        if let Some(place) = self.place(byte) {
            let count = usize::from(self.count);
            self.bytes.copy_within(place + 1..count, place);
            self.links.copy_within(place + 1..count, place);
            self.count -= 1;
        }
    }
}

impl FortyEight {
    pub(super) const fn new(depth: u16) -> Self {
        Self {
            depth,
            count: 0,
            places: [0; 256],
            end: Link::NONE,
            links: [Link::NONE; 48],
        }
    }

    pub(super) const fn depth(&self) -> u16 {
        self.depth
    }

    pub(super) fn count(&self) -> u16 {
        u16::from(self.count)
    }

    pub(super) const fn end(&self) -> Link {
        self.end
    }

    pub(super) fn find(&self, byte: u8) -> Link {
        usize::from(self.places[usize::from(byte)])
            .checked_sub(1)
            .and_then(|place| self.links.get(place))
            .map_or(Link::NONE, |link| *link)
    }

    pub(super) fn next_from(&self, byte: u16) -> Option<(u8, Link)> {
        let first = u8::try_from(byte).ok()?;
        (first..=u8::MAX)
            .map(|byte| (byte, self.find(byte)))
            .find(|(_, child)| *child != Link::NONE)
    }

    pub(super) fn replace(&mut self, symbol: Symbol, child: Link) {
        let Some(byte) = byte_of(symbol) else {
            self.end = child;
            return;
        };
        if let Some(place) = usize::from(self.places[usize::from(byte)]).checked_sub(1) {
            self.links[place] = child;
        }
    }

    /// Adds a child; whether there was room.
    pub(super) fn add(&mut self, symbol: Symbol, child: Link) -> bool {
        let Some(byte) = byte_of(symbol) else {
            self.end = child;
            return true;
        };
        let Some(place) = self.links.iter().position(|link| *link == Link::NONE) else {
            return false;
        };
        self.links[place] = child;
        self.count += 1;
        self.places[usize::from(byte)] = u8::try_from(place + 1).unwrap_or(0);
        true
    }

    pub(super) fn remove(&mut self, symbol: Symbol) {
        let Some(byte) = byte_of(symbol) else {
            self.end = Link::NONE;
            return;
        };
        let place = std::mem::take(&mut self.places[usize::from(byte)]);
        if let Some(place) = usize::from(place).checked_sub(1) {
            self.links[place] = Link::NONE;
            self.count -= 1;
        }
    }
}

impl Full {
    pub(super) const fn new(depth: u16) -> Self {
        Self {
            depth,
            count: 0,
            end: Link::NONE,
            links: [Link::NONE; 256],
        }
    }

    pub(super) const fn depth(&self) -> u16 {
        self.depth
    }

    pub(super) const fn count(&self) -> u16 {
        self.count
    }

    pub(super) const fn end(&self) -> Link {
        self.end
    }

    pub(super) const fn find(&self, byte: u8) -> Link {
        self.links[byte as usize]
    }

    pub(super) fn next_from(&self, byte: u16) -> Option<(u8, Link)> {
        let first = u8::try_from(byte).ok()?;
        (first..=u8::MAX)
            .map(|byte| (byte, self.find(byte)))
            .find(|(_, child)| *child != Link::NONE)
    }

    pub(super) fn replace(&mut self, symbol: Symbol, child: Link) {
        match byte_of(symbol) {
            None => self.end = child,
            Some(byte) => self.links[usize::from(byte)] = child,
        }
    }

    /// Adds a child; there is always room.
    pub(super) fn add(&mut self, symbol: Symbol, child: Link) -> bool {
        if byte_of(symbol).is_some_and(|byte| self.find(byte) == Link::NONE) {
            self.count += 1;
        }
        self.replace(symbol, child);
        true
    }

    pub(super) fn remove(&mut self, symbol: Symbol) {
        if byte_of(symbol).is_some_and(|byte| self.find(byte) != Link::NONE) {
            self.count -= 1;
        }
        self.replace(symbol, Link::NONE);
    }
}
