//! `larder promote`: making another master the leader.

use hyper::Method;
use serde_json::json;

use crate::administer::Administered;
use crate::args::{Global, Promote};
use crate::error::CliError;
use crate::output::Output;

/// Asks the leader to hand its office over.
pub(crate) async fn promote(
    global: &Global,
    asked: &Promote,
    output: &mut Output,
) -> Result<u8, CliError> {
    let master = Administered::find(global, &asked.administration).await?;
    let name = &asked.leader;
    let path = format!("/v1/masters/{name}/promote");
    master.change(Method::POST, &path).await?;
    output.result(&json!({ "leader": name }), &format!("{name} leads"))?;
    Ok(0)
}
