//! Calls that are not answered yet: which items still wait, for what, and until when. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use larder_store::{Reply, Request, WaitOn};
use larder_types::{AgentName, Incarnation, Key, PoolTime, Reason};
use larder_wire::{CallError, Header};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::event::{AdminAnswer, ConnectionId};

/// The most items that wait; beyond it clients hear `Overloaded`. At about 500 bytes each with
/// keys of usual length, and 5 KiB with the longest, that is 32 MiB, 320 MiB at the worst.
pub(crate) const PARKED_MAX: usize = 65_536;
/// Room on top for what agents say: refusing them would keep the space from coming back.
pub(crate) const PARKED_MAX_AGENTS: usize = 2 * PARKED_MAX;

/// A call, for the life of the leader.
pub(crate) type CallId = u64;
/// The place of an item in the queue of what it waits for; kept when it has to wait again.
type Ticket = u64;
/// The outcome of an item.
pub(crate) type ItemResult = Result<Reply, CallError>;

/// Who called.
#[derive(Debug)]
pub(crate) enum Origin {
    /// A connection, with the header that the reply answers.
    Peer(ConnectionId, Header),
    /// The admin port.
    Admin(oneshot::Sender<AdminAnswer>),
    /// The admin port, which wants to hear how many items were done.
    AdminMany(oneshot::Sender<AdminAnswer>),
    /// Nobody wants to hear.
    Own,
}

/// What an agent says of itself when it mounts and the state does not keep.
#[derive(Debug)]
pub(crate) struct MountFacts {
    pub(crate) name: AgentName,
    pub(crate) incarnation: Incarnation,
    pub(crate) data_addr: String,
}

/// A call with what is known of its answer.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) origin: Origin,
    /// When it is answered whatever is still open.
    pub(crate) deadline: PoolTime,
    /// When it came.
    pub(crate) started: Instant,
    /// The outcome of each item; `None` while it waits.
    pub(crate) results: Vec<Option<ItemResult>>,
    /// The outcomes of a probe, which has them all at once; then there are no `results`.
    pub(crate) exist: Option<Vec<bool>>,
    /// How many items wait.
    pub(crate) open: usize,
    /// The highest index that an outcome was judged by; the answer waits for its commit.
    pub(crate) saw_index: u64,
    /// The keys of a `PutStart`, for the capabilities of its answer.
    pub(crate) keys: Vec<Key>,
    /// What the agent said of itself, for the answer to a mount.
    pub(crate) mount: Option<MountFacts>,
    tickets: BTreeMap<Ticket, WaitOn>,
}

/// One item that waits.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) call: CallId,
    pub(crate) item: usize,
    pub(crate) request: Request,
    ticket: Option<Ticket>,
    /// Until when it may wait for space; set when it first does, so that waking it in vain
    /// gives it no more time.
    space_until: Option<PoolTime>,
}

impl Parked {
    pub(crate) const fn new(call: CallId, item: usize, request: Request) -> Self {
        Self {
            call,
            item,
            request,
            ticket: None,
            space_until: None,
        }
    }
}

impl Call {
    /// A call of `items` items, none of which has an outcome.
    pub(crate) fn new(origin: Origin, items: usize, deadline: PoolTime, started: Instant) -> Self {
        Self {
            origin,
            deadline,
            started,
            results: (0..items).map(|_| None).collect(),
            exist: None,
            open: items,
            saw_index: 0,
            keys: Vec::new(),
            mount: None,
            tickets: BTreeMap::new(),
        }
    }

    /// The outcome of an item that waited.
    pub(crate) fn settle(&mut self, item: usize, result: ItemResult, saw_index: u64) {
        self.saw_index = self.saw_index.max(saw_index);
        if let Some(slot @ None) = self.results.get_mut(item) {
            *slot = Some(result);
            self.open = self.open.saturating_sub(1);
        }
    }

    /// The outcomes of a probe at `committed`: without an answer for each key in between.
    pub(crate) fn take_exist(&mut self, committed: u64) -> Option<Vec<bool>> {
        let is_known = self.saw_index <= committed;
        self.exist.take_if(|_| is_known)
    }
    /// Its outcomes at `committed`; an item that has none, or one judged by what is not committed,
    /// ran out of time.
    pub(crate) fn take_results(&mut self, committed: u64) -> Vec<ItemResult> {
        let is_known = self.saw_index <= committed;
        if let Some(exist) = self.exist.take() {
            let results = exist.into_iter().map(|one| Some(Ok(Reply::Exists(one))));
            self.results = results.collect();
        }
        let late = || Err(CallError::new(Reason::DeadlinePassed));
        let results = std::mem::take(&mut self.results).into_iter();
        results
            .map(|one| one.filter(|_| is_known).unwrap_or_else(late))
            .collect()
    }
}

/// All calls that are not answered.
#[derive(Debug, Default)]
pub(crate) struct CallTable {
    last: CallId,
    last_ticket: Ticket,
    calls: HashMap<CallId, Call>,
    deadlines: BTreeSet<(PoolTime, CallId)>,
    parked: BTreeMap<(WaitOn, Ticket), Parked>,
    /// What of it waits for space, by when it may no longer.
    for_space: BTreeMap<(PoolTime, Ticket), WaitOn>,
    woken: VecDeque<Parked>,
    /// Calls with every outcome, by the index that they wait for.
    complete: BTreeSet<(u64, CallId)>,
}

