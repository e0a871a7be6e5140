//! One connection: hello, then frame after frame until either side ends it.

use std::future::ready;
use std::time::Duration;

use larder_wire::data::{DataError, DataReason};
use larder_wire::frame::{FLAG_ERROR, FLAG_REPLY, NO_DEADLINE};
use larder_wire::limit::{MAX_BODY_BYTES, MAX_HELLO_BYTES};
use larder_wire::{
    Frame, Header, Hello, Kind, Purpose, Refused, RefusedReason, SessionToken, TokenError,
};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::ServeOptions;
use super::connections::Place;
use super::session::{Held, Reached};
use crate::lane::{
    Admission, FrameReader, FrameWriter, LaneError, STALL_MS, Socket, accept, farewell,
    session_bits,
};
use crate::{LocalMs, SegmentsHandle};

/// A connection whose hello was accepted.
pub(super) struct Connection<S> {
    pub(super) stream: S,
    pub(super) reader: FrameReader,
    pub(super) writer: FrameWriter,
    pub(super) options: ServeOptions,
    pub(super) reached: Reached,
    /// For the calls that only the Unix socket offers.
    pub(super) held: Option<Held>,
    session: u32,
}

/// Which listener, and so which calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listener {
    Tcp,
    Unix,
}

impl Listener {
    const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Unix => "unix",
        }
    }
}

/// Serves one connection until it ends. Being dropped ends it at any point.
pub(super) async fn serve<S: Socket>(
    stream: S,
    listener: Listener,
    segments: SegmentsHandle,
    options: ServeOptions,
    mut shutdown: watch::Receiver<bool>,
) {
    let place = options.connections.enter();
    let stop = place.stop();
    let metrics = std::rc::Rc::clone(&options.metrics);
    metrics.connected(listener.name());
    let _ended = Ended(std::rc::Rc::clone(&metrics), listener.name());
    let whole = async {
        let greeted = greet(stream, listener, segments, options, &place).await;
        let mut connection = match greeted {
            Ok(connection) => connection,
            Err((mut stream, error)) => {
                metrics.hello_failed(listener.name(), error.label());
                farewell(&mut stream, &error).await;
                return;
            }
        };
        metrics.greeted(listener.name());
        let end = connection.run(&mut shutdown).await;
        metrics.closed(
            listener.name(),
            end.as_ref().map_or_else(LaneError::label, |()| "closed"),
        );
        if let Err(error) = end {
            // What it held is free before its peer hears that it is over.
            let mut stream = connection.into_stream();
            farewell(&mut stream, &error).await;
        }
    };
    tokio::select! {
        biased;
        () = stop.notified() => match place.is_known() {
            true => metrics.closed(listener.name(), "revoked"),
            false => metrics.hello_failed(listener.name(), "crowded"),
        },
        () = whole => {}
    }
}

/// Says once that a connection is gone, also when its task is cut off.
struct Ended(std::rc::Rc<dyn super::ServeMetrics>, &'static str);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.ended(self.1);
    }
}

async fn greet<S: Socket>(
    mut stream: S,
    listener: Listener,
    segments: SegmentsHandle,
    options: ServeOptions,
    place: &Place,
) -> Result<Connection<S>, (S, LaneError)> {
    let mut reader = FrameReader::new(MAX_HELLO_BYTES);
    let mut writer = FrameWriter::default();
    let admit = |hello| ready(admit(&hello, &segments, &options, place));
    let accepted = match accept(&mut stream, &mut reader, &mut writer, admit).await {
        Ok(accepted) => accepted,
        Err(error) => return Err((stream, error)),
    };
    let Some(tenant) = accepted.welcome.principal.tenant().cloned() else {
        return Err((stream, LaneError::Mismatch { what: "role" }));
    };
    let events = std::rc::Rc::clone(&options.events);
    let reached = Reached {
        segments,
        events,
        tenant,
    };
    let held = (listener == Listener::Unix).then(|| Held::new(reached.clone()));
    let session = session_bits(&accepted.welcome);
    Ok(Connection {
        stream,
        reader,
        writer,
        options,
        reached,
        held,
        session,
    })
}

