//! Starts the processes of a pool in order, watches over them, and stops them in order.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::child::{Event, Kind, Program, Ready};
use super::plan::{Plan, ready_file};
use super::stops::Stops;
use crate::document::{AgentDocument, MasterDocument, MasterRole, PoolDocument};
use crate::error::CliError;
use crate::folder::{ChildRecord, RunFolder, Supervisor};
use crate::output::note;
use crate::process_id::ProcessId;
use crate::status::{is_led, silent_masters};

/// Events on their way: a few for each start of a process.
const EVENTS: usize = 64;
/// How often the logs are looked at. Between two looks a process writes at most a few MiB.
const TRIM_EVERY: Duration = Duration::from_secs(30);
/// How often the run folder is looked at: without it nobody could reach or stop the pool.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long the masters may take to choose a leader.
const LEADER_LIMIT: Duration = Duration::from_secs(60);
/// How often they are asked; only while the pool starts.
const LEADER_LOOK: Duration = Duration::from_millis(50);

/// The pool while it runs. The only owner of `supervisor.json` and `pool.json`.
struct Running<'a> {
    folder: &'a RunFolder,
    plan: &'a Plan,
    executable: PathBuf,
    supervisor: Supervisor,
    document: PoolDocument,
    events: mpsc::Sender<Event>,
    stop_agents: watch::Sender<bool>,
    stop_masters: watch::Sender<bool>,
    agents: JoinSet<()>,
    masters: JoinSet<()>,
}

/// Runs a prepared pool until a signal asks to stop. `announce` gets the document once the pool
/// is up. Whatever happens, no process and no folder is left.
pub(super) async fn supervise(
    folder: &RunFolder,
    plan: &Plan,
    tokens: BTreeMap<String, PathBuf>,
    stops: Stops,
    announce: impl FnOnce(&PoolDocument) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let (events, received) = mpsc::channel(EVENTS);
    let mut running = match Running::new(folder, plan, tokens, events) {
        Ok(running) => running,
        Err(error) => return Err(cleaned(folder, error)),
    };
    let outcome = running.run(received, stops, announce).await;
    running.stop().await;
    if !folder.is_run_by(&running.supervisor.process) {
        // It is gone, or belongs to a pool that was started there since.
        return outcome;
    }
    match outcome {
        Ok(()) => folder.remove(),
        Err(error) => Err(cleaned(folder, error)),
    }
}

/// Removes the folder; the first error is the one to tell.
pub(super) fn cleaned(folder: &RunFolder, error: CliError) -> CliError {
    if let Err(left) = folder.remove() {
        note(&format!("note: {}", larder_telemetry::error_chain(&left)));
    }
    error
}

impl<'a> Running<'a> {
    fn new(
        folder: &'a RunFolder,
        plan: &'a Plan,
        tokens: BTreeMap<String, PathBuf>,
        events: mpsc::Sender<Event>,
    ) -> Result<Self, CliError> {
        let missing = |source| CliError::System {
            action: "find this program",
            source,
        };
        let executable = std::env::current_exe().map_err(missing)?;
        let process = ProcessId::of(std::process::id())
            .ok_or_else(|| missing(std::io::ErrorKind::NotFound.into()))?;
        let supervisor = Supervisor {
            pool: plan.pool.clone(),
            process,
            children: Vec::new(),
        };
        folder.write_supervisor(&supervisor)?;
        let document = PoolDocument {
            pool: plan.pool.clone(),
            masters: Vec::new(),
            agents: Vec::new(),
            tokens,
        };
        Ok(Self {
            folder,
            plan,
            executable,
            supervisor,
            document,
            events,
            stop_agents: watch::Sender::new(false),
            stop_masters: watch::Sender::new(false),
            agents: JoinSet::new(),
            masters: JoinSet::new(),
        })
    }

