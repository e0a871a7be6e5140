//! The run folder of a pool that `larder up` started: what lies where, and who may use it.
//!
//! ```text
//! claim             locked by whoever starts, runs or removes the pool
//! supervisor.json   who runs the pool: the mark by which a run folder is known
//! plan.json         what was to be started        pool.json     what runs: the document
//! keys/ tokens/     secrets                       config/       of each process
//! state/ ready/     of each process               log/          of each process
//! agent-<n>.sock    sockets of the agents
//! ```

mod claim;
mod logs;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub(crate) use self::claim::Claim;
use crate::args::Global;
use crate::document::PoolDocument;
use crate::error::CliError;
use crate::process_id::ProcessId;

/// The most bytes of a file of ours that are read; the largest has a few hundred agents.
const READ_MAX_BYTES: u64 = 4 << 20;

const SUBFOLDERS: [&str; 6] = ["keys", "tokens", "config", "state", "ready", "log"];

/// A run folder.
#[derive(Clone, Debug)]
pub(crate) struct RunFolder {
    path: PathBuf,
}

/// Who runs a pool, and what it started.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Supervisor {
    /// The pool.
    pub(crate) pool: String,
    /// The process that watches over the others.
    pub(crate) process: ProcessId,
    /// The others.
    pub(crate) children: Vec<ChildRecord>,
}

/// A process that a supervisor started.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChildRecord {
    /// The name of the master or agent.
    pub(crate) name: String,
    /// The process.
    pub(crate) process: ProcessId,
}

/// Places where `larder up` puts run folders, the one for new ones first.
fn bases(global: &Global) -> Vec<PathBuf> {
    let runtime = global.runtime_dir.iter().map(|dir| dir.join("larder"));
    let home = global
        .home
        .iter()
        .map(|home| home.join(".local/state/larder"));
    runtime
        .chain(home)
        .filter(|base| base.is_absolute())
        .collect()
}

impl RunFolder {
    /// Takes a folder as it is.
    pub(crate) fn at(path: &Path) -> Result<Self, CliError> {
        let path =
            std::path::absolute(path).map_err(|source| CliError::file("find", path, source))?;
        if path.to_str().is_none() {
            // The configurations and documents that name it are JSON.
            return Err(CliError::Usage(format!(
                "{} is no text in UTF-8; choose another folder with --dir",
                path.display()
            )));
        }
        Ok(Self { path })
    }

    /// Where a new pool goes.
    pub(crate) fn for_new(global: &Global, pool: &str) -> Result<Self, CliError> {
        if let Some(dir) = global.dir.as_ref().filter(|_| global.pool.is_none()) {
            return Self::at(dir);
        }
        match bases(global).first() {
            Some(base) => Self::at(&base.join(pool)),
            None => Err(CliError::Usage(
                "neither XDG_RUNTIME_DIR nor HOME is set; say with --dir where to run".to_owned(),
            )),
        }
    }

    /// The folder of the pool that the arguments mean, whether or not it exists.
    pub(crate) fn find(global: &Global) -> Result<Self, CliError> {
        let bases = bases(global);
        match (&global.pool, &global.dir) {
            (Some(pool), _) => {
                let mut places = bases.iter().map(|base| base.join(pool));
                let first = places.clone().next();
                let found = places.find(|path| path.exists()).or(first);
                found.map(|path| Self { path }).ok_or_else(|| {
                    CliError::Usage("neither XDG_RUNTIME_DIR nor HOME is set; use --dir".to_owned())
                })
            }
            (None, Some(dir)) => Self::at(dir),
            (None, None) => Self::only_one(&bases),
        }
    }

