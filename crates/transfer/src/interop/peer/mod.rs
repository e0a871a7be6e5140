//! A stock engine that we read from and write to.

mod error;
mod exchange;
mod transfer;

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::data::Dialect;
use super::frame::FrameKind;
use super::{AddressRange, Notify, SegmentDesc};
use crate::lane::is_quiet;
use crate::transport::pool::{Pool, Pooled, Turn};

pub use error::InteropError;

/// How a [`StockPeer`] is reached.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// How long connecting may take, in ms; a call's own deadline still holds.
    pub connect_timeout_ms: u64,
    /// The most connections to its data port.
    pub connections_max: usize,
    /// A connection that nobody used for so long is closed, in ms.
    pub idle_close_ms: u64,
}

impl Default for PeerOptions {
    fn default() -> Self {
        Self {
            connect_timeout_ms: 2_000,
            connections_max: 16,
            idle_close_ms: 30_000,
        }
    }
}

/// A stock engine, its segment as it was described last, and connections to its data port. Used
/// on one thread.
///
/// Peers of before 0.3.12 speak a dialect in which nothing is acknowledged and a refusal is a
/// closed connection. They get a connection for each call; a write to them is taken as done when
/// they close it.
#[derive(Debug)]
pub struct StockPeer {
    addr: String,
    own: SegmentDesc,
    options: PeerOptions,
    known: RefCell<Rc<Known>>,
}

/// What was told last. Calls that are under way keep the one they began with.
#[derive(Debug)]
struct Known {
    segment: SegmentDesc,
    data_addr: Option<String>,
    pool: Rc<Pool<TcpStream>>,
}

impl Pooled for TcpStream {
    fn is_fresh(&self) -> bool {
        is_quiet(self.as_fd())
    }
}

impl StockPeer {
    /// Asks the engine whose handshake port is at `addr` (`host:port`) for its segment. `own` is
    /// what it is told about us; stock engines do not look at it.
    ///
    /// # Errors
    /// [`InteropError`]; among others `NotFound` if it has none, and `Unavailable`.
    pub async fn open(
        addr: String,
        own: SegmentDesc,
        options: PeerOptions,
        deadline: Instant,
    ) -> Result<Self, InteropError> {
        let segment = within(deadline, describe(&addr, &own, &options)).await?;
        let known = Known {
            data_addr: data_addr(&addr, &segment),
            segment,
            pool: new_pool(&options),
        };
        Ok(Self {
            addr,
            own,
            options,
            known: RefCell::new(Rc::new(known)),
        })
    }

    /// The segment as it was described last.
    #[must_use]
    pub fn segment(&self) -> SegmentDesc {
        self.known.borrow().segment.clone()
    }

