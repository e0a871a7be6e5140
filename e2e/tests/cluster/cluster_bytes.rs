//! Bytes between pods of two nodes, and what `kubectl get` shows of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use larder_e2e::cluster::{Look, Write, until};
use serde_json::Value;

use crate::Test;
use crate::cluster_pods::{Pool, SAMPLE};
use crate::rig::SYSTEM;
use crate::scene::{LIMIT, Scene};

const MIB: usize = 1 << 20;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("cluster_sample_moves_bytes_between_pods", bytes),
        Test::new("cluster_sample_shows_what_the_master_says", columns),
        Test::new("cluster_sample_writes_nothing_in_a_quiet_minute", quiet),
    ]
}

fn bytes(scene: &Scene<'_>) -> Result<()> {
    let pool = Pool::sample(scene)?;
    let nodes = pool.nodes()?;
    let by = |metric: &str, transport: &str| -> Result<f64> {
        let counts = nodes
            .iter()
            .map(|node| pool.agent_counts(node, metric, &format!("transport=\"{transport}\"")));
        counts.sum()
    };
    let (read, written) = (
        "larder_agent_read_bytes_total",
        "larder_agent_written_bytes_total",
    );
    let before = [by(read, "tcp")?, by(read, "shm")?, by(written, "shm")?];
    // Enough objects that some lie on either node.
    for number in 0..12 {
        pool.put("engine-0", &format!("block/{number}"), MIB)?;
    }
    let size = [
        "--size", "1Mi", "--count", "24", "--keep", "--prefix", "many/",
    ];
    pool.larder("engine-0", &[&["bench", "put"], &size[..]].concat())?;
    for pod in ["engine-1", "engine-0"] {
        for number in 0..12 {
            pool.check(pod, &format!("block/{number}"), MIB)?;
        }
        // It compares every byte.
        pool.larder(pod, &[&["bench", "get"], &size[..]].concat())?;
        let answer = pool.ask(pod, &["stat"], "")?;
        ensure!(
            !answer.said.contains("by tcp, because"),
            "{pod}: {answer:?}"
        );
    }
    let after = [by(read, "tcp")?, by(read, "shm")?, by(written, "shm")?];
    // Whatever lies on the reader's own node comes by shared memory, the rest by tcp.
    for (what, (before, after)) in ["tcp reads", "shm reads", "shm writes"]
        .iter()
        .zip(before.iter().zip(after))
    {
        ensure!(
            after - before >= MIB as f64,
            "{what}: {before} and then {after}"
        );
    }
    Ok(())
}

/// What one row of `kubectl get` shows, by the names of its columns.
fn row(scene: &Scene<'_>, kind: &str, name: &str) -> Result<BTreeMap<String, String>> {
    let table = scene.kubectl(&["get", kind, name])?;
    let mut lines = table.lines();
    let heads = lines.next().context("no columns")?.split_whitespace();
    let cells = lines.next().context("no row")?.split_whitespace();
    let row: BTreeMap<_, _> = heads
        .map(str::to_owned)
        .zip(cells.map(str::to_owned))
        .collect();
    Ok(row)
}

fn columns(scene: &Scene<'_>) -> Result<()> {
    let pool = Pool::sample(scene)?;
    pool.put("engine-0", "shown/0", MIB)?;
    pool.put("rival", "shown/0", 2 * MIB)?;
    await_columns(&pool)
}

