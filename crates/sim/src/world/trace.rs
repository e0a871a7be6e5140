//! What happened in a run, as a hash of all of it and the last lines.

use std::collections::VecDeque;
use std::fmt;

/// A running hash over every line, and as many of the last lines as it may keep.
#[derive(Clone, Debug)]
pub struct Trace {
    hash: u64,
    count: u64,
    lines: VecDeque<String>,
    lines_max: usize,
}

impl Trace {
    /// An empty trace that keeps at most `lines_max` lines.
    #[must_use]
    pub fn new(lines_max: usize) -> Self {
        Self {
            // The offset basis of FNV-1a.
            hash: 0xcbf2_9ce4_8422_2325,
            count: 0,
            lines: VecDeque::new(),
            lines_max,
        }
    }

    /// Adds a line.
    pub fn note(&mut self, now_ns: u64, what: fmt::Arguments<'_>) {
        let line = format!("{:>12} {what}", Ms(now_ns));
        for byte in line.bytes().chain([b'\n']) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.count += 1;
        self.lines.push_back(line);
        if self.lines.len() > self.lines_max {
            self.lines.pop_front();
        }
    }

    /// The hash of all lines (FNV-1a).
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// How many lines there were.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The last lines.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }
}

/// Nanoseconds, shown as milliseconds.
struct Ms(u64);

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000);
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_knows_all_and_keeps_the_end() {
        let traced = |lines: &[&str]| {
            let mut trace = Trace::new(2);
            lines
                .iter()
                .for_each(|line| trace.note(5, format_args!("{line}")));
            trace
        };
        let (one, same) = (traced(&["a", "b", "c"]), traced(&["a", "b", "c"]));
        assert_eq!((one.hash(), one.count()), (same.hash(), 3));
        assert_ne!(one.hash(), traced(&["x", "b", "c"]).hash());
        assert_ne!(traced(&["ab"]).hash(), traced(&["a", "b"]).hash());
        assert!(one.lines().eq(traced(&["x", "b", "c"]).lines()));
        assert_eq!(one.lines().last(), Some("    0.000005 c"));
    }
}
