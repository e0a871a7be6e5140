//! A client's way to the master that leads.

use std::time::Duration;

use larder_transfer::lane::session_bits;
use larder_types::{Incarnation, Reason};
use larder_wire::frame::{FLAG_ERROR, FLAG_REPLY, NO_DEADLINE};
use larder_wire::limit::{PROTOCOL_MAX, PROTOCOL_MIN};
use larder_wire::{
    CallError, CallResult, Frame, FrameDecoder, FrameError, Hello, Kind, Purpose, Refused, Reply,
    decode_body, encode_frame,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout_at};

use super::{ClientSettings, PAUSE};
use crate::world::line::{Line, LineBody, LineName};
use crate::world::packet::Packet;
use crate::world::stage::Context;

/// How long a master may be silent before another one is asked.
const SILENT: Duration = Duration::from_millis(150);

/// The call may have been done, or not.
pub(super) struct NoAnswer;

struct Open {
    line: Line,
    decoder: FrameDecoder,
    session: u32,
    requests: u64,
}

/// The line to a master, opened when it is needed.
pub(super) struct MasterEnd {
    incarnation: Incarnation,
    /// Numbers of lines start anywhere, so that none of a former life is met.
    next_line: u64,
    /// The place of the master to try next.
    place: usize,
    open: Option<Open>,
}

impl MasterEnd {
    pub(super) const fn new(incarnation: Incarnation, first_line: u64) -> Self {
        Self {
            incarnation,
            next_line: first_line >> 1,
            place: 0,
            open: None,
        }
    }

    /// Asks the master that leads.
    pub(super) async fn call<T: DeserializeOwned>(
        &mut self,
        context: &mut Context<Packet>,
        settings: &ClientSettings,
        kind: Kind,
        body: &impl Serialize,
        until: Instant,
    ) -> Result<CallResult<T>, NoAnswer> {
        while self.open.is_none() {
            if Instant::now() >= until {
                // Nothing was sent.
                return Ok(Err(CallError::new(Reason::DeadlinePassed)));
            }
            self.connect(context, settings, until).await;
        }
        let answer = self.ask(context, kind, body, until).await;
        if answer.is_err() {
            self.hang_up(context);
            self.place += 1;
        }
        answer.map_err(|_| NoAnswer)
    }

    fn hang_up(&mut self, context: &Context<Packet>) {
        if let Some(mut open) = self.open.take() {
            let packet = open.line.packet(LineBody::Close);
            context.send(open.line.peer, Packet::Line(packet));
        }
    }

    async fn connect(
        &mut self,
        context: &mut Context<Packet>,
        settings: &ClientSettings,
        until: Instant,
    ) {
        let Some((_, peer)) = settings
            .masters
            .get(self.place % settings.masters.len().max(1))
        else {
            return sleep(PAUSE).await;
        };
        self.next_line += 1;
        let name = LineName {
            opener: context.node,
            number: self.next_line,
        };
        let mut decoder = FrameDecoder::before_hello();
        decoder.accept(0);
        let mut open = Open {
            line: Line::new(name, *peer),
            decoder,
            session: 0,
            requests: 0,
        };
        let hello = Hello {
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            features: 0,
            credential: settings.credential.clone(),
            purpose: Purpose::Client,
            name: format!("client-{}", context.node.0),
            incarnation: self.incarnation,
        };
        let packet = open.line.packet(LineBody::Hello(Box::new(hello)));
        context.send(*peer, Packet::Line(packet));
        let until = until.min(Instant::now() + SILENT);
        match open.next(context, until).await {
            Some(LineBody::Welcome(welcome)) => {
                open.session = session_bits(&welcome);
                self.open = Some(open);
            }
            Some(LineBody::Refused(refused)) => {
                self.place = self.hinted(settings, &refused).unwrap_or(self.place + 1);
                sleep(PAUSE).await;
            }
            _ => self.place += 1,
        }
    }

    /// The place of the leader that a refusal names.
    fn hinted(&self, settings: &ClientSettings, refused: &Refused) -> Option<usize> {
        let addr = refused.leader_addr.as_ref()?;
        let place = settings
            .masters
            .iter()
            .position(|(master, _)| master == addr)?;
        // One that names itself, or was just asked, is not asked again at once.
        (place != self.place % settings.masters.len()).then_some(place)
    }

    async fn ask<T: DeserializeOwned>(
        &mut self,
        context: &mut Context<Packet>,
        kind: Kind,
        body: &impl Serialize,
        until: Instant,
    ) -> Result<CallResult<T>, FrameError> {
        let ended = || FrameError::Truncated;
        let open = self.open.as_mut().ok_or_else(ended)?;
        open.requests += 1;
        let request = open.requests;
        let mut bytes = Vec::new();
        let frame = Frame::request(kind, request, open.session, NO_DEADLINE);
        encode_frame(&mut bytes, frame, body)?;
        let packet = open.line.packet(LineBody::Frames(bytes));
        context.send(open.line.peer, Packet::Line(packet));
        let until = until.min(Instant::now() + SILENT);
        loop {
            let Some(LineBody::Frames(bytes)) = open.next(context, until).await else {
                return Err(ended());
            };
            open.decoder.feed(&bytes);
            while let Some((header, body)) = open.decoder.next_frame()? {
                if header.kind == Kind::Goodbye {
                    return Err(ended());
                }
                if !header.has(FLAG_REPLY) || header.request != request {
                    continue;
                }
                if header.has(FLAG_ERROR) {
                    return Ok(Err(decode_body(header.kind, body)?));
                }
                let reply: Reply<T> = decode_body(header.kind, body)?;
                return Ok(Ok(reply.answer));
            }
        }
    }
}

impl Open {
    /// What the master says next; `None` if it says nothing in time or the line is broken.
    async fn next(&mut self, context: &mut Context<Packet>, until: Instant) -> Option<LineBody> {
        loop {
            let arrival = timeout_at(until, context.inbox.recv()).await.ok()??;
            let Packet::Line(packet) = arrival.message else {
                continue;
            };
            if packet.line != self.line.name {
                continue;
            }
            let mut bodies = self.line.take(packet).ok()?.into_iter();
            match bodies.next() {
                None => {}
                // A client has one call open, so what comes with its answer are answers to nothing
                // or the line's end, which the next call finds.
                Some(first) => return Some(first),
            }
        }
    }
}
