//! Answers the calls of other masters.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_oplog::{DiskError, Made};
use openraft::ServerState;
use openraft::metrics::RaftDataMetrics;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest};
use tokio::sync::{mpsc, oneshot, watch};

use super::convert::{self, at, ballot, log_id, vote};
use super::feed::{ServerMetrics, Standing};
use super::formation::Join;
use super::hand_over::HandOver;
use super::lease::Rounds;
use super::lost_tail::LostTail;
use super::membership::BEHIND_MAX;
use super::message::{
    Appended, At, Ballot, PeerAnswer, PeerCall, PeerRequest, SentEntry, SentMembers, WhoIs,
};
use super::snapshots::{AnyDisk, Incoming, Piece, Snapshots, SnapshotsError};
use super::store::Written;
use super::{Clock, Member, Raft};

/// When this replica last heard from a leader, and when it may trust that none was promised
/// anything: what elections go by.
#[derive(Debug)]
pub(super) struct Heard {
    /// On the replica's clock. At the start it is as if a leader had just been heard: before the
    /// process died it may have taken an append, and the leader counts on its silence.
    at_ms: AtomicU64,
    /// When this replica last voted for another; 0: never. A candidate is given time to win.
    voted_ms: AtomicU64,
}

impl Heard {
    pub(super) const fn new(now_ms: u64) -> Self {
        Self {
            at_ms: AtomicU64::new(now_ms),
            voted_ms: AtomicU64::new(0),
        }
    }

    pub(super) fn note(&self, now_ms: u64) {
        self.at_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// No leader was promised anything: a membership of its own, or none yet.
    pub(super) fn clear(&self) {
        self.at_ms.store(0, Ordering::Relaxed);
    }

    pub(super) fn at_ms(&self) -> u64 {
        self.at_ms.load(Ordering::Relaxed)
    }

    pub(super) fn note_vote(&self, now_ms: u64) {
        self.voted_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// When this replica last voted for another.
    pub(super) fn voted_ms(&self) -> Option<u64> {
        Some(self.voted_ms.load(Ordering::Relaxed)).filter(|at_ms| *at_ms > 0)
    }
}

/// What every call of another master is answered from. Cheap to clone.
#[derive(Clone)]
pub(crate) struct PeerDesk {
    pub(super) raft: Raft,
    pub(super) replica: u64,
    pub(super) me: Member,
    pub(super) metrics: ServerMetrics,
    pub(super) data: watch::Receiver<RaftDataMetrics<u64>>,
    pub(super) rounds: watch::Sender<Rounds>,
    pub(super) heard: Arc<Heard>,
    pub(super) clock: Clock,
    pub(super) election_ms: u64,
    pub(super) is_doubtful: Arc<std::sync::atomic::AtomicBool>,
    /// The end of the log that this replica votes for may be lost, and agents may know of it.
    pub(super) lost_tail: Arc<LostTail>,
    /// What this program knows to do.
    pub(super) release: u32,
    /// No log that ends before this is voted for: the longest of all, when a majority was in doubt.
    pub(super) floor: watch::Sender<Option<At>>,
    /// Whether this replica lacks more than the latest entries, as far as its leader has told it.
    pub(super) behind: watch::Sender<bool>,
    /// The names of all that are to be masters: as configured, until somebody says otherwise.
    pub(super) named: watch::Sender<BTreeSet<String>>,
    pub(super) joins: mpsc::Sender<Join>,
    pub(super) hand_overs: mpsc::Sender<HandOver>,
    /// Whether the office is being handed over; nothing is proposed meanwhile.
    pub(super) resigning: watch::Sender<bool>,
    pub(super) snapshots: Snapshots,
    pub(super) written: Written,
}

impl std::fmt::Debug for PeerDesk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerDesk")
            .field("replica", &self.replica)
            .finish_non_exhaustive()
    }
}

/// What a connection of another master keeps between two calls.
#[derive(Default)]
pub(crate) struct PeerSession {
    incoming: Option<Incoming>,
}

impl PeerDesk {
    /// Answers one call.
    pub(crate) async fn answer(&self, session: &mut PeerSession, call: PeerCall) -> PeerAnswer {
        if call.to.is_some_and(|to| to != self.replica) {
            let text = format!("{} was set up anew since then", self.me.name);
            return PeerAnswer::Failed(text);
        }
        match call.request {
            PeerRequest::Who => PeerAnswer::Who(self.who()),
            PeerRequest::PreVote { last } => PeerAnswer::PreVote {
                is_granted: self.would_vote(last),
                lost_tail: self.lost_tail(),
            },
            PeerRequest::Vote { ballot, last } => self.vote(ballot, last).await,
            PeerRequest::Append {
                ballot,
                prev,
                entries,
                commit,
            } => self.append(ballot, prev, &entries, commit).await,
            PeerRequest::Snapshot {
                ballot,
                at,
                members,
                piece,
            } => {
                let incoming = &mut session.incoming;
                self.take_piece(incoming, ballot, (at, members), piece)
                    .await
            }
            PeerRequest::Join { id, member } => self.join(id, member).await,
            PeerRequest::Elect { ballot } => self.elect(ballot).await,
        }
    }

