//! `larder-operator` as a process of this machine, with the rights of its own ServiceAccount.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use larder_e2e::cluster::Kubectl;
use serde_json::{Value, json};

use crate::rig::{IMAGE, SYSTEM, chart, programs, run};
use crate::scene::Scene;

/// The operator's ServiceAccount in each release.
const ACCOUNT: &str = "larder-operator";

/// A release of the chart for one namespace. Its Deployment has no replicas: the operator runs as
/// a process, with a token of its ServiceAccount and the configuration of the chart.
pub(crate) struct Release<'s> {
    scene: &'s Scene<'s>,
    /// Where the operator's own objects lie.
    pub(crate) namespace: String,
    kubeconfig: PathBuf,
    config: PathBuf,
}

/// A running operator; it is killed when this is dropped.
pub(crate) struct Operator(Child);

impl Operator {
    /// Ends it as kubelet would: it gives its Lease back.
    pub(crate) fn stop(mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let status = self.0.wait()?;
        ensure!(status.success(), "the operator ended with {status}");
        Ok(())
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl<'s> Release<'s> {
    pub(crate) fn install(scene: &'s Scene<'s>) -> Result<Self> {
        let namespace = format!("{}-op", scene.namespace);
        let mut helm = scene.cluster.helm();
        helm.args(["install", &scene.namespace]).arg(chart());
        helm.args(["--namespace", &namespace, "--create-namespace"])
            .args(IMAGE);
        let watched = format!("watchNamespace={}", scene.namespace);
        // Kinds and the rights of users are the other release's, which covers all namespaces.
        for value in [
            "crds.install=false",
            "rbac.aggregate=false",
            "operator.replicas=0",
            &watched,
        ] {
            helm.args(["--set", value]);
        }
        run(&mut helm)?;
        Self::prepared(scene, namespace)
    }

    /// The release for all namespaces that the rig installed: its rights, but only this namespace
    /// is watched. One test at a time, since there is one Lease.
    pub(crate) fn of_all(scene: &'s Scene<'s>) -> Result<Self> {
        Self::prepared(scene, SYSTEM.to_owned())
    }

    fn prepared(scene: &'s Scene<'s>, namespace: String) -> Result<Self> {
        let release = Self {
            scene,
            namespace,
            kubeconfig: scene.folder().join("operator.kubeconfig"),
            config: scene.folder().join("operator.json"),
        };
        // No image of the product is on the nodes. With less memory than a master asks for its
        // pods are refused, and kubelets have nothing to try again and again.
        scene.apply(&[json!({
            "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": "no-masters" },
            "spec": { "limits": [{ "type": "Container", "default": { "memory": "1Mi" } }] },
        })])?;
        release.prepare()?;
        Ok(release)
    }

    fn prepare(&self) -> Result<()> {
        let token = self.token(&[])?;
        self.scene
            .cluster
            .write_kubeconfig(&self.kubeconfig, &token)?;
        let map = ["configmap", ACCOUNT, "-n", &self.namespace];
        let map = self.scene.cluster.kubectl().get(&map)?;
        let text = map["data"]["operator.json"]
            .as_str()
            .context("the chart has no configuration")?;
        let mut config: Value = serde_json::from_str(text)?;
        config["metrics_addr"] = json!("127.0.0.1:0");
        config["log"]["format"] = json!("human");
        config["watch_namespace"] = json!(self.scene.namespace);
        Ok(fs::write(&self.config, config.to_string())?)
    }

    /// A token of the operator's ServiceAccount.
    fn token(&self, more: &[&str]) -> Result<String> {
        let ask = [
            "create",
            "token",
            ACCOUNT,
            "-n",
            &self.namespace,
            "--duration=2h",
        ];
        let token = self.scene.cluster.kubectl().run(&[&ask, more].concat())?;
        Ok(token.trim().to_owned())
    }

    /// `kubectl` with the operator's rights.
    pub(crate) fn kubectl(&self) -> Kubectl {
        self.scene
            .cluster
            .kubectl()
            .with_kubeconfig(self.kubeconfig.clone())
    }

    /// How the API server names the operator.
    pub(crate) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{ACCOUNT}", self.namespace)
    }

    /// Starts the operator.
    pub(crate) fn start(&self) -> Result<Operator> {
        self.start_with(&self.kubeconfig)
    }

    /// Starts it with another way to the API server.
    pub(crate) fn start_with(&self, kubeconfig: &PathBuf) -> Result<Operator> {
        let log = self.scene.folder().join("operator.log");
        let log = File::options().create(true).append(true).open(log)?;
        let child = Command::new(programs()?.join("larder-operator"))
            .arg("--config")
            .arg(&self.config)
            // One name for all lives: whoever comes back under it need not wait for its Lease.
            .args([
                "--pod-name",
                "operator-0",
                "--pod-namespace",
                &self.namespace,
            ])
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("larder-operator cannot be started")?;
        Ok(Operator(child))
    }
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        if self.namespace == SYSTEM {
            return;
        }
        // What stays ends with the cluster; a failed test has its own reason.
        let kubectl = self.scene.cluster.kubectl();
        let _ = kubectl.run(&["delete", "namespace", &self.namespace, "--wait=false"]);
        let names = format!("app.kubernetes.io/instance={}", self.scene.namespace);
        let kinds = "validatingadmissionpolicies,validatingadmissionpolicybindings,\
                     clusterroles,clusterrolebindings";
        let _ = kubectl.run(&["delete", kinds, "-l", &names, "--wait=false"]);
    }
}
