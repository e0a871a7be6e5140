//! Whole agents against a master that says what a test wants.

#![expect(clippy::panic, reason = "a test fails by panicking")]

mod data;
mod fake_master;
mod masters;
mod rig;
mod starts;
