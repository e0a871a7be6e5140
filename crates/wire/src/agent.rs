//! An agent's control connection: mount, heartbeats, commands and what came of them.

use larder_types::{
    AgentId, AgentName, AgentUid, CopyId, Digest, Epoch, Extent, Incarnation, Labels, Memo,
    PoolTime, SegmentGeneration, SegmentId, SlabRef, TenantId, Version,
};
use serde::{Deserialize, Serialize};

use crate::capability::SignedCapability;
use crate::master::AgentAddress;

/// Offers segments. Answer: `CallResult<Mounted>` in a [`crate::master::Reply`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The agent; must be the one that its credential proves.
    pub name: AgentName,
    /// What tells two agents of one name apart.
    pub uid: AgentUid,
    /// The agent's process.
    pub incarnation: Incarnation,
    /// `host:port` under which clients reach its data listener.
    pub data_addr: String,
    /// What it offers; at most [`crate::limit::MAX_SEGMENTS`].
    pub segments: Vec<SegmentOffer>,
    /// The highest epoch that it has seen in its life.
    pub highest_epoch: Epoch,
    /// Where it is, as far as it was told.
    pub labels: Labels,
    /// The numbers that it had last, if it still holds slabs under them.
    pub kept: Option<Kept>,
}

/// Numbers that an agent has from a master. They outlive that master's log at the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The agent's.
    pub agent: AgentId,
    /// The segments', in the order of the offers.
    pub segments: Vec<SegmentId>,
}

/// One segment that an agent offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentOffer {
    /// The agent's own number for it, from 0.
    pub ordinal: u16,
    /// The life of its bytes.
    pub generation: SegmentGeneration,
    /// How many slabs it has; at most [`larder_types::layout::MAX_SLABS`].
    pub slabs: u32,
    /// Size of one slab, in bytes.
    pub slab_bytes: u64,
    /// The NUMA node of its memory.
    pub numa: u16,
}

/// Answer to [`Mount`].
#[derive(Clone, Serialize, Deserialize)]
pub struct Mounted {
    /// The agent's number in extents.
    pub agent: AgentId,
    /// The segments' numbers, in the order of the offers.
    pub segments: Vec<SegmentId>,
    /// The key under which capabilities for this agent, in this incarnation, are signed.
    pub capability_key: [u8; 32],
    /// The number of that key.
    pub key_id: u32,
    /// Ed25519 public key of session tokens.
    pub session_key: [u8; 32],
    /// Slabs that the agent should hold for tenants; others are to be given back.
    pub heartbeat_ms: u64,
    /// What is still to be done, as in [`Commands`].
    pub outstanding: Vec<Command>,
    /// The pool is made again from what agents hold: keep everything, cut what is being written,
    /// and send [`Inventory`] from the start, however much was sent before.
    pub wants_inventory: bool,
}

/// The capability key is a secret: it never shows in logs.
impl std::fmt::Debug for Mounted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mounted")
            .field("agent", &self.agent)
            .field("segments", &self.segments)
            .field("key_id", &self.key_id)
            .field("outstanding", &self.outstanding.len())
            .field("wants_inventory", &self.wants_inventory)
            .finish_non_exhaustive()
    }
}

/// I am alive. Answer: `Reply<Beat>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The agent's number from [`Mounted`].
    pub agent: AgentId,
    /// The agent's process.
    pub incarnation: Incarnation,
    /// The highest epoch that it has seen.
    pub highest_epoch: Epoch,
    /// How busy its data thread was since the last one, per mille.
    pub load_permille: u16,
}

/// Answer to [`Heartbeat`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// False: the master does not know this agent (any more); mount again.
    pub known: bool,
}

/// Things to do. Idempotent: a command may come twice, and after a reconnect does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commands {
    /// Who commands; lower than the highest seen = refused.
    pub epoch: Epoch,
    /// Pool time when it was sent.
    pub pool_time: PoolTime,
    /// What to do, in order.
    pub commands: Vec<Command>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Make fresh memory for this slab, for this tenant. Done: [`Event::SlabReady`].
    SlabGive {
        /// The slab and its new registration.
        slab: SlabRef,
        /// Whose it will be.
        tenant: TenantId,
        /// Its size, in bytes.
        slab_bytes: u64,
        /// How many bytes of this tenant's views this agent allows at once.
        view_bytes: Option<u64>,
    },
    /// Let go of this slab's memory; it holds nothing any more. Done: [`Event::SlabReturned`].
    SlabTake {
        /// The slab in the life that ends.
        slab: SlabRef,
    },
    /// Erase the record, refuse the version from now on, and say when nothing holds the bytes
    /// any more. Done: [`Event::Released`].
    Erase {
        /// Where it lies.
        extent: Extent,
        /// Which version; others there stay.
        version: Version,
    },
    /// Close all sessions of this tenant.
    TenantGone {
        /// The tenant.
        tenant: TenantId,
    },
    /// Read an object and write it here under the same version. Done: [`Event::Copied`] or
    /// [`Event::CopyFailed`], one of them in any case.
    Copy(Box<CopyOrder>),
}