    /// What this replica says of itself.
    pub(super) fn who(&self) -> WhoIs {
        let last = self.last_entry();
        let metrics = self.metrics.borrow();
        let membership = metrics.membership_config.membership();
        let leader = metrics.current_leader;
        let leader = leader.filter(|id| self.is_led_by(*id, &metrics));
        WhoIs {
            id: self.replica,
            name: self.me.name.clone(),
            is_formed: membership.nodes().next().is_some(),
            is_doubtful: self.is_doubtful(),
            leader: leader.and_then(|id| Some((id, membership.get_node(&id)?.clone()))),
            term: metrics.vote.leader_id.term,
            last,
            release: self.release,
        }
    }

    /// The last entry of the log, whether committed or not, as openraft published it. It may have
    /// got more since: a vote is judged by openraft itself.
    pub(super) fn last_entry(&self) -> Option<At> {
        self.data.borrow().last_log.as_ref().map(at)
    }

    /// No round that was begun until now makes this replica certain any more that it leads.
    pub(super) fn end_lease(&self) {
        let now_ms = (self.clock)();
        self.rounds.send_modify(|rounds| rounds.revoke(now_ms));
    }

    /// The pause between two tries of an election that this replica wants to lose.
    pub(super) fn try_pause(&self) -> Duration {
        Duration::from_millis((self.election_ms / 20).max(5))
    }

    /// Makes another master the leader: the one of this name, or whichever has most of the log.
    ///
    /// # Errors
    /// Why it did not become so, for people. This master may lead still.
    pub(crate) async fn hand_over(&self, to: Option<String>) -> Result<Member, String> {
        let (reply, answer) = oneshot::channel();
        if self.hand_overs.try_send(HandOver { to, reply }).is_err() {
            return Err("the office is being handed over already".to_owned());
        }
        let stops = |_| Err("this master stops".to_owned());
        answer.await.unwrap_or_else(stops)
    }

    /// The leader that this replica follows, or itself.
    pub(crate) fn leader(&self) -> Option<Member> {
        Standing::of(&self.metrics).leader
    }

    /// Takes a snapshot of everything that is committed by now, on a disk of its own. To be asked
    /// of the leader, whose log has it all.
    ///
    /// # Errors
    /// [`SnapshotsError`]; what is on the disk then is of no use.
    pub(crate) async fn take_apart(
        &self,
        open: impl FnOnce() -> Result<AnyDisk, DiskError> + Send + 'static,
    ) -> Result<Made, SnapshotsError> {
        // Asked of openraft's core: what it publishes may lag behind what clients were told.
        let committed = self.raft.with_raft_state(|state| state.committed);
        let committed = committed.await.ok().flatten();
        let through = committed.ok_or(SnapshotsError::Empty)?.index;
        // The others may have it before this master's own disk does.
        self.written.reach(through).await;
        self.snapshots.make_apart(through, open).await
    }

    /// Whether a promise to a leader may still bind this replica.
    fn is_bound(&self) -> bool {
        (self.clock)() < self.heard.at_ms().saturating_add(self.election_ms)
    }

    /// A vote for somebody with this log would be given: no leader was heard, and the log of the
    /// candidate has all that ours has.
    fn would_vote(&self, last: Option<At>) -> bool {
        if self.is_bound() || self.is_doubtful() {
            return false;
        }
        let leads = self.metrics.borrow().state == ServerState::Leader;
        !leads && last >= self.last_entry() && last >= *self.floor.borrow()
    }

    async fn vote(&self, candidate: Ballot, last: Option<At>) -> PeerAnswer {
        let leads = self.metrics.borrow().state == ServerState::Leader;
        // A leader may give its office away at any time; a follower keeps its promise, also one
        // that it gave before it was started again and of which openraft knows nothing.
        if self.is_doubtful() || (self.is_bound() && !leads) || last < *self.floor.borrow() {
            return PeerAnswer::Failed("it may have promised its vote to a leader".to_owned());
        }
        // Before openraft hears of it: from then on this replica may not answer as the leader.
        self.end_lease();
        let request = VoteRequest::new(vote(&candidate), last.map(log_id));
        match self.raft.vote(request).await {
            Ok(answer) => {
                if answer.vote_granted {
                    self.heard.note_vote((self.clock)());
                }
                PeerAnswer::Vote {
                    ballot: ballot(&answer.vote),
                    is_granted: answer.vote_granted,
                    last: answer.last_log_id.as_ref().map(at),
                }
            }
            Err(error) => PeerAnswer::Failed(error.to_string()),
        }
    }

