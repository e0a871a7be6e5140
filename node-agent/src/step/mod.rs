//! The control side of an agent as a pure machine: `step(state, event, now)` gives actions.
//!
//! It connects to a master, mounts, sends heartbeats, obeys commands and answers them. It never
//! waits: making memory, writing the epoch to the disk and moving bytes are actions whose results
//! come back as events. So nothing slow can hold a heartbeat up.

mod gate;
mod inventory;
mod leave;
mod link;
mod pace;
mod probe;
mod said;
mod slabs;
#[cfg(test)]
mod tests;
mod waits;

use larder_transfer::{InventoryCursor, InventoryPage, LocalMs};
use larder_types::{
    AgentId, AgentName, AgentUid, Epoch, Extent, Incarnation, Labels, PoolTime, SegmentId, SlabRef,
    TenantId, Version,
};
use larder_wire::agent::{
    Beat, Commands, CopyOrder, Done, Event as Outcome, Heartbeat, Inventory, Mount, Mounted,
    Unmount,
};
use larder_wire::{CallResult, Reply};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use gate::Gate;
use inventory::Telling;
use link::Link;
use probe::Probe;
pub use slabs::SlabCounts;
use slabs::Slabs;

/// What does not change while the agent runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The agent's name.
    pub name: AgentName,
    /// What tells it from others of that name.
    pub uid: AgentUid,
    /// This process.
    pub incarnation: Incarnation,
    /// Where clients reach it, `host:port`.
    pub data_addr: String,
    /// Addresses of masters, never empty.
    pub masters: Vec<String>,
    /// One segment each; a segment's place in the list is its ordinal.
    pub segments: Vec<SegmentShape>,
    /// Size of each slab, in bytes.
    pub slab_bytes: u64,
    /// Where it is, as far as it was told.
    pub labels: Labels,
}

/// The shape of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentShape {
    /// How many slabs it has.
    pub slabs: u32,
    /// The NUMA node of its memory.
    pub numa: u16,
}

/// Names one attempt to talk to a master; counts up. What comes of an old one is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// Names one order to make memory; counts up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MakeId(pub u64);

/// Names one walk through what the data side holds; counts up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WalkId(pub u64);

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time passed; due when [`AgentState::next_wake`] says so, harmless at any time.
    Tick,
    /// The master accepted the hello, in this epoch.
    Opened(LinkId, Epoch),
    /// The link ended, or never came to be.
    Closed(LinkId),
    /// The same, because the master does not lead; it may have said who does, `host:port`.
    NotLeader(LinkId, Option<String>),
    /// The master said something.
    Arrived(LinkId, Inbound),
    /// The epoch is on the disk.
    EpochSaved(Epoch),
    /// The epoch could not be written; the log says why.
    EpochNotSaved,
    /// The data side has cut the writes of older epochs, as it was told with the last mount.
    Fenced,
    /// The order to make memory was done, or failed for the reason given.
    SlabMade(MakeId, Result<(), String>),
    /// The data side did something.
    Happened(Vec<Outcome>),
    /// The page of this walk that the data side was asked for.
    Listed(WalkId, InventoryPage),
    /// The agent shall stop.
    Stop,
}

/// What a master says.
#[derive(Clone, Debug)]
pub enum Inbound {
    /// Answer to a mount.
    Mounted(CallResult<Reply<Mounted>>),
    /// Answer to a heartbeat.
    Beat(CallResult<Reply<Beat>>),
    /// Answer to a page of the inventory.
    Taken(CallResult<Reply<()>>),
    /// Answer to an unmount, whatever it says.
    Unmounted,
    /// Commands.
    Commands(Commands),
}

/// What an agent says to a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outbound {
    /// Offers segments.
    Mount(Mount),
    /// Is alive.
    Heartbeat(Heartbeat),
    /// Tells what came of commands.
    Done(Done),
    /// Tells what it holds, a page of it.
    Inventory(Box<Inventory>),
    /// Takes its segments away.
    Unmount(Unmount),
}

/// What is to be done now, in order.
#[derive(Clone, Debug)]
pub enum Action {
    /// Open a connection and say hello.
    Connect {
        /// The name of the attempt.
        link: LinkId,
        /// The master's address.
        master: String,
    },
    /// Close the connection.
    Disconnect(LinkId),
    /// Send a message; if it cannot be sent, close the link and say so.
    Send(LinkId, Outbound),
    /// Write the epoch to the disk, off this thread, and tell when it is there.
    SaveEpoch(Epoch),
    /// Make memory, off this thread, and keep it until it is given or dropped.
    MakeSlab {
        /// The name of the order.
        make: MakeId,
        /// For which slab.
        slab: SlabRef,
        /// Of which segment: its place in [`Settings::segments`].
        ordinal: usize,
    },
    /// Let go of memory that nobody wants any more.
    DropMade(MakeId),
    /// Tell the data side.
    Data(DataOrder),
    /// Put something into log and metrics.
    Note(Note),
    /// Everything that a master needs to know is said: end the process.
    Exit,
}

