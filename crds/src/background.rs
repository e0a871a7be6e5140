//! What a pool does beside its calls: eviction before it is full, and copies between nodes.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;

/// Most copies at once; must equal the limit of the master.
pub(crate) const MAX_CONCURRENT: u32 = 256;
/// A quarter of what a link of 25 Gbit/s carries.
const DEFAULT_BYTES_PER_SECOND: &str = "768Mi";

/// When cold objects make room, of the space of a node or of the limit of a tenant.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.lowWatermarkPercent < self.highWatermarkPercent")
    .message("must be less than highWatermarkPercent (they are 80 and 90 when they are absent)")
    .field_path(".lowWatermarkPercent"))]
pub struct Eviction {
    /// From this share on the coldest objects are evicted. At 100 only a put that finds no room
    /// evicts, and waits for it.
    #[serde(default = "high_watermark_percent")]
    #[schemars(range(min = 2, max = 100))]
    pub high_watermark_percent: u32,
    /// Down to this share they are evicted then. The further below, the more at a time.
    #[serde(default = "low_watermark_percent")]
    #[schemars(range(min = 1, max = 99))]
    pub low_watermark_percent: u32,
}

impl Default for Eviction {
    fn default() -> Self {
        Self {
            high_watermark_percent: high_watermark_percent(),
            low_watermark_percent: low_watermark_percent(),
        }
    }
}

/// How fast objects are copied between nodes: to repair lost replicas, to empty nodes that leave,
/// to give slabs back, and for tasks, all of them together.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Moves {
    /// Most copies at once.
    #[serde(default = "max_concurrent")]
    #[schemars(range(min = 1, max = MAX_CONCURRENT))]
    pub max_concurrent: u32,
    /// Most bytes that are copied in a second, such as 768Mi.
    #[serde(default = "bytes_per_second")]
    #[x_kube(validation = Rule::new("quantity(self).compareTo(quantity('1Mi')) >= 0")
        .message("must be at least 1Mi, or nodes would never be empty"))]
    pub bytes_per_second: Quantity,
}

impl Default for Moves {
    fn default() -> Self {
        Self {
            max_concurrent: max_concurrent(),
            bytes_per_second: bytes_per_second(),
        }
    }
}

/// How the cache has done lately, in round figures; absent where nothing is known. Exact figures
/// are metrics.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Signals {
    /// Look-ups of a hundred that found their object, over about five minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit_ratio_percent: Option<u32>,
    /// Misses of a hundred whose object had been evicted not long before, over about five
    /// minutes: a larger pool would have had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ghost_hit_percent: Option<u32>,
    /// For how long half of what was evicted in about the last hour had not been used, at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction_age_seconds: Option<u64>,
    /// How full the fullest node is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure_percent: Option<u32>,
}

const fn high_watermark_percent() -> u32 {
    90
}

const fn low_watermark_percent() -> u32 {
    80
}

const fn max_concurrent() -> u32 {
    32
}

fn bytes_per_second() -> Quantity {
    Quantity::new(DEFAULT_BYTES_PER_SECOND)
}