    async fn run(
        &mut self,
        mut received: mpsc::Receiver<Event>,
        mut stops: Stops,
        announce: impl FnOnce(&PoolDocument) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        tokio::select! {
            // One that came before anything was started starts nothing.
            biased;
            () = stops.next() => {
                note("stopping before the pool was up");
                return Ok(());
            }
            started = self.start(&mut received) => started?,
        }
        self.folder.write_json("pool.json", &self.document)?;
        announce(&self.document)?;
        let mut trim = interval(TRIM_EVERY);
        trim.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = received.recv() => {
                    // This value holds a sender: the channel cannot end before.
                    let Some(event) = event else { return Ok(()) };
                    self.take(event)?;
                }
                _ = trim.tick() => {
                    if let Err(error) = self.folder.trim_logs() {
                        note(&format!("the logs cannot be shortened: {error}"));
                    }
                }
                _ = look.tick() => {
                    if !self.folder.is_run_by(&self.supervisor.process) {
                        note("the run folder is gone; the pool stops");
                        return Ok(());
                    }
                }
                () = stops.next() => return Ok(()),
            }
        }
    }

    /// Starts the masters, then the agents, which need their addresses.
    async fn start(&mut self, received: &mut mpsc::Receiver<Event>) -> Result<(), CliError> {
        for master in &self.plan.masters {
            let config = self.plan.master_config(self.folder, master);
            let program = self.program(Kind::Master, &master.name, config);
            self.masters
                .spawn(program.keep(self.events.clone(), self.stop_masters.subscribe()));
        }
        self.until_ready(received, self.plan.masters.len()).await?;
        if self.plan.has_standbys() {
            self.until_led(received).await?;
        }
        let masters = self.document.masters.iter();
        let masters: Vec<String> = masters.map(|master| master.client_addr.clone()).collect();
        for (number, name) in self.plan.agents.iter().enumerate() {
            let config = self.plan.agent_config(self.folder, number, name, &masters);
            let agent = self.program(Kind::Agent, name, config);
            self.agents
                .spawn(agent.keep(self.events.clone(), self.stop_agents.subscribe()));
        }
        self.until_ready(received, self.plan.agents.len()).await
    }

    /// Waits until one of several masters leads and the others stand by.
    async fn until_led(&mut self, received: &mut mpsc::Receiver<Event>) -> Result<(), CliError> {
        let deadline = Instant::now() + LEADER_LIMIT;
        loop {
            let silent = silent_masters(&mut self.document).await;
            if is_led(&self.document) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let why = match silent.first() {
                    Some((name, why)) => format!("{name} does not answer: {why}"),
                    None => "they answer, but did not choose a leader".to_owned(),
                };
                return Err(CliError::Program(format!(
                    "no master leads after {} s; {why}",
                    LEADER_LIMIT.as_secs()
                )));
            }
            tokio::select! {
                Some(event) = received.recv() => {
                    self.started(&event)?;
                    self.take(event)?;
                }
                () = sleep(LEADER_LOOK) => {}
            }
        }
    }

    fn program(&self, kind: Kind, name: &str, config: serde_json::Value) -> Program {
        Program {
            kind,
            name: name.to_owned(),
            executable: self.executable.clone(),
            folder: self.folder.clone(),
            config,
            ready_file: ready_file(self.folder, name),
        }
    }

    /// Waits until so many processes became ready. A failure of any ends the start.
    async fn until_ready(
        &mut self,
        received: &mut mpsc::Receiver<Event>,
        mut count: usize,
    ) -> Result<(), CliError> {
        while count > 0 {
            let Some(event) = received.recv().await else {
                return Ok(());
            };
            self.started(&event)?;
            count -= usize::from(matches!(event, Event::Ready { .. }));
            self.take(event)?;
        }
        Ok(())
    }

    /// While the pool starts, the failure of a process ends the start.
    fn started(&self, event: &Event) -> Result<(), CliError> {
        let Event::Failed { name, why } = event else {
            return Ok(());
        };
        let said = self.folder.log_faults(name).unwrap_or_else(|| {
            match self.folder.log_tail(name).as_str() {
                // A full disk takes no log.
                "" => format!("{why}, and nothing is in its log"),
                tail => format!("{why}; its log ends with:{tail}"),
            }
        });
        Err(CliError::Program(format!("{name} did not start: {said}")))
    }

    /// Keeps the two files up to date, and says what a person should know.
    fn take(&mut self, event: Event) -> Result<(), CliError> {
        match event {
            Event::Started { name, pid } => {
                self.supervisor.children.retain(|child| child.name != name);
                // A process that has ended already is not to be looked after.
                if let Some(process) = ProcessId::of(pid) {
                    self.supervisor.children.push(ChildRecord { name, process });
                }
                self.folder.write_supervisor(&self.supervisor)
            }
            Event::Ready { name, ready } => {
                let again = self.meet(&name, ready);
                if again {
                    note(&format!("{name} is up again"));
                    self.folder.write_json("pool.json", &self.document)?;
                }
                Ok(())
            }
            Event::Failed { name, why } => {
                let log = self.folder.log(&name);
                note(&format!(
                    "{name} failed: {why}; it is started again; see {}",
                    log.display()
                ));
                Ok(())
            }
        }
    }

    /// Enters a process into the document; true if it was there before.
    fn meet(&mut self, name: &str, ready: Ready) -> bool {
        let number = |name: &str| self.plan.masters.iter().position(|one| one.name == name);
        if number(name).is_some() {
            let masters = &mut self.document.masters;
            let before = masters.len();
            masters.retain(|master| master.name != name);
            let again = masters.len() < before;
            masters.push(MasterDocument {
                name: name.to_owned(),
                pid: ready.pid,
                role: if self.plan.has_standbys() {
                    // Ready means that it answers; who leads they say when they are asked.
                    MasterRole::Starting
                } else {
                    // Ready means that it serves, and the only master serves as the leader.
                    MasterRole::Leader
                },
                client_addr: ready.client_addr,
                admin_addr: ready.admin_addr.unwrap_or_default(),
            });
            masters.sort_by_key(|master| number(&master.name));
            return again;
        }
        let number = self
            .plan
            .agents
            .iter()
            .position(|agent| agent == name)
            .unwrap_or_default();
        let agents = &mut self.document.agents;
        let before = agents.len();
        agents.retain(|agent| agent.name != name);
        let again = agents.len() < before;
        agents.push(AgentDocument {
            name: name.to_owned(),
            pid: ready.pid,
            client_addr: ready.client_addr,
            socket: self
                .folder
                .socket(u32::try_from(number).unwrap_or(u32::MAX)),
            metrics_addr: ready.metrics_addr.unwrap_or_default(),
        });
        let order = |agent: &AgentDocument| self.plan.agents.iter().position(|n| *n == agent.name);
        agents.sort_by_key(order);
        again
    }

    /// Stops the agents, which tell the master, and then the masters.
    async fn stop(&mut self) {
        self.stop_agents.send_replace(true);
        while self.agents.join_next().await.is_some() {}
        self.stop_masters.send_replace(true);
        while self.masters.join_next().await.is_some() {}
    }
}
