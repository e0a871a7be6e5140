//! Compiles Kubernetes, etcd, CoreDNS and Helm from their modules, once for each version of their
//! sources.
//!
//! The sources are part of this program. Their digest names the folder of what was built from
//! them, so that a folder that exists is complete and right.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use ring::digest::{SHA256, digest};

use super::Say;
use super::command::run;
use super::folders::Folders;
use super::image::Image;
use super::life;
use super::machine::write;
use super::worker::PAUSE_IMAGE;

/// What is compiled.
const SOURCES: [(&str, &str); 7] = [
    ("go.mod", include_str!("../../cluster/go.mod")),
    ("go.sum", include_str!("../../cluster/go.sum")),
    (
        "forward/main.go",
        include_str!("../../cluster/forward/main.go"),
    ),
    ("helm/main.go", include_str!("../../cluster/helm/main.go")),
    (
        "kubebox/main.go",
        include_str!("../../cluster/kubebox/main.go"),
    ),
    (
        "kubectl/main.go",
        include_str!("../../cluster/kubectl/main.go"),
    ),
    ("pause/main.go", include_str!("../../cluster/pause/main.go")),
];
/// As `go.mod` has it.
const KUBERNETES: (&str, &str, &str) = ("1", "35", "4");
/// The oldest Go that compiles it.
const GO: (u32, u32) = (1, 26);
/// Debugging data is written for every package and then left out: not writing it saves a sixth.
const COMPILER_FLAGS: &str = "-gcflags=all=-dwarf=false";
const GO_FLAGS: &str = "-mod=readonly -trimpath -buildvcs=false";

/// How many packages there are, about: enough to judge how long it takes.
const PACKAGES: u32 = 3_100;
/// How many packages and modules pass between two lines of progress.
const PACKAGES_STEP: u32 = 200;
const MODULES_STEP: u32 = 50;

/// The folder of the programs, compiled if need be.
///
/// # Errors
/// If Go is missing or too old, or the compilation fails.
pub(crate) fn build(folders: &Folders, say: Say) -> Result<PathBuf> {
    let cache = &folders.cache;
    let folder = cache.join(version());
    if folder.is_dir() {
        return Ok(folder);
    }
    fs::create_dir_all(cache).with_context(|| format!("{} cannot be made", cache.display()))?;
    // Two at once would take more than twice as long.
    let lock = File::create(cache.join("lock"))?;
    lock.lock()?;
    if folder.is_dir() {
        return Ok(folder);
    }
    let go = go()?;
    let started = Instant::now();
    say("compiling Kubernetes; with two cores and nothing downloaded this takes 8 minutes, once");
    let sources = cache.join("sources");
    remove(&sources)?;
    for (path, text) in SOURCES {
        write(&sources.join(path), text)?;
    }
    let unfinished = cache.join("unfinished");
    remove(&unfinished)?;
    fs::create_dir(&unfinished)?;
    compile(&go, &sources, &unfinished, say)?;
    let pause = Image::new(PAUSE_IMAGE).file(unfinished.join("pause"), "/pause")?;
    pause
        .entrypoint(&["/pause"])
        .write(&unfinished.join("pause.tar"))?;
    remove(&sources)?;
    // A cluster may be running on what was built from other sources.
    forget_others(cache, life::programs(folders).as_deref())?;
    fs::rename(&unfinished, &folder)?;
    say(&format!("compiled in {} s", started.elapsed().as_secs()));
    Ok(folder)
}

/// Whether [`build`] has something to start from: what was built before, or a Go.
///
/// # Errors
/// If neither is there.
pub(crate) fn buildable(cache: &Path) -> Result<()> {
    if cache.join(version()).is_dir() {
        return Ok(());
    }
    go().map(drop)
}

fn compile(go: &Path, sources: &Path, folder: &Path, say: Say) -> Result<()> {
    // Behind whatever else the machine does, since nobody waits for a few seconds more.
    let mut compiler = Command::new("nice")
        .args(["-n", "10"])
        .arg(go)
        // It names each package that it is done with.
        .args([
            "build",
            "-v",
            COMPILER_FLAGS,
            "-ldflags",
            &linker_flags(),
            "-o",
        ])
        .arg(folder.join("")) // With a slash at its end: a folder for many.
        .arg("./...")
        .current_dir(sources)
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", GO_FLAGS)
        .env("GOTOOLCHAIN", "local")
        // The compiler is thousands of short processes; collecting their garbage is time lost.
        .env("GOGC", "800")
        .env_remove("GOWORK")
        .stderr(Stdio::piped())
        .spawn()
        .context("nice cannot be started")?;
    let said = compiler
        .stderr
        .take()
        .context("the compiler has no output")?;
    tell_progress(BufReader::new(said), say)?;
    if !compiler.wait()?.success() {
        bail!("the compilation of Kubernetes failed; see the lines above, then run it again");
    }
    Ok(())
}

