//! A master in this process against clients and agents that speak the wire directly.

mod admin;
mod agents;
mod batches;
mod drains;
mod events;
mod labels;
mod life;
mod objects;
mod peer;
mod refused;
mod reviews;
mod rig;
mod shapes;
mod signals;
mod snapshots;
mod space;
mod tenants;
mod unprivileged;
mod writers;
#[cfg(feature = "zmq")]
mod zmq;
