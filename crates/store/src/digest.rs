//! The running digest: a sum of one hash per entity.
//!
//! A sum does not depend on order, so each op adds what it brings and takes off what it takes.
//! The hash is our own and fixed for ever: leader and standby compare digests across releases
//! and platforms, which `std::hash::Hash` does not promise. It is no defence against somebody
//! who chooses keys to collide; it finds faults of memory, disk and code.

mod agent;

use larder_types::{
    Attributes, Borrowing, Extent, OnExceed, Pin, QuotaName, SegmentId, SlabRef, TaskId, TenantId,
    Version,
};

pub(crate) use agent::of_agent;

use crate::objects::ObjectRef;
use crate::request::{QuotaPolicy, TenantPolicy};
use crate::segment::{Releasing, Segment, SlabPhase};
use crate::state::State;
use crate::tasks::{Task, TaskWish};

/// Odd constants with well-spread bits: the fractions of the square roots of 2 and 3.
const SPREAD: u64 = 0x6a09_e667_f3bc_c909;
const STEP: u64 = 0xbb67_ae85_84ca_a73b;

/// The sum of the hashes of all entities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum(u64);

impl Sum {
    pub(crate) fn add(&mut self, hash: u64) {
        self.0 = self.0.wrapping_add(hash);
    }

    pub(crate) fn take(&mut self, hash: u64) {
        self.0 = self.0.wrapping_sub(hash);
    }

    pub(crate) const fn value(self) -> u64 {
        self.0
    }
}

/// What kind of entity a hash belongs to.
#[derive(Clone, Copy)]
enum Kind {
    Head = 1,
    Tenant,
    Object,
    Agent,
    Segment,
    Slab,
    Releasing,
    Lost,
    Task,
    Quota,
    /// No entity: what is drawn for a put.
    Lot,
    Doomed,
}

/// A hash of 64-bit words: each is folded in by a 64×64→128-bit product whose halves are xored.
struct Hash(u64);

impl Hash {
    const fn new(kind: Kind) -> Self {
        Self(SPREAD.wrapping_mul(kind as u64 + 1))
    }

    const fn word(self, word: u64) -> Self {
        let product = ((self.0 ^ word) as u128 | 1 << 64) * (SPREAD as u128);
        let folded = (product as u64) ^ ((product >> 64) as u64);
        Self(folded.rotate_left(29).wrapping_add(STEP))
    }

    fn words<const N: usize>(self, words: [u64; N]) -> Self {
        words.into_iter().fold(self, Self::word)
    }

    /// The length and the bytes, eight to a word in little-endian order.
    fn bytes(self, bytes: &[u8]) -> Self {
        bytes
            .chunks(8)
            .fold(self.word(bytes.len() as u64), |hash, chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                hash.word(u64::from_le_bytes(word))
            })
    }

    /// Present and value, or absent.
    fn option(self, value: Option<u64>) -> Self {
        self.words([u64::from(value.is_some()), value.unwrap_or(0)])
    }

    fn slab(self, slab: SlabRef) -> Self {
        let SlabRef {
            agent,
            segment,
            index,
            registration,
        } = slab;
        self.words([
            u64::from(agent.0),
            u64::from(segment.0),
            u64::from(index),
            registration.0,
        ])
    }

    fn version(self, version: Version) -> Self {
        self.words([
            version.epoch.generation,
            version.epoch.term,
            version.counter,
        ])
    }

    fn extent(self, extent: &Extent) -> Self {
        self.slab(extent.slab)
            .words([extent.offset_bytes, extent.length_bytes])
    }

    /// Spreads the last words over all bits.
    const fn end(self) -> u64 {
        let mut hash = self.0;
        hash = (hash ^ (hash >> 32)).wrapping_mul(STEP);
        hash = (hash ^ (hash >> 29)).wrapping_mul(SPREAD | 1);
        hash ^ (hash >> 32)
    }
}

pub(crate) fn of_tenant(id: &TenantId, policy: &TenantPolicy, deleting: bool) -> u64 {
    let TenantPolicy {
        access,
        guaranteed_bytes,
        limit_bytes,
        limit_objects,
        view_bytes,
        limit_pinned_bytes,
        borrowing,
        on_exceed,
        cohort,
    } = policy;
    Hash::new(Kind::Tenant)
        .bytes(id.as_str().as_bytes())
        .words([
            u64::from(access.reads()),
            u64::from(access.writes()),
            u64::from(deleting),
        ])
        .option(*limit_bytes)
        .option(*limit_objects)
        .option(*view_bytes)
        .word(*guaranteed_bytes)
        .option(*limit_pinned_bytes)
        .words([borrowing_word(*borrowing), exceed_word(*on_exceed)])
        .bytes(cohort.as_ref().map_or("", QuotaName::as_str).as_bytes())
        .end()
}

