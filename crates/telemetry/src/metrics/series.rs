//! The series of one metric: a bounded, ordered set of label values, each with its value.
//!
//! The vectors of the `prometheus` crate were not taken: they find a series by a hash over its
//! label values set end to end, so that (`ab`, `c`) and (`a`, `bc`) share one series, and they have
//! no bound. Its histogram, its data model and its text encoder are used.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use prometheus::core::Metric as _;
use prometheus::proto;

use super::{Kind, MetricSpec};

/// The most series of one metric. A pool of 1,000 tenants with a dozen codes each fits; at about
/// 300 bytes a series it is 5 MiB of memory and 2 MiB of page at the worst. What would exceed it is
/// not shown, and the log says so once.
pub const SERIES_MAX: usize = 16_384;

/// A counter found once and used often. Rises by one relaxed atomic operation.
///
/// A handle outlives the removal of its series; then it counts into nothing.
#[derive(Debug, Clone, Default)]
pub struct CounterHandle(Arc<AtomicU64>);

impl CounterHandle {
    /// Adds `by`.
    pub fn inc(&self, by: u64) {
        // A u64 of bytes at 100 GB/s lasts five years; a wrap would only look like a restart.
        self.0.fetch_add(by, Relaxed);
    }

    /// The value now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A gauge found once and used often. It stays within `0..=u64::MAX` whatever is asked of it.
///
/// A handle outlives the removal of its series; then it moves nothing that is shown.
#[derive(Debug, Clone, Default)]
pub struct GaugeHandle {
    name: &'static str,
    value: Arc<AtomicU64>,
}

impl GaugeHandle {
    /// Sets the value.
    pub fn set(&self, value: u64) {
        self.value.store(value, Relaxed);
    }

    /// Adds `by`, up to the highest value.
    pub fn raise(&self, by: u64) {
        self.step(|now| now.saturating_add(by));
    }

    /// Takes `by` away, down to 0. Below 0 is a fault of the caller: the value stays at 0 and the
    /// log names the metric.
    pub fn lower(&self, by: u64) {
        let before = self.step(|now| now.saturating_sub(by));
        if before < by {
            tracing::warn!(
                metric = self.name,
                before,
                by,
                "a gauge was lowered below zero"
            );
        }
    }

    /// Adds `by` until the returned value is dropped, so that no way out of a function forgets to
    /// take it away again.
    #[must_use = "the gauge falls again when this is dropped"]
    pub fn hold(&self, by: u64) -> HeldGauge {
        self.raise(by);
        HeldGauge {
            gauge: self.clone(),
            by,
        }
    }

    /// The value now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.value.load(Relaxed)
    }

    fn step(&self, next: impl Fn(u64) -> u64) -> u64 {
        let (Ok(before) | Err(before)) = self
            .value
            .fetch_update(Relaxed, Relaxed, |now| Some(next(now)));
        before
    }
}

/// A part of a gauge that is taken away when this is dropped.
#[derive(Debug)]
pub struct HeldGauge {
    gauge: GaugeHandle,
    by: u64,
}

impl Drop for HeldGauge {
    fn drop(&mut self) {
        self.gauge.lower(self.by);
    }
}

/// A histogram found once and used often.
///
/// A handle outlives the removal of its series; then it observes into nothing.
#[derive(Debug, Clone, Default)]
pub struct HistogramHandle(Option<prometheus::Histogram>);

impl HistogramHandle {
    /// Sorts one value into its bucket. A negative one counts as 0 and one that is no number is
    /// left out: neither may spoil the sum.
    pub fn observe(&self, value: f64) {
        if let Some(histogram) = &self.0
            && value.is_finite()
        {
            histogram.observe(value.max(0.0));
        }
    }
}

/// The value behind a series.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Counter(CounterHandle),
    Gauge(GaugeHandle),
    Histogram(HistogramHandle),
}

impl Value {
    fn new(spec: &MetricSpec) -> Self {
        match spec.kind {
            Kind::Counter => Self::Counter(CounterHandle::default()),
            Kind::Gauge => Self::Gauge(GaugeHandle {
                name: spec.name,
                value: Arc::new(AtomicU64::new(0)),
            }),
            Kind::Histogram(bounds) => {
                let opts =
                    prometheus::HistogramOpts::new(spec.name, spec.help).buckets(bounds.to_vec());
                match prometheus::Histogram::with_opts(opts) {
                    Ok(histogram) => Self::Histogram(HistogramHandle(Some(histogram))),
                    Err(error) => {
                        tracing::error!(metric = spec.name, %error, "buckets out of order");
                        Self::Histogram(HistogramHandle(None))
                    }
                }
            }
        }
    }

