//! `unsafe` stays behind its fence and says why it is sound.

use super::Finding;
use super::source::Source;

/// The only folder whose code may be unsafe: the mapping of memory.
const ALLOWED: &str = "crates/transfer/src/memory/";
/// How far above the word its comment may start.
const REACH_LINES: usize = 8;

/// Checks every `unsafe` of a file.
#[must_use]
pub fn check(source: &Source<'_>) -> Vec<Finding> {
    let path = &source.file.path;
    let lines: Vec<&str> = source.file.text.lines().collect();
    let mut findings = Vec::new();
    for at in source.find(&["unsafe"]) {
        let line = source.tokens[at].line;
        if !path.starts_with(ALLOWED) {
            let what = format!("`unsafe` belongs under {ALLOWED} only");
            findings.push(Finding::at(path, line, what));
        } else if !is_explained(&lines, line) {
            let what = "say in a `SAFETY:` comment above why this is sound";
            findings.push(Finding::at(path, line, what));
        }
    }
    findings
}

/// Whether the line itself or the comments right above it say why. Between the comment and the
/// word only a started statement may stand, not the end of another one.
fn is_explained(lines: &[&str], line: usize) -> bool {
    let says = |text: &str| text.contains("SAFETY:") || text.contains("# Safety");
    let above = lines[..line].iter().rev().take(REACH_LINES);
    for (distance, text) in above.enumerate() {
        if says(text) {
            return true;
        }
        let code = text.trim_end();
        let is_comment = code.trim_start().starts_with("//");
        if distance > 0 && !is_comment && code.ends_with([';', '}']) {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::TextFile;

    fn found(path: &str, text: &str) -> Vec<usize> {
        let file = TextFile::new(path, text);
        check(&Source::parse(&file).expect("Rust"))
            .iter()
            .map(|one| one.line)
            .collect()
    }

    #[test]
    fn unsafe_is_found_outside_the_fence() {
        let text = "// SAFETY: none.\nunsafe fn f() {}\n#[unsafe(no_mangle)]\nfn g() {}\n";
        assert_eq!(found("crates/wire/src/a.rs", text), [2, 3]);
        assert_eq!(
            found("crates/wire/src/a.rs", "#![deny(unsafe_code)]\n// unsafe\n"),
            [0_usize; 0]
        );
    }

    #[test]
    fn unsafe_needs_its_reason() {
        let path = "crates/transfer/src/memory/map.rs";
        let good = "fn f() {\n    // SAFETY: the range is ours,\n    // and mapped.\n    \
                    let a =\n        unsafe { g() };\n}\n";
        assert_eq!(found(path, good), [0_usize; 0]);
        assert_eq!(found(path, "fn f() {\n    unsafe { g() }\n}\n"), [2]);
        let used = "fn f() {\n    // SAFETY: ours.\n    unsafe { g() };\n    unsafe { h() };\n}\n";
        assert_eq!(found(path, used), [4]);
        let doc = "/// Does.\n///\n/// # Safety\n/// Ours.\npub unsafe fn f() {}\n";
        assert_eq!(found(path, doc), [0_usize; 0]);
    }
}
