//! What `larder inspect` says of a folder: scripts of users read it.

use std::path::{Path, PathBuf};

use larder_oplog::{
    Found, LogScan, Position, ReadDisk, RebuildError, Rebuilt, SnapshotError, StdReadDisk, Trust,
    read_snapshot, snapshot_bytes,
};
use larder_store::check;
use larder_telemetry::error_chain;
use serde::Serialize;

use crate::error::CliError;

/// A folder of a log.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) folder: PathBuf,
    pub(crate) log: LogReport,
    pub(crate) snapshots: Vec<SnapshotReport>,
    /// The state through the last entry that is noted as committed; none if it cannot be made.
    pub(crate) state: Option<StateReport>,
    /// What is wrong, with what to do. None: all is well.
    pub(crate) findings: Vec<String>,
}

/// Where an entry stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct At {
    pub(crate) term: u64,
    pub(crate) index: u64,
}

/// The log.
#[derive(Debug, Serialize)]
pub(crate) struct LogReport {
    pub(crate) vote: Option<VoteReport>,
    /// Whether it was stopped cleanly; one that a master has open was not.
    pub(crate) clean: bool,
    /// Whether a loss of power may have taken something that the replica acknowledged.
    pub(crate) doubted: bool,
    /// If so: the last entry that surely is there.
    pub(crate) trusted_through: Option<At>,
    pub(crate) purged: Option<At>,
    pub(crate) first: Option<At>,
    pub(crate) last: Option<At>,
    pub(crate) committed: Option<At>,
    pub(crate) entries: u64,
    pub(crate) size_bytes: u64,
    pub(crate) segments: Vec<SegmentReport>,
    /// An end that was or is being written: nothing is wrong with it.
    pub(crate) torn: Option<String>,
}

/// The last vote.
#[derive(Debug, Serialize)]
pub(crate) struct VoteReport {
    pub(crate) term: u64,
    /// As text, since readers of JSON round such numbers.
    pub(crate) candidate: Option<String>,
    pub(crate) committed: bool,
}

/// A segment.
#[derive(Debug, Serialize)]
pub(crate) struct SegmentReport {
    pub(crate) file: String,
    pub(crate) size_bytes: u64,
    pub(crate) first_index: u64,
}

/// A snapshot.
#[derive(Debug, Serialize)]
pub(crate) struct SnapshotReport {
    pub(crate) through: At,
    pub(crate) size_bytes: u64,
    /// What is wrong with it.
    pub(crate) damage: Option<String>,
}

/// A state.
#[derive(Debug, Serialize)]
pub(crate) struct StateReport {
    pub(crate) through: Option<At>,
    /// The snapshot that it was made from.
    pub(crate) snapshot: Option<At>,
    pub(crate) members_at: Option<At>,
    pub(crate) digest: String,
    pub(crate) generation: u64,
    pub(crate) tenants: usize,
    pub(crate) quotas: usize,
    pub(crate) agents: usize,
    pub(crate) segments: usize,
    pub(crate) objects: u64,
    pub(crate) open_tasks: usize,
    pub(crate) used_bytes: u64,
    pub(crate) releasing_bytes: u64,
    pub(crate) capacity_bytes: u64,
}

impl From<Position> for At {
    fn from(at: Position) -> Self {
        let Position { term, index } = at;
        Self { term, index }
    }
}

/// Each snapshot of a folder, read as a whole.
pub(super) fn snapshots(disk: &mut StdReadDisk) -> Result<Vec<SnapshotReport>, CliError> {
    let wrong = |error: SnapshotError| CliError::Wrong(error_chain(&error));
    let mut reports = Vec::new();
    for at in larder_oplog::snapshots(disk).map_err(wrong)? {
        let damage = read_snapshot(disk, at).err();
        reports.push(SnapshotReport {
            through: at.into(),
            // One that was removed meanwhile has none.
            size_bytes: snapshot_bytes(disk, at).unwrap_or(0),
            damage: damage.map(|error| error_chain(&error)),
        });
    }
    Ok(reports)
}

/// What was found, put together.
pub(super) fn report(
    folder: &Path,
    log: &LogScan<impl ReadDisk>,
    snapshots: Vec<SnapshotReport>,
    rebuilt: Result<Rebuilt, RebuildError>,
) -> Report {
    let mut findings = Vec::new();
    if let Some(found) = log.found().filter(|found| found.is_damage()) {
        findings.push(error_chain(found));
    }
    findings.extend(snapshots.iter().filter_map(|one| one.damage.clone()));
    let state = match rebuilt {
        Ok(rebuilt) => {
            let found = check(&rebuilt.state);
            let text = |one: &larder_store::Finding| format!("{}: {}", one.rule, one.detail);
            findings.extend(found.iter().map(text));
            Some(state(&rebuilt))
        }
        // What is wrong with the log is said already.
        Err(RebuildError::Damaged { .. }) if !findings.is_empty() => None,
        Err(error) => {
            findings.push(error_chain(&error));
            None
        }
    };
    Report {
        folder: folder.to_owned(),
        log: log_report(log),
        snapshots,
        state,
        findings,
    }
}

fn log_report(log: &LogScan<impl ReadDisk>) -> LogReport {
    let at = |position: Option<Position>| position.map(At::from);
    let vote = log.vote().map(|vote| VoteReport {
        term: vote.term,
        candidate: vote.voted_for.map(|candidate| candidate.to_string()),
        committed: vote.committed,
    });
    let segments = log.segments().iter().map(|one| SegmentReport {
        file: one.file.clone(),
        size_bytes: one.bytes,
        first_index: one.first_index,
    });
    let torn = log.found().filter(|found| matches!(found, Found::Torn(_)));
    let (doubted, trusted) = match log.trust() {
        Trust::Whole => (false, None),
        Trust::Through(through) => (true, through),
    };
    LogReport {
        vote,
        clean: log.is_clean(),
        doubted,
        trusted_through: at(trusted),
        purged: at(log.purged()),
        first: at(log.first()),
        last: at(log.last()),
        committed: at(log.committed()),
        entries: log.entries(),
        size_bytes: log.segments().iter().map(|one| one.bytes).sum(),
        segments: segments.collect(),
        torn: torn.map(ToString::to_string),
    }
}

fn state(rebuilt: &Rebuilt) -> StateReport {
    let state = &rebuilt.state;
    StateReport {
        through: rebuilt.applied.map(At::from),
        snapshot: rebuilt.snapshot.map(At::from),
        members_at: rebuilt.about.members_at.map(At::from),
        digest: format!("{:016x}", state.digest()),
        generation: state.generation(),
        tenants: state.tenants().count(),
        quotas: state.quotas().count(),
        agents: state.agents().count(),
        segments: state.segments().count(),
        objects: state.objects(),
        open_tasks: state.open_tasks(),
        used_bytes: state.used_bytes(),
        releasing_bytes: state.releasing_bytes(),
        capacity_bytes: state.capacity_bytes(),
    }
}
