//! The task that asks about tokens: each once at a time, a few at a time, and remembers the
//! answers. It owns the cache; proofs reach it over a bounded queue.
//!
//! It never waits for anything but its queue and its reviews, so a proof that is known is answered
//! at once, whatever the API server does.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use larder_telemetry::{Metric, Registry};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep};

use super::cache::{Account, Cache, TokenHash};

/// The most reviews at a time.
const REVIEWS_MAX: usize = 16;
/// The most tokens that wait for a review, each of at most 8 KiB: 4 MiB at the very worst. A pool
/// whose master restarts has thousands of clients, but those that are told to try again do.
const WAITING_MAX: usize = 512;
/// How long the place of a review stays taken after one that proved nothing. So strangers who
/// make up tokens cause at most 160 reviews a second, and good tokens pass at full speed.
const PAUSE_AFTER_NOTHING: Duration = Duration::from_millis(100);

/// Why whose a token is cannot be said now. Another try may say it.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReviewError {
    /// The API server did not answer.
    #[error("the API server did not review a token; check that it can be reached from here")]
    ApiServer {
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The API server does not let this master ask.
    #[error(
        "the API server refuses to review tokens for this master; let its ServiceAccount create \
         `tokenreviews`"
    )]
    Forbidden {
        /// What it said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It took too long.
    #[error("the review of a token took too long; look at the load of the API server")]
    Late,
    /// Too many others wait.
    #[error("too many tokens wait for a review; try again")]
    Crowded,
    /// A fault of ours, or the master stops.
    #[error("nobody reviews tokens here any more")]
    Gone,
}

/// Asks whose a token is.
pub(super) trait Review: Send + Sync + 'static {
    /// Whose a token is, or `None` if it is nobody's for that audience.
    fn review(
        &self,
        token: String,
        audience: String,
    ) -> impl Future<Output = Result<Option<Account>, ReviewError>> + Send;
}

type Answer = Result<Option<Account>, Arc<ReviewError>>;

/// Somebody wants to know whose a token is.
pub(super) struct Ask {
    hash: TokenHash,
    token: String,
    audience: String,
    /// Whose it says that it is.
    account: String,
    /// How long it says that it is valid.
    valid_for: Option<Duration>,
    reply: oneshot::Sender<Answer>,
}

impl Ask {
    pub(super) fn new(
        token: String,
        audience: &str,
        account: String,
        valid_for: Option<Duration>,
        reply: oneshot::Sender<Answer>,
    ) -> Self {
        let mut digest = ring::digest::Context::new(&ring::digest::SHA256);
        digest.update(audience.as_bytes());
        // Neither holds a zero byte: no two pairs are the same bytes.
        digest.update(&[0]);
        digest.update(token.as_bytes());
        let mut hash = [0; 32];
        hash.copy_from_slice(digest.finish().as_ref());
        Self {
            hash,
            token,
            audience: audience.to_owned(),
            account,
            valid_for,
            reply,
        }
    }
}

/// A token under review or waiting for it. Whoever waits holds a connection of this master or of
/// its admin port, which are bounded.
struct Flight {
    first: Ask,
    others: Vec<oneshot::Sender<Answer>>,
    task: Option<Id>,
}

/// What a task of the desk ends with: a review, or the pause after one.
type Done = Option<(TokenHash, Result<Option<Account>, ReviewError>)>;

/// The task's state.
pub(super) struct Desk<R> {
    review: Arc<R>,
    registry: Registry,
    cache: Cache,
    flights: HashMap<TokenHash, Flight>,
    waiting: VecDeque<TokenHash>,
    /// At most [`REVIEWS_MAX`], pauses included.
    running: JoinSet<Done>,
    /// Whether the last review was answered: only a change is worth a line.
    is_answered: bool,
}

impl<R: Review> Desk<R> {
    pub(super) fn new(review: R, registry: Registry) -> Self {
        Self {
            review: Arc::new(review),
            registry,
            cache: Cache::new(),
            flights: HashMap::new(),
            waiting: VecDeque::new(),
            running: JoinSet::new(),
            is_answered: true,
        }
    }

