//! One connection of a client or an agent: hello, frames in, frames out, a clear end.
//!
//! It reads while fewer than [`IN_FLIGHT_MAX`] of its calls are unanswered and nothing waits to be
//! written: whoever does not take answers is not asked for more calls.

pub(crate) mod hello;
mod masters;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use larder_telemetry::{Metric, Registry};
use larder_types::{Reason, SessionId};
use larder_wire::frame::{FLAG_ERROR, FLAG_REPLY};
use larder_wire::limit::HELLO_TIMEOUT_MS;
use larder_wire::{
    CallError, Frame, FrameDecoder, FrameError, Header, Kind, Purpose, Refused, RefusedReason,
    encode_frame,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use crate::consensus::PeerDesk;
use crate::event::{Called, ConnectionId, Event, Outgoing};
use crate::identity::Identity;
use crate::metrics::LISTENER;
use crate::rpc;
use crate::session::{low_bits, push_frame};

/// The most calls of one connection without an answer. An answer has at most 1 MiB and usually a
/// thousandth of it, so a peer that does not read holds 128 MiB at the very worst, until
/// [`WRITE_TIMEOUT`].
const IN_FLIGHT_MAX: usize = 128;
/// Room for an answer to every call in flight and for pushes beside them.
pub(crate) const OUTBOX_LENGTH: usize = IN_FLIGHT_MAX + 16;
/// How long a peer may leave bytes untaken.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a call waits for room in the leader's queue before it is refused as overload.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long, and for how many bytes, a refused peer is still listened to, so that the reason
/// reaches it before the kernel resets the connection for unread bytes.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 256 * 1024;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) identity: Arc<dyn Identity>,
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) registry: Registry,
    /// What another master of the pool shows.
    pub(crate) master_credential: [u8; 32],
    /// Answers other masters, once this one takes part.
    pub(crate) desk: watch::Receiver<Option<PeerDesk>>,
}

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum End {
    /// The peer closed it between frames, or we were told to.
    Closed,
    /// The peer is told why, in a goodbye.
    Refused(Refused, &'static str),
    /// The peer's hello was answered with a refusal.
    Told(Refused),
    /// There is nobody to tell.
    Lost(std::io::Error),
}

impl From<std::io::Error> for End {
    fn from(error: std::io::Error) -> Self {
        Self::Lost(error)
    }
}

impl From<FrameError> for End {
    fn from(error: FrameError) -> Self {
        let refused = Refused::new(RefusedReason::Frame, error.to_string());
        Self::Refused(refused, error.label())
    }
}

impl From<Refused> for End {
    fn from(refused: Refused) -> Self {
        let label = refused.reason.label();
        Self::Refused(refused, label)
    }
}

/// Who was let in.
enum Greeted {
    /// A client or an agent.
    Peer(Session),
    /// Another master, in this session.
    Master(SessionId),
}

/// What the hello settled.
pub(crate) struct Session {
    pub(crate) connection: ConnectionId,
    pub(crate) purpose: Purpose,
    pub(crate) session: SessionId,
    pub(crate) outbox: mpsc::Receiver<Outgoing>,
}

/// What a frame comes to.
#[expect(
    clippy::large_enum_variant,
    reason = "taken apart at once; a box would cost an allocation for each call"
)]
pub(crate) enum Understood {
    /// Nothing is to be done.
    Nothing,
    /// It is answered at once, with these bytes.
    Answer(Vec<u8>),
    /// The leader is to hear it.
    Call(Called),
}

