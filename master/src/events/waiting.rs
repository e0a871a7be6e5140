//! Subscribers that wait for the next event of their tenant, and until when. Pure.

use std::collections::{BTreeMap, BTreeSet};

use larder_types::{PoolTime, TenantId};
use larder_wire::Header;
use larder_wire::events::Sequence;

use crate::event::ConnectionId;

/// The most subscribers that wait. At about 250 bytes each that is 1 MiB.
const WAITING_MAX: usize = 4_096;
/// The most of them on one connection: it may have 128 calls in flight, and other calls of the
/// same client need their share.
const PER_CONNECTION_MAX: usize = 16;

/// One subscriber that has everything there is.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) connection: ConnectionId,
    pub(crate) header: Header,
    pub(crate) tenant: TenantId,
    pub(crate) from: Sequence,
    until: PoolTime,
}

impl Waiter {
    pub(crate) const fn new(
        (connection, header): (ConnectionId, Header),
        tenant: TenantId,
        from: Sequence,
        until: PoolTime,
    ) -> Self {
        Self {
            connection,
            header,
            tenant,
            from,
            until,
        }
    }
}

/// All that wait.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    last: u64,
    waiters: BTreeMap<u64, Waiter>,
    by_tenant: BTreeMap<TenantId, BTreeSet<u64>>,
    by_connection: BTreeMap<ConnectionId, BTreeSet<u64>>,
    by_end: BTreeSet<(PoolTime, u64)>,
}

impl Waiting {
    /// Whether one more subscriber may wait.
    pub(crate) fn has_room(&self) -> bool {
        self.waiters.len() < WAITING_MAX
    }

    /// Takes the oldest subscriber of a connection out, if there are as many as may be: usually
    /// its caller does not wait any more.
    pub(crate) fn displaced(&mut self, connection: ConnectionId) -> Option<Waiter> {
        let own = self.by_connection.get(&connection)?;
        let oldest = own.first().filter(|_| own.len() >= PER_CONNECTION_MAX)?;
        self.remove(*oldest)
    }

    pub(crate) fn insert(&mut self, waiter: Waiter) {
        self.last += 1;
        let id = self.last;
        let of_tenant = self.by_tenant.entry(waiter.tenant.clone()).or_default();
        of_tenant.insert(id);
        let own = self.by_connection.entry(waiter.connection).or_default();
        own.insert(id);
        self.by_end.insert((waiter.until, id));
        self.waiters.insert(id, waiter);
    }

    /// How many wait for events of a tenant.
    pub(crate) fn of(&self, tenant: &TenantId) -> usize {
        self.by_tenant.get(tenant).map_or(0, BTreeSet::len)
    }

    /// Takes those out that wait for events of a tenant.
    pub(crate) fn take_tenant(&mut self, tenant: &TenantId) -> Vec<Waiter> {
        let ids = self.by_tenant.get(tenant).cloned().unwrap_or_default();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Takes the next one out that has waited long enough.
    pub(crate) fn next_late(&mut self, now: PoolTime) -> Option<Waiter> {
        let (until, id) = *self.by_end.first()?;
        if until > now {
            return None;
        }
        self.remove(id)
    }

    /// When the next one has waited long enough.
    pub(crate) fn next_end(&self) -> Option<PoolTime> {
        self.by_end.first().map(|(until, _)| *until)
    }

    /// A connection is gone, and its subscribers with it.
    pub(crate) fn forget(&mut self, connection: ConnectionId) {
        let ids = self.by_connection.get(&connection).cloned();
        for id in ids.unwrap_or_default() {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: u64) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id)?;
        self.by_end.remove(&(waiter.until, id));
        take_out(&mut self.by_tenant, &waiter.tenant, id);
        take_out(&mut self.by_connection, &waiter.connection, id);
        Some(waiter)
    }
}

/// Takes `id` out of the set of `of`, and the set if it was the last.
fn take_out<K: Ord>(sets: &mut BTreeMap<K, BTreeSet<u64>>, of: &K, id: u64) {
    if let Some(set) = sets.get_mut(of) {
        set.remove(&id);
        if set.is_empty() {
            sets.remove(of);
        }
    }
}

#[cfg(test)]
mod tests {
    use larder_types::Epoch;
    use larder_wire::frame::{HEADER_BYTES, NO_DEADLINE};
    use larder_wire::{Frame, Kind, encode_frame};

    use super::*;

    fn header() -> Header {
        let mut bytes = Vec::new();
        let frame = Frame::request(Kind::Subscribe, 1, 1, NO_DEADLINE);
        encode_frame(&mut bytes, frame, &()).expect("a frame");
        let head = bytes[..HEADER_BYTES].try_into().expect("a header");
        Header::decode(head, 0).expect("a header")
    }

    fn waiter(connection: u64, tenant: &str, until: u64) -> Waiter {
        let from = Sequence {
            epoch: Epoch::default(),
            counter: 1,
        };
        let tenant = TenantId::new(tenant).expect("a name");
        let caller = (ConnectionId(connection), header());
        Waiter::new(caller, tenant, from, PoolTime(until))
    }

    #[test]
    fn each_leaves_once_by_whichever_way_comes_first() {
        let mut waiting = Waiting::default();
        for (connection, tenant, until) in [(1, "a", 10), (2, "a", 30), (3, "b", 20), (4, "b", 40)]
        {
            waiting.insert(waiter(connection, tenant, until));
        }
        assert_eq!(waiting.next_end(), Some(PoolTime(10)));
        assert!(waiting.next_late(PoolTime(9)).is_none());
        let late = waiting.next_late(PoolTime(10)).expect("the first");
        assert_eq!(late.connection, ConnectionId(1));
        let tenant = TenantId::new("a").expect("a name");
        let of_a: Vec<u64> = waiting
            .take_tenant(&tenant)
            .iter()
            .map(|w| w.connection.0)
            .collect();
        assert_eq!(of_a, [2]);
        waiting.forget(ConnectionId(3));
        assert_eq!(waiting.next_end(), Some(PoolTime(40)));
        waiting.forget(ConnectionId(4));
        assert_eq!(waiting.next_end(), None);
        assert!(waiting.by_tenant.is_empty() && waiting.by_connection.is_empty());
    }

    #[test]
    fn one_connection_cannot_take_all_places() {
        let mut waiting = Waiting::default();
        for until in 0..PER_CONNECTION_MAX as u64 {
            assert!(waiting.displaced(ConnectionId(1)).is_none());
            waiting.insert(waiter(1, "a", 100 - until));
        }
        assert!(waiting.displaced(ConnectionId(2)).is_none());
        let oldest = waiting.displaced(ConnectionId(1)).expect("full");
        assert_eq!(oldest.until, PoolTime(100));
        assert!(waiting.displaced(ConnectionId(1)).is_none());
    }
}
