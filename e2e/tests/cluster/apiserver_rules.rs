//! The custom resources as the API server takes them: rules, columns, names, scale.

use anyhow::{Context, Result, ensure};
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Client, Config};
use larder_crds::cases::{Case, Edit, Kind, cases, edited};
use larder_e2e::cluster::{Look, until};
use serde_json::{Value, json};

use crate::Test;
use crate::scene::{LIMIT, Scene};
use crate::simulated::Nodes;

const CRD_BYTES_MAX: usize = 64 << 10;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("apiserver_rules_pass_and_fail_as_listed", rules),
        Test::new("apiserver_kinds_are_established_and_shown", kinds),
        Test::new("apiserver_pools_scale", scale),
    ]
}

fn rules(scene: &Scene<'_>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let server = Server::connect(scene).await?;
        let (updates, creates): (Vec<_>, Vec<_>) =
            cases().into_iter().partition(|case| case.update);
        for case in &creates {
            server.check(case, None).await?;
        }
        for kind in Kind::ALL {
            let stored = server
                .api(kind)
                .create(&PostParams::default(), &object(kind, &[])?)
                .await?;
            let version = stored.metadata.resource_version.as_deref();
            for case in updates.iter().filter(|case| case.kind == kind) {
                server.check(case, version).await?;
            }
        }
        Ok(())
    })
}

fn object(kind: Kind, edits: &[Edit]) -> Result<DynamicObject> {
    Ok(serde_json::from_value(edited(kind.base(), edits))?)
}

/// The API server, asked without changing anything.
struct Server {
    client: Client,
    namespace: String,
}

