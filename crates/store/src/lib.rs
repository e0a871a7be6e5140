//! The master's state machine: pure, synchronous and deterministic.
//!
//! * [`State`] is all that is in the log. [`apply`] is the only thing that changes it: the leader,
//!   standbys, a restart and the inspector call the same function.
//! * [`Leader`] is what is lost at a fail-over: reservations, proposed ops, heartbeats.
//!   [`Leader::decide`] looks at the state through it, may refuse, and returns ops to propose.
//! * [`check`] finds what must not be.
//!
//! No clock, file, environment, network, thread or random number is read here: time, events and
//! randomness are arguments.

mod alloc;
mod apply;
mod check;
mod decide;
mod digest;
mod effects;
pub mod evict;
mod explain;
mod found;
mod leader;
mod leases;
mod moves;
mod objects;
mod op;
mod overlay;
mod pages;
mod place;
mod quota;
mod reply;
mod request;
mod segment;
mod settings;
mod slots;
pub mod snapshot;
mod soft;
mod space;
mod state;
mod tasks;
mod tick;

pub use alloc::{AllocError, Allocator};
pub use apply::apply;
pub use check::{Finding, check};
pub use effects::{Command, CopyOrder, Corruption, Discard, Discards, Effects, Gone, GoneCause};
pub use explain::{Bound, CohortReport, QuotaReport};
pub use found::{Found, FoundObject, MAX_FOUND};
pub use leader::Leader;
pub use leases::Protection;
pub use moves::{Blocked, DrainStatus, MoveCounts, Why};
pub use objects::{Object, ObjectId, ObjectRef, ObjectTable};
pub use op::{MountedSegment, Op, RemovalCause};
pub use quota::{Effective, Exceeded, Share, Shortage, effective};
pub use reply::{Decision, ObjectStat, Refusal, Reply, Usage, WaitOn};
pub use request::{
    MAX_LISTED, MAX_RELEASED, MAX_REPLICAS, MAX_SEGMENTS, PutMode, QuotaPolicy, Request,
    SegmentOffer, TenantPolicy, Written,
};
pub use segment::{Releasing, Segment, Slab, SlabPhase};
pub use settings::{MAX_MOVES, Settings};
pub use slots::Slots;
pub use soft::Health;
pub use state::{Agent, State, Tenant};
pub use tasks::{MAX_TASKS, Task, TaskStatus, TaskWish};
