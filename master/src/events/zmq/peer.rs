//! One connection to an endpoint: a subscriber of the PUB socket, or one that wants batches
//! repeated from the ROUTER socket.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::zmtp::{
    FromPeer, GREETING_BYTES, ZmtpError, check_greeting, check_ready, greeting, pong, push_message,
    ready, take_frame,
};

/// How long a peer may take for its part of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a peer may leave bytes untaken.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// The most topics of one subscriber; it needs one.
const TOPICS_MAX: usize = 16;
/// The most bytes read at once: a frame and the beginning of the next.
const READ_BYTES: usize = 2_048;
/// The most bytes of messages that share one write.
const WRITE_BYTES: usize = 256 * 1024;
/// What stands for the number of a batch behind the last one that is repeated: -1.
const END: [u8; 8] = [0xff; 8];

/// Batches that can be repeated: number and payload.
pub(super) type Kept = Vec<(u64, Bytes)>;

/// Asks the endpoint for the batches from a number on.
#[derive(Debug)]
pub(super) struct ReplayAsk {
    pub(super) from: u64,
    pub(super) reply: oneshot::Sender<Kept>,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum PeerEnd {
    #[error("the connection broke")]
    Io(#[from] io::Error),
    #[error("the peer broke the protocol")]
    Zmtp(#[from] ZmtpError),
    #[error("the peer takes too long")]
    Late(#[from] tokio::time::error::Elapsed),
    #[error("a subscriber has too many topics")]
    Topics,
}

struct Peer {
    stream: TcpStream,
    /// What was read and is no whole frame yet; at most one frame and [`READ_BYTES`].
    buffer: Vec<u8>,
}

impl Peer {
    /// Greets in turn and learns of what kind the other end is.
    async fn greet(mut stream: TcpStream, own: &str, fitting: &[&str]) -> Result<Self, PeerEnd> {
        stream.set_nodelay(true)?;
        let buffer = Vec::new();
        let handshake = async {
            stream.write_all(&greeting()).await?;
            let mut first = [0; GREETING_BYTES];
            stream.read_exact(&mut first).await?;
            check_greeting(&first)?;
            stream.write_all(&ready(own)).await?;
            let mut peer = Self { stream, buffer };
            let frame = loop {
                if let Some(frame) = take_frame(&mut peer.buffer)? {
                    break frame;
                }
                peer.read().await?;
            };
            check_ready(&frame, fitting)?;
            Ok(peer)
        };
        timeout(HANDSHAKE_TIMEOUT, handshake).await?
    }

    /// Reads once. Nothing is lost if it is dropped while it waits.
    async fn read(&mut self) -> io::Result<()> {
        let mut chunk = (&mut self.stream).take(READ_BYTES as u64);
        match chunk.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), PeerEnd> {
        Ok(timeout(WRITE_TIMEOUT, self.stream.write_all(bytes)).await??)
    }

    /// Answers a PING; other commands say nothing that concerns us.
    async fn obey(&mut self, name: &[u8], rest: &[u8]) -> Result<(), PeerEnd> {
        // Behind two bytes with a time to live stands what a PONG brings back.
        match (name, rest.get(2..)) {
            (b"PING", Some(context)) => self.write(&pong(context)).await,
            _ => Ok(()),
        }
    }
}

/// Serves one subscriber until it or the endpoint ends.
pub(super) async fn serve_subscriber(
    stream: TcpStream,
    topic: Bytes,
    mut queue: mpsc::Receiver<Bytes>,
) -> Result<(), PeerEnd> {
    let mut peer = Peer::greet(stream, "PUB", &["SUB", "XSUB"]).await?;
    let mut topics: Vec<Vec<u8>> = Vec::new();
    let mut out = Vec::new();
    loop {
        // First what came together with the handshake, or a subscription would be heard only when
        // its peer says something else.
        while let Some(frame) = take_frame(&mut peer.buffer)? {
            match frame {
                FromPeer::Command(name, rest) => match name.as_slice() {
                    b"SUBSCRIBE" => subscribe(&mut topics, 1, rest)?,
                    b"CANCEL" => subscribe(&mut topics, 0, rest)?,
                    _ => peer.obey(&name, &rest).await?,
                },
                FromPeer::Part(part, _) => match part.split_first() {
                    Some((what, rest)) => subscribe(&mut topics, *what, rest.to_vec())?,
                    None => return Err(ZmtpError::Broken.into()),
                },
            }
        }
        tokio::select! {
            read = peer.read() => read?,
            message = queue.recv() => {
                let Some(message) = message else { return Ok(()) };
                let is_wanted = topics.iter().any(|wanted| topic.starts_with(wanted));
                if !is_wanted {
                    continue;
                }
                out.clear();
                out.extend_from_slice(&message);
                while out.len() < WRITE_BYTES && let Ok(message) = queue.try_recv() {
                    out.extend_from_slice(&message);
                }
                peer.write(&out).await?;
            }
        }
    }
}

/// Takes a subscription in (1) or out (0).
fn subscribe(topics: &mut Vec<Vec<u8>>, what: u8, topic: Vec<u8>) -> Result<(), PeerEnd> {
    match what {
        1 if topics.len() == TOPICS_MAX => return Err(PeerEnd::Topics),
        1 => topics.push(topic),
        0 => {
            if let Some(at) = topics.iter().position(|known| *known == topic) {
                topics.swap_remove(at);
            }
        }
        _ => return Err(ZmtpError::Broken.into()),
    }
    Ok(())
}

/// Repeats batches for one peer as often as it asks. A request is an empty part and the number
/// of the first batch wanted, eight bytes with the highest first.
pub(super) async fn serve_replay(
    stream: TcpStream,
    asks: mpsc::Sender<ReplayAsk>,
) -> Result<(), PeerEnd> {
    let mut peer = Peer::greet(stream, "ROUTER", &["REQ", "DEALER", "ROUTER"]).await?;
    let mut parts: Vec<Vec<u8>> = Vec::new();
    loop {
        let Some(frame) = take_frame(&mut peer.buffer)? else {
            peer.read().await?;
            continue;
        };
        let more = match frame {
            FromPeer::Command(name, rest) => {
                peer.obey(&name, &rest).await?;
                continue;
            }
            FromPeer::Part(part, more) => {
                parts.push(part);
                more
            }
        };
        if parts.len() > 2 {
            return Err(ZmtpError::Broken.into());
        }
        if more {
            continue;
        }
        let from = match parts.as_slice() {
            [delimiter, number] if delimiter.is_empty() => number.as_slice().try_into().ok(),
            _ => None,
        };
        parts.clear();
        let from = u64::from_be_bytes(from.ok_or(ZmtpError::Broken)?);
        let (reply, kept) = oneshot::channel();
        if asks.send(ReplayAsk { from, reply }).await.is_err() {
            return Ok(());
        }
        let Ok(kept) = kept.await else { return Ok(()) };
        repeat(&mut peer, kept).await?;
    }
}

async fn repeat(peer: &mut Peer, kept: Kept) -> Result<(), PeerEnd> {
    let mut out = Vec::new();
    for (seq, payload) in kept {
        push_message(&mut out, &[b"", &seq.to_be_bytes(), &payload]);
        if out.len() >= WRITE_BYTES {
            peer.write(&out).await?;
            out.clear();
        }
    }
    push_message(&mut out, &[b"", &END, b""]);
    peer.write(&out).await
}
