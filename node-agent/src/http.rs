//! The metrics port: `/metrics`, `/healthz` and `/readyz`, for everybody, and nothing else.

use std::io;
use std::net::TcpListener;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use larder_http::Limits;
use larder_telemetry::Registry;
use larder_telemetry::metrics::CONTENT_TYPE;
use larder_transfer::LocalMs;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::data::DataMessage;
use crate::metrics::show_status;
use crate::step::Status;

/// Connections: a kubelet, two Prometheus servers, and people. Nobody needs a credential here, so
/// nobody may hold a place for long; a scraper that keeps its connection opens another.
const LIMITS: Limits = Limits {
    connections_max: 64,
    head_ms: 5_000,
    life_ms: 30_000,
};
/// How long a page waits for the data thread, in ms.
const SHOW_MS: u64 = 500;

/// How long the control thread may take for an answer, in ms. It never waits for anything, so a
/// turn takes far less; kubelets give a probe two seconds.
const PING_MS: u64 = 1_500;

/// What the pages are made of.
#[derive(Clone)]
pub(crate) struct Page {
    registry: Registry,
    status: watch::Receiver<Status>,
    data: mpsc::Sender<DataMessage>,
    pings: mpsc::Sender<oneshot::Sender<()>>,
    clock: fn() -> LocalMs,
}

impl Page {
    pub(crate) fn new(
        registry: &Registry,
        status: &watch::Receiver<Status>,
        data: &mpsc::Sender<DataMessage>,
        pings: mpsc::Sender<oneshot::Sender<()>>,
    ) -> Self {
        Self {
            registry: registry.clone(),
            status: status.clone(),
            data: data.clone(),
            pings,
            clock: crate::data::now,
        }
    }
}

/// Starts the thread that serves the port until `stop` turns true or its sender is gone.
pub(crate) fn spawn(
    listener: TcpListener,
    page: Page,
    stop: watch::Receiver<bool>,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::Builder::new()
        .name("larder-metrics".to_owned())
        .spawn(move || runtime.block_on(serve(listener, page, stop)))
}

async fn serve(
    listener: TcpListener,
    page: Page,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(page);
    // Not graceful: nothing here is worth waiting for.
    tokio::select! {
        () = larder_http::serve(listener, router, LIMITS, std::future::pending()) => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
    Ok(())
}

async fn metrics(State(page): State<Page>) -> impl IntoResponse {
    show_status(&page.registry, &page.status.borrow(), (page.clock)());
    let (done, shown) = oneshot::channel();
    if page.data.try_send(DataMessage::Show(done)).is_ok() {
        // If the data thread has no time, the page has the numbers of before.
        let _ = timeout(Duration::from_millis(SHOW_MS), shown).await;
    }
    (
        [(header::CONTENT_TYPE, CONTENT_TYPE)],
        page.registry.render(),
    )
}

/// Live as long as the thread that sends heartbeats turns, mounted or not: a master that is away
/// is no reason to restart an agent and lose its cache.
async fn healthz(State(page): State<Page>) -> impl IntoResponse {
    match not_live(&page.pings).await {
        None => (StatusCode::OK, "live\n"),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

/// Why an agent is not live; `None` if its control thread answers.
async fn not_live(pings: &mpsc::Sender<oneshot::Sender<()>>) -> Option<&'static str> {
    let (pong, answered) = oneshot::channel();
    let exchange = async {
        pings.send(pong).await.ok()?;
        answered.await.ok()
    };
    match timeout(Duration::from_millis(PING_MS), exchange).await {
        Ok(Some(())) => None,
        Ok(None) => Some("the control thread has ended\n"),
        Err(_) => Some("the control thread is stuck: it does not answer\n"),
    }
}

async fn readyz(State(page): State<Page>) -> impl IntoResponse {
    let status = *page.status.borrow();
    match not_ready(&status, (page.clock)()) {
        None => (StatusCode::OK, "ready\n"),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

/// Why an agent is not ready; `None` if it is: mounted, and heard by its master lately.
fn not_ready(status: &Status, now: LocalMs) -> Option<&'static str> {
    let fresh = status
        .answered
        .is_some_and(|answered| now.0.saturating_sub(answered.0) <= status.fresh_ms);
    match (status.mounted, fresh) {
        (false, _) => Some("not mounted at a master\n"),
        (true, false) => Some("the master does not answer heartbeats\n"),
        (true, true) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn live_means_that_the_control_thread_turns() {
        let (pings, mut asked) = mpsc::channel(1);
        let (why, ()) = tokio::join!(not_live(&pings), async {
            let pong: oneshot::Sender<()> = asked.recv().await.expect("a ping");
            pong.send(()).expect("waited for");
        });
        assert_eq!(why, None);
        // Nobody takes the pings any more: the first waits in the channel, the second before it.
        for _ in 0..2 {
            let why = not_live(&pings).await.expect("stuck");
            assert!(why.contains("stuck"), "{why}");
        }
        drop(asked);
        let why = not_live(&pings).await.expect("gone");
        assert!(why.contains("ended"), "{why}");
    }

    #[test]
    fn ready_means_mounted_and_heard_lately() {
        let mut status = Status {
            fresh_ms: 100,
            ..Status::default()
        };
        assert!(not_ready(&status, LocalMs(1)).is_some());
        status.mounted = true;
        assert!(not_ready(&status, LocalMs(1)).is_some(), "never heard");
        status.answered = Some(LocalMs(1_000));
        assert_eq!(not_ready(&status, LocalMs(1_100)), None);
        assert!(not_ready(&status, LocalMs(1_101)).is_some());
        status.mounted = false;
        assert!(not_ready(&status, LocalMs(1_000)).is_some());
    }
}