    /// The value in the data model of the encoder; none for a histogram that could not be made.
    fn to_proto(&self, labels: Vec<proto::LabelPair>) -> Option<proto::Metric> {
        let mut metric = match self {
            Self::Counter(handle) => {
                let mut counter = proto::Counter::default();
                counter.set_value(to_f64(handle.get()));
                let mut metric = proto::Metric::default();
                metric.set_counter(counter);
                metric
            }
            Self::Gauge(handle) => {
                let mut gauge = proto::Gauge::default();
                gauge.set_value(to_f64(handle.get()));
                let mut metric = proto::Metric::default();
                metric.set_gauge(gauge);
                metric
            }
            Self::Histogram(handle) => handle.0.as_ref()?.metric(),
        };
        metric.set_label(labels);
        Some(metric)
    }
}

/// The exposition format knows only doubles: exact up to 2^53, 8 PiB in bytes.
fn to_f64(value: u64) -> f64 {
    value as f64
}

struct Series {
    labels: Box<[Box<str>]>,
    value: Value,
}

/// One metric with all of its series, ordered by label values.
pub(super) struct Family {
    pub(super) spec: &'static MetricSpec,
    series: RwLock<Vec<Series>>,
    full_said: AtomicBool,
}

impl Family {
    /// A family with no series, or with its only one when it has no labels, so that a page shows it
    /// from the start.
    pub(super) fn new(spec: &'static MetricSpec) -> Self {
        let mut series = Vec::new();
        if spec.labels.is_empty() {
            series.push(Series {
                labels: Box::new([]),
                value: Value::new(spec),
            });
        }
        Self {
            spec,
            series: RwLock::new(series),
            full_said: AtomicBool::new(false),
        }
    }

    /// The value with these labels, made if it is not there. `None` if the family is full.
    pub(super) fn resolve(&self, labels: &[&str]) -> Option<Value> {
        {
            let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
            if let Ok(at) = position(&series, labels) {
                return Some(series[at].value.clone());
            }
        }
        let mut series = self.series.write().unwrap_or_else(PoisonError::into_inner);
        let at = match position(&series, labels) {
            Ok(at) => return Some(series[at].value.clone()),
            Err(at) => at,
        };
        if series.len() >= SERIES_MAX {
            if !self.full_said.swap(true, Relaxed) {
                tracing::warn!(
                    metric = self.spec.name,
                    series = SERIES_MAX,
                    "a metric has all the series it may have; new label values are not shown"
                );
            }
            return None;
        }
        let value = Value::new(self.spec);
        let labels = labels.iter().map(|text| Box::from(*text)).collect();
        series.insert(
            at,
            Series {
                labels,
                value: value.clone(),
            },
        );
        Some(value)
    }

    /// Removes one series. False if it was not there.
    pub(super) fn remove(&self, labels: &[&str]) -> bool {
        let mut series = self.series.write().unwrap_or_else(PoisonError::into_inner);
        match position(&series, labels) {
            Ok(at) => {
                series.remove(at);
                true
            }
            Err(_) => false,
        }
    }

    /// Removes every series whose label `label` has `value` and returns how many there were.
    pub(super) fn forget(&self, label: &str, value: &str) -> usize {
        let Some(at) = self.spec.labels.iter().position(|name| *name == label) else {
            return 0;
        };
        let mut series = self.series.write().unwrap_or_else(PoisonError::into_inner);
        let before = series.len();
        series.retain(|one| one.labels.get(at).is_none_or(|text| **text != *value));
        before - series.len()
    }

    /// The family in the data model of the encoder; `None` while it has no series.
    pub(super) fn to_proto(&self) -> Option<proto::MetricFamily> {
        let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
        let metrics: Vec<proto::Metric> = series
            .iter()
            .filter_map(|one| one.value.to_proto(self.pairs(&one.labels)))
            .collect();
        if metrics.is_empty() {
            return None;
        }
        let mut family = proto::MetricFamily::default();
        family.set_name(self.spec.name.to_owned());
        family.set_help(self.spec.help.to_owned());
        family.set_field_type(match self.spec.kind {
            Kind::Counter => proto::MetricType::COUNTER,
            Kind::Gauge => proto::MetricType::GAUGE,
            Kind::Histogram(_) => proto::MetricType::HISTOGRAM,
        });
        family.set_metric(metrics);
        Some(family)
    }

    fn pairs(&self, values: &[Box<str>]) -> Vec<proto::LabelPair> {
        let names = self.spec.labels.iter();
        names
            .zip(values)
            .map(|(name, value)| {
                let mut pair = proto::LabelPair::default();
                pair.set_name((*name).to_owned());
                pair.set_value(value.to_string());
                pair
            })
            .collect()
    }
}

/// Where the series with these labels is, or where it would go. Allocates nothing.
fn position(series: &[Series], labels: &[&str]) -> Result<usize, usize> {
    series.binary_search_by(|one| -> Ordering {
        one.labels
            .iter()
            .map(|text| &**text)
            .cmp(labels.iter().copied())
    })
}
