//! Puts: start, write every replica, end; whatever fails is given up before its caller hears.

mod item;
mod options;
mod reserved;
mod write;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use larder_transfer::transport::TransferError;
use larder_types::{Key, SessionId, Version};
use larder_wire::master::{PutEnd, PutEndItem, PutGrant, PutStart, PutStartItem, PutStarted};
use larder_wire::{CallResult, Receipt};
use tokio::time::Instant;

use self::item::{Item, checked};
pub use self::options::{PutInfo, PutOptions};
use self::reserved::Reserved;
use crate::agents::Route;
use crate::batch::{cut, put_bytes};
use crate::connection::Request;
use crate::error::ClientError;
use crate::session::{Next, PutFault, after_put};
use crate::{Client, ObjectInfo};

/// Objects of one batch whose bytes move at a time. With 16 lanes an agent that is enough to keep
/// two of them busy; each object in flight holds no memory but its own.
pub(crate) const IN_FLIGHT: usize = 32;

/// Why a put of one item did not come about.
struct Failure {
    error: ClientError,
    /// `None`: another attempt is of no use.
    fault: Option<PutFault>,
}

/// What a put was granted.
#[derive(Clone, Copy)]
struct Granted {
    version: Version,
    replicas: u8,
    wanted: u8,
    preference_ignored: bool,
}

impl Granted {
    fn of(grant: &PutGrant) -> Self {
        Self {
            version: grant.version,
            replicas: u8::try_from(grant.replicas.len()).unwrap_or(u8::MAX),
            wanted: grant.wanted,
            preference_ignored: grant.preference_ignored,
        }
    }

    fn info(self, item: &Item) -> PutInfo {
        PutInfo {
            object: ObjectInfo {
                version: self.version,
                size_bytes: item.value.len() as u64,
                digest: item.digest,
            },
            replicas: self.replicas,
            wanted: self.wanted,
            preference_ignored: self.preference_ignored,
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self { error, fault: None }
    }
}

impl Client {
    /// Puts objects. Each result belongs to the item at its place; the order of the writes is not
    /// defined. Objects that exist already are refused with `AlreadyExists`.
    pub async fn put_batch(
        &self,
        items: Vec<(Key, Bytes)>,
    ) -> Vec<Result<ObjectInfo, ClientError>> {
        let done = self.put_batch_with(items, &PutOptions::default()).await;
        let object = |one: Result<PutInfo, _>| one.map(|info| info.object);
        done.into_iter().map(object).collect()
    }

    /// Puts objects that all have the same options. Each result belongs to the item at its place.
    pub async fn put_batch_with(
        &self,
        items: Vec<(Key, Bytes)>,
        options: &PutOptions,
    ) -> Vec<Result<PutInfo, ClientError>> {
        let deadline = self.deadline();
        let named = options
            .attributes
            .group
            .as_ref()
            .map_or(0, |g| g.as_str().len());
        let more_bytes = preferred_bytes(options) + named;
        let runs = cut(items
            .iter()
            .map(|(key, value)| put_bytes(key.as_bytes().len() + more_bytes, value.len())));
        let mut items = items.into_iter();
        let mut results = Vec::new();
        for run in runs {
            let mut ready = Vec::with_capacity(run.len());
            for (key, value) in items.by_ref().take(run.len()) {
                ready.push(checked(key, value).await);
            }
            self.put_run(&ready, options, deadline, &mut results).await;
        }
        results
    }

    /// Puts the items of one call, starting those again that deserve it.
    async fn put_run(
        &self,
        items: &[Item],
        options: &PutOptions,
        deadline: Instant,
        results: &mut Vec<Result<PutInfo, ClientError>>,
    ) {
        let mut done: Vec<Option<Result<PutInfo, ClientError>>> = vec![None; items.len()];
        let mut open: Vec<usize> = (0..items.len()).collect();
        let mut starts = 1;
        while !open.is_empty() {
            let outcomes = self
                .put_round((items, options), &open, starts > 1, deadline)
                .await;
            let left = deadline.saturating_duration_since(Instant::now());
            let random = rand::random();
            let mut again = Vec::new();
            let mut pause = Duration::ZERO;
            for (at, outcome) in open.into_iter().zip(outcomes) {
                let failure = match outcome {
                    Ok(granted) => {
                        done[at] = Some(Ok(granted.info(&items[at])));
                        continue;
                    }
                    Err(failure) => failure,
                };
                match failure
                    .fault
                    .map(|fault| after_put(fault, starts, left, random))
                {
                    Some(Next::Again(after)) => {
                        let error = &failure.error;
                        tracing::debug!(key = %items[at].key, %error, "start again");
                        pause = pause.max(after);
                        again.push(at);
                    }
                    Some(Next::Fail) | None => done[at] = Some(Err(failure.error)),
                }
            }
            open = again;
            if !open.is_empty() {
                tokio::time::sleep(pause).await;
                starts += 1;
            }
        }
        let missing = || {
            Err(ClientError::Answer {
                detail: "an item has no result",
            })
        };
        results.extend(done.into_iter().map(|one| one.unwrap_or_else(missing)));
    }

