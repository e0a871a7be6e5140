//! Trust: what strangers, other tenants and holders of foreign or altered capabilities reach.

use anyhow::{Context, Result, bail, ensure};
use larder_client::{Client, Credential, Pin, PutOptions, Reason};
use larder_e2e::pool::Pool;
use larder_transfer::lane::{Lane, LaneError};
use larder_types::Incarnation;
use larder_wire::data::{DataError, DataReason, OpenView, Read, ReadStart, ViewOpened};
use larder_wire::limit::{PROTOCOL_MAX, PROTOCOL_MIN};
use larder_wire::master::{CallError, Get, Located};
use larder_wire::{Hello, Kind, Purpose, Reply, SignedCapability};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use crate::rig::{client, file, http, key, options, pattern, runtime};

const OBJECT_BYTES: usize = 100_000;

fn hello(credential: Vec<u8>, purpose: Purpose) -> Hello {
    Hello {
        protocol_min: PROTOCOL_MIN,
        protocol_max: PROTOCOL_MAX,
        features: 0,
        credential,
        purpose,
        name: "intruder".to_owned(),
        incarnation: Incarnation(66),
    }
}

async fn at_master(pool: &Pool, token: &str) -> Result<Lane<TcpStream>> {
    let addr = &pool.document.masters[0].client_addr;
    let greeting = hello(token.as_bytes().to_vec(), Purpose::Client);
    Ok(Lane::open(TcpStream::connect(addr).await?, &greeting).await?)
}

fn two_tenants(label: &str) -> Result<Pool> {
    Pool::start(
        label,
        &file(label, 64, 4, &[("owner", None), ("other", Some(8))]),
    )
}

async fn refused_read<S>(lane: &mut Lane<S>, capability: SignedCapability) -> Result<DataReason>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let refusal = read_refusal(lane, capability).await?;
    refusal.context("the read was allowed")
}

/// Why a read is refused; `None` if it is allowed, and then the lane is good for nothing more.
async fn read_refusal<S>(
    lane: &mut Lane<S>,
    capability: SignedCapability,
) -> Result<Option<DataReason>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let read = Read {
        capability,
        offset_bytes: 0,
        length_bytes: OBJECT_BYTES as u64,
    };
    let header = lane.call(Kind::Read, &read, &[], 20_000).await?;
    let answer = lane.decode::<ReadStart, DataError>(&header)?;
    Ok(answer.err().map(|refusal| refusal.reason))
}

pub(crate) fn capabilities() -> Result<()> {
    let pool = two_tenants("caps")?;
    runtime()?.block_on(async {
        let owner = client(&pool, "owner", Some(0)).await?;
        owner.put(key("secret")?, pattern(1, OBJECT_BYTES)).await?;
        let mut owners = at_master(&pool, &pool.token("owner")?).await?;
        let get = Get {
            keys: vec![key("secret")?],
        };
        let header = owners.call(Kind::Get, &get, &[], 20_000).await?;
        let located = owners.decode::<Reply<Located>, CallError>(&header)??.answer;
        let object = located.objects.into_iter().next().context("no object")??;
        let (extent, capability) = object.replicas[0].extents[0].clone();
        let agent = located
            .agents
            .iter()
            .find(|agent| agent.agent == extent.slab.agent);
        let agent = agent.context("the agent is not named")?;

        // Another tenant's session, with the owner's genuine capability: by tcp and by socket.
        let other = at_master(&pool, &pool.token("other")?)
            .await?
            .welcome()
            .session_token
            .clone();
        let stranger = hello(other, Purpose::Client);
        let stream = TcpStream::connect(&agent.data_addr).await?;
        let mut others = Lane::open(stream, &stranger).await?;
        ensure!(refused_read(&mut others, capability.clone()).await? == DataReason::ForeignTenant);
        let socket = UnixStream::connect(&pool.document.agents[0].socket).await?;
        let mut local = Lane::open(socket, &stranger).await?;
        let view = OpenView {
            capability: capability.clone(),
        };
        let header = local.call(Kind::OpenView, &view, &[], 20_000).await?;
        let opened = local.decode::<ViewOpened, DataError>(&header)?;
        let refusal = opened.err().context("the view was opened")?;
        ensure!(refusal.reason == DataReason::ForeignTenant, "{refusal}");

        // The owner's own session, with the capability altered in any one byte.
        let session = hello(owners.welcome().session_token.clone(), Purpose::Client);
        let stream = TcpStream::connect(&agent.data_addr).await?;
        let mut own = Lane::open(stream, &session).await?;
        for altered in altered(&capability)? {
            ensure!(refused_read(&mut own, altered).await? == DataReason::Forged);
        }
        // Put aside, then the object goes: the capability is good, its version is not. The removal
        // is committed before the agent is told, so the first reads may still be allowed.
        owner.remove(key("secret")?).await?;
        let start = std::time::Instant::now();
        let stale = loop {
            let stream = TcpStream::connect(&agent.data_addr).await?;
            let mut own = Lane::open(stream, &session).await?;
            if let Some(refusal) = read_refusal(&mut own, capability.clone()).await? {
                break refusal;
            }
            ensure!(
                start.elapsed() < crate::rig::PATIENCE,
                "the removed object can still be read"
            );
        };
        ensure!(stale == DataReason::StaleVersion, "{stale:?}");
        Ok(())
    })
}

