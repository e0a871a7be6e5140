//! A cluster with an operator in it: API server, master, objects to apply.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Api;
use larder_operator::config::Config;
use larder_operator::election::{self, Leadership, LeaseSettings};
use larder_operator::master_api::{
    AgentDocument, AgentLabels, Call, DrainDocument, MasterApi, MasterDocument, MasterError,
    MasterView, MastersDocument, QuotaDocument, QuotaPolicy, SegmentDocument, SignalsDocument,
    SnapshotDocument, SnapshotLook, StatusDocument, TenantDocument, TenantPolicy,
};
use larder_operator::metrics::OperatorMetrics;
use larder_operator::names::PoolId;
use larder_operator::{ClientHandle, Parts};
use larder_telemetry::{Component, Registry};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::api_server::ApiServer;

/// What the master's pools have, in bytes.
const CAPACITY: u64 = 1 << 30;

/// A master that answers as it is told.
#[derive(Debug, Default)]
pub(crate) struct FakeMaster(Mutex<MasterState>);

/// What the master answers.
#[derive(Debug, Default)]
pub(crate) struct MasterState {
    /// By pool's key, then by id.
    pub(crate) tenants: BTreeMap<(String, String), TenantDocument>,
    /// The same of quotas, by name.
    pub(crate) quotas: BTreeMap<(String, String), QuotaDocument>,
    /// How many masters answer when all are asked; one without it.
    pub(crate) answering: Option<u32>,
    /// Snapshots by name.
    pub(crate) snapshots: BTreeMap<String, SnapshotDocument>,
    /// Slabs that a node holds.
    pub(crate) agents: BTreeMap<String, u64>,
    /// Nodes that are to be emptied.
    pub(crate) draining: BTreeSet<String>,
    /// What is in the way of all drains.
    pub(crate) blocked: Option<String>,
    /// How often it was asked about drains.
    pub(crate) polls: u32,
    /// Labels by node; a master without any does not know labels.
    pub(crate) labels: Option<BTreeMap<String, AgentLabels>>,
    /// The status with which it refuses drains and labels.
    pub(crate) refuses: Option<u16>,
    /// How the cache does.
    pub(crate) signals: SignalsDocument,
    /// What it says of the pool's life: the epoch, and how it came to be.
    pub(crate) life: StatusDocument,
    /// Whether calls fail.
    pub(crate) is_silent: bool,
    /// With `Some` no master leads, and so many of three answer.
    pub(crate) leaderless: Option<u32>,
    /// The number of the master that leads.
    pub(crate) leader: u32,
    /// The numbers of those that vote, and whether they are in sync; empty for nothing known.
    pub(crate) voters: BTreeMap<u32, bool>,
    /// The numbers of those that the leader lets in.
    pub(crate) named: BTreeSet<u32>,
    /// How long a call takes.
    pub(crate) delay: Duration,
    /// Calls that changed something.
    pub(crate) changes: Vec<String>,
    /// Most calls at once, and how many are under way.
    pub(crate) peak: (u32, u32),
}

impl MasterState {
    fn may(&self) -> Result<(), MasterError> {
        let refused = |status| MasterError::Refused {
            status,
            body: "no such route".to_owned(),
        };
        self.refuses.map_or(Ok(()), |status| Err(refused(status)))
    }
}

impl MasterState {
    fn masters(&self, pool: &PoolId) -> MastersDocument {
        let voter = |(one, in_sync): (&u32, &bool)| MasterDocument {
            name: pool.master_pod(*one),
            is_voter: true,
            in_sync: *in_sync,
        };
        MastersDocument {
            leader: Some(pool.master_pod(self.leader)),
            named: self.named.iter().map(|one| pool.master_pod(*one)).collect(),
            masters: self.voters.iter().map(voter).collect(),
        }
    }
}

impl FakeMaster {
    /// Looks or changes.
    pub(crate) fn with<T>(&self, run: impl FnOnce(&mut MasterState) -> T) -> T {
        run(&mut self.0.lock().expect("no panic before"))
    }

    async fn enter(&self) -> Result<(), MasterError> {
        let (delay, is_silent, leaderless) = self.with(|state| {
            state.peak.1 += 1;
            state.peak.0 = state.peak.0.max(state.peak.1);
            (state.delay, state.is_silent, state.leaderless)
        });
        wait(delay).await;
        self.with(|state| state.peak.1 -= 1);
        if let Some(answered) = leaderless {
            let answered = (0..answered).map(|one| format!("small-master-{one}"));
            let answered = answered.collect();
            return Err(MasterError::NoLeader { answered, asked: 3 });
        }
        if is_silent {
            let source = std::io::Error::other("no route").into();
            return Err(MasterError::Unreachable {
                addr: "master:1".to_owned(),
                source,
            });
        }
        Ok(())
    }
}

