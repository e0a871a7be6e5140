//! Cache events: what appeared in a tenant's cache and what went, with numbers to go on from.
//!
//! A subscriber asks for what comes after a number and is answered when there is something, or
//! after a while with nothing. Whoever does not ask gets nothing, so a slow subscriber costs the
//! master no memory: events beyond what is kept are dropped, and it hears of the gap.

use larder_types::{Epoch, Key, Version};
use serde::{Deserialize, Serialize};

/// The number of an event of one tenant. Numbers of one epoch follow one another without holes;
/// those of another epoch say nothing about these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Sequence {
    /// The epoch of the leader that saw it.
    pub epoch: Epoch,
    /// Counts the events of the tenant in that epoch.
    pub counter: u64,
}

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheChange {
    /// A put ended: the key holds the event's version from here on.
    Stored {
        /// Size of the object, in bytes.
        size_bytes: u64,
        /// The version that the key held before and that is gone.
        replaces: Option<Version>,
    },
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

impl CacheChange {
    /// Every name that [`CacheChange::name`] gives, in the order of the variants.
    pub const NAMES: [&'static str; 6] =
        ["stored", "removed", "evicted", "expired", "lost", "purged"];

    /// The name, as it stands in metric labels.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        Self::NAMES[self.place()]
    }

    /// The place of the variant in [`CacheChange::NAMES`].
    #[must_use]
    pub const fn place(&self) -> usize {
        match self {
            Self::Stored { .. } => 0,
            Self::Removed => 1,
            Self::Evicted => 2,
            Self::Expired => 3,
            Self::Lost => 4,
            Self::Purged => 5,
        }
    }
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheEvent {
    /// The key.
    pub key: Key,
    /// The version that came, or that went.
    pub version: Version,
    /// What happened.
    pub change: CacheChange,
}

/// Asks for the caller's own events. Answer: `Reply<EventPage>`, when there is one or `wait_ms`
/// have passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscribe {
    /// The first event wanted; `None` = only say which will be the next.
    pub from: Option<Sequence>,
    /// How long the answer may wait for an event, in ms; at most
    /// [`crate::limit::MAX_EVENT_WAIT_MS`]. 0 = not at all.
    pub wait_ms: u32,
}

/// Answer to [`Subscribe`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventPage {
    /// What happened, from the number that was asked for on.
    Events {
        /// The events in order, one number each; at most [`crate::limit::MAX_BATCH`].
        entries: Vec<CacheEvent>,
        /// What to ask for next.
        next: Sequence,
        /// Whether there are more already.
        more: bool,
    },
    /// Events from that number on are no longer kept, or are those of a former leader. To know
    /// what is there, list the keys again and go on from `next`.
    Gap {
        /// What to ask for next.
        next: Sequence,
    },
}
