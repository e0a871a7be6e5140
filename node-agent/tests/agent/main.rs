//! Whole agents against a master that says what a test wants.

#![expect(clippy::panic, reason = "a test fails by panicking")]

#[cfg(feature = "kubernetes")]
mod cache_node;
mod copies;
mod data;
#[cfg(feature = "kubernetes")]
mod fake_api;
mod fake_master;
mod masters;
mod pod;
mod rebuild;
mod rig;
mod starts;
