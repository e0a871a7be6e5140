//! The task that owns the connection to a master.

use std::sync::Arc;
use std::time::Duration;

use larder_types::Incarnation;
use larder_wire::decoder::FrameDecoder;
use larder_wire::hello::{Hello, Purpose, Welcome};
use larder_wire::limit::{MAX_NAME_BYTES, PROTOCOL_MAX, PROTOCOL_MIN};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::greet::{NoSession, Resolve, connect};
use super::served::{End, Served};
use super::{Call, CallFailure, Link, Session};
use crate::options::{ClientOptions, Credential};
use crate::session::pause;

/// After a connection that lived so long, the next attempt counts as the first.
const STEADY: Duration = Duration::from_secs(1);

/// Owns the socket and the calls that wait.
#[derive(Debug)]
pub(super) struct Actor {
    resolver: Arc<dyn Resolve>,
    masters: Vec<String>,
    credential: Credential,
    name: String,
    incarnation: Incarnation,
    calls: mpsc::Receiver<Call>,
    /// The other end of the same queue, for what abandoned replies leave to do.
    own_calls: mpsc::WeakSender<Call>,
    link: watch::Sender<Link>,
    token: watch::Sender<Vec<u8>>,
    next_master: usize,
}

impl Actor {
    pub(super) fn new(
        (options, resolver): (&ClientOptions, Arc<dyn Resolve>),
        incarnation: Incarnation,
        (calls, own_calls): (mpsc::Receiver<Call>, mpsc::WeakSender<Call>),
        link: watch::Sender<Link>,
        token: watch::Sender<Vec<u8>>,
    ) -> Self {
        Self {
            resolver,
            masters: options.masters.clone(),
            credential: options.token.clone(),
            name: shortened(&options.name),
            incarnation,
            calls,
            own_calls,
            link,
            token,
            next_master: 0,
        }
    }

    /// Connects, serves and connects again, until nobody calls any more.
    pub(super) async fn run(mut self) {
        let mut attempt = 0;
        let mut failed_in_a_row = 0;
        loop {
            let master = self.masters[self.next_master % self.masters.len()].clone();
            let hello = self.hello().await;
            let connected = tokio::select! {
                biased;
                () = closed(&self.link) => return,
                connected = connect(&*self.resolver, &master, &hello) => connected,
            };
            match connected {
                Ok((stream, decoder, welcome)) => {
                    let born = Instant::now();
                    failed_in_a_row = 0;
                    tracing::debug!(%master, session = %welcome.session, "connected");
                    match self.serve(stream, decoder, welcome).await {
                        End::Closed => return,
                        End::Renew => continue,
                        End::Broken(detail) => {
                            tracing::debug!(%master, %detail, "the connection broke");
                            self.next_master += 1;
                            self.link.send_replace(Link::Down { detail });
                            if born.elapsed() >= STEADY {
                                attempt = 0;
                            }
                        }
                    }
                }
                Err(NoSession::Unreachable(detail)) => {
                    self.next_master += 1;
                    failed_in_a_row += 1;
                    // Another master may answer: say so only when none did.
                    if failed_in_a_row >= self.masters.len() {
                        let detail = format!("{master}: {detail}");
                        self.link.send_replace(Link::Down { detail });
                    }
                }
                Err(NoSession::Silent) => {
                    // No verdict: whoever waits has a deadline.
                    self.next_master += 1;
                    tracing::debug!(%master, "it does not answer the hello");
                }
                Err(NoSession::Rejected(refused)) => {
                    self.next_master += 1;
                    self.link.send_replace(Link::Rejected {
                        listener: master,
                        refused,
                    });
                    self.refuse_waiting();
                }
            }
            attempt += 1;
            tokio::select! {
                () = closed(&self.link) => return,
                () = tokio::time::sleep(pause(attempt, rand::random())) => {}
            }
        }
    }

    async fn hello(&mut self) -> Hello {
        Hello {
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            features: 0,
            credential: self.credential.renewed().await.to_vec(),
            purpose: Purpose::Client,
            name: self.name.clone(),
            incarnation: self.incarnation,
        }
    }

    /// Drops the calls in the queue: their callers see why in the link.
    fn refuse_waiting(&mut self) {
        while let Ok(call) = self.calls.try_recv() {
            // A caller that is gone does not mind.
            let _ = call.reply.send(Err(CallFailure::NotSent));
        }
    }

    async fn serve(&mut self, stream: TcpStream, decoder: FrameDecoder, welcome: Welcome) -> End {
        let renew_ms = welcome.session_token_ms.saturating_mul(4) / 5;
        let renew_at = Instant::now() + Duration::from_millis(renew_ms.max(1_000));
        let served = Served::new(stream, decoder, welcome.session, self.own_calls.clone());
        self.token.send_replace(welcome.session_token);
        let session = Session {
            principal: welcome.principal,
        };
        self.link.send_replace(Link::Up(Arc::new(session)));
        served.run(&mut self.calls, renew_at).await
    }
}

/// Resolves when the last [`super::Master`] is gone: each holds a receiver of the link.
async fn closed(link: &watch::Sender<Link>) {
    link.closed().await;
}

/// A name as long as a hello may carry.
fn shortened(name: &str) -> String {
    let mut end = name.len().min(MAX_NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}
