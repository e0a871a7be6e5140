//! The connections that stand: how many may, and how to end those of a tenant.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use larder_types::{SessionId, TenantId};
use tokio::sync::Notify;

/// The most connections that have not finished their hello. A real client is done within a
/// round trip, so at the limit the oldest has to go: sockets that stay silent cannot keep
/// others out.
const STRANGERS_MAX: usize = 256;

/// All connections of an agent, over both listeners. A clone is the same set.
#[derive(Clone, Debug)]
pub struct Connections(Rc<RefCell<Table>>);

#[derive(Debug)]
struct Table {
    known_max: usize,
    last: u64,
    /// By number, so the first is the oldest.
    strangers: BTreeMap<u64, Rc<Notify>>,
    known: BTreeMap<u64, (TenantId, Rc<Notify>)>,
}

/// One connection's place in the set; gives it back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    connections: Connections,
    number: u64,
    stop: Rc<Notify>,
}

impl Connections {
    /// Allows `known_max` connections with an accepted hello, and 256 on their way there.
    #[must_use]
    pub fn new(known_max: usize) -> Self {
        Self(Rc::new(RefCell::new(Table {
            known_max: known_max.max(1),
            last: 0,
            strangers: BTreeMap::new(),
            known: BTreeMap::new(),
        })))
    }

    /// Ends all connections of a tenant; whatever they hold is given back in their own tasks,
    /// shortly after. Returns how many there were.
    pub fn close_tenant(&self, tenant: &TenantId) -> usize {
        let table = self.0.borrow();
        let of_tenant = table.known.values().filter(|(owner, _)| owner == tenant);
        of_tenant.map(|(_, stop)| stop.notify_one()).count()
    }

    /// How many connections have an accepted hello.
    #[must_use]
    pub fn known(&self) -> usize {
        self.0.borrow().known.len()
    }

    /// How many connections have not.
    #[must_use]
    pub fn strangers(&self) -> usize {
        self.0.borrow().strangers.len()
    }

    /// Tells a connection that it has to end; false if there is none of that session.
    pub(crate) fn close_session(&self, session: SessionId) -> bool {
        let table = self.0.borrow();
        let found = table.known.get(&session.0);
        found.inspect(|(_, stop)| stop.notify_one()).is_some()
    }

    /// Takes in somebody who just connected; ends the oldest stranger if there are too many.
    pub(crate) fn enter(&self) -> Place {
        let mut table = self.0.borrow_mut();
        if table.strangers.len() >= STRANGERS_MAX
            && let Some((_, stop)) = table.strangers.pop_first()
        {
            stop.notify_one();
        }
        table.last += 1;
        let (number, stop) = (table.last, Rc::new(Notify::new()));
        table.strangers.insert(number, Rc::clone(&stop));
        Place {
            connections: self.clone(),
            number,
            stop,
        }
    }
}

impl Place {
    /// The session of this connection: its number, never 0 and never used again.
    pub(crate) const fn session(&self) -> SessionId {
        SessionId(self.number)
    }

    /// What says that this connection has to end.
    pub(crate) fn stop(&self) -> Rc<Notify> {
        Rc::clone(&self.stop)
    }

    /// Whether the hello was accepted.
    pub(crate) fn is_known(&self) -> bool {
        self.connections.0.borrow().known.contains_key(&self.number)
    }

    /// Makes the stranger known; false if there is no room.
    pub(crate) fn become_known(&self, tenant: TenantId) -> bool {
        let mut table = self.connections.0.borrow_mut();
        if table.known.len() >= table.known_max {
            return false;
        }
        table.strangers.remove(&self.number);
        table
            .known
            .insert(self.number, (tenant, Rc::clone(&self.stop)));
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Only if somebody drops a connection while the set is being looked through, which no
        // method here does, is it borrowed; a place is lost then rather than the process.
        if let Ok(mut table) = self.connections.0.try_borrow_mut() {
            table.strangers.remove(&self.number);
            table.known.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_less::is_told;

    mod futures_less {
        //! Looks at a notification without a runtime.
        use std::pin::pin;
        use std::task::{Context, Poll, Waker};

        pub(super) fn is_told(stop: &tokio::sync::Notify) -> bool {
            let waiting = pin!(stop.notified());
            waiting.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
        }
    }

    #[test]
    fn the_oldest_stranger_makes_room_and_known_ones_stay() {
        let connections = Connections::new(2);
        let tenant = TenantId::new("a").expect("a name");
        let known = connections.enter();
        assert!(known.become_known(tenant.clone()));
        let strangers: Vec<_> = (0..STRANGERS_MAX).map(|_| connections.enter()).collect();
        assert_eq!(
            (connections.known(), connections.strangers()),
            (1, STRANGERS_MAX)
        );
        assert!(!is_told(&strangers[0].stop()));
        let newest = connections.enter();
        assert_eq!(connections.strangers(), STRANGERS_MAX);
        assert!(is_told(&strangers[0].stop()));
        assert!(!is_told(&strangers[1].stop()));
        assert!(!is_told(&known.stop()));
        assert!(newest.become_known(tenant.clone()));
        assert!(
            !strangers[5].become_known(tenant.clone()),
            "two are the most"
        );
        assert_eq!(connections.close_tenant(&tenant), 2);
        assert!(is_told(&known.stop()) && is_told(&newest.stop()));
        drop((known, newest, strangers));
        assert_eq!((connections.known(), connections.strangers()), (0, 0));
    }
}
