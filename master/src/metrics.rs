//! What a master counts: handles found once, series of tenants that go with them.

mod signals;

use std::collections::{BTreeSet, HashMap};

use larder_store::{Discard, Health, Leader, SlabPhase, State, Why};
use larder_telemetry::metrics::{CounterHandle, HistogramHandle};
use larder_telemetry::{Metric, Registry};
use larder_types::{Reason, TenantId};
use larder_wire::{CallError, Kind};
use tokio::time::Instant;

use crate::calls::ItemResult;
pub(crate) use signals::per_mille;

/// The listener of clients and agents, as it stands in labels.
pub(crate) const LISTENER: &str = "client";
/// The code of an item that went well.
const OK: &str = "OK";

/// The counters of the leader and its gauges.
#[derive(Debug)]
pub(crate) struct MasterMetrics {
    registry: Registry,
    /// By kind and name of the code: at most 40 kinds of 26 codes.
    answered: HashMap<(Kind, &'static str), CounterHandle>,
    seconds: HashMap<Kind, HistogramHandle>,
    /// Tenants with series on the page.
    shown: BTreeSet<TenantId>,
    signals: signals::Shown,
}

impl MasterMetrics {
    pub(crate) fn new(registry: Registry) -> Self {
        Self {
            registry,
            answered: HashMap::new(),
            seconds: HashMap::new(),
            shown: BTreeSet::new(),
            signals: signals::Shown::default(),
        }
    }

    /// A call was answered with these outcomes.
    pub(crate) fn answered(&mut self, kind: Kind, results: &[ItemResult], started: Instant) {
        let mut done = 0;
        for result in results {
            match result {
                Ok(_) => done += 1,
                Err(error) => self.refused(kind, error),
            }
        }
        self.answered_in(kind, done, started);
    }

    /// A probe of so many keys was answered.
    pub(crate) fn answered_probe(&mut self, keys: usize, started: Instant) {
        self.answered_in(Kind::Exists, keys as u64, started);
    }

    fn answered_in(&mut self, kind: Kind, done: u64, started: Instant) {
        if done > 0 {
            self.counter(kind, OK).inc(done);
        }
        let registry = &self.registry;
        self.seconds
            .entry(kind)
            .or_insert_with(|| registry.histogram(Metric::MasterRequestSeconds, &[kind.name()]))
            .observe(started.elapsed().as_secs_f64());
    }

    /// A call was answered that may have waited on purpose: its time says nothing.
    pub(crate) fn answered_one(&mut self, kind: Kind) {
        self.counter(kind, OK).inc(1);
    }

    /// A whole call was refused.
    pub(crate) fn refused_call(&mut self, kind: Kind, error: &CallError) {
        self.refused(kind, error);
    }

    fn refused(&mut self, kind: Kind, error: &CallError) {
        self.counter(kind, error.code().name()).inc(1);
        self.registry
            .inc(Metric::MasterRefusedTotal, &[error.reason.label()], 1);
    }

    /// A put was refused by the quota of its tenant.
    pub(crate) fn quota_refused(&mut self, tenant: &TenantId, reason: Reason) {
        self.registry.inc(
            Metric::TenantRefusalsTotal,
            &[tenant.as_str(), reason.label()],
            1,
        );
        // So that the series goes with the tenant, even if no page was asked in between.
        if !self.shown.contains(tenant) {
            self.shown.insert(tenant.clone());
        }
    }

    fn counter(&mut self, kind: Kind, code: &'static str) -> &CounterHandle {
        let registry = &self.registry;
        self.answered
            .entry((kind, code))
            .or_insert_with(|| registry.counter(Metric::MasterRequestsTotal, &[kind.name(), code]))
    }

    /// Puts were given up for this cause.
    pub(crate) fn discarded(&self, cause: Discard, count: u64) {
        self.registry
            .inc(Metric::MasterDiscardedPutsTotal, &[cause.label()], count);
    }

    /// What the last check of the state found.
    pub(crate) fn found(&self, findings: usize) {
        self.registry
            .set(Metric::MasterFindings, &[], findings as u64);
    }

