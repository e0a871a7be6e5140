//! One connection of the data port: request after request, each step of a payload checked.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::crowd::Place;
use super::{HELLO_TIMEOUT_MS, STALL_MS};
use crate::interop::data::{DataError, DataHeader, Dialect, HEADER_BYTES, Opcode, Status};
use crate::interop::{Access, AddressSpace, Refused};

/// The most that one step moves, in bytes: it stays in the cache between socket and memory, and
/// the thread's other connections get their turn.
const STEP_BYTES: usize = 256 * 1024;
/// How long a refused peer may go on sending before it is cut off, in ms.
const DRAIN_MS: u64 = 5_000;
/// How much of a refused payload one read throws away, in bytes.
const DRAIN_BYTES: usize = 64 * 1024;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("the peer sent no header of this protocol")]
    Header(#[from] DataError),
    #[error("the connection broke")]
    Io(#[from] io::Error),
    #[error("the peer stopped within a request")]
    Stalled,
    #[error("its place was given away")]
    Crowded,
    #[error("the range was refused")]
    Refused(#[from] Refused),
}

/// Serves the connection until it is closed. Being dropped ends it at any point.
pub(super) async fn carry(
    stream: TcpStream,
    place: Rc<Place>,
    space: Rc<dyn AddressSpace>,
    shutdown: watch::Receiver<bool>,
) {
    let mut carrier = Carrier {
        stream,
        space,
        step: Vec::new(),
    };
    if let Err(error) = carrier.run(&place, shutdown).await {
        tracing::debug!(?error, "a stock peer's data connection ended");
    }
}

struct Carrier {
    stream: TcpStream,
    space: Rc<dyn AddressSpace>,
    /// Between socket and memory. Empty while the connection rests.
    step: Vec<u8>,
}

impl Carrier {
    async fn run(
        &mut self,
        place: &Place,
        mut shutdown: watch::Receiver<bool>,
    ) -> Result<(), Ended> {
        let mut is_stranger = true;
        loop {
            let header = tokio::select! {
                biased;
                _ = shutdown.wait_for(|stop| *stop) => return Ok(()),
                header = self.header(is_stranger) => header?,
            };
            let Some(header) = header else {
                return Ok(());
            };
            if !place.begin() {
                return Err(Ended::Crowded);
            }
            match header.opcode {
                Opcode::Write => self.take(&header).await?,
                Opcode::Read => self.give(&header).await?,
            }
            // Thousands of resting connections shall not hold a step each.
            self.step = Vec::new();
            place.rest();
            is_stranger = false;
        }
    }

    /// The next header; `None` if the peer closed the connection before it. Who was served
    /// before may rest in front of it, and others may not.
    async fn header(&mut self, is_stranger: bool) -> Result<Option<DataHeader>, Ended> {
        let limit = Duration::from_millis(HELLO_TIMEOUT_MS);
        let mut give_up = Instant::now() + limit;
        let mut raw = [0; HEADER_BYTES];
        let first = self.stream.read(&mut raw);
        let first = if is_stranger {
            timeout_at(give_up, first)
                .await
                .map_err(|_| Ended::Stalled)??
        } else {
            first.await?
        };
        if first == 0 {
            return Ok(None);
        }
        if !is_stranger {
            give_up = Instant::now() + limit;
        }
        let rest = timeout_at(give_up, self.stream.read_exact(&mut raw[first..])).await;
        rest.map_err(|_| Ended::Stalled)??;
        Ok(Some(DataHeader::decode(&raw)?))
    }

    /// A write: from the socket into memory.
    async fn take(&mut self, header: &DataHeader) -> Result<(), Ended> {
        let grant = match self.space.open(Access::Write, header.range) {
            Ok(grant) => grant,
            Err(refused) => return self.refuse(header.dialect, refused).await,
        };
        let (mut address, mut left) = (header.range.address, header.range.bytes);
        while left > 0 {
            let room = step_bytes(left);
            self.step.resize(room, 0);
            let read = match timeout(stall(), self.stream.read(&mut self.step)).await {
                Ok(read) => read?,
                Err(_) => return Err(Ended::Stalled),
            };
            if read == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            let stored = self.space.store(grant, address, &self.step[..read]);
            if let Err(refused) = stored {
                return self.refuse(header.dialect, refused).await;
            }
            // The buffer holds all of the range, so neither leaves its bounds.
            address = address.saturating_add(read as u64);
            left = left.saturating_sub(read as u64);
        }
        match header.dialect {
            Dialect::V1 => Ok(()),
            Dialect::V2 => self.send(&Status::Done.encode()).await,
        }
    }

    /// A read: from memory to the socket. The status leaves with the first step, so that a
    /// refusal by that step can still be told.
    async fn give(&mut self, header: &DataHeader) -> Result<(), Ended> {
        let grant = match self.space.open(Access::Read, header.range) {
            Ok(grant) => grant,
            Err(refused) => return self.refuse(header.dialect, refused).await,
        };
        let status = Status::Done.encode();
        let mut front = match header.dialect {
            Dialect::V1 => &[][..],
            Dialect::V2 => &status[..],
        };
        let mut step = std::mem::take(&mut self.step);
        let (mut address, mut left) = (header.range.address, header.range.bytes);
        loop {
            let bytes = step_bytes(left);
            step.resize(front.len() + bytes, 0);
            step[..front.len()].copy_from_slice(front);
            let loaded = self.space.load(grant, address, &mut step[front.len()..]);
            match loaded {
                Ok(()) => {}
                Err(refused) if left == header.range.bytes => {
                    return self.refuse(header.dialect, refused).await;
                }
                // The status said that all would come; only the end of the connection can say
                // that it does not.
                Err(refused) => return Err(refused.into()),
            }
            self.send(&step).await?;
            front = &[];
            address = address.saturating_add(bytes as u64);
            left = left.saturating_sub(bytes as u64);
            if left == 0 {
                return Ok(());
            }
        }
    }

    /// Says no, where the dialect can, and ends the connection as stock engines do. What the
    /// peer still sends is thrown away for a while: closing at once would take the status from
    /// it again.
    async fn refuse(&mut self, dialect: Dialect, refused: Refused) -> Result<(), Ended> {
        if dialect == Dialect::V2 {
            self.send(&Status::Rejected.encode()).await?;
            self.stream.shutdown().await?;
            self.step.resize(DRAIN_BYTES, 0);
            let drain = async {
                while self.stream.read(&mut self.step).await? > 0 {}
                io::Result::Ok(())
            };
            let limit = Duration::from_millis(DRAIN_MS);
            // The peer has had its answer, whatever becomes of the rest.
            let _ = timeout(limit, drain).await;
        }
        Err(refused.into())
    }

    /// Sends all of `bytes`; a peer that takes none for too long is given up.
    async fn send(&mut self, mut bytes: &[u8]) -> Result<(), Ended> {
        while !bytes.is_empty() {
            let sent = match timeout(stall(), self.stream.write(bytes)).await {
                Ok(sent) => sent?,
                Err(_) => return Err(Ended::Stalled),
            };
            if sent == 0 {
                return Err(io::Error::from(io::ErrorKind::WriteZero).into());
            }
            bytes = &bytes[sent..];
        }
        Ok(())
    }
}

fn step_bytes(left: u64) -> usize {
    usize::try_from(left).map_or(STEP_BYTES, |left| left.min(STEP_BYTES))
}

const fn stall() -> Duration {
    Duration::from_millis(STALL_MS)
}
