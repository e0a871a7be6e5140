//! The link to the master that leads: connect, mount, heartbeats, silence.

use larder_transfer::LocalMs;
use larder_types::Epoch;
use larder_wire::agent::{Done, Heartbeat, Kept, Mount};
use larder_wire::limit::MAX_BATCH;

use super::pace::Pace;
use super::{Action, AgentState, LinkId, Note, Outbound};

/// How long a connection with its hello may take, in ms. The shell has shorter limits of its own;
/// this one guards against losing its answer.
const CONNECT_MS: u64 = 15_000;
/// How long the answer to a mount may take, in ms: a master may have to commit first.
const MOUNT_MS: u64 = 10_000;
/// Bounds for what a master asks as the time between heartbeats, in ms.
const BEAT_MS: std::ops::RangeInclusive<u64> = 20..=60_000;
/// The time between heartbeats before a master has said one, in ms.
const BEAT_DEFAULT_MS: u64 = 1_000;
/// How many heartbeats without an answer make a master silent.
const SILENT_BEATS: u64 = 3;
/// What is always allowed on top, in ms: one slow turn of a busy machine.
const SILENT_GRACE_MS: u64 = 1_000;

#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    Waiting {
        until: LocalMs,
    },
    Connecting {
        link: LinkId,
        deadline: LocalMs,
    },
    /// `answered`: the answer is there and waits for its epoch to be saved; what comes behind it
    /// waits with it.
    Mounting {
        link: LinkId,
        deadline: LocalMs,
        answered: bool,
    },
    Mounted {
        link: LinkId,
        next_beat: LocalMs,
    },
    Stopping {
        link: LinkId,
        deadline: LocalMs,
    },
    Stopped,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) phase: Phase,
    /// The number of the latest link.
    latest: u64,
    pace: Pace,
    /// The epoch in which the present master welcomed us.
    welcomed: Option<Epoch>,
    /// The place in the list of the master to try next.
    master: usize,
    beat_ms: u64,
    /// When the present master was last heard.
    heard: LocalMs,
    /// When any master last answered a mount or heartbeat.
    answered: Option<LocalMs>,
}

impl Link {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Waiting { until: LocalMs(0) },
            latest: 0,
            pace: Pace::default(),
            welcomed: None,
            master: 0,
            beat_ms: BEAT_DEFAULT_MS,
            heard: LocalMs(0),
            answered: None,
        }
    }

    pub(super) const fn is_mounted(&self) -> bool {
        matches!(self.phase, Phase::Mounted { .. })
    }

    pub(super) const fn hears_commands(&self) -> bool {
        matches!(
            self.phase,
            Phase::Mounted { .. } | Phase::Mounting { answered: true, .. }
        )
    }

    /// The master was heard.
    pub(super) const fn hear(&mut self, now: LocalMs) {
        self.heard = now;
    }

    /// A heartbeat was answered: what failed before is over.
    pub(super) fn beat_answered(&mut self, now: LocalMs) {
        self.answered = Some(now);
        self.pace = Pace::default();
    }

    /// The master has taken the segments in and wants a heartbeat so often.
    pub(super) fn begin(&mut self, link: LinkId, heartbeat_ms: u64, now: LocalMs) {
        self.beat_ms = heartbeat_ms.clamp(*BEAT_MS.start(), *BEAT_MS.end());
        self.answered = Some(now);
        self.phase = Phase::Mounted {
            link,
            next_beat: later(now, self.beat_ms),
        };
    }

    /// The master to try next: its place in the list.
    pub(super) const fn prefer(&mut self, master: usize) {
        self.master = master;
    }

    pub(super) const fn master(&self) -> usize {
        self.master
    }

    pub(super) const fn welcomed(&self) -> Option<Epoch> {
        self.welcomed
    }

    /// The link over which we were welcomed is gone.
    pub(super) const fn unwelcome(&mut self) {
        self.welcomed = None;
    }

    /// Chooses the master to try next: the one that is said to lead, or the next of `count`. Gives
    /// the longest pause before that, in ms.
    pub(super) fn choose(&mut self, leader: Option<usize>, count: usize, now: LocalMs) -> u64 {
        match leader {
            Some(leader) if self.pace.follow(count) => {
                self.master = leader;
                0
            }
            _ => {
                self.master = (self.master + 1) % count;
                self.pace.pause_ms(count, now)
            }
        }
    }

    /// A number for the next link.
    pub(super) const fn next_id(&mut self) -> LinkId {
        self.latest += 1;
        LinkId(self.latest)
    }

    pub(super) const fn answered(&self) -> Option<LocalMs> {
        self.answered
    }

    pub(super) const fn silence_ms(&self) -> u64 {
        self.beat_ms * SILENT_BEATS + SILENT_GRACE_MS
    }

    pub(super) fn next_wake(&self) -> Option<LocalMs> {
        match self.phase {
            Phase::Waiting { until } => Some(until),
            Phase::Connecting { deadline, .. }
            | Phase::Mounting {
                deadline,
                answered: false,
                ..
            }
            | Phase::Stopping { deadline, .. } => Some(deadline),
            Phase::Mounted { next_beat, .. } => {
                Some(next_beat.min(later(self.heard, self.silence_ms())))
            }
            // The end of the link or of saving brings it out.
            Phase::Mounting { answered: true, .. } | Phase::Stopped => None,
        }
    }

    pub(super) const fn open(&self) -> Option<LinkId> {
        match self.phase {
            Phase::Connecting { link, .. }
            | Phase::Mounting { link, .. }
            | Phase::Mounted { link, .. }
            | Phase::Stopping { link, .. } => Some(link),
            Phase::Waiting { .. } | Phase::Stopped => None,
        }
    }
}

