//! The query of the sample for autoscaling, asked of a real Prometheus that scrapes a real master.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use larder_e2e::pool::Pool;
use larder_e2e::prometheus::Prometheus;
use larder_telemetry::exposition;
use serde_json::{Value, json};

use crate::rig::{client, file, http, key, page, pattern, runtime, until};

/// What an object is charged at least: small objects fill a pool quickly.
const OBJECT_BYTES: usize = 16 << 10;
/// Two agents of 16 MiB hold 2,048 objects.
const NODE_MIB: u64 = 16;
const FEW: u64 = 256;
/// Twice as many as there is room for: long before that enough are evicted.
const MOST: u64 = 4_096;
/// More than a look-up a second of the ten minutes that the query looks back.
const LOOKUPS: u64 = 800;

fn sample(name: &str) -> Result<String> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = own.join("../manifests/samples/autoscaling").join(name);
    std::fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))
}

/// The query of the rule for one pool, as the adapter makes it for an autoscaler's selector.
fn query(pool: &str) -> Result<String> {
    let values: Value = serde_saphyr::from_str(&sample("prometheus-adapter-values.yaml")?)?;
    let hpa: Value = serde_saphyr::from_str(&sample("hpa.yaml")?)?;
    let rule = &values["rules"]["external"][0];
    let metric = &hpa["spec"]["metrics"][0]["external"]["metric"];
    ensure!(
        rule["name"]["as"].is_string() && rule["name"]["as"] == metric["name"],
        "the autoscaler asks for {} and the rule answers for {}",
        metric["name"],
        rule["name"]["as"]
    );
    let labels = metric["selector"]["matchLabels"].as_object();
    let labels: Vec<_> = labels.context("no selector")?.keys().collect();
    ensure!(labels == ["pool"], "the selector has {labels:?}");
    let query = rule["metricsQuery"].as_str().context("no query")?;
    let matchers = format!(r#"pool="{pool}",namespace="cache""#);
    let query = query.replace("<<.LabelMatchers>>", &matchers);
    ensure!(
        !query.contains("<<"),
        "an unknown word of the adapter: {query}"
    );
    Ok(query)
}

/// The names of all metrics in a query.
fn metrics_of(query: &str) -> BTreeSet<&str> {
    query
        .split(|char: char| !(char.is_ascii_alphanumeric() || char == '_'))
        .filter(|word| word.starts_with("larder_"))
        .collect()
}

/// What a query comes to now; `None` without a value.
fn ask(prometheus: &mut Prometheus, query: &str) -> Result<Option<f64>> {
    ensure!(
        !prometheus.has_ended()?,
        "prometheus has ended; see its log"
    );
    let encoded = query.bytes().fold(String::new(), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "%{byte:02X}");
        text
    });
    let Ok((200, body)) = http(
        &prometheus.addr,
        &format!("GET /api/v1/query?query={encoded}"),
    ) else {
        return Ok(None); // It is still starting.
    };
    let answer: Value = serde_json::from_str(&body).with_context(|| body.clone())?;
    let results = answer["data"]["result"].as_array().context("no result")?;
    ensure!(results.len() <= 1, "more than one value: {answer}");
    let value = results.first().and_then(|one| one["value"][1].as_str());
    Ok(value.map(str::parse).transpose()?)
}

/// The sample's job as it would find the master in a cluster: a build of Prometheus without
/// Kubernetes, such as Debian's, takes it without the discovery, so what that tells is given.
fn config(master: &str) -> Result<String> {
    let mut jobs: Value = serde_saphyr::from_str(&sample("prometheus-scrape.yaml")?)?;
    let job = jobs[0].as_object_mut().context("no job")?;
    let found = job.remove("kubernetes_sd_configs");
    ensure!(
        found == Some(json!([{ "role": "pod" }])),
        "the sample looks for {found:?}"
    );
    let labels = json!({
        "__meta_kubernetes_namespace": "cache",
        "__meta_kubernetes_pod_name": "demo-master-0",
        "__meta_kubernetes_pod_container_port_name": "admin",
        "__meta_kubernetes_pod_label_app_kubernetes_io_name": "larder",
        "__meta_kubernetes_pod_label_app_kubernetes_io_component": "master",
        "__meta_kubernetes_pod_label_larder_dev_pool": "demo",
    });
    let target = json!([{ "targets": [master], "labels": labels }]);
    job.insert("static_configs".to_owned(), target);
    // Instead of a minute, so that there are two samples of each series soon.
    job.insert("scrape_interval".to_owned(), json!("1s"));
    // JSON is YAML.
    Ok(json!({ "scrape_configs": jobs }).to_string())
}

