//! The other end: peers read and write what is registered here.

use std::future::ready;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use larder_types::{Epoch, PoolTime, SessionId};
use larder_wire::engine::{
    BufferAccess, EngineCut, EngineRead, EngineWrite, Known, MAX_CHANGES, MAX_NOTICE_BYTES,
    MAX_NOTICE_NAME_BYTES, Notice, Refusal,
};
use larder_wire::frame::{FLAG_ERROR, FLAG_REPLY};
use larder_wire::limit::MAX_HELLO_BYTES;
use larder_wire::{Frame, FrameError, Header, Hello, Kind, Purpose, Refused, RefusedReason};
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::payload::{self, COLLECT_BYTES, COPY_BYTES, Nowhere, Place as Payload, receive};
use super::state::Shared;
use crate::OwnMemory;
use crate::lane::{
    Admission, FrameReader, FrameWriter, LaneError, STALL_MS, accept, farewell, session_bits,
    tune_tcp,
};
use crate::serve::Place;

/// How long to wait after a failed accept, in ms: most often the process has no descriptor left.
const ACCEPT_RETRY_MS: u64 = 50;
const WRITE: BufferAccess = BufferAccess {
    read: false,
    write: true,
};
const READ: BufferAccess = BufferAccess {
    read: true,
    write: false,
};

/// Serves peers until the shutdown.
pub(super) async fn serve(
    shared: Rc<Shared>,
    listener: TcpListener,
    mut shutdown: watch::Receiver<bool>,
) {
    // Bounded by `Connections`: the oldest stranger goes, and the known have a limit.
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = shutdown.wait_for(|stop| *stop) => return,
            Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        let tuned = accepted.and_then(|(stream, _)| tune_tcp(&stream).map(|()| stream));
        match tuned {
            Ok(stream) => {
                tasks.spawn_local(peer(Rc::clone(&shared), stream));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection of a peer could not be accepted");
                sleep(Duration::from_millis(ACCEPT_RETRY_MS)).await;
            }
        }
    }
}

async fn peer(shared: Rc<Shared>, mut stream: TcpStream) {
    let place = shared.connections.enter();
    let stop = place.stop();
    let served = async {
        let end = connection(&shared, &mut stream, &place).await;
        if let Err(error) = end {
            farewell(&mut stream, &error).await;
        }
    };
    tokio::select! {
        biased;
        () = stop.notified() => {}
        () = served => {}
    }
}

async fn connection(
    shared: &Shared,
    stream: &mut TcpStream,
    place: &Place,
) -> Result<(), LaneError> {
    let mut reader = FrameReader::new(MAX_HELLO_BYTES);
    let mut writer = FrameWriter::default();
    let admit = |hello: Hello| ready(admit(shared, place, &hello));
    let accepted = accept(stream, &mut reader, &mut writer, admit).await?;
    let (session, life) = (accepted.welcome.session.0, accepted.incarnation);
    shared.with(|state, _| state.sessions.insert(session, life));
    let mut connection = Connection {
        shared,
        stream,
        session: session_bits(&accepted.welcome),
        whole_session: accepted.welcome.session.0,
        reader,
        writer,
    };
    connection.run().await
}

fn admit(shared: &Shared, place: &Place, hello: &Hello) -> Result<Admission, Refused> {
    let refuse = |reason, detail: &str| Err(Refused::new(reason, detail));
    if hello.purpose != Purpose::Engine {
        return refuse(RefusedReason::Role, "engines serve engines only");
    }
    let tenant = shared.options.trust.admit(&hello.credential)?;
    if !place.become_known(tenant.clone()) {
        let detail = "too many connections; close some or try later";
        return refuse(RefusedReason::Busy, detail);
    }
    Ok(Admission {
        session: place.session(),
        principal: larder_types::Principal::Tenant(tenant),
        incarnation: shared.options.incarnation,
        epoch: Epoch::default(),
        pool_time: PoolTime::default(),
        session_token: Vec::new(),
        session_token_ms: 0,
        name: shared.options.name.clone(),
    })
}

struct Connection<'a> {
    shared: &'a Shared,
    stream: &'a mut TcpStream,
    session: u32,
    whole_session: u64,
    reader: FrameReader,
    writer: FrameWriter,
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        let session = self.whole_session;
        self.shared.with(|state, _| state.sessions.remove(&session));
    }
}

/// What a peer reaches, as long as it may.
struct OfPeer<'a> {
    shared: &'a Shared,
    buffer: (u64, u64),
    offset_bytes: u64,
    bytes: u64,
    wants: BufferAccess,
}

impl OfPeer<'_> {
    fn check(&self) -> Result<(), Refusal> {
        self.shared.look(|state| {
            let buffers = &state.core.buffers;
            let allowed = buffers.allows(self.buffer, self.offset_bytes, self.bytes, self.wants);
            allowed.map(drop)
        })
    }
}

impl Payload for OfPeer<'_> {
    fn reach<R>(&self, step: impl FnOnce(&OwnMemory, u64) -> R) -> Option<R> {
        self.shared.look(|state| {
            let buffers = &state.core.buffers;
            let allowed = buffers.allows(self.buffer, self.offset_bytes, self.bytes, self.wants);
            let memory = state.memories.get(allowed.ok()?)?;
            Some(step(memory, self.offset_bytes))
        })
    }
}

