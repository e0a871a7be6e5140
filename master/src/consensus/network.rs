//! openraft's calls to other masters, and the stamps of those that were taken.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use openraft::error::{
    Fatal, NetworkError, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{AnyError, OptionalSend, Snapshot};
use tokio::sync::watch;

use super::convert::{self, at, ballot, log_id, vote};
use super::lease::Rounds;
use super::link::{Link, Transport, TransportError};
use super::message::{
    APPEND_BYTES_MAX, Appended, Ballot, PeerAnswer, PeerCall, PeerRequest, SentEntry,
};
use super::snapshots::Snapshots;
use super::{Clock, Member, RaftVote, Types};

/// How long a master that cannot be reached is left alone: one that comes back is found at once.
const BACK_OFF: Duration = Duration::from_millis(50);
/// How long a piece of a snapshot may take.
const PIECE_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes a network for each master that openraft talks to.
#[derive(Clone)]
pub(super) struct Network<T> {
    pub(super) transport: T,
    /// Where masters are, by name, as configured: addresses may change, names do not.
    pub(super) addrs: Arc<BTreeMap<String, String>>,
    pub(super) rounds: watch::Sender<Rounds>,
    pub(super) clock: Clock,
    pub(super) snapshots: Snapshots,
}

impl<T: Transport> Network<T> {
    /// A way to a member of the pool.
    pub(super) fn link(&self, member: &Member) -> T::Link {
        let mut member = member.clone();
        if let Some(addr) = self.addrs.get(&member.name) {
            member.addr.clone_from(addr);
        }
        self.transport.link(&member)
    }
}

impl<T: Transport> RaftNetworkFactory<Types> for Network<T> {
    type Network = Peer<T>;

    async fn new_client(&mut self, target: u64, node: &Member) -> Peer<T> {
        Peer {
            link: self.link(node),
            target,
            rounds: self.rounds.clone(),
            clock: Arc::clone(&self.clock),
            snapshots: self.snapshots.clone(),
        }
    }
}

/// One master, as openraft talks to it.
pub(super) struct Peer<T: Transport> {
    link: T::Link,
    target: u64,
    rounds: watch::Sender<Rounds>,
    clock: Clock,
    snapshots: Snapshots,
}

type CallError = RPCError<u64, Member, RaftError<u64>>;

/// An answer that fits no question: of a master of a later release, or of one that cannot now.
fn unfit(answer: PeerAnswer) -> CallError {
    let text = match answer {
        PeerAnswer::Failed(why) => why,
        other => format!("an answer that fits no question: {other:?}"),
    };
    RPCError::Network(NetworkError::from(AnyError::error(text)))
}

fn failed(error: TransportError) -> CallError {
    let text = larder_telemetry::error_chain(&error);
    tracing::debug!(error = text, "a master was not reached");
    RPCError::Unreachable(Unreachable::from(AnyError::error(text)))
}

impl<T: Transport> Peer<T> {
    async fn call(
        &mut self,
        request: PeerRequest,
        within: Duration,
    ) -> Result<PeerAnswer, TransportError> {
        let to = Some(self.target);
        self.link.call(&PeerCall { to, request }, within).await
    }

    /// It takes this leader for the leader, since a call begun then.
    fn took(&self, ballot: Ballot, begun_ms: u64) {
        let target = self.target;
        self.rounds
            .send_modify(|rounds| rounds.take(target, ballot.term, begun_ms));
    }
}

/// As many entries as one frame carries; the place of the last if some are left.
fn first_entries(request: &AppendEntriesRequest<Types>) -> (Vec<SentEntry>, bool) {
    let mut bytes = 0;
    let mut entries = Vec::new();
    for entry in &request.entries {
        let sent = convert::sent(entry);
        bytes += sent.payload.len() + 32;
        if !entries.is_empty() && bytes > APPEND_BYTES_MAX {
            return (entries, true);
        }
        entries.push(sent);
    }
    (entries, false)
}

