//! The wire format: golden bytes, truncation, limits, random bytes and signatures.

mod calls;
mod frames;
mod golden;
mod inventory;
mod samples;
mod signatures;
