//! Snapshots of masters, each of which keeps what it took where there is no object store.

use bytes::Bytes;
use hyper::{Method, StatusCode};

use super::exchange::refused;
use super::{HttpMasters, document};
use crate::master_api::{MasterError, SnapshotDocument, SnapshotLook};
use crate::names::PoolId;

/// Status and body of an answer.
type Answer = Result<(StatusCode, Bytes), MasterError>;

impl HttpMasters {
    /// What the masters that answer know of one; an error if none does.
    pub(super) async fn look_for_snapshot(
        &self,
        pool: &PoolId,
        name: &str,
    ) -> Result<SnapshotLook, MasterError> {
        let path = format!("/v1/snapshots/{name}");
        let (mut look, mut failed) = (SnapshotLook::default(), None);
        for answer in self.ask_each(pool, Method::GET, &path).await? {
            let found: Result<Option<SnapshotDocument>, _> = match answer {
                Ok((StatusCode::NOT_FOUND, _)) => Ok(None),
                Ok((status, body)) => document(&path, status, &body).map(Some),
                Err(error) => Err(error),
            };
            match found {
                Ok(found) => look.add(found),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if look.answered == 0 => Err(error),
            _ => Ok(look),
        }
    }

    /// Deletes one from every master. None may be missing: it may be the one that has it.
    pub(super) async fn remove_snapshot(
        &self,
        pool: &PoolId,
        name: &str,
    ) -> Result<(), MasterError> {
        let path = format!("/v1/snapshots/{name}");
        for answer in self.ask_each(pool, Method::DELETE, &path).await? {
            let (status, body) = answer?;
            if !status.is_success() && status != StatusCode::NOT_FOUND {
                return Err(refused(status, &body));
            }
        }
        Ok(())
    }

    /// Asks every master, whatever its role.
    async fn ask_each(
        &self,
        pool: &PoolId,
        method: Method,
        path: &str,
    ) -> Result<Vec<Answer>, MasterError> {
        let mut answers = Vec::new();
        for addr in self.addrs(pool).await? {
            let answer = self.ask(&addr, pool, method.clone(), path, Bytes::new());
            answers.push(answer.await);
        }
        Ok(answers)
    }
}