pub(crate) fn of_quota(name: &QuotaName, policy: &QuotaPolicy) -> u64 {
    let QuotaPolicy {
        guaranteed_bytes,
        limit_bytes,
        limit_objects,
        limit_pinned_bytes,
        borrowing,
        on_exceed,
    } = policy;
    Hash::new(Kind::Quota)
        .bytes(name.as_str().as_bytes())
        .word(*guaranteed_bytes)
        .option(*limit_bytes)
        .option(*limit_objects)
        .option(*limit_pinned_bytes)
        .words([borrowing_word(*borrowing), exceed_word(*on_exceed)])
        .end()
}

const fn borrowing_word(borrowing: Borrowing) -> u64 {
    match borrowing {
        Borrowing::Allowed => 0,
        Borrowing::Forbidden => 1,
    }
}

const fn exceed_word(on_exceed: OnExceed) -> u64 {
    match on_exceed {
        OnExceed::EvictOwn => 0,
        OnExceed::Refuse => 1,
    }
}

/// With the replicas that cannot be read: they are swept by ops.
pub(crate) fn of_object(tenant: &TenantId, object: ObjectRef<'_>) -> u64 {
    let Attributes {
        pin,
        group,
        data_type,
    } = object.attributes();
    let (pin, ttl_ms) = match pin {
        Pin::None => (0, 0),
        Pin::Soft { ttl_ms } => (1, *ttl_ms),
        Pin::Hard => (2, 0),
    };
    let group = group.as_ref().map_or("", |group| group.as_str());
    let mut hash = Hash::new(Kind::Object)
        .bytes(tenant.as_str().as_bytes())
        .bytes(object.key().as_bytes())
        .version(object.version())
        .words([
            object.size_bytes(),
            object.digest().0,
            u64::from(object.held_count()),
        ])
        .words([
            u64::from(object.wanted()),
            pin,
            ttl_ms,
            u64::from(data_type.number()),
        ])
        .bytes(group.as_bytes());
    for replica in 0..object.held_count() {
        let extents = object.replica(replica);
        hash = extents.fold(
            hash.word(object.replica(replica).count() as u64),
            |hash, extent| hash.extent(&extent),
        );
    }
    hash.end()
}

/// The lot of something of a tenant: the same for as long as the salt is.
pub(crate) fn lot_of(salt: u64, tenant: &TenantId, name: &[u8]) -> u64 {
    Hash::new(Kind::Lot)
        .word(salt)
        .bytes(tenant.as_str().as_bytes())
        .bytes(name)
        .end()
}

/// Of the segment itself; its slabs have hashes of their own.
pub(crate) fn of_segment(segment: &Segment) -> u64 {
    Hash::new(Kind::Segment)
        .words([
            u64::from(segment.id.0),
            u64::from(segment.agent.0),
            u64::from(segment.ordinal),
            segment.generation.0,
            u64::from(segment.slab_count),
            segment.slab_bytes,
            u64::from(segment.numa),
        ])
        .end()
}

/// Of a segment that was lost and is not swept yet.
pub(crate) fn of_lost(segment: SegmentId) -> u64 {
    Hash::new(Kind::Lost).word(u64::from(segment.0)).end()
}

pub(crate) fn of_slab(slab: SlabRef, tenant: &TenantId, phase: SlabPhase) -> u64 {
    let phase = match phase {
        SlabPhase::Giving => 1,
        SlabPhase::Ready => 2,
        SlabPhase::Taking => 3,
    };
    Hash::new(Kind::Slab)
        .slab(slab)
        .bytes(tenant.as_str().as_bytes())
        .word(phase)
        .end()
}

pub(crate) fn of_releasing(slab: SlabRef, offset_bytes: u64, releasing: &Releasing) -> u64 {
    let Releasing {
        length_bytes,
        version,
    } = *releasing;
    Hash::new(Kind::Releasing)
        .extent(&Extent {
            slab,
            offset_bytes,
            length_bytes,
        })
        .version(version)
        .end()
}

pub(crate) fn of_doomed(extent: &Extent, version: Version) -> u64 {
    let hash = Hash::new(Kind::Doomed).extent(extent);
    hash.version(version).end()
}

pub(crate) fn of_task(id: TaskId, task: &Task) -> u64 {
    let Task {
        tenant,
        key,
        version,
        wish,
        outcome,
    } = task;
    let agents: Vec<u64> = match wish {
        TaskWish::Copy { targets } => targets.iter().map(|agent| u64::from(agent.0)).collect(),
        TaskWish::Move { source, target } => vec![u64::from(source.0), u64::from(target.0)],
    };
    // Names, not numbers: the places of reasons in their list may change.
    let outcome = match outcome {
        None => "open",
        Some(Ok(())) => "done",
        Some(Err(reason)) => reason.label(),
    };
    let hash = Hash::new(Kind::Task)
        .word(id.0)
        .bytes(tenant.as_str().as_bytes())
        .bytes(key.as_bytes())
        .version(*version)
        .bytes(outcome.as_bytes())
        .words([
            u64::from(matches!(wish, TaskWish::Move { .. })),
            agents.len() as u64,
        ]);
    agents.into_iter().fold(hash, Hash::word).end()
}

