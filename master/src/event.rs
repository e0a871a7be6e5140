//! What the leader is told: one typed event, over one bounded channel, from everybody.

use larder_types::{AgentName, Key, Labels, Principal, QuotaName, TaskId, TenantId};
use larder_wire::{CallError, Header, Purpose, Refused, Welcome};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use larder_store::{QuotaPolicy, TenantPolicy};

use crate::rpc::Body;

/// One accepted connection of this process; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionId(pub(crate) u64);

/// Bytes for a connection, written in one go.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// Whole frames.
    pub(crate) bytes: Vec<u8>,
    /// How many of them are replies.
    pub(crate) replies: usize,
    /// Close the connection behind them.
    pub(crate) close: bool,
}

/// A connection whose credential was proven asks to be let in.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) connection: ConnectionId,
    pub(crate) protocol: u16,
    pub(crate) principal: Principal,
    pub(crate) purpose: Purpose,
    pub(crate) outbox: mpsc::Sender<Outgoing>,
    pub(crate) reply: oneshot::Sender<Result<Welcome, Refused>>,
}

/// A call of a connection, decoded.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) connection: ConnectionId,
    pub(crate) header: Header,
    pub(crate) body: Body,
    pub(crate) at: Instant,
}

/// What the admin port asks.
#[derive(Debug)]
pub(crate) enum AdminAsk {
    /// What is this master and how full is the pool.
    Status,
    /// All tenants.
    Tenants,
    /// Make a tenant or change it.
    TenantSet(TenantId, TenantPolicy),
    /// Delete a tenant with everything that it holds.
    TenantDelete(TenantId),
    /// What the quota of a tenant comes to.
    TenantQuota(TenantId),
    /// All quotas that tenants share.
    Quotas,
    /// One of them.
    Quota(QuotaName),
    /// Make a quota or change it.
    QuotaSet(QuotaName, QuotaPolicy),
    /// Release the tenants of a quota from it.
    QuotaDelete(QuotaName),
    /// All agents.
    Agents,
    /// Empty an agent, or no longer.
    Drain(AgentName, bool),
    /// Say where an agent is.
    Labels(AgentName, Labels),
    /// How far an agent is emptied.
    DrainStatus(AgentName),
    /// Where tasks stand, in the order of their numbers.
    Tasks {
        /// Only those of this tenant.
        tenant: Option<TenantId>,
        /// Only those that are not over.
        open: bool,
        /// Only those behind this one.
        after: TaskId,
        /// At most so many.
        limit: usize,
    },
    /// Where one stands.
    Task(TaskId),
    /// End one.
    TaskCancel(TaskId),
    /// Check the whole state.
    Check,
    /// What the simulator sees of a master.
    #[cfg(feature = "sim")]
    Look,
    /// Bring the gauges up to date.
    Gauges,
    /// Some keys of a tenant with the sizes of their objects.
    Keys {
        tenant: TenantId,
        prefix: Vec<u8>,
        after: Option<Key>,
        limit: usize,
    },
    /// Remove some objects of a tenant.
    Remove {
        tenant: TenantId,
        keys: Vec<Key>,
        if_unleased: bool,
    },
}

/// The answer for the admin port: a document.
pub(crate) type AdminAnswer = Result<serde_json::Value, CallError>;

/// What the leader is told.
#[derive(Debug)]
pub(crate) enum Event {
    /// See [`Opened`].
    Opened(Opened),
    /// See [`Called`].
    Called(Called),
    /// The connection is gone; nothing of it comes after this.
    Closed(ConnectionId),
    /// A call of the admin port.
    Asked(AdminAsk, oneshot::Sender<AdminAnswer>),
}
