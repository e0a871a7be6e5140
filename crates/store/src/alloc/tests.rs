//! Tests of the slab allocator against a bitmap that does the same naively.

use larder_types::layout::{align_bytes, reserved_bytes};
use proptest::prelude::*;

use super::*;

const UNIT: u64 = 256;
const SLAB: u64 = 256 * 1024;

/// One flag per unit.
struct Bitmap(Vec<bool>);

impl Bitmap {
    fn range(offset: u64, length: u64) -> std::ops::Range<usize> {
        let unit = |bytes: u64| usize::try_from(bytes / UNIT).expect("fits");
        unit(offset)..unit(offset + length)
    }

    fn all(&self, offset: u64, length: u64, used: bool) -> bool {
        self.0[Self::range(offset, length)]
            .iter()
            .all(|&u| u == used)
    }

    fn set(&mut self, offset: u64, length: u64, used: bool) {
        self.0[Self::range(offset, length)].fill(used);
    }

    /// The shortest hole in which the payload fits, as its length.
    fn best_hole(&self, length: u64, align: u64) -> Option<u64> {
        let mut best = None;
        let mut start = 0;
        while start < self.0.len() {
            if self.0[start] {
                start += 1;
                continue;
            }
            let units = self.0[start..].iter().take_while(|used| !**used).count();
            let (offset, bytes) = (start as u64 * UNIT, units as u64 * UNIT);
            let fits = offset.next_multiple_of(align) + length <= offset + bytes;
            if fits && best.is_none_or(|b| bytes < b) {
                best = Some(bytes);
            }
            start += units;
        }
        best
    }
}

#[derive(Clone, Debug)]
enum Step {
    Reserve(u64),
    ReserveAt(u64, u64),
    Free(prop::sample::Index),
    FreeRange(u64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let units = SLAB / UNIT;
    let length = prop_oneof![1..4096u64, 60_000..70_000u64, 1..SLAB + 5000];
    let step = prop_oneof![
        4 => length.prop_map(Step::Reserve),
        1 => (0..units + 4, 0..40u64).prop_map(|(o, l)| Step::ReserveAt(o * UNIT, l * UNIT)),
        4 => any::<prop::sample::Index>().prop_map(Step::Free),
        1 => (0..units + 4, 0..40u64).prop_map(|(o, l)| Step::FreeRange(o * UNIT, l * UNIT)),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn does_what_a_bitmap_does(steps in steps()) {
        let mut alloc = Allocator::new(SLAB);
        let mut map = Bitmap(vec![false; usize::try_from(SLAB / UNIT).expect("fits")]);
        let mut held: Vec<(u64, u64)> = Vec::new();
        for step in steps {
            match step {
                Step::Reserve(payload) => {
                    let length = reserved_bytes(payload).expect("small");
                    let align = align_bytes(payload);
                    let best = map.best_hole(length, align);
                    let before = alloc.clone();
                    match alloc.reserve(length, align) {
                        Some(offset) => {
                            prop_assert_eq!(offset % align, 0);
                            prop_assert!(map.all(offset, length, false));
                            let hole = before.holes().find(|&(o, l)| o <= offset && offset < o + l);
                            prop_assert_eq!(hole.map(|(_, l)| l), best, "the shortest hole");
                            map.set(offset, length, true);
                            held.push((offset, length));
                        }
                        None => prop_assert_eq!(best, None),
                    }
                }
                Step::ReserveAt(offset, length) => {
                    let inside = length > 0 && offset + length <= SLAB;
                    let fits = inside && map.all(offset, length, false);
                    prop_assert_eq!(alloc.reserve_at(offset, length).is_ok(), fits);
                    if fits {
                        map.set(offset, length, true);
                        held.push((offset, length));
                    }
                }
                Step::Free(_) if held.is_empty() => {}
                Step::Free(index) => {
                    let (offset, length) = held.swap_remove(index.index(held.len()));
                    prop_assert_eq!(alloc.free(offset, length), Ok(()));
                    map.set(offset, length, false);
                }
                Step::FreeRange(offset, length) => {
                    let inside = length > 0 && offset + length <= SLAB;
                    let free = inside && !map.all(offset, length, true);
                    if !inside || free {
                        prop_assert!(alloc.free(offset, length).is_err());
                    }
                }
            }
            prop_assert!(alloc.is_sound());
            let free = map.0.iter().filter(|used| !**used).count() as u64 * UNIT;
            prop_assert_eq!(alloc.free_bytes(), free);
        }
        for (offset, length) in held {
            prop_assert_eq!(alloc.free(offset, length), Ok(()));
        }
        prop_assert_eq!(alloc, Allocator::new(SLAB));
    }
}

#[test]
fn a_slab_of_no_bytes_holds_nothing() {
    let mut alloc = Allocator::new(0);
    assert_eq!(alloc.reserve(256, 256), None);
    assert!(alloc.is_sound() && alloc.is_empty());
}

#[test]
fn ends_of_the_number_range_do_not_overflow() {
    let most = layout::MAX_SLAB_BYTES;
    let mut alloc = Allocator::new(u64::MAX);
    assert_eq!(alloc.size_bytes(), most);
    assert!(alloc.reserve_at(u64::MAX - 255, 512).is_err());
    assert!(alloc.free(u64::MAX - 255, 1024).is_err());
    assert_eq!(alloc.find(u64::MAX, 4096), None);
    assert_eq!(alloc.find(9, u64::MAX), Some(0));
    assert_eq!(alloc.reserve(most - 256, 4096), Some(0));
    assert_eq!(alloc.find(9, 4096), None);
    assert_eq!(alloc.find(9, 256), Some(most - 256));
}

#[test]
fn ranges_are_made_of_whole_units() {
    let mut alloc = Allocator::new(SLAB);
    assert!(alloc.reserve_at(1, 256).is_err() && alloc.reserve_at(0, 255).is_err());
    assert_eq!(alloc.reserve_at(256, 256), Ok(()));
    assert!(alloc.free(256, 1).is_err() && alloc.free(255, 256).is_err());
    assert_eq!(alloc, {
        let mut same = Allocator::new(SLAB);
        same.reserve_at(256, 256).expect("room");
        same
    });
}

#[test]
fn many_holes_that_lie_badly_hide_no_good_one() {
    let mut alloc = Allocator::new(64 * SLAB);
    // Holes of 64 KiB that start 256 bytes behind a page, and one that starts at a page and is
    // longer.
    assert_eq!(alloc.reserve(64 * SLAB, 256), Some(0));
    for at in 0..200 {
        assert_eq!(alloc.free(at * 69_632 + 256, 65_536), Ok(()));
    }
    let last = 64 * SLAB - 2 * 69_632;
    assert_eq!(alloc.free(last, 69_632), Ok(()));
    assert_eq!(alloc.find(65_536, 4096), Some(last.next_multiple_of(4096)));
}
