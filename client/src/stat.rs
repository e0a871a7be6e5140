//! What is known of objects, and what protects them.

use std::collections::BTreeMap;

use larder_types::{AgentId, AgentName, Key, Pin};
use larder_wire::CallResult;
use larder_wire::master::{ListStats, ListedStats, ObjectStat, Pin as PinCall, Stat, Stats};

use crate::batch::{cut, key_bytes};
use crate::connection::Request;
use crate::error::ClientError;
use crate::{Client, only};

/// What is known of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownObject {
    /// Version, size, replicas, pin and so on.
    pub stat: ObjectStat,
    /// The names of the agents of its replicas, as far as the master knows them.
    pub agents: Vec<AgentName>,
}

impl Client {
    /// What is known of an object. Protects nothing.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn stat(&self, key: Key) -> Result<KnownObject, ClientError> {
        only(self.stat_batch(vec![key]).await)
    }

    /// What is known of objects. Each result belongs to the key at its place.
    pub async fn stat_batch(&self, keys: Vec<Key>) -> Vec<Result<KnownObject, ClientError>> {
        let deadline = self.deadline();
        let mut results = Vec::with_capacity(keys.len());
        let runs = cut(keys.iter().map(|key| key_bytes(key.as_bytes().len())));
        let mut keys = keys.into_iter();
        for run in runs {
            let count = run.len();
            let request = Request::Stat(Stat {
                keys: keys.by_ref().take(count).collect(),
            });
            match self.inner.master.call::<Stats>(request, deadline).await {
                Ok(answered) if answered.answer.objects.len() == count => {
                    let Stats { agents, objects } = answered.answer;
                    let names: BTreeMap<AgentId, AgentName> = agents.into_iter().collect();
                    let known = |one: CallResult<ObjectStat>| {
                        let stat = one.map_err(ClientError::from)?;
                        let named = stat.agents.iter().filter_map(|id| names.get(id).cloned());
                        let agents = named.collect();
                        Ok(KnownObject { stat, agents })
                    };
                    results.extend(objects.into_iter().map(known));
                }
                Ok(_) => {
                    let detail = "the number of results is wrong";
                    results.extend((0..count).map(|_| Err(ClientError::Answer { detail })));
                }
                Err(error) => results.extend((0..count).map(|_| Err(error.clone()))),
            }
        }
        results
    }

    /// Lists objects whose keys start with `prefix`, in order, after `after`; at most 1,000 at a
    /// time.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn list_stats(
        &self,
        prefix: &[u8],
        after: Option<Key>,
        limit: u32,
    ) -> Result<ListedStats, ClientError> {
        let request = Request::ListStats(ListStats {
            prefix: prefix.to_vec(),
            after,
            limit,
        });
        let answered = self.inner.master.call(request, self.deadline()).await?;
        Ok(answered.answer)
    }

    /// Protects an object from eviction: with [`Pin::Hard`] until it is unpinned, with
    /// [`Pin::Soft`] for a time; 0 ms is that of the pool.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `NotFound`, `QuotaPinnedBytes` and others of
    /// [`crate::Reason`]; [`ClientError::ConnectionLost`] as [`Client::remove`].
    pub async fn pin(&self, key: Key, pin: Pin) -> Result<(), ClientError> {
        only(self.pin_batch(vec![(key, pin)]).await)
    }

    /// Takes the pin of an object away.
    ///
    /// # Errors
    /// As [`Client::pin`].
    pub async fn unpin(&self, key: Key) -> Result<(), ClientError> {
        self.pin(key, Pin::None).await
    }

    /// Sets the pins of objects. Each result belongs to the item at its place.
    pub async fn pin_batch(&self, items: Vec<(Key, Pin)>) -> Vec<Result<(), ClientError>> {
        let (keys, pins): (Vec<Key>, Vec<Pin>) = items.into_iter().unzip();
        let mut pins = pins.into_iter();
        self.per_key(keys, |keys| {
            let items = keys.into_iter().zip(pins.by_ref()).collect();
            Request::Pin(PinCall { items })
        })
        .await
    }
}
