//! A peer's calls beside its rails: what is registered there, and notices. One at a time, over a
//! connection of its own, so that they wait for no payload.

use std::rc::Rc;
use std::time::Duration;

use larder_types::{Incarnation, SessionId};
use larder_wire::engine::{Changes, EngineCut, Notice, Refusal};
use larder_wire::limit::{PROTOCOL_MAX, PROTOCOL_MIN};
use larder_wire::{Hello, Kind, Purpose};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::error::CallError;
use super::state::Shared;
use crate::engine::core::PeerKey;
use crate::lane::{Lane, connect_tcp};

/// A peer that did not answer is asked again after between half of this and all of it, in ms.
const REST_MS: u64 = 1_000;
/// How long an answer may take, in ms.
const ANSWER_MS: u64 = 5_000;
/// Pages of one peer's buffers that are asked for in one refresh: more than any may have.
const PAGES_MAX: usize = 1_024;

/// The calls to one peer.
#[derive(Debug)]
pub(super) struct Control {
    addr: String,
    /// Held over a call: whoever comes meanwhile waits for it. Local to this thread.
    lane: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    lane: Option<Lane<TcpStream>>,
    /// The peer is not asked before.
    rests_until: Option<Instant>,
    tries: u64,
}

impl Control {
    pub(super) fn new(addr: String) -> Self {
        Self {
            addr,
            lane: Mutex::default(),
        }
    }

    /// The process that answers there.
    pub(super) async fn connect(&self, shared: &Rc<Shared>) -> Result<Incarnation, CallError> {
        let lane = connect(shared, &self.addr).await?;
        let incarnation = lane.welcome().incarnation;
        self.lane.lock().await.lane = Some(lane);
        Ok(incarnation)
    }

    /// Asks what is registered at the peer beyond what is known.
    pub(super) async fn refresh(
        &self,
        shared: &Rc<Shared>,
        peer: PeerKey,
    ) -> Result<(), CallError> {
        let mut line = self.lane.lock().await;
        for _ in 0..PAGES_MAX {
            self.reach(&mut line, shared, peer).await?;
            let known = shared.look(|state| state.core.mirror(peer).map(|mirror| mirror.known()));
            let known = known.ok_or(CallError::NoPeer)?;
            let life = line.lane.as_ref().map(|lane| lane.welcome().incarnation);
            let changes: Changes = self.call(&mut line, Kind::EngineChanges, &known).await?;
            // A page that brings nothing on would be followed by others for ever.
            let has_more = changes.has_more && changes.known != known;
            if !shared.described(peer, life, changes)? {
                line.lane = None;
                return Err(CallError::OtherLife {
                    addr: self.addr.clone(),
                });
            }
            if !has_more {
                break;
            }
        }
        Ok(())
    }

    pub(super) async fn notify(
        &self,
        shared: &Rc<Shared>,
        peer: PeerKey,
        notice: &Notice,
    ) -> Result<(), CallError> {
        let mut line = self.lane.lock().await;
        self.reach(&mut line, shared, peer).await?;
        self.call(&mut line, Kind::EngineNotice, notice).await
    }

    /// Returns when nothing that was sent in a session will be done any more, however long the peer
    /// is not reached meanwhile; or it is closed.
    pub(super) async fn cut(
        &self,
        shared: &Rc<Shared>,
        peer: PeerKey,
        (life, session): (Incarnation, SessionId),
    ) {
        let cut = EngineCut { session: session.0 };
        loop {
            let mut line = self.lane.lock().await;
            let mut done = self.reach(&mut line, shared, peer).await;
            let found = line.lane.as_ref().map(|lane| lane.welcome().incarnation);
            if done.is_ok() && found != Some(life) {
                // That process is gone, or nobody's any more; sessions of this one are others.
                return;
            }
            if done.is_ok() {
                done = self.call(&mut line, Kind::EngineCut, &cut).await;
            }
            drop(line);
            let wait_ms = match done {
                Ok(()) | Err(CallError::NoPeer | CallError::Refused(_)) => return,
                Err(CallError::Resting { again_ms, .. }) => again_ms.max(1),
                Err(_) => REST_MS / 4,
            };
            sleep(Duration::from_millis(wait_ms)).await;
        }
    }

