//! Reads the text files of the repository.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// A file of the repository.
#[derive(Debug, Clone)]
pub struct TextFile {
    /// Relative to the root, with `/` between folders.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl TextFile {
    /// A file from a path and a text.
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
        }
    }

    /// Whether it is Rust.
    #[must_use]
    pub fn is_rust(&self) -> bool {
        self.ends_with("rs")
    }

    /// Whether its name ends with `.` and `end`.
    #[must_use]
    pub fn ends_with(&self, end: &str) -> bool {
        Path::new(&self.path)
            .extension()
            .is_some_and(|found| found == end)
    }
}

/// What is read: code, settings, documents. Locks, pictures and data are not ours to judge.
const ENDS: [&str; 10] = [
    "json", "md", "proto", "py", "rs", "sh", "toml", "txt", "yaml", "yml",
];
const NAMES: [&str; 4] = ["Dockerfile", "Makefile", "run", "LICENSE"];
/// Folders that start with a dot are skipped, but these belong to the project.
const DOT_FOLDERS: [&str; 3] = [".ci", ".config", ".github"];
/// Folders at any depth that hold what was built.
const SKIPPED: [&str; 3] = ["target", "node_modules", "__pycache__"];

/// Every text file under `root`, sorted by path. Links are not followed.
///
/// # Errors
/// A folder or file cannot be read.
pub fn read(root: &Path) -> anyhow::Result<Vec<TextFile>> {
    let mut files = Vec::new();
    let mut folders = vec![(root.to_path_buf(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let kind = entry.file_type()?;
            if kind.is_dir() && is_ours(&name) {
                folders.push((entry.path(), format!("{prefix}{name}/")));
            } else if kind.is_file() && is_text(&name) {
                let path = entry.path();
                let bytes =
                    fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
                let text = String::from_utf8_lossy(&bytes);
                files.push(TextFile::new(format!("{prefix}{name}"), text));
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn is_ours(folder: &str) -> bool {
    !SKIPPED.contains(&folder) && (!folder.starts_with('.') || DOT_FOLDERS.contains(&folder))
}

fn is_text(name: &str) -> bool {
    NAMES.contains(&name)
        || name
            .rsplit_once('.')
            .is_some_and(|(_, end)| ENDS.contains(&end))
}
