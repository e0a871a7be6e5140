//! Deciding: calls item by item; what waits is parked, what was woken is decided again.

use larder_store::{Decision, Refusal, Reply, Request, WaitOn};
use larder_types::{ErrorCode, Reason};
use larder_wire::{CallError, CallResult};
use rand::Rng;

use super::{Leading, TURN_ITEMS};
use crate::calls::{Call, CallId, ItemResult, Origin, PARKED_MAX, PARKED_MAX_AGENTS, Parked};
use crate::line::Caller;
use crate::log::Log;

/// What came of deciding one item.
pub(super) enum Outcome {
    Known(ItemResult, u64),
    Wait(WaitOn),
    /// It waits for space that others still hold: not for ever.
    WaitForSpace(WaitOn),
}

/// So many items take as long as the search of an agent for a replica in pieces.
const SEARCH_ITEMS: usize = 32;
/// So many entries of a page take as long as an item.
const ENTRIES_PER_ITEM: usize = 8;

/// As many items as this counts for in a turn: a page of removals brings many ops, one of keys
/// many entries, and an object in pieces has a grant for each.
pub(super) fn weight(decision: &Decision) -> usize {
    let (Decision::Reply { ops, .. } | Decision::Wait { ops, .. }) = decision else {
        return 1;
    };
    let told = match decision {
        Decision::Reply { reply, .. } => match reply {
            Reply::Listed { entries, .. } => entries.len() / ENTRIES_PER_ITEM,
            Reply::ListedStats { entries, .. } => entries.len() / ENTRIES_PER_ITEM,
            Reply::PutGranted { replicas, .. } | Reply::Located { replicas, .. } => {
                replicas.iter().map(Vec::len).sum()
            }
            _ => 0,
        },
        _ => 0,
    };
    ops.len().max(told).max(1)
}

/// A refusal as it is told to callers.
pub(super) fn refused(refusal: Refusal) -> CallError {
    let Refusal { reason, detail } = refusal;
    CallError { reason, detail }
}

impl<L: Log> Leading<L> {
    /// Decides one request; its ops join the entry of this turn.
    pub(super) fn decide(&mut self, request: &Request) -> Outcome {
        let core = &mut self.core;
        let random = &mut core.random;
        let decision = core
            .leader
            .decide(&core.state, request, core.now, &mut || random.random());
        self.touched += weight(&decision);
        let outcome = match decision {
            Decision::Reply {
                ops,
                reply,
                saw_index,
            } => {
                let index = if ops.is_empty() {
                    saw_index
                } else {
                    self.propose(ops);
                    self.core.log.next_index()
                };
                Outcome::Known(Ok(reply), index)
            }
            Decision::Wait { ops, on, for_space } => {
                self.propose(ops);
                if for_space {
                    Outcome::WaitForSpace(on)
                } else {
                    Outcome::Wait(on)
                }
            }
            Decision::Refused(refusal) => {
                if let Request::PutStart { tenant, .. } = request
                    && refusal.reason.code() == ErrorCode::TenantQuotaExceeded
                {
                    self.metrics.quota_refused(tenant, refusal.reason);
                }
                Outcome::Known(Err(refused(refusal)), 0)
            }
        };
        let effects = self.core.leader.take_effects();
        self.touched += effects.agents_searched * SEARCH_ITEMS;
        self.route(effects);
        outcome
    }

    /// Takes a call and decides its items in order. Those that wait are parked; those beyond a
    /// slice, or behind others of the same caller, stand in line.
    pub(super) fn begin(&mut self, call: Call, items: Vec<CallResult<Request>>) -> CallId {
        let is_client = match &call.origin {
            Origin::Peer(connection, _) => self
                .links
                .get(*connection)
                .is_some_and(|link| link.tenant().is_some()),
            Origin::Admin(_) | Origin::AdminMany(_) | Origin::Own => false,
        };
        let parked_max = if is_client {
            PARKED_MAX
        } else {
            PARKED_MAX_AGENTS
        };
        let caller = match &call.origin {
            Origin::Peer(connection, _) => Caller::Peer(*connection),
            Origin::Admin(_) | Origin::AdminMany(_) => Caller::Admin,
            Origin::Own => Caller::Own,
        };
        let id = self.calls.insert(call);
        let mut wanted = Vec::with_capacity(items.len());
        for (item, request) in items.into_iter().enumerate() {
            match request {
                Ok(request) => wanted.push((item, request)),
                Err(error) => self.calls.settle(id, item, Err(error), 0),
            }
        }
        let is_first = !self.line.has(caller);
        self.line.push(caller, id, wanted, parked_max);
        if is_first {
            self.serve(caller);
        }
        id
    }

    /// Decides a slice of what a caller has in line: some items, or one that weighs as much.
    fn serve(&mut self, caller: Caller) {
        let before = self.touched;
        let most = self.core.rules.settings.slice_items;
        for _ in 0..most {
            if self.touched - before >= most {
                break;
            }
            let Some((parked, parked_max)) = self.line.next_item(caller) else {
                break;
            };
            // A call whose time is over was answered.
            if self.calls.is_open(parked.call) {
                self.decide_item(parked, parked_max);
            }
        }
    }

    /// Decides on what stands in line, a slice of each caller, for half a turn at most; of one
    /// caller at least, whatever eviction and purges do in every turn.
    pub(super) fn serve_line(&mut self) {
        for served in 0..self.line.callers() {
            let is_enough = served > 0 && self.touched >= TURN_ITEMS / 2;
            if is_enough || self.ended.is_some() {
                break;
            }
            if let Some(caller) = self.line.next_caller() {
                self.serve(caller);
            }
        }
    }

    pub(super) fn decide_item(&mut self, parked: Parked, parked_max: usize) {
        match self.decide(&parked.request) {
            Outcome::Known(result, saw_index) => {
                self.calls
                    .settle(parked.call, parked.item, result, saw_index);
            }
            Outcome::Wait(_) | Outcome::WaitForSpace(_) if self.calls.waiting() >= parked_max => {
                let error = CallError::new(Reason::Overloaded);
                self.calls.settle(parked.call, parked.item, Err(error), 0);
            }
            Outcome::Wait(on) => self.calls.park(parked, on),
            Outcome::WaitForSpace(on) => {
                let until = self
                    .core
                    .now
                    .plus_ms(self.core.rules.settings.space_wait_ms);
                self.calls.park_for_space(parked, on, until);
            }
        }
    }

    /// Decides again what was woken, so many items at most; whether there was one.
    pub(super) fn decide_woken(&mut self, most: usize) -> bool {
        let before = self.touched;
        while self.touched - before < most
            && let Some(parked) = self.calls.next_woken()
        {
            self.decide_item(parked, usize::MAX);
        }
        self.touched > before
    }

    /// Refuses the items that have waited for space as long as they may.
    pub(super) fn refuse_space(&mut self) {
        while let Some(parked) = self.calls.next_without_space(self.core.now) {
            let refusal = self.core.leader.space_refusal(&self.core.state);
            let error = refused(refusal);
            self.calls.settle(parked.call, parked.item, Err(error), 0);
        }
    }
}