/// Lets fake time pass, and everything happen that is due in it.
pub(crate) async fn wait(time: Duration) {
    let waited = tokio::time::timeout(time, pending::<()>()).await;
    assert!(waited.is_err(), "nothing ends it");
}

impl MasterApi for FakeMaster {
    fn look<'a>(&'a self, pool: &'a PoolId) -> Call<'a, MasterView> {
        Box::pin(async move {
            self.enter().await?;
            Ok(self.with(|state| {
                let segment = |held: u64| SegmentDocument {
                    slab_bytes: 1 << 24,
                    slabs: 32,
                    free_slabs: 32 - held,
                };
                let agent = |(name, held): (&String, &u64)| {
                    let segments = vec![segment(*held)];
                    let labels = state.labels.as_ref();
                    let agent = AgentDocument {
                        name: name.clone(),
                        segments,
                        draining: state.draining.contains(name),
                        labels: labels.map(|all| all.get(name).cloned().unwrap_or_default()),
                    };
                    (name.clone(), agent)
                };
                let tenants = state
                    .tenants
                    .iter()
                    .filter(|((key, _), _)| *key == pool.key());
                let quotas = state
                    .quotas
                    .iter()
                    .filter(|((key, _), _)| *key == pool.key());
                let asked = tenants.clone().map(|(_, one)| one.figures.guaranteed_bytes);
                let guaranteed = asked.sum();
                MasterView {
                    status: StatusDocument {
                        name: pool.master_pod(state.leader),
                        objects: 3,
                        capacity_bytes: CAPACITY,
                        used_bytes: 4096,
                        guaranteed_bytes: guaranteed,
                        overcommitted: guaranteed > CAPACITY,
                        signals: state.signals.clone(),
                        ..state.life.clone()
                    },
                    masters: state.masters(pool),
                    quotas: quotas
                        .map(|((_, name), one)| (name.clone(), one.clone()))
                        .collect(),
                    tenants: tenants
                        .map(|((_, id), one)| (id.clone(), one.clone()))
                        .collect(),
                    agents: state.agents.iter().map(agent).collect(),
                }
            }))
        })
    }

