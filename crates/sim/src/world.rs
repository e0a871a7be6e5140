//! Worlds that follow from one seed: processes, a network, disks, clocks, and what happens to them.
//!
//! A world is put together from parts that know nothing of each other:
//!
//! * [`Stage`] runs processes. Each is one thread's worth of tasks on a paused clock of its own, so
//!   real asynchronous code runs in it, can be stopped like by SIGSTOP, and dies with all its
//!   tasks at once like by SIGKILL.
//! * [`Network`] carries messages between them, and loses, delays, repeats, reorders and cuts.
//! * [`Clock`] is what a process takes for the time.
//! * [`MachineDisk`] is a disk that outlives processes, loses power, fills up and is slow.
//! * [`run_agent`] is an agent of a pool and [`run_client`] a client of it, [`Line`] a connection
//!   to a master, [`Caller`] a way from master to master.
//! * [`draw_faults`] says what breaks when, [`draw_work`] what clients ask.
//! * [`Trace`] proves that the same seed gave the same run.
//!
//! Time goes on in quanta. All that processes say within a quantum arrives after it, so in which
//! order they run within it cannot matter to them; it is drawn all the same.
//!
//! What is to be true is said by the history of the clients' calls, see [`crate::history`], and by
//! what a world itself finds.

mod agent;
mod calls;
mod clock;
mod coverage;
mod disk;
mod faults;
mod kept;
mod ledger;
mod line;
mod network;
mod packet;
mod pool;
mod pool_client;
mod runs;
mod stage;
mod trace;
mod work;

pub use agent::{AgentFolder, AgentSettings, run_agent};
pub use calls::{Asked, CallFailed, Caller, Calls};
pub use clock::Clock;
pub use coverage::Coverage;
pub use disk::MachineDisk;
pub use faults::{Class, Fault, FaultShape, draw_faults};
pub use kept::{KeptSeed, KeptSeedError, add_kept, parse_kept};
pub use ledger::{LedgerOptions, Mistake, run_ledger};
pub use line::{Line, LineBody, LineBroken, LineName, LinePacket};
pub use network::{Arrival, Cut, Network, NetworkCounts, Node, Sent, Storm, Weather};
pub use packet::{DataAsk, DataTold, Packet};
pub use pool::{PoolMistake, PoolOptions, run_pool};
pub use pool_client::{ClientSettings, run_client};
pub use runs::{Outcome, Summary, run_seeds};
pub use stage::{Context, Face, Outbox, Stage, StageError, wait_for};
pub use trace::Trace;
pub use work::{Step, WorkShape, bytes_of, draw_work, value_of};
