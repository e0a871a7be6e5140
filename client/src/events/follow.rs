//! How a late subscriber catches up: which question comes next and what its answer means. Pure.
//!
//! ```text
//! 1  ask for the number of the next event
//! 2  list a page of keys, then read the events up to now; again until all pages are read
//! 3  read the events up to now: the subscriber knows what is there
//! 4  wait for events
//! ```
//!
//! A page shows its keys as they are at some time after (1). Every later change of them is among
//! the events, and earlier ones that are told again are followed by all later ones, so that the
//! last word about a key is always the newest. Events are read between pages, so that they do not
//! outgrow what the master keeps while a long list is read. A gap begins at (1) again.

use std::collections::VecDeque;

use larder_types::{Key, Version};
use larder_wire::events::{CacheChange, CacheEvent, EventPage, Sequence};
use larder_wire::master::Listed;

/// Why an object is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GoneCause {
    /// Somebody removed it.
    Removed,
    /// Its space was needed.
    Evicted,
    /// Its time was over.
    Expired,
    /// Its last replica was lost.
    Lost,
    /// The tenant was deleted.
    Purged,
}

/// What a subscriber hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// Forget all keys: a snapshot begins. First of all updates, and again where events were
    /// missed or the pool began anew.
    Reset,
    /// Part of the snapshot: this key holds an object.
    Present {
        /// The key.
        key: Key,
        /// Size of the object, in bytes.
        size_bytes: u64,
    },
    /// The snapshot is complete: exactly the keys that were told of and are not gone since hold
    /// objects.
    Synced,
    /// A key holds this version from here on. May be told of a key that is known already.
    Stored {
        /// The key.
        key: Key,
        /// What it holds.
        version: Version,
        /// Size of the object, in bytes.
        size_bytes: u64,
        /// The version that it held before and that is gone.
        replaces: Option<Version>,
    },
    /// A key holds no object any more. May be told of a key that is not known.
    Gone {
        /// The key.
        key: Key,
        /// What it held.
        version: Version,
        /// Why it is gone.
        cause: GoneCause,
    },
}

impl From<CacheEvent> for Update {
    fn from(event: CacheEvent) -> Self {
        let CacheEvent {
            key,
            version,
            change,
        } = event;
        let cause = match change {
            CacheChange::Stored {
                size_bytes,
                replaces,
            } => {
                return Self::Stored {
                    key,
                    version,
                    size_bytes,
                    replaces,
                };
            }
            CacheChange::Removed => GoneCause::Removed,
            CacheChange::Evicted => GoneCause::Evicted,
            CacheChange::Expired => GoneCause::Expired,
            CacheChange::Lost => GoneCause::Lost,
            CacheChange::Purged => GoneCause::Purged,
        };
        Self::Gone {
            key,
            version,
            cause,
        }
    }
}

/// The next question to the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Events from a number on, or only the next number; `wait` = until there is one.
    Events { from: Option<Sequence>, wait: bool },
    /// Keys behind this one.
    Page { after: Option<Key> },
}

/// Its answer.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Events(EventPage),
    Page(Listed),
}

/// Where a subscriber is.
#[derive(Clone, Debug)]
enum Phase {
    /// It knows nothing.
    Start,
    /// It reads pages; `after` is the last key of the one before.
    Listing { after: Option<Key> },
    /// It reads events between two pages, or behind the last.
    CatchingUp { then: Option<Key> },
    /// It knows what is there.
    Following,
}

/// A subscriber.
#[derive(Clone, Debug)]
pub(crate) struct Follow {
    phase: Phase,
    /// The number of the next event; `None` only at the start.
    next: Option<Sequence>,
}

impl Follow {
    pub(crate) const fn new() -> Self {
        Self {
            phase: Phase::Start,
            next: None,
        }
    }

    /// What to ask. The same until the answer is told.
    pub(crate) fn ask(&self) -> Ask {
        let events = |wait| Ask::Events {
            from: self.next,
            wait,
        };
        match &self.phase {
            Phase::Start => Ask::Events {
                from: None,
                wait: false,
            },
            Phase::Listing { after } => Ask::Page {
                after: after.clone(),
            },
            Phase::CatchingUp { .. } => events(false),
            Phase::Following => events(true),
        }
    }

    /// Takes the answer to what [`Follow::ask`] asked; what it means for the subscriber is put
    /// behind `updates`.
    pub(crate) fn told(&mut self, told: Told, updates: &mut VecDeque<Update>) {
        match told {
            Told::Page(listed) => {
                let last = listed.entries.last().map(|(key, _)| key.clone());
                let present = listed.entries.into_iter();
                updates
                    .extend(present.map(|(key, size_bytes)| Update::Present { key, size_bytes }));
                // A page without keys is the last, whatever it says: it would come again.
                let then = last.filter(|_| listed.more);
                self.phase = Phase::CatchingUp { then };
            }
            Told::Events(EventPage::Gap { .. }) => self.phase = Phase::Start,
            Told::Events(EventPage::Events {
                entries,
                next,
                more,
            }) => {
                self.next = Some(next);
                updates.extend(entries.into_iter().map(Update::from));
                self.phase = match std::mem::replace(&mut self.phase, Phase::Following) {
                    Phase::Start => {
                        updates.push_back(Update::Reset);
                        Phase::Listing { after: None }
                    }
                    Phase::CatchingUp { then } if more => Phase::CatchingUp { then },
                    Phase::CatchingUp { then: None } => {
                        updates.push_back(Update::Synced);
                        Phase::Following
                    }
                    Phase::CatchingUp { then } => Phase::Listing { after: then },
                    Phase::Listing { after } => Phase::Listing { after },
                    Phase::Following => Phase::Following,
                };
            }
        }
    }
}

#[cfg(test)]
mod tests;
