//! The pods of a pool's masters: which of them is marked as the leader, and how they get another
//! template or another number.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};

use crate::child::{Child, ChildKind, Standing, covers};
use crate::conditions::Wanted;
use crate::context::Context;
use crate::error::ReconcileError;
use crate::master_api::MastersDocument;
use crate::names::{LABEL_COMPONENT, LABEL_LEADER, LABEL_POOL_UID, MANAGER, PoolId};
use crate::pool::observe::Seen;
use crate::reasons::{ConditionType, Reason};

pub mod facts;
pub mod roll;

pub use facts::PodFacts;
use roll::{Masters, Step, View, Wait};

/// What is seen of a pool's masters besides what they answer.
#[derive(Clone, Debug, Default)]
pub struct MastersSeen {
    /// Their pods.
    pub pods: Vec<PodFacts>,
    /// How many pods the StatefulSet makes.
    pub count: Option<u32>,
    /// The revision of its present template, once its controller knows it.
    pub revision: Option<String>,
    /// Whether each has a volume of its own.
    pub has_volumes: bool,
    /// Whether one of them ever led.
    pub has_led: bool,
}

impl MastersSeen {
    /// Of a StatefulSet, as its controller left it.
    #[must_use]
    pub fn of_set(mut self, set: Option<&Value>) -> Self {
        let Some(set) = set else { return self };
        let count = set["spec"]["replicas"].as_u64();
        self.count = count.and_then(|count| u32::try_from(count).ok());
        let status = &set["status"];
        if status["observedGeneration"] == set["metadata"]["generation"] {
            self.revision = status["updateRevision"].as_str().map(str::to_owned);
        }
        self
    }

    /// Forgets the revision while the StatefulSet does not stand as it is wanted: what its
    /// controller says then is about an earlier template.
    pub fn of_template(&mut self, wanted: &[Child], standing: &Standing) {
        let mut sets = wanted
            .iter()
            .filter(|child| child.key.kind == ChildKind::StatefulSet);
        let stands = |set: &Child| {
            let found = standing.get(&set.key);
            found.is_some_and(|found| covers(&set.body, found))
        };
        if !sets.all(stands) {
            self.revision = None;
        }
    }
}

/// What the leader says of the masters, by their numbers. `None` if it does not say who leads, or
/// names somebody who is no pod of this pool.
#[must_use]
pub fn view(id: &PoolId, said: &MastersDocument) -> Option<View> {
    let set = format!("{}-", id.master());
    let ordinal = |name: &str| name.strip_prefix(&set)?.parse().ok();
    let voters = said.masters.iter().filter(|master| master.is_voter);
    let voters: Option<BTreeMap<u32, bool>> = voters
        .map(|master| Some((ordinal(&master.name)?, master.in_sync)))
        .collect();
    let leader = ordinal(said.leader.as_deref()?)?;
    let named = said.named.iter().filter_map(|name| ordinal(name));
    Some(View {
        leader,
        voters: voters?,
        named: named.collect(),
    })
}

/// What a step is taken from. `None` before the StatefulSet's controller has seen the template.
#[must_use]
pub fn masters(seen: &MastersSeen, desired: u32, view: Option<&View>) -> Option<Masters> {
    let revision = seen.revision.as_ref()?;
    let pod = |pod: &PodFacts| {
        let facts = roll::Pod {
            is_updated: pod.revision == *revision,
            is_ready: pod.is_ready,
            is_leaving: pod.is_leaving,
            has_run: pod.has_run,
            is_running: pod.is_running,
        };
        (pod.ordinal, facts)
    };
    Some(Masters {
        desired,
        count: seen.count?,
        pods: seen.pods.iter().map(pod).collect(),
        view: view.cloned(),
        has_volumes: seen.has_volumes,
        has_led: seen.has_led,
    })
}

/// Whether the masters' pods are as they shall be, for people.
#[must_use]
pub fn condition(id: &PoolId, masters: &Masters) -> Wanted {
    let updated = masters.pods.values().filter(|pod| pod.is_updated).count();
    let name = |ordinal| id.master_pod(ordinal);
    let what = match masters.next() {
        Step::Done => {
            let message = "every master runs as the spec says".to_owned();
            let reason = Reason::AllMastersUpdated;
            return Wanted::new(ConditionType::MastersUpdated, true, reason, message);
        }
        Step::Replace(one) => format!("{} is made again", name(one)),
        Step::Promote(one) => format!("{} takes over", name(one)),
        Step::Name => "the leader is told which masters there are to be".to_owned(),
        Step::Wait(Wait::Leader) => "no master leads".to_owned(),
        Step::Wait(Wait::Master(one)) => format!("{} is not ready", name(one)),
        Step::Wait(Wait::Join(one)) => format!("{} has not joined", name(one)),
        Step::Wait(Wait::Drop(one)) => format!("{} is to go and votes still", name(one)),
        Step::Wait(Wait::Quorum) => "two masters vote, and neither can be spared".to_owned(),
    };
    let message = format!(
        "{updated} of {} masters run as the spec says: {what}",
        masters.desired
    );
    let reason = Reason::MastersRolling;
    Wanted::new(ConditionType::MastersUpdated, false, reason, message)
}

