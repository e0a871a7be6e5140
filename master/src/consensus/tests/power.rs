//! Machines that lose their power, and disks that are replaced.

use super::super::doubt::Doubt;
use super::*;

impl Group {
    /// The machine loses its power: what was not synced may be gone.
    fn lose_power(&mut self, number: usize, seed: u64) {
        self.kill(number);
        let node = &mut self.nodes[number];
        node.boot += 1;
        node.disk.with(|disk| disk.crash(seed));
    }

    fn number(&self, node: usize) -> u64 {
        self.desk(node).replica
    }

    /// What a master's shell does when its replica is told to join anew.
    async fn join_anew(&mut self, number: usize) {
        let running = self.nodes[number].running.take().expect("up");
        let waits = running.replica.must_join_anew();
        timeout(Duration::from_secs(20), waits).await.expect("told");
        let disk = self.nodes[number].disk.clone();
        let volume: Volume = Arc::new(move || Ok(Box::new(disk.clone())));
        let name = &self.nodes[number].name;
        self.lines
            .send_modify(|lines| drop(lines.desks.remove(name)));
        running.replica.wipe(&volume).await.expect("wiped");
        self.nodes[number].boot += 1;
        self.run(number).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_lost_its_power_joins_anew_under_another_number() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    for number in 0..3 {
        let before = group.number(number);
        group.lose_power(number, 7 + number as u64);
        group.commit(&format!("b{number}")).await;
        group.run(number).await;
        group.pass(100).await;
        group.join_anew(number).await;
        group.commit(&format!("c{number}")).await;
        assert_ne!(group.number(number), before);
        // The others had everything: nobody asks agents for more.
        assert!(group.up().all(|(_, running)| !running.replica.lost_tail()));
    }
}

#[tokio::test(start_paused = true)]
async fn all_that_lost_their_power_go_on_with_the_longest_log() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    for round in 0..5 {
        // Synced by now on all of them.
        group.pass(100).await;
        for number in 0..3 {
            group.lose_power(number, 11 * round + number as u64);
        }
        // Two are not enough: the third may have more.
        group.run(0).await;
        group.run(1).await;
        group.pass(3_000).await;
        assert_eq!(group.leader(), None);
        group.run(2).await;
        group
            .until("a leader", |group| group.leader().is_some())
            .await;
        let leader = group.leader().expect("a leader");
        let leader = group.nodes[leader].running.as_ref().expect("up");
        assert!(leader.replica.lost_tail(), "agents may know more");
        group.commit(&format!("b{round}")).await;
        for kept in 0..round {
            let id = TenantId::new(&format!("b{kept}")).expect("valid");
            assert!(
                group
                    .up()
                    .all(|(_, running)| running.state.tenant(&id).is_some())
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_kept_its_power_hears_that_a_majority_lost_theirs() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    group.pass(100).await;
    let leader = group.leader().expect("a leader");
    for number in (0..3).filter(|number| *number != leader) {
        group.lose_power(number, 5 + number as u64);
    }
    // It may not go on with the log that it has: two of three may have known more.
    group.kill(leader);
    for number in 0..3 {
        group.run(number).await;
    }
    group
        .until("a leader", |group| group.leader().is_some())
        .await;
    let leader = group.leader().expect("a leader");
    let leader = group.nodes[leader].running.as_ref().expect("up");
    assert!(leader.replica.lost_tail());
}

/// Two that settled their doubt may not lead with less than the third has, which asks after them
/// and finds that a quorum has no doubts.
#[tokio::test(start_paused = true)]
async fn the_longest_log_is_not_left_out_when_its_master_asks_last() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    // Synced by now on all of them, as is what one of them has beyond that.
    group.pass(100).await;
    let longest = group.leader().expect("a leader");
    let others = [(longest + 1) % 3, (longest + 2) % 3];
    for number in others {
        group.lose_power(number, 7);
    }
    group.propose(longest, vec![tenant_set("b")]);
    group.pass(100).await;
    group.lose_power(longest, 7);
    // Each asks when it starts and every 100 ms after that: this one before all are there, and
    // again when the others have settled it.
    group.run(longest).await;
    group.pass(90).await;
    group.run(others[0]).await;
    group.pass(60).await;
    group.run(others[1]).await;
    let last = |number: usize| {
        let running = group.nodes[number].running.as_ref().expect("up");
        running.replica.desk().last_entry()
    };
    assert!(others.into_iter().all(|other| last(other) < last(longest)));
    group
        .until("a leader", |group| group.leader().is_some())
        .await;
    assert_eq!(group.leader(), Some(longest));
}

impl Group {
    fn knows_lost_tail(&self) -> bool {
        let leader = self.leader().expect("a leader");
        let leader = self.nodes[leader].running.as_ref().expect("up");
        leader.replica.lost_tail()
    }

    async fn kill_and_run_all(&mut self) {
        let count = self.nodes.len();
        (0..count).for_each(|number| self.kill(number));
        self.pass(50).await;
        for number in 0..count {
            self.run(number).await;
        }
    }

    async fn until_led(&mut self) {
        self.until("a leader", |group| group.leader().is_some())
            .await;
    }
}

/// Those that know of it may die before a leader has asked the agents.
#[tokio::test(start_paused = true)]
async fn a_lost_tail_is_remembered_until_agents_are_asked() {
    for count in [1, 3] {
        let mut group = Group::start(count).await;
        group.commit("a").await;
        group.pass(100).await;
        (0..count).for_each(|number| group.lose_power(number, 3 + number as u64));
        for number in 0..count {
            group.run(number).await;
        }
        group
            .until("the doubt is settled", |group| {
                group
                    .up()
                    .all(|(_, running)| !running.replica.desk().is_doubtful())
            })
            .await;
        for _ in 0..2 {
            group.kill_and_run_all().await;
            group.until_led().await;
            assert!(group.knows_lost_tail(), "{count} masters");
        }
        let term = group.term(group.leader().expect("a leader"));
        for (_, running) in group.up() {
            running.replica.desk().tail_is_sought_in(term);
        }
        group.pass(100).await;
        group.kill_and_run_all().await;
        group.until_led().await;
        assert!(
            !group.knows_lost_tail(),
            "{count} masters: it was asked for"
        );
    }
}

impl Group {
    fn told_to_join_anew(&self) -> Vec<usize> {
        let told = |running: &Running| *running.replica.doubt.borrow() == Doubt::JoinAnew;
        let up = self.up().filter(|(_, running)| told(running));
        up.map(|(number, _)| number).collect()
    }
}

/// A leader that lives has lost its quorum with them, so not both may empty their disks.
#[tokio::test(start_paused = true)]
async fn two_that_lose_their_power_beside_a_leader_leave_a_quorum() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    group.pass(100).await;
    group.commit("late").await;
    let leader = group.leader().expect("a leader");
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    for number in others {
        group.lose_power(number, 7 + number as u64);
    }
    for number in others {
        group.run(number).await;
        // The second comes a little later, and never long after the leader was heard.
        group.pass(50).await;
    }
    group.pass(5_000).await;
    group.until_led().await;
    // One of them may come last, when the other two have everything.
    let told = group.told_to_join_anew();
    assert!(told.len() <= 1, "{told:?}");
    for number in told {
        group.join_anew(number).await;
    }
    group.commit("b").await;
    let late = TenantId::new("late").expect("valid");
    let mut up = group.up();
    assert!(
        up.all(|(_, running)| running.state.tenant(&late).is_some()),
        "the leader had everything, whether it led on or not"
    );
}

/// A kill takes nothing from a disk, so those that settled their doubt and are killed before agents
/// were asked go on with it.
#[tokio::test(start_paused = true)]
async fn two_that_are_killed_after_a_loss_of_power_keep_their_disks() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    group.pass(100).await;
    (0..3).for_each(|number| group.lose_power(number, 9 + number as u64));
    for number in 0..3 {
        group.run(number).await;
    }
    group.until_led().await;
    let leader = group.leader().expect("a leader");
    for number in [(leader + 1) % 3, (leader + 2) % 3] {
        group.kill(number);
        group.run(number).await;
    }
    group.pass(5_000).await;
    assert!(group.told_to_join_anew().is_empty());
    group.until_led().await;
    assert!(group.knows_lost_tail(), "nobody has asked yet");
    group.commit("b").await;
}
