//! Calls of `kubectl` as the administrator.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use super::command;
use super::folders::Folders;

/// The command line of Kubernetes, for this cluster.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
}

impl Kubectl {
    pub(crate) fn new(folders: &Folders, programs: &std::path::Path) -> Self {
        // It remembers what a server offers by the server's address, and the next cluster may
        // get the same port: what it remembers must end with the cluster.
        let cache = folders.state.join("kubectl");
        Self {
            program: programs.join("kubectl"),
            kubeconfig: folders.kubeconfig(),
            cache,
        }
    }

    /// The same as somebody else: whoever a kubeconfig names.
    #[must_use]
    pub fn with_kubeconfig(&self, kubeconfig: PathBuf) -> Self {
        Self {
            kubeconfig,
            ..self.clone()
        }
    }

    /// A command to which arguments are added.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut kubectl = Command::new(&self.program);
        kubectl
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECACHEDIR", &self.cache);
        kubectl
    }

    /// Runs it and gives what it printed.
    ///
    /// # Errors
    /// With what it said, if it fails.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        command::run(self.command().args(arguments).stdin(Stdio::null()))
    }

    /// Runs it with a text as its standard input.
    ///
    /// # Errors
    /// With what it said, if it fails.
    pub fn feed(&self, arguments: &[&str], input: &str) -> Result<String> {
        command::feed(self.command().args(arguments), input.as_bytes())
    }

    /// Runs it where a failure is a possible answer.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn output(&self, arguments: &[&str], input: &str) -> Result<Output> {
        command::output(self.command().args(arguments), Some(input.as_bytes()))
    }

    /// Asks for objects: `["pods", "-n", "default"]`.
    ///
    /// # Errors
    /// With what it said, if it fails.
    pub fn get(&self, arguments: &[&str]) -> Result<Value> {
        let arguments: Vec<_> = ["get", "-o", "json"]
            .iter()
            .chain(arguments)
            .copied()
            .collect();
        let text = self.run(&arguments)?;
        serde_json::from_str(&text).context("kubectl printed no JSON")
    }

    /// Applies objects, server-side. Several are given as an array.
    ///
    /// # Errors
    /// With what the API server said, if it refuses one of them.
    pub fn apply(&self, objects: &Value) -> Result<String> {
        let text = match objects.as_array() {
            Some(items) => {
                serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": items })
            }
            None => objects.clone(),
        };
        let arguments = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        self.feed(&arguments, &text.to_string())
    }
}
