//! The HTTP port of a program: a bounded number of connections, none of which holds a place for
//! nothing.
//!
//! These ports are open to strangers and carry the probes that keep a program alive. Whoever has
//! sent no whole request therefore only has a place until somebody else needs it: at the limit
//! the connection that has been without a request for the longest makes room. `axum::serve` was
//! not taken because it sets no time limit and does not tell when a request is being answered.

mod places;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;

use places::{Place, Places};

/// How long a connection that has to end may still take for the answer it is about to give, in
/// ms; more than the slowest route of any program.
const LAST_ANSWER_MS: u64 = 15_000;

/// What a port allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most connections at once.
    pub connections_max: usize,
    /// How long a connection may be without a whole head of a request, in ms.
    pub head_ms: u64,
    /// How long one connection lives, in ms; it may finish the answer that it is giving then.
    pub life_ms: u64,
}

/// Serves `router` until `stop` ends and the answers that are being given then have left.
pub async fn serve(
    mut listener: TcpListener,
    router: Router,
    limits: Limits,
    stop: impl Future<Output = ()>,
) {
    let mut stop = pin!(stop);
    // Dropped, it tells every connection to end.
    let (running, told) = watch::channel(());
    let mut port = Port {
        router,
        limits,
        told,
        places: Places::default(),
        held: HashMap::new(),
        tasks: JoinSet::new(),
    };
    loop {
        let has_room = port.has_room();
        tokio::select! {
            () = &mut stop => break,
            Some(ended) = port.tasks.join_next_with_id() => port.forget(ended),
            // Waits out errors such as a lack of descriptors.
            (stream, peer) = Listener::accept(&mut listener), if has_room => {
                port.take(stream, peer);
            }
            () = port.places.left(), if !has_room => {}
        }
    }
    drop((listener, running));
    while port.tasks.join_next().await.is_some() {}
}

/// The owner of the connections.
struct Port {
    router: Router,
    limits: Limits,
    told: watch::Receiver<()>,
    places: Places,
    held: HashMap<Id, (Place, AbortHandle)>,
    /// The connections, and those that were just closed to make room.
    tasks: JoinSet<()>,
}

impl Port {
    fn has_room(&self) -> bool {
        self.held.len() < self.limits.connections_max || self.longest_without().is_some()
    }

    /// The connection that has been without a request for the longest.
    fn longest_without(&self) -> Option<Id> {
        let waiting = self.held.iter();
        let waiting = waiting.filter_map(|(id, (place, _))| Some((place.waits_since()?, *id)));
        waiting.min_by_key(|(since, _)| *since).map(|(_, id)| id)
    }

    fn take(&mut self, stream: TcpStream, peer: SocketAddr) {
        if self.held.len() >= self.limits.connections_max
            && let Some((_, oldest)) = self.longest_without().and_then(|id| self.held.remove(&id))
        {
            oldest.abort();
        }
        let place = self.places.enter();
        let (router, limits, told) = (self.router.clone(), self.limits, self.told.clone());
        let hold = hold(stream, peer, router, place.clone(), limits, told);
        let handle = self.tasks.spawn(hold);
        self.held.insert(handle.id(), (place, handle));
    }

    fn forget(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = match ended {
            Ok((id, ())) => id,
            Err(error) => {
                if error.is_panic() {
                    tracing::error!(%error, "a connection's task fell");
                }
                error.id()
            }
        };
        self.held.remove(&id);
    }
}

/// One connection to its end.
async fn hold(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    place: Place,
    limits: Limits,
    mut told: watch::Receiver<()>,
) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let answering = place.answers();
        let answer = router.clone().oneshot(request);
        async move {
            let answer = answer.await;
            drop(answering);
            answer
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(limits.head_ms))
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => {
            if let Err(error) = ended {
                tracing::debug!(%peer, %error, "connection lost");
            }
            return;
        }
        () = sleep(Duration::from_millis(limits.life_ms)) => {}
        // An error: the port stops.
        _ = told.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    let last = timeout(Duration::from_millis(LAST_ANSWER_MS), connection).await;
    if last.is_err() {
        tracing::debug!(%peer, "connection cut: its peer does not take the answer");
    }
}
