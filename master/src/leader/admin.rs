//! What the admin port asks of the leader, and its documents.

use larder_store::evict::{PoolSignals, WINDOWS_MINUTES};
use larder_store::{Request, Tenant, check};
use larder_types::{AgentId, AgentName, Key, PoolTime, Reason, TenantId};
use larder_wire::CallError;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{DEADLINE_MS, Leading};
use crate::calls::{Call, Origin};
use crate::event::{AdminAnswer, AdminAsk};
use crate::log::Log;
use crate::metrics::per_mille;

/// The most findings in one answer; how many there are stands beside.
const FINDINGS_MAX: usize = 100;

/// How the cache has done lately, over about five minutes, and an hour for evictions; null where
/// nothing is known.
fn signals(now: &PoolSignals, has_space: bool) -> Value {
    let lately = WINDOWS_MINUTES.iter().position(|minutes| *minutes == 5);
    let of = |shares: [Option<f64>; 3]| shares[lately.unwrap_or(0)].map(per_mille);
    json!({
        "hit_ratio_per_mille": of(now.all.hit_ratios),
        "ghost_ratio_per_mille": of(now.all.ghost_ratios),
        "eviction_age_ms": now.all.eviction_age_p50_ms,
        "pressure_per_mille": has_space.then_some(now.pressure_per_mille),
    })
}

impl<L: Log> Leading<L> {
    /// Begins a change, or answers a question at once.
    pub(super) fn ask(&mut self, ask: AdminAsk, reply: oneshot::Sender<AdminAnswer>) {
        let request = match ask {
            AdminAsk::TenantSet(tenant, policy) => Request::TenantSet { tenant, policy },
            AdminAsk::TenantDelete(tenant) => Request::TenantDelete { tenant },
            AdminAsk::Keys {
                tenant,
                prefix,
                after,
                limit,
            } => Request::List {
                tenant,
                prefix,
                after,
                limit,
            },
            AdminAsk::Remove {
                tenant,
                keys,
                if_unleased,
            } => return self.begin_removal(&tenant, keys, if_unleased, reply),
            AdminAsk::Drain(name, on) => {
                return self.begin_of_agent(&name, reply, |agent| Request::Drain { agent, on });
            }
            AdminAsk::Labels(name, labels) => {
                let set = |agent| Request::LabelsSet { agent, labels };
                return self.begin_of_agent(&name, reply, set);
            }
            AdminAsk::TaskCancel(task) => Request::TaskCancel { task },
            AdminAsk::QuotaSet(quota, policy) => Request::QuotaSet { quota, policy },
            AdminAsk::QuotaDelete(quota) => Request::QuotaDelete { quota },
            question => {
                // Whoever asked may have gone.
                drop(reply.send(self.tell(question)));
                return;
            }
        };
        self.begin_admin(request, reply);
    }

    /// Answers a question.
    fn tell(&mut self, question: AdminAsk) -> AdminAnswer {
        Ok(match question {
            AdminAsk::DrainStatus(name) => return self.drain_status(&name),
            AdminAsk::Task(task) => return self.task(task),
            AdminAsk::TenantQuota(tenant) => return self.tenant_quota(&tenant),
            AdminAsk::Quota(quota) => return self.quota(&quota),
            AdminAsk::Tasks {
                tenant,
                open,
                after,
                limit,
            } => self.tasks(tenant.as_ref(), open, after, limit),
            AdminAsk::Quotas => self.quotas(),
            AdminAsk::Status => self.status(),
            AdminAsk::Tenants => self.tenants(),
            AdminAsk::Agents => self.agents(),
            AdminAsk::Check => self.check(),
            #[cfg(feature = "sim")]
            AdminAsk::Look => {
                let (at, state) = (self.core.log.applied(), &self.core.state);
                let certain_term = self.core.log.is_certain().then(|| self.core.epoch().term);
                crate::sim::look(state, at, crate::role::Role::Leading, certain_term)
            }
            AdminAsk::Gauges => {
                let (state, leader) = (&self.core.state, &mut self.core.leader);
                self.metrics.refresh(state, leader, self.links.clients());
                if let Some(events) = &mut self.events {
                    events.refresh();
                }
                Value::Null
            }
            // A change, which `ask` has begun.
            _ => return Err(CallError::new(Reason::Internal)),
        })
    }

    fn begin_removal(
        &mut self,
        tenant: &TenantId,
        keys: Vec<Key>,
        if_unleased: bool,
        reply: oneshot::Sender<AdminAnswer>,
    ) {
        let remove = |key| {
            let tenant = tenant.clone();
            Ok(Request::Remove {
                tenant,
                key,
                if_unleased,
            })
        };
        let items: Vec<_> = keys.into_iter().map(remove).collect();
        let deadline: PoolTime = self.core.now.plus_ms(DEADLINE_MS);
        let origin = Origin::AdminMany(reply);
        let call = Call::new(origin, items.len(), deadline, Instant::now());
        self.begin(call, items);
    }

    fn begin_of_agent(
        &mut self,
        name: &AgentName,
        reply: oneshot::Sender<AdminAnswer>,
        request: impl FnOnce(AgentId) -> Request,
    ) {
        match self.core.state.agent_named(name) {
            Some(agent) => self.begin_admin(request(agent), reply),
            // Whoever asked may have gone.
            None => drop(reply.send(Err(CallError::new(Reason::AgentUnknown)))),
        }
    }

