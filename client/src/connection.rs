//! The one connection to the master that leads: many calls share it, and it comes back, at the
//! next leader, when it breaks or that one leads no more.
//!
//! A task owns the socket and the calls that wait for their replies ([`actor`]); everybody else
//! holds a [`Master`] and sends it calls over a bounded queue.

mod abandoned;
mod actor;
mod doubt;
mod end;
mod greet;
mod request;
mod search;
mod served;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use larder_types::{Incarnation, Principal, SessionId};
use larder_wire::{CallError, FrameError, Refused, Reply, decode_body};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use self::abandoned::Abandoned;
use crate::error::ClientError;
use crate::options::ClientOptions;
use crate::session::{CallFault, Next, after_call};

pub(crate) use request::Request;

/// Calls that wait to be encoded. A call is at most one frame of 1 MiB, so 256 MiB at the very
/// worst; usually a few hundred bytes each.
const QUEUE_CALLS: usize = 256;

/// A session at a master.
#[derive(Debug)]
pub(crate) struct Session {
    /// Who the credential says that we are.
    pub(crate) principal: Principal,
}

/// How the connection is.
#[derive(Clone, Debug)]
pub(crate) enum Link {
    /// Nothing is known yet.
    Connecting,
    /// Calls can be sent.
    Up(Arc<Session>),
    /// No master answers; it is being tried again.
    Down {
        /// Why, for people.
        detail: String,
    },
    /// A master answered and did not accept us; it is being tried again, slowly.
    Rejected {
        /// Which one.
        listener: String,
        /// Why.
        refused: Refused,
    },
}

/// Why a call has no reply.
#[derive(Clone, Debug)]
enum CallFailure {
    /// It never left.
    NotSent,
    /// It left, and the connection broke.
    Lost { detail: String },
    /// The whole call was refused.
    Refused(CallError),
    /// It cannot be encoded.
    Frame(FrameError),
}

/// A reply: the session that brought it and its body.
#[derive(Debug)]
struct RawReply {
    session: SessionId,
    body: Bytes,
    /// Taken by the caller. If the reply is dropped with it, nobody knows what was granted.
    abandoned: Option<Abandoned>,
}

impl Drop for RawReply {
    fn drop(&mut self) {
        if let Some(abandoned) = self.abandoned.take() {
            abandoned.give_up(&self.body);
        }
    }
}

/// A call on its way to the task that owns the connection.
#[derive(Debug)]
struct Call {
    request: Arc<Request>,
    deadline: Instant,
    reply: oneshot::Sender<Result<RawReply, CallFailure>>,
}

/// An answer of a master.
#[derive(Debug)]
pub(crate) struct Answered<T> {
    /// The session that brought it.
    pub(crate) session: SessionId,
    /// Whether an earlier attempt of the call may have been done.
    pub(crate) repeated: bool,
    /// The answer.
    pub(crate) answer: T,
}

/// Calls a master. The connection ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Master {
    calls: mpsc::Sender<Call>,
    link: watch::Receiver<Link>,
    masters: Arc<str>,
}

impl Master {
    /// Starts the task that connects and stays connected.
    /// With it come the session tokens, each until the next one.
    pub(crate) fn start(
        options: &ClientOptions,
        incarnation: Incarnation,
    ) -> (Self, watch::Receiver<Vec<u8>>) {
        Self::start_with(options, incarnation, Arc::new(greet::System))
    }

    fn start_with(
        options: &ClientOptions,
        incarnation: Incarnation,
        resolver: Arc<dyn greet::Resolve>,
    ) -> (Self, watch::Receiver<Vec<u8>>) {
        let (calls, queue) = mpsc::channel(QUEUE_CALLS);
        let (link, watch) = watch::channel(Link::Connecting);
        let (token, tokens) = watch::channel(Vec::new());
        let masters = options.masters.join(", ").into();
        let queue = (queue, calls.downgrade());
        let actor = actor::Actor::new((options, resolver), incarnation, queue, link, token);
        tokio::spawn(actor.run());
        (
            Self {
                calls,
                link: watch,
                masters,
            },
            tokens,
        )
    }

