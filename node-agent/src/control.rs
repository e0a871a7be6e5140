//! The control thread: next event, step, perform. Never waits for memory, disk or data.

mod waits;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle as ThreadHandle;
use std::time::Duration;

use larder_telemetry::Registry;
use larder_transfer::{InventoryPage, SlabMemory};
use larder_types::{Epoch, SlabRef};
use larder_wire::agent::Event as Outcome;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::data::{DataMessage, now};
use crate::epoch_file;
use crate::error::AgentError;
use crate::load::LoadMeter;
use crate::maker::{Made, MakeOrder};
use crate::master_link::{self, Caller, LinkEvent};
use crate::metrics::count_note;
use crate::ready_file::ReadyFile;
use crate::state_dir::StateError;
use crate::step::{
    Action, AgentState, DataOrder, Event, LinkId, MakeId, Note, Outbound, Status, WalkId, step,
};
use waits::{answered, finished, listed, saved_event, send_order, told_to_stop};

/// Messages to a master that wait for the socket. A heartbeat a second and batches of answers:
/// more than this means that the master does not read.
const OUTBOUND_MAX: usize = 256;
/// What masters said and that is not looked at yet; each at most one frame of 1 MiB.
const LINK_EVENTS_MAX: usize = 16;
/// Orders that wait for the data thread. From here up nothing more is read from the master, which
/// holds the commands back at its end; one frame of commands may still come on top.
const ORDERS_MAX: usize = 8_192;
/// Blocking work beside the loop: saving the epoch, the ready file, and letting memory go.
const BLOCKING_THREADS_MAX: usize = 4;

/// What the control thread starts with.
#[derive(Debug)]
pub(crate) struct ControlStart {
    pub(crate) state: AgentState,
    pub(crate) caller: Caller,
    pub(crate) slab_bytes: u64,
    pub(crate) epoch_path: PathBuf,
    pub(crate) ready: Option<ReadyFile>,
    pub(crate) registry: Registry,
    /// One for each segment.
    pub(crate) makers: Vec<mpsc::Sender<MakeOrder>>,
    pub(crate) made: mpsc::Receiver<Made>,
    pub(crate) data: mpsc::Sender<DataMessage>,
    /// Of the data thread.
    pub(crate) load: LoadMeter,
    pub(crate) outcomes: mpsc::Receiver<Vec<Outcome>>,
    pub(crate) status: watch::Sender<Status>,
    /// Whoever asks whether this thread turns.
    pub(crate) pings: mpsc::Receiver<oneshot::Sender<()>>,
    pub(crate) stop: watch::Receiver<bool>,
}

/// Starts the thread. It ends when the agent has said good-bye to its master.
pub(crate) fn spawn(start: ControlStart) -> std::io::Result<ThreadHandle<Result<(), AgentError>>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build()?;
    std::thread::Builder::new()
        .name("larder-control".to_owned())
        .spawn(move || runtime.block_on(Control::new(start).run()))
}

struct OpenLink {
    link: LinkId,
    outbound: mpsc::Sender<Outbound>,
}

struct Control {
    start: ControlStart,
    /// The link to the master and, while that is silent, one to another.
    links: Vec<OpenLink>,
    link_events: mpsc::Receiver<(LinkId, LinkEvent)>,
    link_sender: mpsc::Sender<(LinkId, LinkEvent)>,
    /// Made and not yet given; at most one for each slab.
    memory: BTreeMap<MakeId, Arc<SlabMemory>>,
    orders: VecDeque<DataMessage>,
    saving: Option<JoinHandle<Result<Epoch, StateError>>>,
    /// The ready file on its way to the disk.
    telling: Option<JoinHandle<Result<(), AgentError>>>,
    /// The data side answers this when it has seen the epoch of the last mount.
    fencing: Option<oneshot::Receiver<()>>,
    /// The page that the data side was asked for last.
    listing: Option<(WalkId, oneshot::Receiver<InventoryPage>)>,
    /// What performing an action led to at once.
    follow_up: VecDeque<Event>,
    stopping: bool,
    exit: bool,
}

impl Control {
    fn new(start: ControlStart) -> Self {
        let (link_sender, link_events) = mpsc::channel(LINK_EVENTS_MAX);
        Self {
            start,
            links: Vec::new(),
            link_events,
            link_sender,
            memory: BTreeMap::new(),
            orders: VecDeque::new(),
            saving: None,
            telling: None,
            fencing: None,
            listing: None,
            follow_up: VecDeque::new(),
            stopping: false,
            exit: false,
        }
    }

