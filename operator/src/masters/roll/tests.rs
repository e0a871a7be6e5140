//! Rolls in a cluster that is played: pods come up after a while, masters are let in and dropped
//! as their leader is configured, leaders and standbys die in between.

use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

/// A pod that is played.
#[derive(Clone, Copy, Debug)]
struct Played {
    revision: u32,
    /// How many masters its configuration names.
    names: u32,
    is_up: bool,
    /// It never comes up: its revision is a mistake.
    is_broken: bool,
}

#[derive(Clone, Debug)]
struct Cluster {
    desired: u32,
    count: u32,
    revision: u32,
    /// Revisions that do not run.
    broken: Vec<u32>,
    pods: BTreeMap<u32, Played>,
    voters: Vec<u32>,
    leader: Option<u32>,
    has_volumes: bool,
    random: SmallRng,
}

impl Cluster {
    fn new(count: u32, has_volumes: bool, seed: u64) -> Self {
        let mut cluster = Self {
            desired: count,
            count,
            revision: 1,
            broken: Vec::new(),
            pods: BTreeMap::new(),
            voters: (0..count).collect(),
            leader: Some(0),
            has_volumes,
            random: SmallRng::seed_from_u64(seed),
        };
        cluster.make_pods();
        for pod in cluster.pods.values_mut() {
            pod.is_up = true;
        }
        cluster
    }

    /// The StatefulSet's controller: all at once, from the present template.
    fn make_pods(&mut self) {
        self.pods.retain(|ordinal, _| *ordinal < self.count);
        for ordinal in 0..self.count {
            let is_staying = ordinal < self.desired;
            self.pods.entry(ordinal).or_insert(Played {
                revision: self.revision,
                names: if is_staying { self.desired } else { self.count },
                is_up: false,
                is_broken: self.broken.contains(&self.revision),
            });
        }
    }

    fn is_up(&self, ordinal: u32) -> bool {
        self.pods.get(&ordinal).is_some_and(|pod| pod.is_up)
    }

    fn up(&self) -> usize {
        self.voters.iter().filter(|one| self.is_up(**one)).count()
    }

    fn has_quorum(&self) -> bool {
        self.up() > self.voters.len() / 2
    }

    fn seen(&self) -> Masters {
        let pod = |pod: &Played| Pod {
            is_updated: pod.revision == self.revision,
            is_ready: pod.is_up,
            is_leaving: false,
            has_run: true,
            is_running: !pod.is_broken,
        };
        let pods = self.pods.iter().map(|(ordinal, one)| {
            let mut pod = pod(one);
            // Who does not vote is not ready.
            pod.is_ready &= self.voters.contains(ordinal) && self.leader.is_some();
            (*ordinal, pod)
        });
        let view = self.leader.map(|leader| View {
            leader,
            voters: self
                .voters
                .iter()
                .map(|one| (*one, self.is_up(*one)))
                .collect(),
            named: (0..self.pods.get(&leader).map_or(0, |pod| pod.names)).collect(),
        });
        Masters {
            desired: self.desired,
            count: self.count,
            pods: pods.collect(),
            view,
            has_volumes: self.has_volumes,
            has_led: true,
        }
    }

    /// One thing that happens by itself.
    fn happen(&mut self) {
        let coming: Vec<u32> = self
            .pods
            .iter()
            .filter(|(_, pod)| !pod.is_up && !pod.is_broken)
            .map(|(ordinal, _)| *ordinal)
            .collect();
        match self.random.random_range(0..3) {
            0 if !coming.is_empty() => {
                let one = coming[self.random.random_range(0..coming.len())];
                self.pods.get_mut(&one).expect("there").is_up = true;
            }
            1 => self.change_members(),
            _ => self.elect(),
        }
        self.elect();
    }

    fn elect(&mut self) {
        if self.leader.is_some_and(|leader| self.is_up(leader)) && self.has_quorum() {
            return;
        }
        let up: Vec<u32> = self
            .voters
            .iter()
            .copied()
            .filter(|one| self.is_up(*one))
            .collect();
        self.leader = None;
        if self.has_quorum() {
            self.leader = Some(up[self.random.random_range(0..up.len())]);
        }
    }

