//! Hundreds of nodes: reconciled with few writes, and then nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use larder_e2e::cluster::{Audit, Look, Write, until};
use serde_json::json;

use crate::Test;
use crate::operator::Release;
use crate::scene::{LIMIT, Scene};
use crate::simulated::{Nodes, tenant};

const NODES: usize = 200;
/// For each node: its label and its CacheNode.
const WRITES_A_NODE: usize = 2;
/// For the pool and its tenant: finalizers, children, statuses, events.
const WRITES_ELSE: usize = 80;
/// How long nothing may be written, unless `LARDER_E2E_QUIET_S` says otherwise: six times as long
/// as the pause between two looks at a pool that is not ready.
const QUIET_S: u64 = 30;
/// A pause of this length is the end of a reconcile: looks come every five seconds.
const PAUSE: Duration = Duration::from_secs(7);

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::new(
        "apiserver_two_hundred_nodes_and_then_quiet",
        quiet,
    )]
}

/// The operator's writes, without its Lease.
fn own(audit: &mut Audit, release: &Release<'_>) -> Result<Vec<Write>> {
    let user = release.user();
    let mut writes = audit.writes()?;
    writes.retain(|write| write.user == user && write.resource != "leases");
    Ok(writes)
}

fn quiet(scene: &Scene<'_>) -> Result<()> {
    let nodes = Nodes::add(scene, NODES)?;
    let release = scene.release()?;
    let mut audit = scene.cluster.audit();
    let operator = release.start()?;
    scene.apply(&[nodes.pool("large", None), tenant("team-a", "large")])?;
    until("all nodes to be members", LIMIT, || {
        let members = nodes.members()?;
        let row = scene.get(&["cachepool", "large"])?;
        let desired = &row["status"]["nodes"]["desired"];
        let holds = members == NODES && *desired == json!(NODES);
        Ok(Look::holds(
            holds,
            &format!("{members} members, {desired} desired"),
        ))
    })?;
    let cache_nodes = scene.list(&["cachenodes"])?.len();
    ensure!(cache_nodes == NODES, "{cache_nodes} CacheNodes");
    let mut writes = Vec::new();
    let mut last = Instant::now();
    until("the first pause", LIMIT, || {
        let more = own(&mut audit, &release)?;
        if !more.is_empty() {
            last = Instant::now();
        }
        writes.extend(more);
        let newest = &writes[writes.len().saturating_sub(4)..];
        let found = format!("{:?}, the newest {newest:?}", counts(&writes));
        Ok(Look::holds(last.elapsed() > PAUSE, &found))
    })?;
    let bound = NODES * WRITES_A_NODE + WRITES_ELSE;
    ensure!(
        writes.len() <= bound,
        "{} writes, more than {bound}: {:?}",
        writes.len(),
        counts(&writes)
    );
    let refused: Vec<_> = writes
        .iter()
        .filter(|write| write.code >= 400 && write.code != 409)
        .collect();
    ensure!(refused.is_empty(), "refused: {refused:?}");
    is_quiet(&mut audit, &release, Duration::from_secs(quiet_s()?))?;
    drop(operator);
    let _operator = release.start()?;
    // Whether there is a root key it finds out by trying to make one.
    until("the next operator to look", LIMIT, || {
        let (keys, others): (Vec<_>, Vec<_>) = own(&mut audit, &release)?
            .into_iter()
            .partition(|write| write.resource == "secrets" && write.code == 409);
        ensure!(others.is_empty(), "the next operator wrote: {others:?}");
        Ok(Look::holds(!keys.is_empty(), "nothing yet"))
    })?;
    is_quiet(&mut audit, &release, PAUSE)?;
    scene.kubectl(&["delete", "cachepool", "large", "--timeout=120s"])?;
    let (members, left) = (nodes.members()?, scene.list(&["cachenodes"])?.len());
    ensure!(
        members == 0 && left == 0,
        "{members} labels and {left} CacheNodes are left"
    );
    let writes = own(&mut audit, &release)?;
    ensure!(
        writes.len() <= bound,
        "{} writes to delete: {:?}",
        writes.len(),
        counts(&writes)
    );
    Ok(())
}

/// That nothing happens is all there is to see, so this ends with time or with a write.
fn is_quiet(audit: &mut Audit, release: &Release<'_>, quiet: Duration) -> Result<()> {
    let started = Instant::now();
    until("the end of the quiet time", quiet + LIMIT, || {
        let writes = own(audit, release)?;
        ensure!(writes.is_empty(), "written in quiet times: {writes:?}");
        Ok(Look::holds(started.elapsed() > quiet, "it is quiet"))
    })
}

fn counts(writes: &[Write]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for write in writes {
        *counts
            .entry(format!(
                "{} {}/{}",
                write.verb, write.resource, write.subresource
            ))
            .or_default() += 1;
    }
    counts
}

#[expect(clippy::disallowed_methods, reason = "the configuration of this test")]
fn quiet_s() -> Result<u64> {
    Ok(match std::env::var("LARDER_E2E_QUIET_S") {
        Ok(text) => text.parse()?,
        Err(_) => QUIET_S,
    })
}
