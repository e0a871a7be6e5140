//! What the operator counts, and whether its loop still turns.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_telemetry::{Metric, Registry};
use tokio::time::Instant;

/// Without a reconcile for this long, though there are pools, the loop is stuck: every pool is
/// looked at each half minute.
const STUCK: Duration = Duration::from_secs(300);

/// The operator's metrics. Clones of the registry count into the same series.
#[derive(Debug)]
pub struct OperatorMetrics {
    registry: Registry,
    start: Instant,
    /// Milliseconds after `start` at which a reconcile last ended, and at which leading began.
    last_reconcile_ms: AtomicU64,
    pools: AtomicU64,
}

impl OperatorMetrics {
    /// Metrics that go into `registry`.
    #[must_use]
    pub fn new(registry: Registry) -> Self {
        let (last_reconcile_ms, pools) = (AtomicU64::new(0), AtomicU64::new(0));
        Self {
            registry,
            start: Instant::now(),
            last_reconcile_ms,
            pools,
        }
    }

    /// A reconcile of a kind ended.
    pub fn reconciled(&self, kind: &'static str, result: &'static str, took: Duration) {
        self.registry
            .inc(Metric::OperatorReconcilesTotal, &[kind, result], 1);
        self.registry.observe(
            Metric::OperatorReconcileSeconds,
            &[kind],
            took.as_secs_f64(),
        );
        self.turned();
    }

    /// The loop turned, or began to.
    pub fn turned(&self) {
        self.last_reconcile_ms
            .store(self.elapsed_ms(), Ordering::Relaxed);
    }

    /// A child was written or removed.
    pub fn wrote(&self, kind: &str, verb: &'static str) {
        self.registry
            .inc(Metric::OperatorWritesTotal, &[kind, verb], 1);
    }

    /// A watch broke and starts anew.
    pub fn watch_failed(&self, kind: &'static str) {
        self.registry
            .inc(Metric::OperatorWatchErrorsTotal, &[kind], 1);
    }

    /// How many pools there are.
    pub fn pools(&self, count: usize) {
        self.pools.store(count as u64, Ordering::Relaxed);
    }

    /// Milliseconds since a reconcile last ended.
    #[must_use]
    pub fn idle_ms(&self) -> u64 {
        self.elapsed_ms()
            .saturating_sub(self.last_reconcile_ms.load(Ordering::Relaxed))
    }

    /// Whether the loop stopped turning although there is work.
    #[must_use]
    pub fn is_stuck(&self, leads: bool) -> bool {
        let has_work = self.pools.load(Ordering::Relaxed) > 0;
        leads && has_work && u128::from(self.idle_ms()) > STUCK.as_millis()
    }

    /// The page.
    #[must_use]
    pub fn page(&self, leads: bool) -> String {
        self.registry
            .set(Metric::OperatorLeads, &[], u64::from(leads));
        self.registry
            .set(Metric::OperatorReconcileAgeMs, &[], self.idle_ms());
        self.registry.render()
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use larder_telemetry::Component;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_stands_still_is_told() {
        let metrics = OperatorMetrics::new(Registry::new(Component::Operator));
        tokio::time::advance(Duration::from_secs(301)).await;
        assert!(!metrics.is_stuck(true), "no pools, no work");
        metrics.pools(1);
        assert!(metrics.is_stuck(true));
        assert!(!metrics.is_stuck(false), "a standby waits");
        assert!(
            metrics
                .page(true)
                .contains("larder_operator_reconcile_age_ms 301000")
        );
        metrics.reconciled("CachePool", "ok", Duration::from_millis(3));
        assert!(!metrics.is_stuck(true));
    }
}
