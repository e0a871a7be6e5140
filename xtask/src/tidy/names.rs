//! Names that say nothing are refused: they collect what has no place.

use super::Finding;
use super::source::Source;
use super::tree::TextFile;

const REFUSED: [&str; 6] = ["common", "helper", "helpers", "misc", "util", "utils"];

/// Checks the path of a file, and the name of the crate if it is a manifest.
#[must_use]
pub fn check_path(file: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    if file.is_rust() {
        for part in file.path.split('/') {
            let stem = part.strip_suffix(".rs").unwrap_or(part);
            findings.extend(refuse(&file.path, 0, stem));
        }
    }
    if file.path.ends_with("Cargo.toml") {
        for (index, line) in file.text.lines().enumerate() {
            let name = line
                .strip_prefix("name = \"")
                .and_then(|rest| rest.strip_suffix('"'));
            let parts = name.into_iter().flat_map(|name| name.split(['-', '_']));
            findings.extend(parts.filter_map(|part| refuse(&file.path, index + 1, part)));
        }
    }
    findings
}

/// Checks the modules that a file names.
#[must_use]
pub fn check_modules(source: &Source<'_>) -> Vec<Finding> {
    source
        .find(&["mod"])
        .filter_map(|at| source.tokens.get(at + 1))
        .filter_map(|name| refuse(&source.file.path, name.line, &name.text))
        .collect()
}

fn refuse(path: &str, line: usize, name: &str) -> Option<Finding> {
    REFUSED.contains(&name).then(|| {
        let what = format!("`{name}` says nothing; put it where its words belong");
        Finding::at(path, line, what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_say_nothing_are_found() {
        let manifest = "[package]\nname = \"larder-util\"\n";
        for (path, text, count) in [
            ("src/utils.rs", "", 1),
            ("tests/common/mod.rs", "", 1),
            ("src/helpers/misc.rs", "", 2),
            ("src/utilisation.rs", "", 0),
            ("docs/common.md", "", 0),
            ("x/Cargo.toml", manifest, 1),
            ("x/Cargo.toml", "[package]\nname = \"larder-wire\"\n", 0),
        ] {
            assert_eq!(
                check_path(&TextFile::new(path, text)).len(),
                count,
                "{path} {text}"
            );
        }
    }

    #[test]
    fn modules_are_found() {
        let file = TextFile::new(
            "src/a.rs",
            "mod wire;\npub(crate) mod util;\n// mod misc;\n",
        );
        let found = check_modules(&Source::parse(&file).expect("Rust"));
        assert_eq!(found.iter().map(|one| one.line).collect::<Vec<_>>(), [2]);
    }
}
