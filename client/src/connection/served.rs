//! One connection to a master with its session: calls out, replies in.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use larder_types::{Reason, SessionId};
use larder_wire::decoder::FrameDecoder;
use larder_wire::frame::{FLAG_ERROR, FLAG_REPLY, Frame, Header, NO_DEADLINE};
use larder_wire::hello::Refused;
use larder_wire::{CallError, FrameError, Kind, decode_body, encode_frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::abandoned::Abandoned;
use super::doubt::{DOUBT, Doubts};
use super::end::End;
use super::{Call, CallFailure, RawReply};

/// Calls that wait for replies. Each is a map entry of about 100 bytes: 1.6 MiB.
const PENDING_MAX: usize = 16_384;
/// No more calls are encoded while so many bytes wait for the socket.
const OUT_HIGH_BYTES: usize = 4 * 1024 * 1024;
/// Calls that share one write.
const WRITE_CALLS: usize = 256;
/// Silence after which the master is asked whether it is there, while calls wait.
const QUIET: Duration = Duration::from_secs(2);
/// Silence after which the connection counts as broken, while calls wait.
const DEAD: Duration = Duration::from_secs(6);

/// A call that was sent.
struct Waiting {
    reply: oneshot::Sender<Result<RawReply, CallFailure>>,
    abandoned: Option<Abandoned>,
    /// The master may hold its answer back until something happens.
    is_patient: bool,
}

/// One connection with its session.
pub(super) struct Served {
    session: SessionId,
    reader: OwnedReadHalf,
    writer: OwnedWriteHalf,
    decoder: FrameDecoder,
    /// Frames for the socket; the first `sent_bytes` of them have left.
    out: Vec<u8>,
    sent_bytes: usize,
    pending: HashMap<u64, Waiting>,
    own_calls: mpsc::WeakSender<Call>,
    next_request: u64,
    heard: Instant,
    pinged: bool,
    /// How many of the pending calls the master may hold back.
    patient: usize,
    /// When a call was last answered, or the first of those that wait was sent.
    answered: Instant,
    /// How long no call may be answered until the other masters are asked.
    doubt: Duration,
    doubts: Doubts,
    batch: Vec<Call>,
}

impl Served {
    /// Starts with nothing sent.
    pub(super) fn new(
        stream: TcpStream,
        decoder: FrameDecoder,
        session: SessionId,
        own_calls: mpsc::WeakSender<Call>,
        doubts: Doubts,
    ) -> Self {
        let (reader, writer) = stream.into_split();
        Self {
            session,
            reader,
            writer,
            decoder,
            out: Vec::with_capacity(64 * 1024),
            sent_bytes: 0,
            pending: HashMap::new(),
            own_calls,
            next_request: 1,
            heard: Instant::now(),
            pinged: false,
            patient: 0,
            answered: Instant::now(),
            doubt: DOUBT,
            doubts,
            batch: Vec::with_capacity(WRITE_CALLS),
        }
    }

    /// Takes calls and replies until it ends; calls without a reply then hear why.
    pub(super) async fn run(mut self, calls: &mut mpsc::Receiver<Call>, renew_at: Instant) -> End {
        let end = self.serve(calls, renew_at).await;
        let detail = match &end {
            End::Closed => "the client was closed",
            End::Renew => "the session was renewed",
            End::Moved(_) => "another master leads",
            End::Broken { detail, .. } => detail,
        };
        for (_, waiting) in self.pending.drain() {
            let lost = CallFailure::Lost {
                detail: detail.to_owned(),
            };
            // A caller that is gone does not mind.
            let _ = waiting.reply.send(Err(lost));
        }
        end
    }

    async fn serve(&mut self, calls: &mut mpsc::Receiver<Call>, renew_at: Instant) -> End {
        let mut renewing = false;
        loop {
            if renewing && self.pending.is_empty() && self.out.is_empty() {
                return End::Renew;
            }
            let may_take = !renewing
                && self.pending.len() < PENDING_MAX
                && self.out.len() - self.sent_bytes < OUT_HIGH_BYTES;
            let check_at = self.heard + if self.pinged { DEAD } else { QUIET };
            let waits = self.pending.len() > self.patient;
            tokio::select! {
                read = self.reader.read(self.decoder.space()) => {
                    if let Err(end) = self.after_read(read) {
                        return end;
                    }
                }
                taken = calls.recv_many(&mut self.batch, WRITE_CALLS), if may_take => {
                    if taken == 0 {
                        return End::Closed;
                    }
                    self.encode_batch();
                    if let Err(error) = self.write_now() {
                        return error.into();
                    }
                }
                written = self.writer.write(&self.out[self.sent_bytes..]),
                    if !self.out.is_empty() =>
                {
                    match written {
                        Ok(0) => return "the master closed the connection".to_owned().into(),
                        Ok(bytes) => self.sent(bytes),
                        Err(error) => return error.into(),
                    }
                }
                found = self.doubts.found() => return End::Moved(Box::new(found)),
                () = tokio::time::sleep_until(self.answered + self.doubt),
                    if waits && self.doubts.may_ask() =>
                {
                    self.begin_doubt();
                }
                () = tokio::time::sleep_until(check_at), if !self.pending.is_empty() => {
                    if let Err(end) = self.after_quiet() {
                        return end;
                    }
                }
                () = tokio::time::sleep_until(renew_at), if !renewing => {
                    renewing = true;
                    self.call_off_waits();
                }
            }
        }
    }

    fn after_read(&mut self, read: io::Result<usize>) -> Result<(), End> {
        match read? {
            0 => {
                self.decoder.finish()?;
                return Err("the master closed the connection".to_owned().into());
            }
            bytes => self.decoder.filled(bytes),
        }
        self.heard = Instant::now();
        self.pinged = false;
        loop {
            let Some((header, body)) = self.decoder.next_frame()? else {
                return Ok(());
            };
            let body = Bytes::copy_from_slice(body);
            self.take_frame(&header, body)?;
        }
    }

    fn take_frame(&mut self, header: &Header, body: Bytes) -> Result<(), End> {
        match header.kind {
            Kind::Goodbye => {
                let refused: Result<Refused, FrameError> = decode_body(header.kind, &body);
                return Err(refused.map_or_else(
                    |_| "the master said goodbye".to_owned().into(),
                    |refused| End::Broken {
                        detail: refused.to_string(),
                        leader: refused.leader_hint().map(str::to_owned),
                    },
                ));
            }
            Kind::Ping if !header.has(FLAG_REPLY) => {
                return self.push_empty(Frame::reply(header, 0));
            }
            _ if header.session != session_bits(self.session) => {
                return Err("the master answered for another session".to_owned().into());
            }
            _ => {}
        }
        // A reply whose caller has stopped waiting is thrown away; a grant in it is given up.
        let Some(waiting) = self.pending.remove(&header.request) else {
            return Ok(());
        };
        self.patient -= usize::from(waiting.is_patient);
        self.answered = self.heard;
        self.doubts.settle();
        let outcome = if header.has(FLAG_ERROR) {
            match decode_body::<CallError>(header.kind, &body) {
                Ok(error) => Err(CallFailure::Refused(error)),
                Err(error) => Err(CallFailure::Frame(error)),
            }
        } else {
            Ok(RawReply {
                session: self.session,
                body,
                abandoned: waiting.abandoned,
            })
        };
        let leads = !matches!(&outcome,
            Err(CallFailure::Refused(error)) if error.reason == Reason::NotLeader);
        let _ = waiting.reply.send(outcome);
        if leads {
            Ok(())
        } else {
            Err("the master does not lead any more".to_owned().into())
        }
    }

    fn encode_batch(&mut self) {
        let now = Instant::now();
        let mut batch = std::mem::take(&mut self.batch);
        for call in batch.drain(..) {
            let left = call.deadline.saturating_duration_since(now);
            // Nobody waits any more: the reply channel of its caller is dropped with it. A last
            // word about a put ([`Abandoned`]) waits for no reply, but must be said.
            let unheard = call.reply.is_closed() && call.request.kind() != Kind::PutRevoke;
            if left.is_zero() || unheard {
                continue;
            }
            let remaining_ms = u32::try_from(left.as_millis())
                .unwrap_or(NO_DEADLINE)
                .max(1);
            let request = self.next_request;
            self.next_request += 1;
            let frame = Frame::request(
                call.request.kind(),
                request,
                session_bits(self.session),
                remaining_ms,
            );
            match call.request.encode(&mut self.out, frame) {
                Ok(()) => {
                    let is_patient = call.request.kind() == Kind::Subscribe;
                    self.note_sent(is_patient, now, left);
                    let abandoned = Abandoned::new(&call.request, &self.own_calls);
                    self.pending.insert(
                        request,
                        Waiting {
                            reply: call.reply,
                            abandoned,
                            is_patient,
                        },
                    );
                }
                Err(error) => {
                    let _ = call.reply.send(Err(CallFailure::Frame(error)));
                }
            }
        }
        self.batch = batch;
    }

    /// A call is about to wait, for at most `left`: the silence that counts begins with the first.
    fn note_sent(&mut self, is_patient: bool, now: Instant, left: Duration) {
        if self.pending.is_empty() {
            self.heard = now;
        }
        if is_patient {
            self.patient += 1;
            return;
        }
        if self.pending.len() == self.patient {
            self.answered = now;
            self.doubt = DOUBT;
        }
        // A call in a hurry leaves time for another master.
        self.doubt = self.doubt.min(left / 4);
    }

    /// Calls that wait for something to happen would hold the renewal up, and all other calls
    /// with it: they are sent again in the new session.
    fn call_off_waits(&mut self) {
        for (_, waiting) in self.pending.extract_if(|_, waiting| waiting.is_patient) {
            // A caller that is gone does not mind.
            let _ = waiting.reply.send(Err(CallFailure::NotSent));
        }
        self.patient = 0;
    }

    /// No call was answered for a while: another master may lead by now.
    fn begin_doubt(&mut self) {
        self.forget_the_gone();
        if self.pending.len() > self.patient {
            self.doubts.ask();
        }
    }

    /// Callers that gave up are forgotten.
    fn forget_the_gone(&mut self) {
        let keep = |waiting: &Waiting| !waiting.reply.is_closed() || waiting.abandoned.is_some();
        self.pending.retain(|_, waiting| keep(waiting));
        self.patient = self.pending.values().filter(|one| one.is_patient).count();
    }

    /// Writes what the socket takes at once: the usual case needs no second wake-up.
    fn write_now(&mut self) -> std::io::Result<()> {
        while !self.out.is_empty() {
            match self.writer.try_write(&self.out[self.sent_bytes..]) {
                Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sent(bytes),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn sent(&mut self, bytes: usize) {
        self.sent_bytes += bytes;
        if self.sent_bytes == self.out.len() {
            self.out.clear();
            self.sent_bytes = 0;
        }
    }

    /// Nothing came for a while although calls wait. Callers that gave up are forgotten; for the
    /// others the master is asked once whether it is there.
    fn after_quiet(&mut self) -> Result<(), End> {
        self.forget_the_gone();
        if self.pinged {
            let detail = format!("the master has been silent for {} s", DEAD.as_secs());
            return Err(detail.into());
        }
        self.pinged = true;
        let (request, session) = (self.next_request, session_bits(self.session));
        self.next_request += 1;
        self.push_empty(Frame::request(Kind::Ping, request, session, NO_DEADLINE))
    }

    fn push_empty(&mut self, frame: Frame) -> Result<(), End> {
        Ok(encode_frame(&mut self.out, frame, &())?)
    }
}

/// The low 32 bits of a session, as every frame carries them.
const fn session_bits(session: SessionId) -> u32 {
    (session.0 & 0xffff_ffff) as u32
}
