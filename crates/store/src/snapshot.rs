//! A state in pieces, and a state out of pieces: what snapshots hold. Encoding is for others.
//!
//! [`Walk`] hands out the [`Part`]s of a state in a fixed order, as many at a time as its caller
//! has time for; [`Builder`] makes a state of them that has the same digest, or says what does not
//! fit. Books that follow from the parts, such as allocators, charges and sums, are not among
//! them: they are counted again, so that a fault in them does not outlive a snapshot.

mod build;
mod walk;

use larder_types::{
    AgentId, AgentName, AgentUid, Extent, Incarnation, Key, Labels, QuotaName, SegmentId, SlabRef,
    TaskId, TenantId, Version,
};

pub use build::{Builder, Misfit};
pub use walk::Walk;

use crate::objects::Object;
use crate::op::MountedSegment;
use crate::request::{QuotaPolicy, TenantPolicy};
use crate::segment::{Releasing, SlabPhase};
use crate::tasks::Task;

/// A piece of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The first.
    Head {
        /// The generation of the log.
        generation: u64,
        /// The next registration of a slab.
        next_registration: u64,
        /// The next number of an agent.
        next_agent: u32,
        /// The next number of a segment.
        next_segment: u32,
        /// The next number of a task.
        next_task: u64,
    },
    /// What tenants may hold together.
    Quota {
        /// Its name.
        quota: QuotaName,
        /// What it says.
        policy: QuotaPolicy,
    },
    /// A tenant without its objects.
    Tenant {
        /// Its id.
        tenant: TenantId,
        /// What it may do and hold.
        policy: TenantPolicy,
        /// Whether it is to go.
        deleting: bool,
        /// Lost segments on which replicas of its objects may still be noted.
        lost: Vec<SegmentId>,
    },
    /// A known agent.
    Agent {
        /// Its number.
        agent: AgentId,
        /// Its name.
        name: AgentName,
        /// What tells it from another agent of that name.
        uid: AgentUid,
        /// The life of its process.
        incarnation: Incarnation,
        /// Its segments, in the order of the offers.
        segments: Vec<SegmentId>,
        /// Whether it is to be emptied.
        draining: bool,
        /// Where it says that it is.
        said: Labels,
        /// What an administrator says of that.
        set: Labels,
    },
    /// A segment without its slabs.
    Segment {
        /// What it is.
        segment: MountedSegment,
        /// Whose it is or was.
        agent: AgentId,
        /// It was lost and is not swept yet.
        is_lost: bool,
    },
    /// A slab that belongs to a tenant.
    Slab {
        /// Its name in its present life.
        slab: SlabRef,
        /// Whose it is.
        tenant: TenantId,
        /// Where it stands.
        phase: SlabPhase,
    },
    /// An extent that its agent is to erase.
    Releasing {
        /// Where it lies.
        slab: SlabRef,
        /// From where on, in bytes.
        offset_bytes: u64,
        /// What lay there.
        releasing: Releasing,
    },
    /// A copy or move that somebody asked for.
    Task {
        /// Its number.
        id: TaskId,
        /// The task.
        task: Task,
    },
    /// An object, with the replicas that cannot be read any more.
    Object {
        /// Whose it is.
        tenant: TenantId,
        /// Its key.
        key: Key,
        /// The object.
        object: Object,
    },
    /// Of a pool that is made again: what is not to be found.
    Doomed {
        /// Where it lies.
        extent: Extent,
        /// Which version.
        version: Version,
    },
    /// Behind the head, of a pool of which there is something to say.
    Life {
        /// It is being made again from what agents hold.
        rebuilding: bool,
        /// While it is: no agent is still to come but those that are named.
        knows_agents: bool,
        /// What every replica of the log knows to do.
        version: u32,
    },
    /// The last: what all of it must come to.
    End {
        /// The digest of the state.
        digest: u64,
        /// Its objects.
        objects: u64,
    },
}
