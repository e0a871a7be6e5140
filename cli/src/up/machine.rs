//! What this machine can give: memory and ports.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use larder_crds::PoolSettings;
use larder_node_agent::config::CONNECTIONS_DEFAULT;
use larder_node_agent::inventory::Inventory;
use larder_node_agent::inventory::SystemRoot;
use larder_node_agent::inventory::limits::{self, Needs};

use crate::bytes_text::show_bytes;
use crate::error::CliError;

/// Memory that stays for everything else, in bytes: the processes themselves and the clients.
const RESERVE_BYTES: u64 = 512 << 20;

/// Where masters get ports that they keep.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Refuses a pool that needs more memory than there is. `root` stands for `/`.
pub(super) fn check_memory(pool: &PoolSettings, root: &Path) -> Result<(), CliError> {
    let Some(available_bytes) = available_bytes(root) else {
        // Without /proc nothing can be said; the agents check again.
        return Ok(());
    };
    refuse_too_much(pool, available_bytes)
}

fn refuse_too_much(pool: &PoolSettings, available_bytes: u64) -> Result<(), CliError> {
    let wanted_bytes = pool.node_dram_bytes.saturating_mul(u64::from(pool.agents));
    if wanted_bytes <= available_bytes.saturating_sub(RESERVE_BYTES) {
        return Ok(());
    }
    Err(CliError::CannotStart(format!(
        "pool {} wants {} of memory ({} agents with {} each), but of the {} that this machine has \
         free {} stay for everything else; lower spec.tiers[0].size or spec.nodes.count",
        pool.name,
        show_bytes(wanted_bytes),
        pool.agents,
        show_bytes(pool.node_dram_bytes),
        show_bytes(available_bytes),
        show_bytes(RESERVE_BYTES),
    )))
}

/// Memory that new processes can have, in bytes: of the machine, and of the control groups that
/// this process is in.
fn available_bytes(root: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let machine = parse_meminfo(&text)?;
    let group = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut least = machine;
    if let Some(group) = group.lines().find_map(|line| line.strip_prefix("0::/")) {
        let base = root.join("sys/fs/cgroup");
        let mut place = base.join(group);
        while place.starts_with(&base) {
            least = least.min(group_bytes(&place).unwrap_or(u64::MAX));
            if !place.pop() {
                break;
            }
        }
    }
    Some(least)
}

/// What is left in one control group; `None` if it has no limit.
fn group_bytes(place: &Path) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(place.join(name)).ok();
    let max: u64 = read("memory.max")?.trim().parse().ok()?;
    let current: u64 = read("memory.current")?.trim().parse().ok()?;
    Some(max.saturating_sub(current))
}

