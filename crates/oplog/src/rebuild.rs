//! A state out of the newest snapshot that can be used and the log behind it.
//!
//! In bounded steps, so that whoever does it can stop in between. It ends with the whole state or
//! an error that names what is in the way; a part of it, or an empty one in its place, is never
//! handed out.

mod apply;
mod error;
mod from_snapshot;
mod make;

use larder_store::State;

use crate::disk::ReadDisk;
use crate::snapshot::{SnapshotError, snapshots};
use crate::{About, LogScan, Position};

pub use error::{RebuildError, Unusable};
pub use from_snapshot::read_snapshot;
pub use make::{Made, MakeSnapshot, SNAPSHOTS_KEPT, write_snapshot};

use apply::Applying;
use from_snapshot::FromSnapshot;

/// Whether there is more to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Another step is needed.
    More,
    /// It can be finished.
    Done,
}

/// A state that was rebuilt.
#[derive(Debug)]
pub struct Rebuilt {
    /// The state. [`State::new`] of generation 0 if there was nothing to apply.
    pub state: State,
    /// The last entry that is in it.
    pub applied: Option<Position>,
    /// The last members through there.
    pub about: About,
    /// The snapshot that it began from.
    pub snapshot: Option<Position>,
    /// Newer snapshots that could not be used, and why.
    pub unusable: Vec<Unusable>,
}

/// A state while it is rebuilt.
#[derive(Debug)]
pub struct Rebuild<D> {
    log: LogScan<D>,
    through: Through,
    /// Snapshots that were not tried yet, the newest last.
    untried: Vec<Position>,
    unusable: Vec<Unusable>,
    phase: Phase,
}

/// How far a state is to be rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Through {
    /// Through this entry, which is there. What is behind it may be damaged.
    Index(u64),
    /// Through the last entry that the log notes as committed, or a later snapshot.
    Committed,
    /// Through the last entry, or a later snapshot.
    Last,
}

#[derive(Debug)]
enum Phase {
    Scan,
    Choose,
    Snapshot(Box<FromSnapshot>),
    Entries(Box<Applying>),
    /// A step failed.
    Failed,
}

impl<D: ReadDisk> Rebuild<D> {
    /// Begins with the log and the snapshots of a folder. They are only read; the log's owner may
    /// go on, if it purges nothing behind the second newest snapshot meanwhile.
    ///
    /// # Errors
    /// There is no log, or the disk fails.
    pub fn begin(disk: D, through: Through) -> Result<Self, RebuildError> {
        Ok(Self {
            log: LogScan::begin(disk)?,
            through,
            untried: Vec::new(),
            unusable: Vec::new(),
            phase: Phase::Scan,
        })
    }

    /// Does a part of the work: a segment is read, or a block of a snapshot, or entries with
    /// about `ops_max` ops are applied, one entry at least.
    ///
    /// # Errors
    /// [`RebuildError`]; then there is no state to be had this way.
    pub fn step(&mut self, ops_max: usize) -> Result<Progress, RebuildError> {
        // A step that fails leaves nothing that could be gone on with.
        self.phase = match std::mem::replace(&mut self.phase, Phase::Failed) {
            Phase::Scan if self.log.step()? => Phase::Scan,
            Phase::Scan => {
                self.choose_among()?;
                Phase::Choose
            }
            Phase::Choose => self.choose()?,
            Phase::Snapshot(from) => self.read_block(from),
            Phase::Entries(mut applying) => {
                applying.step(&mut self.log, ops_max)?;
                Phase::Entries(applying)
            }
            Phase::Failed => return Err(RebuildError::Unfinished),
        };
        Ok(match &self.phase {
            Phase::Entries(applying) if applying.is_done() => Progress::Done,
            _ => Progress::More,
        })
    }

    /// The state, once a step was [`Progress::Done`], and the log that it came from.
    ///
    /// # Errors
    /// [`RebuildError::Unfinished`] before that.
    pub fn finish(self) -> Result<(Rebuilt, LogScan<D>), RebuildError> {
        match self.phase {
            Phase::Entries(applying) if applying.is_done() => {
                Ok((applying.into_rebuilt(self.unusable), self.log))
            }
            _ => Err(RebuildError::Unfinished),
        }
    }

    /// All steps at once.
    ///
    /// # Errors
    /// As those of [`step`](Self::step).
    pub fn run(mut self) -> Result<(Rebuilt, LogScan<D>), RebuildError> {
        while self.step(usize::MAX)? == Progress::More {}
        self.finish()
    }

    /// The snapshots that are not behind what is wanted.
    fn choose_among(&mut self) -> Result<(), RebuildError> {
        let found = self.log.found().filter(|found| found.is_damage());
        if let Some(found) = found.filter(|_| !matches!(self.through, Through::Index(_))) {
            // What is before the damage is whole, but nobody may take it for all there was.
            let because = found.to_string();
            return Err(RebuildError::Damaged { because });
        }
        let mut all = snapshots(self.log.disk_mut()).map_err(RebuildError::Snapshots)?;
        if let Through::Index(through) = self.through {
            all.retain(|at| at.index <= through);
        }
        self.untried = all;
        Ok(())
    }

    /// Begins with the newest snapshot that is left, or from the start of the log.
    fn choose(&mut self) -> Result<Phase, RebuildError> {
        if let Some(at) = self.untried.pop() {
            return Ok(match self.open(at) {
                Ok(found) => Phase::Snapshot(Box::new(found)),
                Err(why) => self.refuse(at, why),
            });
        }
        if self.log.first_index() > 0 {
            return Err(RebuildError::NoBase {
                first: self.log.first_index(),
                tried: self.unusable.iter().map(ToString::to_string).collect(),
            });
        }
        Ok(self.apply_to(State::new(0), None, About::default()))
    }

    /// An older one is tried.
    fn refuse(&mut self, at: Position, why: SnapshotError) -> Phase {
        self.unusable.push(Unusable { at, why });
        Phase::Choose
    }

    fn open(&mut self, at: Position) -> Result<FromSnapshot, SnapshotError> {
        let term = self.log.term_of(at.index);
        let first = self.log.first_index();
        let unfit = |what| SnapshotError::damaged(at, what);
        if term.is_some_and(|term| term != at.term) {
            return Err(unfit("the log has an entry of another term there"));
        }
        if at.index.saturating_add(1) < first {
            return Err(unfit("the entries behind it are purged"));
        }
        FromSnapshot::open(self.log.disk_mut(), at)
    }

    /// Reads a block of the snapshot; what is wrong with it lets an older one be tried.
    fn read_block(&mut self, mut from: Box<FromSnapshot>) -> Phase {
        let at = from.at();
        let read = match from.next(self.log.disk_mut()) {
            Ok(true) => return Phase::Snapshot(from),
            Ok(false) => from.finish(),
            Err(why) => Err(why),
        };
        match read {
            Ok((state, about)) => self.apply_to(state, Some(at), about),
            Err(why) => self.refuse(at, why),
        }
    }

    fn apply_to(&self, state: State, at: Option<Position>, about: About) -> Phase {
        let through = match self.through {
            Through::Index(index) => Some(index),
            Through::Committed => self.log.committed().map(|at| at.index),
            Through::Last => self.log.last().map(|at| at.index),
        };
        let must_reach = matches!(self.through, Through::Index(_));
        let applying = Applying::new(state, at, about, through, must_reach);
        Phase::Entries(Box::new(applying))
    }
}
