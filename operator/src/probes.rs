//! The operator's port: metrics and probes, nothing else, and no credential.

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use larder_telemetry::metrics::CONTENT_TYPE;
use tokio::net::TcpListener;

use crate::election::Leadership;
use crate::metrics::OperatorMetrics;

#[derive(Clone, Debug)]
struct Probes {
    metrics: Arc<OperatorMetrics>,
    leadership: Leadership,
}

/// Serves until `stop`.
///
/// # Errors
/// The listener failed.
pub async fn serve(
    listener: TcpListener,
    metrics: Arc<OperatorMetrics>,
    leadership: Leadership,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/metrics", get(page))
        .route("/healthz", get(healthz))
        // A standby is ready too: it can take over.
        .route("/readyz", get(|| async { "ok\n" }))
        .with_state(Probes {
            metrics,
            leadership,
        });
    axum::serve(listener, router)
        .with_graceful_shutdown(stop)
        .await
}

async fn page(State(probes): State<Probes>) -> impl IntoResponse {
    let page = probes.metrics.page(probes.leadership.is_held());
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], page)
}

async fn healthz(State(probes): State<Probes>) -> impl IntoResponse {
    if probes.metrics.is_stuck(probes.leadership.is_held()) {
        let idle = format!("no reconcile for {} ms\n", probes.metrics.idle_ms());
        return (StatusCode::SERVICE_UNAVAILABLE, idle);
    }
    (StatusCode::OK, "ok\n".to_owned())
}
