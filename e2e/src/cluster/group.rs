//! Control groups: they tell which processes are the cluster's, whatever happened before.
//!
//! Every daemon has a group of its own, so that no process number is ever written down: a number
//! in a file is wrong after a crash, and the number of another process soon after. Two layouts
//! of the kernel are known: one hierarchy (v2), or one for each controller (v1) beside an empty
//! v2 one. Daemons enter one hierarchy only, that of no controller where there is one, and so
//! stay under the memory limit of whoever called `up`. Pods are put in all of them by runc.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::command::{Look, until};

/// The group of everything. There is one cluster on a machine.
pub(crate) const ROOT: &str = "larder";
const MOUNT: &str = "/sys/fs/cgroup";
const MEMBERS: &str = "cgroup.procs";
/// How long killed processes, and groups that they left, may take to vanish.
const END_LIMIT: Duration = Duration::from_secs(30);

/// The hierarchies of control groups of this machine.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    hierarchies: Vec<PathBuf>,
    /// The one that daemons enter.
    tracking: PathBuf,
}

impl Groups {
    /// Looks at what is mounted.
    ///
    /// # Errors
    /// If there are no control groups.
    pub(crate) fn find() -> Result<Self> {
        let is_hierarchy = |path: &Path| path.join(MEMBERS).is_file();
        let root = PathBuf::from(MOUNT);
        if is_hierarchy(&root) {
            return Ok(Self {
                hierarchies: vec![root.clone()],
                tracking: root,
            });
        }
        let mut hierarchies = BTreeSet::new();
        let entries = fs::read_dir(&root).with_context(|| format!("{MOUNT} cannot be read"))?;
        for entry in entries {
            // Controllers that share a hierarchy have a link each.
            let path = entry?.path();
            if is_hierarchy(&path) {
                hierarchies.insert(path.canonicalize()?);
            }
        }
        let of_no_controller = |path: &&PathBuf| is_v2(path) || path.ends_with("systemd");
        let tracking = hierarchies
            .iter()
            .rev()
            .find(of_no_controller)
            .or(hierarchies.first());
        let Some(tracking) = tracking.cloned() else {
            bail!("no control groups are mounted at {MOUNT}; kubelets cannot run without them");
        };
        Ok(Self {
            hierarchies: hierarchies.into_iter().collect(),
            tracking,
        })
    }

    /// Makes a group for a daemon and gives the file by which a process enters it.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn make(&self, group: &str) -> Result<PathBuf> {
        make_in(&self.tracking, group)?;
        Ok(self.tracking.join(group).join(MEMBERS))
    }

    /// Makes a group in every hierarchy: kubelet's root for pods must exist in all.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn make_everywhere(&self, group: &str) -> Result<()> {
        self.hierarchies
            .iter()
            .try_for_each(|hierarchy| make_in(hierarchy, group))
    }

    /// The processes in a group and in those below it.
    pub(crate) fn members(&self, group: &str) -> BTreeSet<u32> {
        let mut members = BTreeSet::new();
        for hierarchy in &self.hierarchies {
            for folder in below(&hierarchy.join(group)) {
                // A group may vanish between the listing and the read.
                let text = fs::read_to_string(folder.join(MEMBERS)).unwrap_or_default();
                members.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
            }
        }
        // What a process of another namespace looks like.
        members.remove(&0);
        members
    }

    /// Whether a group exists in any hierarchy.
    pub(crate) fn exists(&self, group: &str) -> bool {
        self.hierarchies
            .iter()
            .any(|hierarchy| hierarchy.join(group).exists())
    }

    /// Kills every process of a group and removes it with all below it.
    ///
    /// # Errors
    /// If processes or groups do not vanish in time.
    pub(crate) fn kill(&self, group: &str) -> Result<()> {
        until("killed processes to end", END_LIMIT, || {
            let members = self.members(group);
            for member in &members {
                let pid = i32::try_from(*member).ok().and_then(Pid::from_raw);
                // It may have ended meanwhile.
                let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
            }
            Ok(Look::holds(
                members.is_empty(),
                &format!("{members:?} live"),
            ))
        })?;
        for hierarchy in &self.hierarchies {
            // A group stays busy for a moment after its last process has ended.
            until("empty control groups to go", END_LIMIT, || {
                Ok(Look::at(remove(&hierarchy.join(group))))
            })?;
        }
        Ok(())
    }
}

/// Held while something of the cluster changes: one change at a time on a machine.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "closing it unlocks")] File);

impl Lock {
    /// Waits for its turn.
    ///
    /// # Errors
    /// If the folder cannot be locked.
    pub(crate) fn wait() -> Result<Self> {
        // The folder of the groups is locked itself: it is what there is one of, and no file is
        // left behind.
        let folder = File::open(MOUNT).with_context(|| format!("{MOUNT} cannot be opened"))?;
        folder
            .lock()
            .with_context(|| format!("{MOUNT} cannot be locked"))?;
        Ok(Self(folder))
    }
}

fn is_v2(hierarchy: &Path) -> bool {
    hierarchy.join("cgroup.controllers").is_file()
}

fn make_in(hierarchy: &Path, group: &str) -> Result<()> {
    let mut folder = hierarchy.to_path_buf();
    for part in group.split('/') {
        let parent = folder.clone();
        folder.push(part);
        match fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                let what = format!("{} cannot be made; run as root", folder.display());
                return Err(error).context(what);
            }
            _ => {}
        }
        // In v1 a new group has no processors and no memory, and admits no process.
        for setting in ["cpuset.cpus", "cpuset.mems"] {
            let file = folder.join(setting);
            if !is_v2(hierarchy) && file.is_file() && fs::read_to_string(&file)?.trim().is_empty() {
                let inherited = fs::read_to_string(parent.join(setting))?;
                fs::write(&file, inherited.trim())
                    .with_context(|| format!("{} cannot be set", file.display()))?;
            }
        }
    }
    Ok(())
}

/// A group and all below it, the deepest last.
fn below(group: &Path) -> Vec<PathBuf> {
    let mut folders = vec![group.to_path_buf()];
    let mut at = 0;
    while let Some(folder) = folders.get(at) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let children: Vec<_> = entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        folders.extend(children);
        at += 1;
    }
    folders
}

fn remove(group: &Path) -> Result<()> {
    for folder in below(group).iter().rev() {
        match fs::remove_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("{} stays", folder.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_below_come_after_their_parent() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("a/b")).unwrap();
        fs::write(home.path().join("a/file"), "").unwrap();
        let found = below(home.path());
        assert_eq!(
            found,
            [
                home.path().to_path_buf(),
                home.path().join("a"),
                home.path().join("a/b")
            ]
        );
        remove(&home.path().join("gone")).unwrap();
    }
}
