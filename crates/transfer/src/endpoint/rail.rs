//! One rail of a peer: a connection on which slices go out and their answers come in.
//!
//! What is ready together leaves together. A connection that breaks, or on which nothing moves
//! while something is due, fails what is under way on it and is made anew for the next slice.

use std::future::pending;
use std::rc::Rc;
use std::time::Duration;

use larder_wire::engine::{EngineRead, EngineWrite, Refusal};
use larder_wire::frame::{FLAG_ERROR, FLAG_REPLY, NO_DEADLINE};
use larder_wire::{Frame, Header, Kind, Refused};
use slotmap::{Key as _, KeyData};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::control::connect;
use super::flight::Stage;
use super::link::Link;
use super::payload::{self, COLLECT_BYTES, COPY_BYTES, Nowhere, Place, receive};
use super::state::Shared;
use crate::OwnMemory;
use crate::engine::core::{Job, PeerKey, SliceEnd, SliceKey};
use crate::engine::plan::Direction;
use crate::lane::{FrameReader, FrameWriter, LaneError, session_bits};

/// Serves a rail as long as its peer is open.
pub(super) async fn run(
    shared: Rc<Shared>,
    peer: PeerKey,
    rail: usize,
    link: Rc<Link>,
    addr: String,
) {
    let rail = Rail {
        shared,
        peer,
        rail,
        link,
    };
    loop {
        let end = rail.connection(&addr).await;
        rail.fail().await;
        if let Err(error) = end {
            let error = larder_telemetry::error_chain(&error);
            tracing::debug!(addr, rail = rail.rail, error, "a rail broke");
        }
        // The next slice needs one again, not before.
        while !rail.has_live() {
            rail.link.came.notified().await;
        }
    }
}

struct Rail {
    shared: Rc<Shared>,
    peer: PeerKey,
    rail: usize,
    link: Rc<Link>,
}

/// A slice's buffer, as long as it may be touched.
struct OfSlice<'a> {
    shared: &'a Shared,
    key: SliceKey,
}

impl Place for OfSlice<'_> {
    fn reach<R>(&self, step: impl FnOnce(&OwnMemory, u64) -> R) -> Option<R> {
        self.shared.look(|state| {
            let flight = state.flight(self.key)?;
            Some(step(&flight.memory, flight.job.offset_bytes))
        })
    }
}

impl Rail {
    /// Ends what was under way. What may have reached the peer goes another way only when the peer
    /// has said that it does nothing of it any more: late bytes of the first try could overwrite
    /// what somebody has written there since the second.
    async fn fail(&self) {
        let rail = (self.peer, self.rail);
        let fail = |are_sure| {
            self.shared
                .with(|state, now_ns| state.fail(rail, are_sure, now_ns))
        };
        if let Some(session) = self.link.session.take()
            && fail(false)
        {
            let control = self.shared.look(|state| {
                let links = state.peers.get(self.peer)?;
                Some(Rc::clone(&links.control))
            });
            if let Some(control) = control {
                control.cut(&self.shared, self.peer, session).await;
            }
        }
        fail(true);
    }

