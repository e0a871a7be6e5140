//! Whether the node still belongs to its pool when the agent stops, and what is removed if not.
//!
//! An agent that is only restarted keeps its folders: engines have the socket's folder mounted,
//! and the state says which leaders are of the past. When the membership is over, nobody else
//! would remove them.

use std::path::Path;

use larder_types::Incarnation;

use crate::inventory::Inventory;
use crate::socket;
use crate::state_dir::StateDir;

/// What the CacheNode tells of an agent for as long as that runs.
#[cfg_attr(
    not(feature = "kubernetes"),
    expect(dead_code, reason = "there is no CacheNode")
)]
#[derive(Clone, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) inventory: &'a Inventory,
    pub(crate) incarnation: Incarnation,
    /// As told to clients.
    pub(crate) address: &'a str,
    pub(crate) segments: usize,
    pub(crate) slab_bytes: u64,
    /// Bytes of all slabs.
    pub(crate) total_bytes: u64,
}

/// What the API server said while the agent stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// The node still belongs to the pool: the agent comes back.
    Stays,
    /// The node has left the pool, or the pool is gone.
    Left,
    /// The pool is gone, and another of the same name has this node. Its agent uses the same
    /// folder for its socket, and engines may have it mounted already.
    Replaced,
    /// Nobody could say.
    Unknown,
}

/// Removes what an agent that does not come back would leave on its node. Its own socket is gone
/// already. What cannot be removed is said in the log: nobody waits for it.
pub(crate) fn remove_folders(parting: Parting, socket_path: &Path, state_dir: &StateDir) {
    match parting {
        Parting::Stays => return,
        Parting::Unknown => {
            tracing::warn!(
                socket = %socket_path.display(),
                state = %state_dir.path().display(),
                "nobody could say whether this node still belongs to the pool, so the folders of \
                 its agent stay; if it does not, remove them by hand"
            );
            return;
        }
        Parting::Left => {
            if let Err(error) = socket::remove_folder(socket_path) {
                tracing::warn!(%error, "the folder of the socket stays");
            }
        }
        Parting::Replaced => {}
    }
    match state_dir.remove() {
        Ok(()) => tracing::info!("this node has left the pool; the agent's folders are removed"),
        Err(error) => tracing::warn!(%error, "the state folder stays"),
    }
}
