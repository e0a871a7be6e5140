//! Three replicas on one runtime, over a network and disks in memory, in paused time.

mod compaction;
mod hand_over;
mod power;
mod release;
mod voters;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use larder_oplog::{
    BootId, Disk, DiskError, FakeDisk, Options, ReadDisk, SyncDone, SyncPolicy, SyncWork,
};
use larder_store::{Op, State, TenantPolicy, apply};
use larder_types::TenantId;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::desk::PeerSession;
use super::feed::{Feed, Input};
use super::link::{Link, Transport, TransportError};
use super::replica::Started;
use super::*;
use crate::log::Log;

mod members;

const ELECTION_MS: u64 = 400;

/// Time is paused: it passes when nothing else is to be done.
async fn elapse(ms: u64) {
    let never = std::future::pending::<()>();
    drop(timeout(Duration::from_millis(ms), never).await);
}

/// A disk that several have open, as a shared folder is.
#[derive(Clone, Default)]
struct SharedDisk(watch::Sender<FakeDisk>);

impl SharedDisk {
    fn with<T>(&self, work: impl FnOnce(&mut FakeDisk) -> T) -> T {
        let mut done = None;
        self.0.send_modify(|disk| done = Some(work(disk)));
        done.expect("done")
    }
}

impl ReadDisk for SharedDisk {
    fn list(&mut self) -> Result<Vec<String>, DiskError> {
        self.with(FakeDisk::list)
    }
    fn length(&mut self, name: &str) -> Result<u64, DiskError> {
        self.with(|disk| disk.length(name))
    }
    fn read_at(&mut self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.with(|disk| disk.read_at(name, offset, into))
    }
}

impl Disk for SharedDisk {
    fn create(&mut self, name: &str) -> Result<(), DiskError> {
        self.with(|disk| disk.create(name))
    }
    fn append(&mut self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        self.with(|disk| disk.append(name, bytes))
    }
    fn truncate(&mut self, name: &str, length: u64) -> Result<(), DiskError> {
        self.with(|disk| disk.truncate(name, length))
    }
    fn sync(&mut self, name: &str) -> Result<(), DiskError> {
        self.with(|disk| disk.sync(name))
    }
    fn begin_sync(&mut self, name: &str) -> Result<SyncWork, DiskError> {
        self.with(|disk| disk.begin_sync(name))
    }
    fn finish_sync(&mut self, done: SyncDone) -> Result<(), DiskError> {
        self.with(|disk| disk.finish_sync(done))
    }
    fn sync_folder(&mut self) -> Result<(), DiskError> {
        self.with(FakeDisk::sync_folder)
    }
    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        self.with(|disk| disk.rename(from, to))
    }
    fn remove(&mut self, name: &str) -> Result<(), DiskError> {
        self.with(|disk| disk.remove(name))
    }
}

/// Who is up, and which ways are cut.
#[derive(Default)]
struct Lines {
    desks: BTreeMap<String, PeerDesk>,
    /// From whom to whom nothing gets through.
    cut: BTreeSet<(String, String)>,
}

#[derive(Clone)]
struct Net {
    lines: watch::Sender<Lines>,
    from: String,
}

impl Transport for Net {
    type Link = NetLink;

    fn link(&self, member: &Member) -> NetLink {
        NetLink {
            net: self.clone(),
            to: member.name.clone(),
            session: PeerSession::default(),
        }
    }
}

struct NetLink {
    net: Net,
    to: String,
    session: PeerSession,
}

impl NetLink {
    fn is_cut(&self, from: &str, to: &str) -> bool {
        let lines = self.net.lines.borrow();
        lines.cut.contains(&(from.to_owned(), to.to_owned()))
    }
}

