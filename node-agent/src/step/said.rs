//! What masters say, through the epoch gate, and what the agent does about it.

use larder_transfer::LocalMs;
use larder_types::Epoch;
use larder_wire::Reply;
use larder_wire::agent::{Command, Mounted};

use super::gate::{Content, Said, Verdict};
use super::link::Phase;
use super::{Action, AgentState, DataOrder, Identity, Inbound, LinkId, Note};

impl AgentState {
    pub(super) fn arrived(
        &mut self,
        link: LinkId,
        message: Inbound,
        now: LocalMs,
        actions: &mut Vec<Action>,
    ) {
        if self.link.open() != Some(link) {
            return;
        }
        self.link.hear(now);
        self.probe.settle();
        if matches!(self.link.phase, Phase::Stopping { .. }) {
            if matches!(message, Inbound::Unmounted) {
                self.exit(link, actions);
            }
            return;
        }
        match message {
            Inbound::Mounted(Ok(reply)) => {
                if let Phase::Mounting {
                    answered: answered @ false,
                    ..
                } = &mut self.link.phase
                {
                    *answered = true;
                    self.put(reply, Content::Mounted, now, actions);
                }
            }
            Inbound::Beat(Ok(reply)) if self.link.is_mounted() => {
                self.link.beat_answered(now);
                actions.push(Action::Note(Note::BeatAnswered));
                self.put(reply, |beat| Content::Beat(beat.known), now, actions);
            }
            Inbound::Taken(Ok(reply)) if self.link.is_mounted() => {
                self.put(reply, |()| Content::Taken, now, actions);
            }
            Inbound::Mounted(Err(error))
            | Inbound::Beat(Err(error))
            | Inbound::Taken(Err(error)) => {
                actions.push(Action::Note(Note::Refused(error)));
                self.drop_link("the master refused", now, actions);
            }
            // Before the answer to a mount, commands are for the life before it; what is still to
            // be done comes with the answer.
            Inbound::Commands(commands) if self.link.hears_commands() => {
                let said = Said {
                    epoch: commands.epoch,
                    pool_time: commands.pool_time,
                    heard: now,
                    content: Content::Commands(commands.commands),
                };
                self.put_said(said, now, actions);
            }
            Inbound::Beat(_) | Inbound::Taken(_) | Inbound::Unmounted | Inbound::Commands(_) => {}
        }
    }

    fn put<T>(
        &mut self,
        reply: Reply<T>,
        content: impl FnOnce(T) -> Content,
        now: LocalMs,
        actions: &mut Vec<Action>,
    ) {
        let Reply {
            epoch,
            pool_time,
            answer,
        } = reply;
        let said = Said {
            epoch,
            pool_time,
            heard: now,
            content: content(answer),
        };
        self.put_said(said, now, actions);
    }

    fn put_said(&mut self, said: Said, now: LocalMs, actions: &mut Vec<Action>) {
        let told = said.epoch;
        match self.gate.put(said) {
            Verdict::Pass(said) => self.obey(said, now, actions),
            Verdict::Wait { save } => actions.extend(save.map(Action::SaveEpoch)),
            Verdict::Lower => {
                let seen = self.gate.seen();
                actions.push(Action::Note(Note::LowerEpoch { told, seen }));
                self.drop_link("the master is of an older epoch", now, actions);
            }
            Verdict::Full => {
                self.drop_link("too much waits for the epoch to be saved", now, actions);
            }
        }
    }

    pub(super) fn epoch_saved(&mut self, epoch: Epoch, now: LocalMs, actions: &mut Vec<Action>) {
        let opened = self.gate.saved_now(epoch);
        actions.extend(opened.save.map(Action::SaveEpoch));
        if let Some(told) = opened.overtaken {
            let seen = self.gate.seen();
            actions.push(Action::Note(Note::LowerEpoch { told, seen }));
        }
        let link = self.link.open();
        for said in opened.pass {
            // Obeying one may end the link, and with it what came behind.
            if self.link.open() == link {
                self.obey(said, now, actions);
            }
        }
    }

