//! `/v1/agents/{name}/labels`: where an agent is, for who knows it better than the agent.

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::Method;
use axum::response::Response;
use larder_types::{AgentName, Label, Labels};
use serde::Deserialize;

use super::reject::Rejection;
use super::{Admin, Asker};
use crate::event::AdminAsk;

/// What is set; whatever is left out is as the agent says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    host: Option<Label>,
    rack: Option<Label>,
    zone: Option<Label>,
}

pub(super) async fn set(
    State(admin): State<Admin>,
    Extension(asker): Extension<Asker>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Response, Rejection> {
    let agent = AgentName::new(&name).map_err(Rejection::bad_argument)?;
    let Body { host, rack, zone } =
        serde_json::from_slice(&body).map_err(Rejection::bad_content)?;
    let labels = Labels {
        host,
        rack,
        zone,
        numa: None,
    };
    let ask = AdminAsk::Labels(agent, labels);
    admin.change(&asker, &Method::PUT, &name, ask).await
}
