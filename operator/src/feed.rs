//! From a watch to a store and to the reconciles that a change asks for.
//!
//! The raw events are read here instead of kube's `touched_objects` with a predicate: a predicate
//! on the generation swallows deletions, and a relist tells of vanished objects only by silence.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt;
use kube::api::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Resource, ResourceExt};
use larder_crds::{CachePool, CacheQuota, CacheSnapshot, CacheTenant};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::metrics::OperatorMetrics;

/// Triggers under way to one controller. A full queue makes the watch wait, it loses nothing.
pub const TRIGGERS_MAX: usize = 1024;

/// An object that shall be reconciled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// A pool.
    Pool(ObjectRef<CachePool>),
    /// A tenant.
    Tenant(ObjectRef<CacheTenant>),
    /// A quota.
    Quota(ObjectRef<CacheQuota>),
    /// A snapshot.
    Snapshot(ObjectRef<CacheSnapshot>),
}

impl Trigger {
    /// The pool of this name.
    #[must_use]
    pub fn pool(namespace: &str, name: &str) -> Self {
        Self::Pool(ObjectRef::new(name).within(namespace))
    }

    /// The tenant of this name.
    #[must_use]
    pub fn tenant(namespace: &str, name: &str) -> Self {
        Self::Tenant(ObjectRef::new(name).within(namespace))
    }

    /// The quota of this name.
    #[must_use]
    pub fn quota(namespace: &str, name: &str) -> Self {
        Self::Quota(ObjectRef::new(name).within(namespace))
    }

    /// The snapshot of this name.
    #[must_use]
    pub fn snapshot(namespace: &str, name: &str) -> Self {
        Self::Snapshot(ObjectRef::new(name).within(namespace))
    }
}

/// Where triggers go.
#[derive(Clone, Debug)]
pub struct Triggers {
    /// To the controller of pools.
    pub pools: mpsc::Sender<ObjectRef<CachePool>>,
    /// To the controller of tenants.
    pub tenants: mpsc::Sender<ObjectRef<CacheTenant>>,
    /// To the controller of quotas.
    pub quotas: mpsc::Sender<ObjectRef<CacheQuota>>,
    /// To the controller of snapshots.
    pub snapshots: mpsc::Sender<ObjectRef<CacheSnapshot>>,
}

impl Triggers {
    async fn send(&self, trigger: Trigger) {
        // A closed queue means that the controllers have ended, and this task will too.
        let sent = match trigger {
            Trigger::Pool(pool) => self.pools.send(pool).await.is_ok(),
            Trigger::Tenant(tenant) => self.tenants.send(tenant).await.is_ok(),
            Trigger::Quota(quota) => self.quotas.send(quota).await.is_ok(),
            Trigger::Snapshot(snapshot) => self.snapshots.send(snapshot).await.is_ok(),
        };
        if !sent {
            tracing::debug!("a trigger came after the controllers had ended");
        }
    }
}

/// What of an object matters to others, as a hash.
pub type Digest<K> = fn(&K) -> u64;
/// Which reconciles a change of the object asks for.
pub type Route<K> = Arc<dyn Fn(&K) -> Vec<Trigger> + Send + Sync>;

/// How one kind is watched.
pub struct Feed<K> {
    /// The kind, for metrics and logs.
    pub kind: &'static str,
    /// Takes off what nobody reads, to save memory.
    pub slim: fn(&mut K),
    /// Changes with what matters.
    pub digest: Digest<K>,
    /// Who is told.
    pub route: Route<K>,
}

impl<K> Debug for Feed<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// What is known of one object: what it looked like, and who cares. Bounded by the objects.
type Known = HashMap<String, (u64, Vec<Trigger>)>;

impl<K> Feed<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Clone + Debug + Default + Eq + Hash + Unpin + Send,
{
    /// Watches until it is dropped. Breaks and expired watches are begun anew by the watcher.
    pub async fn run(
        self,
        api: Api<K>,
        config: watcher::Config,
        writer: Writer<K>,
        metrics: Arc<OperatorMetrics>,
        triggers: Triggers,
    ) {
        self.run_with(api, config, writer, metrics, triggers).await;
    }
}

