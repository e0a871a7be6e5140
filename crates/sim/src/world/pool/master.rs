//! A real master on the stage: its lines, its calls, its life.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use larder_master::sim::{
    Door, PeerWay, SimClock, SimSettings, SimSync, SimVolume, Told, is_broken, master, why,
};
use larder_types::{AgentName, Principal, TenantId};
use larder_wire::{Hello, Purpose};
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::super::calls::{Caller, Calls};
use super::super::disk::MachineDisk;
use super::super::line::{Line, LineBody, LineName, LinePacket};
use super::super::network::Node;
use super::super::packet::Packet;
use super::super::stage::{Context, Outbox};
use super::judge::Judge;

/// How often a master is looked into.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Lines of a master; the oldest is forgotten. Agents and clients have one or two each.
const LINES_MAX: usize = 8_192;
/// What arrived for a line and was not read.
const FRAMES_MAX: usize = 256;

/// What a master is started with.
pub(super) struct MasterSettings {
    pub(super) sim: SimSettings,
    pub(super) disk: MachineDisk,
    /// Masters by address.
    pub(super) masters: Arc<BTreeMap<String, Node>>,
    /// What its clock is ahead, in ms; 0 unless it goes by the wall clock.
    pub(super) ahead_ms: Arc<AtomicI64>,
    pub(super) judge: Rc<RefCell<Judge>>,
}

#[derive(Clone)]
struct Way {
    caller: Caller,
    masters: Arc<BTreeMap<String, Node>>,
}

impl PeerWay for Way {
    async fn call(&self, addr: &str, body: Vec<u8>, within: Duration) -> Option<Vec<u8>> {
        let to = *self.masters.get(addr)?;
        self.caller.call(to, body, within).await.ok()
    }
}

struct Open {
    line: Rc<RefCell<Line>>,
    /// Where its frames go, once it said who it is.
    frames: Option<mpsc::Sender<Vec<u8>>>,
}

struct Lines {
    door: Door,
    outbox: Outbox<Packet>,
    open: BTreeMap<LineName, Open>,
}

/// Runs a master until it is killed or ends by itself.
pub(super) async fn run_master(mut context: Context<Packet>, settings: MasterSettings) {
    let MasterSettings {
        sim,
        disk,
        masters,
        ahead_ms,
        judge,
    } = settings;
    let node = context.node;
    let mut chance = context.seed.stream("master");
    let (caller, mut calls) = Calls::new(context.outbox(), chance.draw());
    let syncs = disk.clone();
    let volume: SimVolume = Arc::new(move || Ok(Box::new(disk.clone())));
    let face = context.face.clone();
    let clock: SimClock = Arc::new(move || {
        // Never 0: an hour is what it is ahead at least, so that it may be set back.
        let local_ms = face.local_ns() / 1_000_000 + 3_600_000;
        local_ms.saturating_add_signed(ahead_ms.load(Ordering::Relaxed))
    });
    let sync: SimSync = Arc::new(move || Duration::from_nanos(syncs.sync_ns()));
    let (door, life) = master(sim, volume, clock, sync, Way { caller, masters });
    let looked = spawn_local(look(
        door.clone(),
        context.face.clone(),
        node,
        Rc::clone(&judge),
    ));
    let mut lines = Lines {
        door,
        outbox: context.outbox(),
        open: BTreeMap::new(),
    };
    let mut life = pin!(life);
    loop {
        tokio::select! {
            biased;
            ended = &mut life => {
                looked.abort();
                if let Err(error) = ended {
                    let ending = format!("{node} ended: {}", why(&error));
                    judge.borrow_mut().end(ending, is_broken(&error));
                }
                return;
            }
            arrival = context.inbox.recv() => {
                let Some(arrival) = arrival else { return };
                match arrival.message {
                    Packet::PeerTold { number, body } => calls.told(arrival.from, number, body),
                    other => lines.hear(arrival.from, other),
                }
            }
            asked = calls.asked() => {
                let Some(asked) = asked else { return };
                calls.begin(asked);
            }
        }
    }
}

/// Looks into a master again and again.
async fn look(door: Door, face: super::super::stage::Face, node: Node, judge: Rc<RefCell<Judge>>) {
    loop {
        sleep(LOOK_EVERY).await;
        let before_ns = face.true_ns();
        let Some(look) = door.look().await else {
            continue;
        };
        let seen = (before_ns, face.true_ns());
        judge.borrow_mut().see(node, seen, look);
    }
}

/// Who speaks. What is proven here is what is said.
fn principal(hello: &Hello) -> Option<Principal> {
    let name = std::str::from_utf8(&hello.credential).ok()?;
    match hello.purpose {
        Purpose::Client => TenantId::new(name).ok().map(Principal::Tenant),
        Purpose::Agent => AgentName::new(name).ok().map(Principal::Agent),
        Purpose::Master | Purpose::Engine => None,
    }
}

impl Lines {
    fn hear(&mut self, from: Node, packet: Packet) {
        match packet {
            Packet::Line(packet) => self.hear_line(from, packet),
            Packet::PeerAsk { number, body } => {
                let (door, outbox) = (self.door.clone(), self.outbox.clone());
                spawn_local(async move {
                    if let Some(body) = door.answer(&body).await {
                        outbox.send(from, Packet::PeerTold { number, body });
                    }
                });
            }
            Packet::PeerTold { .. } | Packet::Ask(_) | Packet::Told { .. } => {}
        }
    }

    fn hear_line(&mut self, from: Node, packet: LinePacket) {
        let name = packet.line;
        if self.open.len() >= LINES_MAX {
            self.open.pop_first();
        }
        let open = self.open.entry(name).or_insert_with(|| Open {
            line: Rc::new(RefCell::new(Line::new(name, from))),
            frames: None,
        });
        let taken = open.line.borrow_mut().take(packet);
        for body in taken.unwrap_or_else(|_| vec![LineBody::Close]) {
            match body {
                LineBody::Hello(hello) => {
                    let (sender, frames) = mpsc::channel(FRAMES_MAX);
                    open.frames = Some(sender);
                    let (door, outbox) = (self.door.clone(), self.outbox.clone());
                    spawn_local(serve(door, outbox, Rc::clone(&open.line), hello, frames));
                }
                LineBody::Frames(bytes) => {
                    // A line that is read no more, or that has too much to read, is over.
                    let sent = open.frames.as_ref().map(|frames| frames.try_send(bytes));
                    if !matches!(sent, Some(Ok(()))) {
                        open.frames = None;
                    }
                }
                LineBody::Close => open.frames = None,
                LineBody::Welcome(_) | LineBody::Refused(_) => {}
            }
        }
    }
}

/// Serves a line to its end.
async fn serve(
    door: Door,
    outbox: Outbox<Packet>,
    line: Rc<RefCell<Line>>,
    hello: Box<Hello>,
    frames: mpsc::Receiver<Vec<u8>>,
) {
    let peer = line.borrow().peer;
    let send = |body: LineBody| {
        let packet = line.borrow_mut().packet(body);
        outbox.send(peer, Packet::Line(packet));
    };
    if let Some(principal) = principal(&hello) {
        let tell = |told: Told| {
            send(match told {
                Told::Welcome(welcome) => LineBody::Welcome(welcome),
                Told::Refused(refused) => LineBody::Refused(refused),
                Told::Frames(bytes) => LineBody::Frames(bytes),
            });
        };
        door.serve(&hello, principal, frames, tell).await;
    }
    send(LineBody::Close);
}
