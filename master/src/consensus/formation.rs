//! How a pool gets its first membership, and how a master that starts with an empty disk, or was
//! dropped before, is let into one that has it.

use std::collections::BTreeMap;
use std::time::Duration;

use openraft::{ChangeMembers, ServerState};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::Member;
use super::desk::PeerDesk;
use super::link::{Link, Transport};
use super::membership::{self, Unnamed, matched};
use super::message::{PeerAnswer, PeerCall, PeerRequest, WhoIs};
use super::network::Network;

/// How long to wait before the others are asked again.
const ASK_PAUSE: Duration = Duration::from_millis(100);
/// The longest such pause, for one that is refused again and again.
const ASK_PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long an answer may take.
const ASK_TIMEOUT: Duration = Duration::from_millis(500);
/// So many election times without a word of a leader make a voter ask whether it is one still.
const LOST_ELECTIONS: u64 = 10;
/// How long to wait for an answer of the leader. One that fell silent never says that it leads no
/// more, and the next one is to be asked; one that takes longer goes on, and is asked again.
const JOIN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the leader waits for one that learns. It asks again, and the others wait no longer.
const LEARN_TIMEOUT: Duration = Duration::from_secs(3);
/// After so many rounds without success it is said what is missing.
const SAY_AFTER_ROUNDS: u32 = 50;

/// Another master asks to be let in.
pub(super) struct Join {
    pub(super) id: u64,
    pub(super) member: Member,
    pub(super) reply: oneshot::Sender<Result<(), String>>,
}

/// Sees to it that this replica is a member: forms the pool together with all others when none of
/// them has ever been in one, or asks the leader to be let in. Goes on for as long as the replica
/// lives, as one that was dropped may be wanted again, and need not have heard that it was.
///
/// All have to answer before a pool is formed. One that is not heard may hold its log: a new one
/// beside it would be a second pool.
pub(super) async fn form<T: Transport>(
    desk: PeerDesk,
    network: Network<T>,
    configured: Vec<Member>,
) {
    let mut tries = 0;
    for round in 1_u32.. {
        if is_voter(&desk) {
            sleep(Duration::from_millis(desk.election_ms)).await;
            if !is_lost(&desk) {
                tries = 0;
                continue;
            }
        }
        let me = desk.who();
        if desk.is_doubtful() {
            sleep(ASK_PAUSE).await;
            continue;
        }
        let known = ask_all(&desk, &network, &configured, me).await;
        // What this one remembers may be long over, and a call to there wait for a long time.
        let others = known.values().filter(|who| who.id != desk.replica);
        let leader = others.filter_map(|who| who.leader.clone()).next();
        let missing: Vec<&str> = configured
            .iter()
            .map(|member| member.name.as_str())
            .filter(|name| !known.contains_key(*name))
            .collect();
        let are_new = known.values().all(|who| !who.is_formed);
        let is_first = known.keys().next() == Some(&desk.me.name);
        if let Some((id, member)) = leader {
            join(&desk, &network, id, &member).await;
            tries += 1;
        } else if missing.is_empty() && are_new && is_first {
            initialize(&desk, &configured, &known).await;
        } else if round % SAY_AFTER_ROUNDS == 0 {
            if are_new {
                let missing = missing.join(", ");
                tracing::warn!(missing, "the pool begins when all of its masters answer");
            } else {
                tracing::warn!("this master joins when the others have a leader");
            }
        }
        let pause = ASK_PAUSE.saturating_mul(1 << tries.min(6));
        sleep(pause.min(ASK_PAUSE_MAX)).await;
    }
}

/// Whether a voter hears of no leader for so long that it may be none any more: the others may
/// have dropped it while it was away.
fn is_lost(desk: &PeerDesk) -> bool {
    let silent_ms = (desk.clock)().saturating_sub(desk.heard.at_ms());
    let leads = desk.metrics.borrow().state == ServerState::Leader;
    !leads && silent_ms > LOST_ELECTIONS * desk.election_ms
}

fn is_voter(desk: &PeerDesk) -> bool {
    let metrics = desk.metrics.borrow();
    let membership = metrics.membership_config.membership();
    membership.voter_ids().any(|voter| voter == desk.replica)
}

/// What every configured master says of itself that answers, this one included.
pub(super) async fn ask_all<T: Transport>(
    desk: &PeerDesk,
    network: &Network<T>,
    configured: &[Member],
    me: WhoIs,
) -> BTreeMap<String, WhoIs> {
    let mut known = BTreeMap::from([(desk.me.name.clone(), me)]);
    for member in configured {
        if member.name == desk.me.name {
            continue;
        }
        let call = PeerCall {
            to: None,
            request: PeerRequest::Who,
        };
        match network.link(member).call(&call, ASK_TIMEOUT).await {
            Ok(PeerAnswer::Who(who)) if who.name == member.name => {
                known.insert(member.name.clone(), who);
            }
            Ok(PeerAnswer::Who(who)) => {
                let (expected, found) = (&member.name, &who.name);
                tracing::warn!(expected, found, "another master answers there");
            }
            Ok(other) => tracing::debug!(?other, "no answer to who are you"),
            Err(error) => {
                let error = larder_telemetry::error_chain(&error);
                tracing::debug!(member = %member, error, "a master does not answer");
            }
        }
    }
    known
}

