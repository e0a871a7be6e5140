//! openraft's state machine: passes what is committed to the owner of the state, and keeps the
//! snapshots.

use std::time::Duration;

use openraft::storage::RaftStateMachine;
use openraft::{
    AnyError, EntryPayload, ErrorSubject, ErrorVerb, OptionalSend, RaftSnapshotBuilder, Snapshot,
    SnapshotMeta, StorageIOError,
};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::convert;
use super::feed::Input;
use super::snapshots::{SnapshotFile, Snapshots};
use super::{LogId, Member, RaftEntry, StorageError, StoredMembership, Types};

/// How long a full disk is left alone before a snapshot is tried again: openraft would stop.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// What openraft applies to. Applied is what was handed on: the owner takes it in order.
pub(super) struct Machine {
    pub(super) inputs: mpsc::Sender<Input>,
    pub(super) applied: Option<LogId>,
    pub(super) membership: StoredMembership,
    pub(super) snapshots: Snapshots,
}

fn failed(verb: ErrorVerb, text: String) -> StorageError {
    StorageIOError::new(ErrorSubject::StateMachine, verb, AnyError::error(text)).into()
}

impl Machine {
    async fn hand_on(&self, input: Input) -> Result<(), StorageError> {
        let sent = self.inputs.send(input).await;
        sent.map_err(|_| {
            failed(
                ErrorVerb::Write,
                "the owner of the state is gone".to_owned(),
            )
        })
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), StorageError> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<()>, StorageError>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut done = Vec::new();
        for entry in entries {
            let at = convert::position(&entry.log_id);
            let ops = match entry.payload {
                EntryPayload::Blank => None,
                EntryPayload::Normal(proposal) => Some(proposal),
                EntryPayload::Membership(membership) => {
                    self.membership = StoredMembership::new(Some(entry.log_id), membership);
                    None
                }
            };
            self.hand_on(Input::Entry { at, ops }).await?;
            self.applied = Some(entry.log_id);
            done.push(());
        }
        Ok(done)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder {
            at: self.applied,
            snapshots: self.snapshots.clone(),
        }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<SnapshotFile>, StorageError> {
        // Masters send each other whole snapshots with calls of their own.
        let text = "snapshots do not come this way".to_owned();
        Err(failed(ErrorVerb::Write, text))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, Member>,
        snapshot: Box<SnapshotFile>,
    ) -> Result<(), StorageError> {
        let at = snapshot.at;
        let state = self
            .snapshots
            .load(at)
            .await
            .map_err(|error| failed(ErrorVerb::Read, larder_telemetry::error_chain(&error)))?;
        let state = Box::new(state);
        self.hand_on(Input::Restored { at, state }).await?;
        self.applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError> {
        let newest = self.snapshots.newest();
        newest.map_err(|error| failed(ErrorVerb::Read, larder_telemetry::error_chain(&error)))
    }
}

/// Makes one snapshot.
pub(super) struct Builder {
    at: Option<LogId>,
    snapshots: Snapshots,
}

impl RaftSnapshotBuilder<Types> for Builder {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError> {
        let at = self.at.as_ref().map(convert::position);
        let at = at.ok_or_else(|| {
            failed(
                ErrorVerb::Write,
                "there is nothing to take a snapshot of".to_owned(),
            )
        })?;
        loop {
            match self.snapshots.make(at).await {
                Err(error) if error.is_retryable() => {
                    let error = larder_telemetry::error_chain(&error);
                    tracing::warn!(error, "no snapshot was taken; it is tried again");
                    sleep(RETRY_PAUSE).await;
                }
                made => {
                    let text = |error| larder_telemetry::error_chain(&error);
                    return made.map_err(|error| failed(ErrorVerb::Write, text(error)));
                }
            }
        }
    }
}
