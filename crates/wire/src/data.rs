//! Calls of clients to agents: bytes in and out.
//!
//! An error comes back as a frame with the flag `ERROR` and a [`DataError`]. A refused write's
//! payload is read and thrown away, so that the lane stays usable.

use larder_types::{SlabRef, Version};
use serde::{Deserialize, Serialize};

use crate::capability::SignedCapability;

/// Writes one extent: the payload is all of its bytes. Answer: [`crate::Receipt`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Leave to write; names the extent and the version.
    pub capability: SignedCapability,
    /// CRC-32C of each 64 KiB block, computed by the source.
    pub block_crcs: Vec<u32>,
}

/// Reads from one extent. Answer: [`ReadStart`] with payload, then [`ReadEnd`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    /// Leave to read; names the extent and the version.
    pub capability: SignedCapability,
    /// First byte within the extent; a multiple of the block size.
    pub offset_bytes: u64,
    /// How many bytes.
    pub length_bytes: u64,
}

/// Stands before the payload of a read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadStart {
    /// The version that the record names.
    pub version: Version,
    /// CRC-32C of each 64 KiB block of the payload, from the record.
    pub block_crcs: Vec<u32>,
}

/// Stands behind the payload of a read: whether the record was still the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadEnd {
    /// False: the bytes may be mixed; throw them away.
    pub unchanged: bool,
}

/// Lends the agent a memory file of the client's, sealed against shrinking, for [`Pull`] and
/// [`crate::Kind::OpenView`] answers. The descriptor travels beside the frame. Answer:
/// [`BufferRegistered`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterBuffer {
    /// Its length, in bytes.
    pub length_bytes: u64,
}

/// Answer to [`RegisterBuffer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferRegistered {
    /// The number under which this connection may use it.
    pub buffer: u64,
}

/// Ends the loan. Answer: `()`, once no pull reads from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnregisterBuffer {
    /// From [`BufferRegistered`].
    pub buffer: u64,
}

/// Like [`Write`], but the agent copies from the client's memory file. Answer:
/// [`crate::Receipt`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pull {
    /// Leave to write.
    pub capability: SignedCapability,
    /// From [`BufferRegistered`].
    pub buffer: u64,
    /// Where the bytes start in the buffer.
    pub offset_bytes: u64,
    /// CRC-32C of each 64 KiB block, computed by the source.
    pub block_crcs: Vec<u32>,
}

/// Holds an extent's bytes for reading in place. Answer: [`ViewOpened`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenView {
    /// Leave to read.
    pub capability: SignedCapability,
}

/// Answer to [`OpenView`]. Where the connection has not got this slab yet, its memory file
/// travels beside the frame, for reading only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewOpened {
    /// The number of the hold; the bytes stay until it is closed or the connection ends.
    pub view: u64,
    /// The version that the record names.
    pub version: Version,
    /// The slab, so that the client finds its mapping again.
    pub slab: SlabRef,
    /// Size of the slab, in bytes.
    pub slab_bytes: u64,
    /// Whether a descriptor travels beside this frame.
    pub carries_memory: bool,
    /// Where the bytes start in the slab.
    pub offset_bytes: u64,
    /// How many there are.
    pub length_bytes: u64,
    /// CRC-32C of each 64 KiB block, from the record.
    pub block_crcs: Vec<u32>,
}

/// Lets go of a view. Answer: `()` if a request id is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloseView {
    /// From [`ViewOpened`].
    pub view: u64,
}

macro_rules! data_reasons {
    ($($(#[$doc:meta])* $name:ident = ($retry:literal, $label:literal, $text:literal)),* $(,)?) => {
        /// Why an agent refused, or could not finish.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum DataReason {
            $($(#[$doc])* $name,)*
        }

        impl DataReason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Whether asking the master again and repeating may succeed.
            #[must_use]
            pub const fn is_retryable(self) -> bool {
                match self { $(Self::$name => $retry,)* }
            }

            /// The name as a metric label.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// For people.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

data_reasons! {
    /// See the text.
    Forged = (false, "forged", "the capability was not signed for this agent"),
    /// See the text.
    Expired = (true, "expired", "the capability's time is over"),
    /// See the text.
    ForeignTenant = (false, "foreign_tenant", "the capability belongs to another tenant"),
    /// See the text.
    WrongAccess = (false, "wrong_access", "the capability does not allow this"),
    /// See the text.
    StaleIncarnation = (true, "stale_incarnation", "the agent restarted since"),
    /// See the text.
    StaleRegistration = (true, "stale_registration", "the slab has changed hands since"),
    /// See the text.
    StaleEpoch = (true, "stale_epoch", "the leader changed since"),
    /// See the text.
    StaleVersion = (true, "stale_version", "the extent holds another version, or none"),
    /// See the text.
    OutOfBounds = (false, "out_of_bounds", "the range is not within the extent"),
    /// See the text.
    Checksum = (true, "checksum", "the bytes do not match their checksums"),
    /// See the text.
    Conflict = (true, "conflict", "another connection is writing this version"),
    /// See the text.
    ViewLimit = (true, "view_limit", "the tenant holds as many bytes in views as it may"),
    /// See the text.
    BufferUnknown = (false, "buffer_unknown", "no such registered buffer on this connection"),
    /// See the text.
    BufferRefused = (false, "buffer_refused",
        "the buffer must be a memory file sealed against shrinking, of the length given"),
    /// See the text.
    Limit = (true, "limit", "a limit of the connection is reached"),
    /// See the text.
    Stopping = (true, "stopping", "the agent is stopping"),
    /// See the text.
    Unsupported = (false, "unsupported", "this listener does not offer the call"),
    /// See the text.
    Internal = (true, "internal", "a fault of the agent; its log says more"),
    /// See the text.
    Records = (true, "records",
        "the agent describes as many extents as its memory allows; put larger objects, or give \
         agents a higher memory limit"),
}

/// An agent's refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{}{}{detail}", .reason.text(), if .detail.is_empty() { "" } else { ": " })]
pub struct DataError {
    /// Why.
    pub reason: DataReason,
    /// Numbers of the case; may be empty.
    pub detail: String,
}

impl DataError {
    /// An error without detail.
    #[must_use]
    pub const fn new(reason: DataReason) -> Self {
        Self {
            reason,
            detail: String::new(),
        }
    }
}

impl From<DataReason> for DataError {
    fn from(reason: DataReason) -> Self {
        Self::new(reason)
    }
}
