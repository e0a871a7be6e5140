//! Asks the admin port of a master.

use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The longest answer that is read, in bytes.
const ANSWER_MAX_BYTES: usize = 1 << 20;
/// How long a master may take.
const LIMIT: Duration = Duration::from_secs(2);

/// Why there is no answer, for people.
type NoAnswer = Box<dyn std::error::Error + Send + Sync>;

/// Gets a JSON document from `path` of the admin port at `addr`.
pub(crate) async fn get_json(addr: &str, path: &str, token: &str) -> Result<Value, String> {
    let (status, value) = send(addr, (Method::GET, path), None, token).await?;
    if status == StatusCode::OK {
        Ok(value)
    } else {
        Err(format!("{addr}: it answered {status}"))
    }
}

/// Sends a request to the admin port at `addr`, with JSON where there is something to say: the
/// status of the answer, and its JSON, null where there is none.
pub(crate) async fn send(
    addr: &str,
    asked: (Method, &str),
    said: Option<&Value>,
    token: &str,
) -> Result<(StatusCode, Value), String> {
    match timeout(LIMIT, exchange(addr, asked, said, token)).await {
        Ok(answer) => answer.map_err(|error| format!("{addr}: {error}")),
        Err(_) => Err(format!("{addr}: no answer within {} s", LIMIT.as_secs())),
    }
}

async fn exchange(
    addr: &str,
    (method, path): (Method, &str),
    said: Option<&Value>,
    token: &str,
) -> Result<(StatusCode, Value), NoAnswer> {
    let stream = TcpStream::connect(addr).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, addr)
            .header(AUTHORIZATION, format!("Bearer {token}"))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(
                said.map(Value::to_string)
                    .map_or_else(Bytes::new, Bytes::from),
            ))?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_MAX_BYTES)
            .collect()
            .await?;
        // A refusal by somebody else than a master need not be JSON.
        let value = match serde_json::from_slice(&body.to_bytes()) {
            Ok(value) => value,
            Err(error) if status == StatusCode::OK => return Err(error.into()),
            Err(_) => Value::Null,
        };
        Ok((status, value))
    };
    tokio::pin!(exchange);
    tokio::pin!(connection);
    tokio::select! {
        answer = &mut exchange => answer,
        ended = &mut connection => {
            ended?;
            // The whole answer may have come with the end of the connection.
            exchange.await
        }
    }
}
