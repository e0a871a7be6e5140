//! The images of the product: its programs as they were built on this machine, and a pod that
//! uses them as an engine does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::command::{find, run};
use super::image::Image;

/// What the operator's pods, masters and agents run; as the `Dockerfile` makes it.
const PROGRAMS: [&str; 4] = ["larder", "larder-master", "larder-agent", "larder-operator"];
/// The certification authorities; as in the `Dockerfile`.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// What a person who plays an engine types into a pod, besides `larder`.
const TOOLS: [&str; 7] = ["cat", "cmp", "head", "ls", "sh", "sha256sum", "sleep"];
/// Who runs the product's image unless a pod says otherwise; as in the `Dockerfile`.
const USER: &str = "65532:65532";
/// How long a pod of [`ENGINE`] lives; a kill ends it sooner.
const LIFE_SECONDS: &str = "86400";

/// The name of the product's image in tests.
pub const PRODUCT: &str = "localhost/larder:e2e";
/// The name of the image for pods that act as engines: `larder`, a shell, and a sleep to wait for
/// `kubectl exec`.
pub const ENGINE: &str = "localhost/engine:e2e";

/// Archives of both images.
#[derive(Debug)]
pub struct Archives {
    /// Of the product.
    pub product: PathBuf,
    /// Of [`ENGINE`].
    pub engine: PathBuf,
}

/// Writes both images into `out`. The programs lie in `built`; `product` is the name of theirs.
///
/// # Errors
/// If a program is missing, with what to run, or the archives cannot be written.
pub fn write(built: &Path, product: &str, out: &Path) -> Result<Archives> {
    let bare = out.join("bare");
    fs::create_dir_all(&bare).with_context(|| format!("{} cannot be made", bare.display()))?;
    let at = |program: &str| format!("/usr/bin/{program}");
    let image = Image::new(product).entrypoint(&[&at("larder")]).user(USER);
    let mut image = image
        .file(AUTHORITIES, AUTHORITIES)
        .context("the certification authorities are missing; install ca-certificates")?;
    for program in PROGRAMS {
        image = image.file(strip(built, program, &bare)?, &at(program))?;
    }
    let mut engine = Image::new(ENGINE).file(bare.join("larder"), &at("larder"))?;
    for tool in TOOLS {
        let Some(path) = find(tool) else {
            bail!("the program {tool} is missing; install it")
        };
        engine = engine.file(path, &format!("/bin/{tool}"))?;
    }
    let engine = engine.entrypoint(&["/bin/sleep", LIFE_SECONDS]);
    let archives = Archives {
        product: out.join("product.tar"),
        engine: out.join("engine.tar"),
    };
    image.write(&archives.product)?;
    engine.write(&archives.engine)?;
    fs::remove_dir_all(&bare).with_context(|| format!("{} cannot be removed", bare.display()))?;
    Ok(archives)
}

/// Copies a program without what debuggers read: that is nine tenths of it, and every node would
/// unpack it.
fn strip(built: &Path, program: &str, out: &Path) -> Result<PathBuf> {
    let (from, to) = (built.join(program), out.join(program));
    if !from.is_file() {
        bail!(
            "{} is missing; run: cargo build --workspace --bins",
            from.display()
        );
    }
    if find("strip").is_none() {
        fs::copy(&from, &to).with_context(|| format!("{} cannot be copied", from.display()))?;
        return Ok(to);
    }
    run(Command::new("strip").arg("-o").arg(&to).arg(&from))?;
    Ok(to)
}
