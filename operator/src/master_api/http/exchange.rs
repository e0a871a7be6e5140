//! One call of an administration port, and what a refusal says.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::{ANSWER_BYTES_MAX, LIMIT_MS, MasterError, TOLD_CHARS};

/// One connection per call: a call comes every half minute, so keeping one open gains nothing.
pub(super) async fn exchange(
    addr: &str,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), MasterError> {
    let stream = TcpStream::connect(addr)
        .await
        .map_err(|source| unreachable(addr, source))?;
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|source| unreachable(addr, source))?;
    // Ends with `sender`, at the end of this function.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to a master ended early");
        }
    });
    let answer = sender
        .send_request(request)
        .await
        .map_err(|source| unreachable(addr, source))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX)
        .collect()
        .await;
    let body = body.map_err(|source| MasterError::Unreachable {
        addr: addr.to_owned(),
        source,
    })?;
    Ok((status, body.to_bytes()))
}

pub(super) fn unreachable(
    addr: &str,
    source: impl std::error::Error + Send + Sync + 'static,
) -> MasterError {
    MasterError::Unreachable {
        addr: addr.to_owned(),
        source: Box::new(source),
    }
}

pub(super) fn slow(addr: &str) -> MasterError {
    MasterError::Slow {
        addr: addr.to_owned(),
        limit_ms: LIMIT_MS,
    }
}

pub(super) fn refused(status: StatusCode, body: &[u8]) -> MasterError {
    let text = String::from_utf8_lossy(body);
    MasterError::Refused {
        status: status.as_u16(),
        body: text.chars().take(TOLD_CHARS).collect(),
    }
}
