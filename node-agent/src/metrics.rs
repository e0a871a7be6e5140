//! What the agent counts: from its listeners, from the control side, and from its inventory.

use std::collections::BTreeSet;

use larder_telemetry::metrics::{CounterHandle, GaugeHandle};
use larder_telemetry::{Metric, Registry};
use larder_transfer::serve::ServeMetrics;
use larder_transfer::{LocalMs, Segments};
use larder_types::TenantId;
use larder_wire::Kind;
use larder_wire::data::DataReason;

use crate::inventory::Inventory;
use crate::step::{Note, Status};

/// Counts what the data listeners do. Counters that move with every call are looked up once.
#[derive(Debug)]
pub(crate) struct ServeCounters {
    registry: Registry,
    /// In the order of [`MOVING`].
    moving: [(CounterHandle, CounterHandle); 4],
    connections: [(&'static str, GaugeHandle); 2],
}

/// Calls that move payload: metric of the bytes, and transport.
const MOVING: [(Kind, Metric, &str); 4] = [
    (Kind::Write, Metric::AgentWrittenBytesTotal, "tcp"),
    (Kind::Read, Metric::AgentReadBytesTotal, "tcp"),
    (Kind::Pull, Metric::AgentWrittenBytesTotal, "shm"),
    (Kind::OpenView, Metric::AgentReadBytesTotal, "shm"),
];

/// Ends of a connection that are nobody's fault.
const QUIET_ENDS: [&str; 2] = ["closed", "stopping"];

impl ServeCounters {
    pub(crate) fn new(registry: &Registry) -> Self {
        let moving = MOVING.map(|(kind, metric, transport)| {
            let requests = registry.counter(Metric::AgentRequestsTotal, &[kind.name(), "ok"]);
            (requests, registry.counter(metric, &[transport]))
        });
        let connections = ["tcp", "unix"].map(|listener| {
            (
                listener,
                registry.gauge(Metric::WireConnections, &[listener]),
            )
        });
        Self {
            registry: registry.clone(),
            moving,
            connections,
        }
    }

    fn connections(&self, listener: &str) -> Option<&GaugeHandle> {
        self.connections
            .iter()
            .find(|(name, _)| *name == listener)
            .map(|(_, gauge)| gauge)
    }
}

impl ServeMetrics for ServeCounters {
    fn connected(&self, listener: &'static str) {
        if let Some(gauge) = self.connections(listener) {
            gauge.raise(1);
        }
    }

    fn ended(&self, listener: &'static str) {
        if let Some(gauge) = self.connections(listener) {
            gauge.lower(1);
        }
    }

    fn hello_failed(&self, listener: &'static str, reason: &'static str) {
        self.registry
            .inc(Metric::WireRefusedTotal, &[listener, reason], 1);
    }

    fn closed(&self, listener: &'static str, reason: &'static str) {
        if !QUIET_ENDS.contains(&reason) {
            self.registry
                .inc(Metric::WireRefusedTotal, &[listener, reason], 1);
        }
    }

    fn refused(&self, kind: Kind, reason: DataReason) {
        self.registry
            .inc(Metric::AgentRefusedTotal, &[reason.label()], 1);
        self.registry.inc(
            Metric::AgentRequestsTotal,
            &[kind.name(), reason.label()],
            1,
        );
    }

    fn moved(&self, kind: Kind, bytes: u64) {
        let at = MOVING.iter().position(|(moving, ..)| *moving == kind);
        if let Some((requests, moved)) = at.and_then(|at| self.moving.get(at)) {
            requests.inc(1);
            moved.inc(bytes);
        }
    }
}

/// Counts something that the control side noted.
pub(crate) fn count_note(registry: &Registry, note: &Note) {
    let beat = |result| registry.inc(Metric::AgentHeartbeatsTotal, &[result], 1);
    match note {
        Note::BeatSent => beat("sent"),
        Note::BeatAnswered => beat("answered"),
        Note::LowerEpoch { .. } => {
            registry.inc(Metric::AgentRefusedTotal, &["lower_epoch"], 1);
        }
        Note::SlabRefused(..) => {
            registry.inc(Metric::AgentRequestsTotal, &["SlabGive", "failed"], 1);
        }
        Note::Mounted { .. }
        | Note::Emptied(_)
        | Note::Kept
        | Note::InventoryTold { .. }
        | Note::LinkDropped(_)
        | Note::Refused(_) => {}
    }
}

/// Shows what the node has. Once, at the start.
pub(crate) fn show_inventory(registry: &Registry, inventory: &Inventory, capacity_bytes: u64) {
    registry.set(Metric::AgentCapacityBytes, &[], capacity_bytes);
    for one in &inventory.capabilities {
        let labels = [one.name, one.label];
        registry.set(
            Metric::AgentCapabilityAvailable,
            &labels,
            u64::from(one.available),
        );
    }
}

/// Brings the gauges up to date for a page.
pub(crate) fn show_status(registry: &Registry, status: &Status, now: LocalMs) {
    let age_ms = status
        .answered
        .map_or(0, |answered| now.0.saturating_sub(answered.0));
    registry.set(Metric::AgentHeartbeatAgeMs, &[], age_ms);
    registry.set(Metric::AgentEpochTerm, &[], status.epoch.term);
    let slabs = &status.slabs;
    for (state, count) in [
        ("making", slabs.making),
        ("held", slabs.held),
        ("taking", slabs.taking),
    ] {
        registry.set(Metric::AgentSlabs, &[state], count);
    }
}

/// The gauges of the segments; owned by the thread that owns those.
#[derive(Debug)]
pub(crate) struct SegmentGauges {
    registry: Registry,
    /// Tenants that are shown.
    tenants: BTreeSet<TenantId>,
}

impl SegmentGauges {
    pub(crate) const fn new(registry: Registry) -> Self {
        Self {
            registry,
            tenants: BTreeSet::new(),
        }
    }

    /// Brings them up to date. Walks slabs and holds: for a page, not for every call.
    pub(crate) fn show(&mut self, segments: &Segments) {
        let stats = segments.stats();
        self.registry
            .set(Metric::AgentRecords, &[], stats.records as u64);
        self.registry
            .set(Metric::AgentErasingBytes, &[], stats.waiting_bytes);
        let mut present = BTreeSet::new();
        for (tenant, bytes) in segments.views_by_tenant() {
            self.registry
                .set(Metric::AgentViewsBytes, &[tenant.as_str()], bytes);
            present.insert(tenant.clone());
        }
        for gone in self.tenants.difference(&present) {
            self.registry
                .remove(Metric::AgentViewsBytes, &[gone.as_str()]);
        }
        self.tenants = present;
    }
}
