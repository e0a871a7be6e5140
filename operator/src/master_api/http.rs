//! The administration port over HTTP, with a token of the operator's ServiceAccount.

mod exchange;
mod snapshots;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::lookup_host;
use tokio::sync::watch;
use tokio::time::Instant;

use super::tokens::Tokens;
use super::{
    AgentDocument, AgentLabels, Call, DrainDocument, MasterApi, MasterError, MasterView,
    MastersDocument, QuotaDocument, QuotaPolicy, SnapshotDocument, SnapshotLook, StatusDocument,
    TenantDocument, TenantPolicy,
};
use crate::names::{MASTER_ADMIN_PORT, PoolId};
use exchange::{exchange, refused, slow, unreachable};

/// Longest call, in ms.
const LIMIT_MS: u64 = 5_000;
/// Longest answer, in bytes: 16,384 tenants of 1,000 bytes each, or 4,096 agents
/// with 8 segments of 500.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// How much of a refusal is told.
const TOLD_CHARS: usize = 200;

/// What a master says of itself, in whatever role.
const STATUS: &str = "/v1/status";
/// Most addresses of one pool that are asked: five masters, and pods that are on their way out.
const ADDRS_MAX: usize = 16;
/// For how long a leader is asked before all masters are asked again who leads.
const LEADER_KNOWN: Duration = Duration::from_secs(600);

/// Masters by the names of their pools. What needs the leader goes to the one that led last; where
/// that one is gone or leads no longer, all are asked who does.
#[derive(Debug)]
pub struct HttpMasters {
    tokens: Tokens,
    /// Set in tests: where the masters of every pool are.
    everywhere: Option<Vec<String>>,
    leaders: watch::Sender<Leaders>,
}

/// The address of the leader by uid of the pool, and until when it is asked. As many as pools that
/// were looked at within that time.
type Leaders = BTreeMap<String, (String, Instant)>;

/// `GET /v1/status` of any master.
#[derive(Deserialize)]
struct Standing {
    #[serde(default)]
    name: String,
    role: String,
}

impl Standing {
    fn leads(&self) -> bool {
        self.role == "leader"
    }
}

impl HttpMasters {
    /// Masters that take these tokens.
    #[must_use]
    pub fn new(tokens: Tokens) -> Self {
        Self {
            tokens,
            everywhere: None,
            leaders: watch::Sender::new(Leaders::new()),
        }
    }

    /// The same, with the masters of every pool at these `host:port`.
    #[must_use]
    pub fn at(tokens: Tokens, addrs: Vec<String>) -> Self {
        Self {
            everywhere: Some(addrs),
            ..Self::new(tokens)
        }
    }

    /// Where the masters of a pool are, ready or not.
    async fn addrs(&self, pool: &PoolId) -> Result<Vec<String>, MasterError> {
        if let Some(addrs) = &self.everywhere {
            return Ok(addrs.clone());
        }
        let host = format!("{}:{MASTER_ADMIN_PORT}", pool.masters_host());
        let limit = Duration::from_millis(LIMIT_MS);
        let found = tokio::time::timeout(limit, lookup_host(&host)).await;
        let found = found.map_err(|_| slow(&host))?;
        let found = found.map_err(|source| unreachable(&host, source))?;
        Ok(found.take(ADDRS_MAX).map(|addr| addr.to_string()).collect())
    }

    /// Where the leader is. Whoever was it last counts until [`HttpMasters::forget`].
    async fn leader(&self, pool: &PoolId) -> Result<String, MasterError> {
        let now = Instant::now();
        if let Some((addr, until)) = self.leaders.borrow().get(&pool.uid)
            && now < *until
        {
            return Ok(addr.clone());
        }
        let addrs = self.addrs(pool).await?;
        let mut asked: FuturesUnordered<_> = addrs
            .iter()
            .map(|addr| async move { (addr, self.standing(pool, addr).await) })
            .collect();
        let (mut answered, mut failed) = (Vec::new(), None);
        while let Some((addr, standing)) = asked.next().await {
            match standing {
                Ok(standing) if standing.leads() => {
                    self.leaders.send_modify(|leaders| {
                        leaders.retain(|_, (_, until)| now < *until);
                        leaders.insert(pool.uid.clone(), (addr.clone(), now + LEADER_KNOWN));
                    });
                    return Ok(addr.clone());
                }
                Ok(standing) => answered.push(standing.name),
                Err(error) => drop(failed.get_or_insert(error)),
            }
        }
        let asked = u32::try_from(addrs.len()).unwrap_or(u32::MAX);
        match failed {
            Some(error) if answered.is_empty() => Err(error),
            _ => Err(MasterError::NoLeader { answered, asked }),
        }
    }

