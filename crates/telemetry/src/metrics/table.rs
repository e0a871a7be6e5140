//! Every metric there is. One row: variant, component, kind, unit, name, labels, help.

use super::{Component, Kind, MetricSpec, Unit};

/// Upper bounds in seconds for the time of one request at the master: from a look-up in memory to
/// a request that waited for a whole turn of others.
const REQUEST_SECONDS: Kind = Kind::Histogram(&[
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025,
    0.1, 1.0,
]);

/// Upper bounds in seconds for one reconcile: from nothing to do to an API server that is slow.
const RECONCILE_SECONDS: Kind = Kind::Histogram(&[0.001, 0.005, 0.025, 0.1, 0.5, 2.0, 10.0, 60.0]);

macro_rules! metrics {
    ($(
        $variant:ident $component:ident $kind:expr, $unit:ident,
            $name:literal [$($label:literal),*] $help:literal;
    )*) => {
        /// The name of a metric in code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Metric {
            $(#[doc = $help] $variant,)*
        }

        /// Every metric, in the order in which a page shows them.
        pub const METRICS: &[MetricSpec] = &[
            $(MetricSpec {
                name: $name,
                kind: $kind,
                unit: Unit::$unit,
                labels: &[$($label),*],
                help: $help,
                component: Component::$component,
            },)*
        ];

        impl Metric {
            /// Every metric, in the order of [`METRICS`].
            pub const ALL: &[Metric] = &[$(Metric::$variant,)*];
        }
    };
}

impl Metric {
    /// Its row in the table.
    #[must_use]
    pub const fn spec(self) -> &'static MetricSpec {
        &METRICS[self as usize]
    }
}

