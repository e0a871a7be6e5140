//! Copies that the master ordered: read from another agent, or from here, and written here.
//!
//! An order takes its place in the slab at once, on the data thread and in the order in which
//! commands came, so that an erasure that comes behind it waits for it. The bytes follow in tasks
//! of their own, a few at a time and in pieces, so that readers and writers get their turn.
//! Whatever happens, each order is answered.

mod parts;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use larder_telemetry::{Metric, Registry, error_chain};
use larder_transfer::transport::{ReadOp, SessionSource, TcpOptions, TcpTransport, Transport};
use larder_transfer::{Segments, SegmentsHandle, WriteStart, WriteTicket};
use larder_types::layout::blocks;
use larder_types::{AgentId, AgentName, CopyId, Digest, Extent, Incarnation, TenantId};
use larder_wire::agent::{CopyOrder, Event as Outcome};
use larder_wire::{SignedCapability, checksum};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;

use self::parts::{make_up, part_at};
use crate::data::now;

/// The most orders that have a place. A master has fewer open with one agent; what comes on top
/// is answered as failed.
const ORDERS_MAX: usize = 1_024;
/// How many copies move bytes at once.
const RUNNING_MAX: usize = 4;
/// How much is moved in one turn, in bytes: about 0.3 ms of copying and checksums. A multiple of
/// the block size.
const PIECE_BYTES: u64 = 1024 * 1024;
/// Connections to one agent for one tenant.
const LANES_MAX: usize = RUNNING_MAX;
/// Agents and tenants whose connections are kept; beyond it all are made anew.
const SOURCES_MAX: usize = 256;
/// The longest reason that is sent to a master, in bytes.
const DETAIL_BYTES_MAX: usize = 512;

/// Who copies.
#[derive(Clone, Debug)]
pub(crate) struct Myself {
    pub(crate) name: AgentName,
    pub(crate) incarnation: Incarnation,
}

/// Takes orders and makes copies. Lives on the data thread.
pub(crate) struct Copier {
    shared: Rc<Shared>,
    permits: Rc<Semaphore>,
}

struct Shared {
    segments: SegmentsHandle,
    myself: Myself,
    events: Rc<Notify>,
    registry: Registry,
    /// Touched for a moment at a time, never over an await.
    books: RefCell<Books>,
}

#[derive(Default)]
struct Books {
    open: BTreeSet<CopyId>,
    outcomes: Vec<Outcome>,
    sources: BTreeMap<(AgentId, TenantId), Source>,
}

/// Connections to one agent in the name of one tenant.
struct Source {
    incarnation: Incarnation,
    addr: String,
    tokens: watch::Sender<Vec<u8>>,
    transport: Arc<TcpTransport>,
}

/// Why a copy ended without bytes, for the master's people.
#[derive(Debug)]
struct Failed(String);

/// A place in a slab that a copy has taken. Given back when it is dropped.
struct Place {
    segments: SegmentsHandle,
    events: Rc<Notify>,
    ticket: Option<WriteTicket>,
    extent: Extent,
    /// The block checksums, if it was written before.
    written: Option<Vec<u32>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.segments.with(|all| all.abort_write(ticket));
            self.events.notify_one();
        }
    }
}

impl Copier {
    pub(crate) fn new(
        segments: SegmentsHandle,
        myself: Myself,
        events: Rc<Notify>,
        registry: &Registry,
    ) -> Self {
        let shared = Shared {
            segments,
            myself,
            events,
            registry: registry.clone(),
            books: RefCell::default(),
        };
        Self {
            shared: Rc::new(shared),
            permits: Rc::new(Semaphore::new(RUNNING_MAX)),
        }
    }

    /// Takes an order. One that is open already is answered once.
    pub(crate) fn begin(&self, order: CopyOrder) {
        let copy = order.copy;
        let open = {
            let mut books = self.shared.books.borrow_mut();
            if books.open.contains(&copy) {
                return;
            }
            let fits = books.open.len() < ORDERS_MAX;
            if fits {
                books.open.insert(copy);
            }
            fits.then_some(books.open.len())
        };
        let Some(open) = open else {
            let detail = format!("{ORDERS_MAX} copies wait already");
            return self.shared.answer(copy, 0, Err(Failed(detail)));
        };
        self.shared
            .registry
            .set(Metric::AgentCopies, &[], open as u64);
        let places = match self.shared.take_places(&order) {
            Ok(places) => places,
            Err(failed) => return self.shared.answer(copy, 0, Err(failed)),
        };
        let (shared, permits) = (Rc::clone(&self.shared), Rc::clone(&self.permits));
        tokio::task::spawn_local(async move {
            let size_bytes = order.size_bytes;
            let limit = Duration::from_millis(order.remaining_ms);
            let result = tokio::time::timeout(limit, async {
                // Never closed.
                let _permit = permits.acquire().await;
                shared.copy(&order, places).await
            });
            let late = Failed("the copy took too long".to_owned());
            let result = result.await.unwrap_or(Err(late));
            shared.answer(copy, size_bytes, result);
        });
    }

