//! A leader resigns in favour of another master: for an upgrade, a stop, or because it is asked.

use std::time::Duration;

use openraft::ServerState;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::Member;
use super::convert::ballot;
use super::desk::PeerDesk;
use super::link::{Link, Transport};
use super::membership::matched;
use super::message::{PeerAnswer, PeerCall, PeerRequest};
use super::network::Network;

/// How long the other master gets to have all entries; nothing new is decided meanwhile.
const CATCH_UP: Duration = Duration::from_millis(150);
/// The pause between two tries. The first may only make this master see a higher term, and where
/// it takes more votes than these two the promises of others have to run out.
const TRY_PAUSE: Duration = Duration::from_millis(5);
/// How long an answer may take.
const ASK_TIMEOUT: Duration = Duration::from_millis(100);

/// Somebody wants another master to lead.
pub(super) struct HandOver {
    /// Which one; `None`: whichever has most of the log.
    pub(super) to: Option<String>,
    pub(super) reply: oneshot::Sender<Result<Member, String>>,
}

/// Hands the office over whenever somebody wants it, one at a time.
pub(super) async fn serve<T: Transport>(
    desk: PeerDesk,
    network: Network<T>,
    mut wanted: mpsc::Receiver<HandOver>,
) {
    while let Some(HandOver { to, reply }) = wanted.recv().await {
        let done = hand_over(&desk, &network, to.as_deref()).await;
        // This master goes on as a follower, or as the leader that it still is.
        desk.resigning.send_replace(false);
        desk.raft.runtime_config().heartbeat(true);
        drop(reply.send(done));
    }
}

async fn hand_over<T: Transport>(
    desk: &PeerDesk,
    network: &Network<T>,
    to: Option<&str>,
) -> Result<Member, String> {
    let (id, member) = choose(desk, to)?;
    let ballot = ballot(&desk.metrics.borrow().vote);
    if id == desk.replica {
        return Ok(member);
    }
    // From here on nothing is told or proposed: the next leader may be elected at any moment, and
    // who stands for election takes no more entries, so one that it lacks would cost it this vote.
    desk.raft.runtime_config().heartbeat(false);
    desk.resigning.send_replace(true);
    desk.end_lease();
    let caught_up = timeout(CATCH_UP, async {
        // What openraft publishes of its log lags behind. Its core takes its calls in order, and
        // has every entry written before the next: what was proposed is there when this returns.
        drop(desk.raft.with_raft_state(|_| ()).await);
        let last = desk.written.last();
        while matched(&desk.data.borrow(), id) < last {
            sleep(TRY_PAUSE).await;
        }
    });
    if caught_up.await.is_err() {
        return Err(format!(
            "{member} is too far behind; try again when it has caught up"
        ));
    }
    let mut link = network.link(&member);
    let until_ms = (desk.clock)() + 2 * desk.election_ms;
    let mut pause = desk.try_pause();
    while (desk.clock)() < until_ms {
        let call = PeerCall {
            to: Some(id),
            request: PeerRequest::Elect { ballot },
        };
        match link.call(&call, ASK_TIMEOUT).await {
            Ok(PeerAnswer::Elects) => {}
            Ok(PeerAnswer::Failed(why)) => return Err(why),
            Ok(_) | Err(_) => return Err(format!("{member} does not answer")),
        }
        // The answer to it tells this master of the higher term: it steps down, and is free to
        // vote for the other one at the next try.
        let told = desk.raft.trigger().heartbeat().await;
        let mut watched = desk.metrics.clone();
        let is_led = watched.wait_for(|metrics| metrics.current_leader == Some(id));
        let waited = timeout(pause, is_led).await;
        // Each asking begins a new election, and a slow disk takes its time for votes.
        pause = (2 * pause).min(5 * desk.try_pause());
        match (told, waited) {
            (Ok(()), Err(_)) => {}
            (Ok(()), Ok(Ok(_))) => {
                tracing::info!(to = %member, "handed the office over");
                return Ok(member);
            }
            // openraft has stopped. To ask on without a pause would have the other one stand for
            // election hundreds of times.
            (Err(_), _) | (_, Ok(Err(_))) => return Err("this master stops".to_owned()),
        }
    }
    Err(format!("{member} was not elected"))
}

/// Whom to hand over to.
fn choose(desk: &PeerDesk, to: Option<&str>) -> Result<(u64, Member), String> {
    let metrics = desk.metrics.borrow();
    if metrics.state != ServerState::Leader {
        return Err("this master does not lead".to_owned());
    }
    let membership = metrics.membership_config.membership();
    let data = desk.data.borrow();
    let voters = membership
        .voter_ids()
        .filter_map(|id| Some((id, membership.get_node(&id)?.clone())));
    match to {
        Some(name) => voters
            .filter(|(_, member)| member.name == name)
            .map(|(id, member)| (id, member.clone()))
            .next()
            .ok_or_else(|| format!("`{name}` is no voting master of this pool")),
        None => voters
            .filter(|(id, _)| *id != desk.replica)
            .max_by_key(|(id, _)| matched(&data, *id))
            .ok_or_else(|| "there is no other master".to_owned()),
    }
}