impl Link for NetLink {
    async fn call(
        &mut self,
        call: &PeerCall,
        within: Duration,
    ) -> Result<PeerAnswer, TransportError> {
        let (from, to) = (self.net.from.clone(), self.to.clone());
        let asked = async {
            elapse(1).await;
            let desk = self.net.lines.borrow().desks.get(&to).cloned();
            let Some(desk) = desk else {
                return Err(TransportError::Ended);
            };
            if self.is_cut(&from, &to) {
                std::future::pending::<()>().await;
            }
            let answer = desk.answer(&mut self.session, call.clone()).await;
            if self.is_cut(&to, &from) {
                std::future::pending::<()>().await;
            }
            Ok(answer)
        };
        timeout(within, asked)
            .await
            .unwrap_or(Err(TransportError::Late))
    }
}

/// One master without its shell.
struct Node {
    name: String,
    disk: SharedDisk,
    boot: u8,
    release: u32,
    running: Option<Running>,
}

struct Running {
    replica: Replica,
    /// The log takes it while this master leads.
    feed: Option<Feed>,
    log: Option<RaftLog>,
    state: State,
    applied_term: u64,
    led: u64,
}

fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

impl Running {
    /// Applies what is committed, and takes and leaves office.
    fn go_on(&mut self) {
        if let Some(log) = &mut self.log {
            match now(std::future::poll_fn(|context| log.poll_committed(context))) {
                Some(Ok(entry)) => {
                    for op in &entry.ops {
                        assert!(apply(&mut self.state, op).corruption.is_none());
                    }
                    return self.go_on();
                }
                Some(Err(_)) => self.feed = self.log.take().map(RaftLog::into_feed),
                None => {}
            }
        }
        while let Some(feed) = &mut self.feed
            && let Some(Some(input)) = now(feed.next())
        {
            match input {
                Input::Entry { at, ops } => {
                    if let Some(ops) = ops {
                        let flaw = crate::flaw::Flaw::default();
                        crate::standby::apply_proposal(&mut self.state, at, &ops, flaw)
                            .expect("fits");
                    }
                    self.applied_term = at.term;
                }
                Input::Restored { at, state } => {
                    self.state = *state;
                    self.applied_term = at.term;
                }
            }
            let standing = self.replica.standing();
            let is_whole = self.applied_term == standing.term;
            if standing.is_leader && is_whole && standing.term > self.led {
                self.led = standing.term;
                self.log = self
                    .feed
                    .take()
                    .map(|feed| self.replica.lead(feed, standing.term));
            }
        }
    }
}

struct Group {
    lines: watch::Sender<Lines>,
    nodes: Vec<Node>,
    start: Instant,
    growth_bytes: u64,
    /// How many of the masters, from the first, whoever starts now finds configured.
    configured: usize,
}

fn tenant_set(name: &str) -> Op {
    Op::TenantSet {
        tenant: TenantId::new(name).expect("valid"),
        policy: TenantPolicy::default(),
    }
}

impl Group {
    async fn start(count: usize) -> Self {
        let mut group = Self {
            lines: watch::Sender::default(),
            nodes: Vec::new(),
            start: Instant::now(),
            growth_bytes: u64::MAX,
            configured: count,
        };
        for _ in 0..count {
            group.add();
        }
        for number in 0..count {
            group.run(number).await;
        }
        group
    }

    fn add(&mut self) {
        self.nodes.push(Node {
            name: format!("master-{}", self.nodes.len()),
            disk: SharedDisk::default(),
            boot: 1,
            release: 1,
            running: None,
        });
    }

    fn members(&self) -> Vec<Member> {
        let nodes = self.nodes.iter().take(self.configured);
        let names = nodes.map(|node| node.name.clone());
        names
            .map(|name| Member {
                addr: name.clone(),
                name,
            })
            .collect()
    }

