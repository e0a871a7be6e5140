//! Who is a master of the pool: what a leader says of the others, whom it expects, and how it drops
//! voters that it does not.

use std::collections::BTreeSet;
use std::time::Duration;

use openraft::metrics::{RaftDataMetrics, RaftServerMetrics};
use openraft::{ChangeMembers, ServerState};
use serde::Serialize;
use tokio::time::timeout;

use super::Member;
use super::desk::PeerDesk;

/// So many looks in a row, an election time apart, have to find a voter unnamed before it is
/// dropped: a leader that is itself about to get another configuration does not hurry.
const LOOKS: u32 = 10;
/// How long a change may take. openraft goes on with it after that; the next look sees what came
/// of it.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// The most masters of a pool.
const NAMED_MAX: usize = 5;
/// Entries that a standby in sync may lack: what is on its way under load.
pub(super) const BEHIND_MAX: u64 = 1_024;

/// A master of the pool, as another one sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct MasterStanding {
    pub(crate) name: String,
    pub(crate) addr: String,
    /// Whether it counts for a quorum; one that joins does not until it has caught up.
    pub(crate) is_voter: bool,
    /// Whether it took an append within the last election time and has all but the latest
    /// entries. Only the leader knows.
    pub(crate) in_sync: bool,
    #[serde(skip)]
    id: u64,
}

/// Who leads and who follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct MastersStanding {
    pub(crate) leader: Option<String>,
    pub(crate) term: u64,
    /// The names of all that it lets in; it drops the others.
    pub(crate) named: BTreeSet<String>,
    /// By the replicas' numbers.
    pub(crate) masters: Vec<MasterStanding>,
}

impl PeerDesk {
    /// The masters as this one sees them. Only a leader knows who is in sync.
    pub(crate) fn masters(&self) -> MastersStanding {
        let metrics = self.metrics.borrow();
        let membership = metrics.membership_config.membership();
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        let leads = metrics.state == ServerState::Leader;
        let term = metrics.vote.leader_id.term;
        let master = |(id, node): (&u64, &Member)| MasterStanding {
            name: node.name.clone(),
            addr: node.addr.clone(),
            is_voter: voters.contains(id),
            in_sync: leads && self.is_in_sync(*id, term),
            id: *id,
        };
        let leader = metrics.current_leader;
        let leader = leader.and_then(|id| membership.get_node(&id));
        MastersStanding {
            leader: leader.map(|leader| leader.name.clone()),
            term,
            named: self.named.borrow().clone(),
            masters: membership.nodes().map(master).collect(),
        }
    }

    /// From now on these are the masters of the pool, as far as this one is concerned, whatever its
    /// configuration says: until it starts again, and counting only while it leads. So one that is
    /// alone need not start again to let others in, which would cost it its log where that goes
    /// with its pod.
    ///
    /// # Errors
    /// Why they cannot be, for people.
    pub(crate) fn expect(&self, names: BTreeSet<String>) -> Result<(), String> {
        if self.metrics.borrow().state != ServerState::Leader {
            return Err("this master does not lead".to_owned());
        }
        if !names.contains(&self.me.name) || names.len() > NAMED_MAX {
            let me = &self.me.name;
            return Err(format!("name at most {NAMED_MAX} masters, and {me} too"));
        }
        self.named.send_replace(names);
        Ok(())
    }

    /// Whether this leader was heard within the last election time or, if it is this replica, a
    /// quorum followed it then. openraft goes on to name one that is long gone, also itself.
    pub(super) fn is_led_by(&self, leader: u64, metrics: &RaftServerMetrics<u64, Member>) -> bool {
        let now_ms = (self.clock)();
        let since_ms = now_ms.saturating_sub(self.election_ms);
        if leader != self.replica {
            return self.heard.at_ms() >= since_ms;
        }
        let configs = metrics.membership_config.membership().get_joint_config();
        let (term, rounds) = (metrics.vote.leader_id.term, self.rounds.borrow());
        let quorum_ms = rounds.quorum_ms(term, leader, configs, now_ms);
        quorum_ms.is_some_and(|begun_ms| begun_ms >= since_ms)
    }

    fn is_in_sync(&self, id: u64, term: u64) -> bool {
        if id == self.replica {
            return true;
        }
        let taken_ms = self.rounds.borrow().taken_ms(id, term);
        let since_ms = taken_ms.map(|at_ms| (self.clock)().saturating_sub(at_ms));
        let data = self.data.borrow();
        let last = data.last_log.map_or(0, |at| at.index);
        let matched = matched(&data, id).unwrap_or(0);
        since_ms.is_some_and(|ms| ms < self.election_ms) && matched + BEHIND_MAX >= last
    }
}

/// The last entry that a leader knows another replica to have. `None`: none yet, or nobody leads.
pub(super) fn matched(data: &RaftDataMetrics<u64>, id: u64) -> Option<u64> {
    let all = data.replication.as_ref()?;
    all.get(&id)?.map(|at| at.index)
}

