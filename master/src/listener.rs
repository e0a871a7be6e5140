//! Accepts connections of clients and agents, up to a limit, and ends them together.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_telemetry::{Metric, Registry};
use larder_wire::{Refused, RefusedReason};
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};

use crate::connection::{Shared, serve, turn_away};
use crate::event::ConnectionId;
use crate::metrics::LISTENER;

/// Connections above the limit that only other masters get, so that clients cannot keep them from
/// agreeing: four others with two or three uses each, and some that say no hello.
const KEPT_FOR_MASTERS: usize = 32;
/// Connections above the limit that are being told so. More are closed without a word.
const TURNED_AWAY_MAX: usize = 64;
/// After an accept that failed, usually for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long connections get to send what they have when the master stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// A silent peer is asked after this long, again at the interval, and given up after so many
/// questions: a machine that lost power is noticed within 25 s.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_COUNT: u32 = 3;

/// The least time between two lines about refused connections: strangers cannot fill the log.
const SAY_REFUSED_EVERY: Duration = Duration::from_secs(60);

/// The listener of the wire port.
pub(crate) struct Listener {
    listener: TcpListener,
    shared: Arc<Shared>,
    max_connections: usize,
    last: u64,
    /// One task per connection; those turned away stand in their own set.
    served: JoinSet<Option<&'static str>>,
    turned_away: JoinSet<()>,
    refused: RefusedCount,
}

impl Listener {
    pub(crate) fn new(listener: TcpListener, shared: Arc<Shared>, max_connections: usize) -> Self {
        let (served, turned_away) = (JoinSet::new(), JoinSet::new());
        Self {
            listener,
            shared,
            max_connections,
            last: 0,
            served,
            turned_away,
            refused: RefusedCount::default(),
        }
    }

    /// Accepts until the future is dropped; connections live on.
    pub(crate) async fn accept(&mut self) {
        loop {
            self.count();
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => self.take(stream, peer),
                    Err(error) => {
                        tracing::warn!(%error, "accept failed; check the limit of open files");
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(ended) = self.served.join_next() => self.hear_end(ended),
                Some(ended) = self.turned_away.join_next() => {
                    said_if_panicked(&ended);
                }
            }
        }
    }

    /// Waits until the connections have ended, for a while.
    pub(crate) async fn finish(mut self) {
        drop(self.listener);
        let all_ended = async { while self.served.join_next().await.is_some() {} };
        if timeout(STOP_TIMEOUT, all_ended).await.is_err() {
            let left = self.served.len();
            tracing::info!(left, "connections were cut: they did not close in time");
        }
        self.shared
            .registry
            .set(Metric::WireConnections, &[LISTENER], 0);
    }

    fn take(&mut self, stream: TcpStream, peer: SocketAddr) {
        if self.served.len() >= self.max_connections + KEPT_FOR_MASTERS {
            self.shared.registry.inc(
                Metric::WireRefusedTotal,
                &[LISTENER, RefusedReason::Busy.label()],
                1,
            );
            if self.turned_away.len() < TURNED_AWAY_MAX {
                let detail = format!("this master has all {} connections", self.max_connections);
                let refused = Refused::new(RefusedReason::Busy, detail);
                self.turned_away
                    .spawn(async move { turn_away(stream, &refused).await });
            }
            return;
        }
        if let Err(error) = tune(&stream) {
            tracing::debug!(%peer, %error, "socket options");
        }
        self.last += 1;
        let (connection, shared) = (ConnectionId(self.last), Arc::clone(&self.shared));
        let is_spare = self.served.len() >= self.max_connections;
        self.served
            .spawn(async move { serve(stream, peer, (connection, is_spare), &shared).await });
    }

    fn hear_end(&mut self, ended: Result<Option<&'static str>, JoinError>) {
        said_if_panicked(&ended);
        if let Ok(Some(label)) = ended
            && let Some(count) = self.refused.add(Instant::now())
        {
            tracing::warn!(
                count,
                last = label,
                "connections were refused; the log says each at level debug"
            );
        }
    }

    fn count(&self) {
        let registry: &Registry = &self.shared.registry;
        registry.set(
            Metric::WireConnections,
            &[LISTENER],
            self.served.len() as u64,
        );
    }
}

/// Refused connections that no line has told of. Pure.
#[derive(Debug, Default)]
struct RefusedCount {
    untold: u64,
    told: Option<Instant>,
}

impl RefusedCount {
    /// Counts one more; how many to tell of, if it is time to.
    fn add(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        let is_soon = |told| now.saturating_duration_since(told) < SAY_REFUSED_EVERY;
        if self.told.is_some_and(is_soon) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

/// A panic of one connection is a fault of ours, and stays with that connection.
fn said_if_panicked<T>(ended: &Result<T, JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection's task fell");
    }
}

fn tune(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_COUNT)?;
    sockopt::set_socket_keepalive(stream, true)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_once_a_minute_and_all_of_them() {
        let mut refused = RefusedCount::default();
        let start = Instant::now();
        assert_eq!(refused.add(start), Some(1));
        assert_eq!(refused.add(start), None);
        let before = start + SAY_REFUSED_EVERY - Duration::from_millis(1);
        assert_eq!(refused.add(before), None);
        assert_eq!(refused.add(start + SAY_REFUSED_EVERY), Some(3));
        assert_eq!(refused.add(start + SAY_REFUSED_EVERY), None);
    }
}