/// Who the session token proves, and whether there is room for them.
fn admit(
    hello: &Hello,
    segments: &SegmentsHandle,
    options: &ServeOptions,
    place: &Place,
) -> Result<Admission, Refused> {
    let refuse = |reason, detail: &str| Err(Refused::new(reason, detail));
    if hello.purpose != Purpose::Client {
        return refuse(RefusedReason::Role, "agents serve clients only");
    }
    let token = SessionToken::from_bytes(hello.credential.clone());
    let now = (options.clock)();
    let claims = segments.with(|all| all.verify_session(&token, now));
    let claims = match claims {
        Ok(claims) => claims,
        Err(error @ TokenError::Expired) => {
            return refuse(RefusedReason::Expired, &error.to_string());
        }
        Err(error) => return refuse(RefusedReason::Credential, &error.to_string()),
    };
    let Some(tenant) = claims.principal.tenant() else {
        return refuse(RefusedReason::Role, "only tenants reach bytes");
    };
    if !place.become_known(tenant.clone()) {
        return refuse(
            RefusedReason::Busy,
            "too many connections; close some or try later",
        );
    }
    let (epoch, pool_time) = segments.with(|all| (all.highest_epoch(), all.pool_time(now)));
    Ok(Admission {
        session: place.session(),
        principal: claims.principal,
        incarnation: options.incarnation,
        epoch,
        pool_time,
        session_token: Vec::new(),
        session_token_ms: 0,
        name: options.name.to_string(),
    })
}

impl<S: Socket> Connection<S> {
    /// Serves frames until the peer ends it in order, or it breaks.
    async fn run(&mut self, shutdown: &mut watch::Receiver<bool>) -> Result<(), LaneError> {
        loop {
            let next = tokio::select! {
                biased;
                _ = shutdown.wait_for(|stop| *stop) => return Err(stopping()),
                next = self.reader.next(&mut self.stream) => next?,
            };
            let Some(header) = next else { return Ok(()) };
            if header.session != self.session {
                return Err(LaneError::Mismatch { what: "session" });
            }
            if header.has(FLAG_REPLY) {
                return Err(LaneError::Mismatch { what: "request" });
            }
            match header.kind {
                Kind::Goodbye => return Ok(()),
                Kind::Write => self.write(&header).await?,
                Kind::Read => self.read(&header).await?,
                _ => {
                    self.discard(header.payload_bytes).await?;
                    self.small_call(&header).await?;
                }
            }
        }
    }

    /// Calls without payload.
    async fn small_call(&mut self, header: &Header) -> Result<(), LaneError> {
        match header.kind {
            Kind::Ping => self.answer(header, &()).await,
            Kind::RegisterBuffer
            | Kind::UnregisterBuffer
            | Kind::Pull
            | Kind::OpenView
            | Kind::CloseView
                if self.held.is_some() =>
            {
                self.shared_call(header).await
            }
            _ => self.refuse(header, DataReason::Unsupported.into()).await,
        }
    }

    /// Sends an answer without payload, if one is wanted.
    pub(super) async fn answer<B: Serialize>(
        &mut self,
        header: &Header,
        body: &B,
    ) -> Result<(), LaneError> {
        self.reply(header, 0, body).await
    }

    /// Sends a refusal, if an answer is wanted, and counts it.
    pub(super) async fn refuse(
        &mut self,
        header: &Header,
        error: DataError,
    ) -> Result<(), LaneError> {
        self.options.metrics.refused(header.kind, error.reason);
        self.reply(header, FLAG_ERROR, &error).await
    }

    async fn reply<B: Serialize>(
        &mut self,
        header: &Header,
        flags: u8,
        body: &B,
    ) -> Result<(), LaneError> {
        if header.request == 0 {
            return Ok(());
        }
        self.writer.push(Frame::reply(header, flags), body)?;
        self.flush().await
    }

    /// Writes what was pushed; a peer that does not read is given up.
    pub(super) async fn flush(&mut self) -> Result<(), LaneError> {
        let flushed = timeout(stall(), self.writer.flush(&mut self.stream)).await;
        Ok(flushed.map_err(|_| LaneError::Stalled)??)
    }

    /// Now, on the clock of the segments.
    pub(super) fn now(&self) -> LocalMs {
        (self.options.clock)()
    }

    fn into_stream(self) -> S {
        self.stream
    }
}

/// How long a peer may stop within a frame.
pub(super) const fn stall() -> Duration {
    Duration::from_millis(STALL_MS)
}

/// When the caller of a frame gives up, and so do we; `None` = when it makes no progress.
pub(super) fn deadline(header: &Header) -> Option<Instant> {
    let left = Duration::from_millis(u64::from(header.remaining_ms));
    (header.remaining_ms != NO_DEADLINE).then(|| Instant::now() + left)
}

fn stopping() -> LaneError {
    let detail = "the agent is stopping".to_owned();
    LaneError::Refused(Refused::new(RefusedReason::Stopping, detail))
}

const _: () = assert!(MAX_HELLO_BYTES < MAX_BODY_BYTES);