/// The demand as documented, from a page of a master that counts from its beginning.
struct Demand {
    percent: f64,
    /// Objects that were evicted.
    evicted: u64,
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count of objects"
)]
fn demand_of(master: &str) -> Result<Demand> {
    let families = exposition::parse(&page(master, "/metrics")?)?;
    let value = |name, labels: &[(&str, &str)]| {
        exposition::value(&families, name, labels).with_context(|| format!("no {name}"))
    };
    let of = |name| value(name, &[("tenant", "team")]);
    let fill = of("larder_master_bytes")? / value("larder_master_capacity_bytes", &[])?;
    let lookups = of("larder_master_hits_total")? + of("larder_master_misses_total")?;
    let ghosts = of("larder_master_ghost_hits_total")? / lookups.max(1.0);
    let by_watermark = [("tenant", "team"), ("cause", "watermark")];
    let evicted = value("larder_master_evicted_total", &by_watermark).unwrap_or(0.0);
    Ok(Demand {
        percent: (125.0 * fill).min(100.0) + (200.0 * ghosts).min(100.0),
        evicted: evicted as u64,
    })
}

pub(crate) fn demand() -> Result<()> {
    let wanted = query("demo")?;
    let pool = Pool::start("demand", &file("demand", NODE_MIB, 2, &[("team", None)]))?;
    let master = pool.document.masters[0].admin_addr.clone();
    let mut prometheus = Prometheus::start(pool.home(), &config(&master)?)?;
    let runtime = runtime()?;
    let client = runtime.block_on(client(&pool, "team", Some(0)))?;
    let put = |numbers: std::ops::Range<u64>| {
        runtime.block_on(async {
            for at in numbers {
                let bytes = pattern(at, OBJECT_BYTES);
                client.put(key(&format!("k{at}"))?, bytes).await?;
            }
            anyhow::Ok(())
        })
    };
    put(0..FEW)?;
    // What the query names must stand on the page, also before anything was looked up.
    let families = exposition::parse(&page(&master, "/metrics")?)?;
    let known: BTreeSet<_> = families.iter().map(|family| family.name.as_str()).collect();
    let named = metrics_of(&wanted);
    ensure!(
        named.len() == 5 && named.is_subset(&known),
        "the query of the sample names {named:?}, and a master has {known:?}"
    );
    // An eighth of the space, of four fifths that are right.
    let fill = demand_of(&master)?.percent;
    ensure!(
        (10.0..30.0).contains(&fill),
        "{fill} percent of what is right are stored"
    );
    until("the demand of a pool that is nearly empty", || {
        let found = ask(&mut prometheus, &wanted)?;
        Ok(found.filter(|found| (found - fill).abs() < 1.0))
    })?;
    let mut stored = FEW;
    let evicted = loop {
        let evicted = demand_of(&master)?.evicted;
        if evicted > LOOKUPS {
            break evicted;
        }
        ensure!(stored < MOST, "{evicted} of {stored} objects are evicted");
        put(stored..stored + FEW)?;
        stored += FEW;
    };
    // Those that were evicted last: a master remembers them, and not all before.
    runtime.block_on(async {
        for at in evicted - LOOKUPS..evicted {
            // Most are gone; which exactly is up to the master.
            let _ = client.get(key(&format!("k{at}"))?).await;
        }
        anyhow::Ok(())
    })?;
    let mut last = None;
    until("the demand of a pool that is too small", || {
        let found = ask(&mut prometheus, &wanted)?;
        let right = demand_of(&master)?.percent;
        last = found.zip(Some(right));
        // Beyond what the autoscaler lets pass.
        Ok(last.filter(|(found, right)| *found > 110.0 && (found - right).abs() < 1.0))
    })
    .with_context(|| format!("found and expected: {last:?}"))?;
    let other = ask(&mut prometheus, &query("other")?)?;
    ensure!(
        other.is_none(),
        "a pool that is not there has a demand of {other:?}"
    );
    Ok(())
}
