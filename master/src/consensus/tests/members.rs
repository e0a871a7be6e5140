//! The number of masters changes while the pool serves.

use super::*;

impl Group {
    /// The names of the voters, as a master sees them.
    fn voters(&self, number: usize) -> Vec<String> {
        let running = self.nodes[number].running.as_ref().expect("up");
        let masters = running.replica.desk().masters().masters;
        let mut names: Vec<String> = masters
            .into_iter()
            .filter(|master| master.is_voter)
            .map(|master| master.name)
            .collect();
        names.sort_unstable();
        names
    }

    /// Whether a replica votes, as anybody sees it.
    fn is_voter(&self, number: usize) -> bool {
        let me = self.desk(number).replica;
        self.up().any(|(_, running)| {
            let metrics = running.replica.metrics.borrow();
            let membership = metrics.membership_config.membership();
            membership.voter_ids().any(|voter| voter == me)
        })
    }

    /// Its machine stops and gets a new disk, and with it another number when it runs again.
    fn replace_disk(&mut self, number: usize) {
        self.kill(number);
        self.nodes[number].disk = SharedDisk::default();
        self.nodes[number].boot += 1;
    }

    async fn until_voters(&mut self, number: usize, names: &[&str]) {
        self.until(&format!("the voters {names:?}"), |group| {
            group.voters(number) == names
        })
        .await;
    }

    /// As a pod that is made again with the present configuration.
    async fn restart(&mut self, number: usize) {
        self.kill(number);
        // Until the last of its tasks has ended, as a process has when it is gone.
        self.pass(50).await;
        self.run(number).await;
    }

    /// As the operator does: one that is not in sync yet is asked again.
    async fn promote(&mut self, number: usize) {
        for _ in 0..10 {
            self.until("a leader", |group| group.leader().is_some())
                .await;
            let leader = self.leader().expect("a leader");
            if leader == number {
                return;
            }
            let desk = self.desk(leader);
            let name = self.nodes[number].name.clone();
            let handing = tokio::spawn(async move { desk.hand_over(Some(name)).await });
            self.pass(1_000).await;
            drop(handing.await.expect("no panic"));
        }
        panic!("master {number} was never promoted");
    }

    fn expect(&self, number: usize, names: &[&str]) {
        let running = self.nodes[number].running.as_ref().expect("up");
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        running.replica.desk().expect(names).expect("it leads");
    }

    async fn grow(&mut self, count: usize) {
        self.configured = count;
        while self.nodes.len() < count {
            self.add();
        }
        for number in 0..count {
            if self.nodes[number].running.is_none() {
                self.run(number).await;
            }
        }
    }
}

const ALL: [&str; 3] = ["master-0", "master-1", "master-2"];

#[tokio::test(start_paused = true)]
async fn one_grows_to_three_and_shrinks_to_one_again() {
    let mut group = Group::start(1).await;
    group.commit("a").await;
    // The new ones come first and are let in by nobody; the one that is alone leads on.
    group.grow(3).await;
    group.pass(5_000).await;
    assert_eq!(group.voters(0), ["master-0"]);
    assert_eq!(group.leader(), Some(0));
    // It need not start again for them.
    let term = group.term(0);
    group.expect(0, &ALL);
    group.until_voters(0, &ALL).await;
    assert_eq!((group.leader(), group.term(0)), (Some(0), term));
    group.commit("b").await;

    // Fewer: the one that stays hears of it, and leads.
    group.configured = 1;
    let leader = group.leader().expect("a leader");
    if leader == 0 {
        group.promote(1).await;
    }
    group.restart(0).await;
    group.promote(0).await;
    group.until_voters(0, &ALL[..1]).await;
    group.kill(1);
    group.kill(2);
    group.pass(1_000).await;
    assert_eq!(group.leader(), Some(0), "it needs nobody");
    group.commit("c").await;

    // And back, with the disks that they had.
    group.grow(3).await;
    group.restart(0).await;
    group.until_voters(0, &ALL).await;
    group.commit("d").await;
    group.kill(0);
    group.commit("e").await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_dropped_while_the_others_are_too_few() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    group.promote(0).await;
    group.configured = 2;
    group.promote(2).await;
    group.restart(0).await;
    group.commit("b").await;
    group.promote(0).await;
    // The third is the only other one that is in sync.
    group.kill(1);
    group.pass(30_000).await;
    assert_eq!(group.voters(0), ALL);
    assert_eq!(group.leader(), Some(0));
    group.run(1).await;
    group.until_voters(0, &ALL[..2]).await;
    group.kill(2);
    group.commit("c").await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_knows_all_masters_drops_none() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    let leader = group.leader().expect("a leader");
    let other = (leader + 1) % 3;
    group.kill(other);
    group.pass(60_000).await;
    assert_eq!(group.voters(leader), ALL);
}

#[tokio::test(start_paused = true)]
async fn a_voter_that_was_dropped_while_it_was_away_asks_to_be_let_in() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    group.promote(2).await;
    group.configured = 2;
    group.restart(0).await;
    group.commit("b").await;
    group.promote(0).await;
    group.cut(2, &[0, 1], true);
    group.until_voters(0, &ALL[..2]).await;
    assert_eq!(group.voters(2), ALL, "it has not heard of it");
    // It is wanted after all.
    group.configured = 3;
    group.promote(1).await;
    group.restart(0).await;
    group.commit_without(2, "c").await;
    group.promote(0).await;
    group.cut(2, &[0, 1], false);
    group.until_voters(0, &ALL).await;
    group.commit("d").await;
}

impl Group {
    /// As [`Group::commit`], where one is cut off.
    async fn commit_without(&mut self, away: usize, tenant: &str) {
        let running = self.nodes[away].running.take();
        self.commit(tenant).await;
        self.nodes[away].running = running;
    }
}

/// Of a leader that fell silent nobody hears that it lets nobody in any more.
#[tokio::test(start_paused = true)]
async fn one_that_waits_to_be_let_in_asks_the_next_leader() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    let leader = group.leader().expect("a leader");
    let (joining, other) = ((leader + 1) % 3, (leader + 2) % 3);
    group.replace_disk(joining);
    // The other one says who leads, and what is asked there is lost.
    group.cut(joining, &[leader], true);
    group.run(joining).await;
    group.pass(1_000).await;
    group.promote(other).await;
    group
        .until("it votes", |group| group.is_voter(joining))
        .await;
}

/// A voter that has nothing would make quorums with those that have what counts.
#[tokio::test(start_paused = true)]
async fn one_votes_only_when_it_has_everything() {
    let mut group = Group::start(3).await;
    group.commit("a").await;
    let leader = group.leader().expect("a leader");
    let (joining, other) = ((leader + 1) % 3, (leader + 2) % 3);
    group.replace_disk(joining);
    // What it asks is heard, and nothing gets to it.
    let name = |number: usize| ALL[number].to_owned();
    let way = (name(leader), name(joining));
    group.lines.send_modify(|lines| {
        lines.cut.insert(way.clone());
    });
    group.run(joining).await;
    for _ in 0..40 {
        group.pass(500).await;
        assert!(!group.is_voter(joining));
    }
    // And it holds up nobody.
    group.commit_without(joining, "b").await;
    assert_eq!(group.leader(), Some(leader));
    assert!(group.voters(other).len() == 3);
    group.lines.send_modify(|lines| {
        lines.cut.remove(&way);
    });
    group
        .until("it votes", |group| group.is_voter(joining))
        .await;
    group.commit("c").await;
}
