//! One process of the pool: started, watched until ready, started again when it dies, stopped.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::Value;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, interval, sleep, timeout};

use crate::error::CliError;
use crate::folder::RunFolder;

/// How long a process may take until it is ready. An agent waits for its master meanwhile.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// How often its ready file is looked for; only while it starts.
const READY_LOOK: Duration = Duration::from_millis(10);
/// How long it may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// After so long a life its next death counts as the first again.
const STEADY: Duration = Duration::from_secs(60);
/// After so many failed starts an agent gives up its old port: somebody else may have it.
const PORT_TRIES: u32 = 3;

/// What a ready file says; masters and agents have some names each.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Ready {
    /// The process that wrote it.
    pub(super) pid: u32,
    /// Where clients reach it.
    pub(super) client_addr: String,
    /// Masters: the admin port.
    #[serde(default)]
    pub(super) admin_addr: Option<String>,
    /// Agents: the metrics port.
    #[serde(default)]
    pub(super) metrics_addr: Option<String>,
}

/// What happened to a process.
#[derive(Debug)]
pub(super) enum Event {
    /// It was started under this number.
    Started { name: String, pid: u32 },
    /// It serves.
    Ready { name: String, ready: Ready },
    /// It ended, or never became ready, without being told to; it is started again.
    Failed { name: String, why: String },
}

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Master,
    Agent,
}

/// One process of the pool.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) executable: PathBuf,
    pub(super) folder: RunFolder,
    pub(super) config: Value,
    pub(super) ready_file: PathBuf,
}

/// How one life of a process ended.
enum Life {
    Stopped,
    Failed { why: String, was_ready: bool },
}

impl Program {
    /// Keeps the process running until it is told to stop.
    pub(super) async fn keep(
        mut self,
        events: mpsc::Sender<Event>,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut failures = 0;
        loop {
            let born = Instant::now();
            let why = match self.live(&events, &mut stop).await {
                Ok(Life::Stopped) => return,
                Ok(Life::Failed { why, was_ready }) => {
                    if was_ready && born.elapsed() >= STEADY {
                        failures = 0;
                    }
                    why
                }
                Err(error) => larder_telemetry::error_chain(&error),
            };
            failures += 1;
            if failures == PORT_TRIES && self.kind == Kind::Agent {
                self.pin("data_addr", "127.0.0.1:0");
                self.pin("metrics_addr", "127.0.0.1:0");
            }
            let failed = Event::Failed {
                name: self.name.clone(),
                why,
            };
            if events.send(failed).await.is_err() {
                return;
            }
            tokio::select! {
                () = sleep(pause_after(failures)) => {}
                () = told(&mut stop) => return,
            }
        }
    }

    async fn live(
        &mut self,
        events: &mpsc::Sender<Event>,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<Life, CliError> {
        // Its process, its only pipe: closing that tells it to stop.
        let (mut child, _stdin) = self.spawn()?;
        let pid = child.id().unwrap_or_default();
        // Events are lost only when the supervisor is gone, and this task with it.
        let _ = events
            .send(Event::Started {
                name: self.name.clone(),
                pid,
            })
            .await;
        let ready = tokio::select! {
            ready = wait_ready(&self.ready_file, pid) => ready,
            status = child.wait() => {
                return Ok(Life::Failed { why: ended(status), was_ready: false });
            }
            () = told(stop) => {
                end(&mut child, STOP_LIMIT).await;
                return Ok(Life::Stopped);
            }
        };
        let Some(ready) = ready else {
            end(&mut child, STOP_LIMIT).await;
            let why = format!("it was not ready after {} s", READY_LIMIT.as_secs());
            return Ok(Life::Failed {
                why,
                was_ready: false,
            });
        };
        self.pin_ports(&ready);
        let _ = events
            .send(Event::Ready {
                name: self.name.clone(),
                ready,
            })
            .await;
        tokio::select! {
            status = child.wait() => Ok(Life::Failed { why: ended(status), was_ready: true }),
            () = told(stop) => {
                end(&mut child, STOP_LIMIT).await;
                Ok(Life::Stopped)
            }
        }
    }

    fn spawn(&self) -> Result<(Child, Option<ChildStdin>), CliError> {
        let config = self
            .folder
            .write_json(&format!("config/{}.json", self.name), &self.config)?;
        if let Err(source) = std::fs::remove_file(&self.ready_file)
            && source.kind() != std::io::ErrorKind::NotFound
        {
            return Err(CliError::file("remove", &self.ready_file, source));
        }
        let log = self.folder.open_log(&self.name)?;
        let other = log.try_clone().map_err(|source| CliError::System {
            action: "share a log between two streams",
            source,
        })?;
        let mut command = Command::new(&self.executable);
        command
            .arg(match self.kind {
                Kind::Master => "run-master",
                Kind::Agent => "run-agent",
            })
            .arg("--config")
            .arg(config)
            .arg("--until-stdin-ends")
            .stdin(Stdio::piped())
            .stdout(log)
            .stderr(other)
            // A Ctrl-C at the terminal is for the supervisor, which stops the others in order.
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|source| CliError::System {
            action: "start a process of the pool",
            source,
        })?;
        // Taken out, because waiting for the process closes it.
        let stdin = child.stdin.take();
        Ok((child, stdin))
    }

    /// Keeps the ports for the next life, since clients and agents know them.
    fn pin_ports(&mut self, ready: &Ready) {
        let key = match self.kind {
            Kind::Master => "client_addr",
            Kind::Agent => "data_addr",
        };
        self.pin(key, &ready.client_addr);
        if let Some(addr) = &ready.admin_addr {
            self.pin("admin_addr", addr);
        }
        if let Some(addr) = &ready.metrics_addr {
            self.pin("metrics_addr", addr);
        }
    }

    fn pin(&mut self, key: &str, addr: &str) {
        if let Some(value) = self.config.get_mut(key) {
            *value = addr.into();
        }
    }
}

/// Waits until the process is to be stopped.
async fn told(stop: &mut watch::Receiver<bool>) {
    // An error means that nobody is left who could say it: stop all the same.
    drop(stop.wait_for(|stop| *stop).await);
}

/// How long to wait after so many failures in a row: doubling from 100 ms to 10 s.
fn pause_after(failures: u32) -> Duration {
    Duration::from_millis(100 << failures.saturating_sub(1).min(7)).min(Duration::from_secs(10))
}

/// Waits for the ready file of this very process; `None` if it takes too long.
async fn wait_ready(path: &std::path::Path, pid: u32) -> Option<Ready> {
    let look = async {
        let mut look = interval(READY_LOOK);
        loop {
            look.tick().await;
            if let Ok(text) = tokio::fs::read(path).await
                && let Ok(ready) = serde_json::from_slice::<Ready>(&text)
                && ready.pid == pid
            {
                return ready;
            }
        }
    };
    timeout(READY_LIMIT, look).await.ok()
}

fn ended(status: std::io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => format!("it ended ({status})"),
        Err(error) => format!("it cannot be watched ({error})"),
    }
}

/// Stops a process: politely, then surely.
pub(super) async fn end(child: &mut Child, limit: Duration) {
    // Not waited for yet, so the number is still its own.
    if let Some(pid) = child
        .id()
        .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
    {
        let _ = kill_process(pid, Signal::TERM);
    }
    if timeout(limit, child.wait()).await.is_err() {
        // It fails only if the process has ended by now.
        let _ = child.kill().await;
    }
}
