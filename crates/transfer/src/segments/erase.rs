//! Erasing, and saying when the bytes may be used again.

use larder_types::{Extent, SlabRef, Version};
use larder_wire::data::{DataError, DataReason};

use super::Segments;
use super::hold::{Hold, HoldId, HoldKind};
use super::range::Span;

impl Segments {
    /// Erases the record of `version` in `extent` and refuses that version, and every lower one,
    /// there from now on, also if it was never seen. `Event::Released` follows: at once, or when
    /// the last write, read and view on those bytes has ended.
    pub fn erase(&mut self, extent: Extent, version: Version) {
        let place = (extent.slab.segment, extent.slab.index);
        let open = self.open.get(&place).copied();
        let found = open.filter(|life| self.is_life(*life, extent.slab));
        let Some(life) = found.or_else(|| self.leaving(extent.slab)) else {
            self.erase_early(extent.slab, version);
            self.events.released(extent, version);
            return;
        };
        let Some(slab) = self.slabs.get_mut(&life) else {
            return;
        };
        let span = Span::around(&extent, slab.memory.bytes());
        if let (Some(table), Some(span)) = (slab.table.as_mut(), span) {
            table.erase(span, version);
        }
        self.budget.note_less();
        if slab.holds(&extent) {
            slab.wait_for_release(extent, version);
        } else {
            self.events.released(extent, version);
        }
    }

    /// The slab is not here. If it is still being made, a write could come when it is: then no
    /// version up to this one is let in. That may refuse a write of another extent, which its
    /// client repeats under a new version; a mark for each extent would have no bound.
    fn erase_early(&mut self, slab: SlabRef, version: Version) {
        let place = (slab.segment, slab.index);
        if !self.may_be_given(slab) {
            return;
        }
        let (known, highest) = self.early.entry(place).or_insert((slab, version));
        if known.registration < slab.registration {
            (*known, *highest) = (slab, version);
        } else if *known == slab {
            *highest = version.max(*highest);
        }
    }

    /// Notes a hold on a range of a slab.
    pub(super) fn start_hold(&mut self, hold: Hold) -> Result<HoldId, DataError> {
        let (life, span) = (hold.life, hold.span);
        let slab = self
            .slabs
            .get_mut(&life)
            .ok_or(DataReason::StaleRegistration)?;
        let id = self.holds.insert(hold).ok_or(DataReason::Limit)?;
        slab.held.add(span);
        Ok(id)
    }

    /// Ends a hold, and whatever waited for it. `None`: it had ended before, nothing happens.
    pub(super) fn end_hold(&mut self, id: HoldId) -> Option<Hold> {
        let hold = self.holds.remove(id)?;
        if let HoldKind::View { tenant, bytes } = &hold.kind {
            self.views.give_back(tenant, *bytes);
        }
        let slab = self.slabs.get_mut(&hold.life)?;
        if slab.held.release(hold.span) {
            for (extent, version) in slab.take_released() {
                self.events.released(extent, version);
            }
            if slab.table.is_none() && slab.held.is_empty() {
                self.retire(hold.life);
            }
        }
        Some(hold)
    }
}