    async fn append(
        &self,
        leader: Ballot,
        prev: Option<At>,
        entries: &[SentEntry],
        commit: Option<At>,
    ) -> PeerAnswer {
        if self.is_doubtful() {
            // To the leader it has what it had acknowledged; it joins anew as another one.
            return PeerAnswer::Failed("this replica may miss what it had".to_owned());
        }
        let heard_ms = (self.clock)();
        let through = entries.last().map(|entry| entry.at).or(prev);
        let entries: Result<Vec<_>, _> = entries.iter().map(convert::received).collect();
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => return PeerAnswer::Failed(larder_telemetry::error_chain(&error)),
        };
        let request = AppendEntriesRequest {
            vote: vote(&leader),
            prev_log_id: prev.map(log_id),
            entries,
            leader_commit: commit.map(log_id),
        };
        let appended = match self.raft.append_entries(request).await {
            Ok(AppendEntriesResponse::HigherVote(higher)) => {
                return PeerAnswer::Append(Appended::Higher(ballot(&higher)));
            }
            Ok(AppendEntriesResponse::Success) => Appended::Success,
            Ok(AppendEntriesResponse::PartialSuccess(through)) => {
                Appended::Partial(through.as_ref().map(at))
            }
            Ok(AppendEntriesResponse::Conflict) => Appended::Conflict,
            Err(error) => return PeerAnswer::Failed(error.to_string()),
        };
        self.heard.note(heard_ms);
        if appended == Appended::Success {
            let (commit, through) = (commit.map(|at| at.index), through.map(|at| at.index));
            let is_behind = commit.unwrap_or(0) > through.unwrap_or(0) + BEHIND_MAX;
            let set = |behind: &mut bool| std::mem::replace(behind, is_behind) != is_behind;
            self.behind.send_if_modified(set);
        }
        PeerAnswer::Append(appended)
    }

    async fn take_piece(
        &self,
        incoming: &mut Option<Incoming>,
        leader: Ballot,
        (at, members): (At, SentMembers),
        piece: Piece,
    ) -> PeerAnswer {
        if self.is_doubtful() {
            return PeerAnswer::Failed("this replica may miss what it had".to_owned());
        }
        let current = ballot(&self.metrics.borrow().vote);
        if current.term > leader.term {
            return PeerAnswer::Snapshot { ballot: current };
        }
        self.heard.note((self.clock)());
        let taken = self.snapshots.take(incoming, at, members, piece);
        let snapshot = match taken {
            Ok(None) => return PeerAnswer::Snapshot { ballot: leader },
            Ok(Some(snapshot)) => snapshot,
            Err(error) => return PeerAnswer::Failed(larder_telemetry::error_chain(&error)),
        };
        let installed = self.raft.install_full_snapshot(vote(&leader), snapshot);
        match installed.await {
            Ok(answer) => PeerAnswer::Snapshot {
                ballot: ballot(&answer.vote),
            },
            Err(error) => PeerAnswer::Failed(error.to_string()),
        }
    }

    async fn join(&self, id: u64, member: Member) -> PeerAnswer {
        let (reply, answer) = oneshot::channel();
        let join = Join { id, member, reply };
        if self.joins.try_send(join).is_err() {
            return PeerAnswer::Failed("another master is being let in".to_owned());
        }
        match answer.await {
            Ok(Ok(())) => PeerAnswer::Joined,
            Ok(Err(why)) => PeerAnswer::Failed(why),
            Err(_) => PeerAnswer::Failed("the master stops".to_owned()),
        }
    }

    /// Only the leader that this replica follows may free it of its promise, which was given to
    /// that one. When it is asked again, it is a candidate already, and follows nobody.
    async fn elect(&self, resigning: Ballot) -> PeerAnswer {
        let current = ballot(&self.metrics.borrow().vote);
        let is_own = current.candidate == Some(self.replica);
        // The old leader asked once more before it heard that all is done.
        if is_own && current.committed && current.term > resigning.term {
            return PeerAnswer::Elects;
        }
        let is_candidate = is_own && !current.committed;
        if self.is_doubtful() || !(current == resigning || is_candidate) {
            return PeerAnswer::Failed("it follows another leader".to_owned());
        }
        self.heard.clear();
        match self.raft.trigger().elect().await {
            Ok(()) => PeerAnswer::Elects,
            Err(error) => PeerAnswer::Failed(error.to_string()),
        }
    }

    /// Whether the log may lack what was acknowledged, so that agents have to be asked.
    pub(super) fn lost_tail(&self) -> bool {
        self.lost_tail.is_known()
    }

    /// It may, as is known now.
    pub(super) fn loses_tail(&self) {
        let term = self.metrics.borrow().vote.leader_id.term;
        self.lost_tail.note(term);
    }

    /// The leader of this term asks agents: the log says so from here on.
    pub(crate) fn tail_is_sought_in(&self, term: u64) {
        self.lost_tail.is_sought_in(term);
    }

    /// It may miss what it acknowledged.
    pub(super) fn is_doubtful(&self) -> bool {
        self.is_doubtful.load(Ordering::Relaxed)
    }
}
