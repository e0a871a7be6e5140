//! An agent: the real control side and the real segments, with memory of this process.
//!
//! What is played here is what its shell does: connections, the file of the epoch, making memory
//! and moving bytes, each of which takes time. Copies from agent to agent are refused.

mod frames;
mod moving;

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use larder_node_agent::step::{
    Action, AgentState, DataOrder, Event, LinkId, MakeId, Outbound, SegmentShape, Settings, step,
};
use larder_transfer::lane::session_bits;
use larder_transfer::{LocalMs, Segments, SlabMemory};
use larder_types::{AgentName, AgentUid, Epoch, Incarnation, Labels};
use larder_wire::agent::Event as Outcome;
use larder_wire::limit::{PROTOCOL_MAX, PROTOCOL_MIN};
use larder_wire::{
    AgentKey, FrameDecoder, FrameError, Hello, Kind, Purpose, Refused, RefusedReason,
    SessionVerifier, decode_body,
};
use tokio::time::sleep;

use self::moving::Moving;
use super::line::{Line, LineBody, LineName, LinePacket};
use super::network::Node;
use super::packet::Packet;
use super::stage::Context;
use crate::seed::Stream;

/// How long it takes to write the epoch down, in ms.
const SAVE_MS: u64 = 2;

/// What an agent is started with.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// Its name, which is also what its hello says.
    pub name: AgentName,
    /// Names its state folder.
    pub uid: AgentUid,
    /// Addresses of masters, and where they are.
    pub masters: Vec<(String, Node)>,
    /// How many slabs its one segment has.
    pub slabs: u32,
    /// The size of each, in bytes.
    pub slab_bytes: u64,
}

/// What outlives an agent's process: the highest epoch in its state folder, and the number of its
/// next line.
#[derive(Clone, Debug, Default)]
pub struct AgentFolder {
    epoch: Rc<Cell<Epoch>>,
    lines: Rc<Cell<u64>>,
}

struct OpenLine {
    line: Line,
    session: u32,
    decoder: FrameDecoder,
    requests: u64,
}

struct Agent {
    context: Context<Packet>,
    settings: AgentSettings,
    folder: AgentFolder,
    state: AgentState,
    segments: Segments,
    incarnation: Incarnation,
    /// To the present master, and to another one that is asked beside a silent one.
    lines: BTreeMap<LinkId, OpenLine>,
    memory: BTreeMap<MakeId, Arc<SlabMemory>>,
    saving: Option<(LocalMs, Epoch)>,
    moving: Moving,
    events: VecDeque<Event>,
    chance: Stream,
    ended: bool,
}

impl AgentFolder {
    /// The highest epoch that was written down.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch.get()
    }
}

/// Runs an agent until it is killed.
pub async fn run_agent(context: Context<Packet>, settings: AgentSettings, folder: AgentFolder) {
    Agent::new(context, settings, folder).run().await;
}

impl Agent {
    fn new(context: Context<Packet>, settings: AgentSettings, folder: AgentFolder) -> Self {
        let mut chance = context.seed.stream("agent");
        let incarnation = Incarnation(chance.draw());
        let shape = SegmentShape {
            slabs: settings.slabs,
            numa: 0,
        };
        let fixed = Settings {
            name: settings.name.clone(),
            uid: settings.uid,
            incarnation,
            data_addr: format!("{}:1", context.node),
            masters: settings
                .masters
                .iter()
                .map(|(addr, _)| addr.clone())
                .collect(),
            segments: vec![shape],
            slab_bytes: settings.slab_bytes,
            labels: Labels::default(),
        };
        Self {
            state: AgentState::new(fixed, folder.epoch.get(), chance.draw()),
            segments: Segments::new(incarnation, folder.epoch.get()),
            context,
            settings,
            folder,
            incarnation,
            lines: BTreeMap::new(),
            memory: BTreeMap::new(),
            saving: None,
            moving: Moving::default(),
            events: VecDeque::from([Event::Tick]),
            chance,
            ended: false,
        }
    }

    fn now(&self) -> LocalMs {
        LocalMs(self.context.face.local_ns() / 1_000_000)
    }