    /// The leader lets one in that its configuration names, or drops one that it does not.
    fn change_members(&mut self) {
        let Some(leader) = self.leader else { return };
        let names = self.pods[&leader].names;
        let joining = self.pods.iter().find(|(ordinal, pod)| {
            **ordinal < names && pod.is_up && !self.voters.contains(ordinal)
        });
        if let Some((ordinal, _)) = joining {
            self.voters.push(*ordinal);
            self.voters.sort_unstable();
            return;
        }
        let going = self.voters.iter().position(|one| *one >= names);
        if let Some(at) = going {
            let rest = |one: &&u32| **one != self.voters[at];
            let up = self
                .voters
                .iter()
                .filter(rest)
                .filter(|one| self.is_up(**one))
                .count();
            if up > (self.voters.len() - 1) / 2 {
                self.voters.remove(at);
            }
        }
    }

    /// What the operator does after each look.
    fn act(&mut self) -> Result<Step, TestCaseError> {
        let seen = self.seen();
        self.count = count(self.desired, Some(self.count), seen.view.as_ref());
        for voter in &self.voters {
            prop_assert!(*voter < self.count, "the pod of a voter goes");
        }
        self.make_pods();
        let step = seen.next();
        match step {
            Step::Replace(ordinal) => {
                let serves = self.is_up(ordinal) && self.voters.contains(&ordinal);
                let others_up = self.up() - usize::from(serves);
                if serves {
                    let others = self.voters.len() - 1;
                    prop_assert_eq!(others_up, others, "a second one is away");
                    let stays = others_up > self.voters.len() / 2;
                    prop_assert!(stays || others == 0, "the quorum is lost by hand");
                }
                if !self.has_volumes && self.voters.contains(&ordinal) && self.voters.len() > 1 {
                    prop_assert!(
                        others_up > self.voters.len() / 2,
                        "a log goes that is needed"
                    );
                }
                prop_assert!(
                    ordinal < self.desired || !serves,
                    "one that goes ends as it is"
                );
                self.pods.remove(&ordinal);
                self.make_pods();
            }
            Step::Promote(ordinal) => {
                prop_assert!(self.is_up(ordinal) && self.voters.contains(&ordinal));
                prop_assert!(self.leader != Some(ordinal));
                self.leader = Some(ordinal);
            }
            Step::Name => {
                let desired = self.desired;
                let leader = self.leader.and_then(|leader| self.pods.get_mut(&leader));
                leader.expect("one leads").names = desired;
            }
            Step::Done | Step::Wait(_) => {}
        }
        self.elect();
        Ok(step)
    }

    fn is_as_wanted(&self) -> bool {
        let mut pods = self.pods.values();
        self.count == self.desired
            && self.voters == (0..self.desired).collect::<Vec<_>>()
            && pods.all(|pod| pod.revision == self.revision && pod.is_up)
    }

    /// Nothing fails any more: the roll has to end.
    fn must_end(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..2_000 {
            if self.is_as_wanted() && self.seen().next() == Step::Done {
                return Ok(());
            }
            let step = self.act()?;
            self.happen();
            // A mistake broke so many that none leads, and their logs would go with their pods:
            // only people may decide that they are of no use.
            let is_lost = !self.has_volumes && !self.has_quorum();
            let are_broken = self.pods.values().any(|pod| pod.is_broken);
            if step == Step::Wait(Wait::Leader) && is_lost && are_broken {
                return Ok(());
            }
        }
        prop_assert!(
            false,
            "it does not end: {:?} {:?}",
            self,
            self.seen().next()
        );
        Ok(())
    }

    fn change(&mut self, desired: u32, is_broken: bool) {
        self.revision += 1;
        self.desired = desired;
        self.count = self.count.max(desired);
        if is_broken {
            self.broken.push(self.revision);
        }
        self.make_pods();
    }

    /// A pod dies and is made again by the controller; its log stays.
    fn die(&mut self) {
        let up: Vec<u32> = self
            .voters
            .iter()
            .copied()
            .filter(|one| self.is_up(*one))
            .collect();
        if up.len() > self.voters.len() / 2 + 1 {
            let one = up[self.random.random_range(0..up.len())];
            self.pods.get_mut(&one).expect("there").is_up = false;
            self.elect();
        }
    }
}

