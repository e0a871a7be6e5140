//! Renders the chart: the custom resources become templates of it, and what the chart makes of its
//! default values becomes `manifests/install.yaml`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

/// The first line of every rendered file.
const HEADER: &str = "# Rendered by `larder-xtask render`; do not edit.\n";
/// The name and namespace of the release in `manifests/install.yaml`.
const RELEASE: &str = "larder";
const NAMESPACE: &str = "larder-system";

/// File name and text of each template, from the files in `crds/yaml`.
///
/// # Errors
/// A definition does not look as expected.
pub fn crd_template(yaml: &str) -> anyhow::Result<String> {
    let body: String = yaml
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect();
    let place = "\nmetadata:\n";
    anyhow::ensure!(
        body.matches(place).count() == 1,
        "the definition has not one metadata"
    );
    anyhow::ensure!(
        !body.contains("{{"),
        "the definition holds what a template would replace"
    );
    let metadata = "\nmetadata:\n  \
        {{- if .Values.crds.keep }}\n  \
        annotations:\n    \
        helm.sh/resource-policy: keep\n  \
        {{- end }}\n  \
        labels:\n    \
        {{- include \"larder.labels\" . | nindent 4 }}\n";
    let body = body.replace(place, metadata);
    Ok(format!(
        "{{{{- /* Rendered from crds/yaml by `larder-xtask render`; do not edit. */ -}}}}\n\
         {{{{- if .Values.crds.install }}}}\n{body}{{{{- end }}}}\n"
    ))
}

/// Writes `charts/larder/templates/crds` and, if there is a `helm`, `manifests/install.yaml`.
/// Returns the files written.
///
/// # Errors
/// A file cannot be read or written, or helm refuses the chart.
pub fn write(root: &Path, helm: Option<&Path>) -> anyhow::Result<Vec<PathBuf>> {
    let folder = root.join("charts/larder/templates/crds");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut written = Vec::new();
    for entry in fs::read_dir(root.join("crds/yaml"))? {
        let source = entry?.path();
        let name = source
            .file_name()
            .context("a file without a name")?
            .to_owned();
        let template = crd_template(&fs::read_to_string(&source)?)
            .with_context(|| format!("in {}", source.display()))?;
        let path = folder.join(name);
        fs::write(&path, template).with_context(|| format!("cannot write {}", path.display()))?;
        written.push(path);
    }
    if let Some(helm) = helm {
        let path = root.join("manifests/install.yaml");
        let text = install(root, helm)?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        written.push(path);
    }
    Ok(written)
}

/// What `kubectl apply` needs, from the chart's default values. Labels that name helm are taken
/// off, since nothing of this is a release.
fn install(root: &Path, helm: &Path) -> anyhow::Result<String> {
    let out = Command::new(helm)
        .args([
            "template",
            RELEASE,
            "charts/larder",
            "--namespace",
            NAMESPACE,
        ])
        .args(["--kube-version", "1.33.0"])
        .current_dir(root)
        .output()
        .with_context(|| format!("cannot run {}", helm.display()))?;
    anyhow::ensure!(
        out.status.success(),
        "helm refuses the chart: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    let text = String::from_utf8(out.stdout).context("helm printed something else than text")?;
    let is_helms = |line: &&str| {
        !line.trim_start().starts_with("helm.sh/")
            && !line.contains("app.kubernetes.io/managed-by: Helm")
            && !line.starts_with("# Source:")
    };
    let text: String = text
        .lines()
        .filter(is_helms)
        .map(|line| format!("{line}\n"))
        .collect();
    // An annotation block that held only helm's own entry.
    let text = text.replace("  annotations:\n  labels:\n", "  labels:\n");
    let namespace = format!(
        "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {NAMESPACE}\n  labels:\n    \
         app.kubernetes.io/name: larder\n    pod-security.kubernetes.io/enforce: restricted\n"
    );
    Ok(format!("{HEADER}{namespace}{text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_becomes_a_template() {
        let template = crd_template("# no\napiVersion: v1\nmetadata:\n  name: x\nspec: {}\n");
        let template = template.expect("as expected");
        assert!(template.contains("  name: x\n") && !template.contains("# no"));
        assert!(template.contains("resource-policy: keep"));
        assert!(crd_template("spec: {}\n").is_err());
        assert!(crd_template("a: {{x}}\nmetadata:\n").is_err());
    }

    /// The committed templates are those of the committed definitions.
    #[test]
    fn the_chart_has_the_present_definitions() {
        let root = crate::root();
        for entry in fs::read_dir(root.join("crds/yaml")).expect("definitions") {
            let source = entry.expect("a file").path();
            let yaml = fs::read_to_string(&source).expect("text");
            let name = source.file_name().expect("a name");
            let path = root.join("charts/larder/templates/crds").join(name);
            let found = fs::read_to_string(&path).expect("run `larder-xtask render`");
            let wanted = crd_template(&yaml).expect("as expected");
            assert!(
                found == wanted,
                "{}: run `larder-xtask render`",
                path.display()
            );
        }
    }
}
