//! `/v1/agents/{name}/drain`: empty an agent before its node leaves, and how far it is.

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::Method;
use axum::response::Response;
use larder_types::AgentName;

use super::reject::Rejection;
use super::{Admin, Asker};
use crate::event::AdminAsk;

pub(super) async fn status(
    State(admin): State<Admin>,
    Path(name): Path<String>,
) -> Result<Response, Rejection> {
    let name = AgentName::new(&name).map_err(Rejection::bad_argument)?;
    admin.document(AdminAsk::DrainStatus(name)).await
}

pub(super) async fn begin(
    State(admin): State<Admin>,
    Extension(asker): Extension<Asker>,
    Path(name): Path<String>,
) -> Result<Response, Rejection> {
    let agent = AgentName::new(&name).map_err(Rejection::bad_argument)?;
    admin
        .change(&asker, &Method::PUT, &name, AdminAsk::Drain(agent, true))
        .await
}

pub(super) async fn end(
    State(admin): State<Admin>,
    Extension(asker): Extension<Asker>,
    Path(name): Path<String>,
) -> Result<Response, Rejection> {
    let agent = AgentName::new(&name).map_err(Rejection::bad_argument)?;
    admin
        .change(
            &asker,
            &Method::DELETE,
            &name,
            AdminAsk::Drain(agent, false),
        )
        .await
}
