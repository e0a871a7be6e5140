//! The tcp port of an agent, and what both listeners do alike.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::connection::{Listener, serve};
use super::{GRACE_MS, ServeOptions};
use crate::SegmentsHandle;
use crate::lane::{Socket, tune_tcp};

/// How long to wait after a failed accept, in ms: most often the process has no descriptor left
/// and trying again at once would fail again.
const ACCEPT_RETRY_MS: u64 = 50;

/// Serves clients of other nodes until `shutdown` turns true or its sender is dropped; then the
/// connections finish their frame within two seconds. Must run on the thread of `segments`, in a
/// local set.
pub async fn serve_tcp(
    listener: TcpListener,
    segments: SegmentsHandle,
    options: ServeOptions,
    shutdown: watch::Receiver<bool>,
) {
    let accept = async || {
        let (stream, _) = listener.accept().await?;
        tune_tcp(&stream)?;
        Ok(stream)
    };
    serve_listener(accept, Listener::Tcp, segments, options, shutdown).await;
}

/// Accepts and serves until the shutdown.
pub(super) async fn serve_listener<S, F>(
    mut accept: impl FnMut() -> F,
    listener: Listener,
    segments: SegmentsHandle,
    options: ServeOptions,
    mut shutdown: watch::Receiver<bool>,
) where
    S: Socket + 'static,
    F: Future<Output = io::Result<S>>,
{
    let told = shutdown.clone();
    // Bounded by `Connections`: the oldest stranger goes, and the known have a limit.
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            _ = shutdown.wait_for(|stop| *stop) => break,
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            accepted = accept() => match accepted {
                Ok(stream) => {
                    let (segments, options) = (segments.clone(), options.clone());
                    tasks.spawn_local(serve(stream, listener, segments, options, told.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, ?listener, "a connection could not be accepted");
                    sleep(Duration::from_millis(ACCEPT_RETRY_MS)).await;
                }
            },
        }
    }
    let rest = async { while tasks.join_next().await.is_some() {} };
    // Those that take longer are cut off by the set being dropped.
    let _ = timeout(Duration::from_millis(GRACE_MS), rest).await;
}
