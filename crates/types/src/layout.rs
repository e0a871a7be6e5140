//! How bytes lie in slabs: alignment, block size and the limits that everybody shares.

/// Payload per block checksum, in bytes.
pub const BLOCK_BYTES: u64 = 64 * 1024;
/// Alignment of small payloads, in bytes: four cache lines.
pub const SMALL_ALIGN_BYTES: u64 = 256;
/// Alignment of payloads from [`BLOCK_BYTES`] up, in bytes: a page, so that they can be mapped.
pub const LARGE_ALIGN_BYTES: u64 = 4096;
/// The most slabs in one segment.
pub const MAX_SLABS: u32 = 16_384;
/// The smallest slab, in bytes: one huge page.
pub const MIN_SLAB_BYTES: u64 = 2 * 1024 * 1024;
/// The largest slab, in bytes: offsets in units of 256 bytes fit 31 bits.
pub const MAX_SLAB_BYTES: u64 = 512 << 30;
/// The longest extent, in bytes: a frame has room for the checksums of its 131,072 blocks, of at
/// most 5 bytes each, and something else.
pub const MAX_EXTENT_BYTES: u64 = 8 << 30;

/// The alignment of a payload of `length_bytes`, in bytes.
#[must_use]
pub const fn align_bytes(length_bytes: u64) -> u64 {
    if length_bytes >= BLOCK_BYTES {
        LARGE_ALIGN_BYTES
    } else {
        SMALL_ALIGN_BYTES
    }
}

/// What a payload takes from a slab, in bytes. `None` on overflow.
#[must_use]
pub const fn reserved_bytes(length_bytes: u64) -> Option<u64> {
    length_bytes.checked_next_multiple_of(align_bytes(length_bytes))
}

/// How many block checksums a payload of `length_bytes` has.
#[must_use]
pub const fn blocks(length_bytes: u64) -> u64 {
    length_bytes.div_ceil(BLOCK_BYTES)
}

/// What an agent's kernel keeps to find the pages of its slabs, as a part of them: 8 bytes of page
/// table and 9 of index for each page of 4 KiB, and a control group pays for both.
pub const PAGES_SHARE: u64 = 240;
/// Memory of an agent's record of one extent: about 425 bytes in tables and 128 in the file beside
/// the slab, with keys of 15 bytes. Key and tenant of more than 40 together, or a group or a pin,
/// make it larger.
pub const RECORD_MEMORY_BYTES: u64 = 560;
/// The average size of objects, in bytes, with which a cache can be filled to the last slab: a
/// container gets memory for so many records. Block sizes of engines begin at about this.
pub const FULL_CACHE_OBJECT_BYTES: u64 = 16 << 10;
/// The least that a tenant is charged for an extent, in bytes. An agent has memory for one record
/// per so many bytes, so nobody gets a larger part of its records than of its bytes, however small
/// the objects are. A fixed sum per record beside the payload was rejected: to protect as well it
/// would have to be about as large, and would charge large objects for nothing.
pub const CHARGED_MIN_BYTES: u64 = FULL_CACHE_OBJECT_BYTES;

/// What a tenant is charged for an extent of `length_bytes`, in bytes: its aligned payload, and at
/// least [`CHARGED_MIN_BYTES`] for its record. `None` on overflow.
#[must_use]
pub const fn charged_bytes(length_bytes: u64) -> Option<u64> {
    match reserved_bytes(length_bytes) {
        Some(bytes) if bytes < CHARGED_MIN_BYTES => Some(CHARGED_MIN_BYTES),
        bytes => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_charged_even_if_it_holds_one_byte() {
        assert_eq!(charged_bytes(1), Some(16_384));
        assert_eq!(charged_bytes(16_384), Some(16_384));
        assert_eq!(charged_bytes(16_385), Some(16_640));
        assert_eq!(charged_bytes(65_537), Some(69_632));
        assert_eq!(charged_bytes(u64::MAX), None);
    }

    #[test]
    fn sizes_around_the_alignment_steps() {
        assert_eq!(reserved_bytes(1), Some(256));
        assert_eq!(reserved_bytes(65_535), Some(65_536));
        assert_eq!(reserved_bytes(65_536), Some(65_536));
        assert_eq!(reserved_bytes(65_537), Some(69_632));
        assert_eq!(reserved_bytes(u64::MAX), None);
        assert_eq!((blocks(1), blocks(65_536), blocks(65_537)), (1, 1, 2));
    }
}
