//! Limits of this process, compared with what the configuration needs.
//!
//! What cannot work is refused at the start with the figure that is needed; what works with less
//! is said in the log or as a capability.

use larder_types::layout::{FULL_CACHE_OBJECT_BYTES, PAGES_SHARE, RECORD_MEMORY_BYTES};

use super::memory::Memory;
use super::{Lack, SystemRoot};

const LIMITS: &str = "proc/self/limits";
const MAP_COUNT: &str = "proc/sys/vm/max_map_count";
const STATUS: &str = "proc/self/status";
/// Bit of `CAP_IPC_LOCK`: the kernel then asks for no limit on locked memory.
const CAP_IPC_LOCK: u64 = 1 << 14;

/// Each slab is a memory file and a file of records: descriptors, and mappings.
const FILES_PER_SLAB: u64 = 2;
/// Listeners, runtimes, state files, the master and scrapes of metrics.
const FILES_BASE: u64 = 64;
/// A connection holds its socket and, when descriptors are passed over it, a few more for a
/// moment.
const FILES_PER_CONNECTION: u64 = 2;
/// The program, its libraries, threads and allocator.
const MAPS_BASE: u64 = 1024;
/// Besides the slabs: the program (12 MiB, measured), connections, buffers.
const MEMORY_BASE_BYTES: u64 = 32 << 20;

/// A limit of the kind that a process may raise for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What holds now; `None` = no limit.
    pub soft: Option<u64>,
    /// How far it may be raised.
    pub hard: Option<u64>,
}

/// What this process may use; `Err` says why that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open files.
    pub open_files: Result<Limit, Lack>,
    /// Memory locked for devices, in bytes.
    pub locked_bytes: Result<Limit, Lack>,
    /// Whether the limit on locked memory does not count for this process.
    pub may_lock: bool,
    /// Memory mappings.
    pub map_count: Result<u64, Lack>,
}

/// What the configuration needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Memory of all slabs, in bytes.
    pub dram_bytes: u64,
    /// How many slabs.
    pub slabs: u64,
    /// The most connections.
    pub connections: u64,
}

/// Why the agent cannot run with this configuration here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Too little memory.
    #[error(
        "the configured {dram_bytes} bytes of cache need {needed_bytes} bytes of memory, but \
         {bound} is {usable_bytes} bytes; lower dram_bytes (the size of the tier) or free memory"
    )]
    Memory {
        /// What is configured.
        dram_bytes: u64,
        /// With what comes on top.
        needed_bytes: u64,
        /// What there is.
        usable_bytes: u64,
        /// What sets that.
        bound: &'static str,
    },
    /// Too few open files for the slabs alone.
    #[error(
        "{slabs} slabs need {needed} open files, but the limit is {limit}; raise it (ulimit -n \
         {needed}, LimitNOFILE={needed}) or take a larger slab_bytes"
    )]
    OpenFiles {
        /// How many slabs.
        slabs: u64,
        /// How many files.
        needed: u64,
        /// How many are allowed.
        limit: u64,
    },
    /// Too few mappings.
    #[error(
        "{slabs} slabs need {needed} memory mappings, but vm.max_map_count is {limit}; raise it \
         (sysctl -w vm.max_map_count={needed}) or take a larger slab_bytes"
    )]
    Mappings {
        /// How many slabs.
        slabs: u64,
        /// How many mappings.
        needed: u64,
        /// How many are allowed.
        limit: u64,
    },
}

/// What works, but with less than was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Sentences for the log.
    pub warnings: Vec<String>,
    /// The soft limit of open files is to be raised to this.
    pub raise_open_files: Option<u64>,
    /// How many connections the limit of open files allows; never more than asked for.
    pub connections: u64,
    /// How many extents may be described before memory ends; `None` if memory is not known.
    pub records: Option<u64>,
}

/// Reads the limits.
#[must_use]
pub fn read(root: &SystemRoot) -> Limits {
    let text = root.text(LIMITS);
    let limit = |name: &str, wanted: &'static str| {
        let text = text.clone()?;
        let garbage = Lack::Garbage {
            path: LIMITS.to_owned(),
            wanted,
        };
        parse(&text, name).ok_or(garbage)
    };
    Limits {
        open_files: limit("Max open files", "the limit of open files"),
        locked_bytes: limit("Max locked memory", "the limit of locked memory"),
        may_lock: effective_capabilities(root).is_some_and(|bits| bits & CAP_IPC_LOCK != 0),
        map_count: root.value(MAP_COUNT),
    }
}

