//! How many connections a port has, and who goes when there are too many.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::sync::Notify;

/// The connections of a port. Who is at rest may be sent away for somebody new: first those who
/// never said anything, oldest first, then those who rest for longest. Who is in the middle of a
/// request stays; if all are, the new one has to go.
///
/// Stock engines keep connections and do not notice that one was closed before they used it
/// again, so nobody is sent away just for resting.
#[derive(Clone, Debug)]
pub(super) struct Crowd(Rc<RefCell<Table>>);

#[derive(Debug)]
struct Table {
    places_max: usize,
    last: u64,
    busy: usize,
    /// By when they began to rest. Strangers stand in the first map, the others in the second.
    resting: [BTreeMap<u64, Rc<Notify>>; 2],
}

const STRANGERS: usize = 0;
const KNOWN: usize = 1;

/// One connection's place; gives it back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    crowd: Crowd,
    leave: Rc<Notify>,
    now: RefCell<Now>,
}

#[derive(Clone, Copy, Debug)]
enum Now {
    Resting { map: usize, since: u64 },
    Busy,
    SentAway,
}

impl Crowd {
    /// Allows `places_max` connections, at least one.
    pub(super) fn new(places_max: usize) -> Self {
        Self(Rc::new(RefCell::new(Table {
            places_max: places_max.max(1),
            last: 0,
            busy: 0,
            resting: [BTreeMap::new(), BTreeMap::new()],
        })))
    }

    /// A place for somebody who just connected; `None` if everybody is in a request.
    pub(super) fn enter(&self) -> Option<Place> {
        let mut table = self.0.borrow_mut();
        if table.len() >= table.places_max {
            let [strangers, known] = &mut table.resting;
            let (_, leave) = strangers.pop_first().or_else(|| known.pop_first())?;
            leave.notify_one();
        }
        let leave = Rc::new(Notify::new());
        let since = table.rest(STRANGERS, &leave);
        Some(Place {
            crowd: self.clone(),
            leave,
            now: RefCell::new(Now::Resting {
                map: STRANGERS,
                since,
            }),
        })
    }
}

impl Table {
    fn len(&self) -> usize {
        self.busy + self.resting.iter().map(BTreeMap::len).sum::<usize>()
    }

    fn rest(&mut self, map: usize, leave: &Rc<Notify>) -> u64 {
        self.last += 1;
        self.resting[map].insert(self.last, Rc::clone(leave));
        self.last
    }
}

impl Place {
    /// Ends when the place is needed for somebody else.
    pub(super) async fn has_to_go(&self) {
        self.leave.notified().await;
    }

    /// A request began: the place is safe. False if it was given away just before.
    pub(super) fn begin(&self) -> bool {
        let mut table = self.crowd.0.borrow_mut();
        let mut now = self.now.borrow_mut();
        let Now::Resting { map, since } = *now else {
            return matches!(*now, Now::Busy);
        };
        if table.resting[map].remove(&since).is_none() {
            *now = Now::SentAway;
            return false;
        }
        table.busy += 1;
        *now = Now::Busy;
        true
    }

    /// The request is over.
    pub(super) fn rest(&self) {
        let mut now = self.now.borrow_mut();
        if matches!(*now, Now::Busy) {
            let mut table = self.crowd.0.borrow_mut();
            table.busy -= 1;
            let since = table.rest(KNOWN, &self.leave);
            *now = Now::Resting { map: KNOWN, since };
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // No method here drops a place while it looks through the table.
        let Ok(mut table) = self.crowd.0.try_borrow_mut() else {
            return;
        };
        match *self.now.borrow() {
            Now::Busy => table.busy -= 1,
            Now::Resting { map, since } => {
                table.resting[map].remove(&since);
            }
            Now::SentAway => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn has_to_go(place: &Place) -> bool {
        let waiting = pin!(place.has_to_go());
        waiting.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn strangers_go_first_then_who_rests_longest_and_never_who_is_busy() {
        let crowd = Crowd::new(3);
        let known = crowd.enter().expect("room");
        let other = crowd.enter().expect("room");
        let stranger = crowd.enter().expect("room");
        for place in [&known, &other] {
            assert!(place.begin());
            place.rest();
        }
        let newer = crowd.enter().expect("the stranger goes");
        assert!(has_to_go(&stranger) && !has_to_go(&known));
        assert!(!stranger.begin(), "its place is given away");
        assert!(newer.begin());
        assert!(known.begin());
        known.rest();
        let newest = crowd.enter().expect("who rests longest goes");
        assert!(has_to_go(&other) && !has_to_go(&known));
        assert!(newest.begin() && known.begin());
        assert!(crowd.enter().is_none(), "all are busy");
        drop((stranger, other));
        assert!(crowd.enter().is_none(), "they had no place any more");
        drop(newest);
        let last = crowd.enter().expect("room again");
        drop((known, newer, last));
        assert_eq!(crowd.0.borrow().len(), 0);
    }
}
