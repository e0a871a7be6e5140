//! Putting a replica together: openraft, the network, and the tasks that go with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use openraft::SnapshotPolicy;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::desk::{Heard, PeerDesk};
use super::doubt::{self, Doubt};
use super::feed::{FEED_LENGTH, Feed};
use super::formation::Join;
use super::hand_over::HandOver;
use super::keeper::Command;
use super::lease::Rounds;
use super::link::Transport;
use super::lost_tail::LostTail;
use super::machine::Machine;
use super::network::Network;
use super::recover::Recovered;
use super::replica::{Replica, ReplicaSettings, Started};
use super::snapshots::{Snapshots, Volume};
use super::store::{LogStore, Written};
use super::{
    Clock, ConsensusError, Member, Raft, StoredMembership, compaction, convert, election,
    formation, hand_over, release,
};

/// How long a master may take to install a snapshot, in ms.
const INSTALL_MS: u64 = 120_000;
/// Masters that wait to be let in.
const JOINS_LENGTH: usize = 4;

/// What stands before openraft does.
pub(super) struct Parts<T> {
    pub(super) settings: ReplicaSettings,
    pub(super) number: u64,
    pub(super) volume: Volume,
    pub(super) transport: T,
    pub(super) clock: Clock,
    pub(super) is_doubtful: bool,
    /// The term as of which the end of the log may be lost.
    pub(super) lost_tail: Option<u64>,
    pub(super) heard: Arc<Heard>,
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) written: Written,
}

/// What is asked of the tasks of a replica.
struct Asked {
    joins: mpsc::Receiver<Join>,
    hand_overs: mpsc::Receiver<HandOver>,
}

impl<T: Transport> Parts<T> {
    /// Starts openraft over the log and the state, and everything that goes with it.
    pub(super) async fn take_part(
        self,
        store: LogStore,
        recovered: Recovered,
    ) -> Result<Started, ConsensusError> {
        let snapshots = Snapshots::new(Arc::clone(&self.volume));
        let former = self.with_former(&recovered.membership);
        let (inputs, received) = mpsc::channel(FEED_LENGTH);
        let machine = Machine {
            inputs,
            applied: recovered.applied.map(convert::log_id_of),
            membership: recovered.membership,
            snapshots: snapshots.clone(),
        };
        let (rounds, _) = watch::channel(Rounds::default());
        let network = self.network(&rounds, &snapshots);
        let config = raft_config(&self.settings)?;
        let raft = Raft::new(self.number, config, network.clone(), store, machine).await;
        let raft = raft.map_err(|error| ConsensusError::Stopped(error.to_string()))?;
        let (desk, asked) = self.desk(&raft, &rounds, snapshots);
        let (doubt, doubt_seen) = watch::channel(Doubt::Settled);
        let (agreed, agreed_seen) = watch::channel(0);
        let tasks = self.tasks(&desk, network, asked, (doubt, agreed, former));
        let replica = Replica {
            metrics: raft.server_metrics(),
            raft,
            desk,
            rounds,
            commands: self.commands,
            // Clocks of two machines may differ in rate: a tenth is far more than they do.
            lease_ms: self.settings.election_ms - self.settings.election_ms / 10,
            flaw: self.settings.flaw,
            is_single: self.settings.members.len() == 1,
            doubt: doubt_seen,
            agreed: agreed_seen,
            _tasks: tasks,
        };
        Ok(Started {
            replica,
            feed: Feed::new(received),
            state: recovered.state,
        })
    }

    /// The configured masters, and those that vote still and are to leave: they may know more.
    fn with_former(&self, membership: &StoredMembership) -> Vec<Member> {
        let mut members = self.settings.members.clone();
        for (_, node) in membership.membership().nodes() {
            if !members.iter().any(|member| member.name == node.name) {
                members.push(node.clone());
            }
        }
        members
    }

