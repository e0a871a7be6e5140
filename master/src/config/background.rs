//! The parts of a master's configuration about what it does beside calls: eviction and copies.

use larder_store::{MAX_MOVES, Settings};
use serde::Deserialize;

use super::ConfigError;

/// The least that may be copied in a second, in bytes: a node that leaves is empty one day.
const MOVE_BYTES_MIN: u64 = 1 << 20;

/// When cold objects make room, of the space of a segment or of the limit of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvictionConfig {
    /// From this share on the coldest are evicted; 2 to 100.
    pub high_watermark_percent: u32,
    /// Down to this share they are; at least 1 and less than the other.
    pub low_watermark_percent: u32,
}

impl Default for EvictionConfig {
    fn default() -> Self {
        let settings = Settings::default();
        Self {
            high_watermark_percent: settings.high_watermark / 10,
            low_watermark_percent: settings.low_watermark / 10,
        }
    }
}

/// How fast objects are copied between agents, for all reasons together.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MovesConfig {
    /// The most copies at once; 1 to 256.
    pub max_concurrent: usize,
    /// The most bytes that are copied in a second; at least 1 MiB.
    pub bytes_per_s: u64,
}

impl Default for MovesConfig {
    fn default() -> Self {
        let settings = Settings::default();
        Self {
            max_concurrent: settings.max_moves,
            bytes_per_s: settings.move_bytes_per_s,
        }
    }
}

impl EvictionConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.high_watermark_percent > 100 {
            let key = "eviction.high_watermark_percent";
            return refuse(key, "must be at most 100".to_owned());
        }
        if self.low_watermark_percent == 0
            || self.low_watermark_percent >= self.high_watermark_percent
        {
            let what = format!(
                "must be at least 1 and less than high_watermark_percent, which is {}",
                self.high_watermark_percent
            );
            return refuse("eviction.low_watermark_percent", what);
        }
        Ok(())
    }
}

impl MovesConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if !(1..=MAX_MOVES).contains(&self.max_concurrent) {
            let what = format!("must be 1 to {MAX_MOVES}");
            return refuse("moves.max_concurrent", what);
        }
        if self.bytes_per_s < MOVE_BYTES_MIN {
            let what = format!("must be at least {MOVE_BYTES_MIN}");
            return refuse("moves.bytes_per_s", what);
        }
        Ok(())
    }
}

fn refuse(key: &'static str, what: String) -> Result<(), ConfigError> {
    Err(ConfigError::Value { key, what })
}
