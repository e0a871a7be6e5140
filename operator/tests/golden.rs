//! What the operator makes of a pool and of a tenant, as files to read: `tests/golden`.
//!
//! A change of these files is a change of what runs in every cluster. To accept one, run the test
//! with `INSTA_UPDATE=always`.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use larder_crds::{CacheNode, CachePool, CacheTenant, Document, parse_documents};
use larder_operator::child::{Child, ChildKind};
use larder_operator::config::Config;
use larder_operator::pool::build::{Inputs, build};
use larder_operator::pool::validate::{ValidPool, validate};
use larder_operator::quota::shares::Shares;
use larder_operator::reasons;
use larder_operator::tenant::{self, claims};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

const SAMPLE: &str = include_str!("../../manifests/samples/pool-small.yaml");
const SAMPLE_HA: &str = include_str!("../../manifests/samples/pool-ha.yaml");
const ACCOUNT: &str = "larder-system/larder-operator";

fn sample() -> (CachePool, Vec<Arc<CacheTenant>>) {
    read(SAMPLE)
}

fn read(text: &str) -> (CachePool, Vec<Arc<CacheTenant>>) {
    let mut pools = Vec::new();
    let mut tenants = Vec::new();
    for (at, document) in parse_documents(text, "sample")
        .expect("valid")
        .into_iter()
        .enumerate()
    {
        let uid = Some(format!("0000000{at}-1111-4222-8333-444444444444"));
        match document {
            Document::Pool(mut pool) => {
                pool.metadata.uid = uid;
                pool.metadata.namespace = Some("cache".to_owned());
                pools.push(*pool);
            }
            // The sample has none.
            Document::Quota(_) => {}
            Document::Tenant(mut tenant) => {
                tenant.metadata.uid = uid;
                tenant.metadata.namespace = Some("cache".to_owned());
                tenants.push(Arc::new(*tenant));
            }
        }
    }
    (pools.remove(0), tenants)
}

fn config() -> Config {
    Config::parse(
        r#"{"image": "localhost/larder:1", "image_pull_secrets": ["registry"],
            "service_account": "larder-operator", "agent_cluster_role": "larder-agent",
            "master_cluster_role": "larder-master",
            "metrics_addr": "0.0.0.0:8080"}"#,
    )
    .expect("valid")
}

fn children() -> (ValidPool, Vec<Child>) {
    children_of(SAMPLE)
}

fn children_of(text: &str) -> (ValidPool, Vec<Child>) {
    let (pool, tenants) = read(text);
    let pool = validate(&pool).expect("valid");
    let tenants = claims::accepted(&tenants, &claims::reserved(&pool.id, ACCOUNT));
    let inputs = Inputs {
        masters: pool.settings.masters,
        config: &config(),
        operator_account: ACCOUNT,
        tenants: &tenants,
        shares: &Shares::default(),
        nodes: &BTreeSet::from(["n1".to_owned()]),
    };
    let children = build(&pool, &inputs);
    (pool, children)
}

/// Those that several masters need otherwise than one.
#[test]
fn the_objects_of_a_pool_with_three_masters() {
    let (pool, children) = children_of(SAMPLE_HA);
    assert_eq!(pool.settings.masters, 3);
    for child in &children {
        strictly(child);
        if !is_same_for_one(child) {
            let kind = child.key.kind.text();
            compare(&format!("{kind}-{}", child.key.name), &child.body);
        }
    }
    let (_, tenants) = read(SAMPLE_HA);
    let settings = tenants[0].settings().expect("valid");
    let child = tenant::build::build(&tenants[0], &pool.id, &settings);
    compare(&format!("ConfigMap-{}", child.key.name), &child.body);
}

fn is_same_for_one(child: &Child) -> bool {
    use ChildKind::{ConfigMap, DaemonSet, PodDisruptionBudget, Service, StatefulSet};
    let name = child.key.name.as_str();
    match child.key.kind {
        Service | StatefulSet | DaemonSet | PodDisruptionBudget => false,
        ConfigMap => !["pool-ha-master", "pool-ha-agent"].contains(&name),
        _ => true,
    }
}