impl Server {
    async fn connect(scene: &Scene<'_>) -> Result<Self> {
        let file = Kubeconfig::read_from(scene.cluster.kubeconfig())?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        Ok(Self {
            client: Client::try_from(config)?,
            namespace: scene.namespace.clone(),
        })
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        let (kind, plural) = match kind {
            Kind::Pool => ("CachePool", "cachepools"),
            Kind::Tenant => ("CacheTenant", "cachetenants"),
            Kind::Quota => ("CacheQuota", "cachequotas"),
            Kind::Node => ("CacheNode", "cachenodes"),
            Kind::Snapshot => ("CacheSnapshot", "cachesnapshots"),
        };
        let kind = GroupVersionKind::gvk(larder_crds::GROUP, larder_crds::VERSION, kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// Creates the object, or replaces the stored one of a version, and takes the answer only.
    async fn ask(&self, kind: Kind, edits: &[Edit], stored: Option<&str>) -> Result<Option<Value>> {
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let mut object = object(kind, edits)?;
        object.metadata.resource_version = stored.map(str::to_owned);
        let name = object.metadata.name.clone().unwrap_or_default();
        let sent = match stored {
            Some(_) => self.api(kind).replace(&name, &dry, &object).await,
            None => self.api(kind).create(&dry, &object).await,
        };
        match sent {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) => Ok(Some(serde_json::to_value(status)?)),
            Err(error) => Err(error.into()),
        }
    }

    async fn check(&self, case: &Case, stored: Option<&str>) -> Result<()> {
        let name = format!("{:?} {}: {}", case.kind, case.at, case.message);
        for edits in &case.pass {
            let refusal = self.ask(case.kind, edits, stored).await?;
            ensure!(
                refusal.is_none(),
                "{name}: {edits:?} should pass: {refusal:?}"
            );
        }
        for edits in &case.fail {
            let refusal = self.ask(case.kind, edits, stored).await?;
            let refusal = refusal.with_context(|| format!("{name}: {edits:?} should fail"))?;
            let causes = refusal["details"]["causes"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let names_it = |cause: &Value| {
                let field = cause["field"].as_str().unwrap_or_default();
                // The API server's word for an object as a whole.
                let field = if field == "<nil>" { "" } else { field };
                let text = cause["message"].as_str().unwrap_or_default();
                field == case.path && text.contains(case.message)
            };
            ensure!(
                causes.iter().any(names_it),
                "{name}: {edits:?} was refused with {causes:#?}"
            );
        }
        Ok(())
    }
}

fn kinds(scene: &Scene<'_>) -> Result<()> {
    let kubectl = scene.cluster.kubectl();
    for (plural, short, columns) in [
        (
            "cachepools",
            "cpool",
            "NAME READY NODES DESIRED CAPACITY USED AGE",
        ),
        ("cachetenants", "ctenant", "NAME READY POOL USED LIMIT AGE"),
        (
            "cachequotas",
            "cquota",
            "NAME READY POOL TENANTS USED GUARANTEED LIMIT AGE",
        ),
        (
            "cachenodes",
            "cnode",
            "NAME READY POOL NODE MEMORY USED AGE",
        ),
        (
            "cachesnapshots",
            "csnap",
            "NAME PHASE POOL OBJECTS SIZE TAKEN AGE",
        ),
    ] {
        let definition = kubectl.get(&["crd", &format!("{plural}.larder.dev")])?;
        let conditions = definition["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        for (kind, status) in [
            ("Established", "True"),
            ("NamesAccepted", "True"),
            ("NonStructuralSchema", "False"),
        ] {
            let found = conditions.iter().find(|one| one["type"] == json!(kind));
            let holds = found.map_or(status == "False", |one| one["status"] == json!(status));
            ensure!(holds, "{plural}: {kind} is {found:?}");
        }
        let mut bare = definition.clone();
        bare["metadata"]["managedFields"] = Value::Null;
        let size = bare.to_string().len();
        ensure!(size <= CRD_BYTES_MAX, "{plural} takes {size} bytes");
        let fields = kubectl.run(&["explain", &format!("{plural}.spec")])?;
        ensure!(fields.contains("FIELDS:"), "{fields}");
        scene.apply(&[kind_of(plural).base()])?;
        let table = scene.kubectl(&["get", short])?;
        let head: Vec<_> = table
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        ensure!(head.join(" ") == columns, "{plural} show {head:?}");
    }
    let all = scene.kubectl(&["get", "larder", "-o", "name"])?;
    for name in ["pool", "tenant", "quota", "node", "snapshot"].map(|kind| format!("cache{kind}")) {
        ensure!(
            all.contains(&format!("{name}.larder.dev/")),
            "`get larder` shows {all:?}"
        );
    }
    Ok(())
}

fn kind_of(plural: &str) -> Kind {
    match plural {
        "cachepools" => Kind::Pool,
        "cachetenants" => Kind::Tenant,
        "cachequotas" => Kind::Quota,
        "cachenodes" => Kind::Node,
        _ => Kind::Snapshot,
    }
}

fn scale(scene: &Scene<'_>) -> Result<()> {
    let nodes = Nodes::add(scene, 3)?;
    let release = scene.release()?;
    let _operator = release.start()?;
    scene.apply(&[nodes.pool("small", Some(1))])?;
    let members = |count: usize| {
        until(&format!("{count} members"), LIMIT, || {
            let found = nodes.members()?;
            Ok(Look::holds(found == count, &format!("{found} members")))
        })
    };
    members(1)?;
    until("the selector of the scale", LIMIT, || {
        let scale = scene.get(&["cachepool", "small", "--subresource=scale"])?;
        let selector = scale["status"]["selector"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let holds = selector.contains("larder.dev/pool=small");
        Ok(Look::holds(holds, &format!("selector {selector:?}")))
    })?;
    scene.kubectl(&["scale", "cachepool/small", "--replicas=2"])?;
    members(2)?;
    until("the column DESIRED", LIMIT, || {
        let row = scene.kubectl(&["get", "cachepool", "small", "--no-headers"])?;
        let words: Vec<_> = row.split_whitespace().collect();
        // small, False, no agent is ready, two are desired; nobody knows of capacity.
        Ok(Look::holds(
            words.get(..4) == Some(&["small", "False", "0", "2"]),
            &row,
        ))
    })?;
    // Out to all: nothing says how many there should be, and every node that fits joins.
    let no_count = r#"{"spec":{"nodes":{"count":null}}}"#;
    scene.kubectl(&["patch", "cachepool/small", "--type=merge", "-p", no_count])?;
    members(3)
}