impl<K> Feed<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Clone + Debug + Eq + Hash + Unpin + Send,
{
    /// [`Feed::run`] for kinds that are known by name only.
    pub async fn run_with(
        self,
        api: Api<K>,
        config: watcher::Config,
        mut writer: Writer<K>,
        metrics: Arc<OperatorMetrics>,
        triggers: Triggers,
    ) {
        let mut events = pin!(watcher(api, config).default_backoff());
        let mut known = Known::new();
        // During a list: what it showed so far. Told only at its end, when the store is whole.
        let mut listed: Option<Known> = None;
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event.modify(|object| (self.slim)(object)),
                Err(error) => {
                    metrics.watch_failed(self.kind);
                    tracing::warn!(kind = self.kind, %error, "a watch broke; it starts anew");
                    continue;
                }
            };
            writer.apply_watcher_event(&event);
            for trigger in self.follow(event, &mut known, &mut listed) {
                triggers.send(trigger).await;
            }
        }
    }

    fn follow(
        &self,
        event: Event<K>,
        known: &mut Known,
        listed: &mut Option<Known>,
    ) -> Vec<Trigger> {
        match event {
            Event::Init => {
                *listed = Some(Known::new());
                Vec::new()
            }
            Event::InitApply(object) => {
                let entry = ((self.digest)(&object), (self.route)(&object));
                if let Some(listed) = listed {
                    listed.insert(key_of(&object), entry);
                }
                Vec::new()
            }
            Event::InitDone => {
                let now = listed.take().unwrap_or_default();
                let before = std::mem::replace(known, now);
                let vanished = before.iter().filter(|(key, _)| !known.contains_key(*key));
                let vanished = vanished.flat_map(|(_, (_, triggers))| triggers.clone());
                let changed = known.iter().filter(|(key, (digest, _))| {
                    before.get(*key).is_none_or(|(before, _)| before != digest)
                });
                vanished
                    .chain(changed.flat_map(|(_, (_, triggers))| triggers.clone()))
                    .collect()
            }
            Event::Apply(object) => {
                let (digest, triggers) = ((self.digest)(&object), (self.route)(&object));
                let before = known.insert(key_of(&object), (digest, triggers.clone()));
                match before {
                    Some((before, _)) if before == digest => Vec::new(),
                    // Whom it concerned before must hear of it too.
                    Some((_, before)) => before.into_iter().chain(triggers).collect(),
                    None => triggers,
                }
            }
            Event::Delete(object) => {
                known.remove(&key_of(&object));
                (self.route)(&object)
            }
        }
    }
}

fn key_of<K: Resource>(object: &K) -> String {
    // Without a uid (in no real cluster) the name has to do.
    object.uid().unwrap_or_else(|| {
        format!(
            "{}/{}",
            object.namespace().unwrap_or_default(),
            object.name_any()
        )
    })
}

/// A hash of what matters. Only compared within one process.
#[must_use]
pub fn digest_of(parts: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed() -> Feed<CacheTenant> {
        Feed {
            kind: "CacheTenant",
            slim: |_| {},
            digest: |tenant| digest_of(tenant.metadata.generation),
            route: Arc::new(|tenant| vec![Trigger::pool("apps", &tenant.spec.pool_ref.name)]),
        }
    }

    fn tenant(name: &str, pool: &str, generation: i64) -> CacheTenant {
        let spec = serde_json::json!({
            "apiVersion": "larder.dev/v1alpha1", "kind": "CacheTenant",
            "metadata": {
                "name": name, "namespace": "apps", "generation": generation, "uid": name,
            },
            "spec": { "poolRef": { "name": pool } },
        });
        serde_json::from_value(spec).expect("a tenant")
    }

    #[test]
    fn deletions_and_silence_are_told_and_status_is_not() {
        let (feed, mut known, mut listed) = (feed(), Known::new(), None);
        let mut follow = |event| feed.follow(event, &mut known, &mut listed).len();
        assert_eq!(follow(Event::Init), 0);
        assert_eq!(follow(Event::InitApply(tenant("a", "p", 1))), 0);
        assert_eq!(follow(Event::InitApply(tenant("b", "p", 1))), 0);
        assert_eq!(follow(Event::InitDone), 2);
        assert_eq!(
            follow(Event::Apply(tenant("a", "p", 1))),
            0,
            "same generation"
        );
        assert_eq!(
            follow(Event::Apply(tenant("a", "q", 2))),
            2,
            "old and new pool"
        );
        // A relist without b, as after 410 Gone.
        assert_eq!(follow(Event::Init), 0);
        assert_eq!(follow(Event::InitApply(tenant("a", "q", 2))), 0);
        assert_eq!(follow(Event::InitDone), 1, "b vanished");
        assert_eq!(
            follow(Event::Delete(tenant("a", "q", 2))),
            1,
            "same generation"
        );
    }
}
