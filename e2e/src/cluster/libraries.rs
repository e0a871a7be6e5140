//! The shared libraries that a program needs, found as the program itself would find them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::command::output;

/// The libraries of a program, and the loader that it names. None of a script or a static program.
///
/// # Errors
/// If a library is missing.
pub(crate) fn of(program: &Path) -> Result<Vec<PathBuf>> {
    let listed = output(Command::new("ldd").arg(program), None)?;
    // It fails for what has no libraries, and says which it is on either output.
    if !listed.status.success() {
        return Ok(Vec::new());
    }
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    text.lines()
        .filter_map(|line| parse(line).transpose())
        .collect::<Result<_>>()
        .map_err(|error: anyhow::Error| error.context(format!("{} cannot run", program.display())))
}

/// One line of `ldd`: `libc.so.6 => /lib/libc.so.6 (0x7f..)`, or `/lib/ld-linux.so.2 (0x7f..)`.
/// What is in no file, as the kernel's own library, has no path.
fn parse(line: &str) -> Result<Option<PathBuf>> {
    let line = line.trim();
    let found = line.split_once(" => ").map_or(line, |(_, path)| path);
    if found.starts_with("not found") {
        let name = line.split(' ').next().unwrap_or(line);
        bail!("the library {name} is missing; install it");
    }
    let path = found.rsplit_once(" (").map_or(found, |(path, _)| path);
    Ok(path.starts_with('/').then(|| PathBuf::from(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_kind_are_read() {
        let path = |line: &str| parse(line).unwrap().map(|path| path.display().to_string());
        assert_eq!(path("\tlinux-vdso.so.1 (0x00007ffd)"), None);
        assert_eq!(path("\tstatically linked"), None);
        assert_eq!(
            path("\tlibc.so.6 => /lib/x/libc.so.6 (0x00007f)"),
            Some("/lib/x/libc.so.6".into())
        );
        assert_eq!(
            path("\t/lib64/ld-linux.so.2 (0x00007f)"),
            Some("/lib64/ld-linux.so.2".into())
        );
        assert!(
            parse("\tlibx.so.1 => not found")
                .unwrap_err()
                .to_string()
                .contains("libx.so.1")
        );
    }
}
