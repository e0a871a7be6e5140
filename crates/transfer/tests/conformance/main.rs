//! One suite that every transport passes, and what listeners and transports do with peers that
//! break the rules.

#![expect(
    clippy::panic,
    reason = "what is compiled only as a test may fail as one"
)]

mod attack;
mod holder;
mod limits;
mod peer;
mod scripted;
mod shm;
mod suite;
