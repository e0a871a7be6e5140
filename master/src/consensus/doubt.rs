//! A replica whose machine lost its power may miss entries that it had acknowledged. Until that is
//! settled it takes no part.
//!
//! * If a leader is known, a quorum has everything: this replica empties its disk and joins anew
//!   under another number.
//! * If all masters answer and none of them leads, and so many are in doubt that the others are no
//!   quorum, then the longest log of all is the best there is. Nobody votes for less than that.
//! * If the others were in doubt and have settled it so, while the longest log is this one's, then
//!   none of them can lead, and it has to. It waits for a while before it says so: others that were
//!   never in doubt and have less only need time for an election.
//!
//! The doubt stays on the disk until a leader has asked agents for what the log may lack: until
//! then the longest log and the loss are known in memory only, and a start has to find them again.

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
    loop {
        let known = ask_all(&desk, &network, &configured, desk.who()).await;
        let others = || known.values().filter(|who| who.id != desk.replica);
        if others().any(|who| {
            who.leader
                .as_ref()
                .is_some_and(|(id, _)| *id != desk.replica)
        }) {
            doubt.send_replace(Doubt::JoinAnew);
            return;
        }
        let trusted = || others().filter(|who| who.is_formed && !who.is_doubtful);
        let is_all = known.len() == configured.len();
        leaderless = if is_all { leaderless + 1 } else { 0 };
        let is_longest = desk.last_entry() > trusted().filter_map(|who| who.last).max();
        let is_few = trusted().count() <= configured.len() / 2;
        if is_all && (is_few || (is_longest && leaderless > LEADERLESS_ROUNDS)) {
            go_on(&desk, known.values(), &doubt);
            break forget(desk, commands).await;
        }
        sleep(ASK_PAUSE).await;
    }
}

/// The longest log of all is the base.
fn go_on<'a>(
    desk: &PeerDesk,
    known: impl Iterator<Item = &'a WhoIs>,
    doubt: &watch::Sender<Doubt>,
) {
    let floor = known.filter_map(|who| who.last).max();
    desk.floor.send_replace(floor);
    tracing::warn!(
        longest = ?floor,
        "a majority of the masters lost its power: they go on with the longest log that is left, \
         and with what agents know of the rest"
    );
    desk.loses_tail();
    desk.is_doubtful.store(false, Ordering::Relaxed);
    doubt.send_replace(Doubt::Settled);
}

/// Takes the doubt off the disk when agents have been asked.
pub(super) async fn forget(desk: PeerDesk, commands: mpsc::Sender<Command>) {
    desk.lost_tail.until_sought().await;
    let (answer, answered) = oneshot::channel();
    let sent = commands.send(Command::Settle(answer)).await;
    if sent.is_ok()
        && let Ok(Err(error)) = answered.await
    {
        let error = larder_telemetry::error_chain(&error);
        tracing::warn!(error, "the doubt stays on the disk until the next start");
    }
}