/// Marks the leader's pod, and takes the next step of a roll.
///
/// # Errors
/// [`ReconcileError::Api`]. That a master does not take the office is none: it is asked again.
pub async fn advance(
    context: &Context,
    seen: &Seen,
    masters: Option<&Masters>,
) -> Result<(), ReconcileError> {
    let id = &seen.id;
    if let Some(view) = seen.roll_view() {
        for pod in &seen.pods.pods {
            let leads = pod.ordinal == view.leader;
            if pod.is_marked != leads {
                mark(context, id, pod.ordinal, leads).await?;
            }
        }
    }
    match masters.map(|masters| (masters, masters.next())) {
        Some((masters, Step::Replace(ordinal))) => {
            replace(context, id, ordinal, masters, &seen.pods).await
        }
        Some((_, Step::Promote(ordinal))) => {
            let name = id.master_pod(ordinal);
            tracing::info!(pool = id.key(), name, "letting another master lead");
            if let Err(error) = context.master_api.promote(id, &name).await {
                let error = larder_telemetry::error_chain(&error);
                tracing::warn!(pool = id.key(), name, error, "it does not lead yet");
            }
            Ok(())
        }
        Some((masters, Step::Name)) => {
            let names: Vec<String> = (0..masters.desired).map(|one| id.master_pod(one)).collect();
            tracing::info!(
                pool = id.key(),
                ?names,
                "telling which masters there are to be"
            );
            if let Err(error) = context.master_api.name_masters(id, &names).await {
                let error = larder_telemetry::error_chain(&error);
                tracing::warn!(
                    pool = id.key(),
                    error,
                    "the leader was not told of its masters"
                );
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn pods(context: &Context, id: &PoolId) -> Api<Pod> {
    Api::namespaced(context.client.clone(), &id.namespace)
}

/// Puts the mark of the leader on a pod, or takes it off.
async fn mark(
    context: &Context,
    id: &PoolId,
    ordinal: u32,
    leads: bool,
) -> Result<(), ReconcileError> {
    let name = id.master_pod(ordinal);
    let value = if leads { json!("true") } else { Value::Null };
    let body = json!({ "metadata": { "labels": { LABEL_LEADER: value } } });
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patched = pods(context, id)
        .patch_metadata(&name, &params, &Patch::Merge(&body))
        .await;
    match patched {
        Ok(_) => {
            context.metrics.wrote("Pod", "label");
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(source) => {
            let object = format!("Pod {}/{name}", id.namespace);
            Err(ReconcileError::api("mark the leader on", object, source))
        }
    }
}

/// Deletes a pod so that it is made again. Asks the API server first whether that is still the next
/// step: what the watch knows may be older than the last step.
async fn replace(
    context: &Context,
    id: &PoolId,
    ordinal: u32,
    planned: &Masters,
    seen: &MastersSeen,
) -> Result<(), ReconcileError> {
    let (api, name) = (pods(context, id), id.master_pod(ordinal));
    let object = format!("Pod {}/{name}", id.namespace);
    let labels = format!("{LABEL_POOL_UID}={},{LABEL_COMPONENT}=master", id.uid);
    let found = api.list(&ListParams::default().labels(&labels)).await;
    let found = found.map_err(|source| ReconcileError::api("look for", &object, source))?;
    let now = MastersSeen {
        pods: found
            .iter()
            .filter_map(|pod| PodFacts::of(pod, id))
            .collect(),
        ..seen.clone()
    };
    let next = masters(&now, planned.desired, planned.view.as_ref());
    let pod = now.pods.iter().find(|pod| pod.ordinal == ordinal);
    let (Some(Step::Replace(still)), Some(pod)) = (next.map(|next| next.next()), pod) else {
        return Ok(());
    };
    if still != ordinal {
        return Ok(());
    }
    tracing::info!(
        pod = object,
        "a master is made again from the present template"
    );
    let params = DeleteParams::default().preconditions(Preconditions {
        uid: Some(pod.uid.clone()),
        resource_version: None,
    });
    match api.delete(&name, &params).await {
        Ok(_) => {
            context.metrics.wrote("Pod", "delete");
            Ok(())
        }
        // Gone, or made again already.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(source) => Err(ReconcileError::api("replace", object, source)),
    }
}
