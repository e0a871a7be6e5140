//! The operator against an API server in this process, in fake time: what it makes, repairs and
//! removes, how often it writes, and what a crash, a partition or a second operator leaves.

mod api_server;
mod drains;
mod faults;
mod lifecycle;
mod load;
mod master_http;
mod master_replicas;
mod master_rolls;
mod master_settings;
mod merge;
mod quotas;
mod recovery;
mod snapshots;
mod troubles;
mod world;
