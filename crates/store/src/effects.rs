//! Effects: what an applied op or a soft event asks of the world.

use larder_types::{
    AgentId, CopyId, Digest, Extent, Key, Memo, PoolTime, SlabRef, TenantId, Version,
};

use crate::op::RemovalCause;
use crate::reply::WaitOn;

/// What an agent has to do. Agents do each command as often as they hear it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Make a slab for a tenant, then say [`crate::Request::SlabReady`].
    SlabGive {
        /// Which slab.
        slab: SlabRef,
        /// Whose it is.
        tenant: TenantId,
        /// Its size, in bytes.
        slab_bytes: u64,
    },
    /// Take an empty slab back, then say [`crate::Request::SlabReturned`].
    SlabTake {
        /// Which slab.
        slab: SlabRef,
    },
    /// Erase a record, then say [`crate::Request::Released`] when nothing holds the extent. An
    /// agent that holds another version there, or none, says so at once and erases nothing.
    Erase {
        /// Which extent.
        extent: Extent,
        /// Of which version.
        version: Version,
    },
    /// Close the sessions of a tenant that is being deleted.
    TenantGone {
        /// Which tenant.
        tenant: TenantId,
    },
    /// Read an object from another agent, or from elsewhere on this one, write it here and say
    /// [`crate::Request::Copied`] or [`crate::Request::CopyFailed`], one of them in any case.
    Copy(Box<CopyOrder>),
}

/// A copy to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOrder {
    /// Names it in the answer.
    pub copy: CopyId,
    /// Whose object.
    pub tenant: TenantId,
    /// The key.
    pub key: Key,
    /// The version; the record of the copy names it too.
    pub version: Version,
    /// The size of the object, in bytes.
    pub size_bytes: u64,
    /// The digest that the bytes must have.
    pub digest: Digest,
    /// The replica to read.
    pub from: Vec<Extent>,
    /// Where to write; it may be cut otherwise.
    pub to: Vec<Extent>,
    /// When the agent gives up.
    pub deadline: PoolTime,
    /// What its records keep of the object.
    pub memo: Memo,
}

/// An op that does not fit the state. The log or this replica's memory is broken: the caller
/// stops the replica and never uses the state again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("op {op} does not fit the state: {detail}; stop this replica and restore it from another")]
pub struct Corruption {
    /// The name of the op.
    pub op: &'static str,
    /// What did not fit.
    pub detail: String,
}

/// Why an object is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GoneCause {
    /// Somebody asked.
    Removed,
    /// Its space was needed.
    Evicted,
    /// Its time was over.
    Expired,
    /// Its last replica was lost.
    Lost,
    /// Its tenant was deleted.
    Purged,
}

impl From<RemovalCause> for GoneCause {
    fn from(cause: RemovalCause) -> Self {
        match cause {
            RemovalCause::Removed => Self::Removed,
            RemovalCause::Evicted => Self::Evicted,
            RemovalCause::Expired => Self::Expired,
        }
    }
}

/// Why a put was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Discard {
    /// Its client said so.
    Revoked,
    /// Its client's session ended.
    SessionClosed,
    /// It was not ended within [`crate::Settings::put_discard_ms`].
    Expired,
    /// It was that old, and another client wants the key.
    TakenOver,
    /// A segment that it wrote to was lost.
    AgentLost,
    /// Its tenant is being deleted.
    TenantDeleted,
}

impl Discard {
    /// Every cause.
    pub const ALL: [Self; 6] = [
        Self::Revoked,
        Self::SessionClosed,
        Self::Expired,
        Self::TakenOver,
        Self::AgentLost,
        Self::TenantDeleted,
    ];

    /// The name, as it stands in messages and metric labels.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Revoked => "revoked",
            Self::SessionClosed => "session_closed",
            Self::Expired => "expired",
            Self::TakenOver => "taken_over",
            Self::AgentLost => "agent_lost",
            Self::TenantDeleted => "tenant_deleted",
        }
    }
}

/// An object that an op took away without naming it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Whose it was.
    pub tenant: TenantId,
    /// Its key.
    pub key: Key,
    /// The version that the key held.
    pub version: Version,
    /// Why it is gone.
    pub cause: GoneCause,
}

/// How many puts were given up, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discards([u64; Discard::ALL.len()]);

impl Discards {
    pub(crate) fn count(&mut self, cause: Discard) {
        self.0[cause as usize] += 1;
    }

    /// Each cause that came up, with how often.
    pub fn iter(&self) -> impl Iterator<Item = (Discard, u64)> {
        let all = Discard::ALL.into_iter().zip(self.0);
        all.filter(|(_, count)| *count > 0)
    }

    fn append(&mut self, other: Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }
}

/// What follows from an op or an event. Standbys drop all of it but `corruption`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// To be sent. What does not reach its agent is in [`crate::Leader::outstanding`] later.
    pub commands: Vec<(AgentId, Command)>,
    /// Parked requests that wait on one of these are to be decided again.
    pub wakes: Vec<WaitOn>,
    /// The caller stops on it.
    pub corruption: Option<Corruption>,
    /// Objects whose last replica was lost.
    pub objects_lost: u64,
    /// Replicas that were lost, those of lost objects included.
    pub replicas_lost: u64,
    /// Objects that the op took away without naming them, in the order in which they went. At
    /// most the 4,096 that one turn touches. An op that names its object leaves it out: the
    /// caller has key and version in the op and copies them only if somebody wants to know.
    pub gone: Vec<Gone>,
    /// Pending puts that were given up.
    pub discards: Discards,
    /// Agents that were searched for a replica in several pieces: up to 0.1 ms each, as much as
    /// some 32 other requests.
    pub agents_searched: usize,
}

impl Effects {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds `other` behind these.
    pub fn append(&mut self, mut other: Self) {
        self.commands.append(&mut other.commands);
        self.wakes.append(&mut other.wakes);
        self.corruption = self.corruption.take().or(other.corruption);
        self.objects_lost += other.objects_lost;
        self.replicas_lost += other.replicas_lost;
        self.discards.append(other.discards);
        self.agents_searched += other.agents_searched;
        self.gone.append(&mut other.gone);
    }

    /// An object left with an op that does not name it.
    pub(crate) fn gone(&mut self, tenant: &TenantId, key: Key, version: Version, cause: GoneCause) {
        let tenant = tenant.clone();
        self.gone.push(Gone {
            tenant,
            key,
            version,
            cause,
        });
    }

    pub(crate) fn command(&mut self, agent: AgentId, command: Command) {
        self.commands.push((agent, command));
    }

    pub(crate) fn erase(&mut self, extent: Extent, version: Version) {
        self.command(extent.slab.agent, Command::Erase { extent, version });
    }

    pub(crate) fn wake(&mut self, on: WaitOn) {
        // Batches free many extents in a row: one wake of `Space` serves them all.
        if self.wakes.last() != Some(&on) {
            self.wakes.push(on);
        }
    }
}
