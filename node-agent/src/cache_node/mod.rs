//! The CacheNode of this node: its status is written when something changes, and never else.
//!
//! A thread of its own looks, compares and writes. Nothing waits for it but the end of the
//! process, so an API server that is away stops no heartbeat and no byte.

mod farewell;
mod pace;
mod status;

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use larder_crds::CacheNode;
use larder_telemetry::error_chain;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::data::now;
use crate::flags::CacheNodeRef;
use crate::membership::{Facts, Parting};
use crate::step::Status;

use farewell::{Answer, Farewell};
use pace::Pace;
pub use pace::Pauses;
use status::{Fixed, Moving, Readiness, desired, patch};

/// Who writes, in the API server's records of fields.
const MANAGER: &str = "larder-agent";
/// How long one call may take, in ms; far longer than a healthy API server needs.
const CALL_MS: u64 = 10_000;
/// The same while the agent stops.
const LAST_CALL_MS: u64 = 2_000;

/// Why a CacheNode cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum CacheNodeError {
    /// No API server.
    #[error(
        "--cache-node {node}: no API server was found; leave the flag out where there is none, or \
         run as a pod with a ServiceAccount's token"
    )]
    NoServer {
        /// Which CacheNode.
        node: CacheNodeRef,
        /// Why not.
        source: Box<kube::config::InferConfigError>,
    },
}

/// What a look at the CacheNode came to.
#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error("there is no CacheNode {0}; its status is written once the operator has made it")]
    Missing(CacheNodeRef),
    #[error(
        "this agent may not {action} {node}; the RoleBinding of the pool's agents gives the right, \
         and the admission policy takes it away for a CacheNode of another node"
    )]
    Denied {
        action: &'static str,
        node: CacheNodeRef,
        source: kube::Error,
    },
    #[error("somebody else has just changed CacheNode {0}; it is looked at again")]
    Conflict(CacheNodeRef),
    #[error("the API server did not answer in time")]
    Slow,
    #[error("the call to {action} CacheNode {node} failed; it is tried again")]
    Failed {
        action: &'static str,
        node: CacheNodeRef,
        source: kube::Error,
    },
    #[error("the status cannot be put into words")]
    Words(#[from] serde_json::Error),
}

/// The membership of a node in a pool, as the cluster has it.
#[derive(Clone, Debug)]
pub struct Member {
    node: CacheNodeRef,
    pod_uid: Option<String>,
    server: kube::Config,
    pauses: Pauses,
}

impl Member {
    /// With the API server of the pod, or of a kubeconfig where there is one.
    ///
    /// # Errors
    /// [`CacheNodeError::NoServer`].
    pub async fn find(node: CacheNodeRef, pod_uid: Option<String>) -> Result<Self, CacheNodeError> {
        match kube::Config::infer().await {
            Ok(server) => Ok(Self::new(node, pod_uid, server, Pauses::default())),
            Err(source) => Err(CacheNodeError::NoServer {
                node,
                source: Box::new(source),
            }),
        }
    }

    /// With this API server.
    #[must_use]
    pub const fn new(
        node: CacheNodeRef,
        pod_uid: Option<String>,
        server: kube::Config,
        pauses: Pauses,
    ) -> Self {
        Self {
            node,
            pod_uid,
            server,
            pauses,
        }
    }
}

/// Starts the thread. It ends after `stop` has turned true, or `status` has closed, with the
/// answer to whether the node still belongs to the pool.
pub(crate) fn spawn(
    member: Member,
    facts: &Facts<'_>,
    seed: u64,
    status: watch::Receiver<Status>,
    stop: watch::Receiver<bool>,
) -> io::Result<JoinHandle<Parting>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut server = member.server;
    // The pauses here are longer, and end when the agent stops.
    server.default_retry = false;
    let client = {
        let _inside = runtime.enter();
        Client::try_from(server).map_err(io::Error::other)?
    };
    let reporter = Reporter {
        api: Api::namespaced(client, &member.node.namespace),
        fixed: Fixed::new(facts, member.pod_uid),
        node: member.node,
        pool: None,
        was_allowed: false,
        complained: None,
    };
    let pace = Pace::new(member.pauses, SmallRng::seed_from_u64(seed));
    std::thread::Builder::new()
        .name("larder-node".to_owned())
        .spawn(move || runtime.block_on(reporter.run(pace, status, stop)))
}

struct Reporter {
    api: Api<CacheNode>,
    node: CacheNodeRef,
    fixed: Fixed,
    /// Uid of the pool that the CacheNode belonged to when it was first seen.
    pool: Option<String>,
    was_allowed: bool,
    /// What the log said last, so that it says it once.
    complained: Option<String>,
}

