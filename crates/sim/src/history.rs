//! What clients asked and were told, and whether that can be true.
//!
//! # What is checked
//!
//! Each key is a register that is absent or holds the value of one write. A history is right if
//! every operation can be given one moment between its call and its answer such that a register
//! that did them in this order would have told the same (linearizability, by Herlihy and Wing).
//! Keys are independent, so each is judged alone.
//!
//! An operation of unknown outcome may have its moment at any time after its call, also after its
//! client gave up, or never. A cache may lose objects, but only when the caller says so
//! ([`Losses`]): a loss is a moment at which a present key becomes absent. With
//! [`Losses::Never`] a get that misses an acknowledged put is a violation.
//!
//! # How
//!
//! The search is the one of Wing and Gong with the memory of Lowe ("Testing for linearizability",
//! 2017): a configuration is what the register holds and which of the pending operations had their
//! moment, and none is looked at twice. As in his just-in-time variant the history is walked in the
//! order of time, and an operation is given its moment no earlier than some answer needs it. Where
//! operations do not overlap this is one step each. Three reductions keep it small:
//!
//! * An operation that only looks gets its moment as soon as it fits, since it changes nothing.
//! * Of two configurations that differ only in which unknown operations were used up, the one that
//!   used fewer can do whatever the other can, so the other is dropped.
//! * Unknown removals are alike once called, so only the first unused one is tried.
//!
//! A key that needs more than [`Limits`] is [`Undecided`], which is never counted as right.

mod check;
mod counterexample;
mod events;
mod file;
mod limits;
mod losses;
mod operation;
mod recorder;
mod search;
mod slots;

pub use check::{Report, check, check_keys};
pub use counterexample::{Counterexample, Fault};
pub use file::{HISTORY_VERSION, Kept, LINE_BYTES_MAX, read_history, write_history};
pub use limits::{Limits, Undecided, Why};
pub use losses::{Interval, Losses};
pub use operation::{Call, History, HistoryError, Operation, Outcome, Value};
pub use recorder::{Recorder, Token};
pub use slots::SLOTS;