fn parse(text: &str, name: &str) -> Option<Limit> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = rest.split_whitespace().map(|word| match word {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    });
    Some(Limit {
        soft: words.next()??,
        hard: words.next()??,
    })
}

fn effective_capabilities(root: &SystemRoot) -> Option<u64> {
    let status = root.text(STATUS).ok()?;
    let bits = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(bits.trim(), 16).ok()
}

/// Compares limits with needs.
///
/// # Errors
/// [`LimitError`]: it cannot work.
pub fn check(
    needs: Needs,
    memory: Option<&Memory>,
    limits: &Limits,
) -> Result<Verdict, LimitError> {
    let mut verdict = Verdict {
        connections: needs.connections,
        ..Verdict::default()
    };
    match memory {
        Some(memory) => check_memory(needs, memory, &mut verdict)?,
        None => verdict.warnings.push(
            "the memory of this machine is not known; whether the cache fits shows in use".into(),
        ),
    }
    match &limits.map_count {
        Ok(limit) => check_mappings(needs, *limit)?,
        Err(lack) => verdict
            .warnings
            .push(format!("the limit of mappings is not known: {lack}")),
    }
    match &limits.open_files {
        Ok(limit) => check_open_files(needs, *limit, &mut verdict)?,
        Err(lack) => verdict
            .warnings
            .push(format!("the limit of open files is not known: {lack}")),
    }
    Ok(verdict)
}

fn check_memory(needs: Needs, memory: &Memory, verdict: &mut Verdict) -> Result<(), LimitError> {
    let dram_bytes = needs.dram_bytes;
    let overhead_bytes = MEMORY_BASE_BYTES + dram_bytes / PAGES_SHARE;
    let needed_bytes = dram_bytes.saturating_add(overhead_bytes);
    let (usable_bytes, bound) = memory.usable();
    if needed_bytes > usable_bytes {
        return Err(LimitError::Memory {
            dram_bytes,
            needed_bytes,
            usable_bytes,
            bound,
        });
    }
    let records = (usable_bytes - needed_bytes) / RECORD_MEMORY_BYTES;
    verdict.records = Some(records);
    let object_bytes = dram_bytes / records.max(1);
    if object_bytes > FULL_CACHE_OBJECT_BYTES {
        let wanted = dram_bytes / FULL_CACHE_OBJECT_BYTES * RECORD_MEMORY_BYTES;
        let wanted = needed_bytes.saturating_add(wanted);
        verdict.warnings.push(format!(
            "{bound} is {usable_bytes} bytes, which leaves room for {records} records: objects of \
             less than {object_bytes} bytes on average are refused before the cache is full; raise \
             the limit to {wanted} bytes, or lower dram_bytes (the size of the tier)"
        ));
    }
    Ok(())
}

fn check_mappings(needs: Needs, limit: u64) -> Result<(), LimitError> {
    // Slab and records, and of each connection one buffer that is being copied from.
    let needed = MAPS_BASE
        .saturating_add(needs.slabs.saturating_mul(FILES_PER_SLAB))
        .saturating_add(needs.connections);
    if needed <= limit {
        return Ok(());
    }
    Err(LimitError::Mappings {
        slabs: needs.slabs,
        needed,
        limit,
    })
}

fn check_open_files(needs: Needs, limit: Limit, verdict: &mut Verdict) -> Result<(), LimitError> {
    let for_slabs = FILES_BASE.saturating_add(needs.slabs.saturating_mul(FILES_PER_SLAB));
    let for_all = for_slabs.saturating_add(needs.connections.saturating_mul(FILES_PER_CONNECTION));
    let (soft, hard) = (
        limit.soft.unwrap_or(u64::MAX),
        limit.hard.unwrap_or(u64::MAX),
    );
    if for_all <= soft {
        return Ok(());
    }
    // At least one connection, or there is no point in starting.
    let least = for_slabs.saturating_add(FILES_PER_CONNECTION);
    if hard < least {
        return Err(LimitError::OpenFiles {
            slabs: needs.slabs,
            needed: for_all,
            limit: hard,
        });
    }
    let reachable = hard.min(for_all);
    verdict.raise_open_files = Some(reachable.max(soft));
    if reachable < for_all {
        verdict.connections = (reachable - for_slabs) / FILES_PER_CONNECTION;
        verdict.warnings.push(format!(
            "{} connections and {} slabs need {for_all} open files, but the limit is {hard}: only \
             {} connections are taken; raise it (ulimit -n {for_all}, LimitNOFILE={for_all})",
            needs.connections, needs.slabs, verdict.connections
        ));
    }
    Ok(())
}
