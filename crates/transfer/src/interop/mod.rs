//! Exchanging bytes with stock Mooncake engines, in both roles; off unless somebody starts it.
//!
//! ```text
//! frame     handshake frames: length, kind, JSON
//! segment   what a peer's tcp segment offers: buffers, data port, dialect
//! notify    short messages between engines
//! data      the header and the status around payload on the data port
//! space     the memory that peers may reach, asked anew before each step
//! listen    our handshake port and our data port
//! peer      a stock engine that we read from and write to
//! ```
//!
//! The first four do no input and output. The protocol has no authentication and no encryption:
//! whoever reaches the ports reads and writes every buffer that the [`AddressSpace`] names, so
//! they belong into a network of their own. What can be added without breaking the protocol is:
//! bounds on everything, a check of every step against what is registered now, and an end to
//! whoever only holds a connection.

pub mod data;
pub mod frame;
#[cfg(test)]
mod heap;
pub mod listen;
mod notify;
pub mod peer;
mod segment;
mod space;
#[cfg(test)]
mod tests;

pub use listen::{ListenOptions, serve};
pub use notify::Notify;
pub use peer::{InteropError, PeerOptions, StockPeer};
pub use segment::{BUFFERS_MAX, BufferDesc, SegmentDesc, SegmentError};
pub use space::{Access, AddressRange, AddressSpace, Grant, Refused};
