//! Store commands into those that agents know.

use larder_store::{Command as StoreCommand, State};
use larder_wire::agent::Command;

/// A command as agents know it; the tenant's limit of views goes along with its slab.
pub(crate) fn wire_command(command: StoreCommand, state: &State) -> Command {
    match command {
        StoreCommand::SlabGive {
            slab,
            tenant,
            slab_bytes,
        } => {
            let view_bytes = state
                .tenant(&tenant)
                .and_then(|known| known.policy().view_bytes);
            Command::SlabGive {
                slab,
                tenant,
                slab_bytes,
                view_bytes,
            }
        }
        StoreCommand::SlabTake { slab } => Command::SlabTake { slab },
        StoreCommand::Erase { extent, version } => Command::Erase { extent, version },
        StoreCommand::TenantGone { tenant } => Command::TenantGone { tenant },
    }
}
