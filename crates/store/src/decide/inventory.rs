//! Deciding what a page of an agent's inventory comes to, after the log was lost.
//!
//! What is whole becomes an object, or one more replica of it; of two versions the higher one
//! stays. Everything else is to be erased, so that its bytes can be used again. A page that comes
//! twice changes nothing the second time.

use std::collections::{BTreeMap, BTreeSet};

use larder_types::{
    AgentId, Digest, Extent, Key, Memo, PoolTime, Reason, SlabRef, TenantId, Version,
};

use super::room::Room;
use super::{Outcome, Stop, refuse};
use crate::found::{Found, FoundObject, MAX_FOUND};
use crate::leader::Leader;
use crate::leader::rebuild::{Stripe, StripeName};
use crate::objects::ObjectRef;
use crate::op::Op;
use crate::reply::{Reply, WaitOn};
use crate::request::{MAX_REPLICAS, Request, TenantPolicy};
use crate::state::State;

type Stripes = BTreeMap<StripeName, Stripe>;

impl Leader {
    pub(super) fn inventory(&mut self, state: &State, page: &Request, now: PoolTime) -> Outcome {
        let Request::Inventory {
            agent,
            incarnation,
            slabs,
            found,
            is_last,
        } = page
        else {
            return refuse(Reason::Internal, "no inventory");
        };
        if found.len() > MAX_FOUND || slabs.len() > MAX_FOUND {
            let detail = format!("at most {MAX_FOUND} extents and slabs a page");
            return refuse(Reason::BadArgument, detail);
        }
        let known = state.agent(*agent);
        let Some(rebuild) = self.rebuild.as_deref_mut() else {
            // It comes too late, and the agent was told so or will be.
            return Ok(self.answer(Reply::Done));
        };
        if self.overlay.in_flight > 0 {
            return Err(Stop::Wait(WaitOn::Inventory));
        }
        if known.is_none_or(|known| known.incarnation != *incarnation)
            || !rebuild.reporting.contains_key(agent)
        {
            let detail = format!("agent {agent} has to mount again");
            return refuse(Reason::SessionUnknown, detail);
        }
        rebuild.reporting.insert(*agent, now);
        let mut plan = Plan::new(state, *agent, self.settings.max_tenants);
        slabs
            .iter()
            .for_each(|(slab, tenant)| plan.slab(*slab, tenant));
        plan.extents(found, &mut rebuild.stripes);
        if *is_last {
            rebuild.is_heard(*agent);
        }
        let ops = plan.ops;
        Ok(self.answer_with(ops, Reply::Done))
    }
}

/// A whole replica.
struct Whole<'a> {
    tenant: &'a TenantId,
    key: &'a Key,
    version: Version,
    size_bytes: u64,
    digest: Digest,
    memo: &'a Memo,
    extents: Vec<Extent>,
}

/// What a page comes to.
struct Plan<'a> {
    state: &'a State,
    agent: AgentId,
    max_tenants: usize,
    ops: Vec<Op>,
    room: Room<'a>,
    /// Tenants that are made with this page.
    tenants: BTreeSet<TenantId>,
    /// Parts of this page whose replica is not whole yet; their bytes are taken.
    parts: BTreeSet<Extent>,
    /// Keys of which an op says something already.
    keys: BTreeSet<(TenantId, Key)>,
}

impl<'a> Plan<'a> {
    const fn new(state: &'a State, agent: AgentId, max_tenants: usize) -> Self {
        Self {
            state,
            agent,
            max_tenants,
            ops: Vec::new(),
            room: Room::new(state),
            tenants: BTreeSet::new(),
            parts: BTreeSet::new(),
            keys: BTreeSet::new(),
        }
    }

    /// Takes a slab over, unless it is known or of one tenant too many.
    fn slab(&mut self, slab: SlabRef, tenant: &TenantId) {
        let segment = self.state.segment(slab.segment);
        let segment = segment.filter(|s| s.agent == self.agent && s.agent == slab.agent);
        let is_free = segment.is_some_and(|segment| segment.free.contains(&slab.index));
        if !is_free || !self.room.is_new(slab) || !self.has_tenant(tenant) {
            return;
        }
        self.ops.push(Op::SlabAdopted {
            slab,
            tenant: tenant.clone(),
        });
        self.room.add(slab, tenant.clone());
    }

    /// Whether a tenant is there, or could be made.
    fn has_tenant(&mut self, tenant: &TenantId) -> bool {
        if self.state.tenant(tenant).is_some() || self.tenants.contains(tenant) {
            return true;
        }
        if self.state.tenants.len() + self.tenants.len() >= self.max_tenants {
            return false;
        }
        self.tenants.insert(tenant.clone());
        // Whoever administers the pool sets its limits again; nobody can log in as it before.
        self.ops.push(Op::TenantSet {
            tenant: tenant.clone(),
            policy: TenantPolicy::default(),
        });
        true
    }

    fn extents(&mut self, found: &[Found], stripes: &mut Stripes) {
        let mut found: Vec<&Found> = found.iter().collect();
        // Of two versions of a key in one page the higher one comes first.
        found.sort_by_key(|one| std::cmp::Reverse(one.version));
        for one in found {
            let is_former = one.version.epoch.generation < self.state.generation();
            let is_own = one.extent.slab.agent == self.agent;
            let tenant = self.room.tenant_of(one.extent.slab).cloned();
            let Some(tenant) = tenant.filter(|_| is_own) else {
                continue;
            };
            // Taken by what an earlier page said, most likely the same.
            if !is_former || !self.room.reserve(&one.extent) {
                continue;
            }
            match &one.object {
                Some(object) if !self.state.doomed.contains(&(one.extent, one.version)) => {
                    self.object(one, object, &tenant, stripes);
                }
                _ => self.erase(one.extent, one.version),
            }
        }
    }

