//! One connection of the handshake port: a frame comes, an answer goes.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use serde::de::IgnoredAny;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::crowd::Place;
use super::{HELLO_TIMEOUT_MS, Shared};
use crate::interop::Notify;
use crate::interop::frame::{Frame, FrameDecoder, FrameError, FrameKind, encode};

/// How much one read takes, in bytes.
const READ_BYTES: usize = 16 * 1024;

/// Why a peer got no answer. It never hears why: stock engines only understand silence.
#[derive(Debug, thiserror::Error)]
enum Unanswered {
    #[error("the peer sent no frame")]
    Frame(#[from] FrameError),
    #[error("the connection broke")]
    Io(#[from] io::Error),
    #[error("the frame has no JSON, or not that of its kind")]
    Json(#[from] serde_json::Error),
    #[error("the peer was not done within {HELLO_TIMEOUT_MS} ms")]
    Slow,
    #[error("its place was given away")]
    Crowded,
    #[error("nobody takes messages, or there are too many")]
    Full,
}

/// Serves the connection until it is closed. Being dropped ends it at any point.
pub(super) async fn answer(stream: TcpStream, place: Rc<Place>, shared: Rc<Shared>) {
    if let Err(error) = try_answer(stream, &place, &shared).await {
        tracing::debug!(?error, "a stock peer's handshake was not answered");
    }
}

async fn try_answer(
    mut stream: TcpStream,
    place: &Place,
    shared: &Shared,
) -> Result<(), Unanswered> {
    let limit = Duration::from_millis(HELLO_TIMEOUT_MS);
    let frame = timeout(limit, receive(&mut stream));
    let frame = frame.await.map_err(|_| Unanswered::Slow)??;
    let Some(frame) = frame else {
        return Ok(());
    };
    // It is no stranger now, but can still be sent away: who asks and does not take the answer
    // shall not fill the port.
    if !place.begin() {
        return Err(Unanswered::Crowded);
    }
    place.rest();
    let reply = encode(frame.kind, &reply(&frame, shared)?)?;
    let send = async {
        stream.write_all(&reply).await?;
        stream.shutdown().await?;
        // Closing while the peer has not read all could take the answer from it again.
        let mut rest = [0; 64];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    Ok(timeout(limit, send).await.map_err(|_| Unanswered::Slow)??)
}

/// The one frame of a connection; `None` if it is closed before the first byte.
async fn receive(stream: &mut TcpStream) -> Result<Option<Frame>, Unanswered> {
    let mut decoder = FrameDecoder::default();
    let mut piece = Vec::with_capacity(READ_BYTES);
    loop {
        piece.clear();
        if stream.read_buf(&mut piece).await? == 0 {
            decoder.finish()?;
            return Ok(None);
        }
        if let Some(frame) = decoder.feed(&piece)? {
            return Ok(Some(frame));
        }
    }
}

/// The JSON of the answer.
fn reply(frame: &Frame, shared: &Shared) -> Result<Vec<u8>, Unanswered> {
    match frame.kind {
        FrameKind::Metadata => {
            // The peer's own segment, which nobody here needs; but it must be one text of JSON.
            serde_json::from_slice::<IgnoredAny>(&frame.json)?;
            Ok(shared.segment().encode()?)
        }
        FrameKind::Notify => {
            let notify = Notify::decode(&frame.json)?;
            let notifies = shared.options.notifies.as_ref().ok_or(Unanswered::Full)?;
            notifies.try_send(notify).map_err(|_| Unanswered::Full)?;
            let taken = Notify {
                name: String::new(),
                message: "success".to_owned(),
            };
            Ok(taken.encode()?)
        }
        FrameKind::Probe => {
            serde_json::from_slice::<IgnoredAny>(&frame.json)?;
            Ok(b"{\"status\":\"success\"}\n".to_vec())
        }
        FrameKind::Connection | FrameKind::Legacy => {
            serde_json::from_slice::<IgnoredAny>(&frame.json)?;
            // Where queue pairs are asked for, a text in this field is what went wrong.
            Ok(b"{\"reply_msg\":\"this segment is reached by tcp only\"}\n".to_vec())
        }
    }
}
