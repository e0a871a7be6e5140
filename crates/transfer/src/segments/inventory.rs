//! What stands in a slab: from the table that decides, and from the file beside it.

use larder_types::SlabRef;

use super::Segments;
use super::table::RecordTable;
use crate::record::Record;
use crate::record_file::RecordFileError;

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

    fn table(&self, slab: SlabRef) -> Option<&RecordTable> {
        let life = self.open.get(&(slab.segment, slab.index))?;
        let found = self
            .slabs
            .get(life)
            .filter(|found| found.reference == slab)?;
        found.table.as_ref()
    }
}
