//! Writing what a pool needs, in a fixed order: what others need first, orphans last.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use larder_crds::CachePool;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use super::build::Owner;
use super::observe::{MasterSeen, Seen};
use super::validate::ValidPool;
use crate::child::{self, Child, ChildKey, ChildKind};
use crate::context::Context;
use crate::error::ReconcileError;
use crate::names::{MANAGER, POOL_FINALIZER};
use crate::node::labels;
use crate::node::members::Members;
use crate::node::silence;

/// Bytes of the root of the capability keys.
const ROOT_KEY_BYTES: usize = 32;
/// How long a root key that was seen is taken to be there.
const ROOT_KEY_KNOWN: Duration = Duration::from_secs(900);

/// Writes what differs. Each step may be the last before a crash: the next run goes on.
///
/// # Errors
/// [`ReconcileError`].
pub async fn apply(
    context: &Context,
    pool: &ValidPool,
    members: &Members,
    wanted: &[Child],
    seen: &Seen,
) -> Result<(), ReconcileError> {
    if !matches!(
        seen.master,
        MasterSeen::Starting | MasterSeen::Leaderless(_)
    ) {
        context.root_keys.forget(&pool.id.uid);
    } else if !context.root_keys.is_known(&pool.id.uid) {
        ensure_root_key(context, pool).await?;
        context.root_keys.insert(&pool.id.uid);
    }
    // Labels after the binding by which a sweep knows whose they are, and before the DaemonSet:
    // its controller then finds its nodes at its first look.
    let is_set = |child: &Child| child.key.kind == ChildKind::DaemonSet;
    let at_set = wanted.iter().position(is_set).unwrap_or(wanted.len());
    let (before, rest) = wanted.split_at(at_set);
    let label = pool.id.node_label();
    child::apply(context, before, &seen.standing, &pool.id.uid).await?;
    for node in &members.joining {
        labels::put(context, node, &label, &pool.id.name).await?;
    }
    child::apply(context, rest, &seen.standing, &pool.id.uid).await?;
    for node in &members.leaving {
        labels::take(context, node, &label).await?;
    }
    let is_wanted = |key: &ChildKey| wanted.iter().any(|child| child.key == *key);
    let orphans: Vec<ChildKey> = seen
        .standing
        .keys()
        .filter(|key| !is_wanted(key))
        .cloned()
        .collect();
    child::remove(context, &orphans).await?;
    if let MasterSeen::Leads(looks) = &seen.master {
        silence::tell(context, &seen.standing, looks).await?;
    }
    Ok(())
}

/// When the root key of a pool, by uid, was last seen to exist since its master was ready. Without
/// it a pool that takes long to start would be asked for its key at every look; with it for ever,
/// a Secret that is deleted meanwhile would never be made again.
#[derive(Debug)]
pub struct RootKeys(watch::Sender<BTreeMap<String, Instant>>);

impl Default for RootKeys {
    fn default() -> Self {
        Self(watch::Sender::new(BTreeMap::new()))
    }
}

impl RootKeys {
    fn is_known(&self, pool_uid: &str) -> bool {
        let seen = self.0.borrow().get(pool_uid).copied();
        seen.is_some_and(|seen| seen.elapsed() < ROOT_KEY_KNOWN)
    }

    fn insert(&self, pool_uid: &str) {
        self.0.send_modify(|known| {
            known.insert(pool_uid.to_owned(), Instant::now());
        });
    }

    /// A ready master has the key; when it starts again somebody may have removed the Secret.
    pub fn forget(&self, pool_uid: &str) {
        self.0
            .send_if_modified(|known| known.remove(pool_uid).is_some());
    }
}

/// Makes the Secret unless it is there, and never overwrites it. The operator has no right to read
/// Secrets, so it tries to create one and takes "exists" for an answer; only while no master is
/// ready, since a master that is has the key.
async fn ensure_root_key(context: &Context, pool: &ValidPool) -> Result<(), ReconcileError> {
    let mut bytes = [0; ROOT_KEY_BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| ReconcileError::Random)?;
    let digits: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    let owner = Owner::new(&pool.id);
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": pool.id.root_key(),
            "namespace": pool.id.namespace,
            "labels": owner.labels("master"),
            "ownerReferences": [owner.reference()],
        },
        "type": "Opaque",
        "immutable": true,
        "stringData": { "root.key": format!("{digits}\n") },
    });
    let name = format!("Secret {}/{}", pool.id.namespace, pool.id.root_key());
    let unreadable = |error| ReconcileError::api("make", &name, kube::Error::SerdeError(error));
    let secret: Secret = serde_json::from_value(secret).map_err(unreadable)?;
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &pool.id.namespace);
    match api.create(&PostParams::default(), &secret).await {
        Ok(_) => {
            tracing::info!(secret = name, "made the root of the capability keys");
            context.metrics.wrote("Secret", "create");
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(source) => Err(ReconcileError::api("make", &name, source)),
    }
}

/// Keeps the pool until its traces outside its namespace are gone.
///
/// # Errors
/// [`ReconcileError::Api`].
pub async fn add_finalizer(context: &Context, pool: &CachePool) -> Result<(), ReconcileError> {
    let mut finalizers = pool.finalizers().to_vec();
    finalizers.push(POOL_FINALIZER.to_owned());
    set_finalizers(context, pool, &finalizers).await
}

/// Lets the pool go.
///
/// # Errors
/// [`ReconcileError::Api`]; a pool that is gone is no error.
pub async fn remove_finalizer(context: &Context, pool: &CachePool) -> Result<(), ReconcileError> {
    let mut finalizers = pool.finalizers().to_vec();
    finalizers.retain(|one| one != POOL_FINALIZER);
    set_finalizers(context, pool, &finalizers).await
}

// With the resource version, so that a finalizer of somebody else is never lost.
async fn set_finalizers(
    context: &Context,
    pool: &CachePool,
    finalizers: &[String],
) -> Result<(), ReconcileError> {
    let namespace = pool.namespace().unwrap_or_default();
    let api: Api<CachePool> = Api::namespaced(context.client.clone(), &namespace);
    let body = json!({ "metadata": {
        "finalizers": finalizers,
        "resourceVersion": pool.resource_version(),
        "uid": pool.uid(),
    } });
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    match api
        .patch_metadata(&pool.name_any(), &params, &Patch::Merge(&body))
        .await
    {
        Ok(_) => {
            context.metrics.wrote("CachePool", "finalizer");
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(source) => {
            let object = format!("CachePool {namespace}/{}", pool.name_any());
            Err(ReconcileError::api(
                "change the finalizers of",
                object,
                source,
            ))
        }
    }
}