    async fn run(&mut self, number: usize) {
        let members = self.members();
        let start = self.start;
        let node = &mut self.nodes[number];
        let disk = node.disk.clone();
        let settings = ReplicaSettings {
            me: members[number].clone(),
            members,
            heartbeat_ms: ELECTION_MS / 5,
            election_ms: ELECTION_MS,
            log: Options {
                policy: SyncPolicy::Interval { ms: 20 },
                ..Options::default()
            },
            synced: larder_telemetry::metrics::CounterHandle::default(),
            growth_bytes: self.growth_bytes,
            boot: BootId([node.boot; 16]),
            release: node.release,
            seed: 40 + number as u64 + 10 * u64::from(node.boot),
            flaw: crate::flaw::Flaw::default(),
        };
        let volume: Volume = Arc::new(move || Ok(Box::new(disk.clone())));
        let net = Net {
            lines: self.lines.clone(),
            from: node.name.clone(),
        };
        let clock: Clock =
            Arc::new(move || u64::try_from(start.elapsed().as_millis()).expect("not for ever") + 1);
        let home = Home::Task(Arc::new(|| Duration::ZERO));
        let started = Replica::start(settings, volume, net, clock, home).await;
        let Started {
            replica,
            feed,
            state,
        } = started.expect("started");
        self.lines.send_modify(|lines| {
            let desk = replica.desk().clone();
            lines.desks.insert(node.name.clone(), desk);
        });
        node.running = Some(Running {
            replica,
            feed: Some(feed),
            log: None,
            state,
            applied_term: 0,
            led: 0,
        });
    }

    /// As kill -9 does: the disk keeps what was written.
    fn kill(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        node.running = None;
        let name = &node.name;
        self.lines
            .send_modify(|lines| drop(lines.desks.remove(name)));
    }

    /// Cuts a master off from these others, both ways, or joins them again.
    fn cut(&mut self, number: usize, others: &[usize], is_cut: bool) {
        for other in others {
            let (a, b) = (
                self.nodes[number].name.clone(),
                self.nodes[*other].name.clone(),
            );
            for way in [(a.clone(), b.clone()), (b, a)] {
                self.lines.send_modify(|lines| {
                    if is_cut {
                        lines.cut.insert(way);
                    } else {
                        lines.cut.remove(&way);
                    }
                });
            }
        }
    }

    async fn pass(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(5) {
            for node in &mut self.nodes {
                if let Some(running) = &mut node.running {
                    running.go_on();
                }
            }
            elapse(5).await;
            // At no moment two lead for certain.
            self.leader();
        }
    }

    /// Lets time pass until it is so; how long that took, in ms.
    async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) -> u64 {
        for step in 0..12_000 {
            if is_so(self) {
                return step * 5;
            }
            self.pass(5).await;
        }
        panic!("a minute passed without: {what}");
    }

    fn up(&self) -> impl Iterator<Item = (usize, &Running)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter_map(|(number, node)| Some((number, node.running.as_ref()?)))
    }

    /// Who leads for certain.
    fn leader(&self) -> Option<usize> {
        let leads = |running: &Running| running.log.as_ref().is_some_and(Log::is_certain);
        let mut leaders = self.up().filter(|(_, running)| leads(running));
        let leader = leaders.next().map(|(number, _)| number);
        assert_eq!(
            leaders.next().map(|(number, _)| number),
            None,
            "two lead for certain"
        );
        leader
    }

    fn propose(&mut self, leader: usize, ops: Vec<Op>) {
        let running = self.nodes[leader].running.as_mut().expect("up");
        running
            .log
            .as_mut()
            .expect("leads")
            .append(ops)
            .expect("proposed");
    }

    /// Proposes and waits until every master that is up has it.
    async fn commit(&mut self, tenant: &str) {
        self.until("a leader", |group| group.leader().is_some())
            .await;
        let leader = self.leader().expect("a leader");
        if self.nodes[leader]
            .running
            .as_ref()
            .expect("up")
            .state
            .generation()
            == 0
        {
            self.propose(leader, vec![Op::PoolBegun { generation: 1 }]);
        }
        self.propose(leader, vec![tenant_set(tenant)]);
        let id = TenantId::new(tenant).expect("valid");
        self.until("all have it", |group| {
            group
                .up()
                .all(|(_, running)| running.state.tenant(&id).is_some())
        })
        .await;
        let digests: BTreeSet<u64> = self
            .up()
            .map(|(_, running)| running.state.digest())
            .collect();
        assert_eq!(digests.len(), 1, "all have the same state");
    }

    fn desk(&self, number: usize) -> PeerDesk {
        let running = self.nodes[number].running.as_ref().expect("up");
        running.replica.desk().clone()
    }

    fn term(&self, number: usize) -> u64 {
        self.nodes[number]
            .running
            .as_ref()
            .expect("up")
            .replica
            .standing()
            .term
    }
}

