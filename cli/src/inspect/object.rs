//! One object of a state that was rebuilt.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use larder_client::{Key, Pin};
use larder_oplog::Rebuilt;
use larder_store::{ObjectRef, State};
use larder_types::{Extent, TenantId};
use serde_json::{Value, json};

use crate::bytes_text::show_bytes;
use crate::error::{CliError, EXIT_NOT_FOUND};
use crate::objects::{key_of, text_of};
use crate::output::Output;
use crate::pins::pin_value;

/// Prints what is known of an object.
pub(super) fn show(rebuilt: &Rebuilt, name: &OsStr, output: &mut Output) -> Result<u8, CliError> {
    let (tenant, key) = parse(name)?;
    let state = &rebuilt.state;
    if let Some(object) = state.object(&tenant, &key) {
        let (value, human) = shown(state, &tenant, &key, object);
        output.result(&value, &human)?;
        return Ok(0);
    }
    let why = match state.tenant(&tenant) {
        None => "the tenant is unknown",
        Some(_) => "the key holds no object of which a replica can be read",
    };
    let value = json!({
        "tenant": tenant.as_str(),
        "key": text_of(&key),
        "found": false,
        "why": why,
    });
    output.result(&value, &format!("{key} of {tenant} is not there: {why}"))?;
    Ok(EXIT_NOT_FOUND)
}

/// Tenant and key: no tenant's id has a slash.
fn parse(name: &OsStr) -> Result<(TenantId, Key), CliError> {
    let bytes = name.as_bytes();
    let slash = bytes.iter().position(|byte| *byte == b'/');
    let usage = || {
        let name = name.display();
        CliError::Usage(format!("'{name}' names no object; write TENANT/KEY"))
    };
    let (tenant, key) = bytes.split_at(slash.ok_or_else(usage)?);
    let tenant = std::str::from_utf8(tenant).map_err(|_| usage())?;
    let tenant = TenantId::new(tenant).map_err(|error| CliError::Usage(error.to_string()))?;
    Ok((tenant, key_of(OsStr::from_bytes(&key[1..]))?))
}

fn shown(state: &State, tenant: &TenantId, key: &Key, object: ObjectRef<'_>) -> (Value, String) {
    let replicas = object.replicas();
    let attributes = object.attributes();
    let extents = |replica: &Vec<Extent>| -> Value {
        replica.iter().map(|extent| place(state, extent)).collect()
    };
    let value = json!({
        "tenant": tenant.as_str(),
        "key": text_of(key),
        "found": true,
        "version": object.version().to_string(),
        "size_bytes": object.size_bytes(),
        "digest": format!("{:016x}", object.digest().0),
        "replicas_wanted": object.wanted(),
        "replicas": replicas.iter().map(extents).collect::<Vec<_>>(),
        "pin": pin_value(attributes.pin),
        "group": attributes.group.as_ref().map(|group| group.as_str()),
        "data_type": attributes.data_type.number(),
    });
    let mut human = format!(
        "{key} of {tenant}: version {}, {}, {} of {} replicas",
        object.version(),
        show_bytes(object.size_bytes()),
        replicas.len(),
        object.wanted(),
    );
    match attributes.pin {
        Pin::None => {}
        Pin::Hard => human += ", pinned hard",
        Pin::Soft { .. } => human += ", pinned for a time",
    }
    for (nth, replica) in replicas.iter().enumerate() {
        for extent in replica {
            let slab = extent.slab;
            human += &format!(
                "\n  replica {nth} on {}, segment {}, slab {}: {} at {}",
                agent(state, extent),
                slab.segment.0,
                slab.index,
                show_bytes(extent.length_bytes),
                extent.offset_bytes,
            );
        }
    }
    (value, human)
}

fn place(state: &State, extent: &Extent) -> Value {
    json!({
        "agent": agent(state, extent),
        "segment": extent.slab.segment.0,
        "slab": extent.slab.index,
        "registration": extent.slab.registration.0,
        "offset_bytes": extent.offset_bytes,
        "length_bytes": extent.length_bytes,
    })
}

fn agent(state: &State, extent: &Extent) -> String {
    let known = state.agent(extent.slab.agent);
    known.map_or_else(
        || format!("agent {}", extent.slab.agent.0),
        |agent| agent.name().to_string(),
    )
}