    /// What came of orders since the last call.
    pub(crate) fn take_outcomes(&self) -> Vec<Outcome> {
        std::mem::take(&mut self.shared.books.borrow_mut().outcomes)
    }
}

impl Shared {
    fn answer(&self, copy: CopyId, size_bytes: u64, result: Result<Digest, Failed>) {
        let outcome = match result {
            Ok(digest) => {
                self.registry.inc(Metric::AgentCopiesTotal, &["done"], 1);
                self.registry
                    .inc(Metric::AgentCopiedBytesTotal, &[], size_bytes);
                Outcome::Copied { copy, digest }
            }
            Err(Failed(mut detail)) => {
                self.registry.inc(Metric::AgentCopiesTotal, &["failed"], 1);
                tracing::debug!(%copy, "no copy: {detail}");
                let end = (0..=DETAIL_BYTES_MAX.min(detail.len())).rev();
                let end = end.into_iter().find(|end| detail.is_char_boundary(*end));
                detail.truncate(end.unwrap_or(0));
                Outcome::CopyFailed { copy, detail }
            }
        };
        let mut books = self.books.borrow_mut();
        books.open.remove(&copy);
        books.outcomes.push(outcome);
        self.registry
            .set(Metric::AgentCopies, &[], books.open.len() as u64);
        self.events.notify_one();
    }

    /// Takes the place of each extent, or of none.
    fn take_places(&self, order: &CopyOrder) -> Result<Vec<Place>, Failed> {
        if !make_up(&order.from, order.size_bytes) || !make_up(&order.to, order.size_bytes) {
            return Err(Failed("the order does not fit together".to_owned()));
        }
        let places = order.to.iter().map(|(extent, capability)| {
            let begun = self
                .segments
                .with(|all| all.begin_copy(&order.tenant, capability, now()));
            let (ticket, written) = match begun {
                Ok(WriteStart::Go(ticket)) => (Some(ticket), None),
                Ok(WriteStart::Already(_, crcs)) => (None, Some(crcs)),
                Err(error) => return Err(Failed(format!("no place here: {error}"))),
            };
            Ok(Place {
                segments: self.segments.clone(),
                events: Rc::clone(&self.events),
                ticket,
                extent: *extent,
                written,
            })
        });
        places.collect()
    }

    /// Moves the bytes; the digest of the object as it lies here now.
    async fn copy(&self, order: &CopyOrder, places: Vec<Place>) -> Result<Digest, Failed> {
        let mut crcs = Vec::new();
        let mut start_bytes = 0;
        for place in places {
            let length_bytes = place.extent.length_bytes;
            crcs.extend(self.copy_part(order, start_bytes, place).await?);
            start_bytes += length_bytes;
        }
        let digest = checksum::digest(&crcs, order.size_bytes);
        if digest == order.digest {
            Ok(digest)
        } else {
            Err(Failed("the bytes have another digest".to_owned()))
        }
    }

    /// Moves what belongs into one place, from byte `start_bytes` of the object on.
    async fn copy_part(
        &self,
        order: &CopyOrder,
        start_bytes: u64,
        mut place: Place,
    ) -> Result<Vec<u32>, Failed> {
        if let Some(crcs) = place.written.take() {
            return Ok(crcs);
        }
        let deadline = Instant::now() + Duration::from_millis(order.remaining_ms);
        let mut buffer = BytesMut::new();
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        let mut done = 0;
        while done < place.extent.length_bytes {
            let found = part_at(&order.from, start_bytes + done);
            let (part, offset_bytes) = found.ok_or_else(|| Failed("a gap".to_owned()))?;
            let there_bytes = part.0.length_bytes - offset_bytes;
            let here_bytes = place.extent.length_bytes - done;
            let length_bytes = PIECE_BYTES.min(there_bytes).min(here_bytes);
            buffer.clear();
            let read = self.read(order, part, (offset_bytes, length_bytes), buffer, deadline);
            let (crcs, filled) = read.await?;
            buffer = filled;
            ours.extend(put(&place, done, &buffer)?);
            theirs.extend(crcs);
            done += length_bytes;
            tokio::task::yield_now().await;
        }
        self.finish(&mut place, &theirs, &ours)?;
        Ok(ours)
    }

