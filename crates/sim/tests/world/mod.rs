//! The simulator: its network, its faults, its processes, and the worlds made of them.

mod calls;
mod faults;
mod ledger;
mod network;
mod pool;
mod stage;
mod whole;
