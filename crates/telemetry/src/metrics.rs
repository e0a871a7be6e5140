//! What the programs count: one table of metrics and the registry that keeps their series.
//!
//! A metric is added as one row of the table in `metrics/table.rs` and used through its name in
//! [`Metric`]; the tidy test wants each used. Nothing here is global: a program builds one
//! [`Registry`] for its component and hands clones to its parts.

mod registry;
mod series;
mod table;
#[cfg(test)]
mod tests;

pub use registry::{CONTENT_TYPE, Registry};
pub use series::{CounterHandle, GaugeHandle, HeldGauge, HistogramHandle, SERIES_MAX};
pub use table::{METRICS, Metric};

/// Which program a metric belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Component {
    /// The metadata service.
    Master,
    /// The node agent.
    Agent,
    /// A program of a user with the client library in it.
    Client,
    /// The operator.
    Operator,
    /// Every program. A registry built for this one carries the whole table.
    All,
}

impl Component {
    /// Whether a registry of this component keeps a metric of `owner`.
    #[must_use]
    pub fn carries(self, owner: Component) -> bool {
        self == Self::All || owner == Self::All || self == owner
    }
}

/// How a metric moves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Only rises, from 0 at the start of the process.
    Counter,
    /// Rises and falls, never below 0.
    Gauge,
    /// Observations sorted into buckets with these upper bounds; one more bucket holds the rest.
    Histogram(&'static [f64]),
}

/// What one step of a metric means. Its name ends with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Things, a yes (1) or no (0), or an ordinal: no suffix.
    Count,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Milliseconds, for ages that are compared with settings in milliseconds.
    Millis,
    /// Always 1; what it says stands in the labels.
    Info,
}

impl Unit {
    /// The end of a metric's name, before `_total`; empty for [`Unit::Count`].
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Count => "",
            Self::Bytes => "_bytes",
            Self::Seconds => "_seconds",
            Self::Millis => "_ms",
            Self::Info => "_info",
        }
    }
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MetricSpec {
    /// `larder_<component>_<what>_<unit>`, with `_total` at the end of a counter.
    pub name: &'static str,
    /// How it moves.
    pub kind: Kind,
    /// What one step means.
    pub unit: Unit,
    /// The names of its labels, in the order in which values are given. The values come from closed
    /// sets, or are tenants: never keys, addresses or texts of a peer.
    pub labels: &'static [&'static str],
    /// One sentence for the person at the dashboard.
    pub help: &'static str,
    /// The program that has it.
    pub component: Component,
}
