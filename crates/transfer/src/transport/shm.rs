//! The shm transport: the local agent's Unix socket.
//!
//! Writes are pulled by the agent from memory of this process, reads are views into slabs that
//! the agent lends for reading only. Small ones go through the socket, which costs one round
//! trip and no mapping.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use larder_types::Incarnation;
use larder_types::layout::{BLOCK_BYTES, blocks};
use larder_wire::data::{DataError, DataReason};
use larder_wire::{Receipt, SignedCapability};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::pool::{Pool, Turn};
use super::tcp::{check_read, read_on, refuse_stranger, write_on};
use super::{
    BoxFuture, ReadDone, ReadFacts, ReadOp, SessionSource, TransferError, Transport, WriteDone,
    WriteOp,
};
use crate::lane::{FdStream, Lane};
use crate::memory::{MemoryError, SharedBuffer};

mod lane;
mod port;
mod views;

use lane::ShmLane;
use views::Views;

pub use views::View;

/// How many lent buffers are looked for in a payload; payloads of further ones are copied first.
const LENT_MAX: usize = 1024;

/// How a [`ShmTransport`] behaves.
#[derive(Clone, Debug)]
pub struct ShmOptions {
    /// How long connecting may take, in ms; the call's own deadline still holds.
    pub connect_timeout_ms: u64,
    /// The most connections to the agent, besides the one of views.
    pub lanes_max: usize,
    /// A connection that nobody used for so long is closed, in ms.
    pub idle_close_ms: u64,
    /// From this length on a payload is pulled from shared memory; shorter ones go through the
    /// socket. In bytes.
    pub pull_from_bytes: u64,
    /// From this length on a read copies from a view; shorter ones go through the socket. In
    /// bytes.
    pub view_from_bytes: u64,
    /// The longest payload that is copied to shared memory first, in bytes; longer ones that do
    /// not lie in a lent buffer go through the socket. Each lane keeps one such copy, so the
    /// bound is `lanes_max` times this.
    pub staging_max_bytes: u64,
    /// The agent's process, as the master names it; `None` = whichever answers first.
    pub incarnation: Option<Incarnation>,
}

impl Default for ShmOptions {
    fn default() -> Self {
        Self {
            connect_timeout_ms: 2_000,
            lanes_max: 8,
            idle_close_ms: 30_000,
            pull_from_bytes: 64 * 1024,
            view_from_bytes: 128 * 1024,
            staging_max_bytes: 64 * 1024 * 1024,
            incarnation: None,
        }
    }
}

/// Reaches the agent of this node by its Unix socket.
#[derive(Debug)]
pub struct ShmTransport {
    target: Target,
    options: ShmOptions,
    pool: Pool<ShmLane>,
    /// One connection for all views, so that a slab is mapped once. Held over an open's round
    /// trip: opens of one process stand in line, which costs less than a task between them.
    views: tokio::sync::Mutex<Option<Views>>,
    /// Buffers that callers lent. Held for a look only, never over an await.
    lent: Mutex<Vec<Weak<SharedBuffer>>>,
}

/// Where to connect, and as whom.
#[derive(Debug)]
struct Target {
    path: PathBuf,
    connect_timeout: Duration,
    session: SessionSource,
    incarnation: Incarnation,
    /// What the agent calls itself.
    name: String,
}

impl ShmTransport {
    /// Connects to the agent that listens at `path`.
    ///
    /// # Errors
    /// [`TransferError::Unreachable`], [`TransferError::HelloRefused`], or
    /// [`DataReason::StaleIncarnation`] if another process than the one named listens there.
    pub async fn connect(
        path: PathBuf,
        options: ShmOptions,
        session: SessionSource,
    ) -> Result<Self, TransferError> {
        let connect_timeout = Duration::from_millis(options.connect_timeout_ms);
        let incarnation = options.incarnation.unwrap_or_default();
        let mut target = Target {
            path,
            connect_timeout,
            session,
            incarnation,
            name: String::new(),
        };
        let lane = target.open(options.incarnation).await?;
        target.incarnation = lane.welcome().incarnation;
        target.name.clone_from(&lane.welcome().name);
        let pool = Pool::new(
            options.lanes_max,
            Duration::from_millis(options.idle_close_ms),
        );
        let views = tokio::sync::Mutex::new(Some(Views::new(lane)));
        Ok(Self {
            target,
            options,
            pool,
            views,
            lent: Mutex::new(Vec::new()),
        })
    }