    fn set_tenant<'a>(&'a self, pool: &'a PoolId, policy: &'a TenantPolicy) -> Call<'a, ()> {
        Box::pin(async move {
            self.enter().await?;
            self.with(|state| {
                state
                    .changes
                    .push(format!("set {} {}", pool.key(), policy.tenant));
                let document = TenantDocument {
                    tenant: policy.tenant.clone(),
                    access: policy.access,
                    figures: policy.figures.clone(),
                    view_bytes: policy.view_bytes,
                    cohort: policy.cohort.clone(),
                    effective_guaranteed_bytes: policy.figures.guaranteed_bytes,
                    used_bytes: 0,
                    objects: 0,
                };
                state
                    .tenants
                    .insert((pool.key(), policy.tenant.clone()), document);
            });
            Ok(())
        })
    }

    fn set_quota<'a>(&'a self, pool: &'a PoolId, policy: &'a QuotaPolicy) -> Call<'a, ()> {
        Box::pin(async move {
            self.enter().await?;
            self.with(|state| {
                let change = format!("quota {} {}", pool.key(), policy.quota);
                state.changes.push(change);
                let document = QuotaDocument {
                    quota: policy.quota.clone(),
                    figures: policy.figures.clone(),
                    effective_guaranteed_bytes: policy.figures.guaranteed_bytes,
                    charged_bytes: 1 << 20,
                    charged_objects: 4,
                };
                let key = (pool.key(), policy.quota.clone());
                state.quotas.insert(key, document);
            });
            Ok(())
        })
    }

    fn delete_quota<'a>(&'a self, pool: &'a PoolId, quota: &'a str) -> Call<'a, ()> {
        Box::pin(async move {
            self.enter().await?;
            self.with(|state| {
                let change = format!("no quota {} {quota}", pool.key());
                state.changes.push(change);
                state.quotas.remove(&(pool.key(), quota.to_owned()));
            });
            Ok(())
        })
    }

    fn drain<'a>(&'a self, pool: &'a PoolId, agent: &'a str) -> Call<'a, ()> {
        Box::pin(async move {
            self.enter().await?;
            self.with(|state| {
                state.changes.push(format!("drain {} {agent}", pool.key()));
                state.may()?;
                state.draining.insert(agent.to_owned());
                Ok(())
            })
        })
    }

    fn undrain<'a>(&'a self, pool: &'a PoolId, agent: &'a str) -> Call<'a, ()> {
        Box::pin(async move {
            self.enter().await?;
            self.with(|state| {
                state
                    .changes
                    .push(format!("undrain {} {agent}", pool.key()));
                state.may()?;
                state.draining.remove(agent);
                Ok(())
            })
        })
    }

    fn drain_status<'a>(&'a self, _: &'a PoolId, agent: &'a str) -> Call<'a, DrainDocument> {
        Box::pin(async move {
            self.enter().await?;
            self.with(|state| {
                state.may()?;
                state.polls += 1;
                let slabs_left = state.agents.get(agent).copied().unwrap_or(0);
                let phase = match (state.draining.contains(agent), slabs_left) {
                    (false, _) => "active",
                    (true, 0) => "drained",
                    (true, _) => "draining",
                };
                Ok(DrainDocument {
                    state: phase.to_owned(),
                    slabs_left,
                    bytes_left: slabs_left << 20,
                    extents_left: Some(slabs_left * 4),
                    objects_left: Some(slabs_left * 2),
                    blocked: state.blocked.clone().filter(|_| phase == "draining"),
                })
            })
        })
    }

    fn promote<'a>(&'a self, pool: &'a PoolId, master: &'a str) -> Call<'a, ()> {
        Box::pin(async move {
            self.enter().await?;
            self.with(|state| {
                state
                    .changes
                    .push(format!("promote {} {master}", pool.key()));
                let ordinal = master
                    .rsplit_once('-')
                    .and_then(|(_, one)| one.parse().ok());
                state.leader = ordinal.expect("a master's name");
            });
            Ok(())
        })
    }

    fn name_masters<'a>(&'a self, pool: &'a PoolId, names: &'a [String]) -> Call<'a, ()> {
        Box::pin(async move {
            self.enter().await?;
            self.with(|state| {
                state
                    .changes
                    .push(format!("name {} {}", pool.key(), names.len()));
                state.named = (0..).take(names.len()).collect();
            });
            Ok(())
        })
    }

    fn set_labels<'a>(
        &'a self,
        pool: &'a PoolId,
        agent: &'a str,
        labels: &'a AgentLabels,
    ) -> Call<'a, ()> {
        Box::pin(async move {
            self.enter().await?;
            self.with(|state| {
                state.changes.push(format!("labels {} {agent}", pool.key()));
                state.may()?;
                if let Some(all) = &mut state.labels {
                    all.insert(agent.to_owned(), labels.clone());
                }
                Ok(())
            })
        })
    }

    fn snapshot<'a>(&'a self, _: &'a PoolId, name: &'a str) -> Call<'a, SnapshotLook> {
        Box::pin(async move {
            self.enter().await?;
            Ok(self.with(|state| SnapshotLook {
                found: state.snapshots.get(name).cloned(),
                answered: state.answering.unwrap_or(1),
            }))
        })
    }

    fn take_snapshot<'a>(&'a self, pool: &'a PoolId, name: &'a str) -> Call<'a, SnapshotDocument> {
        Box::pin(async move {
            self.enter().await?;
            self.with(|state| {
                state.may()?;
                let change = format!("take {} {name}", pool.key());
                state.changes.push(change);
                let taken = SnapshotDocument {
                    phase: "Taking".to_owned(),
                    ..SnapshotDocument::default()
                };
                state.snapshots.insert(name.to_owned(), taken.clone());
                Ok(taken)
            })
        })
    }

    fn delete_snapshot<'a>(&'a self, pool: &'a PoolId, name: &'a str) -> Call<'a, ()> {
        Box::pin(async move {
            self.enter().await?;
            self.with(|state| {
                let change = format!("no snapshot {} {name}", pool.key());
                state.changes.push(change);
                state.snapshots.remove(name);
            });
            Ok(())
        })
    }

    fn delete_tenant<'a>(&'a self, pool: &'a PoolId, tenant: &'a str) -> Call<'a, ()> {
        Box::pin(async move {
            self.enter().await?;
            self.with(|state| {
                state
                    .changes
                    .push(format!("delete {} {tenant}", pool.key()));
                state.tenants.remove(&(pool.key(), tenant.to_owned()));
            });
            Ok(())
        })
    }
}

/// Time since the first call, in fake time.
pub(crate) fn fake_clock() -> Duration {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let now = Instant::now().into_std();
    // Every test has its own clock that starts at the real time: leave room below.
    let start = *START.get_or_init(|| now);
    (now + Duration::from_secs(1_000_000)).saturating_duration_since(start)
}

/// Wall time in fake time.
pub(crate) fn fake_wall() -> jiff::Timestamp {
    let since = jiff::SignedDuration::try_from(fake_clock()).expect("in range");
    jiff::Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_hours(480_000) + since
}

