//! What the leader decides, case by case.

mod agents;
mod corruption;
mod eviction;
mod puts;
mod space;
mod sweeps;
mod tenants;
