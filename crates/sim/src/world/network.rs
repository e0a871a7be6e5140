//! A network as a machine that says which message arrives when. It reads no clock.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use crate::seed::Stream;

/// The address of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u32);

/// From whom to whom; the two directions are apart.
type Way = (Node, Node);

/// What ways are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// The shortest time on the way, in ns.
    pub delay_min_ns: u64,
    /// The longest, in ns.
    pub delay_max_ns: u64,
    /// How many of a thousand messages never arrive.
    pub loss_permille: u32,
    /// How many of a thousand arrive twice.
    pub repeat_permille: u32,
    /// How many of a thousand take up to `late_ns` longer.
    pub late_permille: u32,
    /// See `late_permille`.
    pub late_ns: u64,
    /// Of a thousand messages that meet a cut, how many wait for its end as a sender that tries
    /// again would let them; the others are lost.
    pub wait_permille: u32,
    /// Whether messages may overtake each other.
    pub reorders: bool,
}

/// A time of worse weather, on some ways or on all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storm {
    /// Only messages from or to one of these; empty means all.
    pub around: Vec<Node>,
    /// Counts where it is worse than what is there without it.
    pub weather: Weather,
}

/// Ways that were cut together, to be mended together. Cuts may overlap.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a cut that is not mended stays"]
pub struct Cut(Vec<Way>);

/// What became of a message when it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It arrives, unless a cut comes in between.
    OnTheWay,
    /// It never arrives. A sender over a connection has to take that for its end.
    Lost,
}

/// A message that arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival<M> {
    /// When, in ns.
    pub at_ns: u64,
    /// From whom.
    pub from: Node,
    /// To whom.
    pub to: Node,
    /// What.
    pub message: M,
    /// It was sent once and arrives twice; this is the second time.
    pub is_repeat: bool,
}

/// How often what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkCounts {
    /// Messages given to the network.
    pub sent: u64,
    /// Arrivals, repeats included.
    pub arrived: u64,
    /// Lost to the weather.
    pub lost: u64,
    /// Lost to a cut.
    pub cut: u64,
    /// Sent once to arrive twice.
    pub repeated: u64,
    /// Arrived after one of the same way that was sent later.
    pub overtaken: u64,
    /// Lost because too many were on the way.
    pub overflowed: u64,
}

#[derive(Clone, Debug)]
struct Flight<M> {
    way: Way,
    number: u64,
    waits: bool,
    is_repeat: bool,
    message: M,
}

/// All messages on their way.
#[derive(Debug)]
pub struct Network<M> {
    flights: BTreeMap<(u64, u64), Flight<M>>,
    /// Those that wait for the end of a cut.
    waiting: BTreeMap<Way, VecDeque<Flight<M>>>,
    waiting_count: usize,
    cuts: BTreeMap<Way, u32>,
    calm: Weather,
    storms: BTreeMap<u64, Storm>,
    /// The latest arrival planned on each way, and the highest number that arrived.
    latest: BTreeMap<Way, (u64, u64)>,
    next_number: u64,
    flights_max: usize,
    chance: Stream,
    counts: NetworkCounts,
}

impl Weather {
    /// In order, without loss, with a delay between these.
    #[must_use]
    pub const fn calm(delay_min_ns: u64, delay_max_ns: u64) -> Self {
        Self {
            delay_min_ns,
            delay_max_ns,
            loss_permille: 0,
            repeat_permille: 0,
            late_permille: 0,
            late_ns: 0,
            wait_permille: 0,
            reorders: false,
        }
    }

    fn worse(self, other: Self) -> Self {
        Self {
            delay_min_ns: self.delay_min_ns.max(other.delay_min_ns),
            delay_max_ns: self.delay_max_ns.max(other.delay_max_ns),
            loss_permille: self.loss_permille.max(other.loss_permille),
            repeat_permille: self.repeat_permille.max(other.repeat_permille),
            late_permille: self.late_permille.max(other.late_permille),
            late_ns: self.late_ns.max(other.late_ns),
            wait_permille: self.wait_permille.max(other.wait_permille),
            reorders: self.reorders || other.reorders,
        }
    }
}

impl<M: Clone> Network<M> {
    /// A network in calm weather. At most `flights_max` messages are on the way or wait.
    #[must_use]
    pub fn new(calm: Weather, flights_max: usize, chance: Stream) -> Self {
        Self {
            flights: BTreeMap::new(),
            waiting: BTreeMap::new(),
            waiting_count: 0,
            cuts: BTreeMap::new(),
            calm,
            storms: BTreeMap::new(),
            latest: BTreeMap::new(),
            next_number: 1,
            flights_max,
            chance,
            counts: NetworkCounts::default(),
        }
    }

