//! In place of `cache_node` in a build without Kubernetes: every use of it is refused.

use std::convert::Infallible;
use std::io;
use std::thread::JoinHandle;

use tokio::sync::watch;

use crate::flags::CacheNodeRef;
use crate::membership::{Facts, Parting};
use crate::step::Status;

/// Why a CacheNode cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum CacheNodeError {
    /// Always.
    #[error(
        "--cache-node {0}: this program was built without Kubernetes; take larder-agent, or leave \
         the flag out"
    )]
    NotBuilt(CacheNodeRef),
}

/// There is none.
#[derive(Clone, Debug)]
pub struct Member(Infallible);

impl Member {
    /// Refuses.
    ///
    /// # Errors
    /// [`CacheNodeError::NotBuilt`], always.
    #[expect(clippy::unused_async, reason = "the other build waits here")]
    pub async fn find(
        node: CacheNodeRef,
        _pod_uid: Option<String>,
    ) -> Result<Self, CacheNodeError> {
        Err(CacheNodeError::NotBuilt(node))
    }
}

pub(crate) fn spawn(
    member: Member,
    _facts: &Facts<'_>,
    _seed: u64,
    _status: watch::Receiver<Status>,
    _stop: watch::Receiver<bool>,
) -> io::Result<JoinHandle<Parting>> {
    match member.0 {}
}
