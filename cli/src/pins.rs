//! pin, unpin, and what is known of objects: stat and `ls --long`.

use std::collections::BTreeMap;
use std::ffi::OsString;

use larder_client::{AgentId, AgentName, Client, Key, ObjectStat, Pin};
use serde_json::{Value, json};

use crate::args::Global;
use crate::bytes_text::show_bytes;
use crate::error::CliError;
use crate::objects::{keys_of, text_of};
use crate::output::Output;
use crate::target::connect;

/// Objects of one page of a listing.
const PAGE_OBJECTS: u32 = 1000;

/// `larder pin` and `larder unpin`.
pub(crate) async fn pin(
    global: &Global,
    keys: &[OsString],
    pin: Pin,
    output: &mut Output,
) -> Result<u8, CliError> {
    let keys = keys_of(keys)?;
    let client = connect(global, None).await?;
    let items = keys.iter().map(|key| (key.clone(), pin)).collect();
    let answers = client.pin_batch(items).await;
    let mut code = 0;
    for (key, answer) in keys.iter().zip(answers) {
        match answer {
            Ok(()) => {
                let value = json!({ "key": text_of(key), "pin": pin_value(pin) });
                let word = if pin == Pin::None {
                    "unpinned"
                } else {
                    "pinned"
                };
                output.result(&value, &format!("{word} {key}"))?;
            }
            // With one key the error itself is the report.
            Err(error) if keys.len() == 1 => return Err(error.into()),
            Err(error) => {
                let value = json!({ "key": text_of(key), "reason": error.label() });
                output.result(&value, &format!("not changed {key}: {error}"))?;
                code = CliError::from(error).exit_code();
            }
        }
    }
    Ok(code)
}

/// `larder stat` of keys.
pub(crate) async fn stat(
    global: &Global,
    keys: &[OsString],
    output: &mut Output,
) -> Result<u8, CliError> {
    let keys = keys_of(keys)?;
    let client = connect(global, None).await?;
    let answers = client.stat_batch(keys.clone()).await;
    let mut code = 0;
    for (key, answer) in keys.iter().zip(answers) {
        match answer {
            Ok(known) => show(key, &known.stat, &known.agents, output)?,
            // With one key the error itself is the report.
            Err(error) if keys.len() == 1 => return Err(error.into()),
            Err(error) => {
                let value = json!({ "key": text_of(key), "reason": error.label() });
                output.result(&value, &format!("{key}: {error}"))?;
                code = CliError::from(error).exit_code();
            }
        }
    }
    Ok(code)
}

/// `larder ls --long`.
pub(crate) async fn list(
    client: &Client,
    (prefix, mut after): (&[u8], Option<Key>),
    mut left: u64,
    output: &mut Output,
) -> Result<u8, CliError> {
    while left > 0 {
        let limit = u32::try_from(left)
            .unwrap_or(PAGE_OBJECTS)
            .min(PAGE_OBJECTS);
        let page = client.list_stats(prefix, after, limit).await?;
        let names: BTreeMap<AgentId, AgentName> = page.agents.into_iter().collect();
        for (key, stat) in &page.entries {
            let agents = stat.agents.iter().filter_map(|id| names.get(id).cloned());
            show(key, stat, &agents.collect::<Vec<_>>(), output)?;
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

fn show(
    key: &Key,
    stat: &ObjectStat,
    agents: &[AgentName],
    output: &mut Output,
) -> Result<(), CliError> {
    let names: Vec<&str> = agents.iter().map(AgentName::as_str).collect();
    let group = stat.attributes.group.as_ref().map(|group| group.as_str());
    let value = json!({
        "key": text_of(key),
        "size_bytes": stat.size_bytes,
        "version": stat.version.to_string(),
        "digest": format!("{:016x}", stat.digest.0),
        "agents": names,
        "replicas": stat.agents.len(),
        "replicas_wanted": stat.wanted,
        "pin": pin_value(stat.attributes.pin),
        "pin_left_ms": stat.pin_left_ms,
        "leased": stat.leased,
        "group": group,
        "data_type": stat.attributes.data_type.number(),
    });
    let mut human = format!(
        "{:>12}  {key}  version {}, {} of {} replicas on {}",
        show_bytes(stat.size_bytes),
        stat.version,
        stat.agents.len(),
        stat.wanted,
        names.join(", "),
    );
    match stat.attributes.pin {
        Pin::None => {}
        Pin::Hard => human += ", pinned hard",
        // Over: nothing protects it any more, though its wish is still known.
        Pin::Soft { .. } if stat.pin_left_ms == 0 => {}
        Pin::Soft { .. } => {
            human += &format!(", pinned for {} s", stat.pin_left_ms.div_ceil(1000));
        }
    }
    if stat.leased {
        human += ", leased";
    }
    if let Some(group) = group {
        human += &format!(", group {group}");
    }
    output.result(&value, &human)
}

pub(crate) fn pin_value(pin: Pin) -> Value {
    match pin {
        Pin::None => "none".into(),
        Pin::Hard => "hard".into(),
        Pin::Soft { ttl_ms } => json!({ "soft_ms": ttl_ms }),
    }
}
