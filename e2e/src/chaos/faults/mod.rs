//! Faults of disk, clock and machine for the processes of a pool, without a special kernel.
//!
//! A small C file ([`Library::build`]) stands between each process and the C library and reads what
//! it is to do from a mapped file, the [`Control`] of the process. Nothing of it is in the product:
//! it is loaded with `LD_PRELOAD`. It was preferred to a file system in user space, which this
//! machine's kernel may lack, and to hooks in the programs, which would be other programs then.
//!
//! ```text
//! faults.c  delays, refuses, remembers what is durable; the clock; the boot id; off and on
//! control   the words that the two sides share
//! power     what a loss of power leaves of a folder
//! ```

mod control;
mod power;

pub use control::{Control, File, WORDS};
pub use power::{Cut, cut};

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::pool::larder;

const SOURCE: &str = include_str!("faults.c");

/// The compiled library and the folder of the control files.
#[derive(Clone, Debug)]
pub struct Library {
    object: PathBuf,
    controls: PathBuf,
}

impl Library {
    /// Compiles the library beside the programs, unless that was done, with `cc`, which is there
    /// because Rust links with it. Control files go to `controls`.
    ///
    /// # Errors
    /// With what the compiler says.
    pub fn build(controls: &Path) -> Result<Self> {
        let mut hasher = DefaultHasher::new();
        SOURCE.hash(&mut hasher);
        let beside = larder()?;
        let beside = beside.parent().context("the program lies in a folder")?;
        let object = beside.join(format!("libchaos-{:016x}.so", hasher.finish()));
        std::fs::create_dir_all(controls)?;
        if !object.is_file() {
            compile(&object)?;
        }
        Ok(Self {
            object,
            controls: controls.to_owned(),
        })
    }

    /// What a process needs in its environment to be steered.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, PathBuf)> {
        vec![
            ("LD_PRELOAD".to_owned(), self.object.clone()),
            ("LARDER_FAULTS".to_owned(), self.controls.clone()),
        ]
    }

    /// The control of a process of this name, made before it starts. `watched` is the folder whose
    /// files its faults of the disk are about.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn control(&self, name: &str, watched: &Path) -> Result<Control> {
        Control::create(&self.controls.join(format!("{name}.control")), watched)
    }
}

fn compile(object: &Path) -> Result<()> {
    // Under a name of its own first: two harnesses may start at the same time.
    let part = object.with_extension(format!("{}.part", std::process::id()));
    let mut compiler = Command::new("cc")
        .args(["-x", "c", "-O2", "-shared", "-fPIC", "-pthread", "-o"])
        .arg(&part)
        .args(["-", "-ldl"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cc cannot be started; install a C compiler")?;
    if let Some(mut stdin) = compiler.stdin.take() {
        stdin.write_all(SOURCE.as_bytes())?;
    }
    let output = compiler.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cc: {said}");
    std::fs::rename(&part, object)?;
    Ok(())
}
