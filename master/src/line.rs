//! Items that were taken in and not decided yet: each caller's in order, callers in turns. Pure.
//!
//! A call of thousands of keys takes longer than others should wait. What a turn cannot decide of
//! it stands here, and the calls of others go on beside it.

use std::collections::{HashMap, VecDeque};

use larder_store::Request;

use crate::calls::{CallId, Parked};
use crate::event::ConnectionId;

/// Who stands in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    /// A connection.
    Peer(ConnectionId),
    /// The admin port.
    Admin,
    /// The master itself. What it asks are single items, so that it never stands behind itself:
    /// that an agent is gone must be heard before it comes back.
    Own,
}

/// The items of a call that are not decided yet.
#[derive(Debug)]
struct Batch {
    call: CallId,
    items: std::vec::IntoIter<(usize, Request)>,
    /// How many items may wait when one of these has to.
    parked_max: usize,
}

/// See the module. Bounded by who adds to it: see [`Line::len`].
#[derive(Debug, Default)]
pub(crate) struct Line {
    batches: HashMap<Caller, VecDeque<Batch>>,
    /// Callers with a batch, the one whose turn is next first.
    order: VecDeque<Caller>,
    items: usize,
}

impl Line {
    /// How many items are not decided.
    pub(crate) const fn len(&self) -> usize {
        self.items
    }

    /// How many callers stand in line.
    pub(crate) fn callers(&self) -> usize {
        self.order.len()
    }

    /// Whether a caller stands in line.
    pub(crate) fn has(&self, caller: Caller) -> bool {
        self.batches.contains_key(&caller)
    }

    /// Adds a call behind what its caller has in line.
    pub(crate) fn push(
        &mut self,
        caller: Caller,
        call: CallId,
        items: Vec<(usize, Request)>,
        parked_max: usize,
    ) {
        if items.is_empty() {
            return;
        }
        self.items += items.len();
        let batches = self.batches.entry(caller).or_insert_with(|| {
            self.order.push_back(caller);
            VecDeque::new()
        });
        batches.push_back(Batch {
            call,
            items: items.into_iter(),
            parked_max,
        });
    }

    /// The caller whose turn it is goes to the end of the line.
    pub(crate) fn next_caller(&mut self) -> Option<Caller> {
        let caller = self.order.pop_front()?;
        self.order.push_back(caller);
        Some(caller)
    }

    /// Takes the next item of a caller, and how many may wait when it has to.
    pub(crate) fn next_item(&mut self, caller: Caller) -> Option<(Parked, usize)> {
        let batches = self.batches.get_mut(&caller)?;
        let batch = batches.front_mut()?;
        let (item, request) = batch.items.next()?;
        let next = (Parked::new(batch.call, item, request), batch.parked_max);
        self.items -= 1;
        if batch.items.len() == 0 {
            batches.pop_front();
            if batches.is_empty() {
                self.forget(caller);
            }
        }
        Some(next)
    }

    /// A caller is gone: what it has in line is dropped.
    pub(crate) fn forget(&mut self, caller: Caller) {
        if let Some(batches) = self.batches.remove(&caller) {
            let dropped: usize = batches.iter().map(|batch| batch.items.len()).sum();
            self.items -= dropped;
            self.order.retain(|other| *other != caller);
        }
    }
}

#[cfg(test)]
mod tests {
    use larder_types::SessionId;

    use super::*;

    fn items(count: usize) -> Vec<(usize, Request)> {
        let request = |at| {
            let session = SessionId(at as u64);
            (at, Request::SessionClosed { session })
        };
        (0..count).map(request).collect()
    }

    fn peer(number: u64) -> Caller {
        Caller::Peer(ConnectionId(number))
    }

    #[test]
    fn each_caller_is_served_in_its_order_and_callers_in_turns() {
        let mut line = Line::default();
        line.push(peer(1), 10, items(3), 7);
        line.push(peer(2), 20, items(1), 8);
        line.push(peer(1), 11, items(1), 9);
        line.push(peer(3), 30, Vec::new(), 9);
        assert_eq!((line.len(), line.callers()), (5, 2));
        let mut served = Vec::new();
        while let Some(caller) = line.next_caller() {
            for _ in 0..2 {
                let Some((parked, parked_max)) = line.next_item(caller) else {
                    break;
                };
                served.push((parked.call, parked.item, parked_max));
            }
        }
        let expected = [(10, 0, 7), (10, 1, 7), (20, 0, 8), (10, 2, 7), (11, 0, 9)];
        assert_eq!(served, expected);
        assert_eq!((line.len(), line.callers()), (0, 0));
    }

    #[test]
    fn who_is_gone_leaves_nothing() {
        let mut line = Line::default();
        line.push(peer(1), 10, items(3), 7);
        line.push(Caller::Admin, 20, items(2), 7);
        assert!(line.next_item(peer(1)).is_some());
        line.forget(peer(1));
        line.forget(peer(9));
        assert!(!line.has(peer(1)) && line.has(Caller::Admin));
        assert_eq!((line.len(), line.callers()), (2, 1));
        assert!(line.next_item(peer(1)).is_none());
        assert_eq!(line.next_caller(), Some(Caller::Admin));
    }
}
