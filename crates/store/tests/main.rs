//! The suites of the store: a test log, a world of agents and clients around it, and what must
//! hold in it.
//!
//! `cfg(test)` tells the lints what the test profile implies.

#[cfg(test)]
mod bugs;
#[cfg(test)]
mod decisions;
#[cfg(test)]
mod model;
#[cfg(test)]
mod prop;
#[cfg(test)]
mod rebuild;
#[cfg(test)]
mod snapshots;
#[cfg(test)]
mod test_log;
#[cfg(test)]
mod world;
