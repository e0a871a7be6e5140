//! Quotas: what tenants are charged, and what they may hold.
//!
//! * A charge is made when a put starts, settled when it ends and given back whenever its object
//!   or the put itself goes: it is counted from the objects and the pending puts, never beside
//!   them.
//! * [`effective`] says what guarantees and limits come to in the pool as it is.
//! * `Books` holds both against each other; the judgement by it admits a put or says what is in
//!   its way.

mod books;
mod effective;
mod judgement;
#[cfg(test)]
mod tests;

use larder_types::{Extent, layout};

pub(crate) use books::Books;
pub use effective::{Effective, Share, effective};
pub use judgement::{Exceeded, Shortage};

/// What a tenant is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charge {
    /// All extents of all replicas, in bytes: see [`layout::charged_bytes`].
    pub(crate) bytes: u64,
    pub(crate) objects: u64,
}

impl Charge {
    /// What a put of one extent per replica will be charged. `None` on overflow.
    pub(crate) fn of_put(size_bytes: u64, replicas: u8) -> Option<Self> {
        let bytes = layout::charged_bytes(size_bytes)?.checked_mul(u64::from(replicas))?;
        Some(Self { bytes, objects: 1 })
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            objects: self.objects.saturating_add(other.objects),
        }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            objects: self.objects.saturating_sub(other.objects),
        }
    }
}

/// What all extents of some replicas are charged, in bytes. `None` on overflow.
pub(crate) fn charge_of(replicas: &[Vec<Extent>]) -> Option<u64> {
    charge_of_extents(replicas.iter().flatten().copied())
}

/// What these extents are charged, in bytes. `None` on overflow.
pub(crate) fn charge_of_extents(mut extents: impl Iterator<Item = Extent>) -> Option<u64> {
    extents.try_fold(0u64, |sum, extent| {
        sum.checked_add(layout::charged_bytes(extent.length_bytes)?)
    })
}