impl<T: Transport> RaftNetwork<Types> for Peer<T> {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, CallError> {
        let begun_ms = (self.clock)();
        let (entries, is_cut) = first_entries(&rpc);
        let last = entries.last().map(|entry| entry.at);
        let ballot = ballot(&rpc.vote);
        let request = PeerRequest::Append {
            ballot,
            prev: rpc.prev_log_id.as_ref().map(at),
            entries,
            commit: rpc.leader_commit.as_ref().map(at),
        };
        let answer = self
            .call(request, option.hard_ttl())
            .await
            .map_err(failed)?;
        let PeerAnswer::Append(appended) = answer else {
            return Err(unfit(answer));
        };
        if !matches!(appended, Appended::Higher(_)) {
            self.took(ballot, begun_ms);
        }
        Ok(match appended {
            Appended::Success if is_cut => AppendEntriesResponse::PartialSuccess(last.map(log_id)),
            Appended::Success => AppendEntriesResponse::Success,
            Appended::Partial(through) => {
                AppendEntriesResponse::PartialSuccess(through.map(log_id))
            }
            Appended::Conflict => AppendEntriesResponse::Conflict,
            Appended::Higher(higher) => AppendEntriesResponse::HigherVote(vote(&higher)),
        })
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        option: RPCOption,
    ) -> Result<VoteResponse<u64>, CallError> {
        let request = PeerRequest::Vote {
            ballot: ballot(&rpc.vote),
            last: rpc.last_log_id.as_ref().map(at),
        };
        match self
            .call(request, option.hard_ttl())
            .await
            .map_err(failed)?
        {
            PeerAnswer::Vote {
                ballot,
                is_granted,
                last,
            } => Ok(VoteResponse::new(
                vote(&ballot),
                last.map(log_id),
                is_granted,
            )),
            other => Err(unfit(other)),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: RaftVote,
        snapshot: Snapshot<Types>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<Types, Fatal<u64>>> {
        tokio::select! {
            biased;
            closed = cancel => Err(closed.into()),
            sent = self.send_snapshot(vote, snapshot, option.hard_ttl()) => sent,
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(BACK_OFF))
    }
}

impl<T: Transport> Peer<T> {
    /// Sends the blocks of a snapshot one by one; the answer to the last one comes when the
    /// other master has installed it.
    async fn send_snapshot(
        &mut self,
        vote: RaftVote,
        snapshot: Snapshot<Types>,
        install_timeout: Duration,
    ) -> Result<SnapshotResponse<u64>, StreamingError<Types, Fatal<u64>>> {
        let unreachable =
            |text: String| StreamingError::Unreachable(Unreachable::from(AnyError::error(text)));
        let members = convert::sent_members(&snapshot.meta.last_membership);
        let ballot = ballot(&vote);
        let mut pieces = self
            .snapshots
            .read(snapshot.snapshot.at)
            .map_err(|error| unreachable(larder_telemetry::error_chain(&error)))?;
        loop {
            let piece = pieces
                .next()
                .map_err(|error| unreachable(larder_telemetry::error_chain(&error)))?;
            let is_last = piece.is_last;
            let request = PeerRequest::Snapshot {
                ballot,
                at: convert::at_of(snapshot.snapshot.at),
                members: members.clone(),
                piece,
            };
            let within = if is_last {
                install_timeout
            } else {
                PIECE_TIMEOUT
            };
            let begun_ms = (self.clock)();
            let answer = self.call(request, within).await;
            match answer.map_err(|error| unreachable(larder_telemetry::error_chain(&error)))? {
                PeerAnswer::Snapshot { ballot: theirs } => {
                    if theirs == ballot {
                        self.took(ballot, begun_ms);
                    }
                    if is_last || theirs != ballot {
                        return Ok(SnapshotResponse::new(convert::vote(&theirs)));
                    }
                }
                PeerAnswer::Failed(why) => return Err(unreachable(why)),
                other => return Err(unreachable(format!("no answer to a piece: {other:?}"))),
            }
        }
    }
}
