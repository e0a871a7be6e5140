//! What may be typed of the commands that ask a master's admin port.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueHint};
use larder_client::AgentName;
use larder_master::snapshots::{BadName, SnapshotName};
use larder_types::TenantId;

use super::parse_duration;
use crate::bytes_text::parse_bytes;

/// What `quota` does.
#[derive(Debug, Subcommand)]
pub(crate) enum Quota {
    /// Explain the quota of this client's tenant, or of any by an administrator's token.
    Explain(Explain),
    /// List the quotas that tenants share. Needs an administrator's token.
    List(Administration),
}

/// Arguments of `quota explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// Id of a tenant; without it the tenant as which this client connects.
    // A name of its own, or it would stand in the place of `--tenant`.
    #[arg(id = "explained", value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    /// Size of an object that is to be put, as in 64Ki or 1Mi.
    #[arg(long, value_parser = parse_bytes)]
    pub(crate) size: Option<u64>,
    #[command(flatten)]
    pub(crate) administration: Administration,
}

/// Arguments of `promote`.
#[derive(Debug, clap::Args)]
pub(crate) struct Promote {
    /// Name of the master that is to lead, as `larder status` shows it.
    #[arg(value_name = "MASTER")]
    pub(crate) leader: String,
    #[command(flatten)]
    pub(crate) administration: Administration,
}

/// What `drain` does.
#[derive(Debug, Subcommand)]
pub(crate) enum Drain {
    /// Begin to move all objects off an agent; it takes nothing new.
    Start(DrainWait),
    /// Let an agent be filled again.
    Cancel(DrainedAgent),
    /// Say how much is left on an agent, and what is in the way.
    Status(DrainWait),
}

/// Arguments of `drain cancel`.
#[derive(Debug, clap::Args)]
pub(crate) struct DrainedAgent {
    /// Name of the agent; in a cluster that of its node.
    pub(crate) agent: AgentName,
    #[command(flatten)]
    pub(crate) administration: Administration,
}

/// Arguments of `drain start` and `drain status`.
#[derive(Debug, clap::Args)]
pub(crate) struct DrainWait {
    #[command(flatten)]
    pub(crate) of: DrainedAgent,
    /// Return once nothing is left on the agent.
    #[arg(long)]
    pub(crate) wait: bool,
    /// How long to wait for that at most, as in 30s or 10m.
    #[arg(long, requires = "wait", default_value = "60m", value_parser = parse_duration)]
    pub(crate) within: Duration,
}

/// What `tasks` does.
#[derive(Debug, Subcommand)]
pub(crate) enum Tasks {
    /// List tasks in the order in which they were asked for.
    List(TasksList),
    /// Show one task.
    Show(TaskNumber),
    /// End a task that is not over; what was copied stays.
    Cancel(TaskNumber),
}

/// Arguments of `tasks list`.
#[derive(Debug, clap::Args)]
pub(crate) struct TasksList {
    /// Only tasks of this tenant.
    #[arg(long, value_name = "TENANT")]
    pub(crate) of: Option<TenantId>,
    /// Only tasks that are not over.
    #[arg(long)]
    pub(crate) open: bool,
    /// Only tasks behind this one.
    #[arg(long, value_name = "TASK")]
    pub(crate) after: Option<u64>,
    /// At most so many.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) administration: Administration,
}

/// Arguments of `tasks show` and `tasks cancel`.
#[derive(Debug, clap::Args)]
pub(crate) struct TaskNumber {
    /// Number of the task.
    pub(crate) task: u64,
    #[command(flatten)]
    pub(crate) administration: Administration,
}

/// What `snapshot` does.
#[derive(Debug, Subcommand)]
pub(crate) enum Snapshot {
    /// Take a snapshot, and return once it is there.
    Take(TakeSnapshot),
    /// List the snapshots that the master keeps.
    List(Administration),
    /// Delete a snapshot.
    Delete(NamedSnapshot),
}

/// Arguments of `snapshot take`.
#[derive(Debug, clap::Args)]
pub(crate) struct TakeSnapshot {
    #[command(flatten)]
    pub(crate) of: NamedSnapshot,
    /// How long to wait until it is there, as in 30s or 10m.
    #[arg(long, default_value = "10m", value_parser = parse_duration)]
    pub(crate) within: Duration,
}

/// Arguments of `snapshot delete`.
#[derive(Debug, clap::Args)]
pub(crate) struct NamedSnapshot {
    /// Name of the snapshot: at most 63 of a-z, 0-9 and -.
    #[arg(value_parser = parse_name)]
    pub(crate) name: SnapshotName,
    #[command(flatten)]
    pub(crate) administration: Administration,
}

fn parse_name(text: &str) -> Result<SnapshotName, BadName> {
    SnapshotName::new(text)
}

/// Where a master is asked by an administrator. Without it the run folder of `larder up` says.
#[derive(Debug, clap::Args)]
pub(crate) struct Administration {
    /// Administration port of the master that leads, as host:port.
    #[arg(long, requires = "admin_token_file")]
    pub(crate) admin: Option<String>,
    /// File with the token of an administrator or the operator.
    #[arg(long, value_hint = ValueHint::FilePath)]
    pub(crate) admin_token_file: Option<PathBuf>,
}
