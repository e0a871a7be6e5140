//! The suites of the history checker and of the simulator.
//!
//! `cfg(test)` tells the lints what the test profile implies.

#[cfg(test)]
mod history;
#[cfg(feature = "world")]
#[cfg(test)]
mod world;
