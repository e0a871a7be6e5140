//! Resolves the name of a master, connects to one address and says hello.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use larder_wire::decoder::FrameDecoder;
use larder_wire::frame::{FLAG_ERROR, Frame, NO_DEADLINE};
use larder_wire::hello::{Hello, Refused, RefusedReason, Welcome};
use larder_wire::limit::HELLO_TIMEOUT_MS;
use larder_wire::{FrameError, Kind, decode_body, encode_frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// How long a name may take to be resolved.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);
/// The most addresses of one name: more masters than any pool has.
const ADDRESSES_MAX: usize = 16;
/// How long one master may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How an answer of a web server starts.
const HTTP: [u8; 4] = *b"HTTP";

/// Why no session came about.
pub(super) enum NoSession {
    /// Nobody there who speaks the protocol.
    Unreachable(String),
    /// It accepts connections and does not answer: it hangs, or is very busy.
    Silent,
    /// The master refused.
    Rejected(Refused),
}

/// Finds the addresses of `host:port`.
pub(super) trait Resolve: Send + Sync + std::fmt::Debug {
    /// At least one address, or why there is none.
    fn resolve<'a>(&'a self, master: &'a str) -> Resolved<'a>;
}

/// Addresses on their way.
pub(super) type Resolved<'a> =
    Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>>;

/// Asks the system, which asks DNS: nothing is kept, because a pod comes back under another
/// address.
#[derive(Debug)]
pub(super) struct System;

impl Resolve for System {
    fn resolve<'a>(&'a self, master: &'a str) -> Resolved<'a> {
        Box::pin(async move { Ok(lookup_host(master).await?.collect()) })
    }
}

/// A connection with its session.
pub(super) type Greeted = (TcpStream, FrameDecoder, Welcome);

/// The addresses of one master, at least one.
pub(super) async fn resolve(
    resolver: &dyn Resolve,
    master: &str,
) -> Result<Vec<SocketAddr>, NoSession> {
    let unreachable = |detail: String| Err(NoSession::Unreachable(detail));
    match timeout(RESOLVE_TIMEOUT, resolver.resolve(master)).await {
        Ok(Ok(addresses)) if addresses.is_empty() => {
            unreachable("its name has no address".to_owned())
        }
        Ok(Ok(mut addresses)) => {
            addresses.truncate(ADDRESSES_MAX);
            Ok(addresses)
        }
        Ok(Err(error)) => unreachable(error.to_string()),
        Err(_) => unreachable("its name is not resolved in time".to_owned()),
    }
}

impl NoSession {
    /// How much it says: a refusal says more than silence, and silence more than a closed port.
    pub(super) const fn says(&self) -> u8 {
        match self {
            Self::Unreachable(_) => 0,
            Self::Silent => 1,
            Self::Rejected(refused) if matches!(refused.reason, RefusedReason::NotLeader) => 2,
            Self::Rejected(_) => 3,
        }
    }
}

/// Connects to one address and says hello.
pub(super) async fn reach(address: SocketAddr, hello: &Hello) -> Result<Greeted, NoSession> {
    let unreachable = |error: io::Error| NoSession::Unreachable(error.to_string());
    let stream = match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
        Ok(connected) => connected.map_err(unreachable)?,
        Err(_) => {
            return Err(NoSession::Unreachable(
                "it does not accept connections".to_owned(),
            ));
        }
    };
    stream.set_nodelay(true).map_err(unreachable)?;
    let hello_timeout = Duration::from_millis(HELLO_TIMEOUT_MS);
    match timeout(hello_timeout, say_hello(stream, hello)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(NoSession::Silent),
    }
}

/// Whether a refusal says nothing of us, so that the same hello may be accepted later.
pub(super) const fn is_passing(reason: RefusedReason) -> bool {
    matches!(
        reason,
        RefusedReason::Busy
            | RefusedReason::Stopping
            | RefusedReason::Expired
            | RefusedReason::NotLeader
    )
}

async fn say_hello(mut stream: TcpStream, hello: &Hello) -> Result<Greeted, NoSession> {
    let broken = |error: FrameError| match error {
        FrameError::Magic(HTTP) => {
            NoSession::Unreachable("it answers HTTP; is it the admin or metrics port?".to_owned())
        }
        error => NoSession::Unreachable(error.to_string()),
    };
    let lost = |error: io::Error| NoSession::Unreachable(error.to_string());
    let mut out = Vec::new();
    encode_frame(
        &mut out,
        Frame::request(Kind::Hello, 1, 0, NO_DEADLINE),
        hello,
    )
    .map_err(broken)?;
    stream.write_all(&out).await.map_err(lost)?;
    let mut decoder = FrameDecoder::before_hello();
    loop {
        if let Some((header, body)) = decoder.next_frame().map_err(broken)? {
            if header.has(FLAG_ERROR) || header.kind == Kind::Goodbye {
                let refused = decode_body(header.kind, body).map_err(broken)?;
                return Err(NoSession::Rejected(refused));
            }
            let welcome = decode_body(header.kind, body).map_err(broken)?;
            // Control frames carry no payload.
            decoder.accept(0);
            return Ok((stream, decoder, welcome));
        }
        let bytes = stream.read(decoder.space()).await.map_err(lost)?;
        if bytes == 0 {
            let detail = "it closed the connection during the hello".to_owned();
            return Err(NoSession::Unreachable(detail));
        }
        decoder.filled(bytes);
    }
}
