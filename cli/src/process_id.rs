//! Processes that are surely the ones meant: a number alone may belong to another one by now.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// A process: its number, and when it started after which boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessId {
    /// Its number.
    pub(crate) pid: u32,
    /// When it started, in clock ticks since boot.
    pub(crate) start_ticks: u64,
    /// Which boot.
    pub(crate) boot_id: String,
}

impl ProcessId {
    /// The process of this number, if it runs.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Some(Self {
            pid,
            start_ticks: start_ticks(pid)?,
            boot_id: boot_id()?,
        })
    }

    /// Whether it still runs.
    pub(crate) fn is_running(&self) -> bool {
        self.open().is_some()
    }

    /// A handle of the process, if it still runs: what is done with that cannot hit another one.
    fn open(&self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Checked after opening: then the handle is that of the process that was checked.
        let same = boot_id()? == self.boot_id && start_ticks(self.pid)? == self.start_ticks;
        same.then_some(handle)
    }

    /// Sends a signal, if it still runs.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(handle) = self.open() {
            // It ended in between: what was wanted.
            let _ = pidfd_send_signal(&handle, signal);
        }
    }

    /// Waits until it has ended; false if it still runs after `limit`.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let Some(handle) = self.open() else {
            return true;
        };
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(left) = Timespec::try_from(left) else {
                return false;
            };
            let mut fds = [PollFd::new(&handle, PollFlags::IN)];
            match poll(&mut fds, Some(&left)) {
                Ok(0) => return false,
                Ok(_) => return true,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return !self.is_running(),
            }
        }
    }
}

/// When a process started; `None` if there is none, or only what its parent has not yet collected.
fn start_ticks(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_start_ticks(&text)
}

fn parse_start_ticks(stat: &str) -> Option<u64> {
    // The name in parentheses may hold anything, also spaces and parentheses.
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    // `state` is field 3 of the file; the start time is field 22.
    fields.nth(18)?.parse().ok()
}

fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string(Path::new("/proc/sys/kernel/random/boot_id")).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_any_name() {
        let stat = "77 (a) b) c) S 1 77 77 0 -1 4194560 9 0 0 0 1 2 0 0 20 0 5 0 123456 9 9";
        assert_eq!(parse_start_ticks(stat), Some(123_456));
        assert_eq!(parse_start_ticks(&stat.replace(" S ", " Z ")), None);
        assert_eq!(parse_start_ticks("77"), None);
    }

    #[test]
    fn a_process_is_known_until_it_ends() {
        let me = ProcessId::of(std::process::id()).expect("this process runs");
        assert!(me.is_running());
        let other = ProcessId {
            start_ticks: me.start_ticks + 1,
            ..me.clone()
        };
        assert!(!other.is_running());

        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("cat runs");
        let id = ProcessId::of(child.id()).expect("it waits for its input");
        assert!(!id.wait(Duration::ZERO));
        id.signal(Signal::KILL);
        assert!(id.wait(Duration::from_secs(60)));
        child.wait().expect("it ended");
        assert!(!id.is_running() && ProcessId::of(id.pid).is_none());
    }
}