impl Connection<'_> {
    async fn run(&mut self) -> Result<(), LaneError> {
        loop {
            if !self.reader.is_ready() || self.writer.pending_bytes() > COLLECT_BYTES {
                self.flush().await?;
            }
            let Some(header) = self.reader.next(self.stream).await? else {
                return Ok(());
            };
            if header.session != self.session {
                return Err(LaneError::Mismatch { what: "session" });
            }
            if header.has(FLAG_REPLY) {
                return Err(LaneError::Mismatch { what: "request" });
            }
            match header.kind {
                Kind::Goodbye => return Ok(()),
                Kind::EngineWrite => self.write(&header).await?,
                Kind::EngineRead => self.read(&header).await?,
                Kind::EngineChanges => self.changes(&header)?,
                Kind::EngineNotice => self.notice(&header)?,
                Kind::EngineCut => self.cut(&header).await?,
                Kind::Ping => self.answer(&header, &())?,
                _ => self.refuse(&header, Refusal::Unsupported)?,
            }
            if !matches!(header.kind, Kind::EngineWrite) && header.payload_bytes > 0 {
                let bytes = header.payload_bytes;
                receive(self.stream, &mut self.reader, bytes, &Nowhere, || ()).await?;
            }
        }
    }

    async fn write(&mut self, header: &Header) -> Result<(), LaneError> {
        let body: EngineWrite = self.reader.decode()?;
        let place = OfPeer {
            shared: self.shared,
            buffer: (body.registration, body.epoch),
            offset_bytes: body.offset_bytes,
            bytes: header.payload_bytes,
            wants: WRITE,
        };
        let bytes = header.payload_bytes;
        // Asked before: without a payload there is no step, and a range of none is refused too.
        let allowed = place.check();
        let is_there = receive(self.stream, &mut self.reader, bytes, &place, || ()).await?;
        match allowed.and_then(|()| if is_there { Ok(()) } else { place.check() }) {
            Ok(()) if is_there => self.answer(header, &()),
            // It is allowed again, but was not in between.
            Ok(()) => self.refuse(header, Refusal::StaleRegistration),
            Err(refusal) => self.refuse(header, refusal),
        }
    }

    async fn read(&mut self, header: &Header) -> Result<(), LaneError> {
        let body: EngineRead = self.reader.decode()?;
        let place = OfPeer {
            shared: self.shared,
            buffer: (body.registration, body.epoch),
            offset_bytes: body.offset_bytes,
            bytes: body.length_bytes,
            wants: READ,
        };
        if let Err(refusal) = place.check() {
            return self.refuse(header, refusal);
        }
        let mut frame = Frame::reply(header, 0);
        frame.payload_bytes = body.length_bytes;
        self.writer.push(frame, &())?;
        if body.length_bytes <= COPY_BYTES {
            // At most COPY_BYTES.
            let bytes = usize::try_from(body.length_bytes).unwrap_or_default();
            self.writer.push_payload(bytes, |room| {
                let copied = place.reach(|memory, offset| memory.copy_out(offset, room));
                let copied = copied.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
                copied.map_err(io::Error::other)
            })?;
            return Ok(());
        }
        let bytes = body.length_bytes;
        let sent = payload::send(self.stream, &mut self.writer, bytes, &place, || ()).await?;
        // What was announced cannot be sent any more; the peer hears why when it asks again.
        sent.then_some(()).ok_or(LaneError::Closed)
    }

    /// Ends another connection, to the last byte.
    async fn cut(&mut self, header: &Header) -> Result<(), LaneError> {
        let EngineCut { session } = self.reader.decode()?;
        if session == self.whole_session {
            return self.refuse(header, Refusal::NotAllowed);
        }
        let is_callers = self.shared.look(|state| {
            let own = state.sessions.get(&self.whole_session);
            own.is_some() && own == state.sessions.get(&session)
        });
        // It ends when its task has its next turn.
        while is_callers && self.shared.connections.close_session(SessionId(session)) {
            tokio::task::yield_now().await;
        }
        self.answer(header, &())
    }

    fn changes(&mut self, header: &Header) -> Result<(), LaneError> {
        let known: Known = self.reader.decode()?;
        let mut count_max = MAX_CHANGES;
        loop {
            let changes = self
                .shared
                .look(|state| state.core.buffers.changes(known, count_max));
            match self.answer(header, &changes) {
                // Buffers of many regions: fewer of them fit.
                Err(LaneError::Frame(FrameError::Oversize { .. })) if count_max > 1 => {
                    count_max /= 2;
                }
                done => return done,
            }
        }
    }

    fn notice(&mut self, header: &Header) -> Result<(), LaneError> {
        let notice: Notice = self.reader.decode()?;
        if notice.name.len() > MAX_NOTICE_NAME_BYTES || notice.message.len() > MAX_NOTICE_BYTES {
            return self.refuse(header, Refusal::TooLong);
        }
        match self.shared.take_notice(notice) {
            true => self.answer(header, &()),
            false => self.refuse(header, Refusal::Busy),
        }
    }

    fn answer<B: Serialize>(&mut self, header: &Header, body: &B) -> Result<(), LaneError> {
        Ok(self.writer.push(Frame::reply(header, 0), body)?)
    }

    fn refuse(&mut self, header: &Header, refusal: Refusal) -> Result<(), LaneError> {
        Ok(self
            .writer
            .push(Frame::reply(header, FLAG_ERROR), &refusal)?)
    }

    /// Writes what was pushed; a peer that does not read is given up.
    async fn flush(&mut self) -> Result<(), LaneError> {
        let limit = Duration::from_millis(STALL_MS);
        let flushed = timeout(limit, self.writer.flush(self.stream)).await;
        Ok(flushed.map_err(|_| LaneError::Stalled)??)
    }
}