    /// Makes sure that there is a connection to the process that is known.
    async fn reach(
        &self,
        line: &mut Line,
        shared: &Rc<Shared>,
        peer: PeerKey,
    ) -> Result<(), CallError> {
        let known = shared.look(|state| Some(state.peers.get(peer)?.incarnation));
        let is_usable = |lane: &Lane<TcpStream>| {
            use std::os::fd::AsFd as _;
            // A rail may have met another life of the peer meanwhile.
            let is_known = known == Some(lane.welcome().incarnation);
            is_known && lane.is_settled() && crate::lane::is_quiet(lane.stream().as_fd())
        };
        if line.lane.as_ref().is_some_and(is_usable) {
            return Ok(());
        }
        line.lane = None;
        let now = Instant::now();
        if let Some(until) = line.rests_until.filter(|until| *until > now) {
            let again_ms = u64::try_from((until - now).as_millis()).unwrap_or(REST_MS);
            return Err(CallError::Resting {
                addr: self.addr.clone(),
                again_ms,
            });
        }
        let connected = connect(shared, &self.addr).await;
        line.tries = line.tries.wrapping_add(1);
        // Another one in each process, so that those who lost the same peer do not ask together.
        let seed = shared.options.incarnation.0.wrapping_add(line.tries);
        let rest_ms = SmallRng::seed_from_u64(seed).random_range(REST_MS / 2..=REST_MS);
        line.rests_until = Some(Instant::now() + Duration::from_millis(rest_ms));
        let lane = connected?;
        line.rests_until = None;
        let _ = shared.is_same_life(peer, lane.welcome().incarnation);
        line.lane = Some(lane);
        Ok(())
    }

    async fn call<B: Serialize, T: DeserializeOwned>(
        &self,
        line: &mut Line,
        kind: Kind,
        body: &B,
    ) -> Result<T, CallError> {
        // Put back only when it was used to its end.
        let mut lane = line.lane.take().ok_or(CallError::NoPeer)?;
        let limit_ms = u32::try_from(ANSWER_MS).unwrap_or(u32::MAX);
        let asked = async {
            let header = lane.call(kind, body, &[], limit_ms).await?;
            Ok(lane.decode::<T, Refusal>(&header)?)
        };
        let answer = timeout(Duration::from_millis(ANSWER_MS), asked).await;
        let answer = answer.map_err(|_| CallError::Silent {
            addr: self.addr.clone(),
            limit_ms: ANSWER_MS,
        })?;
        let answer = answer.map_err(|source| CallError::Lane {
            addr: self.addr.clone(),
            source,
        })?;
        line.lane = Some(lane);
        answer.map_err(CallError::Refused)
    }
}

/// Connects to an engine and says hello.
pub(super) async fn connect(shared: &Shared, addr: &str) -> Result<Lane<TcpStream>, CallError> {
    let options = &shared.options;
    let limit = Duration::from_millis(options.connect_timeout_ms);
    let stream = connect_tcp(addr, limit).await;
    let stream = stream.map_err(|source| CallError::Unreachable {
        addr: addr.to_owned(),
        source,
    })?;
    #[cfg(test)]
    if let Some(bytes) = options.send_buffer_bytes {
        let set = rustix::net::sockopt::set_socket_send_buffer_size(&stream, bytes);
        set.map_err(|errno| CallError::Unreachable {
            addr: addr.to_owned(),
            source: errno.into(),
        })?;
    }
    let hello = Hello {
        protocol_min: PROTOCOL_MIN,
        protocol_max: PROTOCOL_MAX,
        features: 0,
        credential: options.credential.clone(),
        purpose: Purpose::Engine,
        name: options.name.clone(),
        incarnation: options.incarnation,
    };
    let lane = Lane::open(stream, &hello).await;
    lane.map_err(|source| CallError::Lane {
        addr: addr.to_owned(),
        source,
    })
}