impl State {
    pub(crate) fn head_hash(&self) -> u64 {
        let next = self.next;
        let hash = Hash::new(Kind::Head).words([
            self.generation,
            next.registration,
            u64::from(next.agent),
            u64::from(next.segment),
            next.task,
        ]);
        match (self.rebuilding, self.version) {
            (false, 0) => hash.end(),
            (rebuilding, version) => {
                let life = u64::from(rebuilding) | u64::from(self.knows_agents) << 1;
                hash.words([life, u64::from(version)]).end()
            }
        }
    }

    /// The digest counted from nothing.
    pub(crate) fn digest_from_scratch(&self) -> u64 {
        let mut sum = Sum::default();
        sum.add(self.head_hash());
        for (extent, version) in &self.doomed {
            sum.add(of_doomed(extent, *version));
        }
        for (id, tenant) in &self.tenants {
            sum.add(of_tenant(id, &tenant.policy, tenant.deleting));
            tenant
                .objects
                .held()
                .for_each(|object| sum.add(of_object(id, object)));
        }
        self.agents
            .iter()
            .for_each(|(id, agent)| sum.add(of_agent(*id, agent)));
        self.tasks
            .iter()
            .for_each(|(id, task)| sum.add(of_task(id, task)));
        self.quotas
            .iter()
            .for_each(|(name, policy)| sum.add(of_quota(name, policy)));
        for segment in self.segments.values() {
            sum.add(of_segment(segment));
            slab_hashes(segment).for_each(|hash| sum.add(hash));
        }
        for segment in self.lost.values() {
            sum.add(of_lost(segment.id));
            slab_hashes(segment).for_each(|hash| sum.add(hash));
        }
        sum.value()
    }
}

/// The hashes of all slabs of a segment and of what is being released in them.
fn slab_hashes(segment: &Segment) -> impl Iterator<Item = u64> + '_ {
    segment.slabs.iter().flat_map(|(index, slab)| {
        let name = segment.slab_ref(*index, slab.registration);
        let own = of_slab(name, &slab.tenant, slab.phase);
        let releasing = slab
            .releasing
            .iter()
            .map(move |(offset, r)| of_releasing(name, *offset, r));
        std::iter::once(own).chain(releasing)
    })
}

/// A hash of a key alone, for soft state. The last word spreads the bits that count up in keys of
/// one prefix over all of the result: it is cut into parts.
pub(crate) fn of_key(key: &[u8]) -> u64 {
    Hash::new(Kind::Object).bytes(key).word(STEP).0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fixed for ever: masters of different releases compare these.
    #[test]
    fn golden_values() {
        let words = Hash::new(Kind::Head).words([0, 1, u64::MAX]).end();
        let bytes = Hash::new(Kind::Object).bytes(b"kv/0123456789").end();
        assert_eq!((words, bytes), (GOLDEN_WORDS, GOLDEN_BYTES));
        assert_eq!(State::new(1).digest(), State::new(1).digest_from_scratch());
        assert_ne!(State::new(1).digest(), State::new(2).digest());
    }

    const GOLDEN_WORDS: u64 = 0xfb90_2835_752a_3b23;
    const GOLDEN_BYTES: u64 = 0x026f_7b0e_9d0b_a58c;

    #[test]
    fn near_inputs_lie_far_apart() {
        let mut seen = std::collections::BTreeSet::new();
        for a in 0..64u64 {
            for b in 0..64u64 {
                assert!(seen.insert(Hash::new(Kind::Object).words([a, b]).end()));
            }
        }
        let bits: u32 = (0..64)
            .map(|bit| {
                let one = Hash::new(Kind::Slab).word(1 << bit).end();
                (one ^ Hash::new(Kind::Slab).word(0).end()).count_ones()
            })
            .sum();
        assert!(
            (1700..2400).contains(&bits),
            "{bits} of 4096 bits differ, half were expected"
        );
    }

    #[test]
    fn bytes_of_different_cuts_differ() {
        let one = Hash::new(Kind::Object).bytes(b"ab").bytes(b"c").end();
        let two = Hash::new(Kind::Object).bytes(b"a").bytes(b"bc").end();
        let padded = Hash::new(Kind::Object).bytes(b"ab\0").bytes(b"c").end();
        assert!(one != two && one != padded);
    }
}
