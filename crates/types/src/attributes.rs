//! What a put says about its object besides the bytes.

use crate::id::GroupId;

/// What protects an object from eviction for longer than a reader's lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Pin {
    /// Nothing.
    #[default]
    None,
    /// Evicted only when nothing else is left, until its time is over. Reads do not extend it; a
    /// new leader counts the whole time again.
    Soft {
        /// How long, in milliseconds.
        ttl_ms: u64,
    },
    /// Never evicted until it is unpinned. Bounded per tenant.
    Hard,
}

/// What an engine says that the bytes are. Kept for whoever lists; nothing is decided by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "u8", into = "u8"))]
pub struct DataType(u8);

impl DataType {
    /// The engine did not say.
    pub const UNKNOWN: Self = Self(0);
    /// The highest number, as Mooncake's clients know them: 0 unknown, 1 KV cache, 2 tensor,
    /// 3 weight, 4 sample, 5 activation, 6 gradient, 7 optimizer state, 8 metadata, 9 general.
    pub const MAX: u8 = 9;

    /// The type of this number, if there is one.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if number <= Self::MAX {
            Some(Self(number))
        } else {
            None
        }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }
}

impl From<DataType> for u8 {
    fn from(data_type: DataType) -> Self {
        data_type.0
    }
}

impl TryFrom<u8> for DataType {
    type Error = &'static str;
    fn try_from(number: u8) -> Result<Self, Self::Error> {
        Self::new(number).ok_or("a data type is 0 to 9")
    }
}

/// What a put says about its object besides the bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Attributes {
    /// What protects it from eviction.
    pub pin: Pin,
    /// Objects that are of use only together: evicted as one.
    pub group: Option<GroupId>,
    /// What its bytes are.
    pub data_type: DataType,
}

/// What the record of an extent keeps of its object besides the bytes: from records alone a pool
/// that lost its log finds its objects again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Memo {
    /// The extents of one replica have the same number, and those of other replicas of the same
    /// version another one.
    pub stripe: u32,
    /// How many replicas were asked for.
    pub wanted: u8,
    /// What the put said. A pin that was set later is not here.
    pub attributes: Attributes,
}
