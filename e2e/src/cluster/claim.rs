//! Who uses the machine's one cluster: a lock that lasts as long as the use.

use std::fs::{File, TryLockError};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::Say;
use super::command::{Look, until};

/// What there is one of on a machine, so that no file is left behind. Changes of the cluster lock
/// the folder of the control groups below it, for moments only.
const FOLDER: &str = "/sys/fs";
/// How long another use is waited for: a run of all tests takes less.
const WAIT_LIMIT: Duration = Duration::from_secs(600);

/// Held while the cluster is in use. It ends with its process, whatever becomes of that.
#[derive(Debug)]
pub(crate) struct Claim(#[expect(dead_code, reason = "closing it unlocks")] File);

impl Claim {
    /// Waits until nobody else uses the cluster, and says so if that takes time.
    ///
    /// # Errors
    /// If somebody still does after ten minutes.
    pub(crate) fn wait(say: Say) -> Result<Self> {
        let folder = File::open(FOLDER).with_context(|| format!("{FOLDER} cannot be opened"))?;
        let mut is_told = false;
        until(
            "another use of the cluster to end",
            WAIT_LIMIT,
            || match folder.try_lock() {
                Ok(()) => Ok(Look::Content(())),
                Err(TryLockError::WouldBlock) => {
                    if !std::mem::replace(&mut is_told, true) {
                        say("another process uses the cluster of this machine; waiting for it");
                    }
                    Ok(Look::NotYet("it is still in use".to_owned()))
                }
                Err(TryLockError::Error(error)) => {
                    Err(error).with_context(|| format!("{FOLDER} cannot be locked"))
                }
            },
        )?;
        Ok(Self(folder))
    }
}
