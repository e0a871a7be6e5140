//! Processes on paused clocks, and the network between them.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc as sync_mpsc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, LocalSet, yield_now};
use tokio::time::{advance, sleep};

use super::clock::Clock;
use super::network::{Arrival, Network, Node, Sent};
use crate::seed::{Seed, Stream};

/// Messages that wait for a process; more are lost.
const INBOX_MAX: usize = 1_024;
/// Messages that a process may send in a quantum; more are lost.
const OUTBOX_MAX: usize = 4_096;
/// How often the tasks of a process get a turn in a quantum, each time some sixty that are ready.
/// What is not done then goes on in the next one.
const TURNS: usize = 3;

/// A process that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The system gives no runtime.
    #[error("no runtime for a simulated process; see the cause")]
    Runtime(#[source] io::Error),
    /// A process panicked. That is a finding of its own.
    #[error("the process {node} panicked: {why}")]
    Panicked {
        /// Which.
        node: Node,
        /// With what words.
        why: String,
    },
}

/// What a process can read of the time.
#[derive(Clone, Debug)]
pub struct Face {
    local_ns: Arc<AtomicU64>,
    true_ns: Arc<AtomicU64>,
}

impl Face {
    /// What the machine's clock shows, in ns; moves with each quantum.
    #[must_use]
    pub fn local_ns(&self) -> u64 {
        self.local_ns.load(Ordering::Relaxed)
    }

    /// True time, in ns: for stamps of a history only. What is judged may not see it.
    #[must_use]
    pub fn true_ns(&self) -> u64 {
        self.true_ns.load(Ordering::Relaxed)
    }
}

/// What a process is given at its start.
#[derive(Debug)]
pub struct Context<M> {
    /// Its address.
    pub node: Node,
    /// Chance of its own, another one in each of its lives.
    pub seed: Seed,
    /// Its clock.
    pub face: Face,
    /// What arrives.
    pub inbox: mpsc::Receiver<Arrival<M>>,
    outbox: Outbox<M>,
}

/// Where a process puts what it sends; may be given to its other tasks.
#[derive(Debug)]
pub struct Outbox<M>(sync_mpsc::SyncSender<(Node, M)>);

impl<M> Clone for Outbox<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M> Context<M> {
    /// Sends a message at the end of the quantum.
    pub fn send(&self, to: Node, message: M) -> Sent {
        self.outbox.send(to, message)
    }

    /// A way to send for other tasks of the process.
    #[must_use]
    pub fn outbox(&self) -> Outbox<M> {
        self.outbox.clone()
    }
}

impl<M> Outbox<M> {
    /// Sends a message at the end of the quantum.
    pub fn send(&self, to: Node, message: M) -> Sent {
        match self.0.try_send((to, message)) {
            Ok(()) => Sent::OnTheWay,
            Err(_) => Sent::Lost,
        }
    }
}

/// Lets time pass on the paused clock of the process that calls it.
pub async fn wait_for(time: Duration) {
    sleep(time).await;
}

#[derive(Debug)]
struct Process<M> {
    runtime: Runtime,
    tasks: LocalSet,
    main: JoinHandle<()>,
    /// What the machine's steady clock showed when the process ran last.
    steady_ns: u64,
    face: Face,
    inbox: mpsc::Sender<Arrival<M>>,
    outbox: sync_mpsc::Receiver<(Node, M)>,
    is_paused: bool,
    /// Something arrived since it ran last.
    has_mail: bool,
}

/// The processes of a world.
#[derive(Debug)]
pub struct Stage<M> {
    /// What lies between them.
    pub network: Network<M>,
    now_ns: u64,
    quantum_ns: u64,
    true_ns: Arc<AtomicU64>,
    seed: Seed,
    order: Stream,
    lives: u64,
    clocks: BTreeMap<Node, Clock>,
    processes: BTreeMap<Node, Process<M>>,
}

impl<M: Clone> Stage<M> {
    /// An empty stage. The network's shortest delay is not below `quantum_ns`.
    #[must_use]
    pub fn new(seed: Seed, quantum_ns: u64, network: Network<M>) -> Self {
        Self {
            network,
            now_ns: 0,
            quantum_ns: quantum_ns.max(1),
            true_ns: Arc::new(AtomicU64::new(0)),
            seed,
            order: seed.stream("order"),
            lives: 0,
            clocks: BTreeMap::new(),
            processes: BTreeMap::new(),
        }
    }

    /// True time: the end of the last quantum, in ns.
    #[must_use]
    pub const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The clock of a machine, which is there whether its process runs or not. It starts anywhere
    /// within an hour.
    pub fn clock(&mut self, node: Node) -> &mut Clock {
        let (now_ns, seed) = (self.now_ns, self.seed);
        self.clocks.entry(node).or_insert_with(|| {
            let mut chance = seed.stream_of("clock", u64::from(node.0));
            Clock::new(now_ns, chance.below(3_600_000_000_000))
        })
    }

