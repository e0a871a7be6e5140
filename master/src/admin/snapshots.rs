//! `/v1/snapshots`: taken by the leader, told of and deleted by whoever keeps them.

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use larder_types::Reason;
use larder_wire::CallError;
use serde::Deserialize;

use super::reject::Rejection;
use super::{Admin, Asker, audit};
use crate::consensus::PeerDesk;
use crate::role::Role;
use crate::snapshots::{Refusal, SnapshotName};

type Answer = Result<Response, Rejection>;

/// What a snapshot shall be called.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    name: SnapshotName,
}

fn named(text: &str) -> Result<SnapshotName, Rejection> {
    SnapshotName::new(text).map_err(Rejection::bad_argument)
}

pub(super) async fn list(State(admin): State<Admin>) -> Answer {
    Ok(Json(admin.snapshots.list().await?).into_response())
}

pub(super) async fn one(State(admin): State<Admin>, Path(name): Path<String>) -> Answer {
    let document = admin.snapshots.one(named(&name)?).await?;
    Ok(Json(document).into_response())
}

pub(super) async fn take(
    State(admin): State<Admin>,
    Extension(asker): Extension<Asker>,
    body: Bytes,
) -> Answer {
    let asked: Asked = serde_json::from_slice(&body).map_err(Rejection::bad_argument)?;
    let object = format!("snapshots/{}", asked.name);
    let leader = leading(&admin);
    let taken = match leader {
        Ok(leader) => {
            let taken = admin.snapshots.take(asked.name, leader).await;
            taken.map_err(Rejection::from)
        }
        Err(error) => Err(error.into()),
    };
    audit(&asker.0, &Method::POST, &object, outcome(&taken));
    Ok((StatusCode::ACCEPTED, Json(taken?)).into_response())
}

pub(super) async fn delete(
    State(admin): State<Admin>,
    Extension(asker): Extension<Asker>,
    Path(name): Path<String>,
) -> Answer {
    let object = format!("snapshots/{name}");
    let deleted = admin.snapshots.delete(named(&name)?).await;
    let deleted = deleted.map_err(Rejection::from);
    audit(&asker.0, &Method::DELETE, &object, outcome(&deleted));
    deleted?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn outcome<T>(done: &Result<T, Rejection>) -> &'static str {
    done.as_ref().err().map_or("done", Rejection::reason)
}

/// What a snapshot is taken through, if this master leads; else who does.
fn leading(admin: &Admin) -> Result<PeerDesk, CallError> {
    let desk = admin.desk.borrow().clone();
    let mut error = CallError::new(Reason::NotLeader);
    match desk {
        Some(desk) if *admin.role.borrow() == Role::Leading => return Ok(desk),
        Some(desk) => {
            if let Some(leader) = desk.leader() {
                error.detail = format!("{leader} leads; ask it");
            }
        }
        None => {}
    }
    Err(error)
}

impl From<Refusal> for Rejection {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            Refusal::Missing(_) => Self::not_found(&message),
            Refusal::Exists(_) => Self::conflict("snapshot_exists", message),
            Refusal::TooMany => Self::conflict("snapshots_full", message),
            Refusal::Busy(_) => Self::conflict("snapshot_busy", message),
            Refusal::Store(_) => Self::unavailable("snapshot_store", message),
            Refusal::Stops => Self::unavailable("stopping", message),
        }
    }
}