/// An operator; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Operator {
    _tasks: JoinSet<()>,
    /// Its metrics.
    pub(crate) metrics: Arc<OperatorMetrics>,
}

/// The configuration of the tests.
pub(crate) fn config() -> Config {
    Config::parse(
        r#"{"image": "localhost/larder:1", "service_account": "larder-operator",
            "agent_cluster_role": "larder-agent", "master_cluster_role": "larder-master",
            "metrics_addr": "127.0.0.1:0"}"#,
    )
    .expect("valid")
}

fn parts(api: &ApiServer, master: &Arc<FakeMaster>, name: &str, leadership: Leadership) -> Parts {
    let registry = Registry::new(Component::Operator);
    Parts {
        client: ClientHandle(api.client(name)),
        master_api: master.clone(),
        leadership,
        metrics: Arc::new(OperatorMetrics::new(registry.clone())),
        registry,
        config: config(),
        namespace: "larder-system".to_owned(),
        identity: name.to_owned(),
        now: fake_wall,
    }
}

impl Operator {
    /// One that leads for ever, without a Lease.
    pub(crate) fn alone(api: &ApiServer, master: &Arc<FakeMaster>) -> Self {
        let (until, leadership) = Leadership::new(fake_clock);
        until.send_replace(Some(Duration::MAX));
        let parts = parts(api, master, "operator", leadership);
        let metrics = parts.metrics.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            larder_operator::run(parts).await;
            drop(until);
        });
        Self {
            _tasks: tasks,
            metrics,
        }
    }

    /// One that stands for election.
    pub(crate) fn elected(api: &ApiServer, master: &Arc<FakeMaster>, name: &str) -> Self {
        let (until, leadership) = Leadership::new(fake_clock);
        let parts = parts(api, master, name, leadership);
        let metrics = parts.metrics.clone();
        let leases = Api::namespaced(api.client(name), "larder-system");
        let settings = LeaseSettings::new("larder-operator", name);
        let mut tasks = JoinSet::new();
        tasks.spawn(larder_operator::run(parts));
        tasks.spawn(election::run(
            leases,
            settings,
            fake_clock,
            until,
            pending(),
        ));
        Self {
            _tasks: tasks,
            metrics,
        }
    }
}

/// A node with room.
pub(crate) fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        "status": {
            "allocatable": { "memory": "8Gi" },
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    })
}

/// A pool of 512 MiB a node.
pub(crate) fn pool(name: &str, count: Option<u32>) -> Value {
    let mut pool = json!({
        "apiVersion": "larder.dev/v1alpha1", "kind": "CachePool",
        "metadata": { "name": name, "namespace": "apps" },
        "spec": {
            "masters": { "replicas": 1 },
            "nodes": {},
            "tiers": [{
                "name": "memory", "medium": "Dram", "size": "512Mi", "slabSize": "16Mi",
            }],
            "placement": { "replicaFactor": 1 },
        },
    });
    if let Some(count) = count {
        pool["spec"]["nodes"]["count"] = json!(count);
    }
    pool
}

/// A tenant whose ServiceAccount has its name.
pub(crate) fn tenant(name: &str, pool: &str) -> Value {
    json!({
        "apiVersion": "larder.dev/v1alpha1", "kind": "CacheTenant",
        "metadata": { "name": name, "namespace": "apps" },
        "spec": {
            "poolRef": { "name": pool },
            "tenantId": name,
            "subjects": [{ "serviceAccount": { "name": name } }],
            "access": "ReadWrite",
            "limit": { "bytes": "256Mi" },
        },
    })
}

/// A quota of these tenants.
pub(crate) fn quota(name: &str, pool: &str, tenants: &[&str]) -> Value {
    json!({
        "apiVersion": "larder.dev/v1alpha1", "kind": "CacheQuota",
        "metadata": { "name": name, "namespace": "apps" },
        "spec": {
            "poolRef": { "name": pool },
            "tenants": tenants,
            "guaranteed": { "bytes": "64Mi" },
            "limit": { "bytes": "512Mi" },
        },
    })
}

/// A cluster of three nodes with nothing of ours in it.
pub(crate) async fn cluster() -> (ApiServer, Arc<FakeMaster>) {
    let api = ApiServer::start();
    for name in ["n1", "n2", "n3"] {
        api.put("nodes", node(name)).await;
    }
    (api, Arc::default())
}

/// Waits for a condition, as `True/Reason` or the start of it.
pub(crate) async fn condition(
    api: &ApiServer,
    plural: &'static str,
    name: &'static str,
    kind: &'static str,
    value: &'static str,
) {
    let what = format!("{kind}={value} of {plural}/{name}");
    api.until(&what, move |state| {
        state
            .condition(plural, "apps", name, kind)
            .starts_with(value)
    })
    .await;
}