    async fn run(mut self) -> Result<(), AgentError> {
        self.handle(Event::Tick);
        while !self.exit {
            if let Some(event) = self.next_event().await? {
                self.handle(event);
            }
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) {
        if let Some(load_permille) = self.start.load.look() {
            self.start.state.note_load(load_permille);
        }
        self.follow_up.push_back(event);
        while let Some(event) = self.follow_up.pop_front() {
            for action in step(&mut self.start.state, event, now()) {
                self.perform(action);
            }
        }
        let status = self.start.state.status();
        self.start.status.send_if_modified(|shown| {
            let changed = *shown != status;
            *shown = status;
            changed
        });
    }

    /// Waits for the next thing that happens. What the data side did comes before what a master
    /// says, so that an answer never belongs to a later life of the same slab.
    async fn next_event(&mut self) -> Result<Option<Event>, AgentError> {
        let wake = self.start.state.next_wake();
        let pause_ms = wake.map_or(0, |wake| wake.0.saturating_sub(now().0));
        let (waiting, listening) = (!self.orders.is_empty(), self.orders.len() < ORDERS_MAX);
        let start = &mut self.start;
        let heard = tokio::select! {
            biased;
            () = told_to_stop(&mut start.stop), if !self.stopping => Heard::Stop,
            Some(pong) = start.pings.recv() => Heard::Ping(pong),
            outcomes = start.outcomes.recv() => Heard::Outcomes(outcomes),
            sent = send_order(&start.data, &mut self.orders), if waiting => Heard::Sent(sent),
            () = tokio::time::sleep(Duration::from_millis(pause_ms)), if wake.is_some() => {
                Heard::Time
            }
            saved = finished(&mut self.saving) => Heard::Saved(saved),
            told = finished(&mut self.telling) => Heard::Told(told),
            () = answered(&mut self.fencing) => Heard::Fenced,
            (walk, page) = listed(&mut self.listing) => Heard::Listed(walk, page),
            made = start.made.recv() => Heard::Made(made),
            // Never `None`: this side holds a sender.
            Some((link, event)) = self.link_events.recv(), if listening => {
                Heard::Link(link, event)
            }
        };
        Ok(Some(match heard {
            Heard::Stop => {
                self.stopping = true;
                Event::Stop
            }
            Heard::Outcomes(outcomes) => {
                Event::Happened(outcomes.ok_or(AgentError::Ended("data"))?)
            }
            Heard::Ping(pong) => {
                // Whoever asked may have given up.
                let _ = pong.send(());
                return Ok(None);
            }
            Heard::Sent(sent) => return sent.map(|()| None),
            Heard::Time => Event::Tick,
            // Whoever waits for the ready file learns why it does not come. Later, or where nobody
            // waits, the agent tries again: what it holds is worth more than its end.
            Heard::Saved(Ok(Err(error))) if self.start.ready.is_some() => return Err(error.into()),
            Heard::Saved(saved) => saved_event(saved),
            Heard::Told(told) => {
                return told
                    .map_err(|_| AgentError::Ended("ready file"))?
                    .map(|()| None);
            }
            Heard::Fenced => Event::Fenced,
            Heard::Listed(walk, page) => Event::Listed(walk, page),
            Heard::Made(made) => {
                let Made { make, result } = made.ok_or(AgentError::Ended("memory"))?;
                let keep = |memory| drop(self.memory.insert(make, Arc::new(memory)));
                Event::SlabMade(make, result.map(keep))
            }
            Heard::Link(link, event) => self.link_event(link, event),
        }))
    }

    fn link_event(&mut self, link: LinkId, event: LinkEvent) -> Event {
        match event {
            LinkEvent::Opened(epoch) => Event::Opened(link, epoch),
            LinkEvent::Said(said) => Event::Arrived(link, said),
            LinkEvent::Closed => {
                self.forget(link);
                Event::Closed(link)
            }
            LinkEvent::NotLeader(leader) => {
                self.forget(link);
                Event::NotLeader(link, leader)
            }
        }
    }

    /// The task of the link, if there still is one, writes what it still has, then hangs up.
    fn forget(&mut self, link: LinkId) {
        self.links.retain(|open| open.link != link);
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Connect { link, master } => self.connect(link, master),
            Action::Disconnect(link) => self.forget(link),
            Action::Send(link, message) => self.send(link, message),
            Action::SaveEpoch(epoch) => {
                let path = self.start.epoch_path.clone();
                let save = move || epoch_file::save(&path, epoch).map(|()| epoch);
                self.saving = Some(spawn_blocking(save));
            }
            Action::MakeSlab {
                make,
                slab,
                ordinal,
            } => self.make(make, slab, ordinal),
            Action::DropMade(make) => self.let_go(make),
            Action::Data(order) => self.order(order),
            Action::Note(note) => self.note(&note),
            Action::Exit => self.exit = true,
        }
    }