async fn initialize(desk: &PeerDesk, configured: &[Member], known: &BTreeMap<String, WhoIs>) {
    let members: BTreeMap<u64, Member> = configured
        .iter()
        .filter_map(|member| Some((known.get(&member.name)?.id, member.clone())))
        .collect();
    let count = members.len();
    match desk.raft.initialize(members).await {
        Ok(()) => tracing::info!(masters = count, "the pool is formed"),
        // Asked twice, or the others were faster: the next round sees a membership.
        Err(error) => tracing::debug!(%error, "the pool was not formed"),
    }
}

async fn join<T: Transport>(desk: &PeerDesk, network: &Network<T>, id: u64, leader: &Member) {
    let request = PeerRequest::Join {
        id: desk.replica,
        member: desk.me.clone(),
    };
    let call = PeerCall {
        to: Some(id),
        request,
    };
    match network.link(leader).call(&call, JOIN_TIMEOUT).await {
        Ok(PeerAnswer::Joined) => tracing::info!(leader = %leader, "this master was let in"),
        Ok(other) => tracing::debug!(?other, "not let in yet"),
        Err(error) => {
            let error = larder_telemetry::error_chain(&error);
            tracing::debug!(error, "the leader was not reached");
        }
    }
}

/// Lets masters in, one at a time, while this replica leads, drops those that are to be none, and
/// ends what another leader began. One task for all: each goes by the voters as they are.
pub(super) async fn admit(desk: PeerDesk, mut joins: mpsc::Receiver<Join>) {
    let mut unnamed = Unnamed::default();
    let mut metrics = desk.metrics.clone();
    let mut beat = tokio::time::interval(Duration::from_millis(desk.election_ms));
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let join = tokio::select! {
            join = joins.recv() => join,
            changed = metrics.changed() => {
                if changed.is_err() {
                    return;
                }
                end_change(&desk).await;
                continue;
            }
            _ = beat.tick() => {
                membership::drop_unnamed(&desk, &mut unnamed).await;
                continue;
            }
        };
        let Some(join) = join else { return };
        let done = let_in(&desk, join.id, &join.member).await;
        if let Err(why) = &done {
            tracing::warn!(member = %join.member, why, "a master was not let in");
        }
        // Whoever asked may have gone; it asks again.
        drop(join.reply.send(done));
    }
}

/// Ends a change of the voters that a former leader began and did not live to end: until then
/// both the old and the new voters have to agree on everything, and one that is gone for good
/// still counts among the old ones.
async fn end_change(desk: &PeerDesk) {
    while is_changing(desk) {
        let last = ChangeMembers::AddVoterIds(std::collections::BTreeSet::new());
        match desk.raft.change_membership(last, false).await {
            Ok(_) => tracing::info!("a change of the masters that was under way is ended"),
            Err(error) => {
                tracing::debug!(%error, "the change of the masters is not ended yet");
                sleep(ASK_PAUSE).await;
            }
        }
    }
}

/// Whether this replica leads while the voters change.
fn is_changing(desk: &PeerDesk) -> bool {
    let metrics = desk.metrics.borrow();
    let membership = metrics.membership_config.membership();
    metrics.state == ServerState::Leader && membership.get_joint_config().len() > 1
}

/// A new voter first learns everything, then takes the place of the one of its name.
async fn let_in(desk: &PeerDesk, id: u64, member: &Member) -> Result<(), String> {
    if desk.metrics.borrow().state != ServerState::Leader {
        return Err("this master does not lead".to_owned());
    }
    if !desk.named.borrow().contains(&member.name) {
        return Err(format!(
            "{} is none of this pool's masters; name it in `members` of every master",
            member.name
        ));
    }
    let is_voter = {
        let metrics = desk.metrics.borrow();
        let membership = metrics.membership_config.membership();
        membership.voter_ids().any(|voter| voter == id)
    };
    if is_voter {
        // It did not hear of this leader for a while.
        return Ok(());
    }
    learn(desk, id, member).await?;
    let voters = {
        let metrics = desk.metrics.borrow();
        let membership = metrics.membership_config.membership();
        let is_replaced = |voter: &u64| {
            let node = membership.get_node(voter);
            *voter != id && node.is_some_and(|node| node.name == member.name)
        };
        let mut voters: std::collections::BTreeSet<u64> = membership.voter_ids().collect();
        voters.retain(|voter| !is_replaced(voter));
        voters.insert(id);
        voters
    };
    let changes = ChangeMembers::ReplaceAllVoters(voters);
    let changed = desk.raft.change_membership(changes, false).await;
    changed.map_err(|error| error.to_string())?;
    tracing::info!(member = %member, id, "a master was let in");
    Ok(())
}

/// Makes a learner of it, and waits until it has all that the log holds now.
async fn learn(desk: &PeerDesk, id: u64, member: &Member) -> Result<(), String> {
    let is_learner = {
        let metrics = desk.metrics.borrow();
        let membership = metrics.membership_config.membership();
        membership.get_node(&id) == Some(member)
    };
    if !is_learner {
        let learner = desk.raft.add_learner(id, member.clone(), false).await;
        learner.map_err(|error| error.to_string())?;
    }
    let mut data = desk.data.clone();
    let last = data.borrow().last_log.map_or(0, |at| at.index);
    let has_all = data.wait_for(|data| matched(data, id).is_some_and(|at| at >= last));
    let done = match timeout(LEARN_TIMEOUT, has_all).await {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(_)) => return Err("the master stops".to_owned()),
        Err(_) => matched(&desk.data.borrow(), id),
    };
    let done = done.map_or(0, |at| at + 1);
    Err(format!("it has {done} of {} entries so far", last + 1))
}
