//! Requests: everything that may be asked of the leader. Identity is proven before one is built: a
//! tenant, session or agent named here is the one that the connection's credential proved.

use larder_types::{
    Access, AgentId, AgentName, AgentUid, Attributes, Borrowing, CopyId, Digest, Epoch, Extent,
    Incarnation, Key, Labels, OnExceed, Pin, QuotaName, SegmentGeneration, SegmentId, SessionId,
    SlabRef, TaskId, TenantId, Version,
};

use crate::found::Found;
use crate::tasks::TaskWish;

/// The most extents in one [`Request::Released`].
pub const MAX_RELEASED: usize = 4096;
/// The most entries that one [`Request::List`] answers, and keys that one
/// [`Request::RemovePrefix`] looks at: about 2 ms to decide and to apply.
pub const MAX_LISTED: usize = 1000;
/// The most segments that one agent may offer: four per NUMA node of a 16-node machine.
pub const MAX_SEGMENTS: usize = 64;
/// The most replicas of an object.
pub const MAX_REPLICAS: u8 = 3;

/// What a tenant may do and how much it may hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantPolicy {
    /// Which calls are allowed.
    pub access: Access,
    /// What it may be charged whatever others do, in bytes of Dram. Held in whole slabs.
    pub guaranteed_bytes: u64,
    /// The most that it may be charged, in bytes of Dram; `None` is no limit.
    pub limit_bytes: Option<u64>,
    /// The most objects that it may hold; `None` is no limit.
    pub limit_objects: Option<u64>,
    /// The most that its views may hold on one agent, in bytes; `None` is no limit. Kept here for
    /// the agents; the store does not judge by it.
    pub view_bytes: Option<u64>,
    /// The most that its hard pins may hold, in bytes; `None` is a quarter of its limit, or of
    /// the pool without one.
    pub limit_pinned_bytes: Option<u64>,
    /// Whether it may hold more than its guarantee.
    pub borrowing: Borrowing,
    /// What a put beyond the quota does.
    pub on_exceed: OnExceed,
    /// The quota that it shares with others. One that is not set bounds nothing.
    pub cohort: Option<QuotaName>,
}

/// What the tenants that name a quota as their cohort may hold together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaPolicy {
    /// What they may be charged whatever others do, in bytes; their own guarantees lie within it.
    pub guaranteed_bytes: u64,
    /// The most that they may be charged, in bytes; `None` is no limit.
    pub limit_bytes: Option<u64>,
    /// The most objects; `None` is no limit.
    pub limit_objects: Option<u64>,
    /// The most that their hard pins may hold, in bytes; `None` is a quarter of the limit, or of
    /// the pool without one.
    pub limit_pinned_bytes: Option<u64>,
    /// Whether they may hold more than the guarantee.
    pub borrowing: Borrowing,
    /// What a put beyond this quota does. A tenant's own word is about its own limits.
    pub on_exceed: OnExceed,
}

/// A segment as an agent offers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentOffer {
    /// Which segment of the agent it is; unique within one mount.
    pub ordinal: u16,
    /// The life of its bytes.
    pub generation: SegmentGeneration,
    /// How many slabs it has.
    pub slabs: u32,
    /// The size of each slab, in bytes; a power of two.
    pub slab_bytes: u64,
    /// The NUMA node that it lies on.
    pub numa: u16,
}

/// What a put does with a key that holds an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PutMode {
    /// It is refused.
    #[default]
    Create,
    /// It replaces the object when it ends; until then readers get the former one, and a put that
    /// fails leaves it. What its [`Attributes`] do not say (no pin, no group, data type 0) stays
    /// as the former object has it.
    Upsert {
        /// Refuse while a reader's lease protects the object.
        if_unleased: bool,
    },
}

/// An extent that an agent says is written. The caller of the store has verified the receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Which extent.
    pub extent: Extent,
    /// The digest of the object that the agent computed.
    pub digest: Digest,
}

