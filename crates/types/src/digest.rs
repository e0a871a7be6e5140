//! Digests of objects, and how those of parts become the one of the whole.
//!
//! A digest is linear in the block checksums that it is made of, so whoever knows the digests and
//! lengths of the parts knows the whole's without a byte of it. With a cryptographic hash the
//! leader would have to believe the client what several receipts come to.

use crate::layout::{BLOCK_BYTES, blocks};

/// A digest of an object's content, or of a part's: CRC-64/NVME over the little-endian CRC-32C
/// values of its 64 KiB blocks, mixed with its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Digest(pub u64);

/// The polynomial of CRC-64/NVME, bits reversed.
const POLY: u64 = 0xad93_d235_94c9_3659_u64.reverse_bits();
/// What one block adds to the text that the CRC runs over, in bits, as a power of two.
const BLOCK_SHIFT: u32 = 32_u32.trailing_zeros();
/// `x` to the powers of 1, 2, 4, 8 and so on, modulo the polynomial.
const POWERS: [u64; 64] = powers();

/// The product of two polynomials modulo that of the CRC; the highest bit is that of 1.
const fn product(a: u64, mut b: u64) -> u64 {
    let (mut bit, mut sum) = (1u64 << 63, 0);
    while bit != 0 {
        if a & bit != 0 {
            sum ^= b;
        }
        b = if b & 1 == 0 { b >> 1 } else { b >> 1 ^ POLY };
        bit >>= 1;
    }
    sum
}

const fn powers() -> [u64; 64] {
    // The first is x itself.
    let mut powers = [1u64 << 62; 64];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = product(powers[at - 1], powers[at - 1]);
        at += 1;
    }
    powers
}

/// What the CRC of a text becomes when the checksums of `blocks` more blocks follow, before they
/// are added.
fn shifted(crc: u64, blocks: u64) -> u64 {
    let powers = POWERS.iter().skip(BLOCK_SHIFT as usize).enumerate();
    let wanted = powers.filter(|(bit, _)| blocks >> bit & 1 == 1);
    wanted.fold(crc, |crc, (_, power)| product(crc, *power))
}

/// The part of a digest that only the length decides: Fibonacci hashing.
const fn of_length(length_bytes: u64) -> u64 {
    length_bytes.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Digest {
    /// The digest of bytes of that length, from CRC-64/NVME over their block checksums.
    #[must_use]
    pub const fn of_crc(crc: u64, length_bytes: u64) -> Self {
        Self(crc ^ of_length(length_bytes))
    }

    /// The digest of what these parts make, one after the other: each part's own digest and its
    /// length in bytes. `None` without parts, and if a part but the last ends within a block: its
    /// checksums are none of the whole then.
    #[must_use]
    pub fn joined(parts: impl IntoIterator<Item = (Self, u64)>) -> Option<Self> {
        let mut whole: Option<(u64, u64)> = None;
        for (Self(digest), length_bytes) in parts {
            let crc = digest ^ of_length(length_bytes);
            whole = Some(match whole {
                None => (crc, length_bytes),
                Some((_, before)) if !before.is_multiple_of(BLOCK_BYTES) => return None,
                Some((sum, before)) => {
                    let crc = shifted(sum, blocks(length_bytes)) ^ crc;
                    (crc, before.checked_add(length_bytes)?)
                }
            });
        }
        whole.map(|(crc, length_bytes)| Self::of_crc(crc, length_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_join_only_at_the_ends_of_blocks() {
        let (a, b) = (Digest(7), Digest(9));
        assert_eq!(Digest::joined([]), None);
        assert_eq!(Digest::joined([(a, 5)]), Some(a));
        assert_eq!(Digest::joined([(a, 5), (b, BLOCK_BYTES)]), None);
        assert!(Digest::joined([(a, BLOCK_BYTES), (b, 5)]).is_some());
        assert_eq!(Digest::joined([(a, 1 << 63), (b, 1 << 63)]), None);
    }

    #[test]
    fn order_and_lengths_matter_and_grouping_does_not() {
        let (a, b, c) = (
            (Digest(7), BLOCK_BYTES),
            (Digest(9), 3 << 16),
            (Digest(3), 100),
        );
        let all = Digest::joined([a, b, c]);
        assert_ne!(all, Digest::joined([b, a, c]));
        assert_ne!(all, Digest::joined([a, b, (c.0, 99)]));
        let first = Digest::joined([a, b]).expect("they end at blocks");
        assert_eq!(all, Digest::joined([(first, 4 << 16), c]));
    }
}
