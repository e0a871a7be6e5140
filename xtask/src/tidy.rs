//! The rules of the repository that no compiler checks. Each rule is a pure function of paths and
//! texts; only [`check`] reads the tree.

pub mod budgets;
pub mod fences;
pub mod imports;
pub mod manifests;
pub mod metrics;
pub mod names;
pub mod ratchet;
pub mod source;
pub mod tree;
pub mod words;

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use source::Source;
use tree::TextFile;

/// Where the exceptions from the budgets stand.
pub const RATCHET: &str = "xtask/tidy-ratchet.txt";
/// Where the metrics stand that nothing uses, each with its reason.
pub const UNUSED_METRICS: &str = "xtask/tidy-metrics.txt";

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, relative to the root, with `/` between folders.
    pub path: String,
    /// The line, from 1; 0 means the whole file.
    pub line: usize,
    /// What is wrong and what to do.
    pub what: String,
}

impl Finding {
    /// A finding at a line.
    pub fn at(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            what: what.into(),
        }
    }

    /// A finding about a whole file.
    pub fn file(path: &str, what: impl Into<String>) -> Self {
        Self::at(path, 0, what)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            write!(f, "{}: {}", self.path, self.what)
        } else {
            write!(f, "{}:{}: {}", self.path, self.line, self.what)
        }
    }
}

/// Checks the tree under `root` against every rule. Findings come sorted by place.
///
/// # Errors
/// The tree cannot be read, or cargo cannot describe it.
pub fn check(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let files = tree::read(root)?;
    let mut findings = check_files(&files);
    findings.extend(imports::check(&metadata(root)?)?);
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// Every rule that needs nothing but the texts.
#[must_use]
pub fn check_files(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut sources = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        match Source::parse(file) {
            Ok(source) => sources.push(source),
            Err(finding) => findings.push(finding),
        }
    }
    let mut measures = Vec::new();
    for source in &sources {
        findings.extend(budgets::check_lines(source));
        findings.extend(names::check_modules(source));
        findings.extend(fences::check(source));
        findings.extend(words::check_code(source));
        measures.extend(budgets::measure(source));
    }
    for file in files {
        findings.extend(words::check_text(file));
        findings.extend(names::check_path(file));
        findings.extend(manifests::check(file));
    }
    findings.extend(manifests::check_pure_crates(files));
    findings.extend(ratchet::check(&measures, text_of(files, RATCHET)));
    findings.extend(metrics::check(
        &metrics::variants(),
        files,
        text_of(files, UNUSED_METRICS),
    ));
    findings
}

fn text_of<'a>(files: &'a [TextFile], path: &str) -> &'a str {
    files
        .iter()
        .find(|file| file.path == path)
        .map_or("", |file| &file.text)
}

/// What cargo tells about the workspace, without the network and without resolving anything.
fn metadata(root: &Path) -> anyhow::Result<String> {
    let out = Command::new(option_env!("CARGO").unwrap_or("cargo"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    anyhow::ensure!(
        out.status.success(),
        "cargo metadata failed: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).context("cargo metadata printed something else than text")
}
