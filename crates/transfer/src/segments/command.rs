//! Commands of the master about slabs and tenants. All may come twice.

use std::sync::Arc;

use larder_types::{SlabRef, TenantId, layout};

use super::slab::Slab;
use super::table::RecordTable;
use super::{GONE_TENANTS_MAX, Segments};
use crate::memory::SlabMemory;

impl Segments {
    /// Opens a slab for a tenant with fresh memory, which was made off this thread. `view_bytes`
    /// is how much of this tenant's views this agent allows at once, over all of its slabs;
    /// `None` = no limit. `Event::SlabReady` follows, or `Event::SlabFailed`.
    ///
    /// The same again is answered again, and its second memory dropped. An older life of the
    /// slab than was seen is passed over; a newer one ends the older.
    pub fn give_slab(
        &mut self,
        slab: SlabRef,
        tenant: TenantId,
        memory: Arc<SlabMemory>,
        view_bytes: Option<u64>,
    ) {
        let known = self
            .open_at(slab)
            .map(|(_, known)| (known.reference, &known.tenant));
        match known {
            Some((known, owner)) if known == slab => {
                if *owner == tenant {
                    self.views.allow(&tenant, view_bytes);
                    self.events.ready(slab);
                } else {
                    self.counters.stale_commands += 1;
                    let detail = "the slab belongs to another tenant in this life".to_owned();
                    self.events.failed(slab, detail);
                }
                return;
            }
            Some((known, _)) if known.registration > slab.registration => {
                self.counters.stale_commands += 1;
                return;
            }
            _ => {}
        }
        if !self.may_be_given(slab) {
            self.counters.stale_commands += 1;
            if !self.is_mounted(slab) {
                let detail = "the segment is not mounted, or has no slab of that index".to_owned();
                self.events.failed(slab, detail);
            }
            return;
        }
        if self
            .slabs
            .values()
            .any(|other| Arc::ptr_eq(&other.memory, &memory))
        {
            self.events
                .failed(slab, "its memory belongs to another slab".to_owned());
            return;
        }
        match RecordTable::new(tenant.clone()) {
            Ok(table) => {
                self.views.allow(&tenant, view_bytes);
                self.open_slab(slab, tenant, memory, table);
                self.events.ready(slab);
            }
            Err(error) => {
                let detail = larder_telemetry::error_chain(&error);
                self.events.failed(slab, detail);
            }
        }
    }

    fn open_slab(
        &mut self,
        slab: SlabRef,
        tenant: TenantId,
        memory: Arc<SlabMemory>,
        table: RecordTable,
    ) {
        let place = (slab.segment, slab.index);
        if let Some(life) = self.open.get(&place).copied() {
            self.close_slab(life, true);
        }
        let early = self.early.remove(&place);
        let early = early.filter(|(known, _)| *known == slab);
        let floor = early.map(|(_, version)| version);
        self.gone.remove(&tenant);
        self.lives += 1;
        self.open.insert(place, self.lives);
        let opened = Slab::new(slab, tenant, memory, table, floor);
        self.slabs.insert(self.lives, opened);
    }

    /// Whether the slab gives access in this life.
    #[must_use]
    pub fn has_slab(&self, slab: SlabRef) -> bool {
        self.open_at(slab)
            .is_some_and(|(_, found)| found.reference == slab)
    }

    /// Ends all access to the slab. Its pages are freed, and `Event::SlabReturned` follows, when
    /// no write, read or view holds it any more; at once if it is not here.
    pub fn take_slab(&mut self, slab: SlabRef) {
        let place = (slab.segment, slab.index);
        if self.is_mounted(slab) {
            let highest = self.taken.entry(place).or_insert(slab.registration);
            *highest = slab.registration.max(*highest);
            self.early.retain(|_, (known, _)| *known != slab);
        }
        let open = self
            .open_at(slab)
            .filter(|(_, found)| found.reference == slab);
        if let Some(life) = open.map(|(life, _)| life) {
            self.close_slab(life, true);
        } else if self.leaving(slab).is_none() {
            self.events.returned(slab);
        }
    }

    /// Refuses the tenant's session tokens and capabilities from now on, until it gets a slab
    /// again. Whoever serves connections closes those of which [`Segments::is_gone`] is true.
    pub fn tenant_gone(&mut self, tenant: &TenantId) {
        if self.gone.len() >= GONE_TENANTS_MAX {
            self.gone.pop_first();
        }
        self.gone.insert(tenant.clone());
    }

    /// Ends access. Whether the master is to hear of the end depends on who asked for it.
    pub(super) fn close_slab(&mut self, life: u64, tell: bool) {
        let Some(slab) = self.slabs.get_mut(&life) else {
            return;
        };
        let place = (slab.reference.segment, slab.reference.index);
        slab.table = None;
        self.budget.note_less();
        if tell {
            slab.tell_returned = true;
        } else {
            slab.forget_waiters();
        }
        let unheld = slab.held.is_empty();
        if self.open.get(&place) == Some(&life) {
            self.open.remove(&place);
        }
        if unheld {
            self.retire(life);
        }
    }

    /// Frees the memory of a slab that nothing holds.
    pub(super) fn retire(&mut self, life: u64) {
        let Some(slab) = self.slabs.remove(&life) else {
            return;
        };
        if let Err(error) = slab.memory.punch_out() {
            // The pages go with the last mapping then; no other tenant ever gets this file.
            let error = larder_telemetry::error_chain(&error);
            tracing::error!(%error, "the pages of a slab could not be freed at once");
        }
        self.counters.slabs_returned += 1;
        if slab.tell_returned {
            self.events.returned(slab.reference);
        }
        let slabs = &self.slabs;
        self.views
            .forget(|tenant| slabs.values().any(|slab| slab.tenant == *tenant));
    }

    fn open_at(&self, slab: SlabRef) -> Option<(u64, &Slab)> {
        let life = *self.open.get(&(slab.segment, slab.index))?;
        Some((life, self.slabs.get(&life)?))
    }

    /// The slab in a life that was taken but is still held, if the master waits for its end.
    pub(super) fn leaving(&self, slab: SlabRef) -> Option<u64> {
        let mut slabs = self.slabs.iter();
        let found = slabs.find(|(_, found)| found.tell_returned && found.reference == slab);
        found.map(|(life, _)| *life)
    }

    pub(super) fn is_life(&self, life: u64, slab: SlabRef) -> bool {
        self.slabs
            .get(&life)
            .is_some_and(|found| found.reference == slab)
    }

    fn is_mounted(&self, slab: SlabRef) -> bool {
        self.agent == Some(slab.agent)
            && self.segments.contains(&slab.segment)
            && u32::from(slab.index) < layout::MAX_SLABS
    }

    /// Whether this life of the slab may still begin.
    pub(super) fn may_be_given(&self, slab: SlabRef) -> bool {
        let taken = self.taken.get(&(slab.segment, slab.index));
        self.is_mounted(slab) && taken.is_none_or(|taken| *taken < slab.registration)
    }
}
