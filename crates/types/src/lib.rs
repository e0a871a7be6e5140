//! The words of the pool: ids, keys, sizes with units, epochs, versions, extents and codes.
//!
//! Nothing here does I/O, reads a clock or allocates more than the names it holds. Every other
//! crate imports this one; it imports none of ours.

pub mod attributes;
pub mod code;
pub mod digest;
pub mod epoch;
pub mod extent;
pub mod id;
pub mod key;
pub mod labels;
pub mod layout;
pub mod principal;
pub mod quota;
pub mod time;

pub use attributes::{Attributes, DataType, Memo, Pin};
pub use code::{ErrorCode, Reason};
pub use digest::Digest;
pub use epoch::{CopyId, Epoch, Version};
pub use extent::{Extent, SlabRef};
pub use id::{
    AgentId, AgentName, AgentUid, GroupId, IdError, Incarnation, Label, QuotaName, Registration,
    SegmentGeneration, SegmentId, SessionId, TaskId, TenantId,
};
pub use key::{Key, KeyError, KeyRef};
pub use labels::{Labels, LabelsError};
pub use principal::{Access, Principal, Role};
pub use quota::{Borrowing, BoundKind, OnExceed};
pub use time::PoolTime;
