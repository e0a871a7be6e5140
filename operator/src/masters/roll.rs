//! The order in which masters get another configuration, another image or another number. Pure:
//! from what is seen to the one next step, so an operator that dies in between goes on from what
//! it finds.
//!
//! Standbys come first, one at a time and only while every voter is ready and in sync; then the
//! office goes to one that is up to date, and the old leader comes last. Masters that are to go are
//! dropped by the leader first, and their pods go when they vote no longer. Not a rolling update of
//! the StatefulSet: its controller knows neither who leads nor who is in sync, it stops at a pod
//! that an earlier mistake has broken, and it ends a leader without warning.

use std::collections::{BTreeMap, BTreeSet};

/// A pod of a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Whether it was made from the present template.
    pub is_updated: bool,
    /// Whether its probe succeeds.
    pub is_ready: bool,
    /// Whether it is being deleted.
    pub is_leaving: bool,
    /// Whether its container ever ran.
    pub has_run: bool,
    /// Whether it runs now.
    pub is_running: bool,
}

/// What the leader says, masters by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Who leads.
    pub leader: u32,
    /// Who votes, and whether each is in sync.
    pub voters: BTreeMap<u32, bool>,
    /// Whom the leader lets in; it drops the others.
    pub named: BTreeSet<u32>,
}

impl View {
    /// Whether a quorum stays in sync without this one.
    fn can_spare(&self, ordinal: u32) -> bool {
        let others = self.voters.iter().filter(|(one, _)| **one != ordinal);
        let in_sync = others.filter(|(_, in_sync)| **in_sync).count();
        !self.voters.contains_key(&ordinal) || in_sync > self.voters.len() / 2
    }

    fn is_in_sync(&self, ordinal: u32) -> bool {
        self.voters.get(&ordinal) == Some(&true)
    }
}

/// Everything that a step follows from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Masters {
    /// How many the spec wants.
    pub desired: u32,
    /// How many pods the StatefulSet makes.
    pub count: u32,
    /// Those that are there.
    pub pods: BTreeMap<u32, Pod>,
    /// `None` while no leader answers.
    pub view: Option<View>,
    /// Whether logs outlive pods.
    pub has_volumes: bool,
    /// Whether a master of the pool ever led; before that no log holds anything.
    pub has_led: bool,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: all is as the spec wants it.
    Done,
    /// Nothing yet.
    Wait(Wait),
    /// Delete the pod of this master; it is made again from the present template.
    Replace(u32),
    /// Let this master lead.
    Promote(u32),
    /// Tell the leader which masters there are to be.
    Name,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A master that leads and answers.
    Leader,
    /// This master: it votes and is not ready, or not in sync.
    Master(u32),
    /// This master: it is to be a voter and is none yet.
    Join(u32),
    /// This master is to go and votes still.
    Drop(u32),
    /// Two voters cannot spare one; a third has to come, or the second to go.
    Quorum,
}

impl Masters {
    /// The next step.
    #[must_use]
    pub fn next(&self) -> Step {
        // Those first that serve nobody. A mistake that broke them is repaired by replacing them.
        // Those that are to go too: while they vote, the others wait for them.
        let counts = |one: &u32| {
            let view = self.view.as_ref();
            *one < self.desired || view.is_none_or(|view| view.voters.contains_key(one))
        };
        let mut old = self.old(u32::MAX).filter(counts);
        let broken = old.find(|one| self.is_broken(*one));
        if let Some(ordinal) = broken {
            return Step::Replace(ordinal);
        }
        if self.desired == 1 && self.count == 1 {
            let outdated = self.outdated().next();
            return outdated.map_or(Step::Done, Step::Replace);
        }
        let Some(view) = &self.view else {
            return self.unless_done(Wait::Leader);
        };
        let away = view.voters.iter().find(|(ordinal, in_sync)| {
            let pod = self.pods.get(ordinal);
            !**in_sync || pod.is_none_or(|pod| !pod.is_ready || pod.is_leaving)
        });
        if let Some((ordinal, _)) = away {
            return self.unless_done(Wait::Master(*ordinal));
        }
        // From the highest on: a small pool that grows has its new masters there.
        let standbys = self.outdated().filter(|one| *one != view.leader);
        if let Some(ordinal) = standbys.max() {
            return if view.can_spare(ordinal) {
                Step::Replace(ordinal)
            } else {
                Step::Wait(Wait::Quorum)
            };
        }
        self.with_leader(view)
    }

