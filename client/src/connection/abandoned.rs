//! Grants whose caller went away before it saw them: given up, or their keys would stay taken
//! until the master discards the puts.

use std::sync::Arc;
use std::time::Duration;

use larder_wire::master::{PutRevoke, PutStart, PutStarted};
use larder_wire::{Kind, Reply, decode_body};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{Call, Request};

/// How long giving up may take.
const LIMIT: Duration = Duration::from_secs(5);

/// What it takes to give up the puts of one start.
#[derive(Debug)]
pub(super) struct Abandoned {
    request: Arc<Request>,
    /// Weak: a reply on its way must not keep the connection open.
    calls: mpsc::WeakSender<Call>,
}

impl Abandoned {
    /// For a reply to this request; `None` if it grants nothing.
    pub(super) fn new(request: &Arc<Request>, calls: &mpsc::WeakSender<Call>) -> Option<Self> {
        let grants = matches!(**request, Request::PutStart(_));
        grants.then(|| Self {
            request: Arc::clone(request),
            calls: calls.clone(),
        })
    }

    /// Gives up what the reply with this body grants. Without a free place in the queue, or a
    /// client, it stays for the master to discard.
    pub(super) fn give_up(&self, body: &[u8]) {
        let Request::PutStart(start) = &*self.request else {
            return;
        };
        let Ok(reply) = decode_body::<Reply<PutStarted>>(Kind::PutStart, body) else {
            return;
        };
        let revoke = revoke(start, &reply.answer);
        let (false, Some(calls)) = (revoke.items.is_empty(), self.calls.upgrade()) else {
            return;
        };
        let (reply, _) = oneshot::channel();
        let request = Arc::new(Request::PutRevoke(revoke));
        let call = Call {
            request,
            deadline: Instant::now() + LIMIT,
            reply,
        };
        if calls.try_send(call).is_err() {
            tracing::debug!("the queue of calls is full; puts stay for the master to discard");
        }
    }
}

fn revoke(start: &PutStart, started: &PutStarted) -> PutRevoke {
    let granted = start.items.iter().zip(&started.grants);
    let granted = granted.filter_map(|(item, grant)| {
        let grant = grant.as_ref().ok()?;
        Some((item.key.clone(), grant.version))
    });
    PutRevoke {
        items: granted.collect(),
    }
}
