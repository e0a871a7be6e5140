//! What breaks when.

use std::fmt;

use super::network::{Node, Storm, Weather};
use crate::seed::{Seed, Stream};

/// A kind of fault. What [`Fault::amount`] means stands beside each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Messages are lost: of a thousand.
    Loss,
    /// Messages take longer: ns.
    Delay,
    /// Messages arrive twice: of a thousand.
    Repeat,
    /// Messages overtake each other: up to so many ns late.
    Reorder,
    /// Two sides cannot hear each other. No amount.
    Partition,
    /// One side is heard and hears nothing. No amount.
    OneWay,
    /// A master's process dies; its machine keeps what was written. No amount.
    Kill,
    /// A master's machine loses power; the log's tail is torn. A seed for what is left.
    PowerOne,
    /// All masters' machines lose power. A seed for what is left.
    PowerAll,
    /// All masters lose their disks, and with them the log. No amount.
    WipeAll,
    /// A master's disk takes no more: bytes still free.
    DiskFull,
    /// Syncs of some masters take longer: ns each.
    DiskSlow,
    /// A machine's clock is suddenly later: ns.
    ClockLeap,
    /// A machine's clock is fast, or slow below 0: parts in a million.
    ClockDrift,
    /// Somebody sets a machine's wall clock: ns, back below 0.
    WallJump,
    /// A master's process stands still. No amount.
    Pause,
    /// An agent's process dies, and with it its memory. No amount.
    AgentKill,
    /// An agent's process stands still. No amount.
    AgentPause,
    /// Masters are replaced by the next version one by one. No amount.
    Upgrade,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its kind.
    pub class: Class,
    /// When it begins, in ns of true time.
    pub from_ns: u64,
    /// When it ends, or what it ended begins again.
    pub until_ns: u64,
    /// Whom it hits. Of a storm: empty means all.
    pub nodes: Vec<Node>,
    /// Of a partition: the other side.
    pub others: Vec<Node>,
    /// How bad it is; see [`Class`].
    pub amount: i64,
}

/// What may break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultShape {
    /// Which kinds; none twice in a run before each was there.
    pub classes: Vec<Class>,
    /// The masters.
    pub masters: Vec<Node>,
    /// The agents.
    pub agents: Vec<Node>,
    /// The clients.
    pub clients: Vec<Node>,
    /// The first moment of a fault, in ns.
    pub from_ns: u64,
    /// When the last one is over.
    pub until_ns: u64,
    /// At least so many.
    pub count_min: u64,
    /// At most so many.
    pub count_max: u64,
    /// The longest of them, in ns.
    pub length_max_ns: u64,
    /// How long after a loss of power no other master loses power, in ns: one failure at a time is
    /// what is promised to be survived. [`Class::PowerAll`] is an other promise.
    pub rejoin_ns: u64,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::Loss,
        Self::Delay,
        Self::Repeat,
        Self::Reorder,
        Self::Partition,
        Self::OneWay,
        Self::Kill,
        Self::PowerOne,
        Self::PowerAll,
        Self::WipeAll,
        Self::DiskFull,
        Self::DiskSlow,
        Self::ClockLeap,
        Self::ClockDrift,
        Self::WallJump,
        Self::Pause,
        Self::AgentKill,
        Self::AgentPause,
        Self::Upgrade,
    ];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Delay => "delay",
            Self::Repeat => "repeat",
            Self::Reorder => "reorder",
            Self::Partition => "partition",
            Self::OneWay => "one_way_partition",
            Self::Kill => "kill",
            Self::PowerOne => "power_one",
            Self::PowerAll => "power_all",
            Self::WipeAll => "wipe_all",
            Self::DiskFull => "disk_full",
            Self::DiskSlow => "disk_slow",
            Self::ClockLeap => "clock_leap",
            Self::ClockDrift => "clock_drift",
            Self::WallJump => "wall_jump",
            Self::Pause => "pause",
            Self::AgentKill => "agent_kill",
            Self::AgentPause => "agent_pause",
            Self::Upgrade => "upgrade",
        }
    }

    const fn takes_power(self) -> bool {
        matches!(self, Self::PowerOne | Self::PowerAll | Self::WipeAll)
    }
}

