//! Histories as files of one JSON document a line, so that one that failed is kept.

use std::io::{BufRead, Read as _, Write};

use serde::{Deserialize, Serialize};

use super::losses::Losses;
use super::operation::{History, HistoryError, Operation};

/// The version that is written and read.
pub const HISTORY_VERSION: u32 = 1;

/// The longest line in bytes: a key of 4,096 bytes, each escaped to six, and the rest.
pub const LINE_BYTES_MAX: u64 = 32 << 10;

/// A history with what is needed to judge it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Where it comes from: the seed, the faults.
    pub note: String,
    /// Which losses were allowed.
    pub losses: Losses,
    /// The operations.
    pub history: History,
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    history: u32,
    note: String,
    losses: Losses,
}

/// Writes a header and one line an operation.
///
/// # Errors
/// [`HistoryError::Io`].
pub fn write_history(kept: &Kept, mut into: impl Write) -> Result<(), HistoryError> {
    let header = Header {
        history: HISTORY_VERSION,
        note: kept.note.clone(),
        losses: kept.losses.clone(),
    };
    write_line(&header, &mut into)?;
    for operation in kept.history.operations() {
        write_line(operation, &mut into)?;
    }
    into.flush()?;
    Ok(())
}

fn write_line(line: &impl Serialize, into: &mut impl Write) -> Result<(), HistoryError> {
    serde_json::to_writer(&mut *into, line).map_err(std::io::Error::from)?;
    into.write_all(b"\n")?;
    Ok(())
}

/// Reads what [`write_history`] wrote, at most `operations_max` operations.
///
/// # Errors
/// [`HistoryError`]: the file is damaged, too large or of another version.
pub fn read_history(from: impl BufRead, operations_max: usize) -> Result<Kept, HistoryError> {
    let mut lines = Lines { from, line: 0 };
    let header: Header = lines.next()?.ok_or(HistoryError::Version { version: 0 })?;
    if header.history != HISTORY_VERSION {
        let version = header.history;
        return Err(HistoryError::Version { version });
    }
    let mut operations = Vec::new();
    while let Some(operation) = lines.next::<Operation>()? {
        if operations.len() == operations_max {
            return Err(HistoryError::Full { operations_max });
        }
        operations.push(operation);
    }
    Ok(Kept {
        note: header.note,
        losses: header.losses,
        history: History::new(operations)?,
    })
}

struct Lines<R> {
    from: R,
    line: usize,
}

impl<R: BufRead> Lines<R> {
    fn next<T: for<'de> Deserialize<'de>>(&mut self) -> Result<Option<T>, HistoryError> {
        let mut text = Vec::new();
        let mut bounded = self.from.by_ref().take(LINE_BYTES_MAX);
        if bounded.read_until(b'\n', &mut text)? == 0 {
            return Ok(None);
        }
        self.line += 1;
        let line = self.line;
        if text.last() != Some(&b'\n') && text.len() as u64 == LINE_BYTES_MAX {
            let bytes_max = LINE_BYTES_MAX;
            return Err(HistoryError::LongLine { line, bytes_max });
        }
        let parsed = serde_json::from_slice(&text);
        parsed.map_err(|source| HistoryError::Line { line, source })
    }
}
