//! Finds the master that leads: asks one after the other, and waits for none that is silent.
//!
//! A round asks every address of every master once, the next one as soon as the one before has
//! said no or has been silent for [`STAGGER`]. One that is silent stays asked over the rounds: it
//! may be slow, and is not asked twice at a time. A hint at the leader only changes the order:
//! anybody may answer a hello, and our credential goes to nobody who is not in the list.

use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use larder_types::Epoch;
use larder_wire::hello::{Hello, Refused, RefusedReason};
use tokio::time::{Instant, sleep_until};

use super::greet::{Greeted, NoSession, Resolve, is_passing, reach, resolve};

/// How long one master may be silent until another one is asked as well.
const STAGGER: Duration = Duration::from_millis(100);

/// Which epoch a master must have to be taken for the leader.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    /// This one or a higher one.
    AtLeast(Epoch),
    /// A higher one.
    Above(Epoch),
}

/// A session at a master that leads.
pub(super) struct Found {
    /// Its place in the list of masters.
    pub(super) name: usize,
    /// Whether there are others to ask.
    pub(super) is_plural: bool,
    /// What was said to it.
    pub(super) hello: Arc<Hello>,
    pub(super) greeted: Greeted,
}

/// Where to begin.
#[derive(Clone, Debug, Default)]
pub(super) struct Start {
    /// The place of the first master in the list.
    pub(super) first: usize,
    /// What was said of the leader: `host:port`, which may be somebody else's.
    pub(super) hint: Option<String>,
    /// The one that is not asked: the present master.
    pub(super) skip: Option<SocketAddr>,
}

/// Why a round found no leader: the answer that says most, and whose it is.
pub(super) struct NoLeader {
    pub(super) listener: String,
    pub(super) why: NoSession,
}

/// Something that was waited for.
enum Step {
    Resolved(usize, Result<Vec<SocketAddr>, NoSession>),
    Asked(Place, Box<Result<Greeted, NoSession>>),
}

/// An address of the master at this place of the list.
type Place = (usize, SocketAddr);

/// A search that goes on over rounds until a leader is found.
pub(super) struct Search {
    resolver: Arc<dyn Resolve>,
    names: Arc<[String]>,
    start: Start,
    running: FuturesUnordered<Pin<Box<dyn Future<Output = Step> + Send>>>,
    /// Names on their way to addresses.
    resolving: Vec<usize>,
    /// Places that were asked and have not answered: at most 16 for each name.
    asking: Vec<Place>,
    /// Places that are to be asked in this round.
    queue: VecDeque<Place>,
    /// Places that were seen in this round.
    seen: Vec<Place>,
    /// When the last one was asked.
    asked_at: Instant,
    /// The last one asked has answered: ask the next at once.
    is_due: bool,
    best: Option<NoLeader>,
}

impl Search {
    pub(super) fn new(resolver: Arc<dyn Resolve>, names: Arc<[String]>, start: Start) -> Self {
        Self {
            resolver,
            names,
            start,
            running: FuturesUnordered::new(),
            resolving: Vec::new(),
            asking: Vec::new(),
            queue: VecDeque::new(),
            seen: Vec::new(),
            asked_at: Instant::now(),
            is_due: true,
            best: None,
        }
    }

    /// Whether there is more than one master to ask, as far as is known.
    pub(super) fn is_plural(&self) -> bool {
        self.names.len() > 1 || self.seen.len() > 1
    }

    /// Asks every master once. An `Err` is no end: the next round may find one.
    pub(super) async fn round(
        &mut self,
        hello: &Arc<Hello>,
        wanted: Wanted,
    ) -> Result<Found, NoLeader> {
        self.begin();
        loop {
            let silent = Instant::now() >= self.asked_at + STAGGER;
            if (self.is_due || silent)
                && let Some(place) = self.queue.pop_front()
            {
                self.ask(place, hello);
            }
            let over = self.running.is_empty() || (self.best.is_some() && silent);
            if self.queue.is_empty()
                && over
                && let Some(best) = self.best.take()
            {
                return Err(best);
            }
            let waits = !self.queue.is_empty() || self.best.is_some();
            let step = tokio::select! {
                biased;
                Some(step) = self.running.next() => step,
                () = sleep_until(self.asked_at + STAGGER), if waits => continue,
                else => return Err(nobody()),
            };
            match step {
                Step::Resolved(name, Ok(addresses)) => self.resolved(name, addresses),
                Step::Resolved(name, Err(why)) => {
                    self.resolving.retain(|one| *one != name);
                    self.failed(self.names[name].clone(), why);
                }
                Step::Asked(place, outcome) => {
                    self.asking.retain(|one| *one != place);
                    self.is_due = true;
                    match (*outcome).and_then(|greeted| wanted.judge(greeted)) {
                        Ok(greeted) => {
                            return Ok(Found {
                                name: place.0,
                                is_plural: self.is_plural(),
                                hello: Arc::clone(hello),
                                greeted,
                            });
                        }
                        Err(why) => {
                            let listener = self.listener(place);
                            if let NoSession::Rejected(refused) = &why {
                                // Every master of the pool would say the same of us.
                                if !is_passing(refused.reason) {
                                    return Err(NoLeader { listener, why });
                                }
                                self.hinted(refused);
                            }
                            self.failed(listener, why);
                        }
                    }
                }
            }
        }
    }

