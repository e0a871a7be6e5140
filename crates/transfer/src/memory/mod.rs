//! Memory files and their mappings: the only `unsafe` code of this crate, with a safe face.
//!
//! ```text
//! SlabMemory    an agent's slab: mapped read-write by the agent, lent read-only for views
//! ForeignMap    a client's memory file, mapped read-only by the agent
//! SharedBuffer  a client's own memory file
//! ViewMap       a slab, mapped read-only by a client
//! OwnMemory     what an engine moves bytes to and from
//! ```
//!
//! Who may touch which range when is decided by [`crate::segments`]: a range is written only by
//! the bearer of its write ticket and read only while no such ticket is out. Nothing here can
//! check that; what is checked is that no access leaves its mapping and that no mapping can lose
//! its file's bytes (a file that may shrink would end the process with SIGBUS).

#![expect(
    unsafe_code,
    reason = "mapping memory and handing addresses to the kernel needs it"
)]

mod foreign;
mod mapping;
mod memfd;
mod own;
mod shared;
mod slab;
#[cfg(test)]
mod tests;
mod view;

use std::io;

pub use foreign::ForeignMap;
pub(crate) use memfd::create_growing;
pub use own::OwnMemory;
pub use shared::SharedBuffer;
pub use slab::SlabMemory;
pub use view::ViewMap;

/// Why memory could not be had or reached.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The size is zero, too large, or not a multiple of what it must be.
    #[error("{bytes} bytes is no size for this memory; give a multiple of {unit_bytes} above 0")]
    Size {
        /// The size asked for, in bytes.
        bytes: u64,
        /// What it must be a multiple of, in bytes.
        unit_bytes: u64,
    },
    /// The limit of open files is reached.
    #[error(
        "{in_use} files are open and {limit} are allowed; raise the limit of open files \
         (ulimit -n, LimitNOFILE=) to {needed} or more"
    )]
    OpenFiles {
        /// How many are open.
        in_use: u64,
        /// How many may be.
        limit: u64,
        /// How many this call needed; later calls need more.
        needed: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// The limit of mappings is reached.
    #[error(
        "{in_use} ranges of memory are mapped and {limit} are allowed; raise vm.max_map_count \
         to {needed} or more"
    )]
    Mappings {
        /// How many there are.
        in_use: u64,
        /// How many may be.
        limit: u64,
        /// How many this call needed; later calls need more.
        needed: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// The machine or the container has not that much memory.
    #[error(
        "{bytes} bytes of memory are not to be had; offer less memory, or raise the memory limit \
         of the process or its container"
    )]
    NoMemory {
        /// The size asked for, in bytes.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel refused for another reason.
    #[error("the kernel would not {action}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The range does not lie within the memory.
    #[error("{length_bytes} bytes from {offset_bytes} do not lie within {size_bytes} bytes")]
    OutOfRange {
        /// Where the range starts, in bytes.
        offset_bytes: u64,
        /// How long it is, in bytes.
        length_bytes: u64,
        /// Size of the memory, in bytes.
        size_bytes: u64,
    },
    /// The descriptor is something else.
    #[error("the descriptor is no memory file of ordinary pages; pass one made by memfd_create")]
    NotMemoryFile,
    /// Its owner could take the bytes away under a reader.
    #[error("the memory file may shrink; add F_SEAL_SHRINK before passing it on")]
    NotSealed,
    /// It is shorter than was said.
    #[error("the memory file has {actual_bytes} bytes, not the {bytes} announced")]
    TooShort {
        /// The size that was announced, in bytes.
        bytes: u64,
        /// The size that it has, in bytes.
        actual_bytes: u64,
    },
}

impl MemoryError {
    /// Whether the same call may succeed later, when others let go of what they hold.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::OpenFiles { .. } | Self::Mappings { .. } | Self::NoMemory { .. }
        )
    }
}