/// Counts packages and downloads, and passes on everything else that the compiler says.
fn tell_progress(said: impl BufRead, say: Say) -> Result<()> {
    let (mut modules, mut packages) = (0, 0);
    for line in said.lines() {
        let line = line.context("the compiler's output broke off")?;
        if line.starts_with("go: downloading ") {
            modules += 1;
            if modules % MODULES_STEP == 0 {
                say(&format!("{modules} modules are downloaded"));
            }
        } else if line.contains([' ', ':']) {
            say(&line);
        } else {
            packages += 1;
            if packages % PACKAGES_STEP == 0 {
                say(&format!(
                    "{packages} of about {PACKAGES} packages are compiled"
                ));
            }
        }
    }
    Ok(())
}

/// Without symbols, and with the version that the daemons report.
fn linker_flags() -> String {
    let (major, minor, patch) = KUBERNETES;
    let values = [
        ("gitVersion", format!("v{major}.{minor}.{patch}")),
        ("gitMajor", major.to_owned()),
        ("gitMinor", minor.to_owned()),
        ("gitTreeState", "clean".to_owned()),
    ];
    values
        .iter()
        .fold("-s -w".to_owned(), |mut flags, (name, value)| {
            // Writing to a text cannot fail.
            let _ = write!(flags, " -X k8s.io/component-base/version.{name}={value}");
            flags
        })
}

/// A Go that is new enough.
fn go() -> Result<PathBuf> {
    let (major, minor) = GO;
    let usual = PathBuf::from("/usr/local/go/bin/go");
    // By name first: the caller's own path decides.
    for go in [PathBuf::from("go"), usual] {
        let mut ask = Command::new(&go);
        let Ok(version) = run(ask.args(["env", "GOVERSION"]).env("GOTOOLCHAIN", "local")) else {
            continue;
        };
        if go_is_new_enough(version.trim()) {
            return Ok(go);
        }
        bail!(
            "Go {major}.{minor} or newer is needed to compile Kubernetes and this one is {}; \
             install it as https://go.dev/doc/install says",
            version.trim()
        );
    }
    bail!(
        "Go {major}.{minor} or newer is needed to compile Kubernetes; install it as \
         https://go.dev/doc/install says, so that `go` is in the PATH"
    )
}

/// Of `go1.26.8` or `go1.27rc1`.
fn go_is_new_enough(version: &str) -> bool {
    let digits = |part: &str| -> Option<u32> {
        let end = part
            .find(|char: char| !char.is_ascii_digit())
            .unwrap_or(part.len());
        part[..end].parse().ok()
    };
    let mut parts = version
        .strip_prefix("go")
        .unwrap_or("")
        .split('.')
        .map(digits);
    let found = parts.next().flatten().zip(parts.next().flatten());
    // A version of no known form is one that somebody built, and may be tried.
    found.is_none_or(|found| found >= GO)
}

/// Names what would be built.
fn version() -> String {
    let mut text = format!(
        "{COMPILER_FLAGS} {GO_FLAGS} {} {PAUSE_IMAGE}",
        linker_flags()
    );
    for (path, source) in SOURCES {
        // With lengths, so that no two sets of files make the same text.
        let _ = write!(text, "\n{path} {}\n{source}", source.len());
    }
    let hash = digest(&SHA256, text.as_bytes());
    hash.as_ref()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Removes what was built from other sources and is not `used`: 0.3 GiB each.
fn forget_others(cache: &Path, used: Option<&Path>) -> Result<()> {
    for entry in fs::read_dir(cache)? {
        let path = entry?.path();
        let is_old = path.join("kubebox").is_file() && !path.ends_with("unfinished");
        if is_old && used != Some(path.as_path()) {
            remove(&path)?;
        }
    }
    Ok(())
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{} cannot be removed", folder.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_go_are_told_apart() {
        for (version, fine) in [
            ("go1.25.9", false),
            ("go1.26", true),
            ("go1.26rc2", true),
            ("go1.27.1 X:nocoverageredesign", true),
            ("go2.0", true),
            ("devel", true),
        ] {
            assert_eq!(go_is_new_enough(version), fine, "{version}");
        }
    }

    #[test]
    fn the_reported_version_is_the_one_of_the_module() {
        let (major, minor, patch) = KUBERNETES;
        let line = format!("k8s.io/kubernetes v{major}.{minor}.{patch}\n");
        assert!(SOURCES[0].1.contains(&line));
    }
}