    /// Works until nobody can ask any more.
    pub(super) async fn run(mut self, mut asks: mpsc::Receiver<Ask>) {
        loop {
            tokio::select! {
                ask = asks.recv() => match ask {
                    Some(ask) => self.take(ask),
                    None => return,
                },
                Some(done) = self.running.join_next() => self.hear(done),
            }
            self.start();
        }
    }

    fn take(&mut self, ask: Ask) {
        if let Some(known) = self.cache.get(&ask.hash, Instant::now()) {
            self.registry.inc(Metric::MasterTokenCacheHitsTotal, &[], 1);
            return tell(ask.reply, Ok(known));
        }
        if let Some(flight) = self.flights.get_mut(&ask.hash) {
            return flight.others.push(ask.reply);
        }
        if self.waiting.len() >= WAITING_MAX {
            return tell(ask.reply, Err(Arc::new(ReviewError::Crowded)));
        }
        let hash = ask.hash;
        let flight = Flight {
            first: ask,
            others: Vec::new(),
            task: None,
        };
        self.flights.insert(hash, flight);
        self.waiting.push_back(hash);
    }

    /// Starts reviews while there are places.
    fn start(&mut self) {
        while self.running.len() < REVIEWS_MAX
            && let Some(hash) = self.waiting.pop_front()
        {
            let Some(flight) = self.flights.get_mut(&hash) else {
                continue;
            };
            let waits = flight.others.iter().chain([&flight.first.reply]);
            if waits.into_iter().all(oneshot::Sender::is_closed) {
                // Their connections are gone.
                self.flights.remove(&hash);
                continue;
            }
            let review = Arc::clone(&self.review);
            let (token, audience) = (flight.first.token.clone(), flight.first.audience.clone());
            let task = self
                .running
                .spawn(async move { Some((hash, review.review(token, audience).await)) });
            flight.task = Some(task.id());
        }
    }

    fn hear(&mut self, done: Result<Done, JoinError>) {
        let (hash, result) = match done {
            Ok(Some(review)) => review,
            // A pause is over.
            Ok(None) => return,
            Err(error) => {
                tracing::error!(%error, "the review of a token fell");
                let task = Some(error.id());
                let flight = self.flights.iter().find(|(_, flight)| flight.task == task);
                let Some((hash, _)) = flight else { return };
                (*hash, Err(ReviewError::Gone))
            }
        };
        let Some(flight) = self.flights.remove(&hash) else {
            return;
        };
        let Flight { first, others, .. } = flight;
        // A review that names another account than the token itself does is not understood here.
        let result = result.map(|account| account.filter(|found| found.name == first.account));
        self.note(&result);
        if !matches!(result, Ok(Some(_))) {
            self.running.spawn(async {
                sleep(PAUSE_AFTER_NOTHING).await;
                None
            });
        }
        let now = Instant::now();
        match &result {
            Ok(Some(account)) => {
                self.cache
                    .prove(hash, account.clone(), first.valid_for, now);
            }
            Ok(None) => self.cache.deny(hash, now),
            Err(_) => {}
        }
        let answer = result.map_err(Arc::new);
        for reply in others {
            tell(reply, answer.clone());
        }
        tell(first.reply, answer);
    }

    fn note(&mut self, result: &Result<Option<Account>, ReviewError>) {
        let label = match result {
            Ok(Some(_)) => "proven",
            Ok(None) => "denied",
            Err(_) => "unavailable",
        };
        self.registry
            .inc(Metric::MasterTokenReviewsTotal, &[label], 1);
        match result {
            Err(error) if self.is_answered => {
                let error = larder_telemetry::error_chain(error);
                tracing::warn!(error, "tokens cannot be reviewed; known ones go on");
            }
            Ok(_) if !self.is_answered => tracing::info!("tokens are reviewed again"),
            _ => {}
        }
        self.is_answered = result.is_ok();
    }
}

/// Whoever asked may be gone.
fn tell(reply: oneshot::Sender<Answer>, answer: Answer) {
    drop(reply.send(answer));
}
