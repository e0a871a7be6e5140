//! The tree keeps its rules. `cargo run -p larder-xtask -- tidy` prints the same list.

use std::fmt::Write as _;

use larder_xtask::{root, tidy};

#[test]
fn the_tree_is_tidy() {
    let findings = tidy::check(&root()).expect("the tree can be read");
    let list = findings.iter().fold(String::new(), |mut list, finding| {
        let _ = writeln!(list, "{finding}");
        list
    });
    assert!(findings.is_empty(), "{} findings:\n{list}", findings.len());
}

/// A check that looks at no files would be content with anything.
#[test]
fn the_tree_is_seen() {
    let files = tidy::tree::read(&root()).expect("the tree can be read");
    for path in [
        "Cargo.toml",
        "Makefile",
        ".ci/run",
        "xtask/tests/tidy.rs",
        tidy::RATCHET,
    ] {
        assert!(
            files.iter().any(|file| file.path == path),
            "{path} is not seen"
        );
    }
    assert!(files.iter().all(|file| !file.path.starts_with("target/")));
}
