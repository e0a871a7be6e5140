//! A snapshot that somebody asked for, in its own folder.

use std::path::Path;

use larder_master::snapshots::{MANIFEST_FILE, read_folder};
use larder_store::check;
use larder_telemetry::error_chain;
use serde_json::json;

use crate::bytes_text::show_bytes;
use crate::error::{CliError, EXIT_FAILED};
use crate::output::Output;

/// Whether the folder is that of a snapshot.
pub(super) fn is_one(folder: &Path) -> bool {
    folder.join(MANIFEST_FILE).is_file()
}

/// Reads all of it and says what is wrong with it.
pub(super) fn show(folder: &Path, output: &mut Output) -> Result<u8, CliError> {
    let read = read_folder(folder);
    let (manifest, state) = read.map_err(|error| CliError::Wrong(error_chain(&error)))?;
    let findings: Vec<String> = check(&state).iter().map(ToString::to_string).collect();
    let (tenants, quotas) = (state.tenants().count(), state.quotas().count());
    let mut text = format!(
        "snapshot    {} of pool {}, taken by {}\nthrough     entry {} in epoch {}\n\
         size        {}, checksum {}\nstate       digest {}, {tenants} tenants, {quotas} quotas, \
         {} objects",
        manifest.name,
        manifest.pool,
        manifest.master,
        manifest.index,
        manifest.epoch,
        show_bytes(manifest.size_bytes),
        manifest.checksum,
        manifest.digest,
        manifest.objects,
    );
    for finding in &findings {
        text.push_str("\nWRONG       ");
        text.push_str(finding);
    }
    let report = json!({
        "folder": folder,
        "manifest": manifest,
        "tenants": tenants,
        "quotas": quotas,
        "findings": findings,
    });
    output.result(&report, &text)?;
    Ok(if findings.is_empty() { 0 } else { EXIT_FAILED })
}