    /// Starts a process, in the place of the one that may run there. It is over when `main` ends.
    ///
    /// # Errors
    /// [`StageError::Runtime`].
    pub fn start<F, T>(&mut self, node: Node, main: F) -> Result<(), StageError>
    where
        F: FnOnce(Context<M>) -> T,
        T: Future<Output = ()> + 'static,
    {
        self.kill(node);
        self.lives += 1;
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .map_err(StageError::Runtime)?;
        let tasks = LocalSet::new();
        let (inbox, arrivals) = mpsc::channel(INBOX_MAX);
        let (sender, outbox) = sync_mpsc::sync_channel(OUTBOX_MAX);
        let now_ns = self.now_ns;
        let (local_ns, steady_ns) = self.clocks_of(node, now_ns);
        let face = Face {
            local_ns: Arc::new(AtomicU64::new(local_ns)),
            true_ns: Arc::clone(&self.true_ns),
        };
        let mut chance = self.seed.stream_of("life", self.lives);
        let context = Context {
            node,
            seed: Seed(chance.draw()),
            face: face.clone(),
            inbox: arrivals,
            outbox: Outbox(sender),
        };
        let main = tasks.spawn_local(main(context));
        let process = Process {
            runtime,
            tasks,
            main,
            steady_ns,
            face,
            inbox,
            outbox,
            is_paused: false,
            has_mail: false,
        };
        self.processes.insert(node, process);
        Ok(())
    }

    /// Ends a process with all its tasks, wherever they are. What it sent stays on its way.
    pub fn kill(&mut self, node: Node) {
        if let Some(process) = self.processes.remove(&node) {
            drop(process.tasks);
            process.runtime.shutdown_background();
            self.network.forget(node);
        }
    }

    /// Lets a process stand still, or go on. Its machine's clock goes on meanwhile.
    pub fn pause(&mut self, node: Node, is_paused: bool) {
        if let Some(process) = self.processes.get_mut(&node) {
            process.is_paused = is_paused;
        }
    }

    /// Whether a process runs there, paused or not.
    #[must_use]
    pub fn is_running(&self, node: Node) -> bool {
        let process = self.processes.get(&node);
        process.is_some_and(|process| !process.main.is_finished())
    }

    /// Lets a quantum pass: messages arrive, processes run, and what they say departs.
    ///
    /// # Errors
    /// [`StageError::Panicked`].
    pub fn pass(&mut self) -> Result<(), StageError> {
        self.now_ns += self.quantum_ns;
        self.true_ns.store(self.now_ns, Ordering::Relaxed);
        while let Some(arrival) = self.network.take(self.now_ns) {
            // One for a process that is gone, or has too much to read, is lost.
            if let Some(process) = self.processes.get_mut(&arrival.to) {
                process.has_mail = true;
                let _lost = process.inbox.try_send(arrival);
            }
        }
        let mut nodes: Vec<Node> = self.processes.keys().copied().collect();
        self.order.shuffle(&mut nodes);
        for node in nodes {
            self.run(node)?;
        }
        Ok(())
    }

    fn clocks_of(&mut self, node: Node, now_ns: u64) -> (u64, u64) {
        let clock = self.clock(node);
        (clock.local_ns(now_ns), clock.steady_ns(now_ns))
    }

    fn run(&mut self, node: Node) -> Result<(), StageError> {
        let now_ns = self.now_ns;
        let (local_ns, steady_ns) = self.clocks_of(node, now_ns);
        let Some(process) = self.processes.get_mut(&node) else {
            return Ok(());
        };
        if process.is_paused {
            return Ok(());
        }
        process.face.local_ns.store(local_ns, Ordering::Relaxed);
        let passed = steady_ns.saturating_sub(process.steady_ns);
        process.steady_ns = steady_ns;
        let has_mail = std::mem::take(&mut process.has_mail);
        process.tasks.block_on(&process.runtime, async move {
            // What arrived is read before timers fire: a task that waits for both and is told of
            // both at once would toss a coin that no seed knows.
            if has_mail {
                yield_now().await;
            }
            // At one blow, as it is for a process that stood still.
            advance(Duration::from_nanos(passed)).await;
            for _ in 0..TURNS {
                yield_now().await;
            }
        });
        while let Ok((to, message)) = process.outbox.try_recv() {
            self.network.send(now_ns, node, to, message);
        }
        if process.main.is_finished() {
            let Some(mut process) = self.processes.remove(&node) else {
                return Ok(());
            };
            let ended = process.tasks.block_on(&process.runtime, &mut process.main);
            process.runtime.shutdown_background();
            if let Err(panic) = ended {
                let why = panic_words(panic);
                return Err(StageError::Panicked { node, why });
            }
        }
        Ok(())
    }
}

fn panic_words(panic: tokio::task::JoinError) -> String {
    if !panic.is_panic() {
        return "it was cancelled".to_owned();
    }
    let payload = panic.into_panic();
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("no words").to_owned()
}
