//! Store commands into those that agents know.

use larder_store::Command as StoreCommand;
use larder_wire::agent::Command;

use super::answer::Desk;
use super::copy;

/// A command as agents know it; the tenant's limit of views goes along with its slab. `None` if
/// it names an agent that is not mounted: the store asks again.
pub(crate) fn wire_command(command: StoreCommand, desk: &Desk<'_>) -> Option<Command> {
    Some(match command {
        StoreCommand::SlabGive {
            slab,
            tenant,
            slab_bytes,
        } => {
            let view_bytes = desk
                .state
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
        StoreCommand::Copy(order) => Command::Copy(Box::new(copy::copy_order(&order, desk)?)),
    })
}
