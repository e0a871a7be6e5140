//! Eviction: which objects go when space or a quota runs out.
//!
//! All of it is soft state of the leader: a new one learns it again from the state, in steps, and
//! from what is read.
//!
//! * [`nodes`]: 16 bytes for each replica, linked into the queues of a policy.
//! * [`Policy`]: which entry of a queue goes next. One file per policy, one suite for all.
//! * [`ghost`]: what was evicted not long ago. Would a larger pool have hit?
//! * [`trace`]: requests shaped like those of inference engines, and the hit ratio of each policy.

mod cache;
mod check;
mod evictor;
mod expel;
mod fill;
pub(crate) mod ghost;
mod guard;
mod lru;
pub(crate) mod nodes;
mod queue;
mod room;
mod s3_fifo;
mod sieve;
mod signals;
pub mod trace;
mod turn;

use crate::objects::ObjectId;
use nodes::{EntryId, Nodes};

pub(crate) use evictor::Evictor;
pub(crate) use expel::Budget;
pub(crate) use room::Relief;
pub(crate) use s3_fifo::S3Fifo;
pub use signals::{Evicted, EvictionCause, PoolSignals, Signals, WINDOWS_MINUTES};

/// What one turn may do: it looks at this many entries at most, so that a turn of the master has
/// an end. At about 100 ns an entry, four queues' worth of cache misses, that is 0.5 ms.
pub(crate) const MAX_STEPS: u32 = 4096;

/// After passing this many warm entries in one call a policy takes the next that it may, warm or
/// not: the order among entries that were all used lately is worth less than an end.
const MAX_CHANCES: u32 = 64;

/// Which entry goes next. A policy holds the ends of its queues; the links lie in [`Nodes`], which
/// all policies of one tenant share. Each call but [`Policy::victim`] takes constant time, and that
/// one constant time per step.
pub(crate) trait Policy: Default {
    /// The name, as it stands in reports.
    const NAME: &'static str;

    /// Takes in an entry that is in no queue. `again`: its key was evicted not long ago.
    fn insert(&mut self, nodes: &mut Nodes, entry: EntryId, again: bool);

    /// The entry was used.
    fn touch(&mut self, nodes: &mut Nodes, entry: EntryId);

    /// Forgets an entry of this policy.
    fn remove(&mut self, nodes: &mut Nodes, entry: EntryId);

    /// The entry that goes next, of those that `may` go; the others stay, as if they had been used.
    /// It is named and not taken out: the caller removes it, or is named it again. Each entry
    /// looked at is a step. `None`: none may go, which costs each entry a step, or no step is left.
    fn victim(
        &mut self,
        nodes: &mut Nodes,
        steps: &mut u32,
        may: &mut dyn FnMut(ObjectId) -> bool,
    ) -> Option<EntryId>;

    /// How many entries it holds.
    fn len(&self) -> u32;

    /// The bytes of all its entries.
    fn bytes(&self) -> u64;
}

#[cfg(test)]
mod tests;