    async fn run(&mut self) {
        self.turn();
        while !self.ended {
            let wakes = [
                self.state.next_wake(),
                self.saving.map(|(due, _)| due),
                self.moving.next_wake(),
            ];
            let wake = wakes.into_iter().flatten().min();
            let pause_ms = wake.map_or(60_000, |wake| wake.0.saturating_sub(self.now().0));
            tokio::select! {
                biased;
                arrival = self.context.inbox.recv() => match arrival {
                    Some(arrival) => self.hear(arrival.from, arrival.message),
                    None => return,
                },
                () = sleep(Duration::from_millis(pause_ms)) => self.events.push_back(Event::Tick),
            }
            self.turn();
        }
    }

    /// Does all that is due.
    fn turn(&mut self) {
        let now = self.now();
        if let Some((_, epoch)) = self.saving.take_if(|(due, _)| *due <= now) {
            self.folder.epoch.set(epoch);
            self.events.push_back(Event::EpochSaved(epoch));
        }
        for (to, answer) in self.moving.finish(&mut self.segments, now) {
            self.context.send(to, answer);
        }
        loop {
            let outcomes = self.segments.take_events();
            if !outcomes.is_empty() {
                // Before what a master says: an answer never belongs to a later life of a slab.
                self.events.push_front(Event::Happened(outcomes));
            }
            let Some(event) = self.events.pop_front() else {
                return;
            };
            for action in step(&mut self.state, event, now) {
                self.perform(action, now);
            }
        }
    }

    fn hear(&mut self, from: Node, packet: Packet) {
        match packet {
            Packet::Line(packet) => self.hear_line(packet),
            Packet::Ask(ask) => {
                let (now, delay_ms) = (self.now(), self.chance.between(1, 4));
                let refused = self
                    .moving
                    .begin(&mut self.segments, from, ask, now, delay_ms);
                if let Some(refused) = refused {
                    self.context.send(from, refused);
                }
            }
            Packet::Told { .. } | Packet::PeerAsk { .. } | Packet::PeerTold { .. } => {}
        }
    }

    fn hear_line(&mut self, packet: LinePacket) {
        let mut lines = self.lines.iter_mut();
        let Some((link, open)) = lines.find(|(_, open)| open.line.name == packet.line) else {
            return;
        };
        let link = *link;
        let heard = match open.line.take(packet) {
            Ok(bodies) => bodies,
            Err(_) => vec![LineBody::Close],
        };
        for body in heard {
            match body {
                LineBody::Welcome(welcome) => {
                    if let Some(open) = self.lines.get_mut(&link) {
                        open.session = session_bits(&welcome);
                    }
                    self.events.push_back(Event::Opened(link, welcome.epoch));
                }
                LineBody::Frames(bytes) => {
                    if self.hear_frames(link, &bytes).is_err() {
                        self.close(link);
                    }
                }
                LineBody::Refused(refused) => self.refused(link, &refused),
                LineBody::Close => self.close(link),
                LineBody::Hello(_) => {}
            }
        }
    }

    fn close(&mut self, link: LinkId) {
        self.lines.remove(&link);
        self.events.push_back(Event::Closed(link));
    }

    fn refused(&mut self, link: LinkId, refused: &Refused) {
        if refused.reason != RefusedReason::NotLeader {
            return self.close(link);
        }
        self.lines.remove(&link);
        let leader = refused.leader_hint().map(str::to_owned);
        self.events.push_back(Event::NotLeader(link, leader));
    }

    fn hear_frames(&mut self, link: LinkId, bytes: &[u8]) -> Result<(), FrameError> {
        let Some(open) = self.lines.get_mut(&link) else {
            return Ok(());
        };
        open.decoder.feed(bytes);
        while let Some((header, body)) = open.decoder.next_frame()? {
            match frames::understand(&header, body)? {
                Some(said) => self.events.push_back(Event::Arrived(link, said)),
                None if header.kind == Kind::Goodbye => {
                    let refused: Refused = decode_body(header.kind, body)?;
                    self.refused(link, &refused);
                    return Ok(());
                }
                None => {}
            }
        }
        Ok(())
    }

