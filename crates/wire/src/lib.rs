//! What goes over sockets: frames, messages, capabilities, receipts and session tokens.
//!
//! The only place where wire types are defined. Bytes in, values out: no sockets and no clocks
//! here. A message that changes gets a new [`Kind`]; the old one stays readable for a release.
//!
//! ```text
//! connection = Hello ->, <- Welcome | Refused, then frames both ways
//! frame      = header (40 bytes, little-endian), body (postcard), payload (raw bytes)
//! ```

pub mod agent;
pub mod capability;
pub mod checksum;
pub mod data;
pub mod decoder;
pub mod engine;
pub mod events;
pub mod frame;
pub mod hello;
pub mod key;
pub mod kind;
pub mod limit;
pub mod location;
pub mod master;
pub mod negotiate;
pub mod quota;
pub mod receipt;
pub mod session_token;
mod tasks;

pub use capability::{Capability, CapabilityError, Reach, SignedCapability};
pub use decoder::FrameDecoder;
pub use frame::{Frame, FrameError, Header, decode_body, encode_frame};
pub use hello::{Hello, Purpose, Refused, RefusedReason, Welcome};
pub use key::{AgentKey, KeyRing, RootKey};
pub use kind::Kind;
pub use master::{CallError, CallResult, Reply};
pub use negotiate::negotiate;
pub use receipt::{Receipt, ReceiptError};
pub use session_token::{SessionClaims, SessionSigner, SessionToken, SessionVerifier, TokenError};