    fn erase(&mut self, extent: Extent, version: Version) {
        self.ops.push(Op::ExtentFound { extent, version });
    }

    fn object(
        &mut self,
        one: &Found,
        object: &FoundObject,
        tenant: &TenantId,
        stripes: &mut Stripes,
    ) {
        let FoundObject {
            key,
            part,
            parts,
            size_bytes,
            digest,
            memo,
        } = object;
        if *parts == 1 && *size_bytes == one.extent.length_bytes {
            return self.replica(Whole {
                tenant,
                key,
                version: one.version,
                size_bytes: *size_bytes,
                digest: *digest,
                memo,
                extents: vec![one.extent],
            });
        }
        if part >= parts || *parts < 2 {
            return self.erase(one.extent, one.version);
        }
        let name = (tenant.clone(), key.clone(), one.version, memo.stripe);
        let stripe = stripes.entry(name.clone()).or_insert_with(|| Stripe {
            parts: *parts,
            size_bytes: *size_bytes,
            memo: memo.clone(),
            found: BTreeMap::new(),
        });
        if (stripe.parts, stripe.size_bytes) != (*parts, *size_bytes) {
            return self.erase(one.extent, one.version);
        }
        match stripe.found.get(part) {
            // No agent writes one part twice; of what says so nothing is believed.
            Some((other, _)) if *other != one.extent => {
                return self.erase(one.extent, one.version);
            }
            _ => drop(stripe.found.insert(*part, (one.extent, *digest))),
        }
        self.parts.insert(one.extent);
        if stripe.found.len() == usize::from(*parts)
            && let Some(stripe) = stripes.remove(&name)
        {
            self.stripe(&name, stripe);
        }
    }

    /// A replica of several extents of which the last was found.
    fn stripe(&mut self, (tenant, key, version, _): &StripeName, stripe: Stripe) {
        let parts: Vec<(Extent, Digest)> = stripe.found.into_values().collect();
        let lengths = parts.iter().map(|(extent, _)| extent.length_bytes);
        let whole_bytes = lengths.fold(0, u64::saturating_add);
        let sums = parts.iter().map(|(e, digest)| (*digest, e.length_bytes));
        let digest = Digest::joined(sums).filter(|_| whole_bytes == stripe.size_bytes);
        let mut taken = Vec::with_capacity(parts.len());
        for (extent, _) in &parts {
            // Its agent may be lost again.
            if self.parts.contains(extent) || self.room.reserve(extent) {
                taken.push(*extent);
            }
        }
        match digest.filter(|_| taken.len() == parts.len()) {
            Some(digest) => self.replica(Whole {
                tenant,
                key,
                version: *version,
                size_bytes: stripe.size_bytes,
                digest,
                memo: &stripe.memo,
                extents: taken,
            }),
            None => taken
                .into_iter()
                .for_each(|extent| self.erase(extent, *version)),
        }
    }

    fn replica(&mut self, whole: Whole<'_>) {
        let (tenant, key) = (whole.tenant.clone(), whole.key.clone());
        let held = self.state.tenant(&tenant);
        let held = held.and_then(|held| held.objects.held_at(&key));
        let held = held.filter(ObjectRef::is_readable);
        let stands = held.map(|object| object.version());
        let is_new = !self.keys.contains(&(tenant.clone(), key.clone()));
        let op = match (held, stands) {
            (Some(object), Some(version)) if version == whole.version => {
                (is_new && fits(object, &whole)).then(|| Op::ReplicaAdded {
                    tenant: tenant.clone(),
                    key: key.clone(),
                    version,
                    extents: whole.extents.clone(),
                    instead_of: None,
                })
            }
            (_, replaces) if is_new && replaces < Some(whole.version) => Some(Op::PutEnd {
                tenant: tenant.clone(),
                key: key.clone(),
                version: whole.version,
                size_bytes: whole.size_bytes,
                digest: whole.digest,
                replicas: vec![whole.extents.clone()],
                wanted: whole.memo.wanted.clamp(1, MAX_REPLICAS),
                attributes: whole.memo.attributes.clone(),
                replaces,
            }),
            _ => None,
        };
        match op {
            Some(op) => {
                self.keys.insert((tenant, key));
                self.ops.push(op);
            }
            None => {
                let version = whole.version;
                let extents = whole.extents.into_iter();
                extents.for_each(|extent| self.erase(extent, version));
            }
        }
    }
}

/// Whether a replica is one more of this object, on agents that have none.
fn fits(object: ObjectRef<'_>, whole: &Whole<'_>) -> bool {
    let held: Vec<Vec<Extent>> = object.held_replicas().collect();
    let agents = |extents: &[Extent]| -> BTreeSet<AgentId> {
        extents.iter().map(|extent| extent.slab.agent).collect()
    };
    let own = agents(&whole.extents);
    object.size_bytes() == whole.size_bytes
        && object.digest() == whole.digest
        && held.len() < usize::from(MAX_REPLICAS)
        && held.iter().all(|replica| own.is_disjoint(&agents(replica)))
}
