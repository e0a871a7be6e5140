//! Deciding reads: get, exists, stat, list, usage. They see what is committed.

use larder_types::{Key, KeyRef, PoolTime, Reason, TenantId};

use super::{Outcome, Right, Stop, refuse};
use crate::leader::{Leader, rebuild};
use crate::objects::ObjectRef;
use crate::reply::{ObjectStat, Refusal, Reply, Usage};
use crate::request::MAX_LISTED;
use crate::soft::Health;
use crate::state::{State, Tenant};

impl Leader {
    pub(super) fn get(
        &mut self,
        state: &State,
        tenant: &TenantId,
        key: &Key,
        now: PoolTime,
    ) -> Outcome {
        let held = self.tenant(state, tenant, Right::Read)?;
        let object = self.complete(held, tenant, key)?;
        let mut replicas = object.replicas();
        replicas.sort_by_key(|replica| {
            replica
                .iter()
                .any(|extent| self.soft.health(extent.slab.agent) != Health::Alive)
        });
        let group = object.attributes().group.as_ref();
        let lease_ms = self.leases.got(tenant, object.id(), group, now);
        Ok(self.answer(Reply::Located {
            version: object.version(),
            size_bytes: object.size_bytes(),
            digest: object.digest(),
            replicas,
            lease_ms,
        }))
    }

    /// The complete object of a key.
    fn complete<'a>(
        &self,
        held: &'a Tenant,
        tenant: &TenantId,
        key: &Key,
    ) -> Result<ObjectRef<'a>, Stop> {
        if let Some(object) = held.objects.get(key) {
            return Ok(object);
        }
        match self.overlay.pending(tenant, key) {
            Some(put) => refuse(
                Reason::NotReady,
                format!("version {} is not complete yet", put.version),
            ),
            None => refuse(Reason::NotFound, format!("key {key}")),
        }
    }

    pub(super) fn exists(
        &mut self,
        state: &State,
        (tenant, key): (&TenantId, &Key),
        lease: bool,
        now: PoolTime,
    ) -> Outcome {
        let held = self.tenant(state, tenant, Right::Read)?;
        let id = held.objects.id(key);
        if let (Some(id), true) = (id, lease) {
            self.leases.probed(tenant, id, now);
        }
        Ok(self.answer(Reply::Exists(id.is_some())))
    }

    pub(super) fn stat(
        &self,
        state: &State,
        tenant: &TenantId,
        key: &Key,
        now: PoolTime,
    ) -> Outcome {
        let held = self.tenant(state, tenant, Right::Read)?;
        let object = self.complete(held, tenant, key)?;
        let stat = self.stat_of(tenant, object, now);
        Ok(self.answer(Reply::Stat(Box::new(stat))))
    }

    fn stat_of(&self, tenant: &TenantId, object: ObjectRef<'_>, now: PoolTime) -> ObjectStat {
        let replicas = object.replicas();
        let agents = replicas.iter().filter_map(|replica| replica.first());
        ObjectStat {
            version: object.version(),
            size_bytes: object.size_bytes(),
            digest: object.digest(),
            agents: agents.map(|extent| extent.slab.agent).collect(),
            wanted: object.wanted(),
            attributes: object.attributes().clone(),
            pin_left_ms: self.leases.pin_left_ms(tenant, object, now),
            leased: self.leases.is_leased(tenant, object, now),
        }
    }

    pub(super) fn list_stats(
        &self,
        state: &State,
        (tenant, prefix): (&TenantId, &[u8]),
        (after, limit): (Option<&Key>, usize),
        now: PoolTime,
    ) -> Outcome {
        let held = self.tenant(state, tenant, Right::Read)?;
        check_limit(limit)?;
        let mut found = held.objects.range(prefix, after);
        let stat = |(key, object): (KeyRef<'_>, ObjectRef<'_>)| {
            (key.to_key(), self.stat_of(tenant, object, now))
        };
        let entries = found.by_ref().take(limit).map(stat).collect();
        let more = found.next().is_some();
        Ok(self.answer(Reply::ListedStats { entries, more }))
    }

    /// Whether each of these keys holds a complete object, with the log index that it was judged
    /// by. Many keys at once are several times faster than one [`crate::Request::Exists`] each.
    ///
    /// # Errors
    /// The refusal that each of them would get.
    pub fn exists_all(
        &mut self,
        state: &State,
        tenant: &TenantId,
        keys: &[&Key],
        now: PoolTime,
    ) -> Result<(Vec<bool>, u64), Refusal> {
        if self.rebuild.is_some() || self.is_unheard(now) {
            return Err(rebuild::not_yet());
        }
        let held = match self.tenant(state, tenant, Right::Read) {
            Ok(held) => held,
            Err(Stop::Refused(refusal)) => return Err(refusal),
            // Only writers wait for a tenant.
            Err(Stop::Wait(on)) => {
                return Err(Refusal::new(Reason::Internal, format!("waits for {on:?}")));
            }
        };
        let mut exist = Vec::with_capacity(keys.len());
        held.objects
            .get_all(keys, |object| exist.push(object.is_some()));
        let missing = keys.iter().zip(&exist).filter(|(_, exists)| !**exists);
        self.evict.missed(tenant, missing.map(|(key, _)| *key));
        Ok((exist, self.committed_index))
    }

    pub(super) fn list(
        &self,
        state: &State,
        tenant: &TenantId,
        prefix: &[u8],
        after: Option<&Key>,
        limit: usize,
    ) -> Outcome {
        let held = self.tenant(state, tenant, Right::Read)?;
        check_limit(limit)?;
        let mut found = held.objects.range(prefix, after);
        let entries: Vec<(Key, u64)> = found
            .by_ref()
            .take(limit)
            .map(|(key, object)| (key.to_key(), object.size_bytes()))
            .collect();
        let more = found.next().is_some();
        Ok(self.answer(Reply::Listed { entries, more }))
    }

    pub(super) fn usage(&mut self, state: &State, tenant: &TenantId) -> Outcome {
        self.tenant(state, tenant, Right::Know)?;
        match self.usage_of(state, tenant) {
            Some(usage) => Ok(self.answer(Reply::Usage(Box::new(usage)))),
            None => refuse(Reason::TenantUnknown, format!("tenant {tenant}")),
        }
    }

    /// What a tenant holds and what its quota comes to; `None` for one that is not known.
    pub fn usage_of(&mut self, state: &State, tenant: &TenantId) -> Option<Usage> {
        let held = state.tenant(tenant)?;
        let quota = self.quota_report(state, tenant);
        let reserved = self.overlay.reserved(tenant);
        let slab_bytes = held
            .slabs
            .iter()
            .filter_map(|(_, segment, _)| state.segment(*segment))
            .fold(0u64, |sum, segment| sum.saturating_add(segment.slab_bytes));
        Some(Usage {
            used_bytes: held.used_bytes,
            pinned_bytes: held.pinned_bytes,
            used_objects: held.objects.len() as u64,
            reserved_bytes: reserved.bytes,
            reserved_objects: reserved.objects,
            slab_bytes,
            policy: held.policy.clone(),
            quota,
        })
    }
}

/// Whether a page may have so many entries.
pub(super) fn check_limit(limit: usize) -> Result<(), Stop> {
    if (1..=MAX_LISTED).contains(&limit) {
        return Ok(());
    }
    refuse(
        Reason::BadArgument,
        format!("a limit of {limit}, it must be 1 to {MAX_LISTED}"),
    )
}
