//! The generation of the pool: a number on disk that rises each time the pool starts empty.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FILE: &str = "generation";

/// Why no generation could be begun.
#[derive(Debug, thiserror::Error)]
pub enum GenerationError {
    /// The folder or the file in it cannot be used.
    #[error("cannot {what} {}; check state_dir, its permissions and free space", .path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The file does not hold a number: a guess might run backwards.
    #[error(
        "{} does not hold a number; write one that is higher than any generation of this pool",
        .path.display()
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
    },
    /// There is no higher number.
    #[error("generation {0} is the last; start the pool with an empty state_dir")]
    Exhausted(u64),
}

/// Begins a generation above the one on disk and above `floor`, and makes it durable before it
/// returns. The caller serves only after that, so that no generation is lived twice.
///
/// # Errors
/// [`GenerationError`]; nothing may be served then.
pub fn begin(state_dir: &Path, floor: u64) -> Result<u64, GenerationError> {
    let path = state_dir.join(FILE);
    let failed = |what, path: &Path| {
        let path = path.to_owned();
        move |source| GenerationError::Io { what, path, source }
    };
    let mut builder = fs::DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o700)
        .create(state_dir)
        .map_err(failed("make", state_dir))?;
    let last = match fs::read_to_string(&path) {
        Ok(text) => {
            let number = text.trim().parse::<u64>();
            number.map_err(|_| GenerationError::Damaged { path: path.clone() })?
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(failed("read", &path)(error)),
    };
    let above = last.max(floor);
    let next = above
        .checked_add(1)
        .ok_or(GenerationError::Exhausted(above))?;
    let part = state_dir.join("generation.part");
    write_durably(&part, next).map_err(failed("write", &part))?;
    fs::rename(&part, &path).map_err(failed("replace", &path))?;
    let folder = File::open(state_dir).and_then(|folder| folder.sync_all());
    folder.map_err(failed("sync", state_dir))?;
    Ok(next)
}

fn write_durably(path: &Path, generation: u64) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    writeln!(file, "{generation}")?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rises_above_what_stands_there_and_above_the_floor() {
        let name = format!("larder-generation-{}", std::process::id());
        let folder = std::env::temp_dir().join(name).join("made");
        assert_eq!(begin(&folder, 0).expect("begun"), 1);
        assert_eq!(begin(&folder, 0).expect("begun"), 2);
        assert_eq!(begin(&folder, 40).expect("begun"), 41);
        assert_eq!(begin(&folder, 5).expect("begun"), 42);
        assert!(matches!(
            begin(&folder, u64::MAX),
            Err(GenerationError::Exhausted(_))
        ));
        fs::write(folder.join(FILE), "42x").expect("written");
        assert!(matches!(
            begin(&folder, 0),
            Err(GenerationError::Damaged { .. })
        ));
        // A place that cannot be a folder.
        let blocked = begin(&folder.join(FILE), 0).expect_err("a file is in the way");
        assert!(blocked.to_string().contains("state_dir"), "{blocked}");
        fs::remove_dir_all(folder.parent().expect("a parent")).expect("removed");
    }
}
