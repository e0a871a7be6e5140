//! `decide`: one request against the state as the overlay shows it.
//!
//! One file per family of requests. A decision may look at anything and refuse; whatever it
//! brings that the state does not determine stands inside its ops.

mod adopt;
mod copy;
mod drain;
mod get;
mod grant;
mod inventory;
mod mount;
mod pin;
mod put;
mod put_end;
mod quota;
mod relief;
mod remove;
pub(crate) mod room;
mod slab;
mod task;
mod tenant;

use larder_types::{Key, PoolTime, Reason, TenantId, Version};

use crate::effects::Discard;
use crate::leader::{Leader, rebuild};
use crate::op::Op;
use crate::overlay::TenantOp;
use crate::reply::{Decision, Refusal, Reply, WaitOn};
use crate::request::Request;
use crate::segment::slab_key;
use crate::state::{State, Tenant};

/// Why a decision ends before it has an answer.
#[derive(Debug)]
enum Stop {
    Refused(Refusal),
    Wait(WaitOn),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

type Outcome = Result<Decision, Stop>;

fn refuse<T>(reason: Reason, detail: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Refused(Refusal::new(reason, detail)))
}

/// What a request wants of its tenant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Right {
    Read,
    Write,
    Know,
}

impl Leader {
    /// Decides one request. The caller proposes the ops of the decision at once, in the order of
    /// decisions; `random` serves only to choose between equals.
    pub fn decide(
        &mut self,
        state: &State,
        request: &Request,
        now: PoolTime,
        random: &mut dyn FnMut() -> u64,
    ) -> Decision {
        self.leases.begin();
        let outcome = match self.admit(request) {
            Ok(()) if self.rebuild.is_some() && rebuild::waits(request) => {
                Err(rebuild::not_yet().into())
            }
            Ok(()) if self.is_unheard(now) && rebuild::is_told_what_is_missing(request) => {
                Err(rebuild::not_yet().into())
            }
            Ok(()) => self.route(state, request, now, random),
            Err(stop) => Err(stop),
        };
        match outcome {
            Ok(decision) => {
                if let Decision::Reply { ops, .. } | Decision::Wait { ops, .. } = &decision {
                    self.touch(state, ops);
                }
                decision
            }
            Err(Stop::Refused(refusal)) => Decision::Refused(refusal),
            Err(Stop::Wait(on)) => Decision::Wait {
                ops: Vec::new(),
                on,
                for_space: false,
            },
        }
    }

    /// Requests about objects; the others go on.
    fn route(
        &mut self,
        state: &State,
        request: &Request,
        now: PoolTime,
        random: &mut dyn FnMut() -> u64,
    ) -> Outcome {
        match request {
            Request::PutStart { .. } => self.put_start(state, request, now, random),
            Request::PutEnd {
                session,
                tenant,
                key,
                version,
                written,
            } => self.put_end(state, (*session, tenant, key, *version), written, now),
            Request::PutRevoke {
                session,
                tenant,
                key,
                version,
            } => self.put_revoke(state, (*session, tenant, key, *version)),
            Request::Get { tenant, key } => {
                let outcome = self.get(state, tenant, key, now);
                self.looked_up(state, (tenant, key), &outcome, now);
                outcome
            }
            Request::Exists { tenant, key, lease } => {
                let outcome = self.exists(state, (tenant, key), *lease, now);
                self.looked_up(state, (tenant, key), &outcome, now);
                outcome
            }
            Request::Remove {
                tenant,
                key,
                if_unleased,
            } => self.remove(state, (tenant, key), *if_unleased, now),
            Request::List {
                tenant,
                prefix,
                after,
                limit,
            } => self.list(state, tenant, prefix, after.as_ref(), *limit),
            Request::Usage { tenant } => self.usage(state, tenant),
            Request::PinSet { tenant, key, pin } => self.set_pin(state, tenant, key, *pin),
            Request::Stat { tenant, key } => self.stat(state, tenant, key, now),
            Request::ListStats {
                tenant,
                prefix,
                after,
                limit,
            } => self.list_stats(state, (tenant, prefix), (after.as_ref(), *limit), now),
            Request::RemovePrefix {
                tenant,
                prefix,
                after,
                limit,
                if_unleased,
            } => {
                let page = (after.as_ref(), *limit);
                self.remove_prefix(state, (tenant, prefix), page, *if_unleased, now)
            }
            _ => self.route_pool(state, request, now),
        }
    }

