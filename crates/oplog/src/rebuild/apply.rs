//! Entries of a log into a state.

use larder_store::{State, apply};

use super::{RebuildError, Rebuilt, Unusable};
use crate::disk::ReadDisk;
use crate::{About, Entry, LogScan, Payload, Position, decode_ops};

/// Entries that are read at once: 1 MiB of them, or one larger one.
const READ_BYTES_MAX: usize = 1 << 20;

/// A state with the entries of a log through some index in it.
#[derive(Debug)]
pub(super) struct Applying {
    state: State,
    snapshot: Option<Position>,
    applied: Option<Position>,
    about: About,
    /// The last entry that is wanted; none if there is none.
    through: Option<u64>,
    /// Whether a log that ends before that is an error.
    must_reach: bool,
    /// What was read and not applied.
    entries: std::vec::IntoIter<Entry>,
    /// All that is wanted is applied.
    is_done: bool,
}

impl Applying {
    pub(super) fn new(
        state: State,
        snapshot: Option<Position>,
        about: About,
        through: Option<u64>,
        must_reach: bool,
    ) -> Self {
        Self {
            state,
            snapshot,
            applied: snapshot,
            about,
            through,
            must_reach,
            entries: Vec::new().into_iter(),
            is_done: false,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    pub(super) fn into_rebuilt(self, unusable: Vec<Unusable>) -> Rebuilt {
        Rebuilt {
            state: self.state,
            applied: self.applied,
            about: self.about,
            snapshot: self.snapshot,
            unusable,
        }
    }

    fn next(&self) -> u64 {
        self.applied.map_or(0, |applied| applied.index + 1)
    }

    /// Applies entries of about `ops_max` ops, one at least.
    pub(super) fn step(
        &mut self,
        log: &mut LogScan<impl ReadDisk>,
        ops_max: usize,
    ) -> Result<(), RebuildError> {
        let mut ops = 0;
        while ops < ops_max.max(1) {
            let Some(entry) = self.take(log)? else {
                self.is_done = true;
                return Ok(());
            };
            // An entry without ops is work too.
            ops += 1 + self.entry(&entry, log)?;
            self.applied = Some(entry.at);
        }
        Ok(())
    }

    fn take(&mut self, log: &mut LogScan<impl ReadDisk>) -> Result<Option<Entry>, RebuildError> {
        if let Some(entry) = self.entries.next() {
            return Ok(Some(entry));
        }
        let next = self.next();
        let Some(through) = self.through.filter(|through| next <= *through) else {
            return Ok(None);
        };
        let entries = log.read(next..through.saturating_add(1), READ_BYTES_MAX)?;
        self.entries = entries.into_iter();
        let entry = self.entries.next();
        if entry.is_none() && self.must_reach {
            let because = log.found().map(ToString::to_string);
            return Err(RebuildError::Short {
                through,
                next,
                because,
            });
        }
        Ok(entry)
    }

    /// Applies an entry; how many ops it had.
    fn entry(
        &mut self,
        entry: &Entry,
        log: &LogScan<impl ReadDisk>,
    ) -> Result<usize, RebuildError> {
        let at = entry.at;
        let file = || log.file_of(at.index).unwrap_or_default();
        let unread = |source| RebuildError::Entry {
            at,
            file: file(),
            source,
        };
        let payload = Payload::decode(&entry.payload).map_err(unread)?;
        let ops = match payload.ops_of(at.term) {
            Some(ops) => decode_ops(ops).map_err(unread)?,
            None => Vec::new(),
        };
        for (nth, op) in ops.iter().enumerate() {
            if let Some(source) = apply(&mut self.state, op).corruption {
                let file = file();
                return Err(RebuildError::Op {
                    at,
                    nth,
                    file,
                    source,
                });
            }
        }
        if let Payload::Members(members) = payload {
            self.about = About {
                members,
                members_at: Some(at),
            };
        }
        Ok(ops.len())
    }
}
