//! A replica whose machine lost its power may miss entries that it had acknowledged. Until that is
//! settled it takes no part.
//!
//! * If another one leads and goes on to, a quorum without this one has everything: this replica
//!   empties its disk and joins anew under another number. One that merely led when this one was
//!   lost may have lost its quorum with it, and then every disk counts.
//! * If all masters answer and none of them leads, and so many are in doubt that the others are no
//!   quorum, then the longest log of all is the best there is. Nobody votes for less than that.
//! * If the others were in doubt and have settled it so, while the longest log is this one's, then
//!   none of them can lead, and it has to. It waits for a while before it says so: others that were
//!   never in doubt and have less only need time for an election.
//!
//! That the end of the log may be lost stays on the disk until a leader has asked agents for it: a
//! start that comes before takes part at once, and knows of the loss.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

use super::Member;
use super::desk::PeerDesk;
use super::formation::ask_all;
use super::keeper::Command;
use super::link::Transport;
use super::message::WhoIs;
use super::network::Network;

/// How long to wait before the others are asked again.
const ASK_PAUSE: Duration = Duration::from_millis(100);

/// After so many rounds in which all answered and nobody led, nobody can without the longest log.
const LEADERLESS_ROUNDS: u32 = 50;

/// For so many election times others have to be led. What a leader says of itself is an election
/// time old at most, and one that has lost its quorum says nothing after that.
const LED_ELECTIONS: u64 = 3;

/// What became of the doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// There is none, or none any more.
    Settled,
    /// Nobody knows yet.
    Open,
    /// The others have everything: empty the disk and join anew.
    JoinAnew,
}

/// Settles the doubt of this replica.
pub(super) async fn settle<T: Transport>(
    desk: PeerDesk,
    network: Network<T>,
    configured: Vec<Member>,
    commands: mpsc::Sender<Command>,
    doubt: watch::Sender<Doubt>,
) {
    tracing::warn!("this machine lost its power: what this replica had acknowledged is in doubt");
    let mut leaderless = 0;
    let mut led_from_ms = None;
    loop {
        let known = ask_all(&desk, &network, &configured, desk.who()).await;
        let others = || known.values().filter(|who| who.id != desk.replica);
        let leaders = others().filter_map(|who| who.leader.as_ref());
        if leaders.map(|(id, _)| *id).any(|id| id != desk.replica) {
            let now_ms = (desk.clock)();
            let from_ms = *led_from_ms.get_or_insert(now_ms);
            if now_ms >= from_ms + LED_ELECTIONS * desk.election_ms {
                doubt.send_replace(Doubt::JoinAnew);
                return;
            }
            sleep(ASK_PAUSE).await;
            continue;
        }
        led_from_ms = None;
        let trusted = || others().filter(|who| who.is_formed && !who.is_doubtful);
        let is_all = known.len() == configured.len();
        leaderless = if is_all { leaderless + 1 } else { 0 };
        let is_longest = desk.last_entry() > trusted().filter_map(|who| who.last).max();
        let is_few = trusted().count() <= configured.len() / 2;
        if is_all && (is_few || (is_longest && leaderless > LEADERLESS_ROUNDS)) {
            if go_on(&desk, known.values(), &commands, &doubt).await {
                forget(desk, commands).await;
            }
            return;
        }
        sleep(ASK_PAUSE).await;
    }
}

/// The longest log of all is the base. False: the disk failed; the keeper says so, and nobody
/// serves.
async fn go_on(
    desk: &PeerDesk,
    known: impl Iterator<Item = &WhoIs>,
    commands: &mpsc::Sender<Command>,
    doubt: &watch::Sender<Doubt>,
) -> bool {
    let floor = known.filter_map(|who| who.last).max();
    desk.floor.send_replace(floor);
    let (answer, answered) = oneshot::channel();
    let sent = commands.send(Command::Settle(answer)).await;
    if sent.is_err() || !matches!(answered.await, Ok(Ok(()))) {
        return false;
    }
    tracing::warn!(
        longest = ?floor,
        "a majority of the masters lost its power: they go on with the longest log that is left, \
         and with what agents know of the rest"
    );
    desk.loses_tail();
    desk.is_doubtful.store(false, Ordering::Relaxed);
    doubt.send_replace(Doubt::Settled);
    true
}

/// Takes it off the disk that the end of the log may be lost, when agents have been asked.
pub(super) async fn forget(desk: PeerDesk, commands: mpsc::Sender<Command>) {
    desk.lost_tail.until_sought().await;
    let (answer, answered) = oneshot::channel();
    let sent = commands.send(Command::TailIsSought(answer)).await;
    if sent.is_ok()
        && let Ok(Err(error)) = answered.await
    {
        let error = larder_telemetry::error_chain(&error);
        tracing::warn!(
            error,
            "agents are asked for the end of the log after the next start too"
        );
    }
}
