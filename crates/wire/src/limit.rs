//! The limits of what anybody may send.

/// The newest protocol that this release speaks.
pub const PROTOCOL_MAX: u16 = 1;
/// The oldest protocol that this release still speaks.
pub const PROTOCOL_MIN: u16 = 1;

/// The longest body of a frame, in bytes. Bulk bytes travel as payload, on lanes of their own.
pub const MAX_BODY_BYTES: u32 = 1024 * 1024;
/// The longest body before the hello is accepted, in bytes: a stranger gets no more memory.
pub const MAX_HELLO_BYTES: u32 = 16 * 1024;
/// The longest payload, in bytes: the largest slab.
pub const MAX_PAYLOAD_BYTES: u64 = 16 * 1024 * 1024 * 1024;
/// The most items in one call.
///
/// The largest item is a get's answer: about 400 bytes with three replicas, so 1,024 of them
/// stay below half of [`MAX_BODY_BYTES`]. Calls whose keys are long must be cut by bytes too.
pub const MAX_BATCH: usize = 1024;
/// The most bytes of slabs and records in one page of an agent's inventory, as
/// `encoded_bytes_max` counts them: half of [`MAX_BODY_BYTES`], that the master's log entry of it
/// stays small too. With keys of 4,096 bytes these are 120 records.
pub const MAX_INVENTORY_BYTES: usize = 512 * 1024;
/// The most agents that one put may prefer.
pub const MAX_PREFERRED: usize = 16;
/// The longest credential, in bytes; a ServiceAccount token has one to two thousand.
pub const MAX_CREDENTIAL_BYTES: usize = 8 * 1024;
/// The longest name in a hello, in bytes.
pub const MAX_NAME_BYTES: usize = 256;
/// The longest address of a leader in a refusal, in bytes: a DNS name of 253, a colon and a port.
pub const MAX_ADDR_BYTES: usize = 253 + 1 + 5;
/// The most segments one agent may offer: one per NUMA node, and some to spare.
pub const MAX_SEGMENTS: usize = 64;
/// How long a stranger may take for its hello, in ms.
pub const HELLO_TIMEOUT_MS: u64 = 5_000;
/// The longest that a master holds a call for events that have not happened, in ms.
pub const MAX_EVENT_WAIT_MS: u32 = 30_000;
