//! The real program against real processes: up, the calls of a tenant, down.

mod drains;
mod inspections;
mod library;
mod life;
mod objects;
mod pool;
mod refusals;
mod snapshots;