    fn forget(&self, pool: &PoolId) {
        self.leaders
            .send_if_modified(|leaders| leaders.remove(&pool.uid).is_some());
    }

    async fn standing(&self, pool: &PoolId, addr: &str) -> Result<Standing, MasterError> {
        let (status, body) = self
            .ask(addr, pool, Method::GET, STATUS, Bytes::new())
            .await?;
        document(STATUS, status, &body)
    }

    /// Asks the leader; once more if what was asked does not lead, or is not there. Every call may
    /// be made twice.
    async fn call(
        &self,
        pool: &PoolId,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), MasterError> {
        let addr = self.leader(pool).await?;
        let answer = self
            .ask(&addr, pool, method.clone(), path, body.clone())
            .await;
        if !may_be_elsewhere(path, &answer) {
            return answer;
        }
        self.forget(pool);
        let leader = self.leader(pool).await?;
        if leader == addr {
            return answer;
        }
        tracing::info!(pool = pool.key(), leader, "another master leads");
        self.ask(&leader, pool, method, path, body).await
    }

    async fn ask(
        &self,
        addr: &str,
        pool: &PoolId,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), MasterError> {
        let token = self.tokens.of(pool).await?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, addr)
            .header(AUTHORIZATION, format!("Bearer {token}"))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|source| unreachable(addr, source))?;
        let limit = Duration::from_millis(LIMIT_MS);
        let answer = tokio::time::timeout(limit, exchange(addr, request)).await;
        answer.map_err(|_| slow(addr))?
    }

    async fn get<T: DeserializeOwned>(&self, pool: &PoolId, path: &str) -> Result<T, MasterError> {
        let (status, body) = self.call(pool, Method::GET, path, Bytes::new()).await?;
        document(path, status, &body)
    }
}

/// Whether another master may have the better answer. What a standby refuses has the same status
/// as what an overloaded leader does; who leads tells them apart.
fn may_be_elsewhere(path: &str, answer: &Result<(StatusCode, Bytes), MasterError>) -> bool {
    match answer {
        Ok((StatusCode::SERVICE_UNAVAILABLE, _)) => true,
        // This one call a standby answers.
        Ok((status, body)) if path == STATUS => {
            document::<Standing>(path, *status, body).is_ok_and(|standing| !standing.leads())
        }
        Ok(_) => false,
        Err(error) => matches!(
            error,
            MasterError::Unreachable { .. } | MasterError::Slow { .. }
        ),
    }
}

fn document<T: DeserializeOwned>(
    path: &str,
    status: StatusCode,
    body: &[u8],
) -> Result<T, MasterError> {
    if !status.is_success() {
        return Err(refused(status, body));
    }
    serde_json::from_slice(body).map_err(|source| MasterError::Document {
        path: path.to_owned(),
        source,
    })
}

impl HttpMasters {
    /// Puts a document without the field that stands in the path.
    async fn put(
        &self,
        pool: &PoolId,
        path: &str,
        named: &str,
        document: &(impl Serialize + Sync),
    ) -> Result<(), MasterError> {
        let mut body = serde_json::to_value(document).unwrap_or_default();
        if let Some(fields) = body.as_object_mut() {
            fields.remove(named);
        }
        let body = Bytes::from(body.to_string());
        let (status, body) = self.call(pool, Method::PUT, path, body).await?;
        if status.is_success() {
            Ok(())
        } else {
            Err(refused(status, &body))
        }
    }

    async fn delete(&self, pool: &PoolId, path: &str) -> Result<(), MasterError> {
        let (status, body) = self.call(pool, Method::DELETE, path, Bytes::new()).await?;
        let is_gone = status.is_success() || status == StatusCode::NOT_FOUND;
        if is_gone {
            Ok(())
        } else {
            Err(refused(status, &body))
        }
    }
}

#[derive(Deserialize)]
struct Tenants {
    tenants: Vec<TenantDocument>,
}

#[derive(Deserialize)]
struct Quotas {
    quotas: Vec<QuotaDocument>,
}

#[derive(Deserialize)]
struct Agents {
    agents: Vec<AgentDocument>,
}

