//! The signals for autoscaling on the page: what a leader counts of hits, evictions and pressure.

use std::collections::BTreeMap;

use larder_store::evict::{EvictionCause, PoolSignals, Signals, WINDOWS_MINUTES};
use larder_telemetry::{Metric, Registry};
use larder_types::TenantId;

/// What the page says of each tenant. A leader counts from its beginning and the page from that of
/// the process, so what is added is the difference.
#[derive(Debug, Default)]
pub(super) struct Shown(BTreeMap<TenantId, Signals>);

impl Shown {
    pub(super) fn refresh(&mut self, registry: &Registry, now: &PoolSignals) {
        registry.set(Metric::MasterPressure, &[], now.pressure_per_mille);
        for (id, signals) in &now.tenants {
            // A tenant that went and came back begins anew.
            let before = self.0.remove(id).filter(|before| is_later(signals, before));
            refresh_tenant(registry, id.as_str(), signals, &before.unwrap_or_default());
            self.0.insert(id.clone(), signals.clone());
        }
    }

    pub(super) fn forget(&mut self, tenant: &TenantId) {
        self.0.remove(tenant);
    }
}

fn is_later(now: &Signals, before: &Signals) -> bool {
    let evicted = now.evicted.iter().zip(&before.evicted);
    now.hits >= before.hits
        && now.misses >= before.misses
        && now.refused_puts >= before.refused_puts
        && evicted
            .into_iter()
            .all(|(now, before)| now.bytes >= before.bytes)
}

fn refresh_tenant(registry: &Registry, tenant: &str, now: &Signals, before: &Signals) {
    let add = |metric, labels: &[&str], now: u64, before: u64| {
        registry.inc(metric, labels, now.saturating_sub(before));
    };
    let label = [tenant];
    add(Metric::MasterHitsTotal, &label, now.hits, before.hits);
    add(Metric::MasterMissesTotal, &label, now.misses, before.misses);
    add(
        Metric::MasterGhostHitsTotal,
        &label,
        now.ghost_hits,
        before.ghost_hits,
    );
    add(
        Metric::MasterRefusedPutsTotal,
        &label,
        now.refused_puts,
        before.refused_puts,
    );
    for (cause, (now, before)) in EvictionCause::ALL
        .into_iter()
        .zip(now.evicted.iter().zip(&before.evicted))
    {
        // A page of many tenants that evict nothing stays short.
        if now.bytes == 0 {
            continue;
        }
        let labels = [tenant, cause.name()];
        add(
            Metric::MasterEvictedTotal,
            &labels,
            now.objects,
            before.objects,
        );
        add(
            Metric::MasterEvictedReplicasTotal,
            &labels,
            now.replicas,
            before.replicas,
        );
        add(
            Metric::MasterEvictedBytesTotal,
            &labels,
            now.bytes,
            before.bytes,
        );
    }
    // A share of nothing is no number: its series goes until there is one.
    let show = |metric, labels: &[&str], value: Option<u64>| match value {
        Some(value) => registry.set(metric, labels, value),
        None => drop(registry.remove(metric, labels)),
    };
    let ratios = now.hit_ratios.into_iter().zip(now.ghost_ratios);
    for (minutes, (hits, ghosts)) in WINDOWS_MINUTES.into_iter().zip(ratios) {
        let minutes = minutes.to_string();
        let labels = [tenant, minutes.as_str()];
        show(Metric::MasterHitRatio, &labels, hits.map(per_mille));
        show(Metric::MasterGhostRatio, &labels, ghosts.map(per_mille));
    }
    let ages = [
        ("50", now.eviction_age_p50_ms),
        ("99", now.eviction_age_p99_ms),
    ];
    for (percentile, age_ms) in ages {
        let labels = [tenant, percentile];
        show(
            Metric::MasterEvictionAge,
            &labels,
            age_ms.map(|ms| ms / 1000),
        );
    }
}

/// A share of 0 to 1 in thousandths.
#[expect(clippy::cast_sign_loss, reason = "a share is not negative")]
pub(crate) fn per_mille(share: f64) -> u64 {
    (share * 1000.0).round() as u64
}

#[cfg(test)]
mod tests {
    use larder_store::evict::Evicted;
    use larder_telemetry::metrics::Component;

    use super::*;

    fn page(registry: &Registry) -> String {
        let page = registry.render();
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        lines
            .filter(|line| line.contains("red"))
            .map(|line| format!("{line}\n"))
            .collect()
    }

    #[test]
    fn the_page_counts_on_over_leaders_and_forgets_tenants() {
        let registry = Registry::new(Component::Master);
        let red = TenantId::new("red").expect("a name");
        let with = |hits, bytes| PoolSignals {
            tenants: vec![(
                red.clone(),
                Signals {
                    hits,
                    hit_ratios: [Some(0.25), None, None],
                    eviction_age_p50_ms: Some(90_000),
                    evicted: [Evicted {
                        objects: 1,
                        replicas: 0,
                        bytes,
                    }; 3],
                    ..Signals::default()
                },
            )],
            ..PoolSignals::default()
        };
        let mut shown = Shown::default();
        let before = page(&registry);
        shown.refresh(&registry, &with(5, 10));
        shown.refresh(&registry, &with(7, 10));
        let text = page(&registry);
        assert!(
            text.contains("larder_master_hits_total{tenant=\"red\"} 7"),
            "{text}"
        );
        assert!(
            text.contains("hit_ratio_per_mille{tenant=\"red\",minutes=\"1\"} 250"),
            "{text}"
        );
        assert!(
            text.contains("age_seconds{tenant=\"red\",percentile=\"50\"} 90"),
            "{text}"
        );
        // A new leader of the same process counts from nothing.
        shown.refresh(&registry, &with(2, 1));
        let text = page(&registry);
        assert!(
            text.contains("larder_master_hits_total{tenant=\"red\"} 9"),
            "{text}"
        );
        registry.forget("tenant", "red");
        shown.forget(&red);
        assert_eq!(
            page(&registry),
            before,
            "b59: series vanish with their tenant"
        );
    }
}
