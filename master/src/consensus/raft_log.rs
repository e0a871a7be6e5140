//! The log of a leader: proposes to openraft and hears back what is committed.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use larder_oplog::{Position, encode_ops};
use larder_store::{Op, State, apply};
use openraft::ServerState;
use tokio::sync::watch;

use super::feed::{Feed, Input, ServerMetrics};
use super::lease::Rounds;
use super::message::ENTRY_BYTES_MAX;
use super::{Clock, Proposal, Raft};
use crate::flaw::{Flaw, Mistake};
use crate::log::{Entry, Log, LogError};
use crate::node::MasterError;

/// Proposed ops that are not committed, at most, in bytes. Above it no more calls are decided.
const PROPOSED_BYTES_MAX: usize = 32 << 20;
/// Proposed entries that are not committed, at most.
const PROPOSED_MAX: usize = 1_024;

/// The log while this replica leads in one term. Never made twice for a term.
pub(crate) struct RaftLog {
    raft: Raft,
    feed: Feed,
    metrics: ServerMetrics,
    rounds: watch::Receiver<Rounds>,
    clock: Clock,
    lease_ms: u64,
    replica: u64,
    term: u64,
    flaw: Flaw,
    applied: Option<Position>,
    last_index: u64,
    /// What is not committed, with its size.
    proposed: VecDeque<(u64, Vec<Op>, usize)>,
    proposed_bytes: usize,
    /// Ends when this replica leads no longer in this term.
    deposed: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_deposed: bool,
    /// What all masters know to do, as far as they were asked.
    release: Option<watch::Receiver<u32>>,
    /// Whether the office is being handed over: the next leader has everything then, and nothing
    /// may be added that it lacks.
    resigning: watch::Receiver<bool>,
    /// Proposed while it is; goes on when this master stays the leader after all.
    held: VecDeque<Proposal>,
    /// Ends when it stays so.
    stays: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl fmt::Debug for RaftLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RaftLog")
            .field("term", &self.term)
            .field("last_index", &self.last_index)
            .field("proposed", &self.proposed.len())
            .finish_non_exhaustive()
    }
}