    fn only_one(bases: &[PathBuf]) -> Result<Self, CliError> {
        let mut found: Vec<PathBuf> = bases
            .iter()
            .filter_map(|base| fs::read_dir(base).ok())
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.join("supervisor.json").exists())
            .collect();
        found.sort();
        match found.as_slice() {
            [one] => Ok(Self { path: one.clone() }),
            [] => Err(CliError::NoPool(
                "no pool of this user is up; start one with `larder up -f FILE`, or name one with \
                 --dir or --master"
                    .to_owned(),
            )),
            many => {
                let names = many.iter().filter_map(|path| path.file_name()?.to_str());
                let names = names.collect::<Vec<_>>().join(", ");
                Err(CliError::Usage(format!(
                    "several pools are up: {names}; choose with --pool"
                )))
            }
        }
    }

    /// Makes the folder and what is in it, and marks it as ours. Only this user can enter it, and
    /// nobody else can take it while the claim is held.
    pub(crate) fn create(&self, pool: &str) -> Result<Claim, CliError> {
        let claim = self.claim()?;
        self.check_unused()?;
        if let Err(error) = self.fill(pool) {
            // It was empty before; the first error is the one to tell.
            let _ = self.remove();
            return Err(error);
        }
        Ok(claim)
    }

    fn fill(&self, pool: &str) -> Result<(), CliError> {
        let process = ProcessId::of(std::process::id()).ok_or_else(|| CliError::System {
            action: "read /proc about this process",
            source: io::ErrorKind::NotFound.into(),
        })?;
        let supervisor = Supervisor {
            pool: pool.to_owned(),
            process,
            children: Vec::new(),
        };
        self.write_supervisor(&supervisor)?;
        for name in SUBFOLDERS {
            let path = self.path.join(name);
            DirBuilder::new()
                .mode(0o700)
                .create(&path)
                .map_err(|source| CliError::file("create", &path, source))?;
        }
        Ok(())
    }

    /// Says why a claimed folder cannot be used; makes it private if it is empty.
    fn check_unused(&self) -> Result<(), CliError> {
        if let Ok(Some(supervisor)) = self.supervisor() {
            return Err(CliError::Taken(if supervisor.process.is_running() {
                self.in_use()
            } else {
                self.abandoned(&supervisor.pool)
            }));
        }
        let used = |source| CliError::file("use", &self.path, source);
        if self.holds_things().map_err(used)? {
            return Err(self.holds_others());
        }
        fs::set_permissions(&self.path, fs::Permissions::from_mode(0o700)).map_err(used)
    }

    fn holds_others(&self) -> CliError {
        CliError::Usage(format!(
            "{} holds other things; choose a folder for --dir that is empty or new",
            self.path.display()
        ))
    }

    fn abandoned(&self, pool: &str) -> String {
        let path = self.path.display();
        format!(
            "pool {pool} in {path} ended without cleaning up; remove what it left with \
             `larder down --dir {path}`"
        )
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A place in the folder.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Where the socket of the agent of this number is.
    pub(crate) fn socket(&self, number: u32) -> PathBuf {
        self.join(&format!("agent-{number}.sock"))
    }

    /// The log of a process.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.join(&format!("log/{name}.log"))
    }

    /// Writes a file that only this user can read; it is whole or not there.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, CliError> {
        let path = self.join(name);
        let fresh = self.join(&format!("{name}.new"));
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| fs::rename(&fresh, &path));
        written.map_err(|source| CliError::file("write", &path, source))?;
        Ok(path)
    }

    /// Writes a value as JSON.
    pub(crate) fn write_json(
        &self,
        name: &str,
        value: &impl Serialize,
    ) -> Result<PathBuf, CliError> {
        let text = serde_json::to_vec_pretty(value)
            .map_err(|error| CliError::Program(format!("cannot write {name}: {error}")))?;
        self.write(name, &text)
    }

    /// Reads JSON; `None` if there is no such file.
    pub(crate) fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, CliError> {
        let path = self.join(name);
        let wrong = |source| CliError::file("read", &path, source);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(wrong(error)),
        };
        let mut text = Vec::new();
        file.take(READ_MAX_BYTES)
            .read_to_end(&mut text)
            .map_err(wrong)?;
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| wrong(error.into()))
    }

    /// Who runs the pool; `None` if this is no run folder.
    pub(crate) fn supervisor(&self) -> Result<Option<Supervisor>, CliError> {
        self.read_json("supervisor.json")
    }

    /// Whether the folder is still that of the pool that this process runs. One that cannot be
    /// read may be.
    pub(crate) fn is_run_by(&self, process: &ProcessId) -> bool {
        match self.supervisor() {
            Ok(found) => found.is_some_and(|one| one.process == *process),
            Err(_) => true,
        }
    }

    /// Notes who runs the pool.
    pub(crate) fn write_supervisor(&self, supervisor: &Supervisor) -> Result<(), CliError> {
        self.write_json("supervisor.json", supervisor).map(|_| ())
    }

    /// The document of the pool that is up here.
    pub(crate) fn document(&self) -> Result<PoolDocument, CliError> {
        let path = self.path.display();
        let supervisor = self.supervisor()?;
        let running = match &supervisor {
            Some(one) if !one.process.is_running() => {
                return Err(CliError::NoPool(self.abandoned(&one.pool)));
            }
            other => other.is_some(),
        };
        match self.read_json("pool.json")? {
            Some(document) if running => Ok(document),
            None if running => Err(CliError::NoPool(format!(
                "the pool in {path} is starting; try again when `larder up` says that it is up"
            ))),
            _ => Err(CliError::NoPool(format!(
                "no pool is up in {path}; start one with `larder up -f FILE --dir {path}`"
            ))),
        }
    }

    /// Removes the folder with all that is in it.
    pub(crate) fn remove(&self) -> Result<(), CliError> {
        match self.remove_claimed() {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(CliError::file("remove", &self.path, error))
            }
            _ => Ok(()),
        }
    }

    /// Removes a folder that holds nothing but what an `up` leaves that is killed early.
    pub(crate) fn remove_if_empty(&self) -> Result<(), CliError> {
        if !self.holds_things().is_ok_and(|holds| !holds) {
            return Ok(());
        }
        match self.claim_existing()? {
            Some(_claim) => self.remove(),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
