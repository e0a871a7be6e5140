//! Our handshake port and our data port: what stock engines connect to.
//!
//! Runs as local tasks of the thread that owns the [`AddressSpace`]. Nothing that a peer does or
//! leaves undone delays another one: every connection has its task, every wait within a message
//! has a limit, and where a port is full the connection that said nothing for longest goes.

mod crowd;
mod handshake;
mod payload;

use std::fmt;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use super::data::Dialect;
use super::{AddressSpace, BufferDesc, Notify, SegmentDesc};
use crate::lane::tune_tcp;
use crowd::{Crowd, Place};

/// How long a peer may take for its first message, in ms, and to take the answer.
pub const HELLO_TIMEOUT_MS: u64 = 5_000;
/// How long a peer may stop within a payload, in ms.
pub const STALL_MS: u64 = 30_000;
/// How long connections may finish what they do after a shutdown, in ms.
const GRACE_MS: u64 = 2_000;
/// How long to wait after a failed accept, in ms: most often no descriptor is left.
const ACCEPT_RETRY_MS: u64 = 50;

/// How stock engines are served.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// `host:port` under which peers reach the handshake port. It is the segment's name.
    pub name: String,
    /// Under which host peers reach the data port. Stock engines do nothing without one.
    pub data_host: String,
    /// The most connections to the handshake port. Each holds up to 1 MiB while it is read.
    pub handshakes_max: usize,
    /// The most connections to the data port. Each holds up to 256 KiB for its payload.
    pub data_connections_max: usize,
    /// Who gets the messages of peers. One that finds no room is not acknowledged, so that its
    /// sender knows.
    pub notifies: Option<mpsc::Sender<Notify>>,
}

impl ListenOptions {
    /// Options with the usual bounds, without anybody who gets messages.
    #[must_use]
    pub fn new(name: String, data_host: String) -> Self {
        Self {
            name,
            data_host,
            handshakes_max: 128,
            data_connections_max: 256,
            notifies: None,
        }
    }
}

/// What the tasks of both ports share.
struct Shared {
    space: Rc<dyn AddressSpace>,
    options: ListenOptions,
    data_port: u16,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// What may be reached now.
    fn segment(&self) -> SegmentDesc {
        let name = &self.options.name;
        let buffers = self.space.buffers().into_iter().map(|range| BufferDesc {
            name: name.clone(),
            range,
        });
        SegmentDesc {
            name: name.clone(),
            data_host: self.options.data_host.clone(),
            data_port: Some(self.data_port),
            dialect: Dialect::V2,
            buffers: buffers.collect(),
        }
    }
}

/// Serves stock engines until `shutdown` turns true or its sender is dropped; then connections
/// may finish their request within two seconds. Must run in a local set, on the thread of
/// `space`.
///
/// # Errors
/// If the data listener does not know its own port.
pub async fn serve(
    handshakes: TcpListener,
    data: TcpListener,
    space: Rc<dyn AddressSpace>,
    options: ListenOptions,
    shutdown: watch::Receiver<bool>,
) -> io::Result<()> {
    let data_port = data.local_addr()?.port();
    let of_handshakes = Crowd::new(options.handshakes_max);
    let of_data = Crowd::new(options.data_connections_max);
    let shared = Rc::new(Shared {
        space,
        options,
        data_port,
    });
    let answer = |stream, place| handshake::answer(stream, place, Rc::clone(&shared));
    let told = shutdown.clone();
    let carry = |stream, place| {
        let (space, told) = (Rc::clone(&shared.space), told.clone());
        payload::carry(stream, place, space, told)
    };
    tokio::join!(
        accept(handshakes, of_handshakes, answer, shutdown.clone()),
        accept(data, of_data, carry, shutdown),
    );
    Ok(())
}

/// Accepts until the shutdown and gives each connection a task, which ends when the crowd needs
/// its place.
async fn accept<F: Future<Output = ()> + 'static>(
    listener: TcpListener,
    crowd: Crowd,
    serve: impl Fn(TcpStream, Rc<Place>) -> F,
    mut shutdown: watch::Receiver<bool>,
) {
    // Bounded by the crowd.
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            _ = shutdown.wait_for(|stop| *stop) => break,
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    // Whoever cannot be set up is gone already; without a place it is closed.
                    if let (Ok(()), Some(place)) = (tune_tcp(&stream), crowd.enter()) {
                        let place = Rc::new(place);
                        let served = serve(stream, Rc::clone(&place));
                        tasks.spawn_local(until_sent_away(place, served));
                        // It may say now what it has to say: of many who come at once, none
                        // shall have to go before it was heard.
                        yield_now().await;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a stock peer's connection could not be accepted");
                    sleep(Duration::from_millis(ACCEPT_RETRY_MS)).await;
                }
            },
        }
    }
    drop(listener);
    let rest = async { while tasks.join_next().await.is_some() {} };
    // Those that take longer are cut off by the set being dropped.
    let _ = timeout(Duration::from_millis(GRACE_MS), rest).await;
}

async fn until_sent_away(place: Rc<Place>, served: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = place.has_to_go() => {}
        () = served => {}
    }
}