    fn network(&self, rounds: &watch::Sender<Rounds>, snapshots: &Snapshots) -> Network<T> {
        let members = self.settings.members.iter();
        let addrs: BTreeMap<String, String> = members
            .map(|member| (member.name.clone(), member.addr.clone()))
            .collect();
        Network {
            transport: self.transport.clone(),
            addrs: Arc::new(addrs),
            rounds: rounds.clone(),
            clock: Arc::clone(&self.clock),
            snapshots: snapshots.clone(),
        }
    }

    fn desk(
        &self,
        raft: &Raft,
        rounds: &watch::Sender<Rounds>,
        snapshots: Snapshots,
    ) -> (PeerDesk, Asked) {
        let (joins, joining) = mpsc::channel(JOINS_LENGTH);
        let (hand_overs, handing_over) = mpsc::channel(1);
        let (floor, _) = watch::channel(None);
        let (behind, _) = watch::channel(true);
        let (resigning, _) = watch::channel(false);
        let members = self.settings.members.iter();
        let (named, _) = watch::channel(members.map(|member| member.name.clone()).collect());
        let desk = PeerDesk {
            raft: raft.clone(),
            replica: self.number,
            me: self.settings.me.clone(),
            metrics: raft.server_metrics(),
            data: raft.data_metrics(),
            rounds: rounds.clone(),
            heard: Arc::clone(&self.heard),
            clock: Arc::clone(&self.clock),
            election_ms: self.settings.election_ms,
            is_doubtful: Arc::new(AtomicBool::new(self.is_doubtful)),
            lost_tail: Arc::new(LostTail::new(self.lost_tail)),
            release: self.settings.release,
            floor,
            behind,
            named,
            joins,
            hand_overs,
            resigning,
            snapshots,
            written: self.written.clone(),
        };
        let asked = Asked {
            joins: joining,
            hand_overs: handing_over,
        };
        (desk, asked)
    }

    fn tasks(
        &self,
        desk: &PeerDesk,
        network: Network<T>,
        asked: Asked,
        (doubt, agreed, former): (watch::Sender<Doubt>, watch::Sender<u32>, Vec<Member>),
    ) -> JoinSet<()> {
        let members = self.settings.members.clone();
        let (desk, net) = (|| desk.clone(), || network.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(election::stand(desk(), net(), self.settings.seed));
        if self.is_doubtful {
            doubt.send_replace(Doubt::Open);
            let commands = self.commands.clone();
            let settling = doubt::settle(desk(), net(), former, commands, doubt);
            tasks.spawn(settling);
        } else if self.lost_tail.is_some() {
            tasks.spawn(doubt::forget(desk(), self.commands.clone()));
        }
        tasks.spawn(release::agree(desk(), net(), agreed));
        tasks.spawn(hand_over::serve(desk(), net(), asked.hand_overs));
        tasks.spawn(formation::form(desk(), net(), members));
        tasks.spawn(formation::admit(desk(), asked.joins));
        tasks.spawn(compaction::compact(
            desk().raft,
            self.written.clone(),
            Arc::clone(&self.volume),
            self.settings.growth_bytes,
        ));
        tasks
    }
}

fn raft_config(settings: &ReplicaSettings) -> Result<Arc<openraft::Config>, ConsensusError> {
    let config = openraft::Config {
        cluster_name: "larder".to_owned(),
        heartbeat_interval: settings.heartbeat_ms,
        // So long may the answer to a vote take, which the other one syncs first; openraft's own
        // elections are off.
        election_timeout_min: settings.election_ms - 1,
        election_timeout_max: settings.election_ms,
        enable_elect: false,
        snapshot_policy: SnapshotPolicy::Never,
        // What goes behind a snapshot is decided where it is taken.
        max_in_snapshot_log_to_keep: u64::MAX / 2,
        max_payload_entries: 1_024,
        install_snapshot_timeout: INSTALL_MS,
        ..openraft::Config::default()
    };
    let config = config.validate();
    let config = config.map_err(|error| ConsensusError::Stopped(error.to_string()))?;
    Ok(Arc::new(config))
}
