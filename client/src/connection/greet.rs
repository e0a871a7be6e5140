//! Connects to one master and says hello.

use std::time::Duration;

use larder_wire::decoder::FrameDecoder;
use larder_wire::frame::{FLAG_ERROR, Frame, NO_DEADLINE};
use larder_wire::hello::{Hello, Refused, Welcome};
use larder_wire::limit::HELLO_TIMEOUT_MS;
use larder_wire::{FrameError, Kind, decode_body, encode_frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

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

/// Connects to one master and says hello.
pub(super) async fn connect(
    master: &str,
    hello: &Hello,
) -> Result<(TcpStream, FrameDecoder, Welcome), NoSession> {
    let unreachable = |error: std::io::Error| NoSession::Unreachable(error.to_string());
    let stream = match timeout(CONNECT_TIMEOUT, TcpStream::connect(master)).await {
        Ok(connected) => connected.map_err(unreachable)?,
        Err(_) => {
            return Err(NoSession::Unreachable(
                "it does not accept connections".to_owned(),
            ));
        }
    };
    stream.set_nodelay(true).map_err(unreachable)?;
    match timeout(
        Duration::from_millis(HELLO_TIMEOUT_MS),
        say_hello(stream, hello),
    )
    .await
    {
        Ok(outcome) => outcome,
        Err(_) => Err(NoSession::Silent),
    }
}

async fn say_hello(
    mut stream: TcpStream,
    hello: &Hello,
) -> Result<(TcpStream, FrameDecoder, Welcome), NoSession> {
    let broken = |error: FrameError| match error {
        FrameError::Magic(HTTP) => {
            NoSession::Unreachable("it answers HTTP; is it the admin or metrics port?".to_owned())
        }
        error => NoSession::Unreachable(error.to_string()),
    };
    let lost = |error: std::io::Error| NoSession::Unreachable(error.to_string());
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
