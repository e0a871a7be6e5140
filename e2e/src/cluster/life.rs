//! The cluster's life: up from nothing, and down to nothing.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::command::{Look, until};
use super::control_plane::{self, API_PORT, DNS_READY_PORT};
use super::folders::Folders;
use super::group::{Groups, Lock, ROOT};
use super::machine::{Daemon, Site, write};
use super::network::{self, CONTROL_PLANE, NODES_MAX};
use super::pki::Pki;
use super::worker::Worker;
use super::{Cluster, Options, Record, packages, programs};

/// Whatever a busy machine makes of seconds.
const START_LIMIT: Duration = Duration::from_secs(180);
/// One look at something that listens.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);

/// The file about the running cluster. It marks the folder of state as ours to remove.
pub(crate) fn record(folders: &Folders) -> PathBuf {
    folders.state.join("cluster.json")
}

/// The programs of the running cluster, if one is written down.
pub(crate) fn programs(folders: &Folders) -> Option<PathBuf> {
    let text = fs::read_to_string(record(folders)).ok()?;
    serde_json::from_str::<Record>(&text)
        .ok()
        .map(|record| record.programs)
}

/// Starts a cluster.
pub(crate) fn up(options: &Options) -> Result<Cluster> {
    if options.nodes == 0 || options.nodes > NODES_MAX || options.zones == 0 {
        bail!("a cluster has 1 to {NODES_MAX} nodes and at least one zone");
    }
    if !rustix::process::geteuid().is_root() {
        bail!("a cluster needs namespaces and control groups; run as root");
    }
    packages::ensure(options.say)?;
    let folders = Folders::from_env()?;
    let programs = programs::build(&folders, options.say)?;
    let _lock = Lock::wait()?;
    let site = Site {
        folders,
        groups: Groups::find()?,
        programs,
    };
    clean(&site.folders, &site.groups).context("what an earlier cluster left does not go")?;
    let started = Instant::now();
    let cluster = Cluster::of(site, options.zones);
    if let Err(error) = bring_up(&cluster, options) {
        if options.keep {
            return Err(error.context(format!("kept in {}", cluster.site.folders.state.display())));
        }
        // The first error says more than one about the clean-up, which the next start repeats.
        let _ = clean(&cluster.site.folders, &cluster.site.groups);
        return Err(error);
    }
    let taken = started.elapsed().as_secs_f32();
    (options.say)(&format!(
        "{} nodes are ready after {taken:.1} s",
        options.nodes
    ));
    Ok(cluster)
}

/// Stops and removes everything.
pub(crate) fn down() -> Result<()> {
    let _lock = Lock::wait()?;
    clean(&Folders::from_env()?, &Groups::find()?)
}

fn clean(folders: &Folders, groups: &Groups) -> Result<()> {
    if groups.exists(ROOT) {
        // Mounts, addresses and interfaces end with the last process in their namespaces.
        groups.kill(ROOT)?;
    }
    let state = &folders.state;
    if !state.exists() {
        return Ok(());
    }
    if !record(folders).exists() {
        if fs::read_dir(state).is_ok_and(|mut entries| entries.next().is_none()) {
            return Ok(());
        }
        bail!(
            "{} holds something else; move it away or remove it",
            state.display()
        );
    }
    // The mark goes last, so that a clean-up that is interrupted can be repeated.
    let stays = || format!("{} does not go", state.display());
    for entry in fs::read_dir(state).with_context(stays)? {
        let path = entry?.path();
        if path.is_dir() {
            fs::remove_dir_all(&path).with_context(stays)?;
        } else if path != record(folders) {
            fs::remove_file(&path).with_context(stays)?;
        }
    }
    fs::remove_dir_all(state).with_context(stays)?;
    if let Some(parent) = state.parent().filter(|parent| parent.ends_with(ROOT)) {
        // It goes unless something else is in it.
        let _ = fs::remove_dir(parent);
    }
    Ok(())
}

fn bring_up(cluster: &Cluster, options: &Options) -> Result<()> {
    let site = &cluster.site;
    let text = json!(Record {
        programs: site.programs.clone(),
        zones: options.zones
    });
    write(&record(&site.folders), text.to_string())?;
    let plane = control_plane::machine(site);
    control_plane::lay_out(site)?;
    plane.boot()?;
    network::build(&plane)?;
    for daemon in control_plane::store_and_api(site) {
        plane.start(&daemon)?;
    }
    forward(site)?;
    // While the API server starts, which takes longest, nodes boot up to where they need it.
    let workers: Vec<_> = (1..=options.nodes)
        .map(|number| Worker::of(site, number))
        .collect();
    on_all(&workers, |worker| {
        worker.lay_out().and_then(|()| worker.boot())
    })?;
    watch(cluster, "the API server to be ready", || {
        cluster.kubectl.run(&["get", "--raw", "/readyz"])
    })?;
    let mut objects: Vec<_> = workers
        .iter()
        .map(|node| node.object(options.zones))
        .collect();
    objects.extend(dns_permissions());
    cluster.kubectl.apply(&json!(objects))?;
    for daemon in control_plane::controllers(site) {
        plane.start(&daemon)?;
    }
    for worker in &workers {
        worker.start("kubelet")?;
        worker.start("kube-proxy")?;
    }
    await_ready(cluster)
}

