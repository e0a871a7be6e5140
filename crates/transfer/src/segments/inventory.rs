//! What stands in slabs: from the table that decides, from the file beside it, and page by page
//! for a master that lost its log.

use std::ops::Bound;

use larder_types::{Extent, Registration, SegmentId, SlabRef, Version};
use larder_wire::agent::{HeldObject, HeldRecord, HeldSlab};
use larder_wire::checksum;
use larder_wire::limit::{MAX_BATCH, MAX_INVENTORY_BYTES};

use super::range::Span;
use super::slab::Slab;
use super::table::RecordTable;
use super::{Place, Segments};
use crate::record::{Record, RecordState};
use crate::record_file::RecordFileError;

/// Of so many block checksums digests are made for one page: 512 KiB, about 0.1 ms. One extent
/// has at most as many.
const DIGESTED_BLOCKS_MAX: usize = 131_072;

/// Where the next page of an inventory begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InventoryCursor {
    segment: SegmentId,
    index: u16,
    /// The life of the slab that was listed already. Another one that is there now begins anew.
    listed: Option<Registration>,
    /// All that starts below was listed.
    from_bytes: u64,
}

/// A page of what slabs hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InventoryPage {
    /// Slabs that give access, each before or in the page of its first record.
    pub slabs: Vec<HeldSlab>,
    /// Records, and what is erased but held.
    pub records: Vec<HeldRecord>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<InventoryCursor>,
}

impl Segments {
    /// The records and erasures of a slab as the table has them; empty if it is not here.
    #[must_use]
    pub fn records(&self, slab: SlabRef) -> Vec<Record> {
        self.table(slab)
            .map(|table| table.rows().collect())
            .unwrap_or_default()
    }

    /// The same, read back from the slab's file of records: all that would be left if this
    /// process ended now. In the order of the file.
    ///
    /// # Errors
    /// [`RecordFileError`] at the first record that cannot be used.
    pub fn scan_records(&self, slab: SlabRef) -> Result<Vec<Record>, RecordFileError> {
        self.table(slab)
            .map_or_else(|| Ok(Vec::new()), |table| table.file().scan())
    }

    /// A page of what all slabs hold, in the order of slabs and of offsets in each: from the
    /// beginning with `None`, then from the `next` of the page before.
    ///
    /// Listed are the slabs that give access, their records, and extents that were erased but are
    /// held, unless a record lies over them, which then stands for those bytes. So the extents of
    /// all pages are disjoint. Nothing is said of an object whose bytes are not whole, and of one
    /// without checksums, since nobody could tell it from other bytes. Marks of erasures are not
    /// listed: what they refuse is of a former epoch.
    ///
    /// A page looks at no more than [`MAX_BATCH`] rows and as many slabs and takes no more than
    /// [`MAX_INVENTORY_BYTES`]. Slabs that come or go between two pages may be in none.
    #[must_use]
    pub fn inventory_page(&self, from: Option<InventoryCursor>) -> InventoryPage {
        self.fill_page(from, Filling::default())
    }

    pub(super) fn fill_page(
        &self,
        from: Option<InventoryCursor>,
        mut filling: Filling,
    ) -> InventoryPage {
        let start = from.map_or(Bound::Unbounded, |cursor| Bound::Included(cursor.place()));
        for (place, life) in self.open.range((start, Bound::Unbounded)) {
            let opened = self.slabs.get(life);
            let opened = opened.and_then(|slab| Some((slab, slab.table.as_ref()?)));
            let Some((slab, table)) = opened else {
                continue;
            };
            let here = from.filter(|cursor| cursor.is_in(*place, slab.reference.registration));
            if let Err(next) = filling.list(slab, table, here) {
                filling.page.next = Some(next);
                break;
            }
        }
        filling.page
    }

    fn table(&self, slab: SlabRef) -> Option<&RecordTable> {
        let life = self.open.get(&(slab.segment, slab.index))?;
        let found = self
            .slabs
            .get(life)
            .filter(|found| found.reference == slab)?;
        found.table.as_ref()
    }
}

impl InventoryCursor {
    const fn new(slab: SlabRef, listed: Option<Registration>, from_bytes: u64) -> Self {
        Self {
            segment: slab.segment,
            index: slab.index,
            listed,
            from_bytes,
        }
    }

    const fn place(&self) -> Place {
        (self.segment, self.index)
    }

    fn is_in(&self, place: Place, registration: Registration) -> bool {
        self.place() == place && self.listed == Some(registration)
    }
}

