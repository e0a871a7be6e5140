//! Beside a master that is silent: asks the others, one at a time, whether one of them leads. Only
//! a leader welcomes an agent. A paused master keeps its connection, so nothing else tells.

use larder_transfer::LocalMs;
use larder_types::Epoch;
use rand::Rng;

use super::link::{Phase, later};
use super::{Action, AgentState, LinkId, Note};

/// How long a master may owe an answer before the others are asked, in ms.
const DOUBT_MS: u64 = 300;
/// How long one of the others may take to welcome, in ms; then the next is asked.
const PROBE_MS: u64 = 1_000;
/// The pause after all others were asked in vain, in ms.
const PAUSE_MS: std::ops::RangeInclusive<u64> = 100..=200;

/// The one that is being asked.
#[derive(Clone, Copy, Debug)]
struct Asked {
    link: LinkId,
    master: usize,
    deadline: LocalMs,
}

/// The asking of the others.
#[derive(Debug, Default)]
pub(super) struct Probe {
    /// Since when the present master owes an answer.
    owed: Option<LocalMs>,
    asked: Option<Asked>,
    /// How many were asked in vain since the last pause.
    in_vain: usize,
    /// When the next one may be asked.
    next: LocalMs,
    /// Who leads, as one of them said.
    hint: Option<usize>,
}

impl Probe {
    /// The present master owes an answer from now on, if it does not yet.
    pub(super) fn owe(&mut self, now: LocalMs) {
        self.owed.get_or_insert(now);
    }

    /// The present master was heard: there is no doubt.
    pub(super) const fn settle(&mut self) {
        self.owed = None;
    }

    /// The link to the one that is being asked.
    pub(super) fn link(&self) -> Option<LinkId> {
        self.asked.map(|asked| asked.link)
    }

    fn due(&self) -> Option<LocalMs> {
        Some(later(self.owed?, DOUBT_MS).max(self.next))
    }

    /// The one that was asked does not lead; `others` of them can be.
    fn failed(&mut self, others: usize, now: LocalMs, pause_ms: u64) {
        self.asked = None;
        self.in_vain += 1;
        self.next = now;
        if self.in_vain >= others {
            self.in_vain = 0;
            self.next = later(now, pause_ms);
        }
    }
}

impl AgentState {
    /// When the asking has something to do.
    pub(super) fn probe_wake(&self) -> Option<LocalMs> {
        if self.others() == 0 || !self.is_owed() {
            return None;
        }
        match self.probe.asked {
            Some(asked) => Some(asked.deadline),
            None => self.probe.due(),
        }
    }

    pub(super) fn tick_probe(&mut self, now: LocalMs, actions: &mut Vec<Action>) {
        if self.probe.owed.is_none() || !self.is_owed() {
            return self.drop_probe(actions);
        }
        if let Some(asked) = self.probe.asked {
            if now < asked.deadline {
                return;
            }
            actions.push(Action::Disconnect(asked.link));
            self.probe_failed(now);
        }
        if self.others() > 0 && self.probe.due().is_some_and(|due| now >= due) {
            self.ask_next(now, actions);
        }
    }

    /// Asks nobody any more.
    pub(super) fn drop_probe(&mut self, actions: &mut Vec<Action>) {
        let probe = std::mem::take(&mut self.probe);
        if let Some(asked) = probe.asked {
            actions.push(Action::Disconnect(asked.link));
        }
        self.probe.owed = probe.owed;
    }

    /// The one that was asked has closed, or said that it does not lead and perhaps who does.
    pub(super) fn probe_closed(&mut self, leader: Option<usize>, now: LocalMs) {
        self.probe_failed(now);
        self.probe.hint = leader;
    }

    /// The one that was asked welcomes us: it leads, if its epoch says so too.
    pub(super) fn probe_opened(&mut self, epoch: Epoch, now: LocalMs, actions: &mut Vec<Action>) {
        let Some(asked) = self.probe.asked else {
            return;
        };
        let is_better =
            epoch >= self.gate.seen() && self.link.welcomed().is_none_or(|present| epoch > present);
        if !is_better {
            actions.push(Action::Disconnect(asked.link));
            return self.probe_failed(now);
        }
        self.probe = Probe::default();
        if let Some(silent) = self.link.open() {
            actions.push(Action::Note(Note::LinkDropped("another master leads")));
            actions.push(Action::Disconnect(silent));
        }
        self.forget_link();
        self.link.prefer(asked.master);
        self.link.phase = Phase::Connecting {
            link: asked.link,
            deadline: asked.deadline,
        };
        self.opened(asked.link, epoch, now, actions);
    }

    fn ask_next(&mut self, now: LocalMs, actions: &mut Vec<Action>) {
        let count = self.settings.masters.len();
        let present = self.link.master() % count.max(1);
        let hint = self.probe.hint.take().filter(|hint| *hint != present);
        // Never the present one: from 1 to the others' number behind it.
        let turn = 1 + self.probe.in_vain % self.others().max(1);
        let master = hint.unwrap_or((present + turn) % count.max(1));
        let Some(name) = self.settings.masters.get(master) else {
            return;
        };
        let link = self.link.next_id();
        self.probe.asked = Some(Asked {
            link,
            master,
            deadline: later(now, PROBE_MS),
        });
        actions.push(Action::Connect {
            link,
            master: name.clone(),
        });
    }

    fn probe_failed(&mut self, now: LocalMs) {
        let pause_ms = self.random.random_range(PAUSE_MS);
        let others = self.others();
        self.probe.failed(others, now, pause_ms);
    }

    fn others(&self) -> usize {
        self.settings.masters.len().saturating_sub(1)
    }

    /// Whether the present master can owe an answer at all.
    const fn is_owed(&self) -> bool {
        matches!(
            self.link.phase,
            Phase::Connecting { .. }
                | Phase::Mounting {
                    answered: false,
                    ..
                }
                | Phase::Mounted { .. }
        )
    }
}