    /// Asks for the segment again: after its process was replaced, or buffers were registered.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn refresh(&self, deadline: Instant) -> Result<(), InteropError> {
        within(deadline, self.describe_again()).await.map(|_| ())
    }

    /// Writes `payload` to `address` in the peer's memory.
    ///
    /// A range that is in no buffer of the segment makes it ask for the segment again, once.
    ///
    /// # Errors
    /// `NotFound` if no buffer holds the range, `Rejected` if the peer says so, and others of
    /// [`InteropError`].
    pub async fn write(
        &self,
        address: u64,
        payload: &[u8],
        deadline: Instant,
    ) -> Result<(), InteropError> {
        let range = AddressRange {
            address,
            bytes: payload.len() as u64,
        };
        let write = async {
            let known = self.known_with(&range).await?;
            let (turn, mut stream) = self.lane(&known).await?;
            if known.segment.dialect == Dialect::V1 {
                return transfer::write_unacknowledged(stream, range, payload).await;
            }
            transfer::write_acknowledged(&mut stream, range, payload).await?;
            turn.put_back(stream);
            Ok(())
        };
        within(deadline, write).await
    }

    /// Fills `out` from `address` on in the peer's memory. After an error it holds anything.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub async fn read(
        &self,
        address: u64,
        out: &mut [u8],
        deadline: Instant,
    ) -> Result<(), InteropError> {
        let range = AddressRange {
            address,
            bytes: out.len() as u64,
        };
        let read = async {
            let known = self.known_with(&range).await?;
            let dialect = known.segment.dialect;
            let (turn, mut stream) = self.lane(&known).await?;
            transfer::read(&mut stream, dialect, range, out).await?;
            if dialect == Dialect::V2 {
                turn.put_back(stream);
            }
            Ok(())
        };
        within(deadline, read).await
    }

    /// Sends a message, and waits until the peer has it.
    ///
    /// # Errors
    /// [`InteropError`]; after `ConnectionLost` the peer may or may not have it.
    pub async fn notify(&self, notify: &Notify, deadline: Instant) -> Result<(), InteropError> {
        let json = notify.encode()?;
        self.ask(FrameKind::Notify, &json, deadline).await
    }

    /// Whether the peer answers at all.
    ///
    /// # Errors
    /// [`InteropError`].
    pub async fn probe(&self, deadline: Instant) -> Result<(), InteropError> {
        self.ask(FrameKind::Probe, b"{}\n", deadline).await
    }

    async fn ask(
        &self,
        kind: FrameKind,
        json: &[u8],
        deadline: Instant,
    ) -> Result<(), InteropError> {
        let asked = exchange::exchange(&self.addr, &self.options, kind, json);
        within(deadline, asked).await.map(|_| ())
    }

    async fn describe_again(&self) -> Result<Rc<Known>, InteropError> {
        let segment = describe(&self.addr, &self.own, &self.options).await?;
        let data_addr = data_addr(&self.addr, &segment);
        let before = Rc::clone(&self.known.borrow());
        let pool = if before.data_addr == data_addr {
            Rc::clone(&before.pool)
        } else {
            new_pool(&self.options)
        };
        let known = Rc::new(Known {
            segment,
            data_addr,
            pool,
        });
        *self.known.borrow_mut() = Rc::clone(&known);
        Ok(known)
    }

    /// What is known, with a buffer that holds the range.
    async fn known_with(&self, range: &AddressRange) -> Result<Rc<Known>, InteropError> {
        let known = Rc::clone(&self.known.borrow());
        if known.segment.holds(range) {
            return Ok(known);
        }
        let known = self.describe_again().await?;
        if known.segment.holds(range) {
            return Ok(known);
        }
        Err(InteropError::NotFound {
            what: "buffer with this range",
        })
    }

    async fn lane(&self, known: &Known) -> Result<(Turn<TcpStream>, TcpStream), InteropError> {
        let (turn, idle) = known.pool.turn().await;
        let stream = match idle {
            Some(stream) => stream,
            None => self.connect(known).await?,
        };
        Ok((turn, stream))
    }

    async fn connect(&self, known: &Known) -> Result<TcpStream, InteropError> {
        let addr = known.data_addr.as_ref();
        let addr = addr.ok_or(InteropError::NotFound { what: "data port" })?;
        exchange::connect(addr, &self.options).await
    }
}

async fn within<T>(
    deadline: Instant,
    call: impl Future<Output = Result<T, InteropError>>,
) -> Result<T, InteropError> {
    let done = timeout_at(deadline, call).await;
    done.unwrap_or(Err(InteropError::DeadlinePassed))
}

async fn describe(
    addr: &str,
    own: &SegmentDesc,
    options: &PeerOptions,
) -> Result<SegmentDesc, InteropError> {
    let json = own.encode()?;
    let told = exchange::exchange(addr, options, FrameKind::Metadata, &json).await?;
    Ok(SegmentDesc::decode(&told)?)
}

fn new_pool(options: &PeerOptions) -> Rc<Pool<TcpStream>> {
    let idle_close = Duration::from_millis(options.idle_close_ms);
    Rc::new(Pool::new(options.connections_max, idle_close))
}

/// Where the data port is: on the host that the segment names, or else on that of the handshake.
fn data_addr(addr: &str, segment: &SegmentDesc) -> Option<String> {
    let port = segment.data_port?;
    let host = match segment.data_host.as_str() {
        "" => addr.rsplit_once(':').map_or(addr, |(host, _)| host),
        named => named,
    };
    Some(if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_port_is_where_the_segment_says_or_beside_the_handshake() {
        let segment = |host: &str, port| SegmentDesc {
            name: String::new(),
            data_host: host.to_owned(),
            data_port: port,
            dialect: Dialect::V2,
            buffers: Vec::new(),
        };
        for (addr, host, port, expected) in [
            ("a:1", "", Some(2), Some("a:2")),
            ("a:1", "b", Some(2), Some("b:2")),
            ("[::1]:1", "", Some(2), Some("[::1]:2")),
            ("a:1", "::2", Some(2), Some("[::2]:2")),
            ("a:1", "b", None, None),
        ] {
            let found = data_addr(addr, &segment(host, port));
            assert_eq!(found.as_deref(), expected, "{addr} {host}");
        }
    }
}
