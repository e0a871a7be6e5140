//! The entries of a log, one a line.

use std::ops::Range;

use larder_oplog::{Entry, LogScan, Payload, ReadDisk, decode_ops};
use larder_telemetry::error_chain;
use serde_json::{Value, json};

use crate::error::{CliError, EXIT_FAILED};
use crate::output::{Output, note};

/// Entries that are read at once, in bytes.
const READ_BYTES_MAX: usize = 1 << 20;

/// Prints the entries of a range that are there.
pub(super) fn list(
    mut log: LogScan<impl ReadDisk>,
    range: Range<u64>,
    output: &mut Output,
) -> Result<u8, CliError> {
    let first = log.first_index();
    let mut next = range.start.max(first);
    if next > range.start {
        note(&format!(
            "entries before {first} are purged; a snapshot stands for them"
        ));
    }
    let mut code = 0;
    while next < range.end {
        let entries = log.read(next..range.end, READ_BYTES_MAX);
        let entries = entries.map_err(|error| CliError::Wrong(error_chain(&error)))?;
        let Some(last) = entries.last() else {
            if let Some(found) = log.found() {
                note(&error_chain(found));
                code = if found.is_damage() { EXIT_FAILED } else { code };
            }
            break;
        };
        next = last.at.index + 1;
        for entry in &entries {
            let (value, human, is_known) = shown(entry);
            output.result(&value, &human)?;
            code = if is_known { code } else { EXIT_FAILED };
        }
    }
    Ok(code)
}

/// An entry as a document and for people, and whether it could be read.
fn shown(entry: &Entry) -> (Value, String, bool) {
    let (what, is_known) = payload(entry);
    let (term, index) = (entry.at.term, entry.at.index);
    let mut human = format!("{:>10}  term {term}  ", index);
    match what["ops"].as_array() {
        Some(ops) => {
            let texts: Vec<&str> = ops.iter().filter_map(|op| op["detail"].as_str()).collect();
            human += &texts.join("; ");
        }
        None => human += what["kind"].as_str().unwrap_or_default(),
    }
    for (key, word) in [("skipped", "skipped"), ("damage", "cannot be read")] {
        if let Some(why) = what[key].as_str() {
            human += &format!(" ({word}: {why})");
        }
    }
    let value = json!({
        "term": term,
        "index": index,
        "size_bytes": entry.payload.len(),
        "payload": what,
    });
    (value, human, is_known)
}

fn payload(entry: &Entry) -> (Value, bool) {
    let damaged = |kind: &str, error: &larder_oplog::RecordError| {
        let damage = error_chain(error);
        (json!({ "kind": kind, "damage": damage }), false)
    };
    match Payload::decode(&entry.payload) {
        Err(error) => damaged("unknown", &error),
        Ok(Payload::Blank) => (json!({ "kind": "blank" }), true),
        Ok(Payload::Members(members)) => {
            let size_bytes = members.len();
            (json!({ "kind": "members", "size_bytes": size_bytes }), true)
        }
        Ok(Payload::Ops { term, ops }) => match decode_ops(&ops) {
            Err(error) => damaged("ops", &error),
            Ok(ops) => {
                let shown =
                    |op: &larder_store::Op| json!({ "op": op.name(), "detail": format!("{op:?}") });
                let ops: Vec<Value> = ops.iter().map(shown).collect();
                let skipped = (term != entry.at.term)
                    .then(|| format!("the leader of term {term} decided them"));
                (
                    json!({ "kind": "ops", "ops": ops, "skipped": skipped }),
                    true,
                )
            }
        },
    }
}
