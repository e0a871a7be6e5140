//! How long lines, functions and files may be, and how a file starts.

use super::Finding;
use super::ratchet::{Budget, Measure};
use super::source::Source;

/// The widest line in characters. rustfmt leaves strings and comments alone.
pub const LINE_MAX: usize = 100;

/// Checks the first line and the width of every line.
#[must_use]
pub fn check_lines(source: &Source<'_>) -> Vec<Finding> {
    let path = &source.file.path;
    let mut findings = Vec::new();
    let first = source.file.text.lines().next().unwrap_or("");
    if first
        .strip_prefix("//!")
        .is_none_or(|words| words.trim().is_empty())
    {
        let what = "the first line must be `//!` and say what the file is for";
        findings.push(Finding::at(path, 1, what));
    }
    for (index, line) in source.file.text.lines().enumerate() {
        let width = line.chars().count();
        if width > LINE_MAX {
            let what = format!("{width} characters wide, at most {LINE_MAX}");
            findings.push(Finding::at(path, index + 1, what));
        }
    }
    findings
}

/// Measures the file and its longest function.
#[must_use]
pub fn measure(source: &Source<'_>) -> Vec<Measure> {
    let path = &source.file.path;
    let (budget, lines) = if source.is_test_file() {
        (Budget::TestFile, source.file.text.lines().count())
    } else {
        (Budget::File, source.production_lines())
    };
    let mut measures = vec![Measure {
        path: path.clone(),
        budget,
        lines,
        at: 0,
        of: if budget == Budget::File {
            "outside its tests".to_owned()
        } else {
            String::new()
        },
    }];
    let longest = source
        .functions()
        .into_iter()
        .max_by_key(|function| function.code_lines);
    measures.extend(longest.map(|function| Measure {
        path: path.clone(),
        budget: Budget::Function,
        lines: function.code_lines,
        at: function.line,
        of: format!("in `{}`", function.name),
    }));
    measures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::TextFile;

    fn lines(text: &str) -> Vec<Finding> {
        let file = TextFile::new("src/a.rs", text);
        check_lines(&Source::parse(&file).expect("Rust"))
    }

    #[test]
    fn a_file_says_what_it_is_for() {
        assert_eq!(lines("//! Why.\n"), []);
        for text in ["fn f() {}\n", "//!\n", "\n//! Why.\n", "// Why.\n", ""] {
            assert_eq!(lines(text).len(), 1, "{text:?}");
        }
    }

    #[test]
    fn wide_lines_are_found() {
        let text = format!("//! Why.\n// {}\n// {}\n", "ä".repeat(97), "ä".repeat(98));
        let found = lines(&text);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 3);
    }

    #[test]
    fn files_and_functions_are_measured() {
        let text = "//! Why.\nfn a() {}\nfn b() {\n    c();\n}\n#[cfg(test)]\nmod t {\n}\n";
        let file = TextFile::new("src/a.rs", text);
        let found = measure(&Source::parse(&file).expect("Rust"));
        let told: Vec<_> = found.iter().map(|m| (m.budget, m.lines, m.at)).collect();
        assert_eq!(told, [(Budget::File, 5, 0), (Budget::Function, 3, 3)]);
        let file = TextFile::new("tests/a.rs", text);
        let found = measure(&Source::parse(&file).expect("Rust"));
        assert_eq!((found[0].budget, found[0].lines), (Budget::TestFile, 8));
    }
}
