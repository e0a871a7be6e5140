//! The client library: put, get, exists and remove objects of a pool.
//!
//! ```text
//! session      pure: what is repeated, which replica is read, when a put starts again
//! connection   one connection to a master, shared by all calls, reconnected
//! agents       transports to agents: shared memory on this node, tcp to the others
//! put, get     the two walks through them
//! ```
//!
//! Every call has a deadline, and a form for many keys that costs one round trip to the master
//! for up to a thousand of them. A put is complete on every replica, or it is not there. A get
//! returns exactly the bytes of one put, or an error.
//!
//! Dropping the future of a call stops it: a put that was under way is given up at the master.

mod agents;
mod batch;
mod connection;
mod error;
mod events;
mod fault;
mod get;
mod local;
mod options;
mod put;
mod removal;
pub mod session;
mod stat;
mod tasks;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use larder_transfer::transport::SessionSource;
use larder_types::Incarnation;
use larder_wire::CallResult;
use larder_wire::master::{Exists, List, Usage};
use tokio::time::Instant;

use crate::agents::Agents;
use crate::batch::{cut, key_bytes};
use crate::connection::{Answered, Master, Request};
use crate::local::Local;

pub use error::ClientError;
pub use events::EventStream;
pub use events::follow::{GoneCause, Update};
pub use larder_transfer::SharedBuffer;
pub use larder_transfer::transport::View;
pub use larder_types::{
    AgentId, AgentName, Attributes, DataType, Digest, ErrorCode, GroupId, Key, KeyError, Pin,
    Principal, Reason, TaskId, Version,
};
pub use larder_wire::master::{
    Listed, ListedStats, ObjectStat, PutMode, RemovedSome, TaskStatus, TaskWish, TenantUsage,
};
pub use options::{ClientOptions, Credential, DEFAULT_DEADLINE};
pub use put::{PutInfo, PutOptions};
pub use stat::KnownObject;

/// Reaches one pool as one tenant. Clones share everything but their deadline.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
    limit: Duration,
}

#[derive(Debug)]
struct Inner {
    master: Master,
    agents: Agents,
    principal: Principal,
    /// 0 = as the pool says.
    replicas: u8,
}

/// What is known about an object that was put or got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Which put of the key.
    pub version: Version,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// The digest of its bytes.
    pub digest: Digest,
}

impl Client {
    /// Connects to a master and, if its socket is given, to the agent on this node. Without that
    /// agent everything goes by tcp, and a warning is logged.
    ///
    /// # Errors
    /// [`ClientError::HelloRefused`] if the token proves nothing, [`ClientError::Unreachable`] if
    /// no master answers, [`ClientError::DeadlinePassed`] if one hangs,
    /// [`ClientError::BadArgument`] without masters.
    pub async fn connect(options: ClientOptions) -> Result<Self, ClientError> {
        if options.masters.is_empty() {
            let detail = "give the address of at least one master, as host:port".to_owned();
            return Err(ClientError::BadArgument { detail });
        }
        let deadline = Instant::now() + options.default_deadline;
        let incarnation = Incarnation(rand::random_range(1..=u64::MAX));
        let (master, tokens) = Master::start(&options, incarnation);
        let session = master.connected(deadline, options.wait_for_master).await?;
        let source = SessionSource::new(tokens, &options.name, incarnation);
        let local = match options.agent_socket {
            None => Local::off(),
            Some(socket) => {
                let mut local = Local::start(socket, source.clone());
                local.settled(options.default_deadline).await;
                local
            }
        };
        let agents = Agents::new(local, source);
        let principal = session.principal.clone();
        let replicas = options.replicas.unwrap_or(0);
        let inner = Arc::new(Inner {
            master,
            agents,
            principal,
            replicas,
        });
        Ok(Self {
            inner,
            limit: options.default_deadline,
        })
    }

