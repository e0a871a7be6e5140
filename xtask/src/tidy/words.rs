//! Words and calls that may not be in the tree.

use super::Finding;
use super::source::{Source, is_word};
use super::tree::TextFile;

/// Rows of tokens that are refused everywhere, with what to do instead.
const ROWS: [(&[&str], &str); 6] = [
    (
        &["unbounded_channel"],
        "every queue has a bound; use `mpsc::channel(n)`",
    ),
    (
        &["mpsc", ":", ":", "channel", "(", ")"],
        "every queue has a bound; use `sync_channel(n)`",
    ),
    (
        &["#", "[", "ignore"],
        "no test is ignored; print `skipped: reason` where hardware lacks",
    ),
    (&["todo", "!"], "finish it"),
    (&["unimplemented", "!"], "finish it"),
    (&["dbg", "!"], "remove it"),
];

/// Words that are refused in texts but documents; split, since this file is a text too.
const MARKS: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];

/// Paths of one machine and hosts of registries; split for the same reason.
const PLACES: [&str; 8] = [
    concat!("/wo", "rk/"),
    concat!("/fa", "rm/"),
    concat!("crates", ".io/api"),
    concat!("index.crates", ".io"),
    concat!("pypi", ".org"),
    concat!("proxy.golang", ".org"),
    concat!("registry.np", "mjs"),
    concat!("deb.debian", ".org"),
];

/// Checks the code of a file.
#[must_use]
pub fn check_code(source: &Source<'_>) -> Vec<Finding> {
    let path = &source.file.path;
    let mut findings = Vec::new();
    for (row, what) in ROWS {
        for at in source.find(row) {
            findings.push(Finding::at(path, source.tokens[at].line, what));
        }
    }
    for at in source.find(&["Arc", "<"]) {
        if let Some(lock @ ("Mutex" | "RwLock")) = last_word_of_path(source, at + 2) {
            let what = format!("`Arc<{lock}<..>>` has no owner; send messages to one");
            findings.push(Finding::at(path, source.tokens[at].line, what));
        }
    }
    for call in ["sleep", "sleep_until"] {
        for at in source.find(&[call, "("]) {
            let line = source.tokens[at].line;
            if source.is_test_line(line) {
                let what = "a test does not sleep; wait for the event or move a fake clock";
                findings.push(Finding::at(path, line, what));
            }
        }
    }
    findings
}

/// The last word of `a::b::C` that starts at `at`.
fn last_word_of_path<'s>(source: &'s Source<'_>, at: usize) -> Option<&'s str> {
    let text = |at: usize| source.tokens.get(at).map(|token| token.text.as_str());
    let mut at = at;
    while text(at + 1) == Some(":") && text(at + 2) == Some(":") {
        at += 3;
    }
    text(at).filter(|word| is_word(word))
}

/// Checks the text of any file.
#[must_use]
pub fn check_text(file: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for mark in MARKS.iter().filter(|_| !file.ends_with("md")) {
            if has_word(line, mark) {
                let what = format!("`{mark}`: do it, or open an issue and leave no mark");
                findings.push(Finding::at(&file.path, index + 1, what));
            }
        }
        for place in PLACES.iter().filter(|place| line.contains(**place)) {
            let what = format!("`{place}` is a place of one machine or a host of a registry");
            findings.push(Finding::at(&file.path, index + 1, what));
        }
    }
    findings
}

fn has_word(line: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(joins) && !line[at + word.len()..].starts_with(joins))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(path: &str, text: &str) -> Vec<usize> {
        let file = TextFile::new(path, text);
        check_code(&Source::parse(&file).expect("Rust"))
            .iter()
            .map(|one| one.line)
            .collect()
    }

    #[test]
    fn refused_code_is_found() {
        for text in [
            "fn f() { let (a, b) = unbounded_channel(); }",
            "fn f() { let (a, b) = std::sync::mpsc::channel(); }",
            "struct S(Arc<Mutex<u8>>);",
            "struct S(Arc<tokio::sync::RwLock<u8>>);",
            "#[ignore = \"slow\"]\nfn f() {}",
            "fn f() { todo!() }",
            "fn f() { unimplemented!(\"x\") }",
            "fn f() { dbg!(1); }",
        ] {
            assert_eq!(code("src/a.rs", text), [1], "{text}");
        }
    }

    #[test]
    fn what_only_looks_like_it_is_not() {
        for text in [
            "// unbounded_channel, todo!(), Arc<Mutex<u8>>",
            "fn f() { \"dbg!(1) #[ignore\"; }",
            "struct S(Arc<u8>, Mutex<u8>, Arc<[Mutex<u8>]>);",
            "fn f() { mpsc::channel(4); todo(); }",
            "fn f() { sleep(second); }",
        ] {
            assert_eq!(code("src/a.rs", text), [0_usize; 0], "{text}");
        }
    }

    #[test]
    fn tests_do_not_sleep() {
        let text = "fn f() { sleep(a); }\n#[cfg(test)]\nmod t {\n fn g() { thread::sleep(b); }\n}";
        assert_eq!(code("src/a.rs", text), [4]);
        assert_eq!(code("tests/a.rs", text), [1, 4]);
        assert_eq!(
            code("src/a/tests.rs", "async fn f() { time::sleep(a).await; }"),
            [1]
        );
    }

    #[test]
    fn marks_and_places_are_found() {
        let mark = concat!("// TO", "DO: later");
        assert_eq!(check_text(&TextFile::new("a.sh", mark)).len(), 1);
        assert_eq!(check_text(&TextFile::new("a.md", mark)).len(), 0);
        assert_eq!(
            check_text(&TextFile::new("a.rs", concat!("TO", "DOs ok"))).len(),
            0
        );
        for place in PLACES {
            let file = TextFile::new("a.md", format!("a\nsee {place}x\n"));
            let found = check_text(&file);
            assert!(found.len() == 1 && found[0].line == 2, "{place}");
        }
    }
}
