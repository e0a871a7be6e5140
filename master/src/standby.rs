//! A master that follows: applies what is committed, and tells everybody who asks who leads.

use std::future::Future;
use std::pin::{Pin, pin};

use larder_oplog::{Position, decode_ops};
use larder_store::{Corruption, Op, State, apply, check};
use larder_wire::{CallError, Refused};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::consensus::{ConsensusError, Feed, Input, Proposal, Replica, Standing};
use crate::event::{AdminAnswer, AdminAsk, Event};
use crate::flaw::{Flaw, Mistake};
use crate::node::MasterError;
use crate::role::Role;

/// The owner of the state while this master does not lead.
#[derive(Debug)]
pub(crate) struct Standby {
    feed: Feed,
    state: State,
    /// The last entry that was applied in this life.
    applied: Option<Position>,
    /// The last term in which it led: versions count from 1 in each, so never again in that one.
    led: u64,
    flaw: Flaw,
}

/// Why it follows no longer.
#[derive(Debug)]
pub(crate) enum Followed {
    /// The master is to stop.
    Stopped,
    /// It leads in this term, and has applied everything that was committed before.
    Leads(u64),
    /// It may miss what it had acknowledged, and the others have everything.
    JoinsAnew,
}

impl Standby {
    /// One that led last in `led`, 0 for never.
    pub(crate) const fn new(feed: Feed, state: State, led: u64, flaw: Flaw) -> Self {
        Self {
            feed,
            state,
            applied: None,
            led,
            flaw,
        }
    }

    /// What a leader goes on with.
    pub(crate) fn into_parts(self) -> (Feed, State) {
        (self.feed, self.state)
    }

    /// Follows until this master leads or is to stop. `show` is told each role.
    pub(crate) async fn follow(
        &mut self,
        replica: &Replica,
        events: &mut mpsc::Receiver<Event>,
        mut stop: Pin<&mut (impl Future<Output = ()> + ?Sized)>,
        show: impl Fn(Role) -> Result<(), MasterError>,
    ) -> Result<Followed, MasterError> {
        let mut shown = None;
        let mut changes = replica.changes();
        let mut standing = replica.standing();
        let mut behind = replica.behind();
        let mut joins_anew = pin!(replica.must_join_anew());
        loop {
            // The first entry of its own term: everything before it is committed and applied.
            let is_whole = self.applied.is_some_and(|at| at.term == standing.term);
            if standing.is_leader && is_whole && standing.term > self.led {
                return Ok(Followed::Leads(standing.term));
            }
            let follows = standing.leader.is_some() && !standing.is_leader && standing.is_voter;
            // Not before it has caught up: whoever stops another master now relies on it.
            let role = if follows && !*behind.borrow_and_update() {
                Role::Standby
            } else {
                Role::Starting
            };
            if shown != Some(role) {
                show(role)?;
                shown = Some(role);
            }
            tokio::select! {
                biased;
                () = &mut stop => return Ok(Followed::Stopped),
                () = &mut joins_anew => return Ok(Followed::JoinsAnew),
                input = self.feed.next() => match input {
                    Some(input) => self.take(input, replica)?,
                    None => return Err(replica.why_stopped().into()),
                },
                changed = changes.changed() => {
                    if changed.is_err() {
                        return Err(replica.why_stopped().into());
                    }
                    standing = replica.standing();
                    continue;
                }
                // It fails only with the replica, of which the others tell.
                _ = behind.changed() => continue,
                // Alone it leads in a moment: whoever comes now waits that long.
                event = events.recv(), if !replica.is_alone() => match event {
                    Some(event) => self.hear(event, &standing, role),
                    None => return Ok(Followed::Stopped),
                },
            }
            // One that catches up has always another entry; who asks is answered in between.
            if !replica.is_alone()
                && let Ok(event) = events.try_recv()
            {
                self.hear(event, &standing, role);
            }
        }
    }

    fn take(&mut self, input: Input, replica: &Replica) -> Result<(), MasterError> {
        let generation = self.state.generation();
        let term = match input {
            Input::Entry { at, ops } => {
                if let Some(proposal) = ops {
                    apply_proposal(&mut self.state, at, &proposal, self.flaw)?;
                }
                self.applied = Some(at);
                at.term
            }
            Input::Restored { at, state } => {
                tracing::info!(%at, objects = state.objects(), "a snapshot was installed");
                self.state = *state;
                self.applied = Some(at);
                at.term
            }
        };
        if self.state.generation() > generation {
            replica.desk().tail_is_sought_in(term);
        }
        known(&self.state, replica.release())
    }

    fn hear(&self, event: Event, standing: &Standing, role: Role) {
        let addr = || standing.leader.as_ref().map(|leader| leader.addr.clone());
        // Whoever asked may have gone.
        match event {
            Event::Opened(opened) => {
                let hint = if standing.is_leader { None } else { addr() };
                drop(opened.reply.send(Err(Refused::not_leader(hint))));
            }
            // Of connections that a leader here had, and told good-bye.
            Event::Called(_) | Event::Closed(_) => {}
            Event::Asked(ask, reply) => drop(reply.send(self.answer(&ask, standing, role))),
        }
    }

    fn answer(&self, ask: &AdminAsk, standing: &Standing, role: Role) -> AdminAnswer {
        match ask {
            AdminAsk::Status => Ok(json!({
                "role": role.name(),
                "leader": standing.leader.as_ref().map(|leader| &leader.name),
                "term": standing.term,
                "objects": self.state.objects(),
            })),
            AdminAsk::Check => {
                let findings = check(&self.state);
                Ok(findings.iter().map(ToString::to_string).collect())
            }
            #[cfg(feature = "sim")]
            AdminAsk::Look => Ok(crate::sim::look(&self.state, self.applied, role, None)),
            AdminAsk::Gauges => Ok(Value::Null),
            _ => {
                let mut error = CallError::new(role.refusal());
                if let Some(leader) = &standing.leader {
                    error.detail = format!("{leader} leads; ask it");
                }
                Err(error)
            }
        }
    }
}

/// Whether this program knows everything that the log of the pool may hold.
pub(crate) fn known(state: &State, release: u32) -> Result<(), MasterError> {
    let version = state.version();
    if version <= release {
        return Ok(());
    }
    Err(ConsensusError::Release { version, release }.into())
}

/// Applies the ops of a committed entry, unless nobody does.
pub(crate) fn apply_proposal(
    state: &mut State,
    at: Position,
    proposal: &Proposal,
    flaw: Flaw,
) -> Result<(), MasterError> {
    let Some(bytes) = proposal.ops_at(at) else {
        return Ok(());
    };
    let index = at.index;
    let ops = decode_ops(bytes).map_err(|source| ConsensusError::Entry { index, source })?;
    for op in &ops {
        if flaw.is(Mistake::ReplayDiffers) && matches!(op, Op::Remove { .. }) {
            continue;
        }
        let corruption: Option<Corruption> = apply(state, op).corruption;
        if let Some(source) = corruption {
            return Err(ConsensusError::Corrupt { index, source }.into());
        }
    }
    Ok(())
}