    /// Waits for the first session.
    pub(crate) async fn connected(
        &self,
        deadline: Instant,
        patient: bool,
    ) -> Result<Arc<Session>, ClientError> {
        let mut link = self.link.clone();
        let up = link.wait_for(|link| match link {
            Link::Connecting => false,
            Link::Up(_) => true,
            Link::Rejected { refused, .. } => !patient || !greet::is_passing(refused.reason),
            Link::Down { .. } => !patient,
        });
        let seen = match timeout_at(deadline, up).await {
            Ok(Ok(link)) => link.clone(),
            Ok(Err(_)) => return Err(ClientError::Closed),
            Err(_) => self.link.borrow().clone(),
        };
        match seen {
            Link::Up(session) => Ok(session),
            other => Err(self.no_link(&other)),
        }
    }

    /// Sends a call until it is answered, its deadline passes or another attempt is of no use.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        request: Request,
        deadline: Instant,
    ) -> Result<Answered<T>, ClientError> {
        let request = Arc::new(request);
        let mut repeated = false;
        let mut attempt = 1;
        loop {
            let failure = match self.send(Arc::clone(&request), deadline).await? {
                Ok(mut raw) => {
                    let reply: Reply<T> = decode_body(request.kind(), &raw.body)?;
                    // From here on the caller has the answer: nothing waits in between.
                    raw.abandoned = None;
                    let session = raw.session;
                    return Ok(Answered {
                        session,
                        repeated,
                        answer: reply.answer,
                    });
                }
                Err(failure) => failure,
            };
            let fault = failure.fault();
            let left = deadline.saturating_duration_since(Instant::now());
            match after_call(
                fault,
                request.is_repeatable(),
                attempt,
                left,
                rand::random(),
            ) {
                Next::Again(pause) => {
                    tracing::debug!(?failure, attempt, kind = request.kind().name(), "again");
                    repeated |= fault == CallFault::Lost;
                    tokio::time::sleep(pause).await;
                    attempt += 1;
                }
                Next::Fail => return Err(self.explain(failure)),
            }
        }
    }

    /// Sends a call and does not wait for anything: for giving up a put whose future was dropped.
    /// Without a free place in the queue it is not sent; the master discards the put later.
    pub(crate) fn send_and_forget(&self, request: Request, deadline: Instant) {
        let (reply, _) = oneshot::channel();
        let call = Call {
            request: Arc::new(request),
            deadline,
            reply,
        };
        if self.calls.try_send(call).is_err() {
            tracing::debug!("the queue of calls is full; a put stays for the master to discard");
        }
    }

    async fn send(
        &self,
        request: Arc<Request>,
        deadline: Instant,
    ) -> Result<Result<RawReply, CallFailure>, ClientError> {
        let place = match timeout_at(deadline, self.calls.reserve()).await {
            Ok(Ok(place)) => place,
            Ok(Err(_)) => return Err(ClientError::Closed),
            Err(_) => return Err(self.late()),
        };
        let (reply, waiting) = oneshot::channel();
        place.send(Call {
            request,
            deadline,
            reply,
        });
        match timeout_at(deadline, waiting).await {
            Ok(Ok(outcome)) => Ok(outcome),
            // The task threw the call away because its time was over, or it ended.
            Ok(Err(_)) if Instant::now() < deadline => Err(ClientError::Closed),
            Ok(Err(_)) | Err(_) => Err(self.late()),
        }
    }

    /// What a passed deadline means: without a link the reason is that nobody answers.
    fn late(&self) -> ClientError {
        let link = self.link.borrow().clone();
        match link {
            Link::Up(_) => ClientError::DeadlinePassed {
                during: "while waiting for the master",
            },
            other => self.no_link(&other),
        }
    }

    fn no_link(&self, link: &Link) -> ClientError {
        match link {
            Link::Rejected { listener, refused } => ClientError::HelloRefused {
                listener: format!("the master at {listener}"),
                source: refused.clone(),
            },
            Link::Down { detail } => ClientError::Unreachable {
                masters: self.masters.to_string(),
                detail: detail.clone(),
            },
            Link::Connecting | Link::Up(_) => ClientError::DeadlinePassed {
                during: "while no master answered the hello",
            },
        }
    }

    fn explain(&self, failure: CallFailure) -> ClientError {
        match failure {
            CallFailure::NotSent => self.late(),
            CallFailure::Lost { detail } => ClientError::ConnectionLost { detail },
            CallFailure::Refused(error) => error.into(),
            CallFailure::Frame(error) => error.into(),
        }
    }
}

impl CallFailure {
    const fn fault(&self) -> CallFault {
        match self {
            Self::NotSent => CallFault::NotSent,
            Self::Lost { .. } => CallFault::Lost,
            Self::Refused(error) => CallFault::Refused(error.reason),
            Self::Frame(_) => CallFault::Final,
        }
    }
}