    /// Does what a leader said; its epoch is on the disk and no higher one was seen.
    fn obey(&mut self, said: Said, now: LocalMs, actions: &mut Vec<Action>) {
        let Said {
            epoch,
            pool_time,
            heard,
            content,
        } = said;
        let see = |keeps| {
            Action::Data(DataOrder::SeeEpoch {
                epoch,
                pool_time,
                heard,
                keeps,
            })
        };
        // Whether slabs stay in another generation, only the answer to a mount says. Without it the
        // data side would drop them.
        let is_other = self.pool_generation != Some(epoch.generation);
        match content {
            Content::Mounted(mounted) => {
                self.mounted(mounted, epoch, see, now, actions);
            }
            // Said in the life before a mount that is under way now.
            Content::Beat(_) | Content::Taken | Content::Commands(_) if !self.link.is_mounted() => {
            }
            Content::Beat(_) | Content::Taken | Content::Commands(_) if is_other => {
                self.drop_link("the pool started over", now, actions);
            }
            Content::Beat(true) => actions.push(see(false)),
            Content::Taken => {
                actions.push(see(false));
                self.taken(actions);
            }
            Content::Beat(false) => self.mount_afresh("the master forgot this agent", now, actions),
            Content::Commands(commands) => {
                actions.push(see(false));
                self.command(commands, now, actions);
            }
        }
    }

    fn command(&mut self, commands: Vec<Command>, now: LocalMs, actions: &mut Vec<Action>) {
        for command in commands {
            if self
                .slabs
                .command(command, self.identity.as_ref(), actions)
                .is_err()
            {
                return self.drop_link("too many commands are unanswered", now, actions);
            }
        }
    }

    fn mounted(
        &mut self,
        mounted: Mounted,
        epoch: Epoch,
        see: impl FnOnce(bool) -> Action,
        now: LocalMs,
        actions: &mut Vec<Action>,
    ) {
        let Phase::Mounting { link, .. } = self.link.phase else {
            return;
        };
        if mounted.segments.len() != self.settings.segments.len() {
            return self.drop_link("the master took another number of segments", now, actions);
        }
        let identity = Identity {
            agent: mounted.agent,
            segments: mounted.segments.clone(),
        };
        let is_known = self.identity.as_ref() == Some(&identity);
        let before = self.pool_generation.replace(epoch.generation);
        let keeps = mounted.wants_inventory && is_known;
        // A process without numbers holds nothing: what it offered is empty already.
        let is_new = self.identity.is_none();
        if before.is_some_and(|before| before < epoch.generation) && !keeps && !is_new {
            return self.mount_afresh("the pool started over", now, actions);
        }
        if keeps {
            self.slabs.drop_making();
            actions.push(Action::Note(Note::Kept));
        } else if self.slabs.keep(&identity) {
            // What lies under the old numbers is reachable by nobody.
            actions.push(Action::Note(Note::Emptied("the master gave other numbers")));
        }
        self.identity = Some(identity);
        self.link.begin(link, mounted.heartbeat_ms, now);
        actions.push(Action::Note(Note::Mounted {
            agent: mounted.agent,
            epoch,
        }));
        let outstanding = mounted.outstanding.clone();
        let wants_inventory = mounted.wants_inventory;
        actions.push(see(keeps));
        actions.push(Action::Data(DataOrder::Mounted(mounted)));
        self.command(outstanding, now, actions);
        if wants_inventory && self.link.open() == Some(link) {
            self.tell_all(actions);
        }
    }

    /// Lets go of all slabs and offers segments of a new life over the same link.
    fn mount_afresh(&mut self, why: &'static str, now: LocalMs, actions: &mut Vec<Action>) {
        let Some(link) = self.link.open() else { return };
        actions.push(Action::Note(Note::Emptied(why)));
        self.slabs.empty(actions);
        self.slabs.renew_generations(&mut self.random);
        self.identity = None;
        self.mount(link, now, actions);
    }
}
