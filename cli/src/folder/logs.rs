//! The logs in a run folder: opened for the processes, kept short, and shown where one failed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use super::RunFolder;
use crate::error::CliError;

/// A log longer than this is moved aside; the one moved before is lost.
pub(super) const LOG_MAX_BYTES: u64 = 8 << 20;
/// How much of the end of a log an error shows.
const TAIL_BYTES: i64 = 8 * 1024;
/// How many lines of it.
const TAIL_LINES: usize = 12;

impl RunFolder {
    /// Opens the log of a process for it to append to.
    pub(crate) fn open_log(&self, name: &str) -> Result<File, CliError> {
        let path = self.log(name);
        OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .map_err(|source| CliError::file("open", &path, source))
    }

    /// Keeps logs short. They are cut, not renamed: their writers append to the open file.
    pub(crate) fn trim_logs(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.join("log"))? {
            let entry = entry?;
            let path = entry.path();
            if path.extension().is_some_and(|end| end == "log")
                && entry.metadata()?.len() > LOG_MAX_BYTES
            {
                fs::copy(&path, path.with_extension("log.old"))?;
                OpenOptions::new().write(true).open(&path)?.set_len(0)?;
            }
        }
        Ok(())
    }

    /// The last lines of a log, indented; empty if there are none.
    pub(crate) fn log_tail(&self, name: &str) -> String {
        indented(&self.log_end(name).lines().collect::<Vec<_>>())
    }

    /// Why a process says that it ended, with the warnings and errors of its log; `None` if its
    /// log has nothing of the kind.
    pub(crate) fn log_faults(&self, name: &str) -> Option<String> {
        let text = self.log_end(name);
        let is_fault = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
        let faults: Vec<&str> = text.lines().filter(is_fault).collect();
        let mut last = text.lines().filter_map(|line| line.strip_prefix("error: "));
        match (last.next_back(), faults.is_empty()) {
            (Some(last), true) => Some(last.to_owned()),
            (Some(last), false) => Some(format!("{last}; its log has:{}", indented(&faults))),
            (None, true) => None,
            (None, false) => Some(format!("its log has:{}", indented(&faults))),
        }
    }

    /// The text of the end of a log.
    fn log_end(&self, name: &str) -> String {
        let read = || -> io::Result<String> {
            let mut file = File::open(self.log(name))?;
            let long = file.metadata()?.len() > TAIL_BYTES.unsigned_abs();
            if long {
                file.seek(SeekFrom::End(-TAIL_BYTES))?;
            }
            let mut bytes = Vec::new();
            file.take(TAIL_BYTES.unsigned_abs())
                .read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        read().unwrap_or_default()
    }
}

/// The last of these lines, each on one of its own.
fn indented(lines: &[&str]) -> String {
    let tail = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    tail.iter().map(|line| format!("\n  {line}")).collect()
}
