//! An engine with hands: buffers of this process, peers that are reached by tcp, and transfers
//! between them. `engine` decides; here it is done.
//!
//! ```text
//! Endpoint   what callers hold: registration, peers, transfers, notices
//! state      the engine's core, its slices under way, who waits for what
//! flight     how far each slice is
//! pending    a transfer that is awaited; dropped, it is cancelled
//! rail       a connection on which slices go out and answers come in
//! link       what others see of it
//! control    a peer's calls beside its rails: what is registered there, notices
//! serve      the other end: peers read and write what is registered here
//! payload    bytes between a socket and a buffer, step by step
//! trust      whose peers are served
//! stock      what is registered, for engines of stock Mooncake
//! ```
//!
//! All of it runs as local tasks of one thread, so nothing is locked, and between two steps of a
//! payload everything can change: each step asks anew whether its buffer may still be touched. A
//! transfer that is over, late or not wanted any more is therefore over at once.

mod control;
mod error;
mod flight;
mod link;
mod options;
mod payload;
mod pending;
mod rail;
mod serve;
mod state;
mod stock;
#[cfg(test)]
mod tests;
mod trust;

use std::rc::Rc;
use std::sync::Arc;

use larder_wire::engine::{BufferAccess, Described, Notice, Region};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::timeout_at;

use crate::OwnMemory;
use crate::engine::buffers::{BufferKey, BufferSpec, RegisterError};
use crate::engine::core::{PeerKey, Range, SubmitError};
use crate::engine::plan::{Direction, Qos};
use crate::engine::rails::Rails;
use crate::engine::{Failure, Outcome};
use crate::interop::AddressSpace;

pub use error::{CallError, TransferFailed};
pub use options::{Asked, EndpointOptions};
pub use pending::Pending;
pub use trust::Trust;

use control::Control;
use link::Link;
use state::{PeerLinks, Shared};

/// What a rail of tcp is thought to do before it has shown it, in bytes per second and ns.
const GUESS: (f64, u64) = (1e9, 50_000);

/// An engine's end of things. A clone is the same; with the last one its connections end.
#[derive(Clone, Debug)]
pub struct Endpoint(Rc<Owner>);

#[derive(Debug)]
struct Owner {
    shared: Rc<Shared>,
    driver: AbortHandle,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.close_all();
        self.driver.abort();
    }
}

impl Endpoint {
    /// An endpoint with nothing registered. Must be called in a local set, whose thread does all
    /// its work.
    #[must_use]
    pub fn new(options: EndpointOptions) -> Self {
        let shared = Rc::new(Shared::new(options));
        let driver = spawn_local(state::drive(Rc::clone(&shared))).abort_handle();
        Self(Rc::new(Owner { shared, driver }))
    }

    /// Serves peers on `listener` until `shutdown` turns true or its sender is dropped.
    pub async fn serve(&self, listener: TcpListener, shutdown: watch::Receiver<bool>) {
        serve::serve(Rc::clone(&self.0.shared), listener, shutdown).await;
    }

    /// What is registered here, for [`crate::interop::serve`]: engines of stock Mooncake reach
    /// every buffer by its address, as far as its access allows. They prove nothing.
    #[must_use]
    pub fn address_space(&self) -> Rc<dyn AddressSpace> {
        Rc::new(stock::Stock(Rc::clone(&self.0.shared)))
    }

    /// Registers memory: its bytes can take part in transfers, and peers may do with them what
    /// `access` says. `regions` say where its parts lie; none: anywhere.
    ///
    /// # Errors
    /// [`RegisterError`].
    pub fn register(
        &self,
        memory: Arc<OwnMemory>,
        access: BufferAccess,
        regions: Vec<Region>,
    ) -> Result<BufferKey, RegisterError> {
        let keys = self.register_all(vec![(memory, access, regions)]);
        let keys = keys.map_err(|(_, error)| error)?;
        keys.first().copied().ok_or(RegisterError::Stale)
    }

    /// Registers all of them or none.
    ///
    /// # Errors
    /// The number of the first that cannot be, and why.
    pub fn register_all(
        &self,
        all: Vec<(Arc<OwnMemory>, BufferAccess, Vec<Region>)>,
    ) -> Result<Vec<BufferKey>, (usize, RegisterError)> {
        let (mut specs, mut memories) = (Vec::new(), Vec::new());
        for (memory, access, regions) in all {
            specs.push(BufferSpec {
                start: memory.address(),
                bytes: memory.bytes(),
                regions,
                access,
            });
            memories.push(memory);
        }
        self.0.shared.with(|state, _| {
            let keys = state.core.buffers.register_all(specs)?;
            for (key, memory) in keys.iter().zip(memories) {
                state.memories.insert(*key, memory);
            }
            Ok(keys)
        })
    }

    /// Takes a buffer back. Peers do not touch it from the call on; own transfers on it end first.
    /// When this is done nothing touches it.
    ///
    /// # Errors
    /// [`RegisterError::Stale`].
    pub async fn unregister(&self, key: BufferKey) -> Result<(), RegisterError> {
        self.0.shared.unregister(key).await
    }

