//! Who leads: a pure judgement of what a Lease looked like and when.

use std::time::Duration;

use super::LeaseSettings;

/// A Lease as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Who holds it; none if it was given back.
    pub holder: Option<String>,
    /// How often it changed hands.
    pub transitions: i32,
    /// Changes with every write: that is how a live holder is known.
    pub resource_version: String,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// There is no Lease; make it.
    Create,
    /// Take the Lease as seen: it is free, or stood still for its whole duration.
    Take(Seen),
    /// Renew the Lease as seen: it is ours.
    Renew(Seen),
    /// Somebody else holds it.
    Wait,
}

/// What one operator knows of the Lease.
#[derive(Debug)]
pub struct Elector {
    settings: LeaseSettings,
    /// The last look that differed from the one before, and when it was.
    known: Option<(Seen, Duration)>,
    held_until: Option<Duration>,
}

impl Elector {
    /// An operator that knows nothing yet.
    #[must_use]
    pub fn new(settings: LeaseSettings) -> Self {
        Self {
            settings,
            known: None,
            held_until: None,
        }
    }

    /// Its settings.
    #[must_use]
    pub fn settings(&self) -> &LeaseSettings {
        &self.settings
    }

    /// Until when it may write; `None` if it does not hold the Lease.
    #[must_use]
    pub fn held_until(&self) -> Option<Duration> {
        self.held_until
    }

    /// The Lease looks like this at `now`.
    pub fn look(&mut self, seen: Option<Seen>, now: Duration) -> Move {
        let Some(seen) = seen else {
            self.lost();
            return Move::Create;
        };
        let since = match &self.known {
            Some((known, since)) if *known == seen => *since,
            _ => now,
        };
        self.known = Some((seen.clone(), since));
        match &seen.holder {
            None => Move::Take(seen),
            // Ours and valid: keep it. After our own deadline passed we still may renew, since
            // nobody has taken it; the write decides.
            Some(holder) if *holder == self.settings.identity => Move::Renew(seen),
            Some(_) => {
                self.held_until = None;
                if now.saturating_sub(since) >= self.settings.duration {
                    Move::Take(seen)
                } else {
                    Move::Wait
                }
            }
        }
    }

    /// The write that [`Move`] asked for worked; it left at `before`.
    pub fn wrote(&mut self, seen: Seen, before: Duration) {
        self.known = Some((seen, before));
        self.held_until = Some(before.saturating_add(self.settings.renew_deadline));
    }

    /// Somebody else was faster.
    pub fn lost(&mut self) {
        self.held_until = None;
        self.known = None;
    }

    /// The Lease to give back, if it is held.
    pub fn release(&mut self) -> Option<Seen> {
        self.held_until.take()?;
        self.known.take().map(|(seen, _)| seen)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn lease(holder: Option<&str>, version: u64) -> Seen {
        Seen {
            holder: holder.map(str::to_owned),
            transitions: 0,
            resource_version: version.to_string(),
        }
    }

    #[test]
    fn a_lease_is_taken_when_it_stood_still() {
        let mut elector = Elector::new(LeaseSettings::new("l", "a"));
        assert_eq!(elector.look(None, s(0)), Move::Create);
        assert_eq!(elector.look(Some(lease(Some("b"), 1)), s(0)), Move::Wait);
        assert_eq!(elector.look(Some(lease(Some("b"), 2)), s(14)), Move::Wait);
        assert_eq!(elector.look(Some(lease(Some("b"), 2)), s(28)), Move::Wait);
        let stood = lease(Some("b"), 2);
        assert_eq!(elector.look(Some(stood.clone()), s(29)), Move::Take(stood));
        assert_eq!(elector.held_until(), None);
    }

    #[test]
    fn a_free_lease_is_taken_at_once_and_given_back() {
        let mut elector = Elector::new(LeaseSettings::new("l", "a"));
        assert_eq!(
            elector.look(Some(lease(None, 1)), s(5)),
            Move::Take(lease(None, 1))
        );
        elector.wrote(lease(Some("a"), 2), s(5));
        assert_eq!(elector.held_until(), Some(s(15)));
        assert_eq!(elector.release(), Some(lease(Some("a"), 2)));
        assert_eq!(elector.release(), None);
    }

    /// Two operators and one Lease in any order of looks, pauses and writes that fail: never may
    /// both write.
    #[derive(Debug, Default)]
    struct World {
        version: u64,
        holder: Option<usize>,
    }

    proptest! {
        #[test]
        fn never_two_at_once(
            steps in prop::collection::vec((0..2usize, 0..12u64, any::<bool>()), 1..200)
        ) {
            let names = ["a", "b"];
            let mut electors = names.map(|name| Elector::new(LeaseSettings::new("l", name)));
            let mut world = World::default();
            let mut now = s(0);
            for (who, pause, reaches) in steps {
                now += s(pause);
                let seen = (world.version > 0)
                    .then(|| lease(world.holder.map(|holder| names[holder]), world.version));
                let step = electors[who].look(seen, now);
                if step != Move::Wait && reaches {
                    world.version += 1;
                    world.holder = Some(who);
                    electors[who].wrote(lease(Some(names[who]), world.version), now);
                }
                let holding = electors.iter().filter(|e| e.held_until().is_some_and(|u| now < u));
                prop_assert!(holding.count() <= 1);
            }
        }
    }
}