metrics! {
    BuildInfo All Kind::Gauge, Info,
        "larder_build_info" ["version"]
        "Always 1; the version of the running program stands in the label.";

    // The master.
    MasterRequestsTotal Master Kind::Counter, Count,
        "larder_master_requests_total" ["kind", "code"]
        "Items of requests answered, by kind of request and code of the answer; a batch counts \
         once for each of its items.";
    MasterRequestSeconds Master REQUEST_SECONDS, Seconds,
        "larder_master_request_seconds" ["kind"]
        "Time from a decoded request to its answer, by kind of request; a batch counts once, \
         however many items it has.";
    MasterRefusedTotal Master Kind::Counter, Count,
        "larder_master_refused_total" ["reason"]
        "Requests refused by a rule of the pool, by reason.";
    MasterLogSyncsTotal Master Kind::Counter, Count,
        "larder_master_log_syncs_total" []
        "Syncs of this master's log; one makes all entries durable that came before it.";
    MasterTokenReviewsTotal Master Kind::Counter, Count,
        "larder_master_token_reviews_total" ["result"]
        "ServiceAccount tokens that the API server was asked about: proven, denied, or \
         unavailable when it gave no answer.";
    MasterTokenCacheHitsTotal Master Kind::Counter, Count,
        "larder_master_token_cache_hits_total" []
        "Tokens that were known from an earlier review.";
    MasterSubjectsFailuresTotal Master Kind::Counter, Count,
        "larder_master_subjects_failures_total" []
        "Changed files of subjects that could not be used; the subjects before them stay.";
    MasterObjects Master Kind::Gauge, Count,
        "larder_master_objects" ["tenant"]
        "Objects that a tenant has stored.";
    MasterBytes Master Kind::Gauge, Bytes,
        "larder_master_bytes" ["tenant"]
        "Bytes charged to a tenant: aligned extents, and at least 16 KiB for each.";
    MasterLimitBytes Master Kind::Gauge, Bytes,
        "larder_master_limit_bytes" ["tenant"]
        "The most bytes that a tenant may be charged.";
    MasterHitsTotal Master Kind::Counter, Count,
        "larder_master_hits_total" ["tenant"]
        "Gets that found an object.";
    MasterMissesTotal Master Kind::Counter, Count,
        "larder_master_misses_total" ["tenant"]
        "Gets and probes that found none.";
    MasterGhostHitsTotal Master Kind::Counter, Count,
        "larder_master_ghost_hits_total" ["tenant"]
        "Misses of keys that were evicted not long ago: a larger pool would have hit.";
    MasterHitRatio Master Kind::Gauge, Count,
        "larder_master_hit_ratio_per_mille" ["tenant", "minutes"]
        "Hits of a thousand lookups over about so many minutes.";
    MasterGhostRatio Master Kind::Gauge, Count,
        "larder_master_ghost_ratio_per_mille" ["tenant", "minutes"]
        "Ghost hits of a thousand misses over about so many minutes.";
    MasterEvictionAge Master Kind::Gauge, Seconds,
        "larder_master_eviction_age_seconds" ["tenant", "percentile"]
        "For how long what was evicted in about the last hour had not been used.";
    MasterEvictedTotal Master Kind::Counter, Count,
        "larder_master_evicted_total" ["tenant", "cause"]
        "Objects evicted, by cause.";
    MasterEvictedReplicasTotal Master Kind::Counter, Count,
        "larder_master_evicted_replicas_total" ["tenant", "cause"]
        "Replicas evicted of objects that kept another one, by cause.";
    MasterEvictedBytesTotal Master Kind::Counter, Bytes,
        "larder_master_evicted_bytes_total" ["tenant", "cause"]
        "Aligned bytes of evicted objects and replicas, by cause.";
    MasterRefusedPutsTotal Master Kind::Counter, Count,
        "larder_master_refused_puts_total" ["tenant"]
        "Times that a put was refused for want of space or quota.";
    MasterPressure Master Kind::Gauge, Count,
        "larder_master_pressure_per_mille" []
        "What the fullest segment holds and has reserved, of a thousand parts of its size.";
    TenantRequestedBytes Master Kind::Gauge, Bytes,
        "larder_tenant_requested_bytes" ["tenant"]
        "What a tenant's spec asks to be guaranteed, in bytes.";
    TenantEffectiveBytes Master Kind::Gauge, Bytes,
        "larder_tenant_effective_bytes" ["tenant"]
        "What a tenant is guaranteed, in whole slabs, and less while all guarantees are more than \
         the pool.";
    TenantBorrowedBytes Master Kind::Gauge, Bytes,
        "larder_tenant_borrowed_bytes" ["tenant"]
        "Bytes that a tenant is charged beyond what it is guaranteed.";
    TenantRefusalsTotal Master Kind::Counter, Count,
        "larder_tenant_refusals_total" ["tenant", "reason"]
        "Puts of a tenant that its quota refused, by reason.";
    MasterGuaranteedBytes Master Kind::Gauge, Bytes,
        "larder_master_guaranteed_bytes" []
        "What all tenants and quotas ask to be guaranteed; more than the capacity is over-commit.";
    MasterPendingPuts Master Kind::Gauge, Count,
        "larder_master_pending_puts" []
        "Puts that have started and neither ended nor been revoked.";
    MasterPendingBytes Master Kind::Gauge, Bytes,
        "larder_master_pending_bytes" []
        "Bytes that pending puts are charged.";
    MasterDiscardedPutsTotal Master Kind::Counter, Count,
        "larder_master_discarded_puts_total" ["cause"]
        "Puts that were given up before their end, by cause.";
    MasterDiscardedPuts Master Kind::Gauge, Count,
        "larder_master_discarded_puts" []
        "Puts that were given up and are not yet erased by all of their agents.";
    MasterDiscardedBytes Master Kind::Gauge, Bytes,
        "larder_master_discarded_bytes" []
        "Bytes that such puts still hold; part of larder_master_releasing_bytes.";
    MasterPinnedBytes Master Kind::Gauge, Bytes,
        "larder_master_pinned_bytes" ["tenant"]
        "Bytes charged for objects of a tenant that are pinned hard.";
    MasterCopies Master Kind::Gauge, Count,
        "larder_master_copies" []
        "Copies between agents that are under way or being given up.";
    MasterQueuedMoves Master Kind::Gauge, Count,
        "larder_master_queued_moves" []
        "Objects that are known to wait for a copy.";
    MasterMissingReplicas Master Kind::Gauge, Count,
        "larder_master_missing_replicas" []
        "Replicas that were asked for and do not exist, as of the last look at all objects.";
    MasterMoves Master Kind::Gauge, Count,
        "larder_master_moves" ["reason", "result"]
        "Copies between agents that ended since this leader began, by reason.";
    MasterMovedBytes Master Kind::Gauge, Bytes,
        "larder_master_moved_bytes" ["reason"]
        "Payload of copies that became replicas since this leader began, by reason.";
    MasterOpenTasks Master Kind::Gauge, Count,
        "larder_master_open_tasks" []
        "Copies and moves that somebody asked for and that are not over.";
    MasterDrainingAgents Master Kind::Gauge, Count,
        "larder_master_draining_agents" []
        "Agents that are to be emptied.";
    MasterReleasingBytes Master Kind::Gauge, Bytes,
        "larder_master_releasing_bytes" []
        "Bytes that are free once the agents confirm that nobody reads them.";
    MasterCapacityBytes Master Kind::Gauge, Bytes,
        "larder_master_capacity_bytes" []
        "Bytes of all mounted segments.";
    MasterSlabs Master Kind::Gauge, Count,
        "larder_master_slabs" ["state"]
        "Slabs of all mounted segments, by state.";
    MasterAgents Master Kind::Gauge, Count,
        "larder_master_agents" ["state"]
        "Node agents that the master knows, by state.";
    MasterSessions Master Kind::Gauge, Count,
        "larder_master_sessions" []
        "Clients with a live session.";
    MasterGeneration Master Kind::Gauge, Count,
        "larder_master_generation" []
        "The generation of the pool; it rises when the pool starts empty.";
    MasterTerm Master Kind::Gauge, Count,
        "larder_master_term" []
        "The term in which this master last led.";
    MasterReady Master Kind::Gauge, Count,
        "larder_master_ready" []
        "1 while this master leads, or stands by for one that does; else 0.";
    MasterLeading Master Kind::Gauge, Count,
        "larder_master_leading" []
        "1 while this master leads, else 0.";
    MasterFindings Master Kind::Gauge, Count,
        "larder_master_findings" []
        "Contradictions that the last check of the state found; anything but 0 is a fault of ours.";

    MasterEventsTotal Master Kind::Counter, Count,
        "larder_master_events_total" ["tenant", "change"]
        "Cache events of a tenant, by what happened to the key.";
    MasterEventsHeld Master Kind::Gauge, Count,
        "larder_master_events_held" ["tenant"]
        "Cache events of a tenant that a subscriber can still ask for.";
    MasterEventsHeldBytes Master Kind::Gauge, Bytes,
        "larder_master_events_held_bytes" []
        "Memory of all cache events that are kept.";
    MasterEventsDroppedTotal Master Kind::Counter, Count,
        "larder_master_events_dropped_total" ["tenant"]
        "Cache events that were dropped to make room for newer ones.";
    MasterEventGapsTotal Master Kind::Counter, Count,
        "larder_master_event_gaps_total" ["tenant"]
        "Times that a subscriber asked for events that are no longer kept and has to list anew.";
    MasterEventSubscribers Master Kind::Gauge, Count,
        "larder_master_event_subscribers" ["tenant"]
        "Subscribers that wait for the next cache event of a tenant.";
    MasterZmqSubscribers Master Kind::Gauge, Count,
        "larder_master_zmq_subscribers" ["tenant"]
        "Connections to the ZMQ endpoint of a tenant.";
    MasterZmqBatchesTotal Master Kind::Counter, Count,
        "larder_master_zmq_batches_total" ["tenant"]
        "Batches of cache events that were published on ZMQ.";
    MasterZmqDroppedTotal Master Kind::Counter, Count,
        "larder_master_zmq_dropped_total" ["tenant", "reason"]
        "Cache events that are missing on ZMQ: no_hash because the key holds no block hash, and \
         batches: queue because publishing fell behind, peer because one subscriber did.";

    // Whoever listens on a socket.
    WireConnections All Kind::Gauge, Count,
        "larder_wire_connections" ["listener"]
        "Connections open now, by listener.";
    WireRefusedTotal All Kind::Counter, Count,
        "larder_wire_refused_total" ["listener", "reason"]
        "Connections closed for what the peer sent or failed to send, by listener and reason.";

    // The node agent.
    AgentCapacityBytes Agent Kind::Gauge, Bytes,
        "larder_agent_capacity_bytes" []
        "Bytes of the segments of this node.";
    AgentSlabs Agent Kind::Gauge, Count,
        "larder_agent_slabs" ["state"]
        "Slabs of this node, by state.";
    AgentRecords Agent Kind::Gauge, Count,
        "larder_agent_records" []
        "Records of objects in the segments of this node.";
    AgentErasingBytes Agent Kind::Gauge, Bytes,
        "larder_agent_erasing_bytes" []
        "Bytes that this node is erasing before they can be given again.";
    AgentWrittenBytesTotal Agent Kind::Counter, Bytes,
        "larder_agent_written_bytes_total" ["transport"]
        "Payload written into this node, by transport.";
    AgentReadBytesTotal Agent Kind::Counter, Bytes,
        "larder_agent_read_bytes_total" ["transport"]
        "Payload read from this node, by transport.";
    AgentCopiesTotal Agent Kind::Counter, Count,
        "larder_agent_copies_total" ["result"]
        "Copies of objects that the master ordered and this node made, or could not make.";
    AgentCopiedBytesTotal Agent Kind::Counter, Bytes,
        "larder_agent_copied_bytes_total" []
        "Payload of copies that this node made.";
    AgentCopies Agent Kind::Gauge, Count,
        "larder_agent_copies" []
        "Copies that are under way or wait on this node.";
    AgentRequestsTotal Agent Kind::Counter, Count,
        "larder_agent_requests_total" ["kind", "code"]
        "Requests answered, by kind of request and code of the answer.";
    AgentRefusedTotal Agent Kind::Counter, Count,
        "larder_agent_refused_total" ["reason"]
        "Reads and writes refused because their capability or bytes are not right, by reason.";
    AgentViewsBytes Agent Kind::Gauge, Bytes,
        "larder_agent_views_bytes" ["tenant"]
        "Bytes of slabs that clients of a tenant have mapped as read-only views.";
    AgentHeartbeatsTotal Agent Kind::Counter, Count,
        "larder_agent_heartbeats_total" ["result"]
        "Heartbeats sent to the master, by result.";
    AgentHeartbeatAgeMs Agent Kind::Gauge, Millis,
        "larder_agent_heartbeat_age_ms" []
        "Milliseconds since the master last answered a heartbeat.";
    AgentEpochTerm Agent Kind::Gauge, Count,
        "larder_agent_epoch_term" []
        "The term of the epoch that this agent has acknowledged.";
    AgentCapabilityAvailable Agent Kind::Gauge, Count,
        "larder_agent_capability_available" ["capability", "reason"]
        "1 if this node has a capability, 0 with the reason if not.";

    // The operator.
    OperatorLeads Operator Kind::Gauge, Count,
        "larder_operator_leads" []
        "1 while this operator holds the Lease and may write, else 0.";
    OperatorReconcilesTotal Operator Kind::Counter, Count,
        "larder_operator_reconciles_total" ["kind", "result"]
        "Reconciles that ended, by kind of object and result.";
    OperatorReconcileSeconds Operator RECONCILE_SECONDS, Seconds,
        "larder_operator_reconcile_seconds" ["kind"]
        "Time of one reconcile, by kind of object.";
    OperatorReconcileAgeMs Operator Kind::Gauge, Millis,
        "larder_operator_reconcile_age_ms" []
        "Milliseconds since a reconcile last ended; with pools it stays below a minute.";
    OperatorWritesTotal Operator Kind::Counter, Count,
        "larder_operator_writes_total" ["kind", "verb"]
        "Writes to the API server, by kind of object; 0 per hour while nothing changes.";
    OperatorRefusedWritesTotal Operator Kind::Counter, Count,
        "larder_operator_refused_writes_total" []
        "Writes that were not sent because this operator does not lead.";
    OperatorWatchErrorsTotal Operator Kind::Counter, Count,
        "larder_operator_watch_errors_total" ["kind"]
        "Watches that broke and began anew, by kind of object.";
}
