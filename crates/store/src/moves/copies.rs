//! The books of copies that are under way: extents reserved on their targets.

use std::collections::BTreeMap;

use larder_types::{
    AgentId, Attributes, CopyId, Digest, Extent, Key, Memo, PoolTime, SegmentId, TaskId, TenantId,
    Version,
};

use super::Why;
use crate::effects::{Command, CopyOrder, Effects};
use crate::overlay::Overlay;
use crate::quota::charge_of;

/// Marks the stripes of copies: those of puts are small numbers.
const STRIPES: u32 = 1 << 31;

/// Where a copy stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its agent was told.
    Running,
    /// The op that makes it a replica is proposed: nothing can take it back.
    Ending,
    /// Nobody wants it any more. It is erased when its agent has answered.
    Unwanted,
}

/// A copy that is under way.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) tenant: TenantId,
    pub(crate) key: Key,
    pub(crate) version: Version,
    pub(crate) size_bytes: u64,
    pub(crate) digest: Digest,
    pub(crate) from: Vec<Extent>,
    /// Never empty; all on one agent.
    pub(crate) to: Vec<Extent>,
    /// The agent whose replica goes when this one is there.
    pub(crate) instead_of: Option<AgentId>,
    pub(crate) why: Why,
    pub(crate) task: Option<TaskId>,
    pub(crate) deadline: PoolTime,
    /// What its records keep of the object.
    pub(crate) wanted: u8,
    pub(crate) attributes: Attributes,
    /// When its agent is told again, if it has not answered by then.
    pub(crate) ask_at: PoolTime,
    pub(crate) phase: Phase,
}

impl Copy {
    /// Who writes it.
    pub(crate) fn target(&self) -> Option<AgentId> {
        self.to.first().map(|extent| extent.slab.agent)
    }

    /// What the tenant is charged for while it is made: nothing for a move, whose object is no
    /// larger afterwards, so that no limit keeps an agent from being emptied.
    pub(crate) fn charge_bytes(&self) -> u64 {
        if self.instead_of.is_some() {
            return 0;
        }
        charge_of(std::slice::from_ref(&self.to)).unwrap_or(u64::MAX)
    }

    pub(crate) fn order(&self, copy: CopyId) -> Command {
        Command::Copy(Box::new(CopyOrder {
            copy,
            tenant: self.tenant.clone(),
            key: self.key.clone(),
            version: self.version,
            size_bytes: self.size_bytes,
            digest: self.digest,
            from: self.from.clone(),
            to: self.to.clone(),
            deadline: self.deadline,
            memo: Memo {
                // Above those of puts, which count from 0.
                stripe: STRIPES | u32::try_from(copy.0.counter % u64::from(STRIPES)).unwrap_or(0),
                wanted: self.wanted,
                attributes: self.attributes.clone(),
            },
        }))
    }
}

/// All copies that are under way; at most `Settings::max_moves` run, and those that are not
/// wanted count too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copies {
    pub(crate) by_id: BTreeMap<CopyId, Copy>,
    /// One at a time for an object.
    pub(crate) by_key: BTreeMap<(TenantId, Key), CopyId>,
    /// What tenants are charged for them, in bytes; no entry is 0.
    pub(crate) reserved: BTreeMap<TenantId, u64>,
}

impl Copies {
    pub(crate) fn of(&self, tenant: &TenantId, key: &Key) -> Option<CopyId> {
        self.by_key.get(&(tenant.clone(), key.clone())).copied()
    }

    /// The extents that are reserved.
    pub(crate) fn extents(&self) -> impl Iterator<Item = &Extent> {
        self.by_id.values().flat_map(|copy| &copy.to)
    }

    fn reserve(&mut self, tenant: &TenantId, bytes: u64) {
        if bytes > 0 {
            let held = self.reserved.entry(tenant.clone()).or_insert(0);
            *held = held.saturating_add(bytes);
        }
    }

    fn refund(&mut self, tenant: &TenantId, bytes: u64) {
        if let Some(held) = self.reserved.get_mut(tenant) {
            *held = held.saturating_sub(bytes);
            if *held == 0 {
                self.reserved.remove(tenant);
            }
        }
    }
}

impl Overlay {
    /// Takes a copy whose extents are reserved into the books.
    pub(crate) fn start_copy(&mut self, id: CopyId, copy: Copy) {
        self.copies.reserve(&copy.tenant, copy.charge_bytes());
        self.recharged.insert(copy.tenant.clone());
        for extent in &copy.to {
            let bytes = larder_types::layout::reserved_bytes(extent.length_bytes).unwrap_or(0);
            *self.reserved_on.entry(extent.slab.segment).or_insert(0) += bytes;
        }
        let name = (copy.tenant.clone(), copy.key.clone());
        self.copies.by_key.insert(name, id);
        self.copies.by_id.insert(id, copy);
    }

    /// Takes a copy out of the books. Its extents stay reserved.
    pub(crate) fn close_copy(&mut self, id: CopyId) -> Option<Copy> {
        let copy = self.copies.by_id.remove(&id)?;
        self.copies.refund(&copy.tenant, copy.charge_bytes());
        self.recharged.insert(copy.tenant.clone());
        for extent in &copy.to {
            self.no_longer_reserved(extent);
        }
        let name = (copy.tenant.clone(), copy.key.clone());
        if self.copies.by_key.get(&name) == Some(&id) {
            self.copies.by_key.remove(&name);
        }
        Some(copy)
    }

    /// Gives up a copy that its agent has answered: the agent is told to erase it, and its extents
    /// come back when it says so.
    pub(crate) fn discard_copy(&mut self, id: CopyId, effects: &mut Effects) {
        if let Some(copy) = self.close_copy(id) {
            self.give_up(copy.version, &copy.tenant, copy.to, effects);
        }
    }

    /// A segment is about to be lost: copies onto it are over.
    pub(crate) fn lose_copies(&mut self, segment: SegmentId, effects: &mut Effects) {
        let hits = |copy: &Copy| copy.to.iter().any(|e| e.slab.segment == segment);
        let hit: Vec<CopyId> = self
            .copies
            .by_id
            .iter()
            .filter(|(_, copy)| hits(copy) && copy.phase != Phase::Ending)
            .map(|(id, _)| *id)
            .collect();
        for id in hit {
            // An agent loses all of its segments at once, so no extent outlives this.
            self.discard_copy(id, effects);
        }
    }
}