    /// Reads a piece of an extent, from its agent or from here; its block checksums.
    async fn read(
        &self,
        order: &CopyOrder,
        (from, capability): &(Extent, SignedCapability),
        (offset_bytes, length_bytes): (u64, u64),
        mut buffer: BytesMut,
        deadline: Instant,
    ) -> Result<(Vec<u32>, BytesMut), Failed> {
        let known = order.sources.iter().find(|s| s.agent == from.slab.agent);
        let source = known.ok_or_else(|| Failed("no address of the source".to_owned()))?;
        if source.incarnation == self.myself.incarnation {
            let range = (offset_bytes, length_bytes);
            let crcs = self.read_here(order, capability, range, &mut buffer)?;
            return Ok((crcs, buffer));
        }
        let transport = self.source(order, source);
        let read = transport.read(ReadOp {
            capability: capability.clone(),
            offset_bytes,
            length_bytes,
            buffer,
            deadline,
        });
        let read = read.await;
        let facts = read.result.map_err(|error| {
            let name = &source.name;
            Failed(format!("not read from {name}: {}", error_chain(&error)))
        })?;
        Ok((facts.block_crcs, read.buffer))
    }

    fn finish(&self, place: &mut Place, theirs: &[u32], ours: &[u32]) -> Result<(), Failed> {
        let Some(ticket) = place.ticket.take() else {
            return Ok(());
        };
        let finished = self
            .segments
            .with(|all| all.finish_write(ticket, theirs, ours));
        self.events.notify_one();
        finished
            .map(drop)
            .map_err(|error| Failed(format!("not written: {error}")))
    }

    /// Reads a piece of an extent of this agent; its block checksums, from the record.
    fn read_here(
        &self,
        order: &CopyOrder,
        capability: &SignedCapability,
        (offset_bytes, length_bytes): (u64, u64),
        buffer: &mut BytesMut,
    ) -> Result<Vec<u32>, Failed> {
        let read = |all: &mut Segments| {
            let tenant = &order.tenant;
            let begun = all.begin_read(tenant, capability, offset_bytes, length_bytes, now());
            let ticket = begun.map_err(|error| error.to_string())?;
            let crcs = ticket.block_crcs.clone();
            // At most a piece.
            buffer.resize(usize::try_from(length_bytes).unwrap_or(0), 0);
            let copied = ticket.memory.copy_out(ticket.offset_bytes, buffer);
            all.end_read(ticket);
            copied.map_err(|error| error_chain(&error)).map(|()| crcs)
        };
        let crcs = self.segments.with(read);
        let crcs = crcs.map_err(|error| Failed(format!("not read here: {error}")))?;
        let right =
            blocks(length_bytes) == crcs.len() as u64 && checksum::block_crcs(buffer) == crcs;
        right
            .then_some(crcs)
            .ok_or_else(|| Failed("the bytes here do not match their checksums".to_owned()))
    }

    /// Connections to an agent, with the token that came last.
    fn source(
        &self,
        order: &CopyOrder,
        address: &larder_wire::master::AgentAddress,
    ) -> Arc<TcpTransport> {
        let mut books = self.books.borrow_mut();
        let name = (address.agent, order.tenant.clone());
        let known = books.sources.get(&name).filter(|source| {
            source.incarnation == address.incarnation && source.addr == address.data_addr
        });
        if let Some(source) = known {
            source.tokens.send_replace(order.session_token.clone());
            return Arc::clone(&source.transport);
        }
        let (tokens, token) = watch::channel(order.session_token.clone());
        let myself = &self.myself;
        let session = SessionSource::new(token, myself.name.as_str(), myself.incarnation);
        let options = TcpOptions {
            lanes_max: LANES_MAX,
            incarnation: Some(address.incarnation),
            ..TcpOptions::default()
        };
        let addr = address.data_addr.clone();
        let transport = Arc::new(TcpTransport::new(addr.clone(), options, session));
        if books.sources.len() >= SOURCES_MAX {
            books.sources.clear();
        }
        let source = Source {
            incarnation: address.incarnation,
            addr,
            tokens,
            transport: Arc::clone(&transport),
        };
        books.sources.insert(name, source);
        transport
    }
}

/// Puts a piece into its place; the checksums of the bytes there.
fn put(place: &Place, done: u64, piece: &[u8]) -> Result<Vec<u32>, Failed> {
    let Some(ticket) = &place.ticket else {
        return Err(Failed("its place is gone".to_owned()));
    };
    let at = place.extent.offset_bytes + done;
    ticket
        .memory
        .copy_in(at, piece)
        .and_then(|()| ticket.memory.block_crcs(at, piece.len() as u64))
        .map_err(|error| Failed(error_chain(&error)))
}