    fn perform(&mut self, action: Action, now: LocalMs) {
        match action {
            Action::Connect { link, master } => self.connect(link, &master),
            Action::Disconnect(link) => {
                if let Some(mut open) = self.lines.remove(&link) {
                    let packet = open.line.packet(LineBody::Close);
                    self.context.send(open.line.peer, Packet::Line(packet));
                }
            }
            Action::Send(link, message) => self.send(link, &message),
            Action::SaveEpoch(epoch) => self.saving = Some((LocalMs(now.0 + SAVE_MS), epoch)),
            Action::MakeSlab { make, .. } => {
                let made = SlabMemory::create("sim-slab", self.settings.slab_bytes);
                let made = made.map_err(|error| error.to_string());
                let made = made.map(|memory| drop(self.memory.insert(make, Arc::new(memory))));
                self.events.push_back(Event::SlabMade(make, made));
            }
            Action::DropMade(make) => drop(self.memory.remove(&make)),
            Action::Data(order) => self.obey(order),
            Action::Note(_) => {}
            Action::Exit => self.ended = true,
        }
    }

    fn connect(&mut self, link: LinkId, master: &str) {
        let found = self
            .settings
            .masters
            .iter()
            .find(|(addr, _)| addr == master);
        let Some((_, peer)) = found else {
            self.events.push_back(Event::Closed(link));
            return;
        };
        let number = self.folder.lines.get() + 1;
        self.folder.lines.set(number);
        let name = LineName {
            opener: self.context.node,
            number,
        };
        let mut decoder = FrameDecoder::before_hello();
        decoder.accept(0);
        let mut open = OpenLine {
            line: Line::new(name, *peer),
            session: 0,
            decoder,
            requests: 0,
        };
        let hello = Hello {
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            features: 0,
            credential: self.settings.name.as_str().as_bytes().to_vec(),
            purpose: Purpose::Agent,
            name: self.settings.name.as_str().to_owned(),
            incarnation: self.incarnation,
        };
        let packet = open.line.packet(LineBody::Hello(Box::new(hello)));
        self.context.send(*peer, Packet::Line(packet));
        self.lines.insert(link, open);
    }

    fn send(&mut self, link: LinkId, message: &Outbound) {
        let Some(open) = self.lines.get_mut(&link) else {
            self.events.push_back(Event::Closed(link));
            return;
        };
        open.requests += 1;
        let encoded = frames::encode(message, open.requests, open.session);
        let Ok(bytes) = encoded else {
            return self.close(link);
        };
        let packet = open.line.packet(LineBody::Frames(bytes));
        self.context.send(open.line.peer, Packet::Line(packet));
    }

    fn obey(&mut self, order: DataOrder) {
        match order {
            DataOrder::Mounted(mounted) => {
                let key = AgentKey::new(mounted.capability_key, mounted.key_id);
                let verifier = SessionVerifier::new(mounted.session_key);
                self.segments
                    .mounted(mounted.agent, mounted.segments, key, verifier);
            }
            DataOrder::SeeEpoch {
                epoch,
                pool_time,
                heard,
                keeps,
            } => {
                // The control side lets nothing lower through.
                let _stale = if keeps {
                    self.segments.see_epoch_keeping(epoch, pool_time, heard)
                } else {
                    self.segments.see_epoch(epoch, pool_time, heard)
                };
            }
            DataOrder::List { walk, from } => {
                let page = self.segments.inventory_page(from);
                self.events.push_back(Event::Listed(walk, page));
            }
            DataOrder::Give {
                make,
                slab,
                tenant,
                view_bytes,
            } => {
                if let Some(memory) = self.memory.remove(&make) {
                    self.segments.give_slab(slab, tenant, memory, view_bytes);
                }
                if !self.segments.has_slab(slab) {
                    let detail = "this life of the slab is over".to_owned();
                    let failed = Outcome::SlabFailed { slab, detail };
                    self.events.push_back(Event::Happened(vec![failed]));
                }
            }
            DataOrder::Take(slab) => self.segments.take_slab(slab),
            DataOrder::Erase(extent, version) => self.segments.erase(extent, version),
            DataOrder::TenantGone(tenant) => self.segments.tenant_gone(&tenant),
            DataOrder::Copy(order) => {
                let detail = "copies are not played".to_owned();
                let failed = Outcome::CopyFailed {
                    copy: order.copy,
                    detail,
                };
                self.events.push_back(Event::Happened(vec![failed]));
            }
        }
    }
}
