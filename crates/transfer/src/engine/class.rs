//! Classes of service.

/// A class of service. Weights are shares of a rail that is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// A request waits for it.
    Foreground = 0,
    /// Will probably be wanted soon.
    Prefetch = 1,
    /// Weights of a model on their way to an engine.
    Weights = 2,
    /// Replicas that move or are made again.
    Migration = 3,
    /// Written to be kept.
    Checkpoint = 4,
}

impl Class {
    /// All of them, by number.
    pub const ALL: [Self; 5] = [
        Self::Foreground,
        Self::Prefetch,
        Self::Weights,
        Self::Migration,
        Self::Checkpoint,
    ];

    /// The class of this number, as frames carry it.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Foreground),
            1 => Some(Self::Prefetch),
            2 => Some(Self::Weights),
            3 => Some(Self::Migration),
            4 => Some(Self::Checkpoint),
            _ => None,
        }
    }

    /// The name, as it stands in metric labels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Foreground => "foreground",
            Self::Prefetch => "prefetch",
            Self::Weights => "weights",
            Self::Migration => "migration",
            Self::Checkpoint => "checkpoint",
        }
    }

    /// Its share of a rail that is short, against the other classes.
    pub(super) const fn weight(self) -> u64 {
        match self {
            Self::Foreground => 32,
            Self::Prefetch | Self::Weights => 8,
            Self::Migration => 4,
            Self::Checkpoint => 2,
        }
    }
}
