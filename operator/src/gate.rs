//! The gate before the API server: an operator that does not lead writes nothing.
//!
//! It stands in the client itself, so that no code path can forget to ask.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use larder_telemetry::{Metric, Registry};
use tower::{BoxError, Service};

use crate::election::Leadership;

/// Why a write was not sent.
#[derive(Debug, thiserror::Error)]
#[error("this operator does not lead; the one that does will write")]
pub struct NotLeading;

/// A client whose writes need leadership at the moment at which they leave.
#[must_use]
pub fn gated(client: Client, leadership: Leadership, registry: Registry) -> Client {
    let namespace = client.default_namespace().to_owned();
    Client::new(
        Gate {
            client,
            leadership,
            registry,
        },
        namespace,
    )
}

struct Gate {
    client: Client,
    leadership: Leadership,
    registry: Registry,
}

impl Service<Request<Body>> for Gate {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    // The client behind waits for its own turn when it is called.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if request.method() != Method::GET && !self.leadership.is_held() {
            self.registry
                .inc(Metric::OperatorRefusedWritesTotal, &[], 1);
            return Box::pin(async { Err(NotLeading.into()) });
        }
        let client = self.client.clone();
        Box::pin(async move { client.send(request).await.map_err(Into::into) })
    }
}
