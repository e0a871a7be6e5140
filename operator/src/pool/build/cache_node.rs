//! One CacheNode per member: the operator writes its spec, the agent its status.

use serde_json::json;

use super::Owner;
use crate::child::{Child, ChildKind};
use crate::names;

pub(super) fn build(owner: &Owner<'_>, node: &str) -> Child {
    let spec = json!({ "spec": { "poolRef": { "name": owner.id.name }, "nodeName": node } });
    owner.child(
        ChildKind::CacheNode,
        names::cache_node(&owner.id.name, node),
        "agent",
        spec,
    )
}
