//! How a link ends: it breaks, is given up, or the agent stops; and the pause before the next one.

use larder_transfer::LocalMs;
use larder_wire::agent::Unmount;
use rand::Rng;

use super::link::{Phase, later};
use super::{Action, AgentState, LinkId, Note, Outbound};

/// How long the answer to an unmount is waited for, in ms. Without it the master notices silence.
const UNMOUNT_MS: u64 = 2_000;
impl AgentState {
    /// The link ended, or never came to be; its master may have said who leads.
    pub(super) fn closed(
        &mut self,
        link: LinkId,
        leader: Option<&str>,
        now: LocalMs,
        actions: &mut Vec<Action>,
    ) {
        // Who is not in the list is not trusted with our credential.
        let place = |leader| self.settings.masters.iter().position(|one| one == leader);
        let leader = leader.and_then(place);
        if self.probe.link() == Some(link) {
            return self.probe_closed(leader, now);
        }
        if self.link.open() != Some(link) {
            return;
        }
        if matches!(self.link.phase, Phase::Stopping { .. }) {
            self.exit(link, actions);
        } else {
            self.back_off(leader, now, actions);
        }
    }

    /// Closes the link, whatever its phase, and tries the next master after a pause.
    pub(super) fn drop_link(&mut self, why: &'static str, now: LocalMs, actions: &mut Vec<Action>) {
        let Some(link) = self.link.open() else { return };
        if matches!(self.link.phase, Phase::Stopping { .. }) {
            return self.exit(link, actions);
        }
        actions.push(Action::Note(Note::LinkDropped(why)));
        actions.push(Action::Disconnect(link));
        self.back_off(None, now, actions);
    }

    /// The link is gone: what was received over it is not answered any more, since the master
    /// repeats what is outstanding after the next mount.
    pub(super) fn forget_link(&mut self) {
        self.gate.forget_waiting();
        self.slabs.forget_waits();
        self.link.unwelcome();
    }

    /// Tries the next master, or the one that is said to lead, after a pause.
    fn back_off(&mut self, leader: Option<usize>, now: LocalMs, actions: &mut Vec<Action>) {
        self.forget_link();
        self.probe.settle();
        self.drop_probe(actions);
        let count = self.settings.masters.len().max(1);
        let pause_ms = self.link.choose(leader, count, now);
        // Between half and all of it, so that agents do not come back in step.
        let pause_ms = self.random.random_range(pause_ms / 2..=pause_ms);
        self.link.phase = Phase::Waiting {
            until: later(now, pause_ms),
        };
    }

    pub(super) fn stop(&mut self, now: LocalMs, actions: &mut Vec<Action>) {
        self.drop_probe(actions);
        match (self.link.phase, &self.identity) {
            (Phase::Mounted { link, .. }, Some(identity)) => {
                let unmount = Unmount {
                    agent: identity.agent,
                    incarnation: self.settings.incarnation,
                };
                actions.push(Action::Send(link, Outbound::Unmount(unmount)));
                self.link.phase = Phase::Stopping {
                    link,
                    deadline: later(now, UNMOUNT_MS),
                };
            }
            (Phase::Stopping { .. } | Phase::Stopped, _) => {}
            (phase, _) => {
                if let Phase::Connecting { link, .. } | Phase::Mounting { link, .. } = phase {
                    actions.push(Action::Disconnect(link));
                }
                self.link.phase = Phase::Stopped;
                actions.push(Action::Exit);
            }
        }
    }

    pub(super) fn exit(&mut self, link: LinkId, actions: &mut Vec<Action>) {
        actions.push(Action::Disconnect(link));
        self.link.phase = Phase::Stopped;
        actions.push(Action::Exit);
    }
}