/// The program that listens on a free port of this machine and connects inside. The socket is
/// made here and the connections there, so that there is a way for this only.
fn forward(site: &Site) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let target = format!("{CONTROL_PLANE}:{API_PORT}");
    let program = site.programs.join("forward");
    let daemon = Daemon {
        name: "forward",
        program,
        arguments: vec![target],
    };
    control_plane::machine(site).start_joining(&daemon, OwnedFd::from(listener))?;
    let path = site.folders.kubeconfig();
    Pki::at(site.folders.pki()).kubeconfig(&path, "admin", &format!("https://{address}"))
}

/// What CoreDNS may read.
fn dns_permissions() -> [Value; 2] {
    let api = "rbac.authorization.k8s.io";
    let name = json!({ "name": "system:coredns" });
    let reads = |group: &str, resources: &[&str]| {
        let verbs = ["list", "watch"];
        json!({ "apiGroups": [group], "resources": resources, "verbs": verbs })
    };
    [
        json!({
            "apiVersion": format!("{api}/v1"), "kind": "ClusterRole", "metadata": name,
            "rules": [
                reads("", &["namespaces", "pods", "services"]),
                reads("discovery.k8s.io", &["endpointslices"]),
            ],
        }),
        json!({
            "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding", "metadata": name,
            "roleRef": { "apiGroup": api, "kind": "ClusterRole", "name": "system:coredns" },
            "subjects": [{ "apiGroup": api, "kind": "User", "name": "system:coredns" }],
        }),
    ]
}

fn await_ready(cluster: &Cluster) -> Result<()> {
    watch(cluster, "the nodes to be ready", || {
        cluster.kubectl.run(&[
            "wait",
            "nodes",
            "--all",
            "--for=condition=Ready",
            "--timeout=2s",
        ])
    })?;
    watch(cluster, "the nodes to take pods", || {
        let nodes = cluster.kubectl.get(&["nodes"])?;
        let items = nodes["items"].as_array();
        match items
            .into_iter()
            .flatten()
            .find(|node| !node["spec"]["taints"].is_null())
        {
            Some(node) => bail!(
                "{} has {}",
                node["metadata"]["name"],
                node["spec"]["taints"]
            ),
            None => Ok(()),
        }
    })?;
    watch(cluster, "the first ServiceAccount", || {
        cluster.kubectl.run(&["get", "serviceaccount", "default"])
    })?;
    let dns = SocketAddr::from((CONTROL_PLANE, DNS_READY_PORT));
    watch(cluster, "DNS to be ready", || {
        let mut stream = cluster.connect(dns, CONNECT_LIMIT)?;
        let answer = super::probe::http_get(&mut stream, "/ready")?;
        if answer.starts_with("HTTP/1.1 200") {
            Ok(())
        } else {
            bail!("{answer}")
        }
    })
}

/// Waits for something while every daemon that was started has to stay up.
fn watch<T>(cluster: &Cluster, what: &str, mut look: impl FnMut() -> Result<T>) -> Result<()> {
    let site = &cluster.site;
    let plane = control_plane::machine(site);
    until(what, START_LIMIT, || {
        let result = look();
        if result.is_err() {
            plane.check_started()?;
            cluster
                .nodes()
                .iter()
                .try_for_each(|node| node.machine().check_started())?;
        }
        Ok(Look::at(result.map(|_| ())))
    })
}

/// Does the same for all at once, and gives the first error in order.
///
/// # Errors
/// If one of them fails.
pub(crate) fn on_all<T: Sync>(all: &[T], act: impl Fn(&T) -> Result<()> + Sync) -> Result<()> {
    let act = &act;
    std::thread::scope(|scope| {
        let running: Vec<_> = all
            .iter()
            .map(|one| scope.spawn(move || act(one)))
            .collect();
        let results: Vec<_> = running
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        results.into_iter().try_for_each(|result| match result {
            Ok(result) => result,
            Err(_) => bail!("a thread ended before its work"),
        })
    })
}