/// What is asked of the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Reserve extents for a new object and give it a version.
    PutStart {
        /// Whose put it is; it ends with the session.
        session: SessionId,
        /// The tenant.
        tenant: TenantId,
        /// The key.
        key: Key,
        /// The size of the object, in bytes; at least 1.
        size_bytes: u64,
        /// How many replicas; 1 to [`MAX_REPLICAS`].
        replicas: u8,
        /// The agents to take if they have room, best first: usually the one on the client's node.
        /// A number that no agent has, such as 0, stands for one that is not known here.
        preferred: Vec<AgentId>,
        /// What to do with a key that holds an object.
        mode: PutMode,
        /// Refuse if there cannot be that many replicas, instead of making fewer.
        strict: bool,
        /// The most extents that one replica may have: what the answer has room for.
        extents_max: u16,
        /// What the object is, besides its bytes.
        attributes: Attributes,
    },
    /// Finish a put with the receipts of all its extents.
    PutEnd {
        /// The session that started it.
        session: SessionId,
        /// The tenant.
        tenant: TenantId,
        /// The key.
        key: Key,
        /// The version that the start gave.
        version: Version,
        /// What the agents wrote.
        written: Vec<Written>,
    },
    /// Give a put up; answered when its extents are erased.
    PutRevoke {
        /// The session that started it.
        session: SessionId,
        /// The tenant.
        tenant: TenantId,
        /// The key.
        key: Key,
        /// The version that the start gave.
        version: Version,
    },
    /// Where an object lies.
    Get {
        /// The tenant.
        tenant: TenantId,
        /// The key.
        key: Key,
    },
    /// Whether a complete object of that key exists.
    Exists {
        /// The tenant.
        tenant: TenantId,
        /// The key.
        key: Key,
        /// Protect the object as a get would, if no probe has done so since the last get.
        lease: bool,
    },
    /// Take an object away.
    Remove {
        /// The tenant.
        tenant: TenantId,
        /// The key.
        key: Key,
        /// Refuse while a reader's lease protects it.
        if_unleased: bool,
    },
    /// Keys of a prefix in order.
    List {
        /// The tenant.
        tenant: TenantId,
        /// What the keys start with; empty is all.
        prefix: Vec<u8>,
        /// Only keys above this one.
        after: Option<Key>,
        /// How many at most; 1 to [`MAX_LISTED`].
        limit: usize,
    },
    /// What a tenant holds.
    Usage {
        /// The tenant.
        tenant: TenantId,
    },
    /// An agent offers its segments, for the first time or again.
    Mount {
        /// Its name.
        name: AgentName,
        /// What tells two agents of one name apart.
        uid: AgentUid,
        /// The life of its process.
        incarnation: Incarnation,
        /// What it offers.
        segments: Vec<SegmentOffer>,
        /// The highest epoch that it has acknowledged.
        highest_epoch: Epoch,
        /// Where it says that it is.
        labels: Labels,
        /// The numbers that it had last, if it holds slabs under them: its own and those of its
        /// segments in the order of the offers.
        kept: Option<(AgentId, Vec<SegmentId>)>,
    },
    /// What an agent holds, a page of it.
    Inventory {
        /// Which agent.
        agent: AgentId,
        /// The life of its process.
        incarnation: Incarnation,
        /// Slabs with their tenants, each before or with its first extent.
        slabs: Vec<(SlabRef, TenantId)>,
        /// What lies in them; at most [`crate::MAX_FOUND`].
        found: Vec<Found>,
        /// Nothing follows.
        is_last: bool,
    },
    /// An agent leaves for good: its segments are lost.
    Unmount {
        /// Which agent.
        agent: AgentId,
    },
    /// An agent lives. The first one after a mount also acknowledges the leader's epoch: writes
    /// of older epochs ended or were cut. Agents send it as soon as they are mounted, as nothing
    /// is placed on an agent that mounted again before it.
    Heartbeat {
        /// Which agent.
        agent: AgentId,
        /// The life of its process.
        incarnation: Incarnation,
        /// How busy it was since the last one, per mille of what it can do.
        load_permille: u16,
    },
    /// The connection of an agent closed: it is suspect at once. To be sent only for the
    /// connection that mounted last.
    AgentGone {
        /// Which agent.
        agent: AgentId,
        /// The life of its process.
        incarnation: Incarnation,
    },
    /// An agent has made the slab that it was told to give.
    SlabReady {
        /// Which slab; its agent is the one that asks.
        slab: SlabRef,
    },
    /// An agent has taken the slab back and punched its pages out.
    SlabReturned {
        /// Which slab; its agent is the one that asks.
        slab: SlabRef,
    },
    /// An agent could not make the slab.
    SlabFailed {
        /// Which slab; its agent is the one that asks.
        slab: SlabRef,
        /// Why.
        detail: String,
    },
    /// Extents are erased and nothing holds them any more.
    Released {
        /// Which extents of which versions; at most [`MAX_RELEASED`].
        extents: Vec<(Extent, Version)>,
        /// Who says so.
        agent: AgentId,
    },
    /// Make a tenant or change its policy.
    TenantSet {
        /// The tenant.
        tenant: TenantId,
        /// What it may do from now on.
        policy: TenantPolicy,
    },
    /// Delete a tenant with everything that it holds.
    TenantDelete {
        /// The tenant.
        tenant: TenantId,
    },
    /// A client's session ended: its pending puts are discarded. No request of that session may
    /// be decided after this one.
    SessionClosed {
        /// Which session.
        session: SessionId,
    },
    /// Change what protects an object from eviction.
    PinSet {
        /// The tenant.
        tenant: TenantId,
        /// The key.
        key: Key,
        /// The pin that it gets; a soft one of 0 ms lasts as long as the settings say.
        pin: Pin,
    },
    /// What is known of an object. Grants no lease.
    Stat {
        /// The tenant.
        tenant: TenantId,
        /// The key.
        key: Key,
    },
    /// As [`Request::List`], with what is known of each object.
    ListStats {
        /// The tenant.
        tenant: TenantId,
        /// What the keys start with; empty is all.
        prefix: Vec<u8>,
        /// Only keys above this one.
        after: Option<Key>,
        /// How many at most; 1 to [`MAX_LISTED`].
        limit: usize,
    },
    /// Take the next objects of a prefix away. Keys whose put is pending are left to it.
    RemovePrefix {
        /// The tenant.
        tenant: TenantId,
        /// What the keys start with; empty is all.
        prefix: Vec<u8>,
        /// Only keys above this one.
        after: Option<Key>,
        /// How many keys to look at; 1 to [`MAX_LISTED`].
        limit: usize,
        /// Leave those that a reader's lease protects.
        if_unleased: bool,
    },
    /// An agent has written a copy and verified it.
    Copied {
        /// Who says so.
        agent: AgentId,
        /// Which copy.
        copy: CopyId,
        /// The digest of the object that the agent computed.
        digest: Digest,
    },
    /// An agent could not make a copy; nothing runs there any more.
    CopyFailed {
        /// Who says so.
        agent: AgentId,
        /// Which copy.
        copy: CopyId,
        /// Why.
        detail: String,
    },
    /// Empty an agent, so that it can leave without loss, or no longer.
    Drain {
        /// Which agent.
        agent: AgentId,
        /// Whether it is to be emptied.
        on: bool,
    },
    /// Say where an agent is. Wins over what the agent says, and stays when it mounts again.
    LabelsSet {
        /// Which agent.
        agent: AgentId,
        /// All that was set before is gone.
        labels: Labels,
    },
    /// Copy an object to other agents, or move a replica of it. Answered when it is noted.
    TaskCreate {
        /// The tenant.
        tenant: TenantId,
        /// The key.
        key: Key,
        /// What to do.
        wish: TaskWish,
    },
    /// How a task stands.
    TaskQuery {
        /// The tenant that asked for it.
        tenant: TenantId,
        /// Which task.
        task: TaskId,
    },
    /// End a task that is not over, whoever asked for it. A copy under way ends by itself.
    TaskCancel {
        /// Which task.
        task: TaskId,
    },
    /// Set what the tenants of a cohort may hold together.
    QuotaSet {
        /// The quota.
        quota: QuotaName,
        /// What they may hold from now on.
        policy: QuotaPolicy,
    },
    /// Release the tenants of a cohort from what they share.
    QuotaDelete {
        /// The quota.
        quota: QuotaName,
    },
}
