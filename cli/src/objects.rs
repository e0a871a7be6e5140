//! put, get, exists, remove and ls; what the tenant uses.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use larder_client::{Attributes, Client, DataType, Key, PutMode, PutOptions, TenantUsage};
use serde_json::{Value, json};

use crate::args::{Get, Global, Keys, Ls, Put, Remove};
use crate::bytes_text::show_bytes;
use crate::error::{CliError, EXIT_NOT_FOUND};
use crate::output::Output;
use crate::pins;
use crate::target::connect;
use crate::value::{read_value, write_file};

/// Keys of one page of a listing.
const PAGE_KEYS: u32 = 1024;

/// `larder put`.
pub(crate) async fn put(global: &Global, args: &Put, output: &mut Output) -> Result<u8, CliError> {
    let key = key_of(&args.key)?;
    let value = read_value(args.file.as_deref())?;
    let client = connect(global, args.replicas).await?;
    let done = client.put_with(key.clone(), value, &options(args)).await?;
    let info = done.object;
    let size = show_bytes(info.size_bytes);
    let value = json!({
        "key": text_of(&key),
        "size_bytes": info.size_bytes,
        "version": info.version.to_string(),
        "digest": format!("{:016x}", info.digest.0),
        "replicas": done.replicas,
        "replicas_wanted": done.wanted,
        "preference_ignored": done.preference_ignored,
    });
    let mut human = format!("put {key}: {size}, version {}", info.version);
    if done.replicas < done.wanted {
        human += &format!(", {} of {} replicas", done.replicas, done.wanted);
    }
    if done.preference_ignored && !args.preferred.is_empty() {
        human += ", not on all preferred agents";
    }
    output.result(&value, &human)?;
    Ok(0)
}

fn options(args: &Put) -> PutOptions {
    let mode = if args.upsert {
        PutMode::Upsert {
            if_unleased: args.if_unleased,
        }
    } else {
        PutMode::Create
    };
    PutOptions {
        mode,
        replicas: args.replicas,
        strict: args.strict,
        preferred: args.preferred.clone(),
        attributes: Attributes {
            pin: args.pin.unwrap_or_default(),
            group: args.group.clone(),
            data_type: DataType::new(args.data_type).unwrap_or_default(),
        },
    }
}

/// `larder get`.
pub(crate) async fn get(global: &Global, args: &Get, output: &mut Output) -> Result<u8, CliError> {
    let key = key_of(&args.key)?;
    let target = args.file.as_deref().filter(|path| *path != Path::new("-"));
    let client = connect(global, None).await?;
    let value = client.get(key.clone()).await?;
    match target {
        Some(path) => {
            write_file(path, &value)?;
            let size_bytes = value.len() as u64;
            let document = json!({ "key": text_of(&key), "size_bytes": size_bytes, "file": path });
            let human = format!(
                "got {key}: {} into {}",
                show_bytes(size_bytes),
                path.display()
            );
            output.result(&document, &human)?;
        }
        None => {
            if output.is_terminal() && !args.force && !is_text(&value) {
                return Err(CliError::Usage(format!(
                    "{key} is no text; give a file, or --force to write it to the terminal"
                )));
            }
            output.bytes(&value)?;
        }
    }
    Ok(0)
}

/// `larder exists`.
pub(crate) async fn exists(
    global: &Global,
    args: &Keys,
    output: &mut Output,
) -> Result<u8, CliError> {
    let keys = keys_of(&args.keys)?;
    let client = connect(global, None).await?;
    let answers = client.exists_batch(keys.clone()).await;
    let mut code = 0;
    for (key, answer) in keys.iter().zip(answers) {
        let is_there = match answer {
            Ok(is_there) => is_there,
            // With one key the error itself is the report.
            Err(error) if keys.len() == 1 => return Err(error.into()),
            Err(error) => {
                let value = json!({
                    "key": text_of(key), "exists": null, "reason": error.label(),
                });
                output.result(&value, &format!("{key} is not known: {error}"))?;
                // A failure says more than a key that is not there.
                if matches!(code, 0 | EXIT_NOT_FOUND) {
                    code = CliError::from(error).exit_code();
                }
                continue;
            }
        };
        if !is_there && code == 0 {
            code = EXIT_NOT_FOUND;
        }
        let value = json!({ "key": text_of(key), "exists": is_there });
        let word = if is_there { "exists" } else { "does not exist" };
        output.result(&value, &format!("{key} {word}"))?;
    }
    Ok(code)
}

/// `larder remove`.
pub(crate) async fn remove(
    global: &Global,
    args: &Remove,
    output: &mut Output,
) -> Result<u8, CliError> {
    let client = connect(global, None).await?;
    if let Some(prefix) = &args.prefix {
        return remove_prefix(&client, prefix.as_bytes(), args.if_unleased, output).await;
    }
    let keys = keys_of(&args.keys)?;
    let answers = client
        .remove_batch_with(keys.clone(), args.if_unleased)
        .await;
    let mut code = 0;
    for (key, answer) in keys.iter().zip(answers) {
        match answer {
            Ok(()) => {
                let value = json!({ "key": text_of(key), "removed": true });
                output.result(&value, &format!("removed {key}"))?;
            }
            // With one key the error itself is the report.
            Err(error) if keys.len() == 1 => return Err(error.into()),
            Err(error) => {
                let value = json!({
                    "key": text_of(key), "removed": false, "reason": error.label(),
                });
                output.result(&value, &format!("not removed {key}: {error}"))?;
                // A failure says more than a key that is not there.
                if matches!(code, 0 | EXIT_NOT_FOUND) {
                    code = CliError::from(error).exit_code();
                }
            }
        }
    }
    Ok(code)
}

