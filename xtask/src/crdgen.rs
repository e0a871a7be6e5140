//! Writes the YAML of the custom resources from their Rust types.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Writes every definition into `crds/yaml/` under `root` and removes YAML files there that no type
/// stands behind. Returns the files written.
///
/// # Errors
/// A definition cannot be generated, or a file or the folder cannot be written.
pub fn write(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let folder = root.join("crds/yaml");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut written = Vec::new();
    for (name, yaml) in larder_crds::generate()? {
        let path = folder.join(name);
        fs::write(&path, yaml).with_context(|| format!("cannot write {}", path.display()))?;
        written.push(path);
    }
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "yaml") && !written.contains(&path) {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(written)
}
