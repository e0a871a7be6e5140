//! What the tests share: pools, clients, patterns of bytes, waiting for a state.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bytes::Bytes;
use larder_client::{Client, ClientOptions, Credential, Key};
pub(crate) use larder_e2e::http::{http, http_with};
use larder_e2e::pool::Pool;
use tokio::runtime::Runtime;

/// How long anything may take that should be done soon; only a broken system waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A pool file: two agents of `node_mib` each and tenants with limits in MiB.
pub(crate) fn file(
    name: &str,
    node_mib: u64,
    slab_mib: u64,
    tenants: &[(&str, Option<u64>)],
) -> String {
    let mut text = format!(
        "apiVersion: larder.dev/v1alpha1\nkind: CachePool\nmetadata: {{name: {name}}}\nspec:\n  \
         nodes: {{count: 2}}\n  tiers: [{{name: dram, medium: Dram, size: {node_mib}Mi, \
         slabSize: {slab_mib}Mi}}]\n"
    );
    for (tenant, limit) in tenants {
        let limit = limit.map_or(String::new(), |mib| {
            format!("  limit: {{bytes: {mib}Mi}}\n  pinned: {{bytes: {mib}Mi}}\n")
        });
        text.push_str(&format!(
            "---\napiVersion: larder.dev/v1alpha1\nkind: CacheTenant\nmetadata: {{name: {tenant}}}\
             \nspec:\n  poolRef: {{name: {name}}}\n  tenantId: {tenant}\n{limit}"
        ));
    }
    text
}

pub(crate) fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?)
}

pub(crate) fn options(pool: &Pool, tenant: &str, via: Option<usize>) -> Result<ClientOptions> {
    let masters = pool
        .document
        .masters
        .iter()
        .map(|master| master.client_addr.clone())
        .collect();
    let mut options = ClientOptions::new(masters, Credential::new(&pool.token(tenant)?)?);
    if let Some(agent) = via.and_then(|at| pool.document.agents.get(at)) {
        options.agent_socket = Some(agent.socket.clone());
    }
    options.default_deadline = Duration::from_secs(20);
    tenant.clone_into(&mut options.name);
    Ok(options)
}

pub(crate) async fn client(pool: &Pool, tenant: &str, via: Option<usize>) -> Result<Client> {
    Ok(Client::connect(options(pool, tenant, via)?).await?)
}

pub(crate) fn key(text: &str) -> Result<Key> {
    Ok(Key::try_from(text)?)
}

/// Bytes that depend on `seed` and on their place, so that a mix of two objects shows.
pub(crate) fn pattern(seed: u64, bytes: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(bytes);
    Bytes::from(out)
}

/// Asks again and again until `state` answers, for states that come by themselves soon. The
/// asking itself is the pause.
pub(crate) fn until<T>(what: &str, mut state: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = state()? {
            return Ok(value);
        }
        if start.elapsed() > PATIENCE {
            bail!("not within {PATIENCE:?}: {what}");
        }
        std::thread::yield_now();
    }
}

/// The body of a page, with chunk lengths removed where the server sends chunks.
pub(crate) fn page(addr: &str, path: &str) -> Result<String> {
    let (status, body) = http(addr, &format!("GET {path}"))?;
    anyhow::ensure!(status == 200, "GET {path} at {addr}: {status} {body}");
    Ok(body)
}
