//! The suites of the log: both disks, calls and their errors, damage, and a model under crashes.
//!
//! `cfg(test)` tells the lints what the test profile implies.

#[cfg(test)]
mod calls;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod crashes;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod model;
#[cfg(test)]
mod payloads;
#[cfg(test)]
mod pool;
#[cfg(test)]
mod rebuilds;
#[cfg(test)]
mod records;
#[cfg(test)]
mod scans;
#[cfg(test)]
mod snapshots;
#[cfg(test)]
mod steps;
#[cfg(test)]
mod syncs;
