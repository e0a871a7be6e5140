//! The benchmark harness: alternating pairs of ours and a ceiling, in one run.
//!
//! How each name is measured stands in `docs/benchmarks.md`.

pub mod ceiling;
pub mod engine;
pub mod ha;
pub mod kv;
mod kv_pool;
pub mod pair;
mod peer;
pub mod report;
pub mod spin;
pub mod store;
pub mod store_evict;
mod store_rig;
