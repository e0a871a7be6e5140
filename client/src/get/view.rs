//! Views: the bytes of an object that the agent on this node holds, in place.

use larder_transfer::transport::View;
use larder_types::Key;
use larder_wire::checksum::digest;
use larder_wire::master::ObjectGrant;
use tokio::time::Instant;

use super::Failure;
use crate::agents::Route;
use crate::error::ClientError;
use crate::put::transfer;
use crate::session::{Next, ReadFault, after_get};
use crate::{Client, fault};

impl Client {
    /// Holds an object's bytes in place, without a copy. Only for objects that the agent on this
    /// node holds in one piece, see [`Client::get`] for others; the bytes stay until the view is
    /// dropped, also when the object is removed.
    ///
    /// # Errors
    /// [`ClientError::NotLocal`] without such an agent or replica; as [`Client::get`] otherwise.
    pub async fn get_view(&self, key: Key) -> Result<View, ClientError> {
        let deadline = self.deadline();
        let mut asks = 1;
        loop {
            let mut located = self.locate(vec![key.clone()], deadline).await?;
            let route = self.inner.agents.route(&located.agents);
            let object = located.objects.pop();
            let none = ClientError::Answer {
                detail: "no object",
            };
            let grant = object.ok_or(none)??;
            let failure = match self.view_object(&route, &grant, deadline).await {
                Ok(view) => return Ok(view),
                Err(failure) => failure,
            };
            let left = deadline.saturating_duration_since(Instant::now());
            match after_get(&failure.faults, asks, left, rand::random()) {
                Next::Again(pause) => tokio::time::sleep(pause).await,
                Next::Fail => return Err(failure.error),
            }
            asks += 1;
        }
    }

    async fn view_object(
        &self,
        route: &Route,
        grant: &ObjectGrant,
        deadline: Instant,
    ) -> Result<View, Failure> {
        let not_local = |detail: String| Failure {
            error: ClientError::NotLocal { detail },
            faults: Vec::new(),
        };
        let Some(local) = route.local() else {
            return Err(not_local(self.inner.agents.why_no_local()));
        };
        let near = grant
            .replicas
            .iter()
            .find_map(|replica| match replica.extents.as_slice() {
                [(extent, capability)] if route.is_local(extent.slab.agent) => Some(capability),
                _ => None,
            });
        let Some(capability) = near else {
            return Err(not_local(
                "no replica in one piece is on this node".to_owned(),
            ));
        };
        match local.open_view(capability, deadline).await {
            Ok(view) if digest(view.block_crcs(), view.len() as u64) == grant.digest => Ok(view),
            Ok(_) => Err(Failure {
                error: ClientError::Corrupt,
                faults: vec![ReadFault::Corrupt],
            }),
            Err(error) => {
                let faults = vec![fault::of_read(&error)];
                Err(Failure {
                    error: transfer("on this node", error),
                    faults,
                })
            }
        }
    }
}