/// A page on the way, and how much it may still take.
#[derive(Debug)]
pub(super) struct Filling {
    pub(super) page: InventoryPage,
    pub(super) slabs_left: usize,
    pub(super) rows_left: usize,
    pub(super) bytes_left: usize,
    pub(super) blocks_left: usize,
}

impl Default for Filling {
    fn default() -> Self {
        Self {
            page: InventoryPage::default(),
            slabs_left: MAX_BATCH,
            rows_left: MAX_BATCH,
            bytes_left: MAX_INVENTORY_BYTES,
            blocks_left: DIGESTED_BLOCKS_MAX,
        }
    }
}

/// What comes next in a slab.
enum Row<'a> {
    Record(&'a Record),
    Waiting(Extent, Version),
}

impl Filling {
    /// Lists a slab, from the cursor on if it is in it. An error says where the page is full.
    fn list(
        &mut self,
        slab: &Slab,
        table: &RecordTable,
        here: Option<InventoryCursor>,
    ) -> Result<(), InventoryCursor> {
        let reference = slab.reference;
        let mut from_bytes = 0;
        if let Some(here) = here {
            from_bytes = here.from_bytes;
        } else {
            let held = HeldSlab {
                slab: reference,
                tenant: slab.tenant.clone(),
            };
            if self.slabs_left == 0 || !self.take_bytes(held.encoded_bytes_max()) {
                return Err(InventoryCursor::new(reference, None, 0));
            }
            self.slabs_left -= 1;
            self.page.slabs.push(held);
        }
        let full = |from_bytes| {
            let registration = Some(reference.registration);
            InventoryCursor::new(reference, registration, from_bytes)
        };
        while let Some(row) = next_row(slab, table, from_bytes) {
            from_bytes = self
                .take_row(slab, table, row)
                .ok_or_else(|| full(from_bytes))?;
        }
        Ok(())
    }

    /// Lists a row, and says where the next one may start; `None` if the page is full.
    fn take_row(&mut self, slab: &Slab, table: &RecordTable, row: Row<'_>) -> Option<u64> {
        self.rows_left = self.rows_left.checked_sub(1)?;
        let (extent, version, record) = match row {
            Row::Record(record) => {
                let extent = Extent {
                    slab: slab.reference,
                    offset_bytes: record.offset_bytes,
                    length_bytes: record.length_bytes,
                };
                (extent, record.version, Some(record))
            }
            Row::Waiting(extent, version) => {
                // The shortest that starts here. Where it is not valid, or a record lies over it,
                // the same is true of the longer ones.
                let span = slab.span(&extent);
                if span.is_none_or(|span| table.has_record_over(span)) {
                    return extent.offset_bytes.checked_add(1);
                }
                (extent, version, None)
            }
        };
        if !self.take_blocks(record.map_or(0, |record| record.block_crcs.len())) {
            return None;
        }
        let held = HeldRecord {
            extent,
            version,
            written: record.and_then(held_object),
        };
        if !self.take_bytes(held.encoded_bytes_max()) {
            return None;
        }
        self.page.records.push(held);
        let span = Span::around(&extent, slab.memory.bytes());
        span.map(|span| span.end)
    }

    /// An empty page takes anything.
    fn take_bytes(&mut self, bytes: usize) -> bool {
        let is_empty = self.page.slabs.is_empty() && self.page.records.is_empty();
        let fits = bytes <= self.bytes_left;
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        fits || is_empty
    }

    /// A page without records takes any number.
    fn take_blocks(&mut self, blocks: usize) -> bool {
        let fits = blocks <= self.blocks_left;
        self.blocks_left = self.blocks_left.saturating_sub(blocks);
        fits || self.page.records.is_empty()
    }
}

/// The first row that starts at `from_bytes` or behind.
fn next_row<'a>(slab: &Slab, table: &'a RecordTable, from_bytes: u64) -> Option<Row<'a>> {
    let record = table.records_from(from_bytes).next();
    let waiting = slab.waiting_from(from_bytes);
    let is_first =
        |extent: &Extent| record.is_none_or(|record| extent.offset_bytes < record.offset_bytes);
    waiting
        .filter(|(extent, _)| is_first(extent))
        .map(|(extent, version)| Row::Waiting(extent, version))
        .or_else(|| record.map(Row::Record))
}

fn held_object(record: &Record) -> Option<HeldObject> {
    let is_whole = record.state == RecordState::Written && !record.block_crcs.is_empty();
    is_whole.then(|| HeldObject {
        key: record.key.to_vec(),
        part: record.part,
        parts: record.parts,
        object_bytes: record.object_bytes,
        digest: checksum::digest(&record.block_crcs, record.length_bytes),
        memo: record.memo(),
    })
}