    /// Requests of agents, and about tenants and sessions.
    fn route_pool(&mut self, state: &State, request: &Request, now: PoolTime) -> Outcome {
        match request {
            Request::Mount { .. } => self.mount(state, request, now),
            Request::Unmount { agent } => self.unmount(state, *agent),
            Request::Inventory { .. } => self.inventory(state, request, now),
            Request::Heartbeat {
                agent,
                incarnation,
                load_permille,
            } => self.heartbeat((*agent, *incarnation), *load_permille, now),
            Request::AgentGone { agent, incarnation } => {
                Ok(self.agent_gone(state, *agent, *incarnation, now))
            }
            Request::SlabReady { slab } => self.slab_ready(state, *slab),
            Request::SlabReturned { slab } => self.slab_returned(state, *slab),
            Request::SlabFailed { slab, detail: _ } => self.slab_failed(state, *slab, now),
            Request::Released { extents, agent } => self.released(state, extents, *agent, now),
            Request::TenantSet { tenant, policy } => self.tenant_set(state, tenant, policy),
            Request::TenantDelete { tenant } => self.tenant_delete(state, tenant),
            Request::SessionClosed { session } => Ok(self.session_closed(*session)),
            Request::Copied {
                agent,
                copy,
                digest,
            } => Ok(self.copied(state, *agent, *copy, *digest, now)),
            Request::CopyFailed {
                agent,
                copy,
                detail: _,
            } => Ok(self.copy_failed(*agent, *copy, now)),
            Request::Drain { agent, on } => self.drain(state, *agent, *on),
            Request::LabelsSet { agent, labels } => self.labels_set(state, *agent, labels),
            Request::TaskCreate { tenant, key, wish } => self.task_create(state, tenant, key, wish),
            Request::TaskQuery { tenant, task } => self.task_query(state, tenant, *task),
            Request::TaskCancel { task } => self.task_cancel(state, *task),
            Request::QuotaSet { quota, policy } => self.quota_set(state, quota, policy),
            Request::QuotaDelete { quota } => self.quota_delete(state, quota),
            _ => refuse(Reason::Internal, "a request that nobody decides"),
        }
    }

    /// Tells eviction of a read. A probe that finds an object keeps nothing warm: the get that
    /// follows does.
    fn looked_up(
        &mut self,
        state: &State,
        (tenant, key): (&TenantId, &Key),
        outcome: &Outcome,
        now: PoolTime,
    ) {
        let missing =
            |refusal: &Refusal| matches!(refusal.reason, Reason::NotFound | Reason::NotReady);
        match outcome {
            Ok(Decision::Reply {
                reply: Reply::Located { .. },
                ..
            }) => {
                let held = state.tenant(tenant);
                if let Some(id) = held.and_then(|held| held.objects.id(key)) {
                    self.evict.hit(tenant, id, now);
                }
            }
            Ok(Decision::Reply {
                reply: Reply::Exists(false),
                ..
            }) => self.evict.missed(tenant, std::iter::once(key)),
            Err(Stop::Refused(refusal)) if missing(refusal) => {
                self.evict.missed(tenant, std::iter::once(key))
            }
            _ => {}
        }
    }

