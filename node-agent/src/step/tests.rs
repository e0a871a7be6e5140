//! The control side told events: what it does, in what order, and what it never does.

mod answers;
mod chaos;
mod inventory;
mod links;

use larder_types::{Registration, TenantId};
use larder_wire::CallError;
use larder_wire::agent::Command;

use super::link::Phase;
use super::*;

const SLAB_BYTES: u64 = 2 << 20;
const SAVED: Epoch = Epoch {
    generation: 3,
    term: 1,
};

fn settings() -> Settings {
    Settings {
        name: AgentName::new("small-0").expect("a name"),
        uid: AgentUid(7),
        incarnation: Incarnation(9),
        data_addr: "192.0.2.1:4000".to_owned(),
        masters: vec!["m0:1".to_owned(), "m1:1".to_owned(), "m2:1".to_owned()],
        segments: vec![
            SegmentShape { slabs: 4, numa: 0 },
            SegmentShape { slabs: 2, numa: 1 },
        ],
        slab_bytes: SLAB_BYTES,
        labels: "zone=z".parse().expect("labels"),
    }
}

fn tenant() -> TenantId {
    TenantId::new("a").expect("a name")
}

fn slab(segment: u32, index: u16, registration: u64) -> SlabRef {
    SlabRef {
        agent: AgentId(5),
        segment: SegmentId(segment),
        index,
        registration: Registration(registration),
    }
}

fn extent(slab: SlabRef, unit: u64) -> Extent {
    Extent {
        slab,
        offset_bytes: unit * 256,
        length_bytes: 256,
    }
}

fn version(epoch: Epoch, counter: u64) -> Version {
    Version { epoch, counter }
}

fn give(slab: SlabRef) -> Command {
    Command::SlabGive {
        slab,
        tenant: tenant(),
        slab_bytes: SLAB_BYTES,
        view_bytes: None,
    }
}

fn mounted(outstanding: Vec<Command>) -> Mounted {
    Mounted {
        agent: AgentId(5),
        segments: vec![SegmentId(10), SegmentId(11)],
        capability_key: [1; 32],
        key_id: 1,
        session_key: [2; 32],
        heartbeat_ms: 100,
        outstanding,
        wants_inventory: false,
    }
}

fn reply<T>(epoch: Epoch, answer: T) -> Reply<T> {
    Reply {
        epoch,
        pool_time: PoolTime(1),
        answer,
    }
}

/// An agent and the time at which it lives.
struct Bench {
    state: AgentState,
    now: LocalMs,
}

impl Bench {
    fn new() -> Self {
        Self {
            state: AgentState::new(settings(), SAVED, 1),
            now: LocalMs(1_000),
        }
    }

    /// The same with one master only.
    fn alone() -> Self {
        let mut settings = settings();
        settings.masters.truncate(1);
        Self {
            state: AgentState::new(settings, SAVED, 1),
            ..Self::new()
        }
    }

    fn tell(&mut self, event: Event) -> Vec<Action> {
        step(&mut self.state, event, self.now)
    }

    /// Lets time pass to the next wake.
    fn wake(&mut self) -> Vec<Action> {
        let wake = self.state.next_wake().expect("something is due");
        self.now = self.now.max(wake);
        self.tell(Event::Tick)
    }

    /// Lets time pass until it connects; the link and its master.
    fn connecting(&mut self) -> (LinkId, String) {
        if !matches!(self.state.link.phase, Phase::Connecting { .. }) {
            self.wake();
        }
        let Phase::Connecting { link, .. } = self.state.link.phase else {
            panic!("{:?}", self.state.link)
        };
        let master = &self.state.settings.masters[self.state.link.master()];
        (link, master.clone())
    }

    /// Connects and says hello; the mount is under way.
    fn open(&mut self) -> LinkId {
        let (link, _) = self.connecting();
        let actions = self.tell(Event::Opened(link, SAVED));
        let [Action::Send(to, Outbound::Mount(_))] = &actions[..] else {
            panic!("{actions:?}")
        };
        assert_eq!(*to, link);
        link
    }

    fn mount_answer(&mut self, link: LinkId, epoch: Epoch, with: Mounted) -> Vec<Action> {
        self.tell(Event::Arrived(
            link,
            Inbound::Mounted(Ok(reply(epoch, with))),
        ))
    }

    /// Connects and mounts in the saved epoch.
    fn mount(&mut self) -> LinkId {
        let link = self.open();
        self.mount_answer(link, SAVED, mounted(Vec::new()));
        assert!(self.state.status().mounted);
        link
    }

    fn command(&mut self, link: LinkId, epoch: Epoch, commands: Vec<Command>) -> Vec<Action> {
        let commands = Commands {
            epoch,
            pool_time: PoolTime(2),
            commands,
        };
        self.tell(Event::Arrived(link, Inbound::Commands(commands)))
    }

    fn beat(&mut self, link: LinkId, epoch: Epoch, known: bool) -> Vec<Action> {
        self.tell(Event::Arrived(
            link,
            Inbound::Beat(Ok(reply(epoch, Beat { known }))),
        ))
    }
}

fn sent(actions: &[Action]) -> Vec<&Outbound> {
    let sent = actions.iter().filter_map(|action| match action {
        Action::Send(_, message) => Some(message),
        _ => None,
    });
    sent.collect()
}

fn answers(actions: &[Action]) -> Vec<Outcome> {
    let batches = sent(actions)
        .into_iter()
        .filter_map(|message| match message {
            Outbound::Done(done) => Some(done.events.clone()),
            _ => None,
        });
    batches.flatten().collect()
}

fn orders(actions: &[Action]) -> Vec<&DataOrder> {
    let orders = actions.iter().filter_map(|action| match action {
        Action::Data(order) => Some(order),
        _ => None,
    });
    orders.collect()
}

fn made(actions: &[Action]) -> Vec<(MakeId, SlabRef)> {
    let made = actions.iter().filter_map(|action| match action {
        Action::MakeSlab { make, slab, .. } => Some((*make, *slab)),
        _ => None,
    });
    made.collect()
}

fn saves(actions: &[Action]) -> Vec<Epoch> {
    let saves = actions.iter().filter_map(|action| match action {
        Action::SaveEpoch(epoch) => Some(*epoch),
        _ => None,
    });
    saves.collect()
}

fn connects(actions: &[Action]) -> Vec<(LinkId, String)> {
    let connects = actions.iter().filter_map(|action| match action {
        Action::Connect { link, master } => Some((*link, master.clone())),
        _ => None,
    });
    connects.collect()
}

fn disconnects(actions: &[Action]) -> bool {
    actions
        .iter()
        .any(|action| matches!(action, Action::Disconnect(_)))
}

fn refusal(reason: larder_types::Reason, detail: &str) -> CallError {
    CallError {
        reason,
        detail: detail.to_owned(),
    }
}
