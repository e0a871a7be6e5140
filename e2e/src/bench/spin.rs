//! Spinners of idle priority: a processor that sleeps takes 35–40 us to wake and swamps a latency.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// One spinner per processor; they end when this is dropped.
#[derive(Debug)]
pub struct Spinners(Vec<Child>);

impl Spinners {
    /// Starts them under SCHED_IDLE, so that any other work takes their place at once.
    ///
    /// # Errors
    /// If `chrt` (package util-linux) is missing.
    pub fn start() -> Result<Self> {
        let count = std::thread::available_parallelism()?.get();
        let own = std::env::current_exe()?;
        let mut children = Self(Vec::with_capacity(count));
        for _ in 0..count {
            let child = Command::new("chrt")
                .args(["--idle", "0"])
                .arg(&own)
                .arg("spin")
                .stdin(Stdio::piped())
                .spawn()
                .context("cannot start chrt; install the package util-linux")?;
            children.0.push(child);
        }
        Ok(children)
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The body of a spinner: spins until its parent is gone.
pub fn spin() {
    let parent = rustix::process::getppid();
    loop {
        for _ in 0..2_000_000 {
            std::hint::spin_loop();
        }
        if rustix::process::getppid() != parent {
            return;
        }
    }
}
