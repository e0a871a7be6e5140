//! One question to a peer's handshake port, on a connection of its own.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{InteropError, PeerOptions};
use crate::interop::frame::{FrameDecoder, FrameKind, encode};
use crate::lane::connect_tcp;

/// How much one read takes, in bytes.
const READ_BYTES: usize = 16 * 1024;

/// Connects within the options' limit.
pub(super) async fn connect(addr: &str, options: &PeerOptions) -> Result<TcpStream, InteropError> {
    let limit = Duration::from_millis(options.connect_timeout_ms);
    let stream = connect_tcp(addr, limit).await;
    stream.map_err(|source| InteropError::Unavailable {
        addr: addr.to_owned(),
        source,
    })
}

/// Asks and returns the JSON of the answer. Has no limit of its own beyond connecting: a stock
/// peer answers one after the other and may let us wait for its turn.
pub(super) async fn exchange(
    addr: &str,
    options: &PeerOptions,
    kind: FrameKind,
    json: &[u8],
) -> Result<Vec<u8>, InteropError> {
    let question = encode(kind, json)?;
    let mut stream = connect(addr, options).await?;
    stream.write_all(&question).await?;
    let mut decoder = FrameDecoder::default();
    let mut piece = Vec::with_capacity(READ_BYTES);
    loop {
        piece.clear();
        if stream.read_buf(&mut piece).await? == 0 {
            // Also where nothing came: a peer that refuses a question says nothing.
            return Err(InteropError::ConnectionLost);
        }
        if let Some(answer) = decoder.feed(&piece)? {
            return if answer.kind == kind {
                Ok(answer.json)
            } else {
                Err(InteropError::Mismatch)
            };
        }
    }
}
