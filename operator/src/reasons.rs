//! Every condition type and every reason, once. Reasons are part of the API: events carry them
//! too, and `docs/conditions.md` is generated from this table.

use std::fmt::Write as _;

macro_rules! reasons {
    ($(
        $reason:ident $severity:ident [$($kind:literal $condition:ident $status:literal),+]
            $help:literal;
    )*) => {
        /// Why a condition has its status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason {
            $(#[doc = $help] $reason,)*
        }

        impl Reason {
            /// Every reason, in the order of the table.
            pub const ALL: &[Reason] = &[$(Reason::$reason,)*];

            /// As it stands in conditions and events.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Reason::$reason => stringify!($reason),)* }
            }

            /// Whether a change to it deserves a warning.
            #[must_use]
            pub const fn severity(self) -> Severity {
                match self { $(Reason::$reason => Severity::$severity,)* }
            }

            /// Where it is used: kind of the object, condition, status of the condition.
            #[must_use]
            pub const fn uses(self) -> &'static [(&'static str, ConditionType, &'static str)] {
                match self {
                    $(Reason::$reason => &[$(($kind, ConditionType::$condition, $status)),+],)*
                }
            }

            /// What it means and what to do.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $(Reason::$reason => $help,)* }
            }
        }
    };
}

/// How loud the event of a reason is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// As intended.
    Normal,
    /// Somebody should look.
    Warning,
}

/// The type of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// The spec can be carried out.
    Accepted,
    /// A master leads and answers.
    LeaderElected,
    /// All masters lead or follow.
    MastersReady,
    /// All masters run as the spec says, and no other ones do.
    MastersUpdated,
    /// All wanted nodes have a ready agent.
    NodesReady,
    /// Nodes that should leave the pool cannot move their objects.
    ScaleInBlocked,
    /// What is guaranteed is there.
    Guaranteed,
    /// A tenant shares a CacheQuota.
    QuotaBound,
    /// The tenants that a quota names share it.
    TenantsBound,
    /// More is guaranteed than the pool has.
    QuotaOvercommitted,
    /// The tenants whose events are published exist.
    EventsPublished,
    /// The masters lost their log, or its end, and made the pool again from what agents hold.
    RecoveredFromInventory,
    /// It serves.
    Ready,
}

impl ConditionType {
    /// As it stands in the status.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::LeaderElected => "LeaderElected",
            Self::MastersReady => "MastersReady",
            Self::MastersUpdated => "MastersUpdated",
            Self::NodesReady => "NodesReady",
            Self::ScaleInBlocked => "ScaleInBlocked",
            Self::Guaranteed => "Guaranteed",
            Self::QuotaBound => "QuotaBound",
            Self::TenantsBound => "TenantsBound",
            Self::QuotaOvercommitted => "QuotaOvercommitted",
            Self::EventsPublished => "EventsPublished",
            Self::RecoveredFromInventory => "RecoveredFromInventory",
            Self::Ready => "Ready",
        }
    }
}