    /// All standbys that stay are up to date and in sync.
    fn with_leader(&self, view: &View) -> Step {
        let goes = view.leader >= self.desired;
        let is_outdated = self.outdated().any(|one| one == view.leader);
        let is_alone = view.voters.len() == 1;
        // Who is alone keeps its office and its log until the others are there. One that was told
        // of others before may have to forget them.
        let is_to_name = view.named != (0..self.desired).collect();
        if is_to_name && !goes && (!is_outdated || is_alone) {
            return Step::Name;
        }
        if is_alone && let Some(one) = self.joining(view) {
            return Step::Wait(Wait::Join(one));
        }
        if goes || is_outdated {
            let others = || {
                view.voters
                    .keys()
                    .copied()
                    .filter(|one| *one != view.leader)
            };
            let staying = others().find(|one| *one < self.desired);
            return match staying.or_else(|| others().next()) {
                // The last that stays is not there yet.
                Some(other) if goes && other >= self.desired => Step::Wait(Wait::Join(0)),
                Some(other) => Step::Promote(other),
                // It is alone, so nobody can do without it anyway.
                None => Step::Replace(view.leader),
            };
        }
        if let Some(going) = view.voters.keys().find(|one| **one >= self.desired) {
            return Step::Wait(Wait::Drop(*going));
        }
        let joining = self.joining(view);
        joining.map_or(Step::Done, |one| Step::Wait(Wait::Join(one)))
    }

    /// One that is to vote and does not yet.
    fn joining(&self, view: &View) -> Option<u32> {
        (0..self.desired).find(|one| !view.voters.contains_key(one))
    }

    /// The pods to be replaced. Those that are to go are not: they end as they are.
    fn outdated(&self) -> impl Iterator<Item = u32> {
        self.old(self.desired)
    }

    /// The pods below this number that were not made from the present template.
    fn old(&self, below: u32) -> impl Iterator<Item = u32> {
        let outdated = self
            .pods
            .range(..below)
            .filter(|(_, pod)| !pod.is_updated && !pod.is_leaving);
        outdated.map(|(ordinal, _)| *ordinal)
    }

    /// Whether a pod serves nobody, and to replace it takes away nothing that may be needed.
    fn is_broken(&self, ordinal: u32) -> bool {
        let Some(pod) = self.pods.get(&ordinal) else {
            return false;
        };
        let view = self.view.as_ref();
        if pod.is_ready || view.is_some_and(|view| view.is_in_sync(ordinal)) {
            return false;
        }
        let can_be_spared = view.is_some_and(|view| view.can_spare(ordinal));
        if pod.is_running {
            // Without a leader no standby is ready: it may be one of those who elect the next.
            return can_be_spared;
        }
        let keeps_its_log = self.has_volumes || !pod.has_run || !self.has_led;
        // Who is alone has nobody to learn from, however long one waits.
        let is_alone = self.desired == 1 && self.count == 1;
        keeps_its_log || is_alone || can_be_spared
    }

    /// Waiting is worth a word only while there is something to do.
    fn unless_done(&self, wait: Wait) -> Step {
        let is_settled = self.count == self.desired && self.outdated().next().is_none();
        let voters = self.view.as_ref().map(|view| view.voters.keys());
        let are_all = voters.is_none_or(|mut voters| {
            voters.len() == self.desired as usize && voters.all(|one| *one < self.desired)
        });
        if is_settled && are_all {
            Step::Done
        } else {
            Step::Wait(wait)
        }
    }
}

/// How many pods the StatefulSet is to make, where it makes `standing` now: fewer only when the
/// leader says that those at the end vote no longer.
#[must_use]
pub fn count(desired: u32, standing: Option<u32>, view: Option<&View>) -> u32 {
    let Some(standing) = standing.filter(|standing| *standing > desired) else {
        return desired;
    };
    let is_free = |view: &View| {
        let mut voters = view.voters.keys();
        !view.voters.is_empty() && voters.all(|one| *one < desired) && view.leader < desired
    };
    if view.is_some_and(is_free) {
        desired
    } else {
        standing
    }
}

#[cfg(test)]
mod tests;
