//! What the owner of the state hears of the log: committed entries in order, and who leads.

use std::task::{Context, Poll};

use larder_oplog::Position;
use larder_store::State;
use openraft::ServerState;
use openraft::metrics::RaftServerMetrics;
use tokio::sync::{mpsc, watch};

use super::{Member, Proposal};

/// Entries that wait for the owner of the state. Each has at most a megabyte and usually a
/// hundredth of it; openraft's state machine waits when the channel is full.
pub(super) const FEED_LENGTH: usize = 64;

/// What is committed.
#[derive(Debug)]
pub(crate) enum Input {
    /// An entry: its ops are to be applied. `None`: it has none, or none that count.
    Entry { at: Position, ops: Option<Proposal> },
    /// A snapshot of the leader takes the place of the state.
    Restored { at: Position, state: Box<State> },
}

impl Proposal {
    /// The ops as they stand in the log; `None` if they were decided in another term than that of
    /// their entry, so that nobody applies them.
    pub(crate) fn ops_at(&self, at: Position) -> Option<&[u8]> {
        (self.term == at.term).then_some(&self.ops[..])
    }
}

/// The committed entries, for the one owner of the state.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(super) inputs: mpsc::Receiver<Input>,
    /// One that a leader took and that is not its own.
    pub(super) kept: Option<Input>,
}

impl Feed {
    pub(super) const fn new(inputs: mpsc::Receiver<Input>) -> Self {
        Self { inputs, kept: None }
    }

    /// The next one; `None` when the replica has stopped. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Option<Input> {
        match self.kept.take() {
            Some(kept) => Some(kept),
            None => self.inputs.recv().await,
        }
    }

    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Input>> {
        match self.kept.take() {
            Some(kept) => Poll::Ready(Some(kept)),
            None => self.inputs.poll_recv(context),
        }
    }
}

/// Who leads, as this replica sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Its term.
    pub(crate) term: u64,
    /// Whether it is the leader of that term. Whether it still is, only a lease says.
    pub(crate) is_leader: bool,
    /// The leader that it follows, or itself.
    pub(crate) leader: Option<Member>,
    /// Whether it counts: one that was let in has caught up first.
    pub(crate) is_voter: bool,
}

pub(super) type ServerMetrics = watch::Receiver<RaftServerMetrics<u64, Member>>;

impl Standing {
    pub(super) fn of(metrics: &ServerMetrics) -> Self {
        let metrics = metrics.borrow();
        let leader = metrics.current_leader;
        let membership = metrics.membership_config.membership();
        Self {
            is_voter: membership.voter_ids().any(|voter| voter == metrics.id),
            term: metrics.vote.leader_id.term,
            is_leader: metrics.state == ServerState::Leader,
            leader: leader.and_then(|id| membership.get_node(&id).cloned()),
        }
    }
}
