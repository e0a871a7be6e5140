//! The wire format: golden bytes, truncation, limits, random bytes and signatures.

mod calls;
mod engine_samples;
mod frames;
mod golden;
mod inventory;
mod samples;
mod signatures;