    fn begin_admin(&mut self, request: Request, reply: oneshot::Sender<AdminAnswer>) {
        let deadline: PoolTime = self.core.now.plus_ms(DEADLINE_MS);
        let call = Call::new(Origin::Admin(reply), 1, deadline, Instant::now());
        self.begin(call, vec![Ok(request)]);
    }

    fn status(&mut self) -> Value {
        let core = &mut self.core;
        let requested = core.leader.effective(&core.state);
        let (guaranteed_bytes, overcommitted) =
            (requested.requested_bytes, requested.is_overcommitted());
        let epoch = core.epoch();
        let now = core.leader.signals(&core.state);
        let has_space = core.state.capacity_bytes() > 0;
        let signals = signals(&now, has_space);
        json!({
            "pool": core.rules.pool,
            "name": core.rules.name,
            "role": "leader",
            "epoch": { "generation": epoch.generation, "term": epoch.term },
            "pool_time_ms": core.now.0,
            "tenants": core.state.tenants().count(),
            "agents": core.state.agents().filter(|(_, a)| !a.segments().is_empty()).count(),
            "sessions": self.links.clients(),
            "objects": core.state.objects(),
            "rebuilding": core.state.is_rebuilding(),
            "of_inventory": core.state.is_of_inventory(),
            "agents_told": core.leader.agents_told(&core.state),
            "release": core.state.version(),
            "capacity_bytes": core.state.capacity_bytes(),
            "used_bytes": core.state.used_bytes(),
            "guaranteed_bytes": guaranteed_bytes,
            "overcommitted": overcommitted,
            "reserved_bytes": core.leader.reserved_bytes(),
            "releasing_bytes": core.state.releasing_bytes(),
            "pending_puts": core.leader.pending_puts(),
            "discarded_puts": core.leader.discarded_puts(),
            "replica_factor": core.rules.replica_factor,
            "signals": signals,
            "digest": format!("{:016x}", core.state.digest()),
        })
    }

    fn tenants(&mut self) -> Value {
        let core = &mut self.core;
        let effective = core.leader.effective(&core.state).clone();
        let document = |(id, tenant): (&TenantId, &Tenant)| {
            let (reserved_bytes, reserved_objects) = core.leader.reserved_of(id);
            let policy = tenant.policy();
            let share = effective.tenants.get(id).copied().unwrap_or_default();
            let charged = tenant.used_bytes().saturating_add(reserved_bytes);
            json!({
                "tenant": id.as_str(),
                "access": policy.access,
                "guaranteed_bytes": policy.guaranteed_bytes,
                "limit_bytes": policy.limit_bytes,
                "limit_objects": policy.limit_objects,
                "view_bytes": policy.view_bytes,
                "limit_pinned_bytes": policy.limit_pinned_bytes,
                "borrowing": policy.borrowing,
                "on_exceed": policy.on_exceed,
                "cohort": policy.cohort,
                "effective_guaranteed_bytes": share.guaranteed_bytes,
                "effective_limit_bytes": share.limit_bytes,
                "borrowed_bytes": charged.saturating_sub(share.guaranteed_bytes),
                "used_bytes": tenant.used_bytes(),
                "objects": tenant.objects().len(),
                "reserved_bytes": reserved_bytes,
                "reserved_objects": reserved_objects,
                "slabs": tenant.slab_count(),
                "deleting": tenant.is_deleting(),
            })
        };
        json!({ "tenants": core.state.tenants().map(document).collect::<Vec<_>>() })
    }

    fn drain_status(&self, name: &AgentName) -> AdminAnswer {
        let (state, leader) = (&self.core.state, &self.core.leader);
        let agent = state.agent_named(name);
        let status = agent.and_then(|agent| leader.drain_status(state, agent));
        let status = status.ok_or_else(|| CallError::new(Reason::AgentUnknown))?;
        let phase = match (status.draining, status.drained) {
            (false, _) => "active",
            (true, false) => "draining",
            (true, true) => "drained",
        };
        Ok(json!({
            "name": name.as_str(),
            "state": phase,
            "slabs_left": status.slabs_left,
            "bytes_left": status.bytes_left,
            "extents_left": status.extents_left,
            "objects_left": status.objects_left,
            "releasing_bytes": status.releasing_bytes,
            "moved_objects": status.moved_objects,
            "moved_bytes": status.moved_bytes,
            "blocked": status.blocked.map(larder_store::Blocked::text),
        }))
    }

    /// Reads the whole state: about a second for a million objects, in which nothing is served.
    fn check(&self) -> Value {
        let findings = check(&self.core.state);
        self.metrics.found(findings.len());
        for finding in &findings {
            tracing::error!(%finding, "the check of the state found a contradiction");
        }
        let shown = findings.iter().take(FINDINGS_MAX).map(ToString::to_string);
        json!({
            "findings_total": findings.len(),
            "findings": shown.collect::<Vec<_>>(),
            "objects": self.core.state.objects(),
            "digest": format!("{:016x}", self.core.state.digest()),
        })
    }
}
