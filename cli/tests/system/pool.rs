//! A pool of this machine for one test, and what the program says about it.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Two agents with 64 MiB each; team-a may use 8 MiB, team-b is not limited, team-c may only read.
pub(crate) const FILE: &str = "\
apiVersion: larder.dev/v1alpha1
kind: CachePool
metadata: {name: small}
spec:
  nodes: {count: 2}
  tiers: [{name: dram, medium: Dram, size: 64Mi, slabSize: 2Mi}]
---
apiVersion: larder.dev/v1alpha1
kind: CacheTenant
metadata: {name: a}
spec:
  poolRef: {name: small}
  tenantId: team-a
  limit: {bytes: 8Mi, objects: 100}
  pinned: {bytes: 16Mi}
---
apiVersion: larder.dev/v1alpha1
kind: CacheTenant
metadata: {name: b}
spec: {poolRef: {name: small}, tenantId: team-b}
---
apiVersion: larder.dev/v1alpha1
kind: CacheTenant
metadata: {name: c}
spec: {poolRef: {name: small}, tenantId: team-c, access: ReadOnly}
";

/// A place for a pool. When it is dropped, the pool is stopped and nothing of it stays.
pub(crate) struct Pool {
    place: TempDir,
}

/// What one run of the program gave.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Pool {
    /// A place with a pool file, nothing started.
    pub(crate) fn new(file: &str) -> Self {
        let place = tempfile::tempdir().expect("a folder");
        std::fs::write(place.path().join("pool.yaml"), file).expect("room");
        Self { place }
    }

    /// A pool that is up.
    pub(crate) fn up() -> Self {
        let pool = Self::new(FILE);
        let said = pool.start(&[]);
        assert_eq!(said.code, 0, "{said:?}");
        pool
    }

    /// `larder up --detach` with more arguments.
    pub(crate) fn start(&self, more: &[&str]) -> Said {
        let file = self.file();
        let mut args = vec!["up", "--detach", "-f", &file, "--output", "json"];
        args.extend(more);
        self.run(&args)
    }

    pub(crate) fn file(&self) -> String {
        self.place
            .path()
            .join("pool.yaml")
            .to_str()
            .expect("text")
            .to_owned()
    }

    /// Its run folder.
    pub(crate) fn dir(&self) -> PathBuf {
        self.place.path().join("run")
    }

    /// A file beside the run folder.
    pub(crate) fn beside(&self, name: &str) -> String {
        self.place
            .path()
            .join(name)
            .to_str()
            .expect("text")
            .to_owned()
    }

    /// The program with the run folder of this pool and nothing else from the environment.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = bare();
        command.arg("--dir").arg(self.dir()).args(args);
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Said {
        Said::from(self.command(args).output().expect("the program runs"))
    }

    /// A call of a tenant; through the first agent's socket unless the arguments say otherwise.
    pub(crate) fn call(&self, tenant: &str, args: &[&str]) -> Said {
        let mut all = vec!["--tenant", tenant, "--output", "json", "--deadline", "30s"];
        all.extend(args);
        self.run(&all)
    }

    /// The document of the pool that is up.
    pub(crate) fn document(&self) -> Value {
        let said = self.run(&["status", "--output", "json"]);
        assert_eq!(said.code, 0, "{said:?}");
        said.json()
    }

    /// The supervisor, and all processes that it started.
    pub(crate) fn pids(&self) -> Vec<u64> {
        let text = std::fs::read(self.dir().join("supervisor.json")).expect("it is up");
        let record: Value = serde_json::from_slice(&text).expect("JSON");
        let children = record["children"].as_array().expect("a list");
        let all = std::iter::once(&record).chain(children);
        all.map(|one| one["process"]["pid"].as_u64().expect("a number"))
            .collect()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // A failing test must not leave processes; what `down` says is for its own test.
        let _ = self.command(&["down"]).output();
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Said {
    /// The document on standard output.
    pub(crate) fn json(&self) -> Value {
        let read = serde_json::from_slice(&self.stdout);
        assert!(read.is_ok(), "{self:?}");
        read.unwrap_or_default()
    }

    /// The lines of standard output, each a document.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let text = std::str::from_utf8(&self.stdout).expect("text");
        text.lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    /// Checks that it failed so, and returns its message.
    #[track_caller]
    pub(crate) fn failed(&self, code: i32, reason: &str) -> String {
        assert_eq!(self.code, code, "{self:?}");
        let error = &self.json()["error"];
        assert_eq!(error["reason"], reason, "{self:?}");
        assert!(error["code"].is_i64(), "{self:?}");
        error["message"].as_str().expect("a sentence").to_owned()
    }
}

/// The program with nothing from the environment.
pub(crate) fn bare() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.env_clear().stdin(Stdio::null());
    command
}

/// What it says without a run folder.
pub(crate) fn say(args: &[&str]) -> Said {
    Said::from(bare().args(args).output().expect("the program runs"))
}

/// Whether a process of this number runs; one that only waits to be collected does not.
pub(crate) fn runs(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|text| !text[text.rfind(')').unwrap_or(0)..].starts_with(") Z"))
}

/// Bytes that differ from place to place.
pub(crate) fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let step = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(step).collect()
}
