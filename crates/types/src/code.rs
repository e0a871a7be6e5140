//! Error codes with the numbers that Mooncake's clients know, and typed reasons beside them.

use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal),* $(,)?) => {
        /// The outcome class of a call. The numbers are those of Mooncake's `ErrorCode`, so that
        /// its clients' scripts keep their meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(try_from = "i32", into = "i32"))]
        #[repr(i32)]
        pub enum ErrorCode {
            $($(#[$doc])* $name = $number,)*
        }

        impl ErrorCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The name, as it stands in messages and metric labels.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// The code of this number, if there is one.
            #[must_use]
            pub const fn from_number(number: i32) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }
        }
    };
}

codes! {
    /// A bug of ours; the log of the server says more.
    InternalError = -1,
    /// No such segment.
    SegmentNotFound = -101,
    /// The segment is mounted already.
    SegmentAlreadyExists = -102,
    /// The session or client is not known.
    ClientNotFound = -103,
    /// No room: see the reason.
    NoAvailableHandle = -200,
    /// The version is not, or no longer, the one meant.
    InvalidVersion = -300,
    /// The key is empty or too long.
    InvalidKey = -400,
    /// An argument is out of range.
    InvalidParams = -600,
    /// The caller may not do that.
    IllegalClient = -601,
    /// The put is not in a state for that.
    InvalidWrite = -700,
    /// The object is being written.
    ReplicaIsNotReady = -703,
    /// No such object.
    ObjectNotFound = -704,
    /// The object exists, or somebody is writing it.
    ObjectAlreadyExists = -705,
    /// A lease protects the object.
    ObjectHasLease = -706,
    /// The read took longer than its lease.
    LeaseExpired = -707,
    /// The object is being copied or moved.
    ObjectHasReplicationTask = -708,
    /// No replica of the object is left, or none where it was looked for.
    ReplicaNotFound = -710,
    /// The bytes did not arrive.
    TransferFail = -800,
    /// The bytes arrived changed.
    ChecksumMismatch = -801,
    /// The master could not be reached.
    RpcFail = -900,
    /// The deadline passed.
    RpcTimeout = -901,
    /// The server cannot do that now: not leader, starting, stopping, or full of work.
    UnavailableInCurrentStatus = -1010,
    /// The call is not offered here.
    NotSupported = -1012,
    /// No such task.
    TaskNotFound = -1400,
    /// Too many tasks wait.
    TaskPendingLimitExceeded = -1401,
    /// The tenant is at its limit.
    TenantQuotaExceeded = -1700,
    /// The tenant is not known.
    TenantNotRegistered = -1701,
    /// The tenant still has objects.
    TenantNotEmpty = -1702,
}

impl ErrorCode {
    /// The number on the wire and in return codes.
    #[must_use]
    pub const fn number(self) -> i32 {
        self as i32
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.number())
    }
}

impl From<ErrorCode> for i32 {
    fn from(code: ErrorCode) -> Self {
        code.number()
    }
}

impl TryFrom<i32> for ErrorCode {
    type Error = UnknownCode;
    fn try_from(number: i32) -> Result<Self, UnknownCode> {
        Self::from_number(number).ok_or(UnknownCode(number))
    }
}

/// A number that no [`ErrorCode`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownCode(pub i32);

impl fmt::Display for UnknownCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error code {} is not known to this release", self.0)
    }
}

impl std::error::Error for UnknownCode {}

macro_rules! reasons {
    ($(
        $(#[$doc:meta])*
        $name:ident = ($code:ident, $retry:literal, $label:literal, $advice:literal)
    ),* $(,)?) => {
        /// Why a call failed: finer than its [`ErrorCode`], and what a caller can do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The code that this reason refines.
            #[must_use]
            pub const fn code(self) -> ErrorCode {
                match self { $(Self::$name => ErrorCode::$code,)* }
            }

            /// Whether the same call may succeed later without anybody changing anything.
            #[must_use]
            pub const fn is_retryable(self) -> bool {
                match self { $(Self::$name => $retry,)* }
            }

            /// The name as a metric label: lower case with underscores.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// One sentence for people.
            #[must_use]
            pub const fn advice(self) -> &'static str {
                match self { $(Self::$name => $advice,)* }
            }
        }
    };
}