impl Session {
    /// What a frame of this connection comes to.
    pub(crate) fn understand(&self, header: &Header, body: &[u8]) -> Result<Understood, End> {
        if header.session != low_bits(self.session) {
            let detail = "the frame belongs to another session".to_owned();
            return Err(Refused::new(RefusedReason::Frame, detail).into());
        }
        let mut out = Vec::new();
        match header.kind {
            Kind::Goodbye => return Err(End::Closed),
            // Answers to pings of ours, which we do not send.
            _ if header.has(FLAG_REPLY) => return Ok(Understood::Nothing),
            Kind::Ping => encode_frame(&mut out, Frame::reply(header, 0), &())?,
            _ => match rpc::decode(self.purpose, header, body)? {
                Some(body) => {
                    return Ok(Understood::Call(Called {
                        connection: self.connection,
                        header: *header,
                        body,
                        at: Instant::now(),
                    }));
                }
                None => fail(&mut out, header, Reason::Unsupported)?,
            },
        }
        Ok(match header.request {
            0 => Understood::Nothing,
            _ => Understood::Answer(out),
        })
    }
}

/// Whether the leader answers a call at all.
pub(crate) fn wants_reply(header: &Header) -> bool {
    header.request != 0 && header.kind != Kind::Done
}

/// Serves one connection to its end, a spare one only for another master; the label of the refusal
/// if it was refused.
pub(crate) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    (connection, is_spare): (ConnectionId, bool),
    shared: &Shared,
) -> Option<&'static str> {
    let mut lane = Lane::new(stream);
    let hello = timeout(
        Duration::from_millis(HELLO_TIMEOUT_MS),
        lane.greet(connection, is_spare, shared),
    );
    let (session, end) = match hello.await {
        Ok(Ok(Greeted::Master(session))) => {
            let end = lane.serve_master(session, shared).await;
            (session, end)
        }
        Ok(Ok(Greeted::Peer(mut session))) => {
            let end = lane.serve(&mut session, shared).await;
            (session.session, end)
        }
        Ok(Err(end)) => (SessionId(0), end),
        Err(_) => {
            let detail = format!("no hello within {HELLO_TIMEOUT_MS} ms");
            let refused = Refused::new(RefusedReason::Frame, detail);
            (SessionId(0), End::Refused(refused, "timeout"))
        }
    };
    if lane.is_known {
        // Waits for room: the leader must hear it, and takes events as long as it runs.
        drop(shared.events.send(Event::Closed(connection)).await);
    }
    match end {
        End::Closed => {
            tracing::debug!(%peer, "connection closed");
            None
        }
        End::Lost(error) => {
            tracing::debug!(%peer, %error, "connection lost");
            None
        }
        End::Told(refused) => {
            tracing::debug!(%peer, %refused, "hello refused");
            let label = refused.reason.label();
            shared
                .registry
                .inc(Metric::WireRefusedTotal, &[LISTENER, label], 1);
            lane.linger().await;
            Some(label)
        }
        End::Refused(refused, label) => {
            tracing::debug!(%peer, %refused, label, "connection refused");
            shared
                .registry
                .inc(Metric::WireRefusedTotal, &[LISTENER, label], 1);
            lane.say_goodbye(session, &refused).await;
            Some(label)
        }
    }
}

/// Tells a connection that is not served why.
pub(crate) async fn turn_away(stream: TcpStream, refused: &Refused) {
    let mut lane = Lane::new(stream);
    lane.say_goodbye(SessionId(0), refused).await;
}

struct Lane {
    stream: TcpStream,
    decoder: FrameDecoder,
    /// The leader was asked to let it in, so it has to hear of the end.
    is_known: bool,
}

