//! Reading small files of sysfs and /proc under a root folder, so that tests bring their own.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The most of one file that is read, in bytes. What the inventory reads has a few hundred; the
/// longest, the memory statistics of a node, less than 4 KiB.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// The most entries of one folder that are looked at: far above the devices of any machine.
const ENTRIES_MAX: usize = 4096;

/// Why something could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lack {
    /// The file or folder cannot be read.
    #[error("/{path} cannot be read ({reason})")]
    Unreadable {
        /// The path below the root.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// It was read and does not say what it should.
    #[error("/{path} does not hold {wanted}")]
    Garbage {
        /// The path below the root.
        path: String,
        /// What was looked for.
        wanted: &'static str,
    },
}

/// The folder that stands for `/`.
#[derive(Clone, Debug)]
pub struct SystemRoot(PathBuf);

impl SystemRoot {
    /// Takes the folder; `/` on a real machine.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// The text of a file, cut at 64 KiB; bytes that are no UTF-8 are replaced.
    ///
    /// # Errors
    /// [`Lack::Unreadable`].
    pub fn text(&self, path: &str) -> Result<String, Lack> {
        let mut bytes = Vec::new();
        File::open(self.0.join(path))
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes))
            .map_err(|error| unreadable(path, &error))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The one number or word that a file holds.
    ///
    /// # Errors
    /// [`Lack`], also if the text does not parse as `T`.
    pub fn value<T: FromStr>(&self, path: &str) -> Result<T, Lack> {
        let text = self.text(path)?;
        let value = text.trim().parse();
        value.map_err(|_| Lack::Garbage {
            path: path.to_owned(),
            wanted: "a number",
        })
    }

    /// The number on the line of a file that starts with `name`, as in `MemTotal:  1024 kB`.
    ///
    /// # Errors
    /// [`Lack`], also if there is no such line.
    pub fn field(&self, path: &str, name: &str, wanted: &'static str) -> Result<u64, Lack> {
        let text = self.text(path)?;
        let number = text
            .lines()
            .filter_map(|line| line.split_once(name).map(|(_, rest)| rest))
            .find_map(|rest| {
                rest.trim_start_matches(':')
                    .split_whitespace()
                    .next()?
                    .parse()
                    .ok()
            });
        number.ok_or(Lack::Garbage {
            path: path.to_owned(),
            wanted,
        })
    }

    /// The names in a folder, sorted.
    ///
    /// # Errors
    /// [`Lack::Unreadable`].
    pub fn names(&self, path: &str) -> Result<Vec<String>, Lack> {
        let entries = std::fs::read_dir(self.0.join(path)).map_err(|e| unreadable(path, &e))?;
        let mut names: Vec<String> = entries
            .take(ENTRIES_MAX)
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        Ok(names)
    }

    /// Where a path leads when all links are followed, from the root on; `None`: nowhere, or out of
    /// it.
    #[must_use]
    pub fn real_path(&self, path: &str) -> Option<String> {
        let root = self.0.canonicalize().ok()?;
        let real = root.join(path).canonicalize().ok()?;
        let below = real.strip_prefix(&root).ok()?;
        Some(below.to_str()?.to_owned())
    }

    /// Whether anything has this path.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        self.0.join(path).exists()
    }
}

fn unreadable(path: &str, error: &std::io::Error) -> Lack {
    Lack::Unreadable {
        path: path.to_owned(),
        reason: error.kind().to_string(),
    }
}
