//! Masters of two releases side by side.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_release_is_that_of_the_last_master() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    for number in 0..3 {
        // One after the other is started with the next release.
        group.kill(number);
        group.nodes[number].release = 2;
        group.run(number).await;
        group.commit(&format!("b{number}")).await;
        group.pass(5_000).await;
        let leader = group.leader().expect("a leader");
        let leader = group.nodes[leader].running.as_ref().expect("up");
        let expected = if number == 2 { 2 } else { 1 };
        assert_eq!(leader.log.as_ref().expect("leads").release(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_agreed_on_while_one_does_not_answer() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    for number in 0..3 {
        group.kill(number);
        group.nodes[number].release = 2;
        group.run(number).await;
        group
            .until("a leader", |group| group.leader().is_some())
            .await;
    }
    group.pass(5_000).await;
    let leader = group.leader().expect("a leader");
    let standby = (0..3).find(|number| *number != leader).expect("three");
    group.kill(standby);
    group.kill(leader);
    group.nodes[leader].release = 3;
    group.nodes[standby].release = 2;
    let third = 3 - leader - standby;
    group.kill(third);
    group.nodes[third].release = 3;
    group.run(leader).await;
    group.run(third).await;
    group.commit("b").await;
    group.pass(5_000).await;
    let leads = group.leader().expect("a leader");
    let leads = group.nodes[leads].running.as_ref().expect("up");
    assert_eq!(leads.log.as_ref().expect("leads").release(), 0);
}
