//! Nodes: which belong to a pool, and the label that says so.
//!
//! A member carries a label with the pool's uid, and the DaemonSet of the agents selects by it. So
//! `spec.nodes.count` can choose among equal nodes, a node leaves only when it has moved its
//! objects or had its time for that, and a pool that is made again under the same name inherits no
//! node.

pub mod drain;
pub mod facts;
pub mod labels;
pub mod leave;
pub mod members;
pub mod silence;
pub mod sweep;
pub mod topology;
