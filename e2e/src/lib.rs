//! Tests of whole systems and the benchmark harness.
//!
//! Nothing imports this crate. Tests are named by what they need: `process_*` run the programs
//! as local processes, without privileges and without Kubernetes.

pub mod bench;
pub mod chaos;
pub mod cluster;
pub mod http;
pub mod pool;
pub mod proc;
pub mod prometheus;
