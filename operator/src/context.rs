//! What every reconcile is given. The only struct that holds a client.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder};

use crate::conditions::Wanted;
use crate::config::Config;
use crate::error::Failures;
use crate::master_api::{MasterApi, MasterViews};
use crate::metrics::OperatorMetrics;
use crate::node::leave::Drains;
use crate::node::topology::Topology;
use crate::pool::apply::RootKeys;
use crate::pool::signals::SignalTimes;
use crate::reasons::Severity;
use crate::stores::Stores;

/// What every reconcile is given.
pub struct Context {
    /// Its writes are refused while this operator does not lead.
    pub client: Client,
    /// What the watches know.
    pub stores: Stores,
    /// How masters are asked.
    pub master_api: Arc<dyn MasterApi>,
    /// What masters answered last.
    pub masters: MasterViews,
    /// Which pools have a root key.
    pub root_keys: RootKeys,
    /// How the drains of nodes that leave are followed.
    pub drains: Drains,
    /// What masters were told of where agents stand.
    pub topology: Topology,
    /// When statuses last told how caches do.
    pub signal_times: SignalTimes,
    /// Publishes events; writes like any other.
    pub recorder: Recorder,
    /// What is counted.
    pub metrics: Arc<OperatorMetrics>,
    /// How often each object failed.
    pub failures: Failures,
    /// What the operator was told at its start.
    pub config: Config,
    /// Namespace of the operator's own pod.
    pub namespace: String,
    /// Wall time: for `lastTransitionTime`, and for the deadlines of drains, which outlive an
    /// operator.
    pub now: fn() -> Timestamp,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Context {
    /// The operator's own ServiceAccount as `namespace/name`.
    #[must_use]
    pub fn service_account(&self) -> String {
        format!("{}/{}", self.namespace, self.config.service_account)
    }

    /// Publishes one event per changed condition. A lost event is no reason to fail: the condition
    /// says the same.
    pub async fn publish(&self, about: &ObjectReference, changes: &[&Wanted]) {
        for change in changes {
            let event = Event {
                type_: match change.reason.severity() {
                    Severity::Normal => EventType::Normal,
                    Severity::Warning => EventType::Warning,
                },
                reason: change.reason.text().to_owned(),
                note: Some(change.message.clone()),
                action: "Reconcile".to_owned(),
                secondary: None,
            };
            if let Err(error) = self.recorder.publish(&event, about).await {
                tracing::warn!(%error, reason = change.reason.text(), "an event was lost");
            }
        }
    }
}
