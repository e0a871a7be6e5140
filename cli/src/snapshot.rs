//! `larder snapshot`: what the masters know, kept under a name.

use std::time::Duration;

use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::administer::Administered;
use crate::args::{Administration, Global, NamedSnapshot, Snapshot, TakeSnapshot};
use crate::bytes_text::show_bytes;
use crate::error::CliError;
use crate::output::Output;

/// The pause between two looks while one is taken.
const PAUSE: Duration = Duration::from_millis(100);

/// What a master says of a snapshot. Scripts of users see all that it says.
#[derive(Debug, Serialize, Deserialize)]
struct Document {
    name: String,
    phase: String,
    #[serde(flatten)]
    more: serde_json::Map<String, Value>,
}

#[derive(Debug, Serialize, Deserialize)]
struct List {
    snapshots: Vec<Document>,
}

/// Does what was asked.
pub(crate) async fn snapshot(
    global: &Global,
    asked: &Snapshot,
    output: &mut Output,
) -> Result<u8, CliError> {
    match asked {
        Snapshot::Take(asked) => take(global, asked, output).await,
        Snapshot::List(asked) => list(global, asked, output).await,
        Snapshot::Delete(asked) => {
            let master = Administered::find(global, &asked.administration).await?;
            master.change(Method::DELETE, &path(asked)).await?;
            let name = asked.name.as_str();
            let value = json!({ "name": name, "deleted": true });
            output.result(&value, &format!("{name} is deleted"))?;
            Ok(0)
        }
    }
}

fn path(asked: &NamedSnapshot) -> String {
    format!("/v1/snapshots/{}", asked.name)
}

async fn take(global: &Global, asked: &TakeSnapshot, output: &mut Output) -> Result<u8, CliError> {
    let master = Administered::find(global, &asked.of.administration).await?;
    let until = Instant::now() + asked.within;
    let said = json!({ "name": asked.of.name });
    master.post("/v1/snapshots", &said).await?;
    loop {
        let document: Document = master.get(&path(&asked.of)).await?;
        match document.phase.as_str() {
            "Ready" => {
                output.result(&document, &line(&document))?;
                return Ok(0);
            }
            "Failed" => return Err(CliError::Wrong(line(&document))),
            _ if Instant::now() >= until => {
                let message = format!("{}; wait longer with --within", line(&document));
                return Err(CliError::Late(message));
            }
            _ => sleep(PAUSE).await,
        }
    }
}

async fn list(
    global: &Global,
    asked: &Administration,
    output: &mut Output,
) -> Result<u8, CliError> {
    let master = Administered::find(global, asked).await?;
    let list: List = master.get("/v1/snapshots").await?;
    let lines: Vec<String> = list.snapshots.iter().map(line).collect();
    let text = if lines.is_empty() {
        "no snapshots".to_owned()
    } else {
        lines.join("\n")
    };
    output.result(&list, &text)?;
    Ok(0)
}

/// A snapshot in one line.
fn line(document: &Document) -> String {
    let Document { name, phase, more } = document;
    let text = |field: &str| more.get(field).and_then(Value::as_str).unwrap_or_default();
    let number = |field: &str| more.get(field).and_then(Value::as_u64).unwrap_or_default();
    match phase.as_str() {
        "Ready" => format!(
            "{name}  {} objects  {}  digest {}  in {}",
            number("objects"),
            show_bytes(number("size_bytes")),
            text("digest"),
            text("location")
        ),
        "Failed" => format!("{name}  failed: {}", text("reason")),
        "Uploading" => format!("{name}  is sent to where it is kept"),
        _ => format!("{name}  is being taken"),
    }
}