    /// The same client with another deadline for each of its calls.
    #[must_use]
    pub fn with_deadline(&self, limit: Duration) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            limit,
        }
    }

    /// Who the token proved this client to be.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.inner.principal
    }

    /// Why bytes do not go through shared memory; `None` if they do where an object is on this
    /// node.
    #[must_use]
    pub fn why_not_local(&self) -> Option<String> {
        match self.inner.agents.local() {
            Some(_) => None,
            None => Some(self.inner.agents.why_no_local()),
        }
    }

    /// When a call that starts now must be done.
    fn deadline(&self) -> Instant {
        Instant::now() + self.limit
    }

    /// Puts an object. Its bytes are complete on every replica when this returns.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `AlreadyExists`, `QuotaBytes`, `NoSpace` and others of
    /// [`Reason`]; then nothing of the object stays.
    pub async fn put(&self, key: Key, value: Bytes) -> Result<ObjectInfo, ClientError> {
        only(self.put_batch(vec![(key, value)]).await)
    }

    /// Puts an object, or replaces the one that the key holds. Readers get the former object until
    /// this one is complete; a put that fails leaves it.
    ///
    /// # Errors
    /// As [`Client::put`], but for `AlreadyExists`.
    pub async fn upsert(&self, key: Key, value: Bytes) -> Result<ObjectInfo, ClientError> {
        let done = self.put_with(key, value, &PutOptions::upsert()).await?;
        Ok(done.object)
    }

    /// Puts an object as `options` say.
    ///
    /// # Errors
    /// As [`Client::put`]; with options also `LeaseHeld` and `QuotaPinnedBytes`.
    pub async fn put_with(
        &self,
        key: Key,
        value: Bytes,
        options: &PutOptions,
    ) -> Result<PutInfo, ClientError> {
        only(self.put_batch_with(vec![(key, value)], options).await)
    }

    /// Gets an object.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `NotFound` and others of [`Reason`],
    /// [`ClientError::Corrupt`] if no replica gives the bytes that were put.
    pub async fn get(&self, key: Key) -> Result<Bytes, ClientError> {
        only(self.get_batch(vec![key]).await)
    }

    /// Gets an object behind what `buffer` holds, and gives the buffer back; after an error it
    /// is as before. Using one buffer again and again spares the page faults of fresh memory.
    pub async fn get_into(
        &self,
        key: Key,
        buffer: BytesMut,
    ) -> (BytesMut, Result<ObjectInfo, ClientError>) {
        let mut read = self.read(vec![(key, buffer)], self.deadline()).await;
        read.pop().unwrap_or_else(|| {
            (
                BytesMut::new(),
                Err(ClientError::Answer {
                    detail: "an item has no result",
                }),
            )
        })
    }

    /// Whether a key holds an object.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn exists(&self, key: Key) -> Result<bool, ClientError> {
        only(self.exists_batch(vec![key]).await)
    }

    /// Which of the keys hold objects. Each result belongs to the key at its place.
    pub async fn exists_batch(&self, keys: Vec<Key>) -> Vec<Result<bool, ClientError>> {
        self.probe_batch(keys, false).await
    }

    /// As [`Client::exists_batch`]; with `lease`, what is there is protected from eviction for a
    /// while, as a get would, but only once until its next get or put.
    pub async fn probe_batch(&self, keys: Vec<Key>, lease: bool) -> Vec<Result<bool, ClientError>> {
        self.per_key(keys, |keys| Request::Exists(Exists { keys, lease }))
            .await
    }

    /// Lists keys that start with `prefix`, in order, after `after`; at most 1,024 at a time.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn list(
        &self,
        prefix: &[u8],
        after: Option<Key>,
        limit: u32,
    ) -> Result<Listed, ClientError> {
        let request = Request::List(List {
            prefix: prefix.to_vec(),
            after,
            limit,
        });
        Ok(self
            .inner
            .master
            .call(request, self.deadline())
            .await?
            .answer)
    }

    /// What this tenant uses, its limits, and the size of the pool.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn usage(&self) -> Result<TenantUsage, ClientError> {
        let request = Request::Usage(Usage {});
        Ok(self
            .inner
            .master
            .call(request, self.deadline())
            .await?
            .answer)
    }

    /// Follows this tenant's cache: what is there now, then what comes and goes. Costs nothing
    /// until it is asked for the first update.
    #[must_use]
    pub fn events(&self) -> EventStream {
        EventStream::new(self.clone())
    }

    /// Memory that the agent on this node can read: an object put from it is not copied on the
    /// way to the agent. Fill it, then [`Client::lend`] it.
    ///
    /// # Errors
    /// [`ClientError::NotLocal`] without such an agent, or if there is no memory.
    pub async fn shared_buffer(&self, bytes: u64) -> Result<SharedBuffer, ClientError> {
        let Some(local) = self.inner.agents.local() else {
            return Err(ClientError::NotLocal {
                detail: self.inner.agents.why_no_local(),
            });
        };
        local.buffer(bytes).map_err(|error| ClientError::NotLocal {
            detail: error.to_string(),
        })
    }

    /// Makes bytes to put of a filled buffer. Any part of them can be put.
    #[must_use]
    pub fn lend(&self, buffer: SharedBuffer) -> Bytes {
        match self.inner.agents.local() {
            Some(local) => local.lend(buffer),
            // The agent went away: still bytes, only not shared ones.
            None => Bytes::from_owner(buffer),
        }
    }

    /// Calls the master for many keys.
    async fn per_key<T: serde::de::DeserializeOwned>(
        &self,
        keys: Vec<Key>,
        mut request: impl FnMut(Vec<Key>) -> Request,
    ) -> Vec<Result<T, ClientError>> {
        let deadline = self.deadline();
        let runs = cut(keys.iter().map(|key| key_bytes(key.as_bytes().len())));
        let mut keys = keys.into_iter();
        let mut results = Vec::with_capacity(keys.len());
        for run in runs {
            let count = run.len();
            let some = keys.by_ref().take(count).collect();
            let answered: Result<Answered<Vec<CallResult<T>>>, _> =
                self.inner.master.call(request(some), deadline).await;
            match answered {
                Ok(answered) if answered.answer.len() == count => {
                    let each = answered.answer.into_iter();
                    results.extend(each.map(|one| one.map_err(ClientError::from)));
                }
                Ok(_) => {
                    let error = ClientError::Answer {
                        detail: "the number of results is wrong",
                    };
                    results.extend((0..count).map(|_| Err(error.clone())));
                }
                Err(error) => results.extend((0..count).map(|_| Err(error.clone()))),
            }
        }
        results
    }
}

/// The result of a batch of one.
fn only<T>(mut results: Vec<Result<T, ClientError>>) -> Result<T, ClientError> {
    results.pop().unwrap_or(Err(ClientError::Answer {
        detail: "an item has no result",
    }))
}
