//! The table keeps its rules and pages stay readable whatever the labels hold.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::exposition::{Family, parse, value};

fn page(registry: &Registry) -> Vec<Family> {
    let text = registry.render();
    parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn series(registry: &Registry) -> usize {
    page(registry)
        .iter()
        .map(|family| family.samples.len())
        .sum()
}

#[test]
fn the_table_keeps_its_rules() {
    let mut names = BTreeSet::new();
    for (metric, spec) in Metric::ALL.iter().zip(METRICS) {
        let name = spec.name;
        assert_eq!(metric.spec(), spec, "{metric:?} and {name} are out of step");
        assert!(names.insert(name), "{name} twice");
        let component = match spec.component {
            // What masters tell of a tenant, other than of their own work.
            Component::Master if name.starts_with("larder_tenant_") => "larder_tenant_",
            Component::Master => "larder_master_",
            Component::Agent => "larder_agent_",
            Component::Client => "larder_client_",
            Component::Operator => "larder_operator_",
            Component::All => "larder_",
        };
        assert!(
            name.starts_with(component),
            "{name} does not start with {component}"
        );
        assert!(
            name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
            "{name}"
        );
        let stem = match spec.kind {
            Kind::Counter => name
                .strip_suffix("_total")
                .unwrap_or_else(|| panic!("{name}")),
            _ => name,
        };
        assert!(!stem.ends_with("_total"), "{name} is no counter");
        let units = [Unit::Bytes, Unit::Seconds, Unit::Millis, Unit::Info];
        let told = units.into_iter().find(|unit| stem.ends_with(unit.suffix()));
        assert_eq!(told.unwrap_or(Unit::Count), spec.unit, "the end of {name}");
        if let Kind::Histogram(bounds) = spec.kind {
            assert!(
                !bounds.is_empty() && bounds.is_sorted_by(|a, b| a < b),
                "{name}"
            );
            assert!(matches!(spec.unit, Unit::Seconds | Unit::Bytes), "{name}");
        }
        for label in spec.labels {
            assert!(
                label.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{name} {label}"
            );
            assert!(
                !["le", "quantile"].contains(label) && !label.starts_with("__"),
                "{name}"
            );
        }
        assert_eq!(
            spec.labels.iter().collect::<BTreeSet<_>>().len(),
            spec.labels.len(),
            "{name}"
        );
        assert!(
            spec.help.ends_with('.') && spec.help.len() > 10,
            "help of {name}"
        );
    }
    assert_eq!(Metric::ALL.len(), METRICS.len());
}

#[test]
fn every_metric_is_printed_once_with_one_help() {
    let registry = Registry::new(Component::All);
    for metric in Metric::ALL {
        let spec = metric.spec();
        // Two of each label: with labels, a family has several series under one HELP.
        for text in ["one", "two"] {
            let labels: Vec<&str> = spec.labels.iter().map(|_| text).collect();
            match spec.kind {
                Kind::Counter => registry.inc(*metric, &labels, 1),
                Kind::Gauge => registry.set(*metric, &labels, 1),
                Kind::Histogram(_) => registry.observe(*metric, &labels, 0.001),
            }
        }
    }
    let text = registry.render();
    let families = page(&registry);
    let names: Vec<&str> = families.iter().map(|family| family.name.as_str()).collect();
    let table: Vec<&str> = METRICS.iter().map(|spec| spec.name).collect();
    assert_eq!(names, table);
    for (family, spec) in families.iter().zip(METRICS) {
        assert_eq!(family.help, spec.help);
        let help = format!("# HELP {} ", spec.name);
        assert_eq!(text.matches(&help).count(), 1, "{help}");
        if !spec.labels.is_empty() {
            assert!(family.samples.len() >= 2, "{}", spec.name);
        }
    }
}

#[test]
fn any_text_may_be_a_label() {
    let registry = Registry::new(Component::Master);
    let names = [
        "",
        "a\"b",
        "a\\b",
        "a\nb",
        "\\n",
        "\\\"",
        "zürich 日本 🦀",
        "{a=\"b\"} 1",
        "a\r",
    ];
    for (n, name) in (1..).zip(names) {
        registry.set(Metric::MasterObjects, &[name], n);
    }
    let families = page(&registry);
    for (n, name) in (1..).zip(names) {
        let found = value(&families, "larder_master_objects", &[("tenant", name)]);
        assert_eq!(found, Some(f64::from(n)), "{name:?}");
    }
}

#[test]
fn labels_that_run_together_stay_apart() {
    let registry = Registry::new(Component::Master);
    registry.inc(Metric::MasterRequestsTotal, &["ab", "c"], 1);
    registry.inc(Metric::MasterRequestsTotal, &["a", "bc"], 2);
    let families = page(&registry);
    let told = |kind| value(&families, "larder_master_requests_total", &[("kind", kind)]);
    assert_eq!((told("ab"), told("a")), (Some(1.0), Some(2.0)));
}

#[test]
fn series_vanish_with_their_object() {
    let registry = Registry::new(Component::Agent);
    let before = series(&registry);
    for n in 0..100 {
        let tenant = format!("tenant-{n}");
        registry.set(Metric::AgentViewsBytes, &[&tenant], 4096);
        registry.inc(Metric::AgentRequestsTotal, &[&tenant, "ok"], 1);
    }
    assert_eq!(series(&registry), before + 200);
    for n in 0..100 {
        let tenant = format!("tenant-{n}");
        assert!(registry.remove(Metric::AgentViewsBytes, &[&tenant]));
        assert!(
            !registry.remove(Metric::AgentViewsBytes, &[&tenant]),
            "twice is harmless"
        );
        assert!(registry.remove(Metric::AgentRequestsTotal, &[&tenant, "ok"]));
    }
    assert_eq!(series(&registry), before);
    let text = registry.render();
    assert!(
        !text.contains("larder_agent_views_bytes"),
        "an empty family has no HELP:\n{text}"
    );
}

#[test]
fn a_tenant_is_forgotten_in_every_metric() {
    let registry = Registry::new(Component::Master);
    let before = series(&registry);
    for tenant in ["red", "blue"] {
        registry.set(Metric::MasterObjects, &[tenant], 1);
        registry.set(Metric::MasterBytes, &[tenant], 1);
        registry.set(Metric::MasterLimitBytes, &[tenant], 1);
    }
    registry.set(Metric::MasterSlabs, &["red"], 1);
    assert_eq!(registry.forget("tenant", "red"), 3);
    assert_eq!(registry.forget("tenant", "red"), 0);
    assert_eq!(
        series(&registry),
        before + 4,
        "blue and the state named red stay"
    );
}

#[test]
fn a_gauge_never_wraps() {
    let registry = Registry::new(Component::Agent);
    let gauge = registry.gauge(Metric::AgentRecords, &[]);
    gauge.raise(2);
    gauge.lower(5);
    assert_eq!(gauge.get(), 0);
    gauge.raise(3);
    assert_eq!(gauge.get(), 3, "what was missing is not owed");
    gauge.set(u64::MAX);
    gauge.raise(1);
    assert_eq!(gauge.get(), u64::MAX);
    registry.set(Metric::AgentRecords, &[], 7);
    assert_eq!(
        value(&page(&registry), "larder_agent_records", &[]),
        Some(7.0)
    );
}

#[test]
fn a_held_gauge_falls_with_its_holder() {
    let registry = Registry::new(Component::Agent);
    let gauge = registry.gauge(Metric::WireConnections, &["tcp"]);
    let first = gauge.hold(1);
    let second = gauge.hold(1);
    assert_eq!(gauge.get(), 2);
    drop((first, second));
    assert_eq!(gauge.get(), 0);
}

#[test]
fn a_handle_of_a_removed_series_brings_nothing_back() {
    let registry = Registry::new(Component::Agent);
    let before = registry.render();
    let gauge = registry.gauge(Metric::AgentViewsBytes, &["red"]);
    let held = gauge.hold(4096);
    assert!(registry.remove(Metric::AgentViewsBytes, &["red"]));
    drop(held);
    gauge.raise(1);
    assert_eq!(registry.render(), before);
}

#[test]
fn a_histogram_counts_what_is_a_number() {
    let registry = Registry::new(Component::Master);
    let histogram = registry.histogram(Metric::MasterRequestSeconds, &["get"]);
    for seconds in [0.25, 0.25, 3600.0, -1.0, f64::NAN, f64::INFINITY] {
        histogram.observe(seconds);
    }
    let families = page(&registry);
    let get = [("kind", "get")];
    assert_eq!(
        value(&families, "larder_master_request_seconds_count", &get),
        Some(4.0)
    );
    assert_eq!(
        value(&families, "larder_master_request_seconds_sum", &get),
        Some(3600.5)
    );
    let infinite = [("kind", "get"), ("le", "+Inf")];
    assert_eq!(
        value(&families, "larder_master_request_seconds_bucket", &infinite),
        Some(4.0)
    );
}

#[test]
fn a_registry_keeps_to_its_program() {
    let master = Registry::new(Component::Master);
    let before = master.render();
    assert!(!before.contains("larder_agent_"), "{before}");
    assert!(before.contains("larder_master_ready 0\n"), "{before}");
    let build = format!(
        "larder_build_info{{version=\"{}\"}} 1\n",
        env!("CARGO_PKG_VERSION")
    );
    assert!(before.contains(&build), "{before}");
    // Each of these is a mistake in the code: it is logged and changes nothing.
    master.inc(Metric::AgentReadBytesTotal, &["tcp"], 1);
    master.inc(Metric::MasterRequestsTotal, &["get"], 1);
    master.inc(Metric::MasterReady, &[], 1);
    master.set(Metric::MasterDiscardedPutsTotal, &[], 1);
    master.observe(Metric::MasterSessions, &[], 1.0);
    assert_eq!(master.render(), before);
}

#[test]
fn a_metric_has_a_bounded_number_of_series() {
    let registry = Registry::new(Component::Master);
    for n in 0..=SERIES_MAX {
        registry.set(Metric::MasterObjects, &[&n.to_string()], 1);
    }
    let families = page(&registry);
    let family = families
        .iter()
        .find(|family| family.name == "larder_master_objects");
    assert_eq!(family.expect("it is there").samples.len(), SERIES_MAX);
    assert!(registry.remove(Metric::MasterObjects, &["5"]));
    registry.set(Metric::MasterObjects, &["new"], 9);
    let new = [("tenant", "new")];
    assert_eq!(
        value(&page(&registry), "larder_master_objects", &new),
        Some(9.0)
    );
}

#[test]
fn clones_count_into_the_same_series() {
    let registry = Registry::new(Component::Agent);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let registry = registry.clone();
            scope.spawn(move || {
                let counter = registry.counter(Metric::AgentReadBytesTotal, &["tcp"]);
                for _ in 0..1000 {
                    counter.inc(3);
                    registry.inc(Metric::AgentReadBytesTotal, &["tcp"], 1);
                }
            });
        }
    });
    let told = value(&page(&registry), "larder_agent_read_bytes_total", &[]);
    assert_eq!(told, Some(16_000.0));
}

proptest! {
    #[test]
    fn every_pair_of_labels_comes_back(
        counts in prop::collection::btree_map((".*", ".*"), 1_u32..=u32::MAX, 0..40),
    ) {
        let registry = Registry::new(Component::Master);
        for ((kind, code), count) in &counts {
            registry.inc(Metric::MasterRequestsTotal, &[kind, code], u64::from(*count));
        }
        let text = registry.render();
        let families = parse(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let family = families.iter().find(|one| one.name == "larder_master_requests_total");
        let told: BTreeMap<(String, String), f64> = family
            .map_or(&[][..], |family| &family.samples)
            .iter()
            .map(|one| ((one.labels[0].1.clone(), one.labels[1].1.clone()), one.value))
            .collect();
        let counts: BTreeMap<_, _> =
            counts.into_iter().map(|(labels, count)| (labels, f64::from(count))).collect();
        prop_assert_eq!(told, counts);
    }
}