    fn place(&self, key: SliceKey) -> OfSlice<'_> {
        OfSlice {
            shared: &self.shared,
            key,
        }
    }

    /// Whether a slice in line waits still; those that have ended leave it.
    fn has_live(&self) -> bool {
        self.shared.look(|state| {
            let mut line = self.link.line.borrow_mut();
            line.retain(|key| state.flight(*key).is_some());
            !line.is_empty()
        })
    }

    /// Whether an answer is to something else than what was sent here: another peer has no say in
    /// it, nor has one in what waits yet.
    fn is_foreign(&self, key: SliceKey) -> bool {
        self.shared.look(|state| {
            state.flight(key).is_some_and(|flight| {
                let of = (flight.job.peer, flight.job.rail);
                of != (self.peer, self.rail) || flight.stage == Stage::Waits
            })
        })
    }

    /// One connection, to its end.
    async fn connection(&self, addr: &str) -> Result<(), super::CallError> {
        let lane = connect(&self.shared, addr).await?;
        let of_lane = |source| super::CallError::Lane {
            addr: addr.to_owned(),
            source,
        };
        if !self
            .shared
            .is_same_life(self.peer, lane.welcome().incarnation)
        {
            // What was in line is of another life, and has ended.
            return Ok(());
        }
        let (mut stream, mut reader, mut writer, welcome) = lane.into_parts();
        let session = session_bits(&welcome);
        let (mut from, mut to) = stream.split();
        self.link.renew();
        let known_as = (welcome.incarnation, welcome.session);
        self.link.session.set(Some(known_as));
        let stall = Duration::from_millis(self.shared.options.stall_ms);
        let end = tokio::select! {
            biased;
            // Before anything is sent: it may lead to another life of the peer.
            () = self.link.is_cut() => Ok(()),
            end = self.hear(&mut from, &mut reader, session) => end,
            end = self.speak(&mut to, &mut writer, session) => end,
            () = self.link.stalls(stall) => Err(LaneError::Stalled),
        };
        end.map_err(of_lane)
    }

    /// Sends what stands in line.
    async fn speak(
        &self,
        to: &mut WriteHalf<'_>,
        writer: &mut FrameWriter,
        session: u32,
    ) -> Result<(), LaneError> {
        loop {
            while let Some(key) = self.link.next() {
                let job = self.shared.look(|state| Some(state.flight(key)?.job));
                let Some(job) = job else { continue };
                if is_copied(&job) {
                    self.push(key, &job, writer, session)?;
                } else {
                    self.send(key, &job, to, writer, session).await?;
                }
                if writer.pending_bytes() > COLLECT_BYTES {
                    break;
                }
            }
            if writer.is_empty() {
                self.link.came.notified().await;
            } else {
                let limit = Duration::from_millis(crate::lane::STALL_MS);
                let flushed = timeout(limit, writer.flush(to)).await;
                // That the kernel took it says nothing of the peer.
                flushed.map_err(|_| LaneError::Stalled)??;
            }
        }
    }

    /// A slice that leaves in one piece with others: a read, or a small write.
    fn push(
        &self,
        key: SliceKey,
        job: &Job,
        writer: &mut FrameWriter,
        session: u32,
    ) -> Result<(), LaneError> {
        self.push_header(key, job, writer, session)?;
        if job.direction == Direction::Write {
            let place = self.place(key);
            // At most COPY_BYTES.
            let bytes = usize::try_from(job.bytes).unwrap_or_default();
            writer.push_payload(bytes, |room| {
                let copied = place.reach(|memory, offset| memory.copy_out(offset, room));
                copied.unwrap_or(Ok(())).map_err(std::io::Error::other)
            })?;
        }
        self.shared.with(|state, _| state.advance(key, Stage::Sent));
        Ok(())
    }

    /// A large write: from the buffer to the socket.
    async fn send(
        &self,
        key: SliceKey,
        job: &Job,
        to: &WriteHalf<'_>,
        writer: &mut FrameWriter,
        session: u32,
    ) -> Result<(), LaneError> {
        self.push_header(key, job, writer, session)?;
        self.shared
            .with(|state, _| state.advance(key, Stage::Leaves));
        let place = self.place(key);
        let moved = || self.link.move_on();
        if payload::send(to.as_ref(), writer, job.bytes, &place, moved).await? {
            self.shared.with(|state, _| state.advance(key, Stage::Sent));
            return Ok(());
        }
        // `cut` ends this connection.
        pending().await
    }

    fn push_header(
        &self,
        key: SliceKey,
        job: &Job,
        writer: &mut FrameWriter,
        session: u32,
    ) -> Result<(), LaneError> {
        let mut frame = Frame {
            kind: Kind::EngineWrite,
            class: job.qos.class as u8,
            flags: 0,
            request: key.data().as_ffi(),
            remaining_ms: NO_DEADLINE,
            payload_bytes: 0,
            session,
        };
        let (registration, offset_bytes) = (job.remote.registration, job.remote.offset_bytes);
        match job.direction {
            Direction::Write => {
                frame.payload_bytes = job.bytes;
                let body = EngineWrite {
                    registration,
                    epoch: job.epoch,
                    offset_bytes,
                };
                writer.push(frame, &body)?;
            }
            Direction::Read => {
                frame.kind = Kind::EngineRead;
                let body = EngineRead {
                    registration,
                    epoch: job.epoch,
                    offset_bytes,
                    length_bytes: job.bytes,
                };
                writer.push(frame, &body)?;
            }
        }
        Ok(())
    }

    /// Takes in what is answered.
    async fn hear(
        &self,
        from: &mut ReadHalf<'_>,
        reader: &mut FrameReader,
        session: u32,
    ) -> Result<(), LaneError> {
        loop {
            let header = reader.next(from).await?.ok_or(LaneError::Closed)?;
            self.link.move_on();
            if header.kind == Kind::Goodbye {
                return Err(LaneError::Refused(reader.decode::<Refused>()?));
            }
            if header.session != session {
                return Err(LaneError::Mismatch { what: "session" });
            }
            if !header.has(FLAG_REPLY) {
                return Err(LaneError::Mismatch { what: "request" });
            }
            let key = SliceKey::from(KeyData::from_ffi(header.request));
            if self.is_foreign(key) {
                return Err(LaneError::Mismatch { what: "request" });
            }
            let end = if header.has(FLAG_ERROR) {
                let refusal = reader.decode::<Refusal>()?;
                receive(from.as_ref(), reader, header.payload_bytes, &Nowhere, || ()).await?;
                SliceEnd::Refused(refusal)
            } else {
                self.land(from.as_ref(), reader, &header, key).await?
            };
            self.shared
                .with(|state, now_ns| state.end(key, end, now_ns));
            self.link.answered();
        }
    }

    /// An answer that is no refusal: the payload of a read goes into its buffer.
    async fn land(
        &self,
        from: &TcpStream,
        reader: &mut FrameReader,
        header: &Header,
        key: SliceKey,
    ) -> Result<SliceEnd, LaneError> {
        let job = self.shared.look(|state| Some(state.flight(key)?.job));
        let (kind, bytes) = match job.map(|job| (job.direction, job.bytes)) {
            Some((Direction::Read, bytes)) => (Kind::EngineRead, bytes),
            Some((Direction::Write, _)) => (Kind::EngineWrite, 0),
            // It ended meanwhile, and its answer is nobody's.
            None => (header.kind, header.payload_bytes),
        };
        if kind != header.kind || bytes != header.payload_bytes {
            return Err(LaneError::Mismatch { what: "kind" });
        }
        let place = self.place(key);
        receive(from, reader, bytes, &place, || self.link.move_on()).await?;
        Ok(SliceEnd::Done)
    }
}

fn is_copied(job: &Job) -> bool {
    job.direction == Direction::Read || job.bytes <= COPY_BYTES
}