/// What is done to the pool.
#[derive(Clone, Debug)]
enum Deed {
    /// Another template and number of masters.
    Change(u32, bool),
    Die,
    /// So many looks of the operator, with time between.
    Look(u8),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let sizes = prop::sample::select(vec![1_u32, 3, 5]);
    let deed = prop_oneof![
        2 => (sizes, prop::bool::weighted(0.2)).prop_map(|(size, bad)| Deed::Change(size, bad)),
        1 => Just(Deed::Die),
        6 => (1_u8..12).prop_map(Deed::Look),
    ];
    prop::collection::vec(deed, 1..24)
}

proptest! {
    #[test]
    fn a_roll_takes_no_second_master_away_and_ends(
        size in prop::sample::select(vec![1_u32, 3, 5]),
        has_volumes in prop::bool::ANY,
        deeds in deeds(),
        seed in any::<u64>(),
    ) {
        let mut cluster = Cluster::new(size, has_volumes, seed);
        for deed in deeds {
            match deed {
                Deed::Change(desired, is_broken) => cluster.change(desired, is_broken),
                Deed::Die => cluster.die(),
                Deed::Look(looks) => {
                    for _ in 0..looks {
                        cluster.act()?;
                        cluster.happen();
                    }
                }
            }
        }
        // The last change is a good one: whatever an earlier one broke is repaired.
        let desired = cluster.desired;
        cluster.change(desired, false);
        cluster.must_end()?;
    }
}

fn steps(cluster: &mut Cluster) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..2_000 {
        let step = cluster.act().expect("allowed");
        if !matches!(step, Step::Wait(_) | Step::Done) {
            steps.push(step);
        }
        if step == Step::Done && cluster.is_as_wanted() {
            return steps;
        }
        cluster.happen();
    }
    panic!("it does not end after {steps:?}");
}

#[test]
fn standbys_come_first_and_the_old_leader_last() {
    let mut cluster = Cluster::new(3, true, 1);
    cluster.change(3, false);
    let expected = [
        Step::Replace(2),
        Step::Replace(1),
        Step::Promote(1),
        Step::Replace(0),
    ];
    assert_eq!(steps(&mut cluster), expected);
    assert_eq!(cluster.leader, Some(1));
}

#[test]
fn a_pool_that_shrinks_keeps_a_leader_that_stays() {
    let mut cluster = Cluster::new(3, true, 1);
    cluster.change(1, false);
    let expected = [Step::Promote(1), Step::Replace(0), Step::Promote(0)];
    assert_eq!(steps(&mut cluster), expected);
    cluster.change(3, false);
    let grown = steps(&mut cluster);
    assert_eq!(grown[0], Step::Name);
    assert!(matches!(grown[1], Step::Promote(1 | 2)), "{grown:?}");
    assert_eq!(grown[2..], [Step::Replace(0)]);
}

#[test]
fn a_bad_roll_stops_at_one_and_the_next_begins_with_it() {
    let mut cluster = Cluster::new(5, false, 1);
    cluster.change(5, true);
    for _ in 0..200 {
        cluster.act().expect("allowed");
        cluster.happen();
    }
    assert_eq!(cluster.up(), 4);
    assert_eq!(cluster.seen().next(), Step::Wait(Wait::Master(4)));
    cluster.change(5, false);
    assert_eq!(cluster.seen().next(), Step::Replace(4));
    cluster.must_end().expect("repaired");
}

#[test]
fn without_a_leader_nobody_that_may_be_needed_is_touched() {
    let mut cluster = Cluster::new(3, true, 1);
    cluster.change(3, false);
    cluster.leader = None;
    assert_eq!(cluster.seen().next(), Step::Wait(Wait::Leader));
    let mut seen = cluster.seen();
    let pod = seen.pods.get_mut(&1).expect("there");
    pod.is_running = false;
    assert_eq!(
        seen.next(),
        Step::Replace(1),
        "it crashes, and its volume stays"
    );
    seen.has_volumes = false;
    assert_eq!(seen.next(), Step::Wait(Wait::Leader), "its log would go");
    let pod = seen.pods.get_mut(&1).expect("there");
    pod.has_run = false;
    assert_eq!(seen.next(), Step::Replace(1), "it has none");
}