    /// The socket's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.target.path
    }

    /// The agent's process: says which of the agents that a master names is the local one.
    #[must_use]
    pub const fn incarnation(&self) -> Incarnation {
        self.target.incarnation
    }

    /// What the agent calls itself; empty if it has no name. Proves nothing.
    #[must_use]
    pub fn agent_name(&self) -> &str {
        &self.target.name
    }

    /// Memory that the agent can pull from. Fill it, then [`Self::lend`] it.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn buffer(&self, bytes: u64) -> Result<SharedBuffer, MemoryError> {
        SharedBuffer::create(bytes)
    }

    /// Makes payload of a filled buffer. Any part of it that is written by this transport is
    /// pulled from where it lies.
    #[must_use]
    pub fn lend(&self, buffer: SharedBuffer) -> Bytes {
        let buffer = Arc::new(buffer);
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        lent.retain(|known| known.strong_count() > 0);
        if lent.len() < LENT_MAX {
            lent.push(Arc::downgrade(&buffer));
        }
        Bytes::from_owner(Lent(buffer))
    }

    /// Opens a view: the bytes of the capability's extent, in place. They are not verified; see
    /// [`View::verify`].
    ///
    /// # Errors
    /// [`TransferError`]; [`DataReason::ViewLimit`] says to read instead, or to close others.
    pub async fn open_view(
        &self,
        capability: &SignedCapability,
        deadline: Instant,
    ) -> Result<View, TransferError> {
        let opened = timeout_at(deadline, self.open_view_now(capability, deadline)).await;
        opened.unwrap_or(Err(TransferError::DeadlinePassed))
    }

    async fn open_view_now(
        &self,
        capability: &SignedCapability,
        deadline: Instant,
    ) -> Result<View, TransferError> {
        let mut place = self.views.lock().await;
        if place.as_ref().is_some_and(Views::has_ended) {
            *place = None;
        }
        let views = match &mut *place {
            Some(views) => views,
            empty => {
                let lane = self.target.open(Some(self.target.incarnation)).await?;
                empty.insert(Views::new(lane))
            }
        };
        // If this call is cut off here, the next one takes the late answer.
        let opened = views.open(capability, deadline).await;
        if opened.is_err() {
            // Open views keep the old connection until they are closed.
            *place = None;
        }
        Ok(opened??)
    }

    async fn lane(&self) -> Result<(Turn<ShmLane>, ShmLane), TransferError> {
        let (turn, idle) = self.pool.turn().await;
        let lane = match idle {
            Some(lane) => lane,
            None => ShmLane::new(self.target.open(Some(self.target.incarnation)).await?),
        };
        Ok((turn, lane))
    }

    async fn write_once(&self, op: &WriteOp) -> Result<Receipt, TransferError> {
        let bytes = op.payload.len() as u64;
        let lent = if bytes < self.options.pull_from_bytes {
            None
        } else {
            self.find(&op.payload)
        };
        let stages =
            (self.options.pull_from_bytes..=self.options.staging_max_bytes).contains(&bytes);
        let (turn, mut lane) = self.lane().await?;
        let written = match lent {
            Some((buffer, offset_bytes)) => lane.pull_lent(&buffer, offset_bytes, op).await?,
            None if stages => lane.pull_staged(op).await?,
            None => write_on(lane.inner(), op).await?,
        };
        turn.put_back(lane);
        Ok(written?)
    }

    /// The lent buffer that holds all of `payload`, and where in it.
    fn find(&self, payload: &Bytes) -> Option<(Arc<SharedBuffer>, u64)> {
        let part = payload.as_ptr_range();
        let lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        lent.iter().filter_map(Weak::upgrade).find_map(|buffer| {
            let whole = buffer.as_ptr_range();
            let inside = whole.start <= part.start && part.end <= whole.end;
            inside.then(|| {
                let offset = part.start.addr() - whole.start.addr();
                (buffer, offset as u64)
            })
        })
    }

    async fn read_once(&self, op: &mut ReadOp) -> Result<ReadFacts, TransferError> {
        check_read(op)?;
        if op.length_bytes >= self.options.view_from_bytes {
            match self.open_view_now(&op.capability, op.deadline).await {
                Ok(view) => return copy_from(&view, op),
                // As many bytes in views as the tenant may: copy through the socket.
                Err(TransferError::Refused(DataError {
                    reason: DataReason::ViewLimit | DataReason::Limit,
                    ..
                })) => {}
                Err(error) => return Err(error),
            }
        }
        let (turn, mut lane) = self.lane().await?;
        let read = read_on(lane.inner(), op).await?;
        turn.put_back(lane);
        read
    }
}

/// Keeps a lent buffer as long as any part of its payload is around.
struct Lent(Arc<SharedBuffer>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl Target {
    async fn open(&self, expected: Option<Incarnation>) -> Result<Lane<FdStream>, TransferError> {
        let addr = || self.path.display().to_string();
        let connected = timeout(self.connect_timeout, UnixStream::connect(&self.path)).await;
        let stream = connected
            .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
            .map_err(|source| TransferError::Unreachable {
                addr: addr(),
                source,
            })?;
        let lane = Lane::open(FdStream::new(stream), &self.session.hello()).await;
        let lane = lane.map_err(|error| TransferError::of_connect(&addr(), error))?;
        refuse_stranger(expected, lane.welcome().incarnation)?;
        Ok(lane)
    }
}

/// Appends the asked part of a view. Ranges are cut as for reads over a socket.
fn copy_from(view: &View, op: &mut ReadOp) -> Result<ReadFacts, TransferError> {
    let outside = || TransferError::from(DataError::new(DataReason::OutOfBounds));
    let whole_bytes = view.len() as u64;
    let end = op
        .offset_bytes
        .checked_add(op.length_bytes)
        .ok_or_else(outside)?;
    let aligned = end == whole_bytes || end.is_multiple_of(BLOCK_BYTES);
    if !op.offset_bytes.is_multiple_of(BLOCK_BYTES) || !aligned || end > whole_bytes {
        return Err(outside());
    }
    let place = |bytes: u64| usize::try_from(bytes).map_err(|_| outside());
    let (from, to) = (place(op.offset_bytes)?, place(end)?);
    let first = place(op.offset_bytes / BLOCK_BYTES)?;
    let count = place(blocks(op.length_bytes))?;
    let crcs = view
        .block_crcs()
        .get(first..first + count)
        .ok_or_else(outside)?;
    op.buffer
        .extend_from_slice(view.get(from..to).ok_or_else(outside)?);
    Ok(ReadFacts {
        version: view.version(),
        block_crcs: crcs.to_vec(),
    })
}

impl Transport for ShmTransport {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn write(&self, op: WriteOp) -> BoxFuture<'_, WriteDone> {
        Box::pin(async move {
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
