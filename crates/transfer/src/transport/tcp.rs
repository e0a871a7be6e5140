//! The tcp transport: pooled lanes to an agent's data port, acknowledged writes, reads into
//! place.

use std::os::fd::AsFd;
use std::time::Duration;

use larder_types::Incarnation;
use larder_wire::data::{DataError, DataReason};
use tokio::net::TcpStream;
use tokio::time::timeout_at;

use super::pool::{Pool, Pooled, Turn};
use super::{
    BoxFuture, ReadDone, ReadOp, SessionSource, TransferError, Transport, WriteDone, WriteOp,
};
use crate::lane::{Lane, connect_tcp, is_quiet};

mod call;

pub(super) use call::{check_read, read_on, write_on};

/// How a [`TcpTransport`] behaves.
#[derive(Clone, Debug)]
pub struct TcpOptions {
    /// How long connecting may take, in ms; the call's own deadline still holds.
    pub connect_timeout_ms: u64,
    /// The most connections to the agent.
    pub lanes_max: usize,
    /// A connection that nobody used for so long is closed, in ms.
    pub idle_close_ms: u64,
    /// The agent's process, as the master names it. Another process that answers at the address
    /// (a restart, or a stranger on a port that became free) gets no call. `None` leaves the
    /// check to the capabilities.
    pub incarnation: Option<Incarnation>,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self {
            connect_timeout_ms: 2_000,
            lanes_max: 16,
            idle_close_ms: 30_000,
            incarnation: None,
        }
    }
}

/// Reaches one agent by tcp.
#[derive(Debug)]
pub struct TcpTransport {
    addr: String,
    options: TcpOptions,
    session: SessionSource,
    pool: Pool<Lane<TcpStream>>,
}

impl Pooled for Lane<TcpStream> {
    fn is_fresh(&self) -> bool {
        self.is_settled() && is_quiet(self.stream().as_fd())
    }
}

impl TcpTransport {
    /// Makes a transport to `addr` (`host:port`). Connects when it is first used.
    #[must_use]
    pub fn new(addr: String, options: TcpOptions, session: SessionSource) -> Self {
        let idle_close = Duration::from_millis(options.idle_close_ms);
        let pool = Pool::new(options.lanes_max, idle_close);
        Self {
            addr,
            options,
            session,
            pool,
        }
    }

    /// Where it connects to.
    #[must_use]
    pub fn addr(&self) -> &str {
        &self.addr
    }

    /// How many connections wait for their next use.
    #[must_use]
    pub fn idle_lanes(&self) -> usize {
        self.pool.idle()
    }

    async fn lane(&self) -> Result<(Turn<Lane<TcpStream>>, Lane<TcpStream>), TransferError> {
        let (turn, idle) = self.pool.turn().await;
        let lane = match idle {
            Some(lane) => lane,
            None => self.connect().await?,
        };
        Ok((turn, lane))
    }

    async fn connect(&self) -> Result<Lane<TcpStream>, TransferError> {
        let limit = Duration::from_millis(self.options.connect_timeout_ms);
        let stream =
            connect_tcp(&self.addr, limit)
                .await
                .map_err(|source| TransferError::Unreachable {
                    addr: self.addr.clone(),
                    source,
                })?;
        let lane = Lane::open(stream, &self.session.hello()).await;
        let lane = lane.map_err(|error| TransferError::of_connect(&self.addr, error))?;
        refuse_stranger(self.options.incarnation, lane.welcome().incarnation)?;
        Ok(lane)
    }

    async fn write_once(&self, op: &WriteOp) -> Result<larder_wire::Receipt, TransferError> {
        let (turn, mut lane) = self.lane().await?;
        let written = write_on(&mut lane, op).await?;
        turn.put_back(lane);
        Ok(written?)
    }

    async fn read_once(&self, op: &mut ReadOp) -> Result<super::ReadFacts, TransferError> {
        check_read(op)?;
        let (turn, mut lane) = self.lane().await?;
        let read = read_on(&mut lane, op).await?;
        turn.put_back(lane);
        read
    }
}

/// Whether another process than the one that the master named answers.
pub(super) fn refuse_stranger(
    expected: Option<Incarnation>,
    found: Incarnation,
) -> Result<(), DataError> {
    match expected {
        Some(expected) if expected != found => Err(DataError {
            reason: DataReason::StaleIncarnation,
            detail: format!("expected process {expected}, found {found}"),
        }),
        _ => Ok(()),
    }
}

impl Transport for TcpTransport {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn write(&self, op: WriteOp) -> BoxFuture<'_, WriteDone> {
        Box::pin(async move {
            // A lane whose call is cut off is dropped with the future, and its socket closed.
            let result = timeout_at(op.deadline, self.write_once(&op)).await;
            let result = result.unwrap_or(Err(TransferError::DeadlinePassed));
            WriteDone {
                payload: op.payload,
                result,
            }
        })
    }

    fn read(&self, mut op: ReadOp) -> BoxFuture<'_, ReadDone> {
        Box::pin(async move {
            let before = op.buffer.len();
            let result = timeout_at(op.deadline, self.read_once(&mut op)).await;
            let result = result.unwrap_or(Err(TransferError::DeadlinePassed));
            if result.is_err() {
                op.buffer.truncate(before);
            }
            ReadDone {
                buffer: op.buffer,
                result,
            }
        })
    }
}