    /// Starts, writes and ends the items at `open`, once.
    async fn put_round(
        &self,
        (items, options): (&[Item], &PutOptions),
        open: &[usize],
        started_before: bool,
        deadline: Instant,
    ) -> Vec<Result<Granted, Failure>> {
        let preferred = if options.preferred.is_empty() {
            self.inner.agents.local_name().into_iter().collect()
        } else {
            options.preferred.clone()
        };
        let starts = open.iter().map(|at| PutStartItem {
            key: items[*at].key.clone(),
            size_bytes: items[*at].value.len() as u64,
            replicas: options.replicas.unwrap_or(self.inner.replicas),
            preferred: preferred.clone(),
            mode: options.mode,
            strict: options.strict,
            attributes: options.attributes.clone(),
        });
        let request = Request::PutStart(PutStart {
            items: starts.collect(),
        });
        let started = match self
            .inner
            .master
            .call::<PutStarted>(request, deadline)
            .await
        {
            Ok(started) => started,
            Err(error) => return same(open.len(), &error),
        };
        if started.answer.grants.len() != open.len() {
            let detail = "the number of grants is wrong";
            return same(open.len(), &ClientError::Answer { detail });
        }
        let ours = started_before || started.repeated;
        let route = self.inner.agents.route(&started.answer.agents);
        let granted = open.iter().zip(&started.answer.grants);
        let granted = granted.filter_map(|(at, grant)| {
            let version = grant.as_ref().ok()?.version;
            Some((items[*at].key.clone(), version))
        });
        let reserved = Reserved::new(&self.inner.master, granted.collect());
        // A loop, because a closure over borrowed places would keep the future on one thread.
        let mut writes = Vec::with_capacity(open.len());
        for (at, grant) in open.iter().zip(started.answer.grants) {
            writes.push(self.write_granted(&route, &items[*at], grant, ours, deadline));
        }
        let written: Vec<_> = stream::iter(writes).buffered(IN_FLIGHT).collect().await;
        let outcomes = self
            .end_round(items, open, written, started.session, deadline)
            .await;
        let done = outcomes
            .iter()
            .filter_map(|outcome| outcome.as_ref().ok().map(|granted| granted.version))
            .collect();
        reserved.settle(&done, deadline).await;
        outcomes
    }

    /// Writes an object if its start was granted.
    async fn write_granted(
        &self,
        route: &Route,
        item: &Item,
        grant: CallResult<PutGrant>,
        ours: bool,
        deadline: Instant,
    ) -> Result<(Granted, Vec<Receipt>), Failure> {
        let grant = grant.map_err(|error| Failure {
            fault: Some(PutFault::Start {
                reason: error.reason,
                ours,
            }),
            error: error.into(),
        })?;
        let receipts = self.write_object(route, item, &grant, deadline).await?;
        Ok((Granted::of(&grant), receipts))
    }

    /// Ends what was written, in one call.
    async fn end_round(
        &self,
        items: &[Item],
        open: &[usize],
        written: Vec<Result<(Granted, Vec<Receipt>), Failure>>,
        started_by: SessionId,
        deadline: Instant,
    ) -> Vec<Result<Granted, Failure>> {
        let mut ends = Vec::new();
        let mut outcomes: Vec<Result<Granted, Failure>> = Vec::with_capacity(written.len());
        let mut ended = Vec::new();
        for (place, written) in written.into_iter().enumerate() {
            match written {
                Ok((granted, receipts)) => {
                    let version = granted.version;
                    let key = items[open[place]].key.clone();
                    ends.push(PutEndItem {
                        key,
                        version,
                        receipts,
                    });
                    ended.push(place);
                    outcomes.push(Ok(granted));
                }
                Err(failure) => outcomes.push(Err(failure)),
            }
        }
        if ends.is_empty() {
            return outcomes;
        }
        let request = Request::PutEnd(PutEnd { items: ends });
        let answered = self
            .inner
            .master
            .call::<Vec<CallResult<()>>>(request, deadline)
            .await;
        let (moved, answers) = match answered {
            Ok(answered) if answered.answer.len() == ended.len() => {
                (answered.session != started_by, answered.answer)
            }
            Ok(_) => {
                let error = ClientError::Answer {
                    detail: "the number of results is wrong",
                };
                ended
                    .iter()
                    .for_each(|place| outcomes[*place] = Err(error.clone().into()));
                return outcomes;
            }
            Err(error) => {
                ended
                    .iter()
                    .for_each(|place| outcomes[*place] = Err(error.clone().into()));
                return outcomes;
            }
        };
        for (place, answer) in ended.into_iter().zip(answers) {
            if let Err(error) = answer {
                let fault = Some(PutFault::End {
                    reason: error.reason,
                    moved,
                });
                outcomes[place] = Err(Failure {
                    error: error.into(),
                    fault,
                });
            }
        }
        outcomes
    }
}

/// What the names of preferred agents take in a start.
fn preferred_bytes(options: &PutOptions) -> usize {
    let names = options.preferred.iter();
    names.map(|name| name.as_str().len() + 2).sum()
}

fn same(count: usize, error: &ClientError) -> Vec<Result<Granted, Failure>> {
    (0..count).map(|_| Err(error.clone().into())).collect()
}

/// What a failed transfer is to the caller.
pub(crate) fn transfer(agent: &str, error: TransferError) -> ClientError {
    match error {
        TransferError::DeadlinePassed => ClientError::DeadlinePassed {
            during: "while moving the bytes",
        },
        error => ClientError::Transfer {
            agent: agent.to_owned(),
            source: Arc::new(error),
        },
    }
}
