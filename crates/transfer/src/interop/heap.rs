//! An address space of plain vectors at made-up addresses: for tests and simulation.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use super::{Access, AddressRange, AddressSpace, Grant, Refused};

/// Buffers at addresses that its owner chooses. Peers use addresses only as numbers, so they
/// need not be those of the memory behind them.
#[derive(Default)]
pub(super) struct HeapSpace {
    table: RefCell<Table>,
}

#[derive(Default)]
struct Table {
    last_grant: u64,
    /// By address; never two that overlap.
    buffers: BTreeMap<u64, Buffer>,
}

struct Buffer {
    grant: Grant,
    writable: bool,
    bytes: Vec<u8>,
}

impl HeapSpace {
    /// Registers `bytes` at `address`; false if that overlaps another buffer or leaves the
    /// address space.
    #[must_use]
    pub(super) fn register(&self, address: u64, bytes: Vec<u8>, writable: bool) -> bool {
        let mut table = self.table.borrow_mut();
        let Some(end) = address.checked_add(bytes.len() as u64) else {
            return false;
        };
        let before = table.buffers.range(..end).next_back();
        if before.is_some_and(|(start, other)| start + other.bytes.len() as u64 > address) {
            return false;
        }
        table.last_grant += 1;
        let buffer = Buffer {
            grant: Grant(table.last_grant),
            writable,
            bytes,
        };
        table.buffers.insert(address, buffer);
        true
    }

    /// Takes a buffer back, with what it holds now.
    pub(super) fn take_back(&self, address: u64) -> Option<Vec<u8>> {
        let buffer = self.table.borrow_mut().buffers.remove(&address);
        buffer.map(|buffer| buffer.bytes)
    }

    /// What a buffer holds now.
    #[must_use]
    pub(super) fn contents(&self, address: u64) -> Option<Vec<u8>> {
        let table = self.table.borrow();
        table.buffers.get(&address).map(|one| one.bytes.clone())
    }
}

impl fmt::Debug for HeapSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeapSpace")
            .field("buffers", &self.buffers())
            .finish()
    }
}

impl Table {
    /// The buffer that holds all of a range, and where in it the range starts.
    fn find(&self, range: AddressRange) -> Result<(&Buffer, usize), Refused> {
        let (start, buffer) = self
            .buffers
            .range(..=range.address)
            .next_back()
            .ok_or(Refused::NotRegistered)?;
        let whole = AddressRange {
            address: *start,
            bytes: buffer.bytes.len() as u64,
        };
        let offset = usize::try_from(range.address - start);
        match offset {
            Ok(offset) if whole.holds(&range) => Ok((buffer, offset)),
            _ => Err(Refused::NotRegistered),
        }
    }

    fn find_granted(
        &self,
        grant: Grant,
        address: u64,
        bytes: usize,
    ) -> Result<(&Buffer, usize), Refused> {
        let range = AddressRange {
            address,
            bytes: bytes as u64,
        };
        let (buffer, offset) = self.find(range)?;
        if buffer.grant == grant {
            Ok((buffer, offset))
        } else {
            Err(Refused::NotRegistered)
        }
    }
}

impl AddressSpace for HeapSpace {
    fn buffers(&self) -> Vec<AddressRange> {
        let table = self.table.borrow();
        let all = table.buffers.iter().map(|(address, one)| AddressRange {
            address: *address,
            bytes: one.bytes.len() as u64,
        });
        all.collect()
    }

    fn open(&self, access: Access, range: AddressRange) -> Result<Grant, Refused> {
        let table = self.table.borrow();
        let (buffer, _) = table.find(range)?;
        if access == Access::Write && !buffer.writable {
            return Err(Refused::Access);
        }
        Ok(buffer.grant)
    }

    fn store(&self, grant: Grant, address: u64, bytes: &[u8]) -> Result<(), Refused> {
        let mut table = self.table.borrow_mut();
        let (buffer, offset) = table.find_granted(grant, address, bytes.len())?;
        if !buffer.writable {
            return Err(Refused::Access);
        }
        let start = address - offset as u64;
        let buffer = table.buffers.get_mut(&start);
        let room = buffer.and_then(|one| one.bytes.get_mut(offset..offset + bytes.len()));
        room.ok_or(Refused::NotRegistered)?.copy_from_slice(bytes);
        Ok(())
    }

    fn load(&self, grant: Grant, address: u64, out: &mut [u8]) -> Result<(), Refused> {
        let table = self.table.borrow();
        let (buffer, offset) = table.find_granted(grant, address, out.len())?;
        let bytes = buffer.bytes.get(offset..offset + out.len());
        out.copy_from_slice(bytes.ok_or(Refused::NotRegistered)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_do_not_overlap_and_a_grant_dies_with_its_registration() {
        let space = HeapSpace::default();
        assert!(space.register(100, vec![1; 50], true));
        for (address, bytes) in [(149, 1), (51, 50), (90, 100), (u64::MAX, 2)] {
            assert!(!space.register(address, vec![0; bytes], true), "{address}");
        }
        assert!(space.register(150, vec![2; 10], false) && space.register(99, vec![3], true));
        let range = AddressRange {
            address: 100,
            bytes: 50,
        };
        let grant = space.open(Access::Write, range).expect("registered");
        space.store(grant, 110, &[9; 5]).expect("in it");
        assert_eq!(
            space.store(grant, 148, &[9; 3]),
            Err(Refused::NotRegistered)
        );
        assert_eq!(space.take_back(100).expect("there")[9..12], [1, 9, 9]);
        assert!(space.register(100, vec![4; 50], true));
        assert_eq!(space.store(grant, 110, &[8]), Err(Refused::NotRegistered));
        assert_eq!(
            space.load(grant, 110, &mut [0]),
            Err(Refused::NotRegistered)
        );
        let read_only = AddressRange {
            address: 150,
            bytes: 10,
        };
        assert_eq!(space.open(Access::Write, read_only), Err(Refused::Access));
        let grant = space.open(Access::Read, read_only).expect("may be read");
        assert_eq!(space.store(grant, 150, &[1]), Err(Refused::Access));
    }
}
