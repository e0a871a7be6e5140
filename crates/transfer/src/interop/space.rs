//! The memory that stock peers may reach, asked anew before each step.

/// Bytes from an address on, in the numbers that peers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressRange {
    /// Where it starts.
    pub address: u64,
    /// How long it is, in bytes.
    pub bytes: u64,
}

impl AddressRange {
    /// The first address after it; `None` if there is none.
    #[must_use]
    pub const fn end(&self) -> Option<u64> {
        self.address.checked_add(self.bytes)
    }

    /// Whether all of `inner` lies in it.
    #[must_use]
    pub fn holds(&self, inner: &Self) -> bool {
        match (self.end(), inner.end()) {
            (Some(end), Some(inner_end)) => self.address <= inner.address && inner_end <= end,
            _ => false,
        }
    }
}

/// What a peer wants to do with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Take its bytes.
    Read,
    /// Replace them.
    Write,
}

/// One registration of a buffer. What is registered at the same address later has another one,
/// so that a payload which began before cannot end up in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant(pub u64);

/// Why a range may not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It does not lie within one registered buffer, or no longer.
    #[error("the range is not within one registered buffer")]
    NotRegistered,
    /// The buffer may not be written, or not be read.
    #[error("the buffer is not registered for this access")]
    Access,
}

impl Refused {
    /// Whether the same range may be reached later, if its owner registers it.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::NotRegistered)
    }
}

/// Memory that peers reach by address. Called on the one thread that serves, between awaits, so
/// an implementation may borrow what it owns for the length of a call.
///
/// A payload moves in steps of at most 1 MiB. [`Self::open`] says once that all of it may move;
/// every step says its grant again, and is refused as soon as the buffer was taken back. After
/// [`Self::store`] or [`Self::load`] returned, nothing of this module touches the buffer until
/// the next call.
pub trait AddressSpace {
    /// What peers are told that they may reach.
    fn buffers(&self) -> Vec<AddressRange>;

    /// Whether all of a range may be reached now, and through which registration.
    ///
    /// # Errors
    /// [`Refused`].
    fn open(&self, access: Access, range: AddressRange) -> Result<Grant, Refused>;

    /// Copies `bytes` to `address`, if the registration stands and may be written.
    ///
    /// # Errors
    /// [`Refused`]; nothing was copied then.
    fn store(&self, grant: Grant, address: u64, bytes: &[u8]) -> Result<(), Refused>;

    /// Fills `out` from `address` on, if the registration stands and may be read.
    ///
    /// # Errors
    /// [`Refused`]; `out` is as it was then.
    fn load(&self, grant: Grant, address: u64, out: &mut [u8]) -> Result<(), Refused>;
}

#[cfg(test)]
mod tests {
    use super::AddressRange;

    #[test]
    fn a_range_holds_what_lies_in_it_and_nothing_that_wraps() {
        let range = |address, bytes| AddressRange { address, bytes };
        let outer = range(100, 50);
        for inner in [range(100, 50), range(100, 0), range(149, 1), range(150, 0)] {
            assert!(outer.holds(&inner), "{inner:?}");
        }
        for inner in [
            range(99, 1),
            range(100, 51),
            range(150, 1),
            range(120, u64::MAX),
            range(u64::MAX, 1),
        ] {
            assert!(!outer.holds(&inner), "{inner:?}");
        }
        assert!(!range(u64::MAX, 2).holds(&range(u64::MAX, 0)));
    }
}