impl Lane {
    const fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            decoder: FrameDecoder::before_hello(),
            is_known: false,
        }
    }

    async fn serve(&mut self, session: &mut Session, shared: &Shared) -> End {
        let mut in_flight: usize = 0;
        loop {
            // Frames that came together with others are taken before more is read.
            while in_flight < IN_FLIGHT_MAX {
                match self.take_frame(session, shared).await {
                    Ok(Some(replies)) => in_flight += replies,
                    Ok(None) => break,
                    Err(end) => return end,
                }
            }
            tokio::select! {
                outgoing = session.outbox.recv() => {
                    match self.send(outgoing, &mut session.outbox).await {
                        Ok(replies) => in_flight = in_flight.saturating_sub(replies),
                        Err(end) => return end,
                    }
                }
                read = self.stream.read(self.decoder.space()), if in_flight < IN_FLIGHT_MAX => {
                    match read {
                        Ok(0) => return self.decoder.finish().err().map_or(End::Closed, End::from),
                        Ok(bytes) => self.decoder.filled(bytes),
                        Err(error) => return error.into(),
                    }
                }
            }
        }
    }

    /// Takes one frame and passes it on; returns how many replies will come of it, `None` if no
    /// frame is complete.
    async fn take_frame(
        &mut self,
        session: &Session,
        shared: &Shared,
    ) -> Result<Option<usize>, End> {
        let Some((header, body)) = self.decoder.next_frame()? else {
            return Ok(None);
        };
        let called = match session.understand(&header, body)? {
            Understood::Nothing => return Ok(Some(0)),
            Understood::Answer(out) => {
                self.write(&out).await?;
                return Ok(Some(0));
            }
            Understood::Call(called) => called,
        };
        if pass_on(called, &shared.events).await {
            return Ok(Some(usize::from(wants_reply(&header))));
        }
        if header.request != 0 {
            let mut out = Vec::new();
            fail(&mut out, &header, Reason::Overloaded)?;
            self.write(&out).await?;
        }
        Ok(Some(0))
    }

    /// Writes what the leader has for this connection, all that is there at once.
    async fn send(
        &mut self,
        first: Option<Outgoing>,
        outbox: &mut mpsc::Receiver<Outgoing>,
    ) -> Result<usize, End> {
        // The leader dropped the connection without a word: it did not take what it was sent.
        let Some(mut outgoing) = first else {
            return Err(End::Closed);
        };
        while !outgoing.close
            && let Ok(more) = outbox.try_recv()
        {
            outgoing.bytes.extend_from_slice(&more.bytes);
            outgoing.replies += more.replies;
            outgoing.close = more.close;
        }
        self.write(&outgoing.bytes).await?;
        if outgoing.close {
            self.linger().await;
            return Err(End::Closed);
        }
        Ok(outgoing.replies)
    }

    async fn read(&mut self) -> Result<usize, End> {
        let bytes = self.stream.read(self.decoder.space()).await?;
        self.decoder.filled(bytes);
        Ok(bytes)
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), End> {
        match timeout(WRITE_TIMEOUT, self.stream.write_all(bytes)).await {
            Ok(written) => Ok(written?),
            Err(_) => Err(End::Lost(std::io::ErrorKind::TimedOut.into())),
        }
    }

    async fn say_goodbye(&mut self, session: SessionId, refused: &Refused) {
        let mut out = Vec::new();
        push_frame(&mut out, session, Kind::Goodbye, refused);
        if self.write(&out).await.is_ok() {
            self.linger().await;
        }
    }

    /// Closes our direction and takes what is still under way.
    async fn linger(&mut self) {
        if self.stream.shutdown().await.is_err() {
            return;
        }
        let mut thrown_away = [0; 4096];
        let drain = async {
            for _ in 0..LINGER_BYTES / thrown_away.len() {
                if !matches!(self.stream.read(&mut thrown_away).await, Ok(1..)) {
                    break;
                }
            }
        };
        // Whether the peer closed or the time ran out: the connection is dropped.
        drop(timeout(LINGER, drain).await);
    }
}

fn fail(out: &mut Vec<u8>, header: &Header, reason: Reason) -> Result<(), FrameError> {
    encode_frame(
        out,
        Frame::reply(header, FLAG_ERROR),
        &CallError::new(reason),
    )
}

/// Hands a call to the leader. False: its queue is full, and stayed so for a while.
pub(crate) async fn pass_on(called: Called, events: &mpsc::Sender<Event>) -> bool {
    let room = match events.try_reserve() {
        Ok(room) => room,
        Err(_) => match timeout(QUEUE_TIMEOUT, events.reserve()).await {
            Ok(Ok(room)) => room,
            Ok(Err(_)) | Err(_) => return false,
        },
    };
    room.send(Event::Called(called));
    true
}
