//! Putting the label of a pool on nodes and taking it off. Nothing else of a Node is touched.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::ReconcileError;
use crate::names::MANAGER;

/// Puts `label` with `value` on a node.
///
/// # Errors
/// What the API server said; a node that is gone is no error.
pub async fn put(
    context: &Context,
    node: &str,
    label: &str,
    value: &str,
) -> Result<(), ReconcileError> {
    patch(context, node, label, json!(value)).await
}

/// Takes `label` off a node.
///
/// # Errors
/// What the API server said; a node that is gone is no error.
pub async fn take(context: &Context, node: &str, label: &str) -> Result<(), ReconcileError> {
    patch(context, node, label, Value::Null).await
}

// A merge patch, not an apply: one field manager has labels of many pools on the same node, and
// an apply would have to name them all.
async fn patch(
    context: &Context,
    node: &str,
    label: &str,
    value: Value,
) -> Result<(), ReconcileError> {
    let verb = if value.is_null() { "unlabel" } else { "label" };
    tracing::info!(node, label, verb, "changing the members of a pool");
    let api: Api<Node> = Api::all(context.client.clone());
    let body = json!({ "metadata": { "labels": { label: value } } });
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    match api
        .patch_metadata(node, &params, &Patch::Merge(&body))
        .await
    {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
        Err(source) => return Err(ReconcileError::api(verb, format!("Node {node}"), source)),
    }
    context.metrics.wrote("Node", verb);
    Ok(())
}
