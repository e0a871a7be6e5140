//! Files of users, good and bad.

use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

fn samples() -> Vec<(String, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../manifests/samples");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            (
                path.file_name().unwrap().to_string_lossy().into_owned(),
                text,
            )
        })
        .collect()
}

fn refusal(text: &str) -> String {
    parse_documents(text, "pool.yaml").unwrap_err().to_string()
}

const HEAD: &str = "apiVersion: larder.dev/v1alpha1\nkind: CachePool\nmetadata: {name: demo}\n";
const TIERS: &str = "  tiers: [{name: memory, medium: Dram, size: 1Gi}]\n";

#[test]
fn every_sample_is_sound() {
    for (file, text) in samples() {
        let documents = parse_documents(&text, &file).unwrap();
        assert!(!documents.is_empty(), "{file}");
    }
}

#[test]
fn defaults_are_in_what_is_read() {
    let text = format!("# A comment.\n---\n{HEAD}spec:\n{TIERS}---\n---\n");
    let documents = parse_documents(&text, "pool.yaml").unwrap();
    let [Document::Pool(pool)] = documents.as_slice() else {
        panic!("{documents:?}")
    };
    assert_eq!(pool.spec.tiers[0].slab_size.as_str(), "64Mi");
    assert_eq!(
        (
            pool.spec.masters.replicas,
            pool.spec.placement.replica_factor
        ),
        (1, 1)
    );
}

#[test]
fn messages_name_file_object_and_field() {
    let cases = [
        (
            format!("{HEAD}spec:\n  tiers: [{{name: memory, medium: Dram, sise: 1Gi}}]\n"),
            "pool.yaml (CachePool demo): spec.tiers[0].sise: unknown field; did you mean 'size'?\n\
             pool.yaml (CachePool demo): spec.tiers[0].size: is required",
        ),
        (
            format!("{HEAD}spec:\n  masters: {{replicas: 2}}\n{TIERS}"),
            "pool.yaml (CachePool demo): spec.masters.replicas: must be 1, 3 or 5: an even number \
             survives no more losses than one less",
        ),
        (
            format!("{HEAD}spec:\n  nodes: {{selector: {{-disk: ssd}}}}\n{TIERS}"),
            "pool.yaml (CachePool demo): spec.nodes.selector: '-disk' is not a label key, such as \
             example.com/disk",
        ),
        (
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n".into(),
            "pool.yaml (Deployment web): apiVersion: belongs to the group apps; only \
             larder.dev/v1alpha1 is read here",
        ),
        (
            "apiVersion: v1\nkind: Secret\n".into(),
            "pool.yaml (Secret, document 1): apiVersion: belongs to the group core; only \
             larder.dev/v1alpha1 is read here",
        ),
        (
            "apiVersion: larder.dev/v1\nkind: CachePool\n".into(),
            "pool.yaml (CachePool, document 1): apiVersion: the version v1 is not known; write \
             larder.dev/v1alpha1",
        ),
        (
            "apiVersion: larder.dev/v1alpha1\nkind: CacheNode\nmetadata: {name: x}\n".into(),
            "pool.yaml (CacheNode x): kind: a CacheNode is written by the operator; leave it out",
        ),
        (
            "apiVersion: larder.dev/v1alpha1\nkind: CachePol\n".into(),
            "pool.yaml (CachePol, document 1): kind: 'CachePol' is not known; it must be \
             CachePool, CacheTenant or CacheQuota",
        ),
        (
            "apiVersion: larder.dev/v1alpha1\n".into(),
            "pool.yaml (document 1): kind: is required: CachePool, CacheTenant or CacheQuota",
        ),
        (
            "kind: CachePool\n".into(),
            "pool.yaml (CachePool, document 1): apiVersion: is required and must be \
             larder.dev/v1alpha1",
        ),
        (
            "---\n---\n- just\n- a list\n".into(),
            "pool.yaml (document 1): must be a mapping with apiVersion, kind, metadata and spec",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(refusal(&text), expected, "{text}");
    }
}

#[test]
fn every_document_is_told_about() {
    let pool = format!("{HEAD}spec: {{}}\n");
    let tenant = "apiVersion: larder.dev/v1alpha1\nkind: CacheTenant\nmetadata: {name: a}\n";
    let found = refusal(&format!("{pool}---\n{tenant}spec: {{}}\n"));
    assert_eq!(
        found,
        "pool.yaml (CachePool demo): spec.tiers: is required\n\
         pool.yaml (CacheTenant a): spec.poolRef: is required"
    );
}

#[test]
fn yaml_errors_tell_the_place() {
    for (text, place) in [
        ("a: [1, 2", "line 1, column 4"),
        ("a: b: c\n", "line 1, column 5"),
        ("a: 1\na: 2\n", "line 2, column 1"),
        ("a:\n\t- 1\n", "line 2, column 2"),
    ] {
        let refused = refusal(text);
        assert!(
            refused.starts_with("pool.yaml: is not valid YAML: "),
            "{text:?}: {refused}"
        );
        assert!(refused.ends_with(place), "{text:?}: {refused}");
    }
}

#[test]
fn files_have_a_bound() {
    let long = "#".repeat(MAX_TEXT_BYTES + 1);
    assert!(matches!(
        parse_documents(&long, "f"),
        Err(DocumentError::TooLarge { .. })
    ));
    let many = "--- {a: 1}\n".repeat(MAX_DOCUMENTS + 1);
    assert!(matches!(
        parse_documents(&many, "f"),
        Err(DocumentError::TooMany { .. })
    ));
    // A document of a kilobyte that unfolds to gigabytes.
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for level in 1..9 {
        let before = format!("*a{},", level - 1).repeat(9);
        bomb.push_str(&format!("a{level}: &a{level} [{before}]\n"));
    }
    assert!(matches!(
        parse_documents(&bomb, "f"),
        Err(DocumentError::Syntax { .. })
    ));
}

#[test]
fn an_empty_file_has_no_documents() {
    for text in ["", "# nothing\n", "---\n", "---\n---\n"] {
        assert_eq!(parse_documents(text, "f").unwrap(), [], "{text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever is done to a sound file, the answer is documents or a message that names the file.
    #[test]
    fn a_damaged_file_is_read_or_refused(
        at in 0_usize..4096, remove in 0_usize..12, insert in "[ -~\n\t]{0,6}"
    ) {
        let (file, mut text) = samples().swap_remove(0);
        let start = (0..=at % text.len()).rev().find(|at| text.is_char_boundary(*at)).unwrap();
        let end = (start + remove).min(text.len());
        let end = (end..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap();
        text.replace_range(start..end, &insert);
        if let Err(error) = parse_documents(&text, &file) {
            for line in error.to_string().lines() {
                prop_assert!(line.starts_with(&file), "{}", line);
            }
        }
    }
}