/// The capability with one byte changed, at many places. Changes that no longer decode as a
/// capability are left out: they do not get past the frame.
fn altered(capability: &SignedCapability) -> Result<Vec<SignedCapability>> {
    let mut bytes = Vec::new();
    let frame = larder_wire::Frame::request(Kind::Read, 0, 0, 0);
    larder_wire::encode_frame(&mut bytes, frame, capability)?;
    let body = bytes.split_off(larder_wire::frame::HEADER_BYTES);
    let mut out = Vec::new();
    for at in 0..body.len() {
        let mut changed = body.clone();
        changed[at] ^= 1;
        if let Ok(other) = larder_wire::decode_body::<SignedCapability>(Kind::Read, &changed) {
            out.push(other);
        }
    }
    ensure!(
        out.len() > body.len() / 2,
        "only {} of {} changes decode",
        out.len(),
        body.len()
    );
    Ok(out)
}

async fn is_closed(addr: &str, bytes: &[u8]) -> Result<()> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.write_all(bytes).await?;
    let mut answer = Vec::new();
    // Closed with or without a last word, but closed: otherwise this waits for ever.
    let _ = tokio::time::timeout(crate::rig::PATIENCE, stream.read_to_end(&mut answer)).await?;
    Ok(())
}

pub(crate) fn strangers() -> Result<()> {
    let pool = two_tenants("strangers")?;
    let forged = "0".repeat(64);
    runtime()?.block_on(async {
        let mut bad = options(&pool, "owner", None)?;
        bad.token = Credential::new(&forged)?;
        ensure!(
            Client::connect(bad).await.is_err(),
            "a made-up token was welcome"
        );
        let wire = [
            pool.document.masters[0].client_addr.clone(),
            pool.document.agents[0].client_addr.clone(),
        ];
        for addr in &wire {
            is_closed(addr, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await?;
            is_closed(addr, &[0xff; 100]).await?;
            is_closed(addr, b"LRD1\xff\xff").await.err(); // a truncated header is waited for
        }
        // A tenant is no agent, and an agent's token is not on any tenant's path.
        let addr = &pool.document.masters[0].client_addr;
        let greeting = hello(pool.token("owner")?.into_bytes(), Purpose::Agent);
        match Lane::open(TcpStream::connect(addr).await?, &greeting).await {
            Err(LaneError::Refused(refused)) => {
                ensure!(
                    refused.reason == larder_wire::RefusedReason::Role,
                    "{refused}"
                );
            }
            other => bail!("a tenant passed as an agent: {other:?}"),
        }
        // A token of the master is no session token, and none at all is none.
        for credential in [pool.token("owner")?.into_bytes(), Vec::new()] {
            let greeting = hello(credential, Purpose::Client);
            let stream = TcpStream::connect(&wire[1]).await?;
            ensure!(
                Lane::open(stream, &greeting).await.is_err(),
                "the agent took a stranger"
            );
            let socket = UnixStream::connect(&pool.document.agents[0].socket).await?;
            ensure!(
                Lane::open(socket, &greeting).await.is_err(),
                "the socket took a stranger"
            );
        }
        Ok(())
    })?;
    let admin = &pool.document.masters[0].admin_addr;
    for request in [
        "GET /v1/status",
        "GET /v1/tenants",
        "DELETE /v1/tenants/owner",
        "GET /v1/check",
    ] {
        ensure!(
            http(admin, request)?.0 == 401,
            "{request} without a credential"
        );
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        ensure!(http(admin, &format!("GET {path}"))?.0 == 200, "{path}");
    }
    Ok(())
}

pub(crate) fn tenants() -> Result<()> {
    let pool = two_tenants("tenants")?;
    runtime()?.block_on(async {
        let owner = client(&pool, "owner", Some(0)).await?;
        let other = client(&pool, "other", Some(0)).await?;
        let name = key("same-name")?;
        owner.put(name.clone(), pattern(1, OBJECT_BYTES)).await?;
        ensure!(
            !other.exists(name.clone()).await?,
            "exists shows a foreign key"
        );
        ensure!(
            other.list(b"", None, 10).await?.entries.is_empty(),
            "list shows a foreign key"
        );
        for refused in [
            other.get(name.clone()).await.err(),
            other.remove(name.clone()).await.err(),
        ] {
            let reason = refused.context("a foreign object was reached")?.reason();
            ensure!(reason == Some(Reason::NotFound), "{reason:?}");
        }
        // The same name is another object for another tenant.
        other.put(name.clone(), pattern(2, OBJECT_BYTES)).await?;
        ensure!(owner.get(name.clone()).await? == pattern(1, OBJECT_BYTES));
        ensure!(other.get(name.clone()).await? == pattern(2, OBJECT_BYTES));
        // The limit of one refuses it, with the figures, and leaves the other alone. What is pinned
        // makes no room.
        let mut pinned = PutOptions::default();
        pinned.attributes.pin = Pin::Hard;
        let refusal = loop {
            let index = other.usage().await?.objects;
            let (name, value) = (key(&format!("more/{index}"))?, pattern(3, 1 << 20));
            match other.put_with(name, value, &pinned).await {
                Ok(_) => ensure!(index < 100, "the limit does not hold"),
                Err(error) => break error,
            }
        };
        ensure!(refusal.reason() == Some(Reason::QuotaBytes), "{refusal}");
        ensure!(
            refusal.to_string().contains("8388608"),
            "no figure in: {refusal}"
        );
        owner.put(key("still")?, pattern(4, 1 << 20)).await?;
        Ok(())
    })
}