reasons! {
    /// See the advice.
    NotFound = (ObjectNotFound, false, "not_found", "no object of that key in this tenant"),
    /// See the advice.
    NotReady = (ReplicaIsNotReady, true, "not_ready", "the object is being written; try again"),
    /// See the advice.
    AlreadyExists = (ObjectAlreadyExists, false, "already_exists",
        "the key holds an object; remove it first, or upsert"),
    /// See the advice.
    BeingWritten = (ObjectAlreadyExists, true, "being_written",
        "another client is writing this key"),
    /// See the advice.
    QuotaBytes = (TenantQuotaExceeded, false, "quota_bytes",
        "the tenant is at its limit of bytes; remove objects or raise spec.limit.bytes of its \
         CacheTenant or CacheQuota; `larder quota explain` says more"),
    /// See the advice.
    QuotaObjects = (TenantQuotaExceeded, false, "quota_objects",
        "the tenant is at its limit of objects; remove objects or raise spec.limit.objects of its \
         CacheTenant or CacheQuota; `larder quota explain` says more"),
    /// See the advice.
    NoSpace = (NoAvailableHandle, false, "no_space",
        "the pool is full; remove objects, add nodes or enlarge the tier"),
    /// See the advice.
    Fragmented = (NoAvailableHandle, false, "fragmented",
        "there is room, but no hole of that size; remove objects or use smaller ones"),
    /// See the advice.
    NoAgents = (NoAvailableHandle, true, "no_agents",
        "no agent offers memory yet; wait for agents to mount or look at their logs"),
    /// See the advice.
    TooFewAgents = (NoAvailableHandle, false, "too_few_agents",
        "more replicas were asked than there are agents; lower the replica count or add nodes"),
    /// See the advice.
    TooLarge = (InvalidParams, false, "too_large",
        "the object is larger than an agent can hold or the pool allows; cut it into smaller ones"),
    /// See the advice.
    EmptyValue = (InvalidParams, false, "empty_value", "a value must have at least one byte"),
    /// See the advice.
    BadReplicaCount = (InvalidParams, false, "bad_replica_count",
        "the number of replicas must be 1 to 3"),
    /// See the advice.
    BadArgument = (InvalidParams, false, "bad_argument", "an argument is out of range"),
    /// See the advice.
    BadKey = (InvalidKey, false, "bad_key", "a key must have 1 to 4096 bytes"),
    /// See the advice.
    TenantUnknown = (TenantNotRegistered, false, "tenant_unknown",
        "no CacheTenant of that id in this pool"),
    /// See the advice.
    AccessDenied = (IllegalClient, false, "access_denied",
        "the tenant's access does not allow this call"),
    /// See the advice.
    StaleOwner = (IllegalClient, false, "stale_owner",
        "this put was taken from its client: it was discarded, revoked or another client writes \
         the key"),
    /// See the advice.
    StaleEpoch = (InvalidVersion, true, "stale_epoch",
        "the leader changed during the call; start the put again"),
    /// See the advice.
    StaleVersion = (InvalidVersion, false, "stale_version",
        "the version is not the one that the key holds"),
    /// See the advice.
    BadReceipt = (InvalidWrite, false, "bad_receipt",
        "a receipt is missing, forged or does not fit the put"),
    /// See the advice.
    NotWriting = (InvalidWrite, false, "not_writing",
        "the key is not being written by this client"),
    /// See the advice.
    ReplicasLost = (ReplicaNotFound, false, "replicas_lost",
        "every agent that held the object is gone"),
    /// See the advice.
    LeaseHeld = (ObjectHasLease, true, "lease_held",
        "a reader's lease protects the object; try again when it is over, or without if_unleased"),
    /// See the advice.
    NotLeader = (UnavailableInCurrentStatus, true, "not_leader",
        "this master does not lead; ask another"),
    /// See the advice.
    Starting = (UnavailableInCurrentStatus, true, "starting", "the master is starting; try again"),
    /// See the advice.
    Overloaded = (UnavailableInCurrentStatus, true, "overloaded",
        "too much work is waiting; try again more slowly"),
    /// See the advice.
    DeadlinePassed = (RpcTimeout, true, "deadline_passed",
        "the deadline passed before the call was done"),
    /// See the advice.
    SessionUnknown = (ClientNotFound, true, "session_unknown", "the session ended; connect again"),
    /// See the advice.
    SegmentUnknown = (SegmentNotFound, false, "segment_unknown", "no such segment is mounted"),
    /// See the advice.
    TenantHasObjects = (TenantNotEmpty, true, "tenant_has_objects",
        "the tenant still has objects that are being removed"),
    /// See the advice.
    Unsupported = (NotSupported, false, "unsupported", "this release does not offer the call"),
    /// See the advice.
    Internal = (InternalError, true, "internal", "a fault of the server; its log says more"),
    /// See the advice.
    QuotaPinnedBytes = (TenantQuotaExceeded, false, "quota_pinned_bytes",
        "the tenant has pinned as many bytes as it may; unpin objects, pin this one soft \
         or raise spec.pinned.bytes"),
    /// See the advice.
    AgentUnknown = (InvalidParams, false, "agent_unknown", "no agent of that name is mounted"),
    /// See the advice.
    AgentDraining = (UnavailableInCurrentStatus, false, "agent_draining",
        "the agent is being emptied and takes nothing new; choose another"),
    /// See the advice.
    NoReplicaThere = (ReplicaNotFound, false, "no_replica_there",
        "the object has no replica on that agent"),
    /// See the advice.
    TaskUnknown = (TaskNotFound, false, "task_unknown",
        "no task of that id, or it ended too long ago"),
    /// See the advice.
    TooManyTasks = (TaskPendingLimitExceeded, true, "too_many_tasks",
        "too many copies and moves wait; try again later"),
    /// See the advice.
    CopyFailed = (TransferFail, true, "copy_failed", "the bytes could not be copied; ask again"),
    /// See the advice.
    QuotaBorrow = (TenantQuotaExceeded, false, "quota_borrow",
        "the tenant has used its guarantee, and idle memory is kept for the guarantees of others; \
         remove objects, raise spec.guaranteed or add nodes; `larder quota explain` says more"),
    /// See the advice.
    TooFewHosts = (NoAvailableHandle, false, "too_few_hosts",
        "replicas of an object lie on different hosts, and more were asked than there are hosts; \
         lower the replica count, add nodes, or put without strict"),
    /// See the advice.
    HostTaken = (InvalidParams, false, "host_taken",
        "another replica of the object lies on the host of that agent; choose one of another host"),
    /// See the advice.
    TaskCanceled = (UnavailableInCurrentStatus, false, "task_canceled",
        "an administrator ended the copy or move before it was done; what was copied stays"),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code(), self.advice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_both_ways() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_number(code.number()), Some(*code));
        }
        assert_eq!(ErrorCode::try_from(-9), Err(UnknownCode(-9)));
    }

    /// Codes that no reason of a master refines, and why; all others are some reason's.
    #[test]
    fn each_code_is_some_reasons_or_nobodys_on_purpose() {
        use ErrorCode::*;
        let without = [
            // A mount may be repeated.
            SegmentAlreadyExists,
            // A reader checks the record and the digest behind the bytes, not the time.
            LeaseExpired,
            // A copy hinders no call: its end looks whether the object is still the one.
            ObjectHasReplicationTask,
            // Clients find these out for themselves.
            ChecksumMismatch,
            RpcFail,
        ];
        for code in ErrorCode::ALL {
            let refined = Reason::ALL.iter().any(|reason| reason.code() == *code);
            assert_eq!(refined, !without.contains(code), "{code}");
        }
    }

    #[test]
    fn labels_are_unique_and_fit_a_metric() {
        let mut seen = std::collections::BTreeSet::new();
        for reason in Reason::ALL {
            let label = reason.label();
            assert!(
                label.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{label}"
            );
            assert!(seen.insert(label), "{label} twice");
        }
    }
}