    /// Sends a message.
    pub fn send(&mut self, now_ns: u64, from: Node, to: Node, message: M) -> Sent {
        self.counts.sent += 1;
        let weather = self.weather(from, to);
        if self.chance.happens(weather.loss_permille) {
            self.counts.lost += 1;
            return Sent::Lost;
        }
        if self.flights.len() + self.waiting_count + 1 >= self.flights_max {
            self.counts.overflowed += 1;
            return Sent::Lost;
        }
        let flight = Flight {
            way: (from, to),
            number: self.number(),
            waits: self.chance.happens(weather.wait_permille),
            is_repeat: false,
            message,
        };
        if self.chance.happens(weather.repeat_permille) {
            self.counts.repeated += 1;
            let repeat = Flight {
                is_repeat: true,
                ..flight.clone()
            };
            self.depart(now_ns, flight);
            self.depart(now_ns, repeat);
            return Sent::OnTheWay;
        }
        self.depart(now_ns, flight);
        Sent::OnTheWay
    }

    /// The next message that arrives until `now_ns`.
    pub fn take(&mut self, now_ns: u64) -> Option<Arrival<M>> {
        loop {
            let next = self.flights.first_entry()?;
            if next.key().0 > now_ns {
                return None;
            }
            let ((at_ns, _), flight) = next.remove_entry();
            if self.cuts.contains_key(&flight.way) {
                if flight.waits {
                    self.waiting_count += 1;
                    self.waiting
                        .entry(flight.way)
                        .or_default()
                        .push_back(flight);
                } else {
                    self.counts.cut += 1;
                }
                continue;
            }
            let (_, highest) = self.latest.entry(flight.way).or_default();
            if flight.number < *highest {
                self.counts.overtaken += 1;
            }
            *highest = (*highest).max(flight.number);
            self.counts.arrived += 1;
            let (from, to) = flight.way;
            return Some(Arrival {
                at_ns,
                from,
                to,
                message: flight.message,
                is_repeat: flight.is_repeat,
            });
        }
    }

    /// When the next message arrives, or meets a cut.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.flights.first_key_value().map(|((at_ns, _), _)| *at_ns)
    }

    /// Cuts all ways from one of these to one of those; the other direction stays.
    pub fn cut(&mut self, from: &[Node], to: &[Node]) -> Cut {
        let mut ways = Vec::new();
        for way in from.iter().flat_map(|a| to.iter().map(|b| (*a, *b))) {
            if way.0 != way.1 {
                *self.cuts.entry(way).or_default() += 1;
                ways.push(way);
            }
        }
        Cut(ways)
    }

    /// Ends a cut. What waited on ways that no other cut closes goes on now.
    pub fn mend(&mut self, now_ns: u64, cut: Cut) {
        for way in cut.0 {
            let Some(count) = self.cuts.get_mut(&way) else {
                continue;
            };
            *count -= 1;
            if *count > 0 {
                continue;
            }
            self.cuts.remove(&way);
            for flight in self.waiting.remove(&way).unwrap_or_default() {
                self.waiting_count -= 1;
                self.depart(now_ns, flight);
            }
        }
    }

    /// Begins a storm under a name of the caller's.
    pub fn begin_storm(&mut self, name: u64, storm: Storm) {
        self.storms.insert(name, storm);
    }

    /// Ends it.
    pub fn end_storm(&mut self, name: u64) {
        self.storms.remove(&name);
    }

    /// Drops all that is on its way to a process that is gone.
    pub fn forget(&mut self, to: Node) {
        let before = self.flights.len();
        self.flights.retain(|_, flight| flight.way.1 != to);
        self.counts.lost += (before - self.flights.len()) as u64;
        self.waiting.retain(|way, waiting| {
            let stays = way.1 != to;
            if !stays {
                self.waiting_count -= waiting.len();
                self.counts.lost += waiting.len() as u64;
            }
            stays
        });
    }

    /// What happened so far.
    #[must_use]
    pub const fn counts(&self) -> NetworkCounts {
        self.counts
    }

    fn weather(&self, from: Node, to: Node) -> Weather {
        let touches = |storm: &&Storm| {
            storm.around.is_empty() || storm.around.contains(&from) || storm.around.contains(&to)
        };
        let storms = self.storms.values().filter(touches);
        storms.fold(self.calm, |weather, storm| weather.worse(storm.weather))
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    fn depart(&mut self, now_ns: u64, flight: Flight<M>) {
        let weather = self.weather(flight.way.0, flight.way.1);
        let mut delay_ns = self
            .chance
            .between(weather.delay_min_ns, weather.delay_max_ns);
        if self.chance.happens(weather.late_permille) {
            delay_ns = delay_ns.saturating_add(self.chance.below(weather.late_ns));
        }
        let mut at_ns = now_ns.saturating_add(delay_ns);
        let (latest, _) = self.latest.entry(flight.way).or_default();
        if !weather.reorders {
            at_ns = at_ns.max(*latest);
        }
        *latest = (*latest).max(at_ns);
        // Of those that arrive at one time the one that departed first comes first.
        let departure = self.number();
        self.flights.insert((at_ns, departure), flight);
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node-{}", self.0)
    }
}

impl fmt::Display for NetworkCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} sent, {} arrived, {} lost, {} cut, {} repeated, {} overtaken, {} overflowed",
            self.sent,
            self.arrived,
            self.lost,
            self.cut,
            self.repeated,
            self.overtaken,
            self.overflowed
        )
    }
}
