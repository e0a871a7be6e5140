//! The administration port over HTTP, with a token of the operator's ServiceAccount.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

use super::tokens::Tokens;
use super::{
    AgentDocument, AgentLabels, Call, DrainDocument, MasterApi, MasterError, MasterView,
    QuotaDocument, QuotaPolicy, StatusDocument, TenantDocument, TenantPolicy,
};
use crate::names::{MASTER_ADMIN_PORT, PoolId};

/// Longest call, in ms.
const LIMIT_MS: u64 = 5_000;
/// Longest answer, in bytes: 16,384 tenants of 1,000 bytes each, or 4,096 agents
/// with 8 segments of 500.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// How much of a refusal is told.
const TOLD_CHARS: usize = 200;

/// Masters behind the Services of their pools.
#[derive(Debug)]
pub struct HttpMasters {
    tokens: Tokens,
    /// Set in tests: where every master is.
    everywhere: Option<String>,
}

impl HttpMasters {
    /// Masters that take these tokens.
    #[must_use]
    pub const fn new(tokens: Tokens) -> Self {
        Self {
            tokens,
            everywhere: None,
        }
    }

    /// The same, with every master at one `host:port`.
    #[must_use]
    pub const fn at(tokens: Tokens, addr: String) -> Self {
        Self {
            tokens,
            everywhere: Some(addr),
        }
    }

    async fn call(
        &self,
        pool: &PoolId,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), MasterError> {
        let addr = self
            .everywhere
            .clone()
            .unwrap_or_else(|| format!("{}:{MASTER_ADMIN_PORT}", pool.master_host()));
        let token = self.tokens.of(pool).await?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &addr)
            .header(AUTHORIZATION, format!("Bearer {token}"))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|source| unreachable(&addr, source))?;
        let limit = Duration::from_millis(LIMIT_MS);
        tokio::time::timeout(limit, exchange(&addr, request))
            .await
            .map_err(|_| MasterError::Slow {
                addr: addr.clone(),
                limit_ms: LIMIT_MS,
            })?
    }

    async fn get<T: DeserializeOwned>(&self, pool: &PoolId, path: &str) -> Result<T, MasterError> {
        let (status, body) = self.call(pool, Method::GET, path, Bytes::new()).await?;
        if !status.is_success() {
            return Err(refused(status, &body));
        }
        serde_json::from_slice(&body).map_err(|source| MasterError::Document {
            path: path.to_owned(),
            source,
        })
    }
}

/// One connection per call: a call comes every half minute, so keeping one open gains nothing.
async fn exchange(
    addr: &str,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), MasterError> {
    let stream = TcpStream::connect(addr)
        .await
        .map_err(|source| unreachable(addr, source))?;
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|source| unreachable(addr, source))?;
    // Ends with `sender`, at the end of this function.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to a master ended early");
        }
    });
    let answer = sender
        .send_request(request)
        .await
        .map_err(|source| unreachable(addr, source))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX)
        .collect()
        .await;
    let body = body.map_err(|source| MasterError::Unreachable {
        addr: addr.to_owned(),
        source,
    })?;
    Ok((status, body.to_bytes()))
}

fn unreachable(addr: &str, source: impl std::error::Error + Send + Sync + 'static) -> MasterError {
    MasterError::Unreachable {
        addr: addr.to_owned(),
        source: Box::new(source),
    }
}

fn refused(status: StatusCode, body: &[u8]) -> MasterError {
    let text = String::from_utf8_lossy(body);
    MasterError::Refused {
        status: status.as_u16(),
        body: text.chars().take(TOLD_CHARS).collect(),
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

impl MasterApi for HttpMasters {
    fn look<'a>(&'a self, pool: &'a PoolId) -> Call<'a, MasterView> {
        Box::pin(async move {
            let status: StatusDocument = self.get(pool, "/v1/status").await?;
            let Tenants { tenants } = self.get(pool, "/v1/tenants").await?;
            let Quotas { quotas } = self.get(pool, "/v1/quotas").await?;
            let Agents { agents } = self.get(pool, "/v1/agents").await?;
            Ok(MasterView {
                status,
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
}
