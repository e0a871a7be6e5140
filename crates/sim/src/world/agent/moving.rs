//! Bytes that are on their way into or out of an agent's slabs. That takes time, in which epochs
//! rise, records are erased and slabs are taken.

use larder_transfer::{LocalMs, ReadTicket, Segments, WriteStart, WriteTicket};
use larder_wire::Receipt;
use larder_wire::data::{DataError, DataReason};

use crate::world::network::Node;
use crate::world::packet::{DataAsk, DataTold, Packet};

/// What moves at one time; more is refused.
const MOVING_MAX: usize = 256;

enum Move {
    Write {
        ticket: WriteTicket,
        bytes: Vec<u8>,
        crcs: Vec<u32>,
    },
    Read(ReadTicket),
    /// It was written before.
    Already(Receipt),
}

struct Moved {
    due: LocalMs,
    to: Node,
    number: u64,
    what: Move,
}

/// All of it.
#[derive(Default)]
pub(super) struct Moving {
    moves: Vec<Moved>,
}

fn told(number: u64, outcome: Result<DataTold, DataError>) -> Packet {
    Packet::Told { number, outcome }
}

impl Moving {
    pub(super) fn next_wake(&self) -> Option<LocalMs> {
        self.moves.iter().map(|moved| moved.due).min()
    }

    /// Begins what a client asks; the answer if it is refused.
    pub(super) fn begin(
        &mut self,
        segments: &mut Segments,
        from: Node,
        ask: DataAsk,
        now: LocalMs,
        delay_ms: u64,
    ) -> Option<Packet> {
        let DataAsk {
            number,
            tenant,
            capability,
            length_bytes,
            write,
        } = ask;
        if self.moves.len() >= MOVING_MAX {
            return Some(told(number, Err(DataReason::Internal.into())));
        }
        let begun = match write {
            Some((bytes, crcs)) => {
                segments
                    .begin_write(&tenant, &capability, now)
                    .map(|start| match start {
                        WriteStart::Already(receipt, _) => Move::Already(receipt),
                        WriteStart::Go(ticket) => {
                            // The first half is there at once, for whoever should not see it.
                            let half = bytes.get(..bytes.len() / 2).unwrap_or_default();
                            let _ = ticket.memory.copy_in(ticket.offset_bytes, half);
                            Move::Write {
                                ticket,
                                bytes,
                                crcs,
                            }
                        }
                    })
            }
            None => {
                let read = segments.begin_read(&tenant, &capability, 0, length_bytes, now);
                read.map(Move::Read)
            }
        };
        match begun {
            Ok(what) => {
                let due = LocalMs(now.0 + delay_ms);
                self.moves.push(Moved {
                    due,
                    to: from,
                    number,
                    what,
                });
                None
            }
            Err(error) => Some(told(number, Err(error))),
        }
    }

    /// Ends what is due, and gives the answers.
    pub(super) fn finish(&mut self, segments: &mut Segments, now: LocalMs) -> Vec<(Node, Packet)> {
        let due: Vec<Moved> = self
            .moves
            .extract_if(.., |moved| moved.due <= now)
            .collect();
        let answer = |moved: Moved| {
            let outcome = match moved.what {
                Move::Already(receipt) => Ok(DataTold::Written(receipt)),
                Move::Write {
                    ticket,
                    bytes,
                    crcs,
                } => write(segments, ticket, &bytes, &crcs),
                Move::Read(ticket) => read(segments, ticket),
            };
            (moved.to, told(moved.number, outcome))
        };
        due.into_iter().map(answer).collect()
    }
}

fn write(
    segments: &mut Segments,
    ticket: WriteTicket,
    bytes: &[u8],
    crcs: &[u32],
) -> Result<DataTold, DataError> {
    let (offset_bytes, length_bytes) = (ticket.offset_bytes, ticket.length_bytes);
    let fits = bytes.len() as u64 == length_bytes;
    let copied = fits && ticket.memory.copy_in(offset_bytes, bytes).is_ok();
    let own = ticket.memory.block_crcs(offset_bytes, length_bytes);
    match own {
        Ok(own) if copied => {
            let receipt = segments.finish_write(ticket, crcs, &own)?;
            Ok(DataTold::Written(receipt))
        }
        _ => {
            segments.abort_write(ticket);
            Err(DataReason::OutOfBounds.into())
        }
    }
}

fn read(segments: &mut Segments, ticket: ReadTicket) -> Result<DataTold, DataError> {
    let length = usize::try_from(ticket.length_bytes).unwrap_or(0);
    let (mut bytes, crcs) = (vec![0; length], ticket.block_crcs.clone());
    let copied = ticket.memory.copy_out(ticket.offset_bytes, &mut bytes);
    let unchanged = segments.end_read(ticket);
    if copied.is_ok() && unchanged {
        Ok(DataTold::Bytes(bytes, crcs))
    } else {
        Err(DataReason::StaleVersion.into())
    }
}
