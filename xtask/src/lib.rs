//! Tasks of the repository: generated files and the tidy test.

#[cfg(feature = "crdgen")]
pub mod crdgen;
pub mod render;
#[cfg(feature = "sim")]
pub mod sim;
pub mod tidy;

use std::path::{Path, PathBuf};

/// The folder of the workspace that this program was built from.
#[must_use]
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