/// A quorum stays whatever is evicted, and one master alone stands in the way of no drain.
#[test]
fn budgets_leave_a_quorum() {
    let spare = |masters: u32| {
        let text = SAMPLE_HA.replace("replicas: 3", &format!("replicas: {masters}"));
        let (_, children) = children_of(&text);
        let kind = ChildKind::PodDisruptionBudget;
        let budget = children.iter().find(|child| child.key.kind == kind);
        budget.map(|child| child.body["spec"]["maxUnavailable"].clone())
    };
    assert_eq!(spare(1), None);
    assert_eq!(spare(3), Some(Value::from(1)));
    assert_eq!(spare(5), Some(Value::from(2)));
}

/// Each master finds its own name in the file that its pod chooses, and all find the same members.
#[test]
fn masters_find_their_files_and_one_another() {
    let (_, children) = children_of(SAMPLE_HA);
    let of = |kind, name: &str| {
        let found = children
            .iter()
            .find(|child| child.key.kind == kind && child.key.name == name);
        found.expect("one").body.clone()
    };
    let set = of(ChildKind::StatefulSet, "pool-ha-master");
    let args = &set["spec"]["template"]["spec"]["containers"][0]["args"];
    assert_eq!(args[1], "/etc/larder/config/$(POD_NAME).json");
    let files = of(ChildKind::ConfigMap, "pool-ha-master");
    let files = files["data"].as_object().expect("files");
    assert_eq!(files.len(), 3);
    for ordinal in 0..3 {
        let name = format!("pool-ha-master-{ordinal}");
        let file = files[&format!("{name}.json")].as_str().expect("a text");
        let file: Value = serde_json::from_str(file).expect("JSON");
        assert_eq!(file["name"], name);
        let member = &file["members"][ordinal];
        assert_eq!(member["name"], name);
        assert_eq!(
            member["addr"],
            format!("{name}.pool-ha-masters.cache.svc:7400")
        );
    }
}

fn compare(name: &str, object: &Value) {
    let yaml = serde_saphyr::to_string(object).expect("YAML");
    insta::with_settings!({
        snapshot_path => "golden",
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        insta::assert_snapshot!(name, yaml);
    });
}

#[test]
fn the_objects_of_a_pool() {
    for child in children().1 {
        compare(
            &format!("{}-{}", child.key.kind.text(), child.key.name),
            &child.body,
        );
    }
}

#[test]
fn the_connection_of_a_tenant() {
    let (pool, tenants) = sample();
    let pool = validate(&pool).expect("valid");
    let settings = tenants[0].settings().expect("valid");
    let child = tenant::build::build(&tenants[0], &pool.id, &settings);
    strictly(&child);
    compare(&format!("ConfigMap-{}", child.key.name), &child.body);
}

/// The sample scrape of `docs/autoscaling.md` selects by labels and a port that masters have.
#[test]
fn the_sample_scrape_finds_the_masters() {
    let text = include_str!("../../manifests/samples/autoscaling/prometheus-scrape.yaml");
    let jobs: Value = serde_saphyr::from_str(text).expect("YAML");
    let steps = jobs[0]["relabel_configs"].as_array().expect("a list");
    let children = children().1;
    let masters = children
        .iter()
        .find(|child| child.key.kind == ChildKind::StatefulSet)
        .expect("masters");
    let template = &masters.body["spec"]["template"];
    let port = template["spec"]["containers"][0]["ports"].as_array();
    let is_admin = |port: &Value| port["name"] == "admin";
    assert!(port.is_some_and(|ports| ports.iter().any(is_admin)));
    // As Prometheus writes a label's name.
    let labels = template["metadata"]["labels"].as_object().expect("labels");
    let value = |source: &Value| {
        let source = source.as_str().expect("a text");
        let name = source.strip_prefix("__meta_kubernetes_pod_label_");
        let Some(name) = name else {
            let own = source.starts_with("__meta_kubernetes_");
            assert!(own, "{source}");
            return "admin".to_owned();
        };
        let found = labels
            .iter()
            .find(|(label, _)| label.replace(['.', '/', '-'], "_") == name);
        let value = found.and_then(|(_, value)| value.as_str());
        value.expect("a label of masters").to_owned()
    };
    for step in steps {
        let sources = step["source_labels"].as_array().expect("labels");
        let values: Vec<String> = sources.iter().map(value).collect();
        if step["action"] == "keep" {
            assert_eq!(step["regex"], values.join(";"));
        }
        if step["target_label"] == "pool" {
            assert_eq!(values, ["pool-small"]);
        }
    }
}

