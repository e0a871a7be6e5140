//! The task that owns the connection to a master.

use std::sync::Arc;
use std::time::Duration;

use larder_types::{Epoch, Incarnation};
use larder_wire::hello::{Hello, Purpose, Refused, RefusedReason};
use larder_wire::limit::{MAX_NAME_BYTES, PROTOCOL_MAX, PROTOCOL_MIN};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::doubt::Doubts;
use super::end::End;
use super::greet::{NoSession, Resolve};
use super::search::{Found, NoLeader, Search, Start, Wanted};
use super::served::Served;
use super::{Call, CallFailure, Link, Session};
use crate::options::{ClientOptions, Credential};
use crate::session::{FAIL_OVER, pause, round_pause};

/// After a connection that lived so long, the next attempt counts as the first.
const STEADY: Duration = Duration::from_secs(1);

/// Owns the socket and the calls that wait.
#[derive(Debug)]
pub(super) struct Actor {
    resolver: Arc<dyn Resolve>,
    masters: Arc<[String]>,
    credential: Credential,
    name: String,
    incarnation: Incarnation,
    calls: mpsc::Receiver<Call>,
    /// The other end of the same queue, for what abandoned replies leave to do.
    own_calls: mpsc::WeakSender<Call>,
    link: watch::Sender<Link>,
    token: watch::Sender<Vec<u8>>,
    /// The highest epoch that a master has named.
    highest: Epoch,
    /// Failures since a connection last lived for long.
    attempt: u32,
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
            masters: options.masters.clone().into(),
            credential: options.token.clone(),
            name: shortened(&options.name),
            incarnation,
            calls,
            own_calls,
            link,
            token,
            highest: Epoch::default(),
            attempt: 0,
        }
    }

    /// Connects, serves and connects again, until nobody calls any more.
    pub(super) async fn run(mut self) {
        let link = self.link.clone();
        let mut start = Start::default();
        let mut found = None;
        loop {
            let now = match found.take() {
                Some(found) => found,
                None => tokio::select! {
                    biased;
                    () = link.closed() => return,
                    found = self.find(start) => found,
                },
            };
            let born = Instant::now();
            let name = now.name;
            start = Start {
                first: name,
                ..Start::default()
            };
            match self.serve(now).await {
                End::Closed => return,
                End::Renew => {}
                End::Moved(next) => {
                    tracing::info!(master = self.masters[next.name], "another master leads now");
                    found = Some(*next);
                }
                End::Broken { detail, leader } => {
                    let master = &self.masters[name];
                    tracing::debug!(%master, %detail, "the connection broke");
                    self.link.send_replace(Link::Down { detail });
                    start.first = name + 1;
                    start.hint = leader;
                    if born.elapsed() >= STEADY {
                        self.attempt = 0;
                    }
                    self.attempt += 1;
                    let pause = pause(self.attempt, rand::random());
                    // The leader that was named is asked at once, unless that led nowhere before.
                    if start.hint.is_none() || self.attempt > 2 {
                        tokio::select! {
                            () = link.closed() => return,
                            () = tokio::time::sleep(pause) => {}
                        }
                    }
                }
            }
        }
    }

    /// Goes round over the masters until one leads.
    async fn find(&mut self, start: Start) -> Found {
        let resolver = Arc::clone(&self.resolver);
        let mut search = Search::new(resolver, Arc::clone(&self.masters), start);
        let began = Instant::now();
        let mut round = 0;
        loop {
            let hello = Arc::new(self.hello().await);
            // A pool that was made anew may have a lower epoch; then nobody has a higher one.
            let least = if began.elapsed() < FAIL_OVER {
                self.highest
            } else {
                Epoch::default()
            };
            match search.round(&hello, Wanted::AtLeast(least)).await {
                Ok(found) => return found,
                Err(none) => {
                    let is_plural = search.is_plural();
                    self.nobody_leads(none, is_plural, began.elapsed());
                }
            }
            round += 1;
            let random = rand::random();
            let pause = if search.is_plural() {
                round_pause(round, began.elapsed(), random)
            } else {
                self.attempt += 1;
                pause(self.attempt, random)
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Tells the callers what a round without a leader means to them.
    fn nobody_leads(&mut self, none: NoLeader, is_plural: bool, since: Duration) {
        let NoLeader { listener, why } = none;
        // A leader that stops hands its office over to one of the others.
        let is_passing_on = |refused: &Refused| match refused.reason {
            RefusedReason::NotLeader => true,
            RefusedReason::Stopping => is_plural,
            _ => false,
        };
        match why {
            NoSession::Unreachable(detail) => {
                let detail = format!("{listener}: {detail}");
                self.link.send_replace(Link::Down { detail });
            }
            // No verdict: whoever waits has a deadline.
            NoSession::Silent => tracing::debug!(listener, "it does not answer the hello"),
            // A leader is being chosen, which takes less than a second.
            NoSession::Rejected(refused) if is_passing_on(&refused) => {
                if since >= FAIL_OVER {
                    let detail = format!("{listener}: no master leads: {}", refused.detail);
                    self.link.send_replace(Link::Down { detail });
                }
            }
            NoSession::Rejected(refused) => {
                self.link.send_replace(Link::Rejected { listener, refused });
                self.refuse_waiting();
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

    async fn serve(&mut self, found: Found) -> End {
        let (resolver, masters) = (Arc::clone(&self.resolver), Arc::clone(&self.masters));
        let doubts = Doubts::new(resolver, masters, &found);
        let (stream, decoder, welcome) = found.greeted;
        tracing::debug!(master = self.masters[found.name], session = %welcome.session, "connected");
        let renew_ms = welcome.session_token_ms.saturating_mul(4) / 5;
        let renew_at = Instant::now() + Duration::from_millis(renew_ms.max(1_000));
        self.highest = self.highest.max(welcome.epoch);
        let own_calls = self.own_calls.clone();
        let served = Served::new(stream, decoder, welcome.session, own_calls, doubts);
        self.token.send_replace(welcome.session_token);
        let session = Session {
            principal: welcome.principal,
        };
        self.link.send_replace(Link::Up(Arc::new(session)));
        served.run(&mut self.calls, renew_at).await
    }
}

/// A name as long as a hello may carry.
fn shortened(name: &str) -> String {
    let mut end = name.len().min(MAX_NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}
