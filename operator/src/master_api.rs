//! What the operator asks of a pool's master: its administration port.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use larder_crds::{Access, Borrowing, Figures, OnExceed};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::names::PoolId;

pub use agents::{AgentDocument, AgentLabels, DrainDocument, SegmentDocument};
pub use masters::{MasterDocument, MastersDocument};
pub use snapshots::{SnapshotDocument, SnapshotLook};
pub use status::{EpochDocument, SignalsDocument, StatusDocument};

mod agents;
pub mod http;
mod masters;
mod snapshots;
mod status;
pub mod tokens;

/// A call under way.
pub type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T, MasterError>> + Send + 'a>>;

/// Why a master did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum MasterError {
    /// No connection, or it broke, or it took too long.
    #[error("cannot reach the master at {addr}; check its pod and network policies")]
    Unreachable {
        /// Where.
        addr: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It did not answer in time.
    #[error("the master at {addr} did not answer within {limit_ms} ms")]
    Slow {
        /// Where.
        addr: String,
        /// How long was waited.
        limit_ms: u64,
    },
    /// The operator gets no token of its own to show.
    #[error("the API server gives the operator no token for {audience}; check its Role")]
    Token {
        /// Whom it is for.
        audience: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It answered with another status than success.
    #[error("the master answered {status}: {body}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The start of what it said.
        body: String,
    },
    /// Some answered, and none of them leads.
    #[error(
        "no master leads: {} of {asked} answer; they elect one while more than half of all run",
        .answered.len()
    )]
    NoLeader {
        /// The names of those that answered.
        answered: Vec<String>,
        /// How many have an address.
        asked: u32,
    },
    /// It answered something else than the document that was asked for.
    #[error("the master's answer to {path} is not understood; check that versions fit")]
    Document {
        /// What was asked.
        path: String,
        /// What is wrong.
        source: serde_json::Error,
    },
}

impl MasterError {
    /// Whether the same call may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        !matches!(
            self,
            Self::Refused {
                status: 400..=499,
                ..
            } | Self::Document { .. }
        )
    }
}

/// Guarantee and limits as masters know them. What is not said stays out: thousands of tenants
/// share one ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFigures {
    /// What may be charged whatever others do.
    #[serde(default, skip_serializing_if = "is_default")]
    pub guaranteed_bytes: u64,
    /// Most bytes.
    pub limit_bytes: Option<u64>,
    /// Most objects.
    pub limit_objects: Option<u64>,
    /// Most bytes of hard pins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_pinned_bytes: Option<u64>,
    /// Whether more than the guarantee may be taken.
    #[serde(default, skip_serializing_if = "is_default")]
    pub borrowing: Borrowing,
    /// What a put beyond does.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_exceed: OnExceed,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl From<&Figures> for PolicyFigures {
    fn from(figures: &Figures) -> Self {
        Self {
            guaranteed_bytes: figures.guaranteed_bytes,
            limit_bytes: figures.limit_bytes,
            limit_objects: figures.limit_objects,
            limit_pinned_bytes: figures.limit_pinned_bytes,
            borrowing: figures.borrowing,
            on_exceed: figures.on_exceed,
        }
    }
}

/// What a master shall know of a tenant: a line of its tenants file, and the body of the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TenantPolicy {
    /// The id.
    pub tenant: String,
    /// What it may do.
    pub access: Access,
    /// How much.
    #[serde(flatten)]
    pub figures: PolicyFigures,
    /// Most bytes of views per agent.
    pub view_bytes: Option<u64>,
    /// The quota that it shares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cohort: Option<String>,
}

/// What a master shall know of a quota: a line of its quotas file, and the body of the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QuotaPolicy {
    /// The name.
    pub quota: String,
    /// How much its tenants may hold together.
    #[serde(flatten)]
    pub figures: PolicyFigures,
}

