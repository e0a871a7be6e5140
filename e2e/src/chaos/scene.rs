//! A pool with a control for each of its processes, and a network for each master where that can
//! be.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::chaos::faults::{Control, Cut, Library, cut};
use crate::chaos::network::Network;
use crate::chaos::{Dice, Plan, pool_file};
use crate::pool::Pool;

/// Memory of each agent, and of each in a pool that is not filled, in MiB.
const FULL_MIB: u64 = 512;
const EMPTY_MIB: u64 = 256;

/// A process of the pool and its machine.
#[derive(Debug)]
pub struct Machine {
    /// The name of the process.
    pub name: String,
    /// Steers it.
    pub control: Control,
    /// The folder whose files a loss of power cuts.
    pub disk: PathBuf,
    /// How often it lost its power.
    boots: u32,
}

impl Machine {
    /// Takes what was not durable off the disk. The machine is off, and has another boot id when
    /// it is on again.
    ///
    /// # Errors
    /// If the files cannot be changed.
    pub fn lose_power(&mut self, dice: &mut Dice) -> Result<Cut> {
        let done = cut(&self.control, &self.disk, dice)?;
        self.boots += 1;
        self.control.set_boot(self.boots)?;
        Ok(done)
    }
}

/// The pool and all that can be done to it. The fields are dropped in this order.
#[derive(Debug)]
pub struct Scene {
    /// The pool.
    pub pool: Pool,
    /// The masters' machines, by number.
    pub masters: Vec<Machine>,
    /// The agents' machines, by number.
    pub agents: Vec<Machine>,
    /// Where each master has a network of its own.
    pub network: Option<Network>,
}

impl Scene {
    /// Starts the pool that a plan needs. With `is_private` this process is alone in its network
    /// namespace.
    ///
    /// # Errors
    /// If the pool does not start, or the fault needs networks and there are none.
    pub fn start(label: &str, plan: &Plan, is_private: bool) -> Result<Self> {
        let fault = plan.fault;
        ensure!(
            is_private || !fault.needs_network(),
            "{fault} needs network namespaces; run it by the program chaos, as root"
        );
        let (count, agents) = (fault.masters(), if fault.hits_agents() { 3 } else { 2 });
        let network = match is_private {
            true => Some(Network::build(count)?),
            false => None,
        };
        let home = Pool::new_home(label)?;
        let library = Library::build(&home.join("faults"))?;
        let machine = |name: String| -> Result<Machine> {
            let disk = home.join("run/state").join(&name).join("oplog");
            Ok(Machine {
                control: library.control(&name, &disk)?,
                name,
                disk,
                boots: 0,
            })
        };
        let masters: Result<Vec<_>> = (0..count)
            .map(|at| machine(format!("chaos-master-{at}")))
            .collect();
        let masters = masters?;
        let machines: Result<Vec<_>> = (0..agents)
            .map(|at| machine(format!("chaos-{at}")))
            .collect();
        for (at, master) in masters.iter().enumerate() {
            if let Some(network) = &network {
                master.control.set_network_of(network.process_in(at))?;
            }
            // So that both its lives after a loss of power and those before are from the control.
            master.control.set_boot(u32::MAX)?;
        }
        let mib = if plan.full { FULL_MIB } else { EMPTY_MIB };
        let file = pool_file("chaos", count, agents, mib);
        let pool = Pool::start_in(&home, &file, |up| {
            up.envs(library.environment());
            if let Some(network) = &network {
                let hosts: Vec<String> = network.hosts().iter().map(ToString::to_string).collect();
                up.arg("--master-hosts").arg(hosts.join(","));
            }
            if fault.syncs_always() {
                let sections = r#"{"oplog":{"sync":"Always"}}"#;
                up.args(["--master-sections", sections]);
            }
        })?;
        Ok(Self {
            pool,
            masters,
            agents: machines?,
            network,
        })
    }

    /// The number of a master.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn master(&self, name: &str) -> Result<usize> {
        let found = self.masters.iter().position(|master| master.name == name);
        found.with_context(|| format!("no master {name}"))
    }
}