    /// Cuts off what peers were allowed so far: from now on they are refused until they have asked
    /// anew. Returns the new epoch.
    ///
    /// # Errors
    /// [`RegisterError::Stale`].
    pub fn fence(&self, key: BufferKey) -> Result<u64, RegisterError> {
        self.0.shared.with(|state, _| state.core.buffers.fence(key))
    }

    /// Connects to the engine at `addr` (`host:port`) and asks what is registered there.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn open(&self, addr: &str) -> Result<PeerKey, CallError> {
        let shared = &self.0.shared;
        let control = Rc::new(Control::new(addr.to_owned()));
        let incarnation = control.connect(shared).await?;
        let links: Vec<_> = (0..shared.options.lanes.max(1))
            .map(|_| Rc::new(Link::default()))
            .collect();
        let mut rails = Rails::default();
        for _ in &links {
            rails.add(GUESS.0, GUESS.1);
        }
        let peer = shared.with(|state, _| {
            let peer = state.core.open(rails);
            state.peers.insert(
                peer,
                PeerLinks {
                    links: links.clone(),
                    control: Rc::clone(&control),
                    incarnation,
                    tasks: Vec::new(),
                },
            );
            peer
        });
        if let Err(error) = control.refresh(shared, peer).await {
            self.close(peer);
            return Err(error);
        }
        for (rail, link) in links.into_iter().enumerate() {
            let (shared, addr) = (Rc::clone(shared), addr.to_owned());
            let task = spawn_local(rail::run(shared, peer, rail, link, addr)).abort_handle();
            self.0.shared.keep_task(peer, task);
        }
        Ok(peer)
    }

    /// Asks a peer what is registered there now. A peer that did not answer a moment ago is not
    /// asked again at once.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn refresh(&self, peer: PeerKey) -> Result<(), CallError> {
        let control = self.control(peer)?;
        control.refresh(&self.0.shared, peer).await
    }

    /// What is known of a peer's buffers, in the order of their addresses; nothing of one that is
    /// not open.
    #[must_use]
    pub fn described(&self, peer: PeerKey) -> Vec<Described> {
        self.0.shared.look(|state| {
            let mirror = state.core.mirror(peer);
            mirror.map_or_else(Vec::new, |mirror| mirror.all().cloned().collect())
        })
    }

    /// Tells a peer something; done when it stands in its line.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn notify(&self, peer: PeerKey, notice: &Notice) -> Result<(), CallError> {
        let control = self.control(peer)?;
        control.notify(&self.0.shared, peer, notice).await
    }

    /// The next notice that a peer sent here.
    pub async fn notice(&self) -> Notice {
        self.0.shared.notice().await
    }

    fn control(&self, peer: PeerKey) -> Result<Rc<Control>, CallError> {
        self.0.shared.look(|state| {
            let peer = state.peers.get(peer).ok_or(CallError::NoPeer)?;
            Ok(Rc::clone(&peer.control))
        })
    }

    /// Closes a peer: its transfers end, and so do its connections.
    pub fn close(&self, peer: PeerKey) {
        self.0.shared.close(peer);
    }

    /// Starts a transfer of all ranges, in one direction between this process and one peer. It goes
    /// on whether or not anybody looks; dropped before its end it is cancelled.
    ///
    /// # Errors
    /// [`SubmitError`]; nothing is done.
    pub fn submit(
        &self,
        peer: PeerKey,
        direction: Direction,
        ranges: &[Range],
        asked: Asked,
    ) -> Result<Pending, SubmitError> {
        let shared = &self.0.shared;
        let qos = Qos {
            class: asked.class,
            tenant: asked.tenant,
            deadline_ns: shared.ns_of(asked.deadline),
        };
        let (request, seat) = shared.with(|state, now_ns| {
            let request = state.core.submit(peer, direction, ranges, qos, now_ns)?;
            Ok::<_, SubmitError>((request, state.waits_for(request)))
        })?;
        Ok(Pending::new(Rc::clone(shared), request, seat))
    }

    /// A transfer to its end. Where it turns out that the peer has registered something else since
    /// it was asked, it is asked once more, and the transfer starts anew.
    ///
    /// # Errors
    /// [`TransferFailed`] of the first range that failed; bytes may be there in part.
    pub async fn transfer(
        &self,
        peer: PeerKey,
        direction: Direction,
        ranges: &[Range],
        asked: Asked,
    ) -> Result<Outcome, TransferFailed> {
        let first = self.try_transfer(peer, direction, ranges, asked).await;
        match first {
            Err(failed) if failed.is_stale() => {
                let refreshed = timeout_at(asked.deadline, self.refresh(peer)).await;
                let late = TransferFailed::Range {
                    number: 0,
                    failure: Failure::DeadlinePassed,
                };
                refreshed.map_err(|_| late)??;
                self.try_transfer(peer, direction, ranges, asked).await
            }
            other => other,
        }
    }

    async fn try_transfer(
        &self,
        peer: PeerKey,
        direction: Direction,
        ranges: &[Range],
        asked: Asked,
    ) -> Result<Outcome, TransferFailed> {
        let outcome = self.submit(peer, direction, ranges, asked)?.await;
        let failed = |one: (usize, &Result<(), Failure>)| Some((one.0, one.1.err()?));
        match outcome.transfers.iter().enumerate().find_map(failed) {
            Some((number, failure)) => Err(TransferFailed::Range { number, failure }),
            None => Ok(outcome),
        }
    }
}