/// Each object survives the way through its type, so it holds no field that Kubernetes does not
/// know, and no value of another type.
#[test]
fn every_field_is_known_to_its_type() {
    children().1.iter().for_each(strictly);
}

fn strictly(child: &Child) {
    match child.key.kind {
        ChildKind::ServiceAccount => through::<ServiceAccount>(child),
        ChildKind::RoleBinding => through::<RoleBinding>(child),
        ChildKind::ClusterRoleBinding => through::<ClusterRoleBinding>(child),
        ChildKind::ConfigMap => through::<ConfigMap>(child),
        ChildKind::Service => through::<Service>(child),
        ChildKind::PodDisruptionBudget => through::<PodDisruptionBudget>(child),
        ChildKind::StatefulSet => through::<StatefulSet>(child),
        ChildKind::DaemonSet => through::<DaemonSet>(child),
        ChildKind::CacheNode => through::<CacheNode>(child),
    }
}

fn through<T: Serialize + DeserializeOwned>(child: &Child) {
    let typed: T = serde_json::from_value(child.body.clone()).expect("its type");
    let back = serde_json::to_value(typed).expect("JSON");
    assert_eq!(back, child.body, "{}", child.key);
}

/// The whole Pod Security level `restricted` for masters; for agents `baseline` but for the two
/// folders of their node, and the one capability-free root.
#[test]
fn pods_have_no_rights_beyond_their_work() {
    let (_, children) = children();
    let pod = |kind| {
        let child = children
            .iter()
            .find(|child| child.key.kind == kind)
            .expect("one");
        child.body["spec"]["template"]["spec"].clone()
    };
    for kind in [ChildKind::StatefulSet, ChildKind::DaemonSet] {
        let pod = pod(kind);
        for never in ["hostNetwork", "hostPID", "hostIPC", "initContainers"] {
            assert!(pod[never].is_null(), "{never}");
        }
        assert_eq!(
            pod["securityContext"]["seccompProfile"]["type"],
            "RuntimeDefault"
        );
        for container in pod["containers"].as_array().expect("a list") {
            let rights = &container["securityContext"];
            assert_eq!(rights["allowPrivilegeEscalation"], false);
            assert_eq!(rights["readOnlyRootFilesystem"], true);
            assert_eq!(rights["capabilities"]["drop"][0], "ALL");
            assert!(rights["privileged"].is_null() && rights["capabilities"]["add"].is_null());
        }
    }
    assert_eq!(
        pod(ChildKind::StatefulSet)["securityContext"]["runAsNonRoot"],
        true
    );
    let host_paths = |kind| {
        let pod = pod(kind);
        let volumes = pod["volumes"].as_array().cloned().expect("a list");
        let paths = volumes
            .iter()
            .filter_map(|v| v["hostPath"]["path"].as_str());
        paths.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(host_paths(ChildKind::StatefulSet), Vec::<String>::new());
    assert_eq!(
        host_paths(ChildKind::DaemonSet),
        ["/run/larder", "/var/lib/larder"]
    );
    let key = |kind| pod(kind).to_string().contains("root-key");
    assert!(
        key(ChildKind::StatefulSet) && !key(ChildKind::DaemonSet),
        "only masters mount it"
    );
}

#[test]
fn the_page_of_conditions_is_the_table() {
    let page = include_str!("../../docs/conditions.md");
    assert!(
        page == reasons::page(),
        "run `larder-operator --print-reasons > docs/conditions.md`"
    );
}