impl Reporter {
    async fn run(
        mut self,
        mut pace: Pace,
        mut status: watch::Receiver<Status>,
        mut stop: watch::Receiver<bool>,
    ) -> Parting {
        loop {
            let wanted = self.fixed.moving(&status.borrow_and_update());
            let pause_ms = pace.due(wanted, now().0).saturating_sub(now().0);
            let turn = async {
                if pause_ms == 0 {
                    return Some(self.look(wanted, CALL_MS).await);
                }
                tokio::select! {
                    // Closed: the control side has failed, and the agent stops.
                    changed = status.changed() => if changed.is_err() {
                        std::future::pending::<()>().await;
                    },
                    () = sleep(Duration::from_millis(pause_ms)) => {}
                }
                None
            };
            let looked = tokio::select! {
                // An error means that nobody is left who could say it.
                _ = stop.wait_for(|stop| *stop) => break,
                looked = turn => looked,
            };
            match looked {
                None => {}
                Some(Ok(())) => {
                    pace.looked(wanted, now().0);
                    if self.complained.take().is_some() {
                        tracing::info!("CacheNode {} is kept up to date again", self.node);
                    }
                }
                Some(Err(error)) => {
                    pace.failed(now().0);
                    self.complain(&error);
                }
            }
        }
        let moving = self.fixed.moving(&status.borrow());
        self.part(moving).await
    }

    /// Says an error, unless it was the last thing that was said.
    fn complain(&mut self, error: &LookError) {
        // Other writers are nobody's fault.
        if matches!(error, LookError::Conflict(_)) {
            return tracing::debug!("{error}");
        }
        let sentence = error_chain(error);
        if self.complained.as_ref() != Some(&sentence) {
            tracing::warn!("{sentence}");
            self.complained = Some(sentence);
        }
    }

    /// Reads the object, and writes its status if it differs.
    async fn look(&mut self, wanted: Moving, call_ms: u64) -> Result<(), LookError> {
        let found = self.read(call_ms).await?;
        self.write(&found, wanted, call_ms).await
    }

    async fn read(&mut self, call_ms: u64) -> Result<CacheNode, LookError> {
        let call = self.api.get(&self.node.name);
        let answer = timeout(Duration::from_millis(call_ms), call).await;
        let found = answer
            .map_err(|_| LookError::Slow)?
            .map_err(|error| self.failed("read", error))?;
        self.was_allowed = true;
        if self.pool.is_none() {
            self.pool = pool_uid(&found);
        }
        Ok(found)
    }

    async fn write(
        &self,
        found: &CacheNode,
        wanted: Moving,
        call_ms: u64,
    ) -> Result<(), LookError> {
        if found.metadata.deletion_timestamp.is_some() {
            return Err(LookError::Missing(self.node.clone()));
        }
        let old = found.status.as_ref();
        let conditions = old.map_or(&[][..], |old| &old.conditions);
        let now = Timestamp::now();
        // Whole seconds, as everywhere in the API.
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let new = desired(
            &self.fixed,
            wanted,
            conditions,
            found.metadata.generation,
            now,
        );
        let version = found.resource_version();
        let Some(patch) = patch(old, &new, version.as_deref())? else {
            return Ok(());
        };
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(patch);
        let call = self
            .api
            .patch_status::<Value>(&self.node.name, &params, &patch);
        let answer = timeout(Duration::from_millis(call_ms), call).await;
        let written = answer.map_err(|_| LookError::Slow)?;
        written.map_err(|error| self.failed("write the status of", error))?;
        let (node, readiness) = (&self.node, wanted.readiness);
        tracing::debug!(?readiness, "wrote the status of CacheNode {node}");
        Ok(())
    }

    fn failed(&self, action: &'static str, source: kube::Error) -> LookError {
        let node = self.node.clone();
        match code(&source) {
            Some(404) => LookError::Missing(node),
            Some(409) => LookError::Conflict(node),
            Some(401 | 403) => LookError::Denied {
                action,
                node,
                source,
            },
            _ => LookError::Failed {
                action,
                node,
                source,
            },
        }
    }

    /// Tells that the agent stops, and asks whether it comes back.
    async fn part(mut self, moving: Moving) -> Parting {
        let mut farewell = Farewell::new(now().0, self.was_allowed);
        let mut told = false;
        let stopped = Moving {
            readiness: Readiness::Stopped,
            ..moving
        };
        loop {
            let found = self.read(LAST_CALL_MS).await;
            let answer = match &found {
                Ok(found) if found.metadata.deletion_timestamp.is_some() => Answer::Gone,
                Ok(found) if self.pool != pool_uid(found) => Answer::OfAnother,
                Ok(_) => Answer::Present,
                Err(LookError::Missing(_)) => Answer::Gone,
                Err(LookError::Denied { .. }) => Answer::Denied,
                Err(_) => Answer::Silent,
            };
            if let (Ok(found), Answer::Present, false) = (&found, answer, told) {
                // Worth one try: who looks at the node should not believe that it serves.
                told = true;
                if let Err(error) = self.write(found, stopped, LAST_CALL_MS).await {
                    self.complain(&error);
                }
            }
            if let Some(parting) = farewell.heard(answer, now().0) {
                if let (Parting::Unknown, Err(error)) = (parting, &found) {
                    self.complain(error);
                }
                return parting;
            }
            sleep(Duration::from_millis(farewell::PAUSE_MS)).await;
        }
    }
}

/// Uid of the CachePool that owns a CacheNode. The CacheNode's own would not do: one that somebody
/// deleted by hand is made again and belongs to the same pool.
fn pool_uid(node: &CacheNode) -> Option<String> {
    let owner = node
        .owner_references()
        .iter()
        .find(|owner| owner.kind == "CachePool");
    owner.map(|owner| owner.uid.clone())
}

fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}
