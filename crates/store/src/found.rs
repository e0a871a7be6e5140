//! What agents hold after the log was lost.

use larder_types::{Digest, Extent, Key, Memo, Version};

/// The most extents in one [`crate::Request::Inventory`].
pub const MAX_FOUND: usize = 1024;

/// An extent that an agent holds after the log was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which.
    pub extent: Extent,
    /// The version that lies there.
    pub version: Version,
    /// What its record says of the object; `None` if it is not whole, or to be erased.
    pub object: Option<FoundObject>,
}

/// What a record says of its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundObject {
    /// Its key.
    pub key: Key,
    /// Position of the extent among the replica's extents, from 0.
    pub part: u16,
    /// How many extents the replica has.
    pub parts: u16,
    /// Size of the whole object, in bytes.
    pub size_bytes: u64,
    /// The digest of this extent.
    pub digest: Digest,
    /// What else the put said.
    pub memo: Memo,
}
