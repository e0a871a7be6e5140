//! Whole systems on real Kubernetes, which `e2e/src/cluster` starts on this machine.
//!
//! One cluster serves all tests of a run, and each test has a namespace of its own. It is started
//! by the first test that runs, so not for `--list` or a filter that nothing passes.
//!
//! | names | what reconciles | at a time |
//! |---|---|---|
//! | `apiserver_*` | `larder-operator` as a process, for the test's namespace only | several |
//! | `cluster_*` | the chart's operator in the cluster, for all namespaces | one |
//!
//! The first have all ended before the second begin, so two operators never meet. What the
//! machine lacks is told as the reason for which each test is skipped, unless the list in
//! `LARDER_E2E_REQUIRE` holds `cluster`: then it is a failure.

mod apiserver_autoscaling;
mod apiserver_chart;
mod apiserver_drains;
mod apiserver_faults;
mod apiserver_quotas;
mod apiserver_repair;
mod apiserver_rights;
mod apiserver_rules;
mod apiserver_scale;
mod apiserver_snapshots;
mod cluster_agents;
mod cluster_bytes;
mod cluster_masters;
mod cluster_nodes;
mod cluster_operator;
mod cluster_pods;
mod cluster_removal;
mod cluster_rolls;
mod cluster_tenants;
mod cluster_volumes;
mod object_store;
mod operator;
mod rig;
mod scene;
mod simulated;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use larder_e2e::cluster;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

use rig::Rig;
use scene::Scene;

/// A test: its name, which tells what it needs, and what it does.
#[derive(Clone)]
struct Test {
    name: &'static str,
    run: fn(&Scene<'_>) -> anyhow::Result<()>,
}

impl Test {
    const fn new(name: &'static str, run: fn(&Scene<'_>) -> anyhow::Result<()>) -> Self {
        Self { name, run }
    }
}

/// Tests that only ask the API server; each brings its own operator. Two processors serve four.
const APISERVER_THREADS: usize = 4;
/// Tests with pods on the nodes, some of which hurt nodes.
const CLUSTER_THREADS: usize = 1;

fn apiserver_tests() -> Vec<Test> {
    // The longest first.
    [
        apiserver_faults::tests(),
        apiserver_scale::tests(),
        apiserver_drains::tests(),
        apiserver_repair::tests(),
        apiserver_quotas::tests(),
        apiserver_snapshots::tests(),
        apiserver_rights::tests(),
        apiserver_rules::tests(),
        apiserver_autoscaling::tests(),
        apiserver_chart::tests(),
    ]
    .concat()
}

fn cluster_tests() -> Vec<Test> {
    [
        cluster_bytes::tests(),
        cluster_tenants::tests(),
        cluster_operator::tests(),
        cluster_agents::tests(),
        cluster_masters::tests(),
        cluster_rolls::tests(),
        cluster_volumes::tests(),
        cluster_nodes::tests(),
        cluster_removal::tests(),
    ]
    .concat()
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let needs = if arguments.list {
        Ok(())
    } else {
        cluster::prerequisites()
    };
    let rig = Arc::new(Rig::new(needs, is_required("cluster")));
    let mut has_failed = false;
    for (tests, threads) in [
        (apiserver_tests(), APISERVER_THREADS),
        (cluster_tests(), CLUSTER_THREADS),
    ] {
        let mut arguments = arguments.clone();
        arguments.test_threads = arguments.test_threads.or(Some(threads));
        let trials = tests.into_iter().map(|test| trial(&rig, test)).collect();
        has_failed |= libtest_mimic::run(&arguments, trials).has_failed();
    }
    if let Err(error) = rig.down() {
        say(&format!("the cluster does not go: {error:#}"));
        has_failed = true;
    }
    if has_failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn trial(rig: &Arc<Rig>, test: Test) -> Trial {
    let rig = rig.clone();
    Trial::ignorable_test(test.name, move || {
        if let Err(reason) = rig.needs() {
            if rig.is_required() {
                return Err(Failed::from(format!("required, but {reason}")));
            }
            return Ok(Completion::ignored_with(format!("skipped: {reason}")));
        }
        let run = || {
            let scene = Scene::open(&rig, test.name)?;
            let result = (test.run)(&scene);
            scene.close(result)
        };
        run().map_err(|error: anyhow::Error| Failed::from(format!("{error:#}")))?;
        Ok(Completion::Completed)
    })
}

/// Whether a need must be met here: `LARDER_E2E_REQUIRE` lists needs, with commas between.
#[expect(
    clippy::disallowed_methods,
    reason = "the configuration of this harness"
)]
fn is_required(need: &str) -> bool {
    let list = std::env::var("LARDER_E2E_REQUIRE").unwrap_or_default();
    list.split(',').any(|one| one.trim() == need)
}

fn say(text: &str) {
    // Whoever does not listen need not be told.
    let _ = writeln!(std::io::stderr(), "cluster: {text}");
}
