//! `larder transfer`: two processes, without a pool.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use larder_e2e::pool::larder;
use serde_json::Value;

/// A process that offers memory.
struct Serving {
    child: Child,
    addr: String,
    _stdout: BufReader<ChildStdout>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Serving {
    fn start(secret: &Path) -> Result<Self> {
        let mut child = Command::new(larder()?)
            .args(["transfer", "serve", "--memory", "64Mi", "--output", "json"])
            .arg("--secret-file")
            .arg(secret)
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().context("it has an output")?;
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let told: Value = serde_json::from_str(&line)?;
        let addr = told["addr"].as_str().context("an address")?.to_owned();
        Ok(Self {
            child,
            addr,
            _stdout: stdout,
        })
    }

    fn bench(&self, secret: &Path, arguments: &str) -> Result<Output> {
        let output = Command::new(larder()?)
            .args([
                "transfer", "bench", "--output", "json", "--peer", &self.addr,
            ])
            .arg("--secret-file")
            .arg(secret)
            .args(arguments.split(' '))
            .output()?;
        Ok(output)
    }
}

/// Every byte that is read is compared, whatever the shape of requests; then it ends in order.
pub(crate) fn every_byte() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "of this test\n")?;
    let mut serving = Serving::start(&secret)?;
    for arguments in [
        "mix --check --size 4Ki --time 300ms",
        "mix --check --size 300Ki --depth 4 --threads 2 --time 300ms",
        "read --check --size 4Ki --batch 64 --depth 2 --time 300ms",
        "mix --check --size 1Mi --rate 100 --depth 4 --class checkpoint --time 300ms",
    ] {
        let output = serving.bench(&secret, arguments)?;
        let told: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
        let is_well = output.status.success()
            && told["failed"] == 0
            && told["wrong_ranges"] == 0
            && told["requests"].as_u64() > Some(0);
        ensure!(is_well, "{arguments}: {told}");
    }
    let pid = rustix::process::Pid::from_child(&serving.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
    ensure!(serving.child.wait()?.success(), "it ends in order");
    Ok(())
}

/// Whoever has another secret is told so and reaches nothing.
pub(crate) fn other_secret() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (secret, other) = (folder.path().join("secret"), folder.path().join("other"));
    std::fs::write(&secret, "of this test")?;
    std::fs::write(&other, "of another one")?;
    let serving = Serving::start(&secret)?;
    let output = serving.bench(&other, "read --time 100ms")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        !output.status.success() && said.contains("secret"),
        "{said}"
    );
    std::fs::write(&other, "\n")?;
    let output = serving.bench(&other, "read --time 100ms")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.code() == Some(2) && said.contains("openssl rand"),
        "{said}"
    );
    Ok(())
}