/// One entry of `GET /v1/tenants`, as far as the operator needs it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TenantDocument {
    /// The id.
    pub tenant: String,
    /// What it may do.
    pub access: Access,
    /// How much.
    #[serde(flatten)]
    pub figures: PolicyFigures,
    /// Most bytes of views per agent.
    pub view_bytes: Option<u64>,
    /// The quota that it shares.
    #[serde(default)]
    pub cohort: Option<String>,
    /// What its guarantee comes to.
    #[serde(default)]
    pub effective_guaranteed_bytes: u64,
    /// Bytes that its objects take.
    pub used_bytes: u64,
    /// Its objects.
    pub objects: u64,
}

impl TenantDocument {
    /// Whether the master holds the tenant to `policy`.
    #[must_use]
    pub fn fits(&self, policy: &TenantPolicy) -> bool {
        self.tenant == policy.tenant
            && self.access == policy.access
            && self.figures == policy.figures
            && self.view_bytes == policy.view_bytes
            && self.cohort == policy.cohort
    }
}

/// One entry of `GET /v1/quotas`, as far as the operator needs it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct QuotaDocument {
    /// The name.
    pub quota: String,
    /// How much its tenants may hold together.
    #[serde(flatten)]
    pub figures: PolicyFigures,
    /// What its guarantee comes to.
    pub effective_guaranteed_bytes: u64,
    /// What its tenants are charged.
    pub charged_bytes: u64,
    /// Their objects.
    pub charged_objects: u64,
}

/// All that one look at a master showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MasterView {
    /// The pool as a whole.
    pub status: StatusDocument,
    /// By tenant id.
    pub tenants: BTreeMap<String, TenantDocument>,
    /// By name.
    pub quotas: BTreeMap<String, QuotaDocument>,
    /// By name of the node.
    pub agents: BTreeMap<String, AgentDocument>,
    /// The masters as the leader sees them.
    pub masters: MastersDocument,
}

/// The administration port of masters.
pub trait MasterApi: Send + Sync + Debug {
    /// Everything at once.
    fn look<'a>(&'a self, pool: &'a PoolId) -> Call<'a, MasterView>;
    /// Makes a tenant or changes its limits; the same again changes nothing.
    fn set_tenant<'a>(&'a self, pool: &'a PoolId, policy: &'a TenantPolicy) -> Call<'a, ()>;
    /// Removes a tenant with all that it stored; one that is gone is no error.
    fn delete_tenant<'a>(&'a self, pool: &'a PoolId, tenant: &'a str) -> Call<'a, ()>;
    /// Makes a quota or changes it; the same again changes nothing.
    fn set_quota<'a>(&'a self, pool: &'a PoolId, policy: &'a QuotaPolicy) -> Call<'a, ()>;
    /// Releases the tenants of a quota from it; one that is gone is no error.
    fn delete_quota<'a>(&'a self, pool: &'a PoolId, quota: &'a str) -> Call<'a, ()>;
    /// Begins to move everything off an agent; the same again changes nothing.
    fn drain<'a>(&'a self, pool: &'a PoolId, agent: &'a str) -> Call<'a, ()>;
    /// Lets an agent be filled again; one that is gone is no error.
    fn undrain<'a>(&'a self, pool: &'a PoolId, agent: &'a str) -> Call<'a, ()>;
    /// How far an agent is emptied.
    fn drain_status<'a>(&'a self, pool: &'a PoolId, agent: &'a str) -> Call<'a, DrainDocument>;
    /// Makes another master the leader; one that leads already is no error.
    fn promote<'a>(&'a self, pool: &'a PoolId, master: &'a str) -> Call<'a, ()>;
    /// Says which masters the pool is to have.
    fn name_masters<'a>(&'a self, pool: &'a PoolId, names: &'a [String]) -> Call<'a, ()>;
    /// Says where an agent stands.
    fn set_labels<'a>(
        &'a self,
        pool: &'a PoolId,
        agent: &'a str,
        labels: &'a AgentLabels,
    ) -> Call<'a, ()>;
    /// What masters know of a snapshot, whatever their roles; an error if none answers.
    fn snapshot<'a>(&'a self, pool: &'a PoolId, name: &'a str) -> Call<'a, SnapshotLook>;
    /// Has the leader take a snapshot.
    fn take_snapshot<'a>(&'a self, pool: &'a PoolId, name: &'a str) -> Call<'a, SnapshotDocument>;
    /// Deletes a snapshot, whichever master has it; one that is gone is no error.
    fn delete_snapshot<'a>(&'a self, pool: &'a PoolId, name: &'a str) -> Call<'a, ()>;
}