    fn connect(&mut self, link: LinkId, master: String) {
        let (outbound, waiting) = mpsc::channel(OUTBOUND_MAX);
        let caller = self.start.caller.clone();
        tokio::spawn(master_link::run(
            link,
            master,
            caller,
            waiting,
            self.link_sender.clone(),
        ));
        self.links.push(OpenLink { link, outbound });
    }

    fn send(&mut self, link: LinkId, message: Outbound) {
        let open = self.links.iter().find(|open| open.link == link);
        let sent = open.is_some_and(|open| open.outbound.try_send(message).is_ok());
        if !sent {
            tracing::warn!("the master does not read what it is sent");
            self.forget(link);
            self.follow_up.push_back(Event::Closed(link));
        }
    }

    fn make(&mut self, make: MakeId, slab: SlabRef, ordinal: usize) {
        let name = format!(
            "larder-{}-{}-{}",
            slab.segment, slab.index, slab.registration
        );
        let order = MakeOrder {
            make,
            name,
            bytes: self.start.slab_bytes,
        };
        let maker = self.start.makers.get(ordinal);
        if maker.is_none_or(|maker| maker.try_send(order).is_err()) {
            let detail = "too many slabs wait to be made".to_owned();
            self.follow_up.push_back(Event::SlabMade(make, Err(detail)));
        }
    }

    /// Giving pages back takes its time too.
    fn let_go(&mut self, make: MakeId) {
        if let Some(memory) = self.memory.remove(&make) {
            drop(spawn_blocking(move || drop(memory)));
        }
    }

    fn order(&mut self, order: DataOrder) {
        let message = match order {
            DataOrder::Give {
                make,
                slab,
                tenant,
                view_bytes,
            } => {
                let Some(memory) = self.memory.remove(&make) else {
                    tracing::error!(?slab, "the memory of a slab is missing");
                    let detail = "its memory is missing".to_owned();
                    let failed = Outcome::SlabFailed { slab, detail };
                    self.follow_up.push_back(Event::Happened(vec![failed]));
                    return;
                };
                DataMessage::Give {
                    slab,
                    tenant,
                    memory,
                    view_bytes,
                }
            }
            DataOrder::List { walk, from } => {
                let (page, listing) = oneshot::channel();
                self.listing = Some((walk, listing));
                DataMessage::List(from, page)
            }
            order => DataMessage::Order(order),
        };
        let is_mount = matches!(message, DataMessage::Order(DataOrder::Mounted(_)));
        self.orders.push_back(message);
        if is_mount {
            // Orders are obeyed in turn: the answer to this one comes when those before are done.
            let (done, fencing) = oneshot::channel();
            self.orders.push_back(DataMessage::Show(done));
            self.fencing = Some(fencing);
        }
    }

    fn note(&mut self, note: &Note) {
        count_note(&self.start.registry, note);
        match note {
            Note::Mounted { agent, epoch } => {
                tracing::info!(%agent, %epoch, "mounted");
                if let Some(ready) = self.start.ready.take() {
                    self.telling = Some(spawn_blocking(move || ready.write()));
                }
            }
            Note::Emptied(why) => tracing::warn!("the cache of this node starts empty: {why}"),
            Note::Kept => tracing::warn!("the pool lost its log; it is told what this node holds"),
            Note::InventoryTold { records } => {
                tracing::info!(records, "the pool was told what this node holds");
            }
            Note::LinkDropped(why) => tracing::warn!("leaving the master: {why}"),
            Note::Refused(error) => tracing::warn!(%error, "the master refused"),
            Note::LowerEpoch { told, seen } => {
                tracing::warn!(%told, %seen, "a master of an older epoch is not obeyed");
            }
            Note::SlabRefused(slab, detail) => {
                tracing::warn!(segment = %slab.segment, index = slab.index, "no slab: {detail}");
            }
            Note::BeatSent | Note::BeatAnswered => {}
        }
    }
}

/// What came first.
enum Heard {
    Stop,
    Ping(oneshot::Sender<()>),
    Outcomes(Option<Vec<Outcome>>),
    Sent(Result<(), AgentError>),
    Time,
    Saved(Saved),
    Told(Result<Result<(), AgentError>, tokio::task::JoinError>),
    Fenced,
    Listed(WalkId, InventoryPage),
    Made(Option<Made>),
    Link(LinkId, LinkEvent),
}

type Saved = Result<Result<Epoch, StateError>, tokio::task::JoinError>;
