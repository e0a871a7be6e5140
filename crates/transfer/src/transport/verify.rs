//! Checks blocks against their checksums while they arrive.

use larder_types::layout::{BLOCK_BYTES, blocks};
use larder_wire::checksum::block_crc;

/// Follows a payload that grows and compares each block as soon as it is whole, while it is
/// still in the processor's cache.
#[derive(Debug)]
pub(crate) struct BlockCheck<'a> {
    crcs: &'a [u32],
    payload_bytes: usize,
    checked_bytes: usize,
    matches: bool,
}

impl<'a> BlockCheck<'a> {
    /// `None` if there are not as many checksums as `payload_bytes` has blocks.
    pub(crate) fn new(crcs: &'a [u32], payload_bytes: usize) -> Option<Self> {
        let fits = blocks(payload_bytes as u64) == crcs.len() as u64;
        fits.then_some(Self {
            crcs,
            payload_bytes,
            checked_bytes: 0,
            matches: true,
        })
    }

    /// Looks at all of the payload that has come so far.
    pub(crate) fn see(&mut self, payload: &[u8]) {
        let block_bytes = usize::try_from(BLOCK_BYTES).unwrap_or(usize::MAX);
        loop {
            let end = self
                .payload_bytes
                .min(self.checked_bytes.saturating_add(block_bytes));
            let block = payload
                .get(self.checked_bytes..end)
                .filter(|block| !block.is_empty());
            let Some(block) = block else { return };
            let expected = self.crcs.get(self.checked_bytes / block_bytes);
            self.matches &= expected == Some(&block_crc(block));
            self.checked_bytes = end;
        }
    }

    /// Whether all of the payload was seen and matches.
    pub(crate) fn is_right(&self) -> bool {
        self.matches && self.checked_bytes == self.payload_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_wire::checksum::block_crcs;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_of_any_size_give_the_answer_of_the_whole(
            bytes in 1_usize..300_000,
            cuts in proptest::collection::vec(0_usize..300_000, 0..8),
            flip in proptest::option::of(0_usize..300_000),
        ) {
            let mut payload: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
            let crcs = block_crcs(&payload);
            let flipped = flip.map(|at| payload[at % bytes] ^= 1).is_some();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes)).collect();
            cuts.sort_unstable();
            let mut check = BlockCheck::new(&crcs, bytes).expect("as many as blocks");
            for cut in cuts {
                check.see(&payload[..cut]);
            }
            let unseen = BlockCheck::new(&crcs, bytes).expect("as many as blocks");
            prop_assert!(!unseen.is_right(), "what was not seen is not right");
            check.see(&payload);
            prop_assert_eq!(check.is_right(), !flipped);
        }
    }

    #[test]
    fn a_missing_checksum_is_no_match() {
        assert!(BlockCheck::new(&[1], 65_537).is_none());
        assert!(BlockCheck::new(&[1, 2], 65_536).is_none());
    }
}