impl MasterApi for HttpMasters {
    fn look<'a>(&'a self, pool: &'a PoolId) -> Call<'a, MasterView> {
        Box::pin(async move {
            let status: StatusDocument = self.get(pool, STATUS).await?;
            let Tenants { tenants } = self.get(pool, "/v1/tenants").await?;
            let Quotas { quotas } = self.get(pool, "/v1/quotas").await?;
            let Agents { agents } = self.get(pool, "/v1/agents").await?;
            let masters: MastersDocument = self.get(pool, "/v1/masters").await?;
            Ok(MasterView {
                status,
                masters,
                tenants: tenants
                    .into_iter()
                    .map(|one| (one.tenant.clone(), one))
                    .collect(),
                quotas: quotas
                    .into_iter()
                    .map(|one| (one.quota.clone(), one))
                    .collect(),
                agents: agents
                    .into_iter()
                    .map(|one| (one.name.clone(), one))
                    .collect(),
            })
        })
    }

    fn set_tenant<'a>(&'a self, pool: &'a PoolId, policy: &'a TenantPolicy) -> Call<'a, ()> {
        Box::pin(async move {
            let path = format!("/v1/tenants/{}", policy.tenant);
            self.put(pool, &path, "tenant", policy).await
        })
    }

    fn delete_tenant<'a>(&'a self, pool: &'a PoolId, tenant: &'a str) -> Call<'a, ()> {
        Box::pin(async move { self.delete(pool, &format!("/v1/tenants/{tenant}")).await })
    }

    fn set_quota<'a>(&'a self, pool: &'a PoolId, policy: &'a QuotaPolicy) -> Call<'a, ()> {
        Box::pin(async move {
            let path = format!("/v1/quotas/{}", policy.quota);
            self.put(pool, &path, "quota", policy).await
        })
    }

    fn delete_quota<'a>(&'a self, pool: &'a PoolId, quota: &'a str) -> Call<'a, ()> {
        Box::pin(async move { self.delete(pool, &format!("/v1/quotas/{quota}")).await })
    }

    fn drain<'a>(&'a self, pool: &'a PoolId, agent: &'a str) -> Call<'a, ()> {
        Box::pin(async move {
            let path = format!("/v1/agents/{agent}/drain");
            self.put(pool, &path, "", &()).await
        })
    }

    fn undrain<'a>(&'a self, pool: &'a PoolId, agent: &'a str) -> Call<'a, ()> {
        Box::pin(async move {
            self.delete(pool, &format!("/v1/agents/{agent}/drain"))
                .await
        })
    }

    fn drain_status<'a>(&'a self, pool: &'a PoolId, agent: &'a str) -> Call<'a, DrainDocument> {
        Box::pin(async move { self.get(pool, &format!("/v1/agents/{agent}/drain")).await })
    }

    fn promote<'a>(&'a self, pool: &'a PoolId, master: &'a str) -> Call<'a, ()> {
        Box::pin(async move {
            let path = format!("/v1/masters/{master}/promote");
            let (status, body) = self.call(pool, Method::POST, &path, Bytes::new()).await?;
            if status.is_success() {
                Ok(())
            } else {
                Err(refused(status, &body))
            }
        })
    }

    fn name_masters<'a>(&'a self, pool: &'a PoolId, names: &'a [String]) -> Call<'a, ()> {
        Box::pin(async move {
            let document = serde_json::json!({ "names": names });
            self.put(pool, "/v1/masters", "", &document).await
        })
    }

    fn set_labels<'a>(
        &'a self,
        pool: &'a PoolId,
        agent: &'a str,
        labels: &'a AgentLabels,
    ) -> Call<'a, ()> {
        Box::pin(async move {
            let path = format!("/v1/agents/{agent}/labels");
            self.put(pool, &path, "", labels).await
        })
    }

    fn snapshot<'a>(&'a self, pool: &'a PoolId, name: &'a str) -> Call<'a, SnapshotLook> {
        Box::pin(self.look_for_snapshot(pool, name))
    }

    fn take_snapshot<'a>(&'a self, pool: &'a PoolId, name: &'a str) -> Call<'a, SnapshotDocument> {
        Box::pin(async move {
            let path = "/v1/snapshots";
            let body = Bytes::from(serde_json::json!({ "name": name }).to_string());
            let (status, body) = self.call(pool, Method::POST, path, body).await?;
            document(path, status, &body)
        })
    }

    fn delete_snapshot<'a>(&'a self, pool: &'a PoolId, name: &'a str) -> Call<'a, ()> {
        Box::pin(self.remove_snapshot(pool, name))
    }
}
