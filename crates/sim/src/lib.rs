//! Judges whether a pool kept its word.
//!
//! [`history`] takes what clients asked and were told, of a simulated pool or of real processes,
//! and says whether one register per key could have told it. `world` runs processes, a network,
//! disks and clocks from one seed, breaks them, and asks the checker.

pub mod history;
pub mod seed;
#[cfg(feature = "world")]
pub mod world;