    /// Lets everybody see ops that are decided.
    pub(crate) fn touch(&mut self, state: &State, ops: &[Op]) {
        for op in ops {
            self.overlay.touch(state, op, &mut self.effects);
            match op {
                Op::SlabGive { slab, tenant } => {
                    self.space.comes(slab_key(*slab), slab.agent, tenant);
                }
                Op::SlabTake { slab } => {
                    self.space.goes(slab_key(*slab));
                    self.soft.empty.remove(&slab_key(*slab));
                    self.soft.closed.remove(&slab_key(*slab));
                    self.soft.taking.insert(slab_key(*slab));
                }
                Op::SlabReturned { slab } => self.space.goes(slab_key(*slab)),
                Op::SegmentLost { segment, .. } => self.space.loses(*segment),
                _ => {}
            }
        }
    }

    /// Back-pressure: no op of a client while too many are in flight.
    fn admit(&self, request: &Request) -> Result<(), Stop> {
        let brings_ops = matches!(
            request,
            Request::PutStart { .. }
                | Request::PutEnd { .. }
                | Request::Remove { .. }
                | Request::RemovePrefix { .. }
                | Request::PinSet { .. }
                | Request::TenantSet { .. }
                | Request::TenantDelete { .. }
                | Request::TaskCreate { .. }
                | Request::TaskCancel { .. }
                | Request::QuotaSet { .. }
                | Request::QuotaDelete { .. }
        );
        let (held, most) = (self.overlay.in_flight, self.settings.max_in_flight_ops);
        if brings_ops && held >= most {
            return refuse(
                Reason::Overloaded,
                format!("{held} ops are in flight, at most {most}"),
            );
        }
        Ok(())
    }

    /// The tenant, if it exists and may do that.
    fn tenant<'a>(
        &self,
        state: &'a State,
        id: &TenantId,
        right: Right,
    ) -> Result<&'a Tenant, Stop> {
        // Reads go on until the deletion is committed; they see what is committed.
        let op = self.overlay.tenant_op(id);
        if right == Right::Write && op == Some(TenantOp::Delete) {
            return Err(Stop::Wait(WaitOn::Tenant(id.clone())));
        }
        let Some(tenant) = state.tenant(id).filter(|tenant| !tenant.is_deleting()) else {
            return refuse(Reason::TenantUnknown, format!("tenant {id}"));
        };
        let access = tenant.policy.access;
        let allowed = match right {
            Right::Read => access.reads(),
            Right::Write => access.writes(),
            Right::Know => true,
        };
        if !allowed {
            return refuse(
                Reason::AccessDenied,
                format!("tenant {id} has access {access:?}"),
            );
        }
        Ok(tenant)
    }

    /// Waits if an op is proposed for the key, or if all that it holds is about to be lost.
    fn untouched(&self, state: &State, tenant: &TenantId, key: &Key) -> Result<(), Stop> {
        if self.overlay.is_touched(tenant, key) {
            return Err(Stop::Wait(WaitOn::Key(tenant.clone(), key.clone())));
        }
        let lost = &self.overlay.segments_lost;
        if lost.is_empty() {
            return Ok(());
        }
        let Some(object) = state.object(tenant, key) else {
            return Ok(());
        };
        let replicas = object.replicas();
        let vanishes = replicas
            .iter()
            .all(|replica| replica.iter().any(|e| lost.contains(&e.slab.segment)));
        let on = object
            .extents()
            .find(|extent| vanishes && lost.contains(&extent.slab.segment))
            .map(|extent| WaitOn::Agent(extent.slab.agent));
        on.map_or(Ok(()), |on| Err(Stop::Wait(on)))
    }

    /// A client's session ended: its pending puts are given up.
    fn session_closed(&mut self, session: larder_types::SessionId) -> Decision {
        for version in self.overlay.versions_of(session) {
            self.discard_unless_ending(version, Discard::SessionClosed);
        }
        self.answer(Reply::Done)
    }

    /// Gives a pending put up if its end is not proposed yet.
    pub(crate) fn discard_unless_ending(&mut self, version: Version, cause: Discard) {
        let ending = self
            .overlay
            .by_version
            .get(&version)
            .and_then(|(tenant, key)| self.overlay.pending(tenant, key))
            .is_none_or(|put| put.ending);
        if !ending {
            self.overlay.discard(version, cause, &mut self.effects);
        }
    }
}