/// A look at a master, and the one before it.
#[derive(Clone, Debug)]
pub struct Looks {
    /// The latest.
    pub now: Arc<MasterView>,
    /// The one before, if there was one.
    pub before: Option<Arc<MasterView>>,
}

/// The latest looks at each master, by uid of the pool. The pool's reconcile writes them, about
/// every half minute; the tenants' reconciles read them, so that thousands of tenants cost one
/// call.
#[derive(Debug)]
pub struct MasterViews(watch::Sender<BTreeMap<String, Looks>>);

impl Default for MasterViews {
    fn default() -> Self {
        Self(watch::Sender::new(BTreeMap::new()))
    }
}

impl MasterViews {
    /// The latest looks at the master of a pool; `None` before the first and after a failed one.
    #[must_use]
    pub fn get(&self, pool_uid: &str) -> Option<Looks> {
        self.0.borrow().get(pool_uid).cloned()
    }

    /// Keeps a look.
    pub fn set(&self, pool_uid: &str, now: Arc<MasterView>) {
        self.0.send_modify(|views| {
            let before = views.get(pool_uid).map(|looks| looks.now.clone());
            views.insert(pool_uid.to_owned(), Looks { now, before });
        });
    }

    /// Forgets a tenant that the master was told to forget since the latest look: one that comes
    /// again must be told to the master again.
    pub fn forget_tenant(&self, pool_uid: &str, tenant: &str) {
        self.0.send_if_modified(|views| {
            let Some(looks) = views.get_mut(pool_uid) else {
                return false;
            };
            Arc::make_mut(&mut looks.now)
                .tenants
                .remove(tenant)
                .is_some()
        });
    }

    /// The same of a quota.
    pub fn forget_quota(&self, pool_uid: &str, quota: &str) {
        self.0.send_if_modified(|views| {
            let Some(looks) = views.get_mut(pool_uid) else {
                return false;
            };
            Arc::make_mut(&mut looks.now).quotas.remove(quota).is_some()
        });
    }

    /// Forgets a master that does not answer or is gone.
    pub fn forget(&self, pool_uid: &str) {
        self.0
            .send_if_modified(|views| views.remove(pool_uid).is_some());
    }
}

/// Usage as it shall stand in a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that objects take.
    pub used_bytes: u64,
    /// Objects.
    pub objects: u64,
}

/// What to show when `shown` stands in the status: the exact figures once they rest, and while
/// they move only steps of more than a 64th, so that a busy pool does not keep the API server
/// busy. A look comes every half minute, so that is also how often a status changes at most.
#[must_use]
pub fn coarse(shown: Option<Usage>, before: Option<Usage>, now: Usage) -> Usage {
    let Some(shown) = shown else { return now };
    let is_far = |a: u64, b: u64| a.abs_diff(b) > a.max(b) / 64;
    let moved = is_far(shown.used_bytes, now.used_bytes) || is_far(shown.objects, now.objects);
    if moved || before == Some(now) {
        now
    } else {
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_steps_are_told_once_they_rest() {
        let at = |used_bytes| Usage {
            used_bytes,
            objects: 1,
        };
        assert_eq!(coarse(None, None, at(7)), at(7));
        assert_eq!(coarse(Some(at(1000)), Some(at(1000)), at(1010)), at(1000));
        assert_eq!(coarse(Some(at(1000)), Some(at(1010)), at(1010)), at(1010));
        assert_eq!(coarse(Some(at(1000)), Some(at(1000)), at(1100)), at(1100));
        assert_eq!(coarse(Some(at(0)), Some(at(0)), at(1)), at(1));
    }
}
