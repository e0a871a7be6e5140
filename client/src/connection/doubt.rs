//! Asks the other masters who leads while the present one does not answer its calls: it may be
//! paused or cut off, and then its connection says nothing. Costs nothing while it answers.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use larder_types::Epoch;
use larder_wire::hello::Hello;
use tokio::time::Instant;

use super::greet::Resolve;
use super::search::{Found, Search, Start, Wanted};
use crate::session::doubt_pause;

/// How long calls may be unanswered until the others are asked.
pub(super) const DOUBT: Duration = Duration::from_millis(250);

/// What is needed to ask the others, and the asking.
pub(super) struct Doubts {
    resolver: Arc<dyn Resolve>,
    masters: Arc<[String]>,
    hello: Arc<Hello>,
    /// The epoch of the present master: only one of a higher epoch is better.
    epoch: Epoch,
    /// The present master.
    name: usize,
    address: Option<SocketAddr>,
    /// Whether there is anybody else.
    is_plural: bool,
    asking: Option<Pin<Box<dyn Future<Output = Found> + Send>>>,
}

impl Doubts {
    /// None yet, of the master that was found.
    pub(super) fn new(resolver: Arc<dyn Resolve>, masters: Arc<[String]>, found: &Found) -> Self {
        let (stream, _, welcome) = &found.greeted;
        Self {
            resolver,
            masters,
            hello: Arc::clone(&found.hello),
            epoch: welcome.epoch,
            name: found.name,
            address: stream.peer_addr().ok(),
            is_plural: found.is_plural,
            asking: None,
        }
    }

    /// Whether nobody is asked yet and somebody could be.
    pub(super) const fn may_ask(&self) -> bool {
        self.is_plural && self.asking.is_none()
    }

    /// Asks the others, again and again until one leads or the present master answers.
    pub(super) fn ask(&mut self) {
        let start = Start {
            first: self.name + 1,
            hint: None,
            skip: self.address,
        };
        let (resolver, masters) = (Arc::clone(&self.resolver), Arc::clone(&self.masters));
        let (hello, wanted) = (Arc::clone(&self.hello), Wanted::Above(self.epoch));
        let mut search = Search::new(resolver, masters, start);
        self.asking = Some(Box::pin(async move {
            let (began, mut round) = (Instant::now(), 0);
            loop {
                if let Ok(found) = search.round(&hello, wanted).await {
                    return found;
                }
                round += 1;
                let pause = doubt_pause(round, began.elapsed(), rand::random());
                tokio::time::sleep(pause).await;
            }
        }));
    }

    /// The present master has answered a call.
    pub(super) fn settle(&mut self) {
        self.asking = None;
    }

    /// Another master that leads; never, if nobody is asked.
    pub(super) async fn found(&mut self) -> Found {
        match &mut self.asking {
            Some(asking) => asking.await,
            None => std::future::pending().await,
        }
    }
}