reasons! {
    Accepted Normal ["CachePool" Accepted "True", "CacheTenant" Accepted "True",
        "CacheQuota" Accepted "True", "CacheSnapshot" Accepted "True"]
        "The spec is carried out.";
    InvalidSpec Warning ["CachePool" Accepted "False", "CacheTenant" Accepted "False",
        "CacheQuota" Accepted "False"]
        "A field has a value that cannot be; the message names it.";
    NameTaken Warning ["CachePool" Accepted "False", "CacheTenant" Accepted "False"]
        "Somebody else's object has the name of one that is needed. Remove or rename it.";
    OldObjectsRemain Normal ["CachePool" Accepted "False", "CacheTenant" Accepted "False"]
        "Objects of an earlier life of this name are still being removed; it goes on by itself.";
    ApiRefused Warning ["CachePool" Accepted "False", "CacheTenant" Accepted "False"]
        "The API server refuses something that is needed; the message says what it said. Grant the \
         right or change what stands in the way: it is tried again by itself.";
    PoolNotFound Warning ["CacheTenant" Accepted "False", "CacheQuota" Accepted "False",
        "CacheSnapshot" Accepted "False"]
        "There is no CachePool of that name in the namespace. It is accepted once there is one.";
    TenantIdTaken Warning ["CacheTenant" Accepted "False"]
        "An older CacheTenant of the pool has the same id. Choose another tenantId.";
    SubjectTaken Warning ["CacheTenant" Accepted "False"]
        "An older CacheTenant names the same ServiceAccount; an account is one tenant of a pool.";
    SubjectReserved Warning ["CacheTenant" Accepted "False"]
        "A subject is the ServiceAccount of masters, agents or the operator.";
    PoolFull Warning ["CacheTenant" Accepted "False", "CacheQuota" Accepted "False"]
        "The tenants and quotas of the pool no longer fit one ConfigMap of 1 MiB. Use fewer \
         subjects, or fewer quotas.";
    NotAccepted Warning ["CachePool" LeaderElected "False", "CachePool" MastersReady "False",
        "CachePool" NodesReady "False",
        "CachePool" Ready "False", "CacheTenant" Ready "False", "CacheQuota" Ready "False",
        "CacheSnapshot" Ready "False"]
        "See the condition Accepted.";
    Leading Normal ["CachePool" LeaderElected "True"]
        "A master leads and answers.";
    MasterStarting Normal ["CachePool" LeaderElected "False", "CachePool" Ready "False"]
        "No pod of the masters is ready yet.";
    MasterNotReached Warning ["CachePool" LeaderElected "False", "CachePool" Ready "False",
        "CachePool" ScaleInBlocked "True", "CacheTenant" Ready "False",
        "CacheQuota" Ready "False", "CacheSnapshot" Ready "False"]
        "The master does not answer the operator; the message says how the call failed.";
    Electing Normal ["CachePool" LeaderElected "False", "CachePool" Ready "False"]
        "No master leads at the moment. More than half of them answer and elect one by themselves, \
         within seconds.";
    QuorumLost Warning ["CachePool" LeaderElected "False", "CachePool" Ready "False"]
        "Half of the masters or more do not answer, so none may lead. Objects stay where they are, \
         and nothing is lost while the volumes of the masters that the message names are there. \
         Start those masters again, as the message says: bring back their nodes, or delete the \
         pods of nodes that are surely off, so that they start elsewhere with their volumes. \
         Delete no volume, and without spec.masters.storage no pod.";
    AllMastersReady Normal ["CachePool" MastersReady "True"]
        "One master leads, and all others follow it.";
    MastersStarting Normal ["CachePool" MastersReady "False"]
        "Fewer masters are ready than there should be. The pool serves while more than half are.";
    AllMastersUpdated Normal ["CachePool" MastersUpdated "True"]
        "Every master runs as the spec says, and votes.";
    MastersRolling Normal ["CachePool" MastersUpdated "False"]
        "Masters are made again one at a time, or their number changes; the message says what is \
         next or waited for. Standbys come first, and only while all others are ready and in sync; \
         then another master takes over, and the old leader comes last. If it waits for a master \
         that does not become ready, look at its pod: a change of the spec replaces it first.";
    AllReady Normal ["CachePool" NodesReady "True"]
        "Every wanted node has a ready agent.";
    AgentsStarting Normal ["CachePool" NodesReady "False", "CachePool" Ready "False"]
        "Some wanted nodes have no ready agent yet.";
    AgentsRefused Warning ["CachePool" NodesReady "False", "CachePool" Ready "False"]
        "The API server refuses pods of the agents; often for lack of the Pod Security label.";
    NoMatchingNode Warning ["CachePool" NodesReady "False", "CachePool" Ready "False"]
        "No node matches spec.nodes.selector. It goes on once one does.";
    TooFewNodes Warning ["CachePool" NodesReady "False"]
        "Fewer nodes match spec.nodes.selector than spec.nodes.count asks for.";
    NodeTooSmall Warning ["CachePool" NodesReady "False", "CachePool" Ready "False"]
        "Matching nodes have less allocatable memory than the tiers need. Lower tiers.size.";
    NothingToRemove Normal ["CachePool" ScaleInBlocked "False"]
        "No node has to leave the pool.";
    NodesDraining Normal ["CachePool" ScaleInBlocked "False"]
        "Nodes that leave move their objects to others first. How far each is stands in the \
         status.drain of its CacheNode.";
    DrainStalled Warning ["CachePool" ScaleInBlocked "True"]
        "A node that leaves cannot move its objects; the message says what is in the way. At the \
         deadline of spec.nodes.drain it leaves without them. Add nodes, remove objects, or raise \
         spec.nodes.count again, and it stays.";
    DrainRefused Warning ["CachePool" ScaleInBlocked "True"]
        "The master does not take the order to move a node's objects; the message says what it \
         said. It is asked again until the deadline of spec.nodes.drain.";
    ObjectsLost Warning ["CachePool" ScaleInBlocked "False"]
        "Nodes left with objects that were not moved before the deadline of spec.nodes.drain; the \
         message says how many bytes. It stands until the next change of the spec.";
    Serving Normal ["CachePool" Ready "True", "CacheTenant" Ready "True",
        "CacheQuota" Ready "True", "CacheNode" Ready "True"]
        "It serves.";
    NotMounted Normal ["CacheNode" Ready "False"]
        "No master has taken the agent's segments in. It goes on trying; its log says why.";
    Stopped Normal ["CacheNode" Ready "False"]
        "The agent was told to stop.";
    AgentSilent Normal ["CacheNode" Ready "Unknown"]
        "The master does not hear the agent. Check its pod and its node.";
    NoNodes Normal ["CachePool" Ready "False", "CachePool" NodesReady "True"]
        "spec.nodes.count is 0.";
    PoolDeleting Normal ["CacheTenant" Ready "False", "CacheQuota" Ready "False"]
        "The pool is being deleted.";
    MasterRefused Warning ["CacheTenant" Ready "False", "CacheQuota" Ready "False"]
        "The master answered, but refused the tenant or quota; the message says why.";
    GuaranteeHeld Normal ["CacheTenant" Guaranteed "True", "CacheQuota" Guaranteed "True"]
        "What the spec guarantees is kept for it.";
    NoGuarantee Normal ["CacheTenant" Guaranteed "False", "CacheQuota" Guaranteed "False"]
        "The spec guarantees nothing of its own.";
    GuaranteeScaled Warning ["CacheTenant" Guaranteed "False", "CacheQuota" Guaranteed "False"]
        "All guarantees are more than the pool has, so each shrinks in proportion. Add nodes, or \
         lower guarantees.";
    GuaranteeRefused Warning ["CacheTenant" Guaranteed "False", "CacheQuota" Guaranteed "False"]
        "spec.quotas.overcommit of the pool is Refuse, and the guarantees of older tenants and \
         quotas leave too little. Add nodes, or lower guarantees.";
    QuotaShared Normal ["CacheTenant" QuotaBound "True"]
        "The tenant shares the CacheQuota that the message names.";
    NoQuota Normal ["CacheTenant" QuotaBound "False"]
        "No CacheQuota of the pool names the tenant.";
    QuotaNotFound Warning ["CacheTenant" QuotaBound "False"]
        "There is no CacheQuota of the name in spec.quotaRef, or it does not name this tenant. \
         Until there is, no limit of that quota bounds the tenant.";
    AllBound Normal ["CacheQuota" TenantsBound "True"]
        "Every tenant that the quota names shares it.";
    TenantsMissing Warning ["CacheQuota" TenantsBound "False"]
        "The quota names tenants that are not accepted in the pool, or share another quota.";
    GuaranteesFit Normal ["CachePool" QuotaOvercommitted "False"]
        "The pool has what is guaranteed.";
    GuaranteesExceedCapacity Warning ["CachePool" QuotaOvercommitted "True"]
        "More is guaranteed than all mounted nodes have, so all guarantees shrink in proportion. \
         Add nodes, or lower guarantees.";
    SnapshotKept Normal ["CacheSnapshot" Ready "True"]
        "The snapshot is there, whole, and a pool can begin from it.";
    SnapshotUnderWay Normal ["CacheSnapshot" Ready "False"]
        "A master takes the snapshot, or sends it to where it is kept.";
    SnapshotWaits Warning ["CacheSnapshot" Ready "False"]
        "The masters take one snapshot at a time and keep sixteen; the message says which is in \
         the way. It is tried again by itself: delete a CacheSnapshot where there are too many.";
    SnapshotFailed Warning ["CacheSnapshot" Ready "False"]
        "The snapshot was not taken, or what has its name is none; the message says why. Make \
         another CacheSnapshot: this one is not tried again.";
    SnapshotLost Warning ["CacheSnapshot" Ready "False"]
        "The snapshot was there and is not any more: without spec.snapshots.objectStore it goes \
         with the volume of its master. Delete the CacheSnapshot and make another one.";
    EventTenantsKnown Normal ["CachePool" EventsPublished "True"]
        "Every tenant that spec.events.zmq names exists.";
    EventTenantUnknown Warning ["CachePool" EventsPublished "False"]
        "spec.events.zmq names ids that no accepted CacheTenant has. Their endpoints are open and \
         silent until there is one; correct the id, or make the CacheTenant.";
    InventoryTaken Warning ["CachePool" RecoveredFromInventory "True"]
        "The masters had lost their log, or its end, and made the pool again from what its agents \
         held; the message says which generation of the pool that was. Every complete object of an \
         agent that lived was found again. What no agent knows is gone: pins that were set after \
         the put, and tasks; and removals of the last moments may have been undone. It stands for \
         as long as that generation does. Give masters volumes (spec.masters.storage) if they have \
         none; with several masters or oplog.sync Always a loss of power takes less.";
    Rebuilding Warning ["CachePool" RecoveredFromInventory "False", "CachePool" Ready "False"]
        "The masters lost their log, or its end, and make the pool again from what its agents \
         hold. Calls hear Starting and wait until then, about ten seconds. It goes on by itself.";
}

/// The table as the page `docs/conditions.md`.
#[must_use]
pub fn page() -> String {
    let mut page = String::from(
        "# Conditions, reasons and events\n\n\
         Generated from `operator/src/reasons.rs` by `larder-operator --print-reasons`.\n\n\
         Each change of a condition of a pool, tenant or quota is also an event of that reason on \
         the object.\n`Warning` is the type of that event. `lastTransitionTime` moves only when \
         the status changes.\n\n\
         | kind | condition | status | reason | event | meaning |\n\
         |---|---|---|---|---|---|\n",
    );
    let mut rows: Vec<_> = Reason::ALL
        .iter()
        .flat_map(|reason| reason.uses().iter().map(move |row| (*row, *reason)))
        .collect();
    // True first: what a healthy object shows.
    rows.sort_by_key(|((kind, condition, status), _)| (*kind, *condition, *status != "True"));
    for ((kind, condition, status), reason) in rows {
        let (condition, text) = (condition.text(), reason.text());
        let (severity, help) = (reason.severity(), reason.help());
        // Writing to a String cannot fail.
        let _ = writeln!(
            page,
            "| {kind} | `{condition}` | {status} | `{text}` | {severity:?} | {help} |"
        );
    }
    page
}