/// A copy to make.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOrder {
    /// Names it in the answer.
    pub copy: CopyId,
    /// Whose object.
    pub tenant: TenantId,
    /// The size of the object, in bytes.
    pub size_bytes: u64,
    /// The digest that its bytes must have.
    pub digest: Digest,
    /// A session token of the tenant, for the agents to read from.
    pub session_token: Vec<u8>,
    /// The agents to read from; the one that is told may be among them.
    pub sources: Vec<AgentAddress>,
    /// What to read, in order of the object's bytes.
    pub from: Vec<(Extent, SignedCapability)>,
    /// Where to write, in order of the object's bytes too; it may be cut otherwise.
    pub to: Vec<(Extent, SignedCapability)>,
    /// When to give up, in ms from now.
    pub remaining_ms: u64,
}

/// The token is a secret: it never shows in logs.
impl std::fmt::Debug for CopyOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CopyOrder")
            .field("copy", &self.copy)
            .field("tenant", &self.tenant)
            .field("size_bytes", &self.size_bytes)
            .finish_non_exhaustive()
    }
}

/// What came of commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// The agent's number.
    pub agent: AgentId,
    /// The agent's process.
    pub incarnation: Incarnation,
    /// What happened; at most [`crate::limit::MAX_BATCH`].
    pub events: Vec<Event>,
}

/// One thing that happened at an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The slab has memory and takes writes.
    SlabReady {
        /// Which.
        slab: SlabRef,
    },
    /// The slab could not get memory.
    SlabFailed {
        /// Which.
        slab: SlabRef,
        /// Why, for people.
        detail: String,
    },
    /// The slab's memory is gone.
    SlabReturned {
        /// Which.
        slab: SlabRef,
    },
    /// The record is erased and nothing holds the bytes: they may be used again.
    Released {
        /// Where.
        extent: Extent,
        /// Which version.
        version: Version,
    },
    /// The copy is written and verified.
    Copied {
        /// Which.
        copy: CopyId,
        /// The digest of the bytes as they lie here now.
        digest: Digest,
    },
    /// The copy could not be made. Nothing of it is being written any more.
    CopyFailed {
        /// Which.
        copy: CopyId,
        /// Why, for people.
        detail: String,
    },
}

/// What an agent holds, a page of it, after a mount that asked for it; sent after all writes of
/// older epochs were cut. Answer: `Reply<()>`, when what it says is in the log; then the next page
/// may be sent. Slabs and records together stay below [`crate::limit::MAX_INVENTORY_BYTES`].
///
/// In the order of slabs, and of offsets within each. The extents of all pages are disjoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// The agent's number.
    pub agent: AgentId,
    /// The agent's process.
    pub incarnation: Incarnation,
    /// Slabs, each before or in the page of its first record; at most
    /// [`crate::limit::MAX_BATCH`].
    pub slabs: Vec<HeldSlab>,
    /// What lies in them; at most [`crate::limit::MAX_BATCH`].
    pub records: Vec<HeldRecord>,
    /// Nothing follows.
    pub is_last: bool,
}

/// A slab that takes reads and writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSlab {
    /// Which, with the registration under which capabilities reach it.
    pub slab: SlabRef,
    /// Whose it is.
    pub tenant: TenantId,
}

impl HeldSlab {
    /// The most bytes that it takes in a page: numbers as long as they can be, and the name.
    #[must_use]
    pub fn encoded_bytes_max(&self) -> usize {
        // 5 + 5 + 3 + 10 of the slab, 2 before the name.
        25 + self.tenant.as_str().len()
    }
}

/// A record, or bytes that somebody still holds though their record is erased.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldRecord {
    /// Where.
    pub extent: Extent,
    /// Which version.
    pub version: Version,
    /// What is known of the object; `None` if the bytes are not whole, or erased and held.
    pub written: Option<HeldObject>,
}

impl HeldRecord {
    /// The most bytes that it takes in a page: numbers as long as they can be, and the names.
    #[must_use]
    pub fn encoded_bytes_max(&self) -> usize {
        // 43 of the extent, 30 of the version, 1 that says whether more follows.
        const PLACE: usize = 43 + 30 + 1;
        // Part, parts, length, digest, stripe, wanted, pin, data type, and what stands before the
        // key and the group.
        const OBJECT: usize = 3 + 3 + 10 + 10 + 5 + 1 + 11 + 1 + 2 + 3;
        let named = self.written.as_ref().map_or(0, |object| {
            let group = object.memo.attributes.group.as_ref();
            OBJECT + object.key.len() + group.map_or(0, |group| group.as_str().len())
        });
        PLACE + named
    }
}

/// What a record says of its object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldObject {
    /// Its key.
    pub key: Vec<u8>,
    /// Position of the extent among the replica's extents, from 0.
    pub part: u16,
    /// How many extents the replica has.
    pub parts: u16,
    /// Size of the whole object, in bytes.
    pub object_bytes: u64,
    /// The digest of this extent's bytes.
    pub digest: Digest,
    /// What else.
    pub memo: Memo,
}

/// The agent stops and takes its segments away. Answer: `Reply<()>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmount {
    /// The agent's number.
    pub agent: AgentId,
    /// The agent's process.
    pub incarnation: Incarnation,
}
