//! Every manifest names its licence and takes the lints; the pure crates ban what is not pure.

use super::Finding;
use super::tree::TextFile;

/// The crates that are told time, events and randomness and ask for nothing.
const PURE: [&str; 2] = ["crates/store", "crates/types"];

/// What their `clippy.toml` must ban or repeat. The nearest such file replaces the one at the root.
const PURE_BANS: [&str; 18] = [
    "allow-unwrap-in-tests = true",
    "allow-panic-in-tests = true",
    "allow-expect-in-tests = true",
    "\"std::sync::mpsc::channel\"",
    "\"std::time::Instant\"",
    "\"std::time::SystemTime\"",
    "\"std::env::var\"",
    "\"std::fs::read\"",
    "\"std::fs::File\"",
    "\"std::net::TcpStream\"",
    "\"std::thread::spawn\"",
    "\"std::thread::sleep\"",
    "\"tokio::spawn\"",
    "\"rand::rng\"",
    "\"rand::rngs::OsRng\"",
    "\"std::collections::HashMap\"",
    "\"std::collections::HashSet\"",
    "\"std::hash::RandomState\"",
];

/// Checks a manifest; other files pass.
#[must_use]
pub fn check(file: &TextFile) -> Vec<Finding> {
    if !file.path.ends_with("Cargo.toml") || !file.text.contains("[package]") {
        return Vec::new();
    }
    let mut section = "";
    let (mut licence, mut lints) = (false, false);
    for line in file.text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
            lints |= matches!(line, "[lints.rust]" | "[lints.clippy]");
        }
        let words: String = line.split_whitespace().collect();
        licence |= section == "[package]"
            && (words == "license.workspace=true" || words.starts_with("license=\""));
        lints |= section == "[lints]" && words == "workspace=true";
    }
    let mut findings = Vec::new();
    if !licence {
        findings.push(Finding::file(&file.path, "add `license.workspace = true`"));
    }
    if !lints {
        findings.push(Finding::file(
            &file.path,
            "add `[lints]` with `workspace = true`",
        ));
    }
    findings
}

/// Checks that each pure crate has its own list of bans.
#[must_use]
pub fn check_pure_crates(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for krate in PURE {
        let path = format!("{krate}/clippy.toml");
        match files.iter().find(|file| file.path == path) {
            None => findings.push(Finding::file(
                &path,
                "is missing; a pure crate has its bans",
            )),
            Some(file) => findings.extend(
                PURE_BANS
                    .iter()
                    .filter(|ban| !file.text.contains(*ban))
                    .map(|ban| Finding::file(&path, format!("{ban} is missing"))),
            ),
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "[package]\nname = \"a\"\nlicense.workspace = true\n\n[lints]\nworkspace = true\n";

    fn found(path: &str, text: &str) -> usize {
        check(&TextFile::new(path, text)).len()
    }

    #[test]
    fn manifests_are_complete() {
        assert_eq!(found("a/Cargo.toml", GOOD), 0);
        assert_eq!(
            found(
                "a/Cargo.toml",
                &GOOD.replace("license.workspace = true", "")
            ),
            1
        );
        assert_eq!(
            found("a/Cargo.toml", &GOOD.replace("[lints]", "[profile.dev]")),
            1
        );
        assert_eq!(found("a/Cargo.toml", "[package]\nname = \"a\"\n"), 2);
        let own = "[package]\nlicense = \"Apache-2.0\"\n[lints.clippy]\npanic = \"deny\"\n";
        assert_eq!(found("a/Cargo.toml", own), 0);
        assert_eq!(found("Cargo.toml", "[workspace]\n"), 0);
        assert_eq!(found("a/other.toml", "[package]\n"), 0);
    }

    #[test]
    fn pure_crates_ban_what_is_not_pure() {
        let full = PURE_BANS.join("\n");
        let files = |store: &str| {
            vec![
                TextFile::new("crates/store/clippy.toml", store),
                TextFile::new("crates/types/clippy.toml", &*full),
            ]
        };
        assert_eq!(check_pure_crates(&files(&full)), []);
        let less = full.replace("\"std::time::Instant\"", "");
        assert_eq!(check_pure_crates(&files(&less)).len(), 1);
        assert_eq!(check_pure_crates(&files(&full)[1..]).len(), 1);
    }
}
