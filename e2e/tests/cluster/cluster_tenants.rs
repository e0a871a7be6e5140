//! Tenants: their limits, their keys, and who may act as one.

use anyhow::{Result, ensure};
use larder_e2e::cluster::{Look, until};
use serde_json::{Value, json};

use crate::Test;
use crate::cluster_pods::Pool;
use crate::scene::{LIMIT, Scene};

/// The exit code for what is refused, and for what is not there.
const REFUSED: i32 = 4;
const NOT_FOUND: i32 = 3;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("cluster_sample_holds_tenants_to_their_limits", limits),
        Test::new("cluster_sample_lets_no_stranger_in", strangers),
        Test::new("cluster_sample_follows_subjects", subjects),
    ]
}

fn limits(scene: &Scene<'_>) -> Result<()> {
    let pool = Pool::sample(scene)?;
    pool.put("engine-0", "secret", 1000)?;
    for words in [
        ["exists", "secret"],
        ["get", "secret"],
        ["remove", "secret"],
    ] {
        pool.refused("rival", NOT_FOUND, &words)?;
    }
    ensure!(
        pool.larder("rival", &["ls", "secret"])?.is_empty(),
        "another tenant's key is listed"
    );
    pool.check("engine-1", "secret", 1000)?;

    // team-b has 64 MiB, and none of what it pins makes room for more. One after the other: the
    // refusal of one would give up others that are still being written.
    let put = [
        "bench", "put", "--size", "8Mi", "--count", "12", "--depth", "1", "--pin", "hard",
        "--keep", "--prefix", "mine/",
    ];
    let said = pool.refused("rival", REFUSED, &put)?;
    ensure!(said.contains("limit"), "no reason: {said}");
    pool.larder(
        "engine-0",
        &["bench", "mix", "--size", "1Mi", "--count", "4"],
    )?;

    // A higher limit reaches the master and counts at once.
    let set = |mib: u32| {
        let bytes = json!({ "bytes": format!("{mib}Mi") });
        let limit = json!({ "spec": { "limit": bytes, "pinned": bytes } }).to_string();
        let patch = [
            "patch",
            "cachetenant",
            "team-b",
            "--type=merge",
            "-p",
            &limit,
        ];
        scene.kubectl(&patch).map(drop)
    };
    set(128)?;
    until("the new limit to reach the master", LIMIT, || {
        let tenants = pool.master_says("/v1/tenants")?;
        let limit = json!(128_u64 << 20);
        let holds = tenants["tenants"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|tenant| tenant["tenant"] == json!("team-b") && tenant["limit_bytes"] == limit);
        Ok(Look::holds(holds, &tenants.to_string()))
    })?;
    let more = [
        "bench", "put", "--size", "8Mi", "--count", "2", "--pin", "hard", "--keep", "--prefix",
        "more/",
    ];
    pool.larder("rival", &more)?;
    set(64)?;
    pool.await_tenant("team-b")?;
    let keys = String::from_utf8(pool.larder("rival", &["ls", "--output", "json"])?)?;
    let keys: Vec<String> = keys
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|line| line["key"].as_str().map(str::to_owned))
        .collect();
    ensure!(keys.len() >= 9, "{keys:?}");
    let mut words = vec!["remove"];
    words.extend(keys.iter().map(String::as_str));
    pool.larder("rival", &words).map(drop)
}

/// A pod with something else than the token of its tenant.
fn imposter(pool: &Pool<'_>, name: &str, account: &str, token: Option<&str>) -> Result<Value> {
    let nodes = pool.nodes()?;
    let mut pod = pool.engine(name, account, "team-a", &nodes[0]);
    let volumes = &mut pod["spec"]["volumes"];
    match token {
        Some(audience) => {
            volumes[0]["projected"]["sources"][0]["serviceAccountToken"]["audience"] =
                json!(audience);
        }
        // An empty folder in its place.
        None => volumes[0] = json!({ "name": "larder-token", "emptyDir": {} }),
    }
    Ok(pod)
}

fn strangers(scene: &Scene<'_>) -> Result<()> {
    let pool = Pool::sample(scene)?;
    pool.account("stranger")?;
    pool.put("engine-0", "guarded", 1000)?;
    let api = "https://kubernetes.default.svc.cluster.local";
    scene.apply(&[
        imposter(&pool, "stranger", "stranger", Some("larder"))?,
        imposter(&pool, "wrong-audience", "team-a", Some(api))?,
        imposter(&pool, "no-token", "team-a", None)?,
    ])?;
    pool.await_pods()?;
    for pod in ["stranger", "wrong-audience"] {
        for words in [
            &["get", "guarded"][..],
            &["ls"],
            &["stat"],
            &["remove", "guarded"],
        ] {
            let said = pool.refused(pod, REFUSED, words)?;
            ensure!(said.contains("proves nothing"), "{pod} {words:?}: {said}");
            ensure!(!said.contains("guarded 0"), "{pod} {words:?}: {said}");
        }
    }
    // Without a token it is a mistake of the pod's manifest, and says which.
    let said = pool.refused("no-token", 2, &["get", "guarded"])?;
    ensure!(said.contains("token"), "{said}");
    // The agents of another pool's or of no pod are no agents: a role needs its own account.
    pool.check("engine-1", "guarded", 1000)?;
    scene
        .kubectl(&["delete", "pod", "stranger", "wrong-audience", "no-token"])
        .map(drop)
}

fn subjects(scene: &Scene<'_>) -> Result<()> {
    let pool = Pool::sample(scene)?;
    pool.account("newcomer")?;
    let nodes = pool.nodes()?;
    scene.apply(&[pool.engine("newcomer", "newcomer", "team-b", &nodes[1])])?;
    pool.await_pods()?;
    pool.refused("newcomer", REFUSED, &["stat"])?;
    let set = |accounts: &[&str]| -> Result<()> {
        let subjects: Vec<_> = accounts
            .iter()
            .map(|name| json!({ "serviceAccount": { "name": name } }))
            .collect();
        let patch = json!({ "spec": { "subjects": subjects } }).to_string();
        scene.kubectl(&[
            "patch",
            "cachetenant",
            "team-b",
            "--type=merge",
            "-p",
            &patch,
        ])?;
        let identity = format!("{}-identity", pool.name);
        until("the ConfigMap to name the subjects", LIMIT, || {
            let map = scene.get(&["configmap", &identity])?;
            let text = map["data"]["subjects.json"].as_str().unwrap_or_default();
            let holds = text.contains("/newcomer\"") == accounts.contains(&"newcomer");
            Ok(Look::holds(holds, text))
        })?;
        refresh(&pool)
    };
    set(&["team-b", "newcomer"])?;
    let answers = |code: i32| {
        until(&format!("exit code {code}"), LIMIT, || {
            let answer = pool.ask("newcomer", &["stat"], "")?;
            Ok(Look::holds(answer.code == code, &format!("{answer:?}")))
        })
    };
    answers(0)?;
    pool.larder("rival", &["stat"])?;
    set(&["team-b"])?;
    answers(REFUSED)?;
    pool.larder("rival", &["stat"])?;
    scene.kubectl(&["delete", "pod", "newcomer"]).map(drop)
}

/// Kubelet looks at the ConfigMaps of a pod when the pod changes, else once a minute.
fn refresh(pool: &Pool<'_>) -> Result<()> {
    for pod in pool.pods("master")? {
        let name = pod["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let version = pod["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default();
        let mark = format!("larder.dev/looked-at={version}");
        pool.scene
            .kubectl(&["annotate", "pod", &name, "--overwrite", &mark])?;
    }
    Ok(())
}