    /// Brings the gauges up to date. Asked when a page is, not at every change.
    pub(crate) fn refresh(&mut self, state: &State, leader: &mut Leader, clients: usize) {
        let set = |metric, labels: &[&str], value| self.registry.set(metric, labels, value);
        let effective = leader.effective(state).clone();
        set(
            Metric::MasterGuaranteedBytes,
            &[],
            effective.requested_bytes,
        );
        for (id, tenant) in state.tenants() {
            let label = [id.as_str()];
            set(Metric::MasterObjects, &label, tenant.objects().len() as u64);
            set(Metric::MasterBytes, &label, tenant.used_bytes());
            set(Metric::MasterPinnedBytes, &label, tenant.pinned_bytes());
            match tenant.policy().limit_bytes {
                Some(limit) => set(Metric::MasterLimitBytes, &label, limit),
                None => drop(self.registry.remove(Metric::MasterLimitBytes, &label)),
            }
            let guaranteed = effective.tenants.get(id).map_or(0, |s| s.guaranteed_bytes);
            let charged = tenant.used_bytes().saturating_add(leader.reserved_of(id).0);
            let borrowed = charged.saturating_sub(guaranteed);
            set(
                Metric::TenantRequestedBytes,
                &label,
                tenant.policy().guaranteed_bytes,
            );
            set(Metric::TenantEffectiveBytes, &label, guaranteed);
            set(Metric::TenantBorrowedBytes, &label, borrowed);
        }
        let present: BTreeSet<TenantId> = state.tenants().map(|(id, _)| id.clone()).collect();
        self.signals.refresh(&self.registry, &leader.signals(state));
        for gone in self.shown.difference(&present) {
            self.registry.forget("tenant", gone.as_str());
            self.signals.forget(gone);
        }
        self.shown = present;
        let set = |metric, labels: &[&str], value| self.registry.set(metric, labels, value);
        set(Metric::MasterPendingPuts, &[], leader.pending_puts() as u64);
        set(Metric::MasterPendingBytes, &[], leader.reserved_bytes());
        set(
            Metric::MasterDiscardedPuts,
            &[],
            leader.discarded_puts() as u64,
        );
        set(Metric::MasterDiscardedBytes, &[], leader.discarded_bytes());
        let releasing = state
            .releasing_bytes()
            .saturating_add(leader.discarded_bytes());
        set(Metric::MasterReleasingBytes, &[], releasing);
        set(Metric::MasterCapacityBytes, &[], state.capacity_bytes());
        self.refresh_moves(state, leader);
        set(Metric::MasterSessions, &[], clients as u64);
        set(Metric::MasterGeneration, &[], leader.epoch().generation);
        set(Metric::MasterTerm, &[], leader.epoch().term);
        for (name, slabs) in slab_counts(state) {
            set(Metric::MasterSlabs, &[name], slabs);
        }
        for health in [Health::Alive, Health::Suspect, Health::Lost] {
            let agents = state
                .agents()
                .filter(|(id, _)| leader.health(*id) == health)
                .count();
            set(Metric::MasterAgents, &[health_name(health)], agents as u64);
        }
    }

    fn refresh_moves(&self, state: &State, leader: &Leader) {
        let set = |metric, labels: &[&str], value| self.registry.set(metric, labels, value);
        set(Metric::MasterCopies, &[], leader.copies() as u64);
        set(Metric::MasterQueuedMoves, &[], leader.queued_moves() as u64);
        set(
            Metric::MasterMissingReplicas,
            &[],
            leader.missing_replicas(),
        );
        set(Metric::MasterOpenTasks, &[], state.open_tasks() as u64);
        let draining = state.agents().filter(|(_, agent)| agent.is_draining());
        set(Metric::MasterDrainingAgents, &[], draining.count() as u64);
        for why in Why::ALL {
            let counts = leader.move_counts(why);
            set(Metric::MasterMoves, &[why.label(), "done"], counts.done);
            set(Metric::MasterMoves, &[why.label(), "failed"], counts.failed);
            set(Metric::MasterMovedBytes, &[why.label()], counts.done_bytes);
        }
    }

    /// A tenant is gone, and its series with it.
    pub(crate) fn forget_tenant(&mut self, tenant: &TenantId) {
        self.registry.forget("tenant", tenant.as_str());
        self.signals.forget(tenant);
        self.shown.remove(tenant);
    }

    /// This leader ends: nothing of its state stays on the page.
    pub(crate) fn forget_all(&mut self) {
        for tenant in std::mem::take(&mut self.shown) {
            self.registry.forget("tenant", tenant.as_str());
        }
        self.signals = signals::Shown::default();
    }
}

/// How many slabs stand where, by the name of the state.
fn slab_counts(state: &State) -> [(&'static str, u64); 4] {
    let (mut free, mut giving, mut ready, mut taking) = (0, 0, 0, 0);
    for segment in state.segments() {
        free += segment.free_slabs() as u64;
        for slab in segment.slabs().values() {
            match slab.phase() {
                SlabPhase::Giving => giving += 1,
                SlabPhase::Ready => ready += 1,
                SlabPhase::Taking => taking += 1,
            }
        }
    }
    [
        ("free", free),
        ("giving", giving),
        ("ready", ready),
        ("taking", taking),
    ]
}

/// The health of an agent as it stands in labels and documents.
pub(crate) const fn health_name(health: Health) -> &'static str {
    match health {
        Health::Alive => "alive",
        Health::Suspect => "suspect",
        Health::Lost => "lost",
    }
}
