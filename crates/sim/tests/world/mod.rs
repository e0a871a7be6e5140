//! The simulator: its network, its faults, its processes, and the worlds made of them.

mod agent;
mod calls;
mod faults;
mod ledger;
mod network;
mod stage;
