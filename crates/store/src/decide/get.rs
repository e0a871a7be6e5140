//! Deciding reads: get, exists, list, usage. They see what is committed.

use larder_types::{Key, Reason, TenantId};

use super::{Outcome, Right, Stop, refuse};
use crate::leader::Leader;
use crate::reply::{Refusal, Reply, Usage};
use crate::request::MAX_LISTED;
use crate::soft::Health;
use crate::state::State;

impl Leader {
    pub(super) fn get(&self, state: &State, tenant: &TenantId, key: &Key) -> Outcome {
        let held = self.tenant(state, tenant, Right::Read)?;
        let Some(object) = held.objects.get(key) else {
            return match self.overlay.pending(tenant, key) {
                Some(put) => refuse(
                    Reason::NotReady,
                    format!("version {} is not complete yet", put.version),
                ),
                None => refuse(Reason::NotFound, format!("key {key}")),
            };
        };
        let mut replicas = object.replicas();
        replicas.sort_by_key(|replica| {
            replica
                .iter()
                .any(|extent| self.soft.health(extent.slab.agent) != Health::Alive)
        });
        Ok(self.answer(Reply::Located {
            version: object.version(),
            size_bytes: object.size_bytes(),
            digest: object.digest(),
            replicas,
        }))
    }

    pub(super) fn exists(&self, state: &State, tenant: &TenantId, key: &Key) -> Outcome {
        let held = self.tenant(state, tenant, Right::Read)?;
        Ok(self.answer(Reply::Exists(held.objects.get(key).is_some())))
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
    ) -> Result<(Vec<bool>, u64), Refusal> {
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
        if limit == 0 || limit > MAX_LISTED {
            return refuse(
                Reason::BadArgument,
                format!("a limit of {limit}, it must be 1 to {MAX_LISTED}"),
            );
        }
        let mut found = held.objects.range(prefix, after);
        let entries: Vec<(Key, u64)> = found
            .by_ref()
            .take(limit)
            .map(|(key, object)| (key.to_key(), object.size_bytes()))
            .collect();
        let more = found.next().is_some();
        Ok(self.answer(Reply::Listed { entries, more }))
    }

    pub(super) fn usage(&self, state: &State, tenant: &TenantId) -> Outcome {
        let held = self.tenant(state, tenant, Right::Know)?;
        let reserved = self.overlay.reserved(tenant);
        let slab_bytes = held
            .slabs
            .iter()
            .filter_map(|(_, segment, _)| state.segment(*segment))
            .fold(0u64, |sum, segment| sum.saturating_add(segment.slab_bytes));
        Ok(self.answer(Reply::Usage(Usage {
            used_bytes: held.used_bytes,
            used_objects: held.objects.len() as u64,
            reserved_bytes: reserved.bytes,
            reserved_objects: reserved.objects,
            slab_bytes,
            policy: held.policy.clone(),
        })))
    }
}
