//! The Unix socket of an agent.

use tokio::net::UnixListener;
use tokio::sync::watch;

use super::ServeOptions;
use super::connection::Listener;
use super::tcp::serve_listener;
use crate::SegmentsHandle;
use crate::lane::FdStream;

/// Serves clients of this node until `shutdown` turns true; they can do what they can over tcp,
/// and lend buffers and hold views. Must run on the thread of `segments`, in a local set.
pub async fn serve_unix(
    listener: UnixListener,
    segments: SegmentsHandle,
    options: ServeOptions,
    shutdown: watch::Receiver<bool>,
) {
    let accept = async || Ok(FdStream::new(listener.accept().await?.0));
    serve_listener(accept, Listener::Unix, segments, options, shutdown).await;
}
