//! Stands for election when no leader is heard of and a quorum agrees that there is none.
//!
//! Without asking first, a replica that was cut off for a while would come back with a higher
//! term and depose a healthy leader (the pre-vote of Ongaro's thesis, 9.6).
//!
//! Where answers take longer than the pauses between two tries, two candidates would depose each
//! other for seconds, each with a higher term. So one that voted for another gives it time to win,
//! and one that stood in vain waits longer each time: a vote is synced before it is answered, by
//! the candidate and by the other one, and a slow disk takes its time for that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::ServerState;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Member;
use super::desk::PeerDesk;
use super::link::{Link, Transport};
use super::message::{PeerAnswer, PeerCall, PeerRequest};
use super::network::Network;

/// The voters, as they are at the moment.
struct Voters {
    configs: Vec<BTreeSet<u64>>,
    others: BTreeMap<u64, Member>,
}

impl Voters {
    /// `None`: this replica leads or has no vote.
    fn of(desk: &PeerDesk) -> Option<Self> {
        let metrics = desk.metrics.borrow();
        let membership = metrics.membership_config.membership();
        let is_voter = membership.voter_ids().any(|voter| voter == desk.replica);
        if metrics.state == ServerState::Leader || !is_voter {
            return None;
        }
        let others = membership
            .voter_ids()
            .filter(|voter| *voter != desk.replica)
            .filter_map(|voter| Some((voter, membership.get_node(&voter)?.clone())))
            .collect();
        Some(Self {
            configs: membership.get_joint_config().clone(),
            others,
        })
    }

    /// Whether these are a quorum of every set of voters.
    fn suffice(&self, agreed: &BTreeSet<u64>) -> bool {
        self.configs
            .iter()
            .all(|voters| voters.intersection(agreed).count() > voters.len() / 2)
    }
}

/// The pause after a try in vain doubles so often at most.
const DOUBLINGS_MAX: u32 = 3;

/// Stands for election whenever it is time, until it is dropped.
pub(super) async fn stand<T: Transport>(desk: PeerDesk, network: Network<T>, seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let step_ms = (desk.election_ms / 4).max(2);
    // Those who find out at the same time do not stand at the same time.
    let mut patience_ms = random.random_range(1..=step_ms);
    let (mut heard_ms, mut tries) = (0, 0_u32);
    loop {
        let Some(voters) = Voters::of(&desk) else {
            sleep(Duration::from_millis(step_ms)).await;
            continue;
        };
        let now_ms = (desk.clock)();
        let silent_ms = now_ms.saturating_sub(desk.heard.at_ms());
        if desk.heard.at_ms() != heard_ms {
            (heard_ms, tries) = (desk.heard.at_ms(), 0);
        }
        // Alone it has promised nothing to anybody.
        let wait_ms = (desk.election_ms + patience_ms).saturating_sub(silent_ms);
        let voted = desk.heard.voted_ms();
        let doublings = tries.saturating_sub(1).min(DOUBLINGS_MAX);
        let yields_ms = voted.map_or(0, |at_ms| {
            at_ms + ((2 * step_ms) << doublings) + patience_ms
        });
        let wait_ms = wait_ms.max(yields_ms.saturating_sub(now_ms));
        if !voters.others.is_empty() && wait_ms > 0 {
            sleep(Duration::from_millis(wait_ms)).await;
            // A leader may have been heard meanwhile.
            continue;
        }
        let may_stand = !desk.is_doubtful() && desk.last_entry() >= *desk.floor.borrow();
        if may_stand && is_agreed(&desk, &network, &voters).await {
            tracing::info!(
                replica = desk.replica,
                "no leader is heard: standing for election"
            );
            if desk.raft.trigger().elect().await.is_err() {
                // openraft has stopped; whoever watches it says why.
                return;
            }
            tries += 1;
        }
        patience_ms = random.random_range(1..=step_ms);
        let doublings = tries.saturating_sub(1).min(DOUBLINGS_MAX);
        let pause_ms = (step_ms + random.random_range(0..=step_ms)) << doublings;
        sleep(Duration::from_millis(pause_ms)).await;
    }
}

/// Whether a quorum would vote for this replica, itself counted. Waits for no more answers than
/// it takes: the leader that is gone may not even refuse.
async fn is_agreed<T: Transport>(desk: &PeerDesk, network: &Network<T>, voters: &Voters) -> bool {
    let mut agreed = BTreeSet::from([desk.replica]);
    if voters.suffice(&agreed) {
        return true;
    }
    let last = desk.last_entry();
    let within = Duration::from_millis((desk.election_ms / 2).max(1));
    let mut asked = JoinSet::new();
    for (id, member) in &voters.others {
        let (id, mut link) = (*id, network.link(member));
        asked.spawn(async move {
            let request = PeerRequest::PreVote { last };
            let call = PeerCall {
                to: Some(id),
                request,
            };
            match link.call(&call, within).await {
                Ok(PeerAnswer::PreVote {
                    is_granted: true,
                    lost_tail,
                }) => Some((id, lost_tail)),
                _ => None,
            }
        });
    }
    while let Some(answer) = asked.join_next().await {
        if let Some((id, lost_tail)) = answer.ok().flatten() {
            agreed.insert(id);
            // So many of them are that no quorum is without one.
            if lost_tail {
                desk.loses_tail();
            }
        }
        if voters.suffice(&agreed) {
            // It may have been heard while they were asked.
            return (desk.clock)() >= desk.heard.at_ms() + desk.election_ms;
        }
    }
    false
}