/// Voters that are not named, and how often in a row they were seen.
#[derive(Debug, Default)]
pub(super) struct Unnamed {
    ids: BTreeSet<u64>,
    looks: u32,
}

impl Unnamed {
    /// Whether these have been seen often enough.
    fn have_gone(&mut self, ids: BTreeSet<u64>) -> bool {
        if self.ids != ids {
            self.ids = ids;
            self.looks = 0;
        }
        self.looks = self.looks.saturating_add(1);
        !self.ids.is_empty() && self.looks > LOOKS
    }
}

/// Drops one voter that is not named any more, if this replica leads and has seen it
/// for long enough. One at a time, so that the quorums of two neighbours always meet in more than
/// the leader.
pub(super) async fn drop_unnamed(desk: &PeerDesk, unnamed: &mut Unnamed) {
    let (leads, is_changing) = {
        let metrics = desk.metrics.borrow();
        let membership = metrics.membership_config.membership();
        let is_changing = membership.get_joint_config().len() != 1;
        (metrics.state == ServerState::Leader, is_changing)
    };
    let MastersStanding { masters, named, .. } = desk.masters();
    let voters = masters.iter().filter(|master| master.is_voter);
    let gone = voters.filter(|master| !named.contains(&master.name));
    let gone: BTreeSet<u64> = gone.map(|master| master.id).collect();
    if !unnamed.have_gone(if leads { gone } else { BTreeSet::new() }) || is_changing {
        return;
    }
    let Some((id, rest)) = next(&masters, &unnamed.ids) else {
        tracing::warn!("masters are to leave the pool, and too few of the others are in sync");
        return;
    };
    let changes = ChangeMembers::ReplaceAllVoters(rest);
    let changed = timeout(CHANGE_TIMEOUT, desk.raft.change_membership(changes, false)).await;
    match changed {
        Ok(Ok(_)) => tracing::info!(id, "a master that is not named any more was dropped"),
        Ok(Err(error)) => tracing::warn!(id, %error, "a master was not dropped"),
        Err(_) => tracing::warn!(
            id,
            "a master is being dropped, and the others do not confirm it"
        ),
    }
}

/// Whom to drop next, and the voters that are left. `None` where those would have no quorum in
/// sync, and so might not go on. Pure.
fn next(masters: &[MasterStanding], gone: &BTreeSet<u64>) -> Option<(u64, BTreeSet<u64>)> {
    let voters = || masters.iter().filter(|master| master.is_voter);
    // Who is away anyway goes first: the others are then a quorum more easily.
    let going = voters().filter(|master| gone.contains(&master.id));
    let id = going.min_by_key(|master| (master.in_sync, master.id))?.id;
    let rest = || voters().filter(|master| master.id != id);
    let in_sync = rest().filter(|master| master.in_sync).count();
    (in_sync > rest().count() / 2).then(|| (id, rest().map(|master| master.id).collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn masters(list: &[(bool, bool)]) -> Vec<MasterStanding> {
        let master = |(id, (is_voter, in_sync)): (usize, &(bool, bool))| MasterStanding {
            name: format!("m{id}"),
            addr: String::new(),
            is_voter: *is_voter,
            in_sync: *in_sync,
            id: id as u64,
        };
        list.iter().enumerate().map(master).collect()
    }

    #[test]
    fn who_is_away_goes_first() {
        let three = masters(&[(true, true), (true, true), (true, false)]);
        let gone = BTreeSet::from([1, 2]);
        assert_eq!(next(&three, &gone), Some((2, BTreeSet::from([0, 1]))));
        let two = masters(&[(true, true), (true, true)]);
        assert_eq!(
            next(&two, &BTreeSet::from([1])),
            Some((1, BTreeSet::from([0])))
        );
    }

    #[test]
    fn a_voter_is_dropped_only_after_many_looks_in_a_row() {
        let mut unnamed = Unnamed::default();
        let seen = || BTreeSet::from([2]);
        assert!((0..LOOKS).all(|_| !unnamed.have_gone(seen())));
        assert!(unnamed.have_gone(seen()));
        assert!(!unnamed.have_gone(BTreeSet::from([1, 2])));
        assert!(!unnamed.have_gone(BTreeSet::new()));
        assert!((0..LOOKS).all(|_| !unnamed.have_gone(seen())));
    }

    proptest! {
        #[test]
        fn what_is_left_can_go_on(
            list in prop::collection::vec((prop::bool::ANY, prop::bool::ANY), 1..6),
            gone in prop::collection::btree_set(1_u64..6, 0..5),
        ) {
            let mut masters = masters(&list);
            // The leader.
            masters[0].is_voter = true;
            masters[0].in_sync = true;
            if let Some((id, rest)) = next(&masters, &gone) {
                prop_assert!(gone.contains(&id) && !rest.contains(&id) && rest.contains(&0));
                let in_sync = masters.iter().filter(|m| rest.contains(&m.id) && m.in_sync);
                prop_assert!(in_sync.count() > rest.len() / 2);
                let voters = masters.iter().filter(|m| m.is_voter).count();
                prop_assert_eq!(rest.len() + 1, voters);
            }
        }
    }
}
