//! Every metric of the table is used by a program, or says why not.

use super::tree::TextFile;
use super::{Finding, UNUSED_METRICS};

/// The names of the metrics in code.
#[must_use]
pub fn variants() -> Vec<String> {
    larder_telemetry::Metric::ALL
        .iter()
        .map(|metric| format!("{metric:?}"))
        .collect()
}

/// Looks for `Metric::<variant>` in the code outside `telemetry`. `unused` holds lines
/// `Variant reason`; a line that is not needed is a finding too.
#[must_use]
pub fn check(variants: &[String], files: &[TextFile], unused: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut excused = Vec::new();
    for (index, line) in unused.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, reason) = line.split_once(' ').unwrap_or((line, ""));
        let found = |what: String| Finding::at(UNUSED_METRICS, index + 1, what);
        if !variants.iter().any(|variant| variant == name) {
            findings.push(found(format!(
                "there is no metric `{name}`; remove the line"
            )));
        } else if reason.trim().is_empty() {
            findings.push(found(format!("say why nothing uses `{name}`")));
        } else if is_used(name, files) {
            findings.push(found(format!("`{name}` is used now; remove the line")));
        }
        excused.push(name);
    }
    for variant in variants {
        if !excused.contains(&variant.as_str()) && !is_used(variant, files) {
            let what = format!("nothing uses `Metric::{variant}`; use it or remove its row");
            findings.push(Finding::file("crates/telemetry/src/metrics/table.rs", what));
        }
    }
    findings
}

fn is_used(variant: &str, files: &[TextFile]) -> bool {
    let word = format!("Metric::{variant}");
    files
        .iter()
        .filter(|file| file.is_rust())
        .filter(|file| {
            !file.path.starts_with("crates/telemetry/") && !file.path.starts_with("xtask/")
        })
        .any(|file| {
            let ends = |at: usize| !file.text[at..].starts_with(|c: char| c.is_alphanumeric());
            file.text
                .match_indices(&word)
                .any(|(at, _)| ends(at + word.len()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(code: &str, unused: &str) -> Vec<String> {
        let variants = ["Puts".to_owned(), "PutsTotal".to_owned()];
        let files = [
            TextFile::new(
                "crates/telemetry/src/a.rs",
                "Metric::Puts Metric::PutsTotal",
            ),
            TextFile::new("README.md", "Metric::Puts Metric::PutsTotal"),
            TextFile::new("master/src/a.rs", code),
        ];
        check(&variants, &files, unused)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn unused_metrics_are_found() {
        assert_eq!(
            told("inc(Metric::Puts, 1); inc(Metric::PutsTotal)", ""),
            [""; 0]
        );
        let found = told("inc(Metric::PutsTotal)", "");
        assert!(
            found.len() == 1 && found[0].contains("`Metric::Puts`"),
            "{found:?}"
        );
    }

    #[test]
    fn an_excuse_is_needed_and_has_a_reason() {
        let used = "inc(Metric::PutsTotal)";
        assert_eq!(
            told(used, "# why\n\nPuts the registry sets it itself\n"),
            [""; 0]
        );
        for unused in [
            "Puts\n",
            "Puts why\nPutsTotal why\n",
            "Puts why\nGets why\n",
        ] {
            assert_eq!(told(used, unused).len(), 1, "{unused:?}");
        }
    }
}
