//! The wire format: golden bytes, truncation, limits, random bytes and signatures.

mod frames;
mod golden;
mod samples;
mod signatures;
