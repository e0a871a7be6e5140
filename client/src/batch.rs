//! Cuts long batches into calls that fit a frame, together with their answers.

use std::ops::Range;

use larder_wire::limit::MAX_BATCH;

/// What one call, or its answer, may take of a frame. The rest of the 1 MiB is for the addresses
/// of the agents in the answer: 2,000 of about 200 bytes.
const BUDGET_BYTES: usize = 600 * 1024;
/// A grant for one replica without its key: the extent twice, tenant, version, epoch, signature.
const GRANT_BYTES: usize = 256;
/// The most replicas of one object.
const REPLICAS_MAX: usize = 3;

/// One more extent is counted for each so many bytes of an object, as the master does when it
/// shares out the room of its answer.
const WEIGHT_BYTES: usize = 1024 * 1024;

/// What a put takes of the answer to its start: the key stands in the capability of each extent. A
/// large object alone may take more than there is; then it is a call of its own.
pub(crate) const fn put_bytes(key_bytes: usize, size_bytes: usize) -> usize {
    let one = REPLICAS_MAX * (GRANT_BYTES + key_bytes) + 64;
    one.saturating_mul(1 + size_bytes / WEIGHT_BYTES)
}

/// What a get takes: its key in the call, its grants in the answer.
pub(crate) const fn get_bytes(key_bytes: usize) -> usize {
    let answer_bytes = REPLICAS_MAX * GRANT_BYTES + 64;
    if key_bytes > answer_bytes {
        key_bytes
    } else {
        answer_bytes
    }
}

/// What a key takes in a call whose answer is short.
pub(crate) const fn key_bytes(key_bytes: usize) -> usize {
    key_bytes + 8
}

/// Cuts items of these sizes into runs that fit. No run is empty; an item that alone is too large
/// is a run of its own, and its encoding says so.
pub(crate) fn cut(sizes_bytes: impl IntoIterator<Item = usize>) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let (mut start, mut at, mut bytes) = (0, 0, 0);
    for size_bytes in sizes_bytes {
        let more = size_bytes.saturating_add(bytes);
        if at > start && (at - start == MAX_BATCH || more > BUDGET_BYTES) {
            runs.push(start..at);
            (start, bytes) = (at, 0);
        }
        bytes = size_bytes.saturating_add(bytes);
        at += 1;
    }
    if at > start {
        runs.push(start..at);
    }
    runs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_cover_everything_once_and_fit(
            sizes in prop::collection::vec(1_usize..20_000, 0..4_000),
        ) {
            let runs = cut(sizes.iter().copied());
            let all: Vec<usize> = runs.iter().cloned().flatten().collect();
            prop_assert_eq!(all, (0..sizes.len()).collect::<Vec<_>>());
            for run in runs {
                prop_assert!(!run.is_empty() && run.len() <= MAX_BATCH);
                prop_assert!(sizes[run].iter().sum::<usize>() <= BUDGET_BYTES);
            }
        }
    }

    #[test]
    fn the_longest_keys_fit() {
        assert!(put_bytes(larder_types::key::MAX_KEY_BYTES, 1) <= BUDGET_BYTES);
        assert_eq!(cut([BUDGET_BYTES + 1, 1]), [0..1, 1..2]);
    }
}
