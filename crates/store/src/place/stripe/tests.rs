//! How sizes are cut over holes.

use larder_types::layout::charged_bytes;
use larder_types::{Registration, SegmentId};
use proptest::prelude::*;

use super::*;

const BLOCK: u64 = BLOCK_BYTES;

fn slab(index: u16) -> SlabRef {
    SlabRef {
        agent: AgentId(1),
        segment: SegmentId(1),
        index,
        registration: Registration(1),
    }
}

fn holes(rooms: &[u64]) -> Vec<Hole> {
    let hole = |(at, room_bytes): (u16, &u64)| Hole {
        slab: slab(at),
        offset_bytes: 4096,
        room_bytes: *room_bytes,
    };
    (0..).zip(rooms).map(hole).collect()
}

fn lengths(size_bytes: u64, rooms: &[u64]) -> Option<Vec<(u16, u64)>> {
    let pieces = cut(size_bytes, holes(rooms), 9)?;
    let piece = |piece: &Extent| (piece.slab.index, piece.length_bytes);
    Some(pieces.iter().map(piece).collect())
}

#[test]
fn the_longest_are_filled_and_the_rest_is_tight() {
    let rooms = [3 * BLOCK, 10 * BLOCK, 10 * BLOCK, 4 * BLOCK];
    let pieces = lengths(23 * BLOCK - 5, &rooms);
    let (full, rest) = (10 * BLOCK, 3 * BLOCK - 5);
    assert_eq!(pieces, Some(vec![(1, full), (2, full), (0, rest)]));
    assert_eq!(lengths(3 * BLOCK, &rooms), Some(vec![(0, 3 * BLOCK)]));
    assert_eq!(lengths(28 * BLOCK, &rooms), None);
    assert_eq!(cut(23 * BLOCK, holes(&rooms), 2), None, "too many pieces");
}

#[test]
fn no_piece_is_shorter_than_a_block() {
    let pieces = lengths(2 * BLOCK + 1, &[2 * BLOCK, 2 * BLOCK]);
    assert_eq!(pieces, Some(vec![(0, BLOCK), (1, BLOCK + 1)]));
    // A hole with less than a page to spare takes a whole block only.
    assert_eq!(lengths(2 * BLOCK + 1, &[BLOCK, BLOCK, BLOCK]), None);
}

#[test]
fn a_hole_longer_than_an_extent_takes_several() {
    let parts: Vec<Hole> = rooms(slab(0), 256, 2 * MAX_EXTENT_BYTES).collect();
    let starts: Vec<u64> = parts.iter().map(|hole| hole.offset_bytes).collect();
    assert_eq!(starts, [4096, 4096 + MAX_EXTENT_BYTES]);
    assert_eq!(parts[1].room_bytes, MAX_EXTENT_BYTES - 4096);
    let pieces = cut(MAX_EXTENT_BYTES + BLOCK, parts, 9).expect("room");
    assert_eq!(pieces.len(), 2);
}

proptest! {
    #[test]
    fn pieces_are_the_object(
        size_bytes in BLOCK..100 * BLOCK,
        rooms in prop::collection::vec(1..30 * 16_u64, 1..40),
        pieces_max in 1..30_usize,
    ) {
        let rooms: Vec<u64> = rooms.iter().map(|pages| (pages * 4096).max(BLOCK)).collect();
        let Some(pieces) = cut(size_bytes, holes(&rooms), pieces_max) else {
            let longest: u64 = rooms.iter().map(|room| whole_blocks(*room)).sum();
            // With two blocks to spare only the number of pieces can be in the way.
            prop_assert!(longest < size_bytes + 2 * BLOCK || rooms.len() > pieces_max);
            return Ok(());
        };
        prop_assert!(pieces.len() <= pieces_max);
        prop_assert_eq!(pieces.iter().map(|p| p.length_bytes).sum::<u64>(), size_bytes);
        let charged = pieces.iter().map(|p| charged_bytes(p.length_bytes)).sum::<Option<u64>>();
        prop_assert_eq!(charged, charged_bytes(size_bytes));
        let mut slabs: Vec<u16> = pieces.iter().map(|p| p.slab.index).collect();
        for (at, piece) in pieces.iter().enumerate() {
            prop_assert!(piece.length_bytes >= BLOCK);
            prop_assert!(at + 1 == pieces.len() || piece.length_bytes.is_multiple_of(BLOCK));
            let aligned = layout::reserved_bytes(piece.length_bytes).expect("small");
            prop_assert!(aligned <= rooms[usize::from(piece.slab.index)]);
        }
        slabs.sort_unstable();
        slabs.dedup();
        prop_assert_eq!(slabs.len(), pieces.len(), "each hole is used once");
        prop_assert_eq!(cut(size_bytes, holes(&rooms), pieces_max), Some(pieces));
    }
}
