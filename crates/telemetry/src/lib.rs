//! The table of metrics, tracing set-up and the printing of error chains.
//!
//! It holds what every program needs to be watched and nothing else: it imports none of our other
//! crates, opens no port and keeps no global besides the subscriber of `tracing`.

pub mod chain;
pub mod exposition;
pub mod metrics;
pub mod trace;

pub use chain::error_chain;
pub use metrics::{Component, Metric, Registry};