#[tokio::test(start_paused = true)]
async fn three_form_a_pool_and_survive_the_death_of_each_leader() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    for round in 0..4 {
        let leader = group.leader().expect("a leader");
        let term = group.term(leader);
        group.kill(leader);
        let ms = group
            .until("another leader", |group| group.leader().is_some())
            .await;
        assert!(ms < 1_000, "{ms} ms");
        group.commit(&format!("b{round}")).await;
        let next = group.leader().expect("a leader");
        assert!(group.term(next) > term);
        group.run(leader).await;
        group.commit(&format!("c{round}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_alone_leads_again_after_each_start_in_a_new_term() {
    let mut group = Group::start(1).await;
    group.commit("a").await;
    let mut last = group.term(0);
    for round in 0..3 {
        group.kill(0);
        group.run(0).await;
        let ms = group
            .until("it leads", |group| group.leader().is_some())
            .await;
        assert!(ms < 300, "{ms} ms: it waits for nobody");
        assert!(group.term(0) > last, "versions count from 1 in each term");
        last = group.term(0);
        group.commit(&format!("b{round}")).await;
    }
    let tenants = ["a", "b0", "b1", "b2"].map(|name| TenantId::new(name).expect("valid"));
    let state = &group.nodes[0].running.as_ref().expect("up").state;
    assert!(tenants.iter().all(|tenant| state.tenant(tenant).is_some()));
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_was_cut_off_does_not_depose_the_leader() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    let leader = group.leader().expect("a leader");
    let (term, cut) = (group.term(leader), (leader + 1) % 3);
    let others = [leader, (leader + 2) % 3];
    group.cut(cut, &others, true);
    group.pass(30_000).await;
    assert_eq!(group.leader(), Some(leader));
    group.cut(cut, &others, false);
    group.pass(3_000).await;
    assert_eq!(group.leader(), Some(leader));
    assert_eq!(group.term(leader), term, "nobody stood for election");
    group.commit("b").await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_is_not_certain_before_another_leads() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    let old = group.leader().expect("a leader");
    let others = [(old + 1) % 3, (old + 2) % 3];
    group.cut(old, &others, true);
    // `leader` checks at each step that no two are certain at once.
    group
        .until("another leader", |group| {
            group.leader().is_some_and(|leader| leader != old)
        })
        .await;
    group.propose(old, vec![tenant_set("lost")]);
    let new = group.leader().expect("a leader");
    group.propose(new, vec![tenant_set("kept")]);
    group.pass(1_000).await;
    group.cut(old, &others, false);
    group.commit("b").await;
    let state = &group.nodes[old].running.as_ref().expect("up").state;
    assert!(
        state
            .tenant(&TenantId::new("kept").expect("valid"))
            .is_some()
    );
    assert!(
        state
            .tenant(&TenantId::new("lost").expect("valid"))
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_restarts_keeps_the_promise_it_has_forgotten() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    let old = group.leader().expect("a leader");
    let (b, c) = ((old + 1) % 3, (old + 2) % 3);
    for _ in 0..5 {
        // One has not heard the leader for long and would stand at once; the other keeps it in
        // office. That one is started again, and the leader is cut off just then: were its vote
        // to be had at once, two would be certain that they lead.
        group.cut(old, &[b], true);
        group.pass(1_500).await;
        assert_eq!(group.leader(), Some(old));
        group.cut(old, &[c], true);
        group.kill(c);
        group.run(c).await;
        group.pass(1_500).await;
        group.cut(old, &[b, c], false);
        let back = group.nodes[old]
            .running
            .as_ref()
            .expect("up")
            .replica
            .desk()
            .clone();
        group
            .until("a leader", |group| group.leader().is_some())
            .await;
        let leads = group.leader().expect("a leader");
        if leads != old {
            let lead = group.nodes[leads]
                .running
                .as_ref()
                .expect("up")
                .replica
                .desk()
                .clone();
            group.pass(1_000).await;
            lead.hand_over(Some(back.me.name.clone())).await.ok();
            group
                .until("the first leads again", |group| group.leader() == Some(old))
                .await;
        }
    }
    group.commit("b").await;
}

#[tokio::test(start_paused = true)]
async fn all_restart_and_go_on_where_they_were() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    for number in 0..3 {
        group.kill(number);
    }
    for number in 0..3 {
        group.run(number).await;
    }
    group.commit("b").await;
    let a = TenantId::new("a").expect("valid");
    assert!(
        group
            .up()
            .all(|(_, running)| running.state.tenant(&a).is_some())
    );
}

#[tokio::test(start_paused = true)]
async fn one_whose_disk_was_replaced_joins_anew() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    for number in 0..3 {
        group.kill(number);
        group.nodes[number].disk = SharedDisk::default();
        group.nodes[number].boot += 1;
        group.run(number).await;
        group.commit(&format!("b{number}")).await;
        group
            .until("it votes again", |group| {
                let running = group.nodes[number].running.as_ref().expect("up");
                let metrics = running.replica.metrics.borrow();
                let voters: Vec<u64> = metrics.membership_config.membership().voter_ids().collect();
                voters.len() == 3 && voters.contains(&running.replica.desk().replica)
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_taken_and_sent_to_one_that_is_far_behind() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    let leader = group.leader().expect("a leader");
    let away = (leader + 1) % 3;
    group.kill(away);
    for round in 0..20 {
        group.commit(&format!("b{round}")).await;
    }
    let raft = group.nodes[leader]
        .running
        .as_ref()
        .expect("up")
        .replica
        .raft
        .clone();
    raft.trigger().snapshot().await.expect("taken");
    group
        .until("a snapshot", |_| {
            raft.data_metrics().borrow().snapshot.is_some()
        })
        .await;
    let through = raft.data_metrics().borrow().snapshot.expect("taken").index;
    raft.trigger().purge_log(through).await.expect("purged");
    group
        .until("the log is purged", |_| {
            raft.data_metrics().borrow().purged.is_some()
        })
        .await;
    group.run(away).await;
    group.commit("c").await;
    // What it got is what it starts from.
    group.kill(away);
    group.run(away).await;
    group.commit("d").await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_begins_anew_behind_what_was_proposed_before() {
    let mut group = Group::start(1).await;
    group.commit("a").await;
    let running = group.nodes[0].running.as_mut().expect("up");
    let mut log = running.log.take().expect("leads");
    log.append(vec![tenant_set("b")]).expect("proposed");
    let begun = log.commit_alone(vec![Op::PoolBegun { generation: 2 }], &mut running.state);
    assert!(begun.await.expect("fits"));
    assert_eq!(running.state.generation(), 2);
    let b = TenantId::new("b").expect("valid");
    assert!(
        running.state.tenant(&b).is_none(),
        "it went with the pool before"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deposed_leader_hears_so_as_often_as_it_asks() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    let old = group.leader().expect("a leader");
    let mut log = group.nodes[old]
        .running
        .as_mut()
        .expect("up")
        .log
        .take()
        .expect("leads");
    let raft = group.nodes[old]
        .running
        .as_ref()
        .expect("up")
        .replica
        .raft
        .clone();
    raft.shutdown().await.expect("stopped");
    for _ in 0..3 {
        let next = std::future::poll_fn(|context| log.poll_committed(context));
        let heard = timeout(Duration::from_secs(5), next).await.expect("told");
        assert!(matches!(heard, Err(crate::log::LogError::NotLeader)));
    }
}