impl CallTable {
    /// Takes a call and gives it a number.
    pub(crate) fn insert(&mut self, call: Call) -> CallId {
        self.last += 1;
        self.deadlines.insert((call.deadline, self.last));
        if call.open == 0 {
            self.complete.insert((call.saw_index, self.last));
        }
        self.calls.insert(self.last, call);
        self.last
    }

    /// Whether a call is not answered yet.
    pub(crate) fn is_open(&self, id: CallId) -> bool {
        self.calls.contains_key(&id)
    }

    /// Whether an item was woken and not decided again.
    pub(crate) fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    /// Items that wait or were woken.
    pub(crate) fn waiting(&self) -> usize {
        self.parked.len() + self.woken.len()
    }

    /// Parks an item until `on` is woken.
    pub(crate) fn park(&mut self, parked: Parked, on: WaitOn) {
        self.park_as(parked, on, false);
    }

    /// Parks an item until `on` is woken or the space that it waits for has not come by `until`,
    /// or by its deadline.
    pub(crate) fn park_for_space(&mut self, mut parked: Parked, on: WaitOn, until: PoolTime) {
        parked.space_until = parked.space_until.or(Some(until));
        self.park_as(parked, on, true);
    }

    fn park_as(&mut self, mut parked: Parked, on: WaitOn, for_space: bool) {
        let Some(call) = self.calls.get_mut(&parked.call) else {
            return;
        };
        let ticket = parked.ticket.unwrap_or_else(|| {
            self.last_ticket += 1;
            self.last_ticket
        });
        parked.ticket = Some(ticket);
        call.tickets.insert(ticket, on.clone());
        parked.space_until = parked.space_until.map(|until| until.min(call.deadline));
        if let Some(until) = parked.space_until.filter(|_| for_space) {
            self.for_space.insert((until, ticket), on.clone());
        }
        self.parked.insert((on, ticket), parked);
    }

    /// Everything that waits on `on` is to be decided again.
    pub(crate) fn wake(&mut self, on: &WaitOn) {
        let range = (on.clone(), Ticket::MIN)..=(on.clone(), Ticket::MAX);
        let tickets: Vec<Ticket> = self.parked.range(range).map(|((_, t), _)| *t).collect();
        for ticket in tickets {
            if let Some(parked) = self.unpark(on.clone(), ticket) {
                self.woken.push_back(parked);
            }
        }
    }

    /// Takes the next item that may wait for space no longer.
    pub(crate) fn next_without_space(&mut self, now: PoolTime) -> Option<Parked> {
        loop {
            let ((until, ticket), on) = self.for_space.first_key_value()?;
            if *until > now {
                return None;
            }
            let (ticket, on) = (*ticket, on.clone());
            self.for_space.pop_first();
            if let Some(parked) = self.unpark(on, ticket) {
                return Some(parked);
            }
        }
    }

    fn unpark(&mut self, on: WaitOn, ticket: Ticket) -> Option<Parked> {
        let parked = self.parked.remove(&(on, ticket))?;
        if let Some(call) = self.calls.get_mut(&parked.call) {
            call.tickets.remove(&ticket);
        }
        if let Some(until) = parked.space_until {
            self.for_space.remove(&(until, ticket));
        }
        Some(parked)
    }

    /// The next item to decide again, oldest wake first.
    pub(crate) fn next_woken(&mut self) -> Option<Parked> {
        loop {
            let parked = self.woken.pop_front()?;
            if self.calls.contains_key(&parked.call) {
                return Some(parked);
            }
        }
    }

    /// An item that waited has its outcome.
    pub(crate) fn settle(&mut self, id: CallId, item: usize, result: ItemResult, saw_index: u64) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        call.settle(item, result, saw_index);
        if call.open == 0 {
            self.complete.insert((call.saw_index, id));
        }
    }

    /// Takes the next call that has every outcome and saw nothing above `committed`.
    pub(crate) fn next_complete(&mut self, committed: u64) -> Option<(CallId, Call)> {
        let (index, id) = *self.complete.first()?;
        if index > committed {
            return None;
        }
        self.remove(id).map(|call| (id, call))
    }

    /// Takes the next call whose deadline passed.
    pub(crate) fn next_late(&mut self, now: PoolTime) -> Option<(CallId, Call)> {
        let (deadline, id) = *self.deadlines.first()?;
        if deadline > now {
            return None;
        }
        self.remove(id).map(|call| (id, call))
    }

    /// When the next call, or the next item that waits for space, runs out of time.
    pub(crate) fn next_deadline(&self) -> Option<PoolTime> {
        let deadline = self.deadlines.first().map(|(deadline, _)| *deadline);
        let space = self
            .for_space
            .first_key_value()
            .map(|((until, _), _)| *until);
        deadline.into_iter().chain(space).min()
    }

    /// Takes a call out with everything of it that waits.
    pub(crate) fn remove(&mut self, id: CallId) -> Option<Call> {
        let call = self.calls.remove(&id)?;
        self.deadlines.remove(&(call.deadline, id));
        self.complete.remove(&(call.saw_index, id));
        for (ticket, on) in &call.tickets {
            drop(self.unpark(on.clone(), *ticket));
        }
        Some(call)
    }
}

#[cfg(test)]
mod tests;
