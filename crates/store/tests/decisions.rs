//! What the leader decides, case by case.

mod agents;
mod codes;
mod corruption;
mod eviction;
mod moves;
mod pins;
mod placement;
mod puts;
mod quotas;
mod removals;
mod space;
mod stripes;
mod sweeps;
mod tenants;
mod upserts;
