//! How soon the next master is tried after a failure.

use larder_transfer::LocalMs;

/// The first pause after a failure, in ms; it doubles up to [`BACK_OFF_MAX_MS`].
const BACK_OFF_MS: u64 = 100;
/// The longest pause, in ms: a master that comes back is found within this.
const BACK_OFF_MAX_MS: u64 = 5_000;
/// The first pause while a fail-over may be under way, in ms; it doubles up to [`QUICK_MAX_MS`].
const QUICK_MS: u64 = 25;
/// The longest of those, in ms.
const QUICK_MAX_MS: u64 = 200;
/// How long a fail-over may be under way, in ms: several times what one takes.
const QUICK_FOR_MS: u64 = 5_000;

/// What failed since a heartbeat was last answered.
#[derive(Debug, Default)]
pub(super) struct Pace {
    failures: usize,
    /// When the first of them was.
    broke: Option<LocalMs>,
    /// Pauses at the present pace.
    pauses: u32,
    is_quick: bool,
    /// Leaders that were named and tried without a pause, since the last pause.
    followed: usize,
}

impl Pace {
    /// Whether a leader that was named is tried at once. Masters that name each other would
    /// otherwise be asked without end.
    pub(super) const fn follow(&mut self, masters: usize) -> bool {
        if masters < 2 || self.followed >= masters {
            return false;
        }
        self.followed += 1;
        self.failures += 1;
        true
    }

    /// The longest that the pause may be, in ms. Several masters are tried in a row, and the pause
    /// comes after the last of them.
    pub(super) fn pause_ms(&mut self, masters: usize, now: LocalMs) -> u64 {
        let broke = *self.broke.get_or_insert(now);
        self.failures += 1;
        if !self.failures.is_multiple_of(masters) {
            return 0;
        }
        self.followed = 0;
        let is_quick = masters > 1 && now.0.saturating_sub(broke.0) < QUICK_FOR_MS;
        if is_quick != self.is_quick {
            self.pauses = 0;
            self.is_quick = is_quick;
        }
        let doublings = self.pauses.min(16);
        self.pauses = self.pauses.saturating_add(1);
        if is_quick {
            (QUICK_MS << doublings).min(QUICK_MAX_MS)
        } else {
            (BACK_OFF_MS << doublings).min(BACK_OFF_MAX_MS)
        }
    }
}
