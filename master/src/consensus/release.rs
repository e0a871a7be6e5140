//! What all masters of a pool know to do: the version that its log says.
//!
//! Masters of two releases stand side by side while a pool is upgraded. What only the later one
//! knows to do, a leader does not propose before the log says [`larder_store::Op::PoolVersion`]
//! of at least that release; and a leader proposes that when every voter has said that it runs it.
//! A master that finds a higher version in its log than it knows stops and says so.

use std::time::Duration;

use openraft::ServerState;
use tokio::sync::watch;
use tokio::time::sleep;

use super::desk::PeerDesk;
use super::link::{Link, Transport};
use super::message::{PeerAnswer, PeerCall, PeerRequest};
use super::network::Network;

/// What this release knows to do. To be raised with the first op, record or field of an entry
/// that the release before cannot read.
pub(crate) const RELEASE: u32 = 1;

/// How often a leader asks, until all masters are of its release.
const ASK_PAUSE: Duration = Duration::from_secs(1);
/// How long an answer may take.
const ASK_TIMEOUT: Duration = Duration::from_millis(500);

/// Asks all voters for their release while this replica leads, and tells `agreed` the lowest.
pub(super) async fn agree<T: Transport>(
    desk: PeerDesk,
    network: Network<T>,
    agreed: watch::Sender<u32>,
) {
    while *agreed.borrow() < desk.release {
        sleep(ASK_PAUSE).await;
        if let Some(lowest) = lowest(&desk, &network).await {
            agreed.send_replace(lowest);
        }
    }
}

/// `None`: this replica does not lead, or a voter did not answer.
async fn lowest<T: Transport>(desk: &PeerDesk, network: &Network<T>) -> Option<u32> {
    let voters = {
        let metrics = desk.metrics.borrow();
        if metrics.state != ServerState::Leader {
            return None;
        }
        let membership = metrics.membership_config.membership();
        let ids = membership.voter_ids();
        ids.map(|id| Some((id, membership.get_node(&id)?.clone())))
            .collect::<Option<Vec<_>>>()?
    };
    let mut lowest = desk.release;
    for (id, member) in voters.into_iter().filter(|(id, _)| *id != desk.replica) {
        let call = PeerCall {
            to: Some(id),
            request: PeerRequest::Who,
        };
        match network.link(&member).call(&call, ASK_TIMEOUT).await {
            Ok(PeerAnswer::Who(who)) => lowest = lowest.min(who.release),
            _ => return None,
        }
    }
    Some(lowest)
}
