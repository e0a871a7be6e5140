//! How masters get huge pages for their heap.

/// The variable that masters are started with, and its value.
///
/// A master's tables are read at random places, so most of what a look-up or a put waits for are
/// page walks. With huge pages (`madvise` by glibc, where the kernel's setting is `madvise` or
/// `always`) look-ups of ten million objects take a fifth less time and puts a sixth, and the
/// memory is the same. Rejected: another allocator, which would be one more C library in every
/// image; asking for them from the program, which needs `unsafe` or its own table memory.
pub const HUGE_PAGES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