    fn begin(&mut self) {
        self.queue.clear();
        self.seen = self.asking.clone();
        self.is_due = true;
        let count = self.names.len();
        for name in (0..count).map(|at| (self.start.first + at) % count) {
            if self.resolving.contains(&name) {
                continue;
            }
            self.resolving.push(name);
            let (resolver, names) = (Arc::clone(&self.resolver), Arc::clone(&self.names));
            self.running.push(Box::pin(async move {
                Step::Resolved(name, resolve(&*resolver, &names[name]).await)
            }));
        }
    }

    fn resolved(&mut self, name: usize, addresses: Vec<SocketAddr>) {
        self.resolving.retain(|one| *one != name);
        for address in addresses {
            let known = self.seen.iter().any(|(_, seen)| *seen == address);
            if known || self.start.skip == Some(address) {
                continue;
            }
            let place = (name, address);
            self.seen.push(place);
            if self.is_hinted(place) {
                self.queue.push_front(place);
                self.is_due = true;
            } else {
                self.queue.push_back(place);
            }
        }
        if self.seen.is_empty() {
            let detail = "its name has no other address".to_owned();
            self.failed(self.names[name].clone(), NoSession::Unreachable(detail));
        }
    }

    fn ask(&mut self, place: Place, hello: &Arc<Hello>) {
        self.asked_at = Instant::now();
        self.is_due = false;
        self.asking.push(place);
        let hello = Arc::clone(hello);
        self.running.push(Box::pin(async move {
            Step::Asked(place, Box::new(reach(place.1, &hello).await))
        }));
    }

    /// A master named the leader: if it is one of ours it is the next, in later rounds the first.
    fn hinted(&mut self, refused: &Refused) {
        let Some(hint) = refused.leader_hint() else {
            return;
        };
        self.start.hint = Some(hint.to_owned());
        if let Some(at) = self.queue.iter().position(|place| self.is_hinted(*place))
            && let Some(place) = self.queue.remove(at)
        {
            self.queue.push_front(place);
        }
        if let Some(name) = self.names.iter().position(|name| name == hint) {
            self.start.first = name;
        }
    }

    fn is_hinted(&self, (name, address): Place) -> bool {
        self.start
            .hint
            .as_ref()
            .is_some_and(|hint| self.names[name] == *hint || address.to_string() == *hint)
    }

    /// Keeps the answer that says most.
    fn failed(&mut self, listener: String, why: NoSession) {
        if self
            .best
            .as_ref()
            .is_none_or(|best| best.why.says() <= why.says())
        {
            self.best = Some(NoLeader { listener, why });
        }
    }

    fn listener(&self, (name, address): Place) -> String {
        let address = address.to_string();
        if self.names[name] == address {
            address
        } else {
            format!("{} ({address})", self.names[name])
        }
    }
}

impl Wanted {
    /// A master of an older epoch was deposed and does not know it yet.
    fn judge(self, greeted: Greeted) -> Result<Greeted, NoSession> {
        let epoch = greeted.2.epoch;
        let is_good = match self {
            Self::AtLeast(least) => epoch >= least,
            Self::Above(other) => epoch > other,
        };
        if is_good {
            Ok(greeted)
        } else {
            let detail = format!("its epoch {epoch} is over");
            let refused = Refused::new(RefusedReason::NotLeader, detail);
            Err(NoSession::Rejected(refused))
        }
    }
}

fn nobody() -> NoLeader {
    NoLeader {
        listener: "nobody".to_owned(),
        why: NoSession::Unreachable("there is no other master".to_owned()),
    }
}