fn await_columns(pool: &Pool<'_>) -> Result<()> {
    let scene = pool.scene;
    let number = |value: &Value| value.to_string();
    until("the columns to show what the master says", LIMIT, || {
        let status = pool.master_says("/v1/status")?;
        let mut lines = vec![(
            row(scene, "cachepools", SAMPLE)?,
            vec![
                ("READY", "True".to_owned()),
                ("NODES", "2".to_owned()),
                ("CAPACITY", number(&status["capacity_bytes"])),
                ("USED", number(&status["used_bytes"])),
            ],
        )];
        for tenant in items(&pool.master_says("/v1/tenants")?["tenants"]) {
            let name = tenant["tenant"].as_str().unwrap_or_default();
            let limit = tenant["limit_bytes"].as_u64().unwrap_or(0) / MIB as u64;
            let wanted = vec![
                ("READY", "True".to_owned()),
                ("POOL", SAMPLE.to_owned()),
                ("USED", number(&tenant["used_bytes"])),
                ("LIMIT", format!("{limit}Mi")),
            ];
            lines.push((row(scene, "cachetenants", name)?, wanted));
        }
        for agent in items(&pool.master_says("/v1/agents")?["agents"]) {
            let node = agent["name"].as_str().unwrap_or_default();
            let (total, used) = slabs(&agent);
            let wanted = vec![
                ("READY", "True".to_owned()),
                ("POOL", SAMPLE.to_owned()),
                ("NODE", node.to_owned()),
                ("MEMORY", total.to_string()),
                ("USED", used.to_string()),
            ];
            lines.push((
                row(scene, "cachenodes", &format!("{SAMPLE}-{node}"))?,
                wanted,
            ));
        }
        ensure!(
            lines.len() == 5,
            "one pool, two tenants, two agents: {lines:?}"
        );
        let differs = lines.iter().find(|(row, wanted)| {
            wanted
                .iter()
                .any(|(head, cell)| !row.get(*head).is_some_and(|shown| same(shown, cell)))
        });
        Ok(Look::holds(differs.is_none(), &format!("{differs:?}")))
    })
}

/// Whether a cell shows a value: the same text, or a size in three digits, rounded down.
fn same(shown: &str, value: &str) -> bool {
    shown == value
        || bytes_of(shown)
            .zip(bytes_of(value))
            .is_some_and(|(shown, value)| shown <= value && value - shown <= value / 100.0)
}

fn bytes_of(text: &str) -> Option<f64> {
    let units = [("Ki", 10), ("Mi", 20), ("Gi", 30)];
    let unit = units.iter().find(|(unit, _)| text.ends_with(unit));
    let (digits, shift) = unit.map_or((text, 0), |(unit, shift)| {
        (text.trim_end_matches(unit), *shift)
    });
    Some(digits.parse::<f64>().ok()? * f64::from(1_u32 << shift))
}

fn items(list: &Value) -> Vec<Value> {
    list.as_array().cloned().unwrap_or_default()
}

/// Bytes of an agent's slabs, and of those that some tenant holds.
fn slabs(agent: &Value) -> (u64, u64) {
    let of = |segment: &Value, key: &str| segment[key].as_u64().unwrap_or(0);
    let (mut total, mut used) = (0, 0);
    for segment in items(&agent["segments"]) {
        let (slab, count) = (of(&segment, "slab_bytes"), of(&segment, "slabs"));
        total += slab * count;
        used += slab * (count - of(&segment, "free_slabs"));
    }
    (total, used)
}

/// How long nothing may be written.
const QUIET: Duration = Duration::from_secs(60);

/// Whether a write is one of ours besides what is allowed: the operator's Lease. Masters ask who
/// somebody is, which stores nothing.
fn is_loud(write: &Write) -> bool {
    let is_account = write.user.starts_with("system:serviceaccount:");
    let is_kubernetes = write.user.starts_with("system:serviceaccount:kube-system:");
    let is_lease = write.resource == "leases" && write.namespace == SYSTEM;
    is_account && !is_kubernetes && !is_lease && write.resource != "tokenreviews"
}

fn quiet(scene: &Scene<'_>) -> Result<()> {
    let pool = Pool::sample(scene)?;
    // What was stored before has come to rest in the statuses.
    await_columns(&pool)?;
    let settled = scene.get(&["larder"])?;
    ensure!(items(&settled["items"]).len() == 5, "{settled}");
    let mut audit = scene.cluster.audit();
    let (mut loud, mut leases) = (Vec::new(), 0);
    let start = Instant::now();
    until("a minute to pass", LIMIT, || {
        for write in audit.writes()? {
            leases += usize::from(write.resource == "leases" && write.namespace == SYSTEM);
            loud.extend(Some(write).filter(is_loud));
        }
        ensure!(loud.is_empty(), "in a quiet minute: {loud:?}");
        Ok(Look::holds(start.elapsed() >= QUIET, "it is not over"))
    })?;
    ensure!(
        leases > 0,
        "the audit log shows not even the operator's Lease"
    );
    ensure!(
        scene.get(&["larder"])? == settled,
        "a status changed in a quiet minute"
    );
    pool.larder("engine-1", &["stat"]).map(drop)
}
