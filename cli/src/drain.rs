//! `larder drain`: emptying an agent before it leaves.

use std::time::Duration;

use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::administer::Administered;
use crate::args::{Drain, DrainWait, DrainedAgent, Global};
use crate::bytes_text::show_bytes;
use crate::error::CliError;
use crate::output::{Output, note};

/// The pause between two looks while a drain is waited for.
const PAUSE: Duration = Duration::from_millis(500);

/// What the master says of a drain.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Status {
    name: String,
    state: String,
    slabs_left: u64,
    bytes_left: u64,
    extents_left: u64,
    objects_left: Option<u64>,
    moved_objects: u64,
    moved_bytes: u64,
    blocked: Option<String>,
}

/// Does what was asked.
pub(crate) async fn drain(
    global: &Global,
    drain: &Drain,
    output: &mut Output,
) -> Result<u8, CliError> {
    match drain {
        Drain::Start(start) => {
            let master = Administered::find(global, &start.of.administration).await?;
            master.change(Method::PUT, &path(&start.of)).await?;
            show(&master, start, output).await
        }
        Drain::Cancel(agent) => {
            let master = Administered::find(global, &agent.administration).await?;
            master.change(Method::DELETE, &path(agent)).await?;
            let name = agent.agent.as_str();
            let value = json!({ "name": name, "state": "active" });
            output.result(&value, &format!("{name} is filled again"))?;
            Ok(0)
        }
        Drain::Status(status) => {
            let master = Administered::find(global, &status.of.administration).await?;
            show(&master, status, output).await
        }
    }
}

fn path(of: &DrainedAgent) -> String {
    format!("/v1/agents/{}/drain", of.agent)
}

/// Shows how far it is, once nothing is left if that is to be waited for.
async fn show(
    master: &Administered,
    asked: &DrainWait,
    output: &mut Output,
) -> Result<u8, CliError> {
    let (until, mut told) = (Instant::now() + asked.within, None);
    loop {
        let status: Status = master.get(&path(&asked.of)).await?;
        if !asked.wait || status.state == "drained" {
            output.result(&status, &line(&status))?;
            return Ok(0);
        }
        if status.state != "draining" {
            let message = format!(
                "{} is not being emptied; begin with `drain start`",
                status.name
            );
            return Err(CliError::Taken(message));
        }
        if Instant::now() >= until {
            let message = format!("{}; wait longer with --within", line(&status));
            return Err(CliError::Late(message));
        }
        if status.blocked != told {
            note(&line(&status));
            told = status.blocked;
        }
        sleep(PAUSE).await;
    }
}

fn line(status: &Status) -> String {
    let Status { name, state, .. } = status;
    let objects = status.objects_left.map_or_else(
        || format!("{} pieces of objects", status.extents_left),
        |objects| format!("{objects} objects"),
    );
    let left = format!("{objects} with {} left", show_bytes(status.bytes_left));
    let moved = format!(
        "{} with {} moved",
        status.moved_objects,
        show_bytes(status.moved_bytes)
    );
    let mut line = match state.as_str() {
        "active" => format!("{name} is in use: {left}"),
        "drained" => format!("{name} is empty: {moved}"),
        _ => format!("{name} is being emptied: {left}, {moved}"),
    };
    if let Some(blocked) = &status.blocked {
        line += &format!("; {blocked}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_left_and_what_is_in_the_way() {
        let mut status = Status {
            name: "n1".to_owned(),
            state: "draining".to_owned(),
            slabs_left: 1,
            bytes_left: 2 << 20,
            extents_left: 3,
            objects_left: Some(2),
            moved_objects: 1,
            moved_bytes: 1 << 20,
            blocked: Some("no space".to_owned()),
        };
        assert_eq!(
            line(&status),
            "n1 is being emptied: 2 objects with 2.0 MiB left, 1 with 1.0 MiB moved; no space"
        );
        status.objects_left = None;
        status.blocked = None;
        status.state = "active".to_owned();
        assert_eq!(
            line(&status),
            "n1 is in use: 3 pieces of objects with 2.0 MiB left"
        );
    }
}
