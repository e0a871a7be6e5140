//! `larder inspect`: the log and the snapshots of a master, read without it and without a change.

mod entries;
mod named;
mod object;
mod report;
mod show;

use std::path::{Path, PathBuf};

use larder_oplog::{LogError, LogScan, Rebuild, RebuildError, Rebuilt, StdReadDisk, Through};
use larder_telemetry::error_chain;

use crate::args::Inspect;
use crate::error::{CliError, EXIT_FAILED};
use crate::output::Output;

/// Where a master keeps its log, in its state folder.
const LOG_FOLDER: &str = "oplog";

/// Does what was asked.
pub(crate) fn inspect(asked: &Inspect, output: &mut Output) -> Result<u8, CliError> {
    if named::is_one(&asked.folder) {
        return named::show(&asked.folder, output);
    }
    let folder = log_folder(&asked.folder);
    if let Some(range) = &asked.entries {
        return entries::list(open(&folder)?, range.clone(), output);
    }
    if let Some(name) = &asked.key {
        // A folder without a log says so itself.
        drop(open(&folder)?);
        let rebuilt = rebuild(&folder)?;
        let rebuilt = rebuilt.map_err(|error| CliError::Wrong(error_chain(&error)))?;
        return object::show(&rebuilt, name, output);
    }
    let log = open(&folder)?;
    let snapshots = report::snapshots(&mut disk(&folder)?)?;
    let report = report::report(&folder, &log, snapshots, rebuild(&folder)?);
    output.result(&report, &show::human(&report))?;
    Ok(if report.findings.is_empty() {
        0
    } else {
        EXIT_FAILED
    })
}

/// The folder of the log: the one that is named, or the one in it.
fn log_folder(folder: &Path) -> PathBuf {
    let inside = folder.join(LOG_FOLDER);
    if inside.is_dir() {
        inside
    } else {
        folder.to_owned()
    }
}

fn disk(folder: &Path) -> Result<StdReadDisk, CliError> {
    StdReadDisk::open(folder).map_err(|error| CliError::file("read", folder, error.source))
}

fn open(folder: &Path) -> Result<LogScan<StdReadDisk>, CliError> {
    LogScan::open(disk(folder)?).map_err(|error| match error {
        LogError::NoLog => CliError::Usage(format!("{}: {error}", folder.display())),
        other => CliError::Wrong(error_chain(&other)),
    })
}

/// The state through the last entry that is noted as committed.
fn rebuild(folder: &Path) -> Result<Result<Rebuilt, RebuildError>, CliError> {
    let begun = Rebuild::begin(disk(folder)?, Through::Committed);
    Ok(begun.and_then(Rebuild::run).map(|(rebuilt, _)| rebuilt))
}