impl Fault {
    /// The weather that it makes, if it is one of the network's that cuts nothing.
    #[must_use]
    pub fn storm(&self) -> Option<Storm> {
        let none = Weather::calm(0, 0);
        let permille = || u32::try_from(self.amount).unwrap_or(0);
        let ns = || u64::try_from(self.amount).unwrap_or(0);
        let weather = match self.class {
            Class::Loss => Weather {
                loss_permille: permille(),
                ..none
            },
            Class::Delay => Weather {
                delay_max_ns: ns(),
                ..none
            },
            Class::Repeat => Weather {
                repeat_permille: permille(),
                ..none
            },
            Class::Reorder => Weather {
                late_permille: 300,
                late_ns: ns(),
                reorders: true,
                ..none
            },
            _ => return None,
        };
        Some(Storm {
            around: self.nodes.clone(),
            weather,
        })
    }

    /// The directions that it cuts: from whom to whom.
    #[must_use]
    pub fn cuts(&self) -> Vec<(&[Node], &[Node])> {
        match self.class {
            Class::Partition => vec![(&self.nodes, &self.others), (&self.others, &self.nodes)],
            // These speak and hear nothing.
            Class::OneWay => vec![(&self.others, &self.nodes)],
            _ => Vec::new(),
        }
    }

    fn overlaps(&self, other: &Self, rejoin_ns: u64) -> bool {
        let end = |one: &Self| one.until_ns.saturating_add(rejoin_ns);
        self.from_ns < end(other) && other.from_ns < end(self)
    }
}

/// The faults of a run, in the order in which they begin.
#[must_use]
pub fn draw_faults(seed: Seed, shape: &FaultShape) -> Vec<Fault> {
    let mut chance = seed.stream("faults");
    let mut classes = shape.classes.clone();
    classes.retain(|class| !targets(*class, shape).is_empty());
    if classes.is_empty() {
        return Vec::new();
    }
    chance.shuffle(&mut classes);
    let count = chance.between(shape.count_min, shape.count_max);
    let mut faults: Vec<Fault> = Vec::new();
    // Enough tries for a full house; a class that finds no free time is passed over.
    for class in classes.iter().cycle().take(classes.len() * 8 + 64) {
        if faults.len() as u64 >= count {
            break;
        }
        let fault = draw(*class, shape, &mut chance);
        let collides = |other: &Fault| {
            let power = fault.class.takes_power() && other.class.takes_power();
            let machine = fault.nodes.iter().any(|node| other.nodes.contains(node));
            let same = fault.class == other.class && machine;
            let stops = |one: &Fault| {
                let class = one.class;
                class.takes_power() || matches!(class, Class::Kill | Class::Pause | Class::Upgrade)
            };
            (power && fault.overlaps(other, shape.rejoin_ns))
                || ((same || (machine && stops(&fault) && stops(other)))
                    && fault.overlaps(other, 0))
        };
        if !faults.iter().any(collides) {
            faults.push(fault);
        }
    }
    faults.sort_by_key(|fault| (fault.from_ns, fault.class));
    faults
}

/// Whom a kind can hit.
fn targets(class: Class, shape: &FaultShape) -> Vec<Node> {
    match class {
        Class::AgentKill | Class::AgentPause => shape.agents.clone(),
        Class::Kill
        | Class::PowerOne
        | Class::PowerAll
        | Class::WipeAll
        | Class::DiskFull
        | Class::DiskSlow
        | Class::Pause
        | Class::Upgrade => shape.masters.clone(),
        Class::ClockLeap | Class::ClockDrift | Class::WallJump => {
            let machines = shape.masters.iter().chain(&shape.agents);
            machines.copied().collect()
        }
        Class::Loss
        | Class::Delay
        | Class::Repeat
        | Class::Reorder
        | Class::Partition
        | Class::OneWay => {
            let all = shape.masters.iter().chain(&shape.agents);
            all.chain(&shape.clients).copied().collect()
        }
    }
}

