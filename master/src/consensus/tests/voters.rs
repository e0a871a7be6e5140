//! Changes of the voters.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_next_leader_ends_a_change_of_voters_that_was_under_way() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    let old = group.leader().expect("a leader");
    let witness = (old + 1) % 3;
    let replica = |group: &Group, number: usize| {
        let running = group.nodes[number].running.as_ref().expect("up");
        running.replica.desk().clone()
    };
    let is_joint = |desk: &desk::PeerDesk| {
        let metrics = desk.metrics.borrow();
        let membership = metrics.membership_config.membership();
        membership.get_joint_config().len() > 1
    };
    // One of the new voters is away, so that they cannot agree to the change yet.
    let third = 3 - old - witness;
    group.cut(third, &[old, witness], true);
    let (lead, sees) = (replica(&group, old), replica(&group, witness));
    let voters = BTreeSet::from([lead.replica, replica(&group, third).replica]);
    let raft = lead.raft.clone();
    let change = openraft::ChangeMembers::ReplaceAllVoters(voters);
    let changed = tokio::spawn(async move { raft.change_membership(change, false).await });
    group
        .until("the others hear of the change", |_| is_joint(&sees))
        .await;
    assert!(!changed.is_finished());
    // It dies between the two steps of a change.
    group.kill(old);
    changed.abort();
    drop((lead, sees));
    group.cut(third, &[old, witness], false);
    group.run(old).await;
    group
        .until("the change is ended", |group| {
            let leader = group.leader();
            leader.is_some_and(|leader| !is_joint(&replica(group, leader)))
        })
        .await;
    let leader = group.leader().expect("a leader");
    let metrics = replica(&group, leader).metrics.clone();
    let metrics = metrics.borrow();
    let membership = metrics.membership_config.membership();
    assert_eq!(membership.voter_ids().count(), 2);
}
