//! Takes snapshots, one at a time, and says where they stand: one task, asked over a bounded queue.

use std::collections::BTreeMap;
use std::future::pending;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use larder_oplog::{FORMAT_VERSION, Made, StdDisk};
use larder_telemetry::error_chain;
use larder_types::Epoch;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, spawn_blocking};

use super::{Manifest, SnapshotName, SnapshotStore, StoreError};
use crate::consensus::{AnyDisk, PeerDesk, SnapshotsError};

/// So many are kept at most. Each is deleted by whoever asked for it.
const KEPT_MAX: usize = 16;
/// What is asked and not answered yet: a few people and the operator.
const ASKS_LENGTH: usize = 32;
/// Failures that are remembered until they are tried again or deleted.
const FAILED_MAX: usize = 16;
/// What is read at once of a file, in bytes.
const READ_BYTES: usize = 1 << 20;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("there is a snapshot `{0}` already; take another name, or delete it first")]
    Exists(SnapshotName),
    #[error("there is no snapshot `{0}`")]
    Missing(SnapshotName),
    #[error("{KEPT_MAX} snapshots are kept; delete one first")]
    TooMany,
    #[error("snapshot `{0}` is being taken; try again when it is there")]
    Busy(SnapshotName),
    #[error("{}", error_chain(.0))]
    Store(StoreError),
    #[error("the master stops; try another one")]
    Stops,
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Why no snapshot was taken.
#[derive(Debug, thiserror::Error)]
enum TakeError {
    #[error("the snapshot was not made")]
    Made(#[from] SnapshotsError),
    #[error("the snapshot was not kept")]
    Kept(#[from] StoreError),
    #[error("the snapshot that was made cannot be read again")]
    Read(#[from] std::io::Error),
    #[error("a thread that reads snapshots ended")]
    Thread(#[from] tokio::task::JoinError),
}

/// Where one stands that is not there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Taking,
    Uploading,
}

#[derive(Debug)]
enum What {
    List,
    One(SnapshotName),
    Take(SnapshotName, Box<PeerDesk>),
    Delete(SnapshotName),
}

type Answer = Result<Value, Refusal>;

/// Asks the task.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotDesk(mpsc::Sender<(What, oneshot::Sender<Answer>)>);

impl SnapshotDesk {
    async fn ask(&self, what: What) -> Answer {
        let (reply, answer) = oneshot::channel();
        let sent = self.0.send((what, reply)).await;
        sent.map_err(|_| Refusal::Stops)?;
        answer.await.map_err(|_| Refusal::Stops)?
    }

    /// All snapshots of this master's store, and those that failed.
    pub(crate) async fn list(&self) -> Answer {
        self.ask(What::List).await
    }

    /// Where one stands.
    pub(crate) async fn one(&self, name: SnapshotName) -> Answer {
        self.ask(What::One(name)).await
    }

    /// Begins one. `leader` is this master's, which leads.
    pub(crate) async fn take(&self, name: SnapshotName, leader: PeerDesk) -> Answer {
        self.ask(What::Take(name, Box::new(leader))).await
    }

    /// Deletes one.
    pub(crate) async fn delete(&self, name: SnapshotName) -> Answer {
        self.ask(What::Delete(name)).await
    }
}

/// What the task goes by.
#[derive(Clone, Debug)]
pub(super) struct Where {
    pub(super) pool: String,
    pub(super) master: String,
    /// The folder in which snapshots are made.
    pub(super) staging: PathBuf,
    pub(super) store: Arc<dyn SnapshotStore>,
}

/// One that is being taken.
#[derive(Debug)]
struct Job {
    name: SnapshotName,
    stage: watch::Receiver<Stage>,
    done: JoinHandle<Result<(), TakeError>>,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.done.abort();
    }
}

#[derive(Debug)]
struct Keeper {
    at: Where,
    job: Option<Job>,
    failed: BTreeMap<SnapshotName, String>,
}

/// Starts the task. It ends when nobody can ask any more.
pub(super) fn keep(at: Where) -> SnapshotDesk {
    let (asks, mut asked) = mpsc::channel::<(What, oneshot::Sender<Answer>)>(ASKS_LENGTH);
    tokio::spawn(async move {
        let mut keeper = Keeper {
            at,
            job: None,
            failed: BTreeMap::new(),
        };
        keeper.tidy().await;
        loop {
            tokio::select! {
                ask = asked.recv() => match ask {
                    // Whoever asked may have gone.
                    Some((what, reply)) => drop(reply.send(keeper.answer(what).await)),
                    None => return,
                },
                () = keeper.job_done() => {}
            }
        }
    });
    SnapshotDesk(asks)
}

impl Keeper {
    async fn tidy(&self) {
        match self.at.store.tidy().await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "what was left of unfinished snapshots is removed"),
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(error, "unfinished snapshots were not looked for");
            }
        }
    }

    /// Ends when the job does; never without one.
    async fn job_done(&mut self) {
        let Some(job) = &mut self.job else {
            return pending().await;
        };
        let done = (&mut job.done).await;
        let name = job.name.clone();
        self.job = None;
        let why = match done {
            Ok(Ok(())) => {
                tracing::info!(%name, "a snapshot is kept");
                return;
            }
            Ok(Err(error)) => error_chain(&error),
            Err(error) => error_chain(&error),
        };
        tracing::warn!(%name, error = why, "a snapshot was not taken");
        if self.failed.len() >= FAILED_MAX {
            self.failed.pop_first();
        }
        self.failed.insert(name, why);
    }

    async fn answer(&mut self, what: What) -> Answer {
        match what {
            What::List => self.list().await,
            What::One(name) => self.one(&name).await,
            What::Take(name, leader) => self.take(name, *leader).await,
            What::Delete(name) => self.delete(&name).await,
        }
    }

    fn location(&self, name: &SnapshotName) -> String {
        self.at.store.location(name)
    }

    /// Where one stands that is under way.
    fn under_way(&self) -> Option<Value> {
        let job = self.job.as_ref()?;
        let phase = match *job.stage.borrow() {
            Stage::Taking => "Taking",
            Stage::Uploading => "Uploading",
        };
        Some(json!({ "name": job.name, "phase": phase }))
    }

    fn failure(&self, name: &SnapshotName, why: &str) -> Value {
        json!({ "name": name, "phase": "Failed", "reason": why, "location": self.location(name) })
    }

    /// What the store knows of one.
    async fn kept(&self, name: &SnapshotName) -> Answer {
        match self.at.store.manifest(name).await {
            Ok(Some(manifest)) => Ok(ready(&manifest, &self.location(name))),
            Ok(None) => Err(Refusal::Missing(name.clone())),
            // It is there, and nothing can be made of it.
            Err(error @ (StoreError::Damaged { .. } | StoreError::Newer { .. })) => {
                Ok(self.failure(name, &error_chain(&error)))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn list(&self) -> Answer {
        let mut documents = Vec::new();
        for name in self.at.store.names().await? {
            match self.kept(&name).await {
                // Deleted meanwhile, by another master.
                Err(Refusal::Missing(_)) => {}
                document => documents.push(document?),
            }
        }
        documents.extend(self.under_way());
        let failed = self.failed.iter();
        documents.extend(failed.map(|(name, why)| self.failure(name, why)));
        Ok(json!({ "snapshots": documents, "kept_max": KEPT_MAX }))
    }

    async fn one(&self, name: &SnapshotName) -> Answer {
        match &self.job {
            Some(job) if job.name == *name => {
                return self.under_way().ok_or(Refusal::Stops);
            }
            _ => {}
        }
        match self.failed.get(name) {
            Some(why) => Ok(self.failure(name, why)),
            None => self.kept(name).await,
        }
    }

    async fn take(&mut self, name: SnapshotName, leader: PeerDesk) -> Answer {
        if let Some(job) = &self.job {
            return Err(Refusal::Busy(job.name.clone()));
        }
        let names = self.at.store.names().await?;
        if names.contains(&name) {
            return Err(Refusal::Exists(name));
        }
        if names.len() >= KEPT_MAX {
            return Err(Refusal::TooMany);
        }
        self.failed.remove(&name);
        let (stage, seen) = watch::channel(Stage::Taking);
        let work = take(self.at.clone(), name.clone(), leader, stage);
        self.job = Some(Job {
            name,
            stage: seen,
            done: tokio::spawn(work),
        });
        self.under_way().ok_or(Refusal::Stops)
    }

    async fn delete(&mut self, name: &SnapshotName) -> Answer {
        if let Some(job) = self.job.as_ref().filter(|job| job.name == *name) {
            return Err(Refusal::Busy(job.name.clone()));
        }
        let had_failed = self.failed.remove(name).is_some();
        let was_there = self.at.store.delete(name).await?;
        if was_there || had_failed {
            return Ok(Value::Null);
        }
        Err(Refusal::Missing(name.clone()))
    }
}

/// The document of one that is there.
fn ready(manifest: &Manifest, location: &str) -> Value {
    let mut document = json!({ "phase": "Ready", "location": location });
    if let (Some(document), Ok(Value::Object(facts))) =
        (document.as_object_mut(), serde_json::to_value(manifest))
    {
        document.extend(facts);
    }
    document
}

/// Makes a snapshot in the staging folder and gives it to the store.
async fn take(
    at: Where,
    name: SnapshotName,
    leader: PeerDesk,
    stage: watch::Sender<Stage>,
) -> Result<(), TakeError> {
    let staging = at.staging.clone();
    let made = leader.take_apart(move || {
        // What another left there, that was interrupted, would be taken for its own.
        drop(std::fs::remove_dir_all(&staging));
        Ok(Box::new(StdDisk::open(staging)?) as AnyDisk)
    });
    let made = made.await?;
    let file = at.staging.join(larder_oplog::snapshot_file_name(made.at));
    let path = file.clone();
    let (size_bytes, checksum) = spawn_blocking(move || read_again(&path)).await??;
    let manifest = manifest(&at, name, &made, (size_bytes, checksum));
    stage.send_replace(Stage::Uploading);
    let kept = at.store.put(&manifest, &file).await;
    // Of the folder's it was moved away, of others it is a copy.
    let staging = at.staging.clone();
    spawn_blocking(move || drop(std::fs::remove_dir_all(staging))).await?;
    Ok(kept?)
}

fn manifest(at: &Where, name: SnapshotName, made: &Made, file: (u64, u32)) -> Manifest {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let taken_unix_ms = now.map_or(0, |now| now.as_millis());
    Manifest {
        format: FORMAT_VERSION,
        name,
        pool: at.pool.clone(),
        master: at.master.clone(),
        epoch: Epoch {
            generation: made.generation,
            term: made.at.term,
        },
        index: made.at.index,
        objects: made.objects,
        size_bytes: file.0,
        digest: format!("{:016x}", made.digest),
        checksum: format!("{:08x}", file.1),
        taken_unix_ms: u64::try_from(taken_unix_ms).unwrap_or(u64::MAX),
    }
}

/// The size and the CRC-32C of a file. Blocks.
pub(super) fn read_again(path: &Path) -> std::io::Result<(u64, u32)> {
    let mut file = std::fs::File::open(path)?;
    let mut some = vec![0; READ_BYTES];
    let (mut size_bytes, mut sum) = (0, 0);
    loop {
        let bytes = file.read(&mut some)?;
        if bytes == 0 {
            return Ok((size_bytes, sum));
        }
        size_bytes += bytes as u64;
        sum = crc32c::crc32c_append(sum, some.get(..bytes).unwrap_or_default());
    }
}