fn parse_meminfo(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// What works, but with less than an agent of this pool would like; one sentence each. The agents
/// have the limits of this process.
pub(super) fn lacks(pool: &PoolSettings) -> Vec<String> {
    let inventory = Inventory::read(&SystemRoot::new(Path::new("/")), pool.node_dram_bytes);
    let needs = Needs {
        dram_bytes: pool.node_dram_bytes,
        slabs: pool.node_dram_bytes / pool.slab_bytes.max(1),
        connections: u64::from(CONNECTIONS_DEFAULT),
    };
    // An agent that cannot work at all says that itself.
    let verdict = limits::check(needs, inventory.memory.as_ref().ok(), &inventory.limits);
    let mut lacks = verdict.map(|all| all.warnings).unwrap_or_default();
    let locked = inventory.capability("memory_registration");
    lacks.extend(
        locked
            .filter(|one| !one.available)
            .map(|one| one.reason.clone()),
    );
    lacks
}

/// Refuses ports that somebody else has, or that are the same.
pub(super) fn check_ports(client_port: u16, admin_port: u16) -> Result<(), CliError> {
    if client_port == admin_port && client_port != 0 {
        return Err(CliError::Usage(format!(
            "--client-port and --admin-port are both {client_port}; choose two, or 0 for any free \
             one"
        )));
    }
    check_port("--client-port", client_port)?;
    check_port("--admin-port", admin_port)
}

/// So many free ports for masters that keep them over restarts. They lie below those that the
/// kernel gives to whoever asks for any (32768 and up by default), so that nobody gets one by
/// chance while its master is away. The search begins anywhere, so that two pools that start at a
/// time do not choose the same.
pub(super) fn free_ports(count: usize, taken: &[u16]) -> Result<Vec<u16>, CliError> {
    let begin = rand::random_range(PORTS.clone());
    let ports = (begin..PORTS.end).chain(PORTS.start..begin);
    let free = ports
        .filter(|port| !taken.contains(port))
        .filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
    let found: Vec<u16> = free.take(count).collect();
    if found.len() == count {
        return Ok(found);
    }
    Err(CliError::CannotStart(format!(
        "the masters need {count} free ports from {} to {}, and {} are free",
        PORTS.start,
        PORTS.end - 1,
        found.len()
    )))
}

fn check_port(option: &str, port: u16) -> Result<(), CliError> {
    if port == 0 {
        return Ok(());
    }
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(_) => Ok(()),
        Err(error) => Err(CliError::Usage(format!(
            "port {port} cannot be used ({error}); choose another with {option}, or 0 for any \
             free one"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn pool(agents: u32, node_dram_bytes: u64) -> PoolSettings {
        PoolSettings {
            namespace: "default".to_owned(),
            name: "big".to_owned(),
            masters: 1,
            master_storage: None,
            node_selector: std::collections::BTreeMap::new(),
            node_count: Some(agents),
            drain_deadline_s: 600,
            rack_label: "topology.larder.dev/rack".into(),
            agents,
            dram_tier: "dram".to_owned(),
            node_dram_bytes,
            slab_bytes: 2 << 20,
            replica_factor: 1,
            overcommit: larder_crds::Overcommit::Warn,
            master: larder_crds::MasterSettings::default(),
        }
    }

    #[test]
    fn more_memory_than_there_is_is_refused_with_both_numbers() {
        refuse_too_much(&pool(2, 1 << 30), (2 << 30) + RESERVE_BYTES).expect("it fits exactly");
        let error = refuse_too_much(&pool(2, 1 << 30), 2 << 30)
            .expect_err("too much")
            .to_string();
        assert!(
            error.contains("wants 2.0 GiB") && error.contains("2 agents"),
            "{error}"
        );
        assert!(
            error.contains("spec.tiers[0].size") && !error.contains('\n'),
            "{error}"
        );
    }

    #[test]
    fn the_least_of_machine_and_groups_counts() {
        let root = tempfile::tempdir().expect("a folder");
        let put = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("room");
            fs::write(path, text).expect("room");
        };
        assert_eq!(available_bytes(root.path()), None);
        put(
            "proc/meminfo",
            "MemTotal: 9000 kB\nMemAvailable:    8192 kB\n",
        );
        assert_eq!(available_bytes(root.path()), Some(8192 * 1024));
        put("proc/self/cgroup", "0::/a/b\n");
        put("sys/fs/cgroup/a/b/memory.max", "max\n");
        put("sys/fs/cgroup/a/b/memory.current", "1\n");
        put("sys/fs/cgroup/a/memory.max", "5000\n");
        put("sys/fs/cgroup/a/memory.current", "1000\n");
        assert_eq!(available_bytes(root.path()), Some(4000));
    }

    #[test]
    fn free_ports_are_all_different_and_below_those_of_the_kernel() {
        let first = free_ports(6, &[]).expect("free ones");
        let mut ports = free_ports(6, &first).expect("free ones");
        ports.extend(&first);
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 12);
        assert!(ports.iter().all(|port| PORTS.contains(port)));
    }

    #[test]
    fn a_taken_port_is_named() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = taken.local_addr().expect("bound").port();
        let error = check_port("--client-port", port)
            .expect_err("taken")
            .to_string();
        assert!(
            error.contains(&port.to_string()) && error.contains("--client-port"),
            "{error}"
        );
        check_port("--client-port", 0).expect("any");
    }
}