fn draw(class: Class, shape: &FaultShape, chance: &mut Stream) -> Fault {
    let span_ns = shape.until_ns.saturating_sub(shape.from_ns).max(1);
    let length_ns = chance.between(1, shape.length_max_ns.min(span_ns));
    let from_ns = shape.from_ns + chance.below(span_ns - length_ns + 1);
    let all = targets(class, shape);
    let one = |chance: &mut Stream| chance.pick(&all).copied().into_iter().collect::<Vec<_>>();
    let (nodes, others) = match class {
        Class::PowerAll | Class::WipeAll | Class::Upgrade => (shape.masters.clone(), Vec::new()),
        Class::DiskSlow => (some(&all, chance), Vec::new()),
        Class::Partition | Class::OneWay => sides(&all, shape, chance),
        Class::Loss | Class::Delay | Class::Repeat | Class::Reorder if chance.happens(500) => {
            (Vec::new(), Vec::new())
        }
        _ => (one(chance), Vec::new()),
    };
    Fault {
        class,
        from_ns,
        until_ns: from_ns + length_ns,
        nodes,
        others,
        amount: amount(class, chance),
    }
}

/// Each with even odds, and one at least.
fn some(all: &[Node], chance: &mut Stream) -> Vec<Node> {
    let first = chance.pick(all).copied();
    let mut is_hit = |node: &Node| Some(*node) == first || chance.happens(500);
    all.iter().copied().filter(|node| is_hit(node)).collect()
}

/// Two sides of a cut: one master alone, one master with its clients and agents, or any.
fn sides(all: &[Node], shape: &FaultShape, chance: &mut Stream) -> (Vec<Node>, Vec<Node>) {
    let some_master = chance.pick(&shape.masters).copied();
    let side: Vec<Node> = match (chance.below(3), some_master) {
        (0, Some(master)) => vec![master],
        (1, Some(master)) => {
            let is_master = |node: &Node| shape.masters.contains(node);
            let others = all.iter().copied().filter(|node| !is_master(node));
            others
                .filter(|_| chance.happens(500))
                .chain([master])
                .collect()
        }
        _ => all
            .iter()
            .copied()
            .filter(|_| chance.happens(500))
            .collect(),
    };
    let rest = all
        .iter()
        .copied()
        .filter(|node| !side.contains(node))
        .collect();
    (side, rest)
}

fn amount(class: Class, chance: &mut Stream) -> i64 {
    const MS: u64 = 1_000_000;
    let sign = if chance.happens(500) { 1 } else { -1 };
    let mut between = |from, to| i64::try_from(chance.between(from, to)).unwrap_or(i64::MAX);
    match class {
        Class::Loss | Class::Repeat => between(20, 400),
        Class::Delay => between(5 * MS, 150 * MS),
        Class::Reorder => between(2 * MS, 50 * MS),
        Class::PowerOne | Class::PowerAll => between(0, u64::from(u32::MAX)),
        Class::DiskFull => between(0, 4_096),
        Class::DiskSlow => between(50 * MS, 1_000 * MS),
        Class::ClockLeap => between(MS, 3_600_000 * MS),
        // A bad crystal is off by 200 parts in a million; twice that here.
        Class::ClockDrift => sign * between(50, 400),
        Class::WallJump => sign * between(MS, 86_400_000 * MS),
        Class::Partition
        | Class::OneWay
        | Class::WipeAll
        | Class::Kill
        | Class::Pause
        | Class::AgentKill
        | Class::AgentPause
        | Class::Upgrade => 0,
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: u64| ns / 1_000_000;
        let names = |nodes: &[Node]| {
            let names: Vec<String> = nodes.iter().map(|node| node.0.to_string()).collect();
            names.join(" ")
        };
        let (from, until) = (ms(self.from_ns), ms(self.until_ns));
        write!(
            f,
            "{} {from}..{until} ms [{}]",
            self.class.name(),
            names(&self.nodes)
        )?;
        if !self.others.is_empty() {
            write!(f, " from [{}]", names(&self.others))?;
        }
        if self.amount != 0 {
            write!(f, " {}", self.amount)?;
        }
        Ok(())
    }
}
