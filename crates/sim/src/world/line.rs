//! A connection over the network: packets of one line come out in the order in which they went in,
//! each once, or not at all.
//!
//! What is lost is not sent again: a line that lost something is silent from there on, like a
//! connection into a black hole, until one end gives it up.

use std::collections::BTreeMap;

use larder_wire::{Hello, Refused, Welcome};

use super::network::Node;

/// Packets that wait for an earlier one; more break the line.
const EARLY_MAX: usize = 256;

/// Names a line: who opened it, and that process's number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineName {
    /// Who opened it.
    pub opener: Node,
    /// Never given twice by that machine.
    pub number: u64,
}

/// What goes over a line.
#[derive(Clone, Debug)]
pub enum LineBody {
    /// The first thing, from its opener.
    Hello(Box<Hello>),
    /// The other end lets it in.
    Welcome(Box<Welcome>),
    /// The other end does not, or no longer.
    Refused(Refused),
    /// Whole frames.
    Frames(Vec<u8>),
    /// It is over.
    Close,
}

/// One packet of a line.
#[derive(Clone, Debug)]
pub struct LinePacket {
    /// Which line.
    pub line: LineName,
    /// Counts from 0 in each direction.
    pub sequence: u64,
    /// What it carries.
    pub body: LineBody,
}

/// One end of a line.
#[derive(Debug)]
pub struct Line {
    /// Its name.
    pub name: LineName,
    /// The process at the other end.
    pub peer: Node,
    next_out: u64,
    next_in: u64,
    early: BTreeMap<u64, LineBody>,
}

/// Too much of a line came early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a packet of the line is missing for too long; close it")]
pub struct LineBroken;

impl Line {
    /// An end at which nothing was said yet.
    #[must_use]
    pub const fn new(name: LineName, peer: Node) -> Self {
        Self {
            name,
            peer,
            next_out: 0,
            next_in: 0,
            early: BTreeMap::new(),
        }
    }

    /// The packet to send for this.
    pub fn packet(&mut self, body: LineBody) -> LinePacket {
        self.next_out += 1;
        LinePacket {
            line: self.name,
            sequence: self.next_out - 1,
            body,
        }
    }

    /// Takes a packet of this line, and gives what is to be read now, in order.
    ///
    /// # Errors
    /// [`LineBroken`].
    pub fn take(&mut self, packet: LinePacket) -> Result<Vec<LineBody>, LineBroken> {
        if packet.sequence >= self.next_in {
            self.early.insert(packet.sequence, packet.body);
        }
        let mut ready = Vec::new();
        while let Some(body) = self.early.remove(&self.next_in) {
            self.next_in += 1;
            ready.push(body);
        }
        if self.early.len() > EARLY_MAX {
            return Err(LineBroken);
        }
        Ok(ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_out_once_and_in_order() {
        let name = LineName {
            opener: Node(1),
            number: 7,
        };
        let (mut one, mut other) = (Line::new(name, Node(2)), Line::new(name, Node(1)));
        let sent: Vec<LinePacket> = (0..4)
            .map(|n| one.packet(LineBody::Frames(vec![n])))
            .collect();
        let mut heard = Vec::new();
        for place in [1, 0, 1, 0, 3, 2, 2] {
            let ready = other.take(sent[place].clone()).expect("few");
            heard.extend(ready.into_iter().map(|body| match body {
                LineBody::Frames(bytes) => bytes[0],
                body => panic!("{body:?} was not sent"),
            }));
        }
        assert_eq!(heard, [0, 1, 2, 3]);
        let _lost = one.packet(LineBody::Close);
        let broken = (0..=EARLY_MAX).find_map(|_| other.take(one.packet(LineBody::Close)).err());
        assert_eq!(broken, Some(LineBroken));
    }
}
