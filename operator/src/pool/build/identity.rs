//! Who is who in a pool: the file `subjects.json` that its masters read.
//!
//! ```json
//! {
//!   "audience": "larder.apps.pool-small",
//!   "subjects": [
//!     {"principal": "AgentOfNode", "service_account": "apps/pool-small-agent"},
//!     {"principal": "Master", "service_account": "apps/pool-small-master"},
//!     {"principal": "Operator", "service_account": "larder-system/larder-operator"},
//!     {"principal": {"Tenant": "team-a"}, "service_account": "apps/team-a"}
//!   ]
//! }
//! ```
//!
//! A master sends a credential to the TokenReview API with `audience` as the only audience. If the
//! review says that it is authenticated and its user is `system:serviceaccount:<namespace>:<name>`,
//! the entry of `<namespace>/<name>` tells the principal; without an entry it proves nothing. Each
//! account stands here at most once.
//!
//! `principal` is `larder_types::Principal` as serde writes it, with one form more: `AgentOfNode`
//! is `Agent(<node>)`, where `<node>` is the value of the review's extra
//! `authentication.kubernetes.io/node-name`, which the API server puts into tokens bound to a pod.
//! A token without it (one that somebody made with `kubectl create token`) proves nothing.
//!
//! The file comes from a ConfigMap, so it changes under a running master, by an exchange of a
//! symbolic link: look at it again when its modification time or size changed. A tenant that is
//! deleted vanishes from it first.

use larder_crds::TenantSettings;
use serde_json::{Value, json};

use super::files::lined;
use crate::names::PoolId;

/// The text of the file.
pub(super) fn file(id: &PoolId, operator_account: &str, tenants: &[TenantSettings]) -> String {
    let own = |name: String| format!("{}/{name}", id.namespace);
    let roles = [
        entry(own(id.agent()), json!("AgentOfNode")),
        entry(own(id.master()), json!("Master")),
        entry(operator_account.to_owned(), json!("Operator")),
    ];
    let tenants = tenants.iter().flat_map(|tenant| {
        tenant.subjects.iter().map(|subject| {
            let account = format!("{}/{}", subject.namespace, subject.name);
            entry(account, json!({ "Tenant": tenant.tenant_id }))
        })
    });
    let mut entries: Vec<Value> = roles.into_iter().chain(tenants).collect();
    // A subject may be named twice by its tenant.
    entries.dedup();
    let subjects = lined(entries.into_iter());
    format!(
        "{{\"audience\": \"{}\", \"subjects\": {}}}\n",
        id.audience(),
        subjects.trim_end()
    )
}

fn entry(service_account: String, principal: Value) -> Value {
    json!({ "service_account": service_account, "principal": principal })
}