impl RaftLog {
    #[expect(
        clippy::too_many_arguments,
        reason = "made in one place, of the parts of a replica"
    )]
    pub(super) fn new(
        raft: Raft,
        feed: Feed,
        metrics: ServerMetrics,
        rounds: watch::Receiver<Rounds>,
        clock: Clock,
        lease_ms: u64,
        replica: u64,
        term: u64,
        flaw: Flaw,
    ) -> Self {
        let mut watched = metrics.clone();
        let deposed = Box::pin(async move {
            let is_over = |metrics: &openraft::metrics::RaftServerMetrics<u64, _>| {
                metrics.state != ServerState::Leader || metrics.vote.leader_id.term != term
            };
            // An error: openraft has stopped, so nobody leads here.
            drop(watched.wait_for(is_over).await);
        });
        Self {
            raft,
            feed,
            metrics,
            rounds,
            clock: Arc::clone(&clock),
            lease_ms,
            replica,
            term,
            flaw,
            applied: None,
            last_index: 0,
            proposed: VecDeque::new(),
            proposed_bytes: 0,
            deposed,
            is_deposed: false,
            release: None,
            resigning: watch::channel(false).1,
            held: VecDeque::new(),
            stays: None,
        }
    }

    /// With what all masters know to do, as it is found out.
    pub(super) fn with_release(self, agreed: watch::Receiver<u32>) -> Self {
        Self {
            release: Some(agreed),
            ..self
        }
    }

    /// With whether the office is being handed over.
    pub(super) fn with_resigning(self, resigning: watch::Receiver<bool>) -> Self {
        Self { resigning, ..self }
    }

    /// Hands what is held to openraft's core, which takes its calls in order; nothing is waited
    /// for. What becomes of it is seen in the committed entries, so the answer is not wanted.
    fn send_held(&mut self) -> Result<(), LogError> {
        // Whoever says that the office is handed over waits for this guard, so that everything
        // that was sent before is before its next call of the core.
        let resigning = self.resigning.borrow();
        if *resigning {
            let mut watched = self.resigning.clone();
            self.stays.get_or_insert_with(|| {
                Box::pin(async move {
                    // An error: nobody is left who could hand it over.
                    drop(watched.wait_for(|resigning| !resigning).await);
                })
            });
            return Ok(());
        }
        while let Some(proposal) = self.held.pop_front() {
            let proposed = pin!(self.raft.client_write_ff(proposal));
            let mut context = Context::from_waker(Waker::noop());
            match proposed.poll(&mut context) {
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(_)) | Poll::Pending => return Err(LogError::NotLeader),
            }
        }
        Ok(())
    }

    /// Sends what is held when this master stays the leader.
    fn poll_stays(&mut self, context: &mut Context<'_>) -> Result<(), LogError> {
        // The office may be handed over once more in between: then there is another to wait for.
        while let Some(stays) = &mut self.stays {
            if stays.as_mut().poll(context).is_pending() {
                break;
            }
            self.stays = None;
            self.send_held()?;
        }
        Ok(())
    }

    /// Commits ops while there is no leader over the state yet, and applies them. False: another
    /// master leads.
    pub(crate) async fn commit_alone(
        &mut self,
        ops: Vec<Op>,
        state: &mut State,
    ) -> Result<bool, MasterError> {
        let own = match self.append(ops) {
            Ok(index) => index,
            Err(LogError::NotLeader) => return Ok(false),
            Err(error) => return Err(MasterError::Log(error)),
        };
        // What the leader before had proposed in this term comes first.
        while let Ok(entry) = poll_fn(|context| self.poll_committed(context)).await {
            for op in &entry.ops {
                if let Some(corruption) = apply(state, op).corruption {
                    return Err(MasterError::Corrupt(corruption));
                }
            }
            if entry.index == own {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives back what a standby goes on with.
    pub(crate) fn into_feed(self) -> Feed {
        self.feed
    }

    /// When the last round of a quorum began that followed this leader.
    fn quorum_ms(&self, now_ms: u64) -> Option<u64> {
        let metrics = self.metrics.borrow();
        if metrics.state != ServerState::Leader || metrics.vote.leader_id.term != self.term {
            return None;
        }
        let configs = metrics.membership_config.membership().get_joint_config();
        let rounds = self.rounds.borrow();
        rounds.quorum_ms(self.term, self.replica, configs, now_ms)
    }

    /// Takes a committed entry; `None` if it is none of a leader's.
    fn take(&mut self, input: Input) -> Option<Result<Entry, LogError>> {
        match input {
            Input::Entry { at, ops } if at.term == self.term => {
                self.applied = Some(at);
                // The membership of this term, or what an earlier leader was too late with.
                ops?.ops_at(at)?;
                let (index, ops, bytes) = self.proposed.pop_front()?;
                self.proposed_bytes -= bytes;
                Some(Ok(Entry { index, ops }))
            }
            other => {
                self.feed.kept = Some(other);
                Some(Err(LogError::NotLeader))
            }
        }
    }
}

impl Log for RaftLog {
    fn next_index(&self) -> u64 {
        self.last_index + 1
    }

    fn append(&mut self, ops: Vec<Op>) -> Result<u64, LogError> {
        let bytes = encode_ops(&ops).map_err(LogError::Encode)?;
        if bytes.len() > ENTRY_BYTES_MAX {
            let (size_bytes, max_bytes) = (bytes.len(), ENTRY_BYTES_MAX);
            return Err(LogError::TooLarge {
                size_bytes,
                max_bytes,
            });
        }
        let size = bytes.len();
        let proposal = Proposal {
            term: self.term,
            ops: Arc::from(bytes),
        };
        self.held.push_back(proposal);
        self.send_held()?;
        self.last_index += 1;
        self.proposed_bytes += size;
        self.proposed.push_back((self.last_index, ops, size));
        Ok(self.last_index)
    }

    fn poll_committed(&mut self, context: &mut Context<'_>) -> Poll<Result<Entry, LogError>> {
        loop {
            match self.feed.poll_next(context) {
                Poll::Ready(Some(input)) => {
                    if let Some(done) = self.take(input) {
                        return Poll::Ready(done);
                    }
                }
                Poll::Ready(None) => return Poll::Ready(Err(LogError::NotLeader)),
                Poll::Pending => break,
            }
        }
        // Kept: whoever asks again after that hears the same.
        let stays = self.poll_stays(context);
        self.is_deposed |= stays.is_err();
        self.is_deposed = self.is_deposed || self.deposed.as_mut().poll(context).is_ready();
        if self.is_deposed {
            return Poll::Ready(Err(LogError::NotLeader));
        }
        Poll::Pending
    }

    fn release(&self) -> u32 {
        self.release.as_ref().map_or(0, |agreed| *agreed.borrow())
    }

    fn has_room(&self) -> bool {
        self.proposed.len() < PROPOSED_MAX && self.proposed_bytes < PROPOSED_BYTES_MAX
    }

    fn is_certain(&self) -> bool {
        if self.flaw.is(Mistake::LeaseUnchecked) {
            return true;
        }
        let now_ms = (self.clock)();
        self.quorum_ms(now_ms)
            .is_some_and(|begun_ms| now_ms < begun_ms.saturating_add(self.lease_ms))
    }

    fn applied(&self) -> Option<Position> {
        self.applied
    }

    fn mark(&self) -> u64 {
        // One more: a round that began in this very millisecond may have begun before.
        (self.clock)() + 1
    }

    fn is_certain_since(&self, mark: u64) -> bool {
        let now_ms = (self.clock)();
        self.quorum_ms(now_ms)
            .is_some_and(|begun_ms| begun_ms >= mark)
    }
}
