//! Moving bytes between the buffers of two processes: what is registered, how transfers are cut,
//! what is next, and which way it takes. Everything here is pure; told time, events and chance.
//!
//! ```text
//! core       the engine without its hands: requests, their slices, and what came of them
//! buffers    what is registered here, and what a peer is told of it
//! plan       transfers -> slices
//! queue      which slice is next: class, tenant, deadline, limits
//! tenants    weights and limits
//! rails      which way it takes: rate, delay, health
//! reach      what a rail cannot reach although it works
//! ```

pub mod bucket;
pub mod buffers;
pub mod class;
pub mod core;
pub mod estimate;
pub mod health;
pub mod plan;
pub mod queue;
pub mod rails;
pub mod reach;
mod request;
pub mod tenants;

pub use request::{Failure, Outcome, Timeline};