/// What the data side is told.
#[derive(Clone, Debug)]
pub enum DataOrder {
    /// A master has taken the segments in.
    Mounted(Mounted),
    /// The highest epoch, and pool time as it was at `heard`. A new generation drops all slabs,
    /// unless they are to be kept.
    SeeEpoch {
        /// The epoch; it is on the disk.
        epoch: Epoch,
        /// Pool time.
        pool_time: PoolTime,
        /// When that was heard.
        heard: LocalMs,
        /// The pool is made again from what agents hold.
        keeps: bool,
    },
    /// Take the made memory as this slab.
    Give {
        /// The memory.
        make: MakeId,
        /// The slab.
        slab: SlabRef,
        /// Whose it is.
        tenant: TenantId,
        /// How many bytes of its views are allowed at once.
        view_bytes: Option<u64>,
    },
    /// Let go of the slab.
    Take(SlabRef),
    /// Erase the record and say when nothing holds the bytes.
    Erase(Extent, Version),
    /// Close the sessions of this tenant.
    TenantGone(TenantId),
    /// Make a copy and say what came of it.
    Copy(Box<CopyOrder>),
    /// Say what there is, a page of it. Behind the epoch of the master that asks: what is written
    /// by then is all that ever will be of older epochs.
    List {
        /// The walk that it belongs to.
        walk: WalkId,
        /// Where the page begins.
        from: Option<InventoryCursor>,
    },
}

/// Something worth a line in the log or a count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A master of the past spoke; nothing of what it said was done.
    LowerEpoch {
        /// Its epoch.
        told: Epoch,
        /// The highest seen.
        seen: Epoch,
    },
    /// Mounted; the first time, or again.
    Mounted {
        /// The agent's number.
        agent: AgentId,
        /// The epoch.
        epoch: Epoch,
    },
    /// The cache starts empty, and why.
    Emptied(&'static str),
    /// A master asks what there is, and everything is kept.
    Kept,
    /// It was told everything, in so many records.
    InventoryTold {
        /// How many.
        records: u64,
    },
    /// The link is given up, and why.
    LinkDropped(&'static str),
    /// A master refused a call.
    Refused(larder_wire::CallError),
    /// A heartbeat was sent.
    BeatSent,
    /// A heartbeat was answered.
    BeatAnswered,
    /// A slab could not be given, and why.
    SlabRefused(SlabRef, String),
}

/// What is worth knowing about an agent from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// A master has taken the segments in and the link is open.
    pub mounted: bool,
    /// When a master last answered a heartbeat or mount.
    pub answered: Option<LocalMs>,
    /// An answer older than this many milliseconds is too old to be called ready.
    pub fresh_ms: u64,
    /// The highest epoch that is on the disk.
    pub epoch: Epoch,
    /// Slabs by state.
    pub slabs: SlabCounts,
}

/// Numbers under which a master knows this agent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    agent: AgentId,
    segments: Vec<SegmentId>,
}

/// The control side of one agent.
#[derive(Debug)]
pub struct AgentState {
    settings: Settings,
    link: Link,
    probe: Probe,
    gate: Gate,
    slabs: Slabs,
    telling: Telling,
    /// As of the last mount, in this process.
    identity: Option<Identity>,
    /// The generation of the pool at the last mount, in this process.
    pool_generation: Option<u64>,
    /// How busy the data side was lately, per mille.
    load_permille: u16,
    random: SmallRng,
}

impl AgentState {
    /// How busy the data side was lately, per mille: for the next heartbeat.
    pub fn note_load(&mut self, load_permille: u16) {
        self.load_permille = load_permille;
    }

    /// A new agent. `saved` is the highest epoch in its state folder; `seed` is for back-off and
    /// the numbers of generations, none of which is a secret.
    #[must_use]
    pub fn new(settings: Settings, saved: Epoch, seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        Self {
            link: Link::new(),
            probe: Probe::default(),
            gate: Gate::new(saved),
            slabs: Slabs::new(&settings, &mut random),
            telling: Telling::default(),
            identity: None,
            pool_generation: None,
            load_permille: 0,
            settings,
            random,
        }
    }

    /// When the next [`Event::Tick`] is due; `None`: not until something else happens.
    #[must_use]
    pub fn next_wake(&self) -> Option<LocalMs> {
        let wakes = [self.link.next_wake(), self.probe_wake()];
        wakes.into_iter().flatten().min()
    }

    /// What is worth knowing from outside.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            mounted: self.link.is_mounted(),
            answered: self.link.answered(),
            fresh_ms: self.link.silence_ms(),
            epoch: self.gate.saved(),
            slabs: self.slabs.counts(),
        }
    }
}

/// Takes one event and gives what is to be done, in order.
pub fn step(state: &mut AgentState, event: Event, now: LocalMs) -> Vec<Action> {
    let mut actions = Vec::new();
    match event {
        Event::Tick => {}
        Event::Opened(link, epoch) => state.opened(link, epoch, now, &mut actions),
        Event::Closed(link) => state.closed(link, None, now, &mut actions),
        Event::NotLeader(link, leader) => {
            state.closed(link, leader.as_deref(), now, &mut actions);
        }
        Event::Arrived(link, message) => state.arrived(link, message, now, &mut actions),
        Event::EpochSaved(epoch) => state.epoch_saved(epoch, now, &mut actions),
        Event::EpochNotSaved => {
            state.gate.not_saved();
            state.drop_link("the epoch could not be saved", now, &mut actions);
        }
        Event::Fenced => state.fenced(&mut actions),
        Event::SlabMade(make, result) => state.slabs.made(make, result, &mut actions),
        Event::Happened(outcomes) => state.slabs.happened(outcomes, &mut actions),
        Event::Listed(walk, page) => state.listed(walk, page, &mut actions),
        Event::Stop => state.stop(now, &mut actions),
    }
    state.tick(now, &mut actions);
    state.tick_probe(now, &mut actions);
    state.send_answers(&mut actions);
    actions
}
