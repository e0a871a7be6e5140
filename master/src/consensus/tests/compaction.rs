//! Snapshots, and how far the log goes behind them.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_log_goes_behind_the_older_of_two_snapshots() {
    let mut group = Group::start(1).await;
    group.kill(0);
    group.growth_bytes = 1;
    group.run(0).await;
    for round in 0..6 {
        group.commit(&format!("a{round}")).await;
        // More than the last snapshot has, or none is due.
        let again = (0..2_000).map(|_| tenant_set("a0")).collect();
        group.propose(0, again);
        group.pass(6_000).await;
    }
    let raft = group.nodes[0]
        .running
        .as_ref()
        .expect("up")
        .replica
        .raft
        .clone();
    let (snapshot, purged) = {
        let data = raft.data_metrics();
        let data = data.borrow();
        (data.snapshot, data.purged)
    };
    let (snapshot, purged) = (snapshot.expect("taken"), purged.expect("purged"));
    assert!(purged < snapshot, "{purged} {snapshot}");
    let kept = larder_oplog::snapshots(&mut group.nodes[0].disk.clone()).expect("read");
    assert_eq!(kept.len(), 2);
    assert_eq!(purged.index, kept[0].index);
    let digest = group.nodes[0].running.as_ref().expect("up").state.digest();
    group.kill(0);
    group.run(0).await;
    group
        .until("it leads", |group| group.leader().is_some())
        .await;
    assert_eq!(
        group.nodes[0].running.as_ref().expect("up").state.digest(),
        digest
    );
}
