//! A leader gives its office to another.

use super::super::message::PeerRequest;
use super::*;

#[tokio::test(start_paused = true)]
async fn a_leader_hands_its_office_over_at_once() {
    for count in [3, 5] {
        let mut group = Group::start(count).await;
        group.commit("a").await;
        for round in 0..3 {
            let old = group.leader().expect("a leader");
            let to = (old + 1) % count;
            let desk = group.desk(old);
            let name = group.nodes[to].name.clone();
            let handed = tokio::spawn(async move { desk.hand_over(Some(name)).await });
            let ms = group
                .until("the other leads", |group| group.leader() == Some(to))
                .await;
            // With five the promises of two others have to run out first.
            println!("{count} masters: {ms} ms");
            handed.await.expect("ended").expect("handed over");
            group.commit(&format!("b{round}")).await;
        }
        let leader = group.leader().expect("a leader");
        let desk = group.desk(leader);
        desk.hand_over(Some("nobody".to_owned()))
            .await
            .expect_err("unknown");
        group.commit("c").await;
    }
}

/// Who stands for election takes no more entries: one that it lacks would cost it the vote that it
/// needs.
#[tokio::test(start_paused = true)]
async fn what_is_proposed_meanwhile_does_not_hinder_it() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    for late_ms in 0..4 {
        let old = group.leader().expect("a leader");
        let to = (old + 1) % 3;
        let desk = group.desk(old);
        let name = group.nodes[to].name.clone();
        let handed = tokio::spawn(async move { desk.hand_over(Some(name)).await });
        elapse(late_ms).await;
        // A turn that was under way.
        for number in 0..50 {
            group.propose(old, vec![tenant_set(&format!("late{late_ms}-{number}"))]);
        }
        let ms = group
            .until("the other leads", |group| group.leader() == Some(to))
            .await;
        assert!(ms <= 50, "{ms} ms, proposed after {late_ms} ms");
        handed.await.expect("ended").expect("handed over");
        group.commit(&format!("b{late_ms}")).await;
    }
}

/// A leader that stays so goes on with what it proposed meanwhile.
#[tokio::test(start_paused = true)]
async fn what_is_proposed_meanwhile_is_committed_when_nobody_takes_over() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    let old = group.leader().expect("a leader");
    let to = (old + 1) % 3;
    let (desk, name) = (group.desk(old), group.nodes[to].name.clone());
    // It never has everything, and so is never asked to stand for election.
    group.cut(to, &[old], true);
    group.propose(old, vec![tenant_set("b")]);
    let handing = tokio::spawn(async move { desk.hand_over(Some(name)).await });
    elapse(2).await;
    group.propose(old, vec![tenant_set("held")]);
    group.pass(500).await;
    handing.await.expect("ended").expect_err("it is behind");
    group.cut(to, &[old], false);
    let held = TenantId::new("held").expect("valid");
    group
        .until("it is committed", |group| {
            let mut up = group.up();
            up.all(|(_, running)| running.state.tenant(&held).is_some())
        })
        .await;
    assert_eq!(group.leader(), Some(old));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_while_it_hands_over_stirs_up_no_elections() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    let old = group.leader().expect("a leader");
    let term = group.term(old);
    let replica = &group.nodes[old].running.as_ref().expect("up").replica;
    let (desk, raft) = (replica.desk().clone(), replica.raft.clone());
    let handed = tokio::spawn(async move { desk.hand_over(None).await });
    elapse(2).await;
    raft.shutdown().await.expect("stopped");
    timeout(Duration::from_secs(5), handed)
        .await
        .expect("ended")
        .expect("joined")
        .ok();
    group.kill(old);
    group
        .until("another leads", |group| group.leader().is_some())
        .await;
    let next = group.leader().expect("a leader");
    assert!(
        group.term(next) < term + 20,
        "{} after {term}",
        group.term(next)
    );
}

#[tokio::test(start_paused = true)]
async fn only_the_leader_that_it_follows_frees_a_master_of_its_promise() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    let old = group.leader().expect("a leader");
    let (b, c) = ((old + 1) % 3, (old + 2) % 3);
    // It leads by its own lights, and is asked to hand over when it comes back.
    let stale = convert::ballot(
        &group.nodes[old]
            .running
            .as_ref()
            .expect("up")
            .replica
            .metrics
            .borrow()
            .vote,
    );
    group.cut(old, &[b, c], true);
    group
        .until("another leader", |group| {
            group.leader().is_some_and(|leader| leader != old)
        })
        .await;
    group.pass(200).await;
    let new = group.leader().expect("a leader");
    let third = if new == b { c } else { b };
    let (term, desk) = (
        group.term(new),
        group.nodes[third]
            .running
            .as_ref()
            .expect("up")
            .replica
            .desk()
            .clone(),
    );
    let call = PeerCall {
        to: None,
        request: message::PeerRequest::Elect { ballot: stale },
    };
    let answer = desk.answer(&mut PeerSession::default(), call).await;
    assert!(matches!(answer, PeerAnswer::Failed(_)), "{answer:?}");
    group.pass(1_000).await;
    assert_eq!(group.leader(), Some(new));
    assert_eq!(group.term(new), term, "nobody stood for election");
}

#[tokio::test(start_paused = true)]
async fn one_that_leads_already_says_so_when_it_is_asked_once_more_to_stand() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    let old = group.leader().expect("a leader");
    let desk = |group: &Group, number: usize| {
        let running = group.nodes[number].running.as_ref().expect("up");
        running.replica.desk().clone()
    };
    let lead = desk(&group, old);
    let resigning = convert::ballot(&lead.metrics.borrow().vote);
    let handed = tokio::spawn(async move { lead.hand_over(None).await });
    group
        .until("another leads", |group| {
            group.leader().is_some_and(|leader| leader != old)
        })
        .await;
    handed.await.expect("ended").expect("handed over");
    let next = group.leader().expect("a leader");
    let (desk, term) = (desk(&group, next), group.term(next));
    let call = PeerCall {
        to: None,
        request: PeerRequest::Elect { ballot: resigning },
    };
    let answer = desk.answer(&mut PeerSession::default(), call).await;
    assert_eq!(answer, PeerAnswer::Elects);
    group.pass(1_000).await;
    assert_eq!(group.leader(), Some(next));
    assert_eq!(group.term(next), term, "it stands for no other election");
}