pub(super) const fn later(at: LocalMs, ms: u64) -> LocalMs {
    LocalMs(at.0.saturating_add(ms))
}

impl AgentState {
    pub(super) fn tick(&mut self, now: LocalMs, actions: &mut Vec<Action>) {
        match self.link.phase {
            Phase::Waiting { until } if now >= until => {
                let link = self.link.next_id();
                self.probe.owe(now);
                self.link.phase = Phase::Connecting {
                    link,
                    deadline: later(now, CONNECT_MS),
                };
                let masters = &self.settings.masters;
                // An empty list has no master to try; the configuration does not allow it.
                if let Some(master) = masters.get(self.link.master % masters.len().max(1)) {
                    actions.push(Action::Connect {
                        link,
                        master: master.clone(),
                    });
                }
            }
            Phase::Connecting { deadline, .. } if now >= deadline => {
                self.drop_link("connecting took too long", now, actions);
            }
            Phase::Mounting {
                deadline,
                answered: false,
                ..
            } if now >= deadline => {
                self.drop_link("the master did not answer the mount", now, actions);
            }
            Phase::Mounted { .. } if now >= later(self.link.heard, self.link.silence_ms()) => {
                self.drop_link("the master is silent", now, actions);
            }
            Phase::Mounted { link, next_beat } if now >= next_beat => {
                self.link.phase = Phase::Mounted {
                    link,
                    next_beat: later(now, self.link.beat_ms),
                };
                self.send_beat(link, actions);
                self.probe.owe(now);
            }
            Phase::Stopping { link, deadline } if now >= deadline => self.exit(link, actions),
            _ => {}
        }
    }

    /// Writes of older epochs are over. A leader gives out what this agent has only after a
    /// heartbeat has told it so; waiting until the next one is due would cost each fail-over as
    /// long as that.
    pub(super) fn fenced(&mut self, actions: &mut Vec<Action>) {
        if let Phase::Mounted { link, .. } = self.link.phase {
            self.send_beat(link, actions);
        }
    }

    fn send_beat(&self, link: LinkId, actions: &mut Vec<Action>) {
        let Some(identity) = &self.identity else {
            return;
        };
        let beat = Heartbeat {
            agent: identity.agent,
            incarnation: self.settings.incarnation,
            highest_epoch: self.gate.seen(),
            load_permille: self.load_permille,
        };
        actions.push(Action::Send(link, Outbound::Heartbeat(beat)));
        actions.push(Action::Note(Note::BeatSent));
    }

    pub(super) fn opened(
        &mut self,
        link: LinkId,
        epoch: Epoch,
        now: LocalMs,
        actions: &mut Vec<Action>,
    ) {
        if self.probe.link() == Some(link) {
            self.probe_opened(epoch, now, actions);
        } else if matches!(self.link.phase, Phase::Connecting { link: open, .. } if open == link) {
            self.link.welcomed = Some(epoch);
            self.probe.settle();
            self.mount(link, now, actions);
        }
    }

    pub(super) fn mount(&mut self, link: LinkId, now: LocalMs, actions: &mut Vec<Action>) {
        let deadline = later(now, MOUNT_MS);
        self.link.phase = Phase::Mounting {
            link,
            deadline,
            answered: false,
        };
        self.link.heard = now;
        self.probe.owe(now);
        self.telling.stop();
        let kept = self.identity.as_ref().map(|identity| Kept {
            agent: identity.agent,
            segments: identity.segments.clone(),
        });
        let mount = Mount {
            name: self.settings.name.clone(),
            uid: self.settings.uid,
            incarnation: self.settings.incarnation,
            data_addr: self.settings.data_addr.clone(),
            segments: self.slabs.offers(),
            highest_epoch: self.gate.seen(),
            labels: self.settings.labels.clone(),
            kept,
        };
        actions.push(Action::Send(link, Outbound::Mount(mount)));
    }

    pub(super) fn send_answers(&mut self, actions: &mut Vec<Action>) {
        let (Phase::Mounted { link, .. }, Some(identity)) = (self.link.phase, &self.identity)
        else {
            return;
        };
        let answers = self.slabs.take_answers();
        let mut answers = answers.into_iter().peekable();
        while answers.peek().is_some() {
            let done = Done {
                agent: identity.agent,
                incarnation: self.settings.incarnation,
                events: answers.by_ref().take(MAX_BATCH).collect(),
            };
            actions.push(Action::Send(link, Outbound::Done(done)));
        }
    }
}
