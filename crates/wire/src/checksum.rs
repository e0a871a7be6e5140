//! Checksums of payload: CRC-32C per 64 KiB block, and one digest over them.

use larder_types::Digest;
use larder_types::layout::BLOCK_BYTES;

/// CRC-32C of one block, with the fastest instructions that this processor has.
#[must_use]
pub fn block_crc(block: &[u8]) -> u32 {
    // The algorithm yields 32 bits in a u64; the upper half is always 0.
    (crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, block) & 0xffff_ffff) as u32
}

/// CRC-32C of each 64 KiB block of `payload`; the last one may be shorter.
#[must_use]
pub fn block_crcs(payload: &[u8]) -> Vec<u32> {
    let block_bytes = usize::try_from(BLOCK_BYTES).unwrap_or(usize::MAX);
    payload.chunks(block_bytes).map(block_crc).collect()
}

/// The digest of bytes whose block checksums are `crcs` and whose length is `length_bytes`; see
/// [`Digest`].
#[must_use]
pub fn digest(crcs: &[u32], length_bytes: u64) -> Digest {
    let mut hash = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
    for crc in crcs {
        hash.update(&crc.to_le_bytes());
    }
    Digest::of_crc(hash.finalize(), length_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn digests_of_parts_join_to_that_of_the_whole(
            crcs in prop::collection::vec(any::<u32>(), 1..300),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
            last in 1..=BLOCK_BYTES,
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(crcs.len())).collect();
            cuts.extend([0, crcs.len()]);
            cuts.sort_unstable();
            cuts.dedup();
            let length = |from: usize, to: usize| {
                let whole = (to - from) as u64 * BLOCK_BYTES;
                if to == crcs.len() { whole - BLOCK_BYTES + last } else { whole }
            };
            let part = |cut: &[usize]| {
                let length_bytes = length(cut[0], cut[1]);
                (digest(&crcs[cut[0]..cut[1]], length_bytes), length_bytes)
            };
            let whole = digest(&crcs, length(0, crcs.len()));
            prop_assert_eq!(Digest::joined(cuts.windows(2).map(part)), Some(whole));
        }
    }

    #[test]
    fn the_block_checksum_is_crc_32c() {
        assert_eq!(block_crc(b"123456789"), 0xe306_9283);
        assert_eq!(block_crc(b"123456789"), crc32c::crc32c(b"123456789"));
    }

    #[test]
    fn the_digest_tells_length_order_and_content_apart() {
        let a = vec![7_u8; 70_000];
        let mut b = a.clone();
        b[69_999] = 8;
        let crcs = block_crcs(&a);
        assert_eq!(crcs.len(), 2);
        let base = digest(&crcs, 70_000);
        assert_ne!(base, digest(&block_crcs(&b), 70_000));
        assert_ne!(base, digest(&crcs, 69_999));
        assert_ne!(base, digest(&[crcs[1], crcs[0]], 70_000));
    }
}
