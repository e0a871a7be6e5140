//! The real program against real processes: up, the calls of a tenant, down.

mod library;
mod life;
mod objects;
mod pool;
mod refusals;
