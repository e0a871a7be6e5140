//! `/v1/tasks`: copies and moves that somebody asked for.

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::Method;
use axum::response::Response;
use larder_types::{TaskId, TenantId};
use serde::Deserialize;

use super::reject::Rejection;
use super::{Admin, Asker};
use crate::event::AdminAsk;

/// The most tasks in one answer; about 300 bytes each with keys of usual length.
const LIMIT_MAX: usize = 1_000;
/// So many without being asked for a number.
const LIMIT: usize = 100;

/// What a listing asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    /// Only tasks of this tenant.
    tenant: Option<String>,
    /// Only tasks that are not over.
    #[serde(default)]
    open: bool,
    /// Only tasks behind this one: `next` of the last answer.
    after: Option<String>,
    /// At most so many.
    limit: Option<usize>,
}

fn number(text: &str) -> Result<TaskId, Rejection> {
    let wrong = || Rejection::bad_argument(format!("'{text}' is no number of a task"));
    text.parse().map(TaskId).map_err(|_| wrong())
}

pub(super) async fn list(
    State(admin): State<Admin>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Rejection> {
    let Query(asked) = asked.map_err(Rejection::bad_argument)?;
    let tenant = asked.tenant.as_deref().map(TenantId::new).transpose();
    let limit = asked.limit.unwrap_or(LIMIT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(Rejection::bad_argument("`limit` must be 1 to 1000"));
    }
    let ask = AdminAsk::Tasks {
        tenant: tenant.map_err(Rejection::bad_argument)?,
        open: asked.open,
        after: asked.after.as_deref().map_or(Ok(TaskId(0)), number)?,
        limit,
    };
    admin.document(ask).await
}

pub(super) async fn one(
    State(admin): State<Admin>,
    Path(task): Path<String>,
) -> Result<Response, Rejection> {
    admin.document(AdminAsk::Task(number(&task)?)).await
}

pub(super) async fn cancel(
    State(admin): State<Admin>,
    Extension(asker): Extension<Asker>,
    Path(task): Path<String>,
) -> Result<Response, Rejection> {
    let ask = AdminAsk::TaskCancel(number(&task)?);
    let object = format!("tasks/{task}");
    admin.change(&asker, &Method::DELETE, &object, ask).await
}
