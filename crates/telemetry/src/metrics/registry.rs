//! The registry of one program: keeps the series of its metrics and prints them as a page.

use std::fmt;
use std::sync::Arc;

use prometheus::TextEncoder;
use prometheus::proto::MetricFamily;

use super::series::{CounterHandle, Family, GaugeHandle, HistogramHandle, Value};
use super::{Component, METRICS, Metric};

/// The content type of the page that [`Registry::render`] prints.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics of one program. A clone is another hand on the same series.
///
/// Label values are given in the order of the metric's row. A call that does not fit its row
/// (another kind, a wrong number of labels, a metric of another program) changes nothing and is
/// logged as an error: counting must not be able to stop a server.
#[derive(Clone)]
pub struct Registry {
    component: Component,
    /// By the number of the metric; `None` for metrics of other programs.
    families: Arc<[Option<Family>]>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("component", &self.component)
            .finish_non_exhaustive()
    }
}

impl Registry {
    /// A registry with the metrics of `component`. It already tells the version of the program;
    /// metrics without labels start at 0.
    #[must_use]
    pub fn new(component: Component) -> Self {
        let families = METRICS
            .iter()
            .map(|spec| component.carries(spec.component).then(|| Family::new(spec)))
            .collect();
        let registry = Self {
            component,
            families,
        };
        registry.set(Metric::BuildInfo, &[env!("CARGO_PKG_VERSION")], 1);
        registry
    }

    /// Adds `by` to a counter.
    pub fn inc(&self, metric: Metric, labels: &[&str], by: u64) {
        self.counter(metric, labels).inc(by);
    }

    /// Sets a gauge.
    pub fn set(&self, metric: Metric, labels: &[&str], value: u64) {
        self.gauge(metric, labels).set(value);
    }

    /// Sorts `value` into a histogram.
    pub fn observe(&self, metric: Metric, labels: &[&str], value: f64) {
        self.histogram(metric, labels).observe(value);
    }

    /// A counter to keep, for places that count often.
    #[must_use]
    pub fn counter(&self, metric: Metric, labels: &[&str]) -> CounterHandle {
        match self.resolve(metric, labels) {
            Some(Value::Counter(handle)) => handle,
            Some(_) => misused(metric, "it is not a counter"),
            None => CounterHandle::default(),
        }
    }

    /// A gauge to keep, for places that move it often or hold a part of it.
    #[must_use]
    pub fn gauge(&self, metric: Metric, labels: &[&str]) -> GaugeHandle {
        match self.resolve(metric, labels) {
            Some(Value::Gauge(handle)) => handle,
            Some(_) => misused(metric, "it is not a gauge"),
            None => GaugeHandle::default(),
        }
    }

    /// A histogram to keep, for places that observe often.
    #[must_use]
    pub fn histogram(&self, metric: Metric, labels: &[&str]) -> HistogramHandle {
        match self.resolve(metric, labels) {
            Some(Value::Histogram(handle)) => handle,
            Some(_) => misused(metric, "it is not a histogram"),
            None => HistogramHandle::default(),
        }
    }

    /// Removes one series, for example when its agent is gone. False if there was none.
    pub fn remove(&self, metric: Metric, labels: &[&str]) -> bool {
        self.family(metric)
            .is_some_and(|family| family.remove(labels))
    }

    /// Removes every series, of every metric, whose label `label` has this value: what is left of
    /// a tenant on the page when the tenant is gone. Returns how many series vanished.
    pub fn forget(&self, label: &str, value: &str) -> usize {
        self.families
            .iter()
            .flatten()
            .map(|family| family.forget(label, value))
            .sum()
    }

    /// The page in the text format of Prometheus: each family once, with one HELP and one TYPE.
    #[must_use]
    pub fn render(&self) -> String {
        let families: Vec<MetricFamily> = self
            .families
            .iter()
            .flatten()
            .filter_map(Family::to_proto)
            .collect();
        let mut page = String::new();
        if let Err(error) = TextEncoder::new().encode_utf8(&families, &mut page) {
            tracing::error!(%error, "the page of metrics is incomplete");
        }
        page
    }

    fn family(&self, metric: Metric) -> Option<&Family> {
        self.families.get(metric as usize).and_then(Option::as_ref)
    }

    fn resolve(&self, metric: Metric, labels: &[&str]) -> Option<Value> {
        let Some(family) = self.family(metric) else {
            return misused(metric, "it belongs to another program");
        };
        if family.spec.labels.len() != labels.len() {
            return misused(metric, "the number of label values is wrong");
        }
        family.resolve(labels)
    }
}

/// Logs a mistake in the code and returns a value that is shown nowhere.
fn misused<T: Default>(metric: Metric, why: &'static str) -> T {
    tracing::error!(
        metric = metric.spec().name,
        why,
        "a metric is used in a wrong way"
    );
    T::default()
}