/// Removes page by page, and says after each what is done.
async fn remove_prefix(
    client: &Client,
    prefix: &[u8],
    if_unleased: bool,
    output: &mut Output,
) -> Result<u8, CliError> {
    let (mut after, mut removed, mut skipped) = (None, 0, 0);
    loop {
        let some = client.remove_some(prefix, after, if_unleased).await?;
        removed += some.removed;
        skipped += some.skipped;
        let done = some.last.is_none();
        let value = json!({ "removed": removed, "skipped": skipped, "done": done });
        let mut human = format!("removed {removed} objects");
        if skipped > 0 {
            human += &format!(", left {skipped} that readers have a lease on");
        }
        if !done {
            human += " so far";
        }
        output.result(&value, &human)?;
        if done {
            return Ok(0);
        }
        after = some.last;
    }
}

/// `larder ls`.
pub(crate) async fn list(global: &Global, args: &Ls, output: &mut Output) -> Result<u8, CliError> {
    let client = connect(global, None).await?;
    let prefix = args
        .prefix
        .as_deref()
        .map(OsStr::as_bytes)
        .unwrap_or_default();
    let mut after = args.after.as_deref().map(key_of).transpose()?;
    let mut left = args.limit.unwrap_or(u64::MAX);
    if args.long {
        return pins::list(&client, (prefix, after), left, output).await;
    }
    while left > 0 {
        let limit = u32::try_from(left).unwrap_or(PAGE_KEYS).min(PAGE_KEYS);
        let page = client.list(prefix, after, limit).await?;
        for (key, size_bytes) in &page.entries {
            let value = json!({ "key": text_of(key), "size_bytes": size_bytes });
            output.result(&value, &format!("{:>12}  {key}", show_bytes(*size_bytes)))?;
        }
        left -= u64::try_from(page.entries.len()).unwrap_or(left).min(left);
        let Some((last, _)) = page.entries.into_iter().next_back() else {
            break;
        };
        if !page.more {
            break;
        }
        after = Some(last);
    }
    Ok(0)
}

/// `larder stat` without keys.
pub(crate) async fn usage(global: &Global, output: &mut Output) -> Result<u8, CliError> {
    let client = connect(global, None).await?;
    let usage = client.usage().await?;
    let why_not_local = client.why_not_local();
    let value = json!({
        "local": why_not_local.is_none(),
        "why_not_local": why_not_local,
        "tenant": usage.tenant.as_str(),
        "used_bytes": usage.used_bytes,
        "pinned_bytes": usage.pinned_bytes,
        "reserved_bytes": usage.reserved_bytes,
        "limit_bytes": usage.limit_bytes,
        "objects": usage.objects,
        "limit_objects": usage.limit_objects,
        "pool": {
            "capacity_bytes": usage.pool_capacity_bytes,
            "agents": usage.agents,
            "replica_factor": usage.replica_factor,
        },
    });
    output.result(&value, &show_usage(&usage))?;
    Ok(0)
}

fn show_usage(usage: &TenantUsage) -> String {
    let of = |limit: Option<String>| limit.map_or(String::new(), |limit| format!(" of {limit}"));
    let bytes = of(usage.limit_bytes.map(show_bytes));
    let objects = of(usage.limit_objects.map(|limit| limit.to_string()));
    format!(
        "tenant   {}\nused     {}{bytes}\npinned   {}\nwriting  {}\nobjects  {}{objects}\n\
         pool     {} on {} agents, {} replica(s) of an object",
        usage.tenant,
        show_bytes(usage.used_bytes),
        show_bytes(usage.pinned_bytes),
        show_bytes(usage.reserved_bytes),
        usage.objects,
        show_bytes(usage.pool_capacity_bytes),
        usage.agents,
        usage.replica_factor,
    )
}

pub(crate) fn key_of(text: &OsStr) -> Result<Key, CliError> {
    Key::new(text.as_bytes()).map_err(|error| CliError::Usage(error.to_string()))
}

pub(crate) fn keys_of(texts: &[OsString]) -> Result<Vec<Key>, CliError> {
    texts.iter().map(|text| key_of(text)).collect()
}

/// A key in a document: as text, or if it is none, as an object with its hexadecimal digits.
pub(crate) fn text_of(key: &Key) -> Value {
    match std::str::from_utf8(key.as_bytes()) {
        Ok(text) => text.into(),
        Err(_) => {
            let digits: String = key.as_bytes().iter().map(|b| format!("{b:02x}")).collect();
            json!({ "hex": digits })
        }
    }
}

/// Whether bytes can be shown on a terminal without changing its state.
fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| {
        text.chars()
            .all(|c| !c.is_control() || matches!(c, '\n' | '\t' | '\r'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_told_from_bytes() {
        assert!(is_text("häß\n\tok".as_bytes()));
        assert!(!is_text(b"\x1b[2J") && !is_text(b"\xff") && !is_text(b"a\0"));
    }

    #[test]
    fn keys_that_are_no_text_are_shown_as_digits() {
        assert_eq!(text_of(&Key::try_from("a/b").expect("short")), json!("a/b"));
        let key = Key::new(*b"\xff\x00").expect("short");
        assert_eq!(text_of(&key), json!({ "hex": "ff00" }));
    }
}
