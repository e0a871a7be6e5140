//! Asks the admin port of a master.

use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Request, StatusCode};
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
    match timeout(LIMIT, get(addr, path, token)).await {
        Ok(answer) => answer.map_err(|error| format!("{addr}: {error}")),
        Err(_) => Err(format!("{addr}: no answer within {} s", LIMIT.as_secs())),
    }
}

async fn get(addr: &str, path: &str, token: &str) -> Result<Value, NoAnswer> {
    let stream = TcpStream::connect(addr).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async {
        let request = Request::get(path)
            .header(HOST, addr)
            .header(AUTHORIZATION, format!("Bearer {token}"))
            .body(Empty::<Bytes>::new())?;
        let response = sender.send_request(request).await?;
        if response.status() != StatusCode::OK {
            return Err(format!("it answered {}", response.status()).into());
        }
        let body = Limited::new(response.into_body(), ANSWER_MAX_BYTES)
            .collect()
            .await?;
        Ok(serde_json::from_slice(&body.to_bytes())?)
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
