//! Snapshots in a folder: a folder for each, with its file and its manifest.
//!
//! A snapshot's folder is filled under a name that begins with a dot and then gets its own, and
//! gets such a name again before it is emptied: it is whole or not there.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use tokio::task::spawn_blocking;

use super::manifest::BYTES_MAX;
use super::store::Work;
use super::{MANIFEST_FILE, Manifest, SnapshotName, SnapshotStore, StoreError};

/// A folder of snapshots. Several masters may share one.
#[derive(Clone, Debug)]
pub(super) struct FolderStore {
    root: PathBuf,
    /// What the names begin with of what this master has under way: a dot, its own name, and a
    /// character that neither has.
    own: String,
}

fn failed(tried: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::File {
        tried,
        path,
        source,
    }
}

impl FolderStore {
    pub(super) fn new(root: PathBuf, master: &str) -> Self {
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let plain: String = master.chars().filter(is_plain).collect();
        let own = format!(".{plain}~");
        Self { root, own }
    }

    /// Where this master makes snapshots.
    pub(super) fn staging(&self) -> PathBuf {
        self.root.join(format!("{}staging", self.own))
    }

    fn folder(&self, name: &SnapshotName) -> PathBuf {
        self.root.join(name.as_str())
    }

    /// A folder that has to be gone before something is made in its place.
    fn clear(&self, folder: &Path) -> Result<(), StoreError> {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("remove", folder)(error))
            }
            _ => Ok(()),
        }
    }

    fn sync_root(&self) -> Result<(), StoreError> {
        sync(&self.root)
    }

    fn put_now(&self, manifest: &Manifest, file: &Path) -> Result<(), StoreError> {
        let new = self.root.join(format!("{}new", self.own));
        self.clear(&new)?;
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&new).map_err(failed("make", &new))?;
        let kept = new.join(manifest.file_name());
        move_file(file, &kept)?;
        let path = new.join(MANIFEST_FILE);
        let bytes = manifest.encode().map_err(io::Error::other);
        let bytes = bytes.map_err(failed("write", &path))?;
        let written = File::create(&path).and_then(|mut file| {
            file.write_all(&bytes)?;
            file.sync_all()
        });
        written.map_err(failed("write", &path))?;
        sync(&new)?;
        self.delete_now(&manifest.name)?;
        let folder = self.folder(&manifest.name);
        fs::rename(&new, &folder).map_err(failed("name", &folder))?;
        self.sync_root()
    }

    fn delete_now(&self, name: &SnapshotName) -> Result<bool, StoreError> {
        let gone = self.root.join(format!("{}gone", self.own));
        self.clear(&gone)?;
        let folder = self.folder(name);
        match fs::rename(&folder, &gone) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            done => done.map_err(failed("rename", &folder))?,
        }
        self.sync_root()?;
        self.clear(&gone)?;
        Ok(true)
    }

    /// The names of what is in the folder; nothing if there is none.
    fn entries(&self) -> Result<Vec<String>, StoreError> {
        let listed = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            listed => listed.map_err(failed("list", &self.root))?,
        };
        let mut names = Vec::new();
        for entry in listed {
            let entry = entry.map_err(failed("list", &self.root))?;
            // A name that is not text is none of ours.
            names.extend(entry.file_name().into_string());
        }
        names.sort();
        Ok(names)
    }

    fn names_now(&self) -> Result<Vec<SnapshotName>, StoreError> {
        let entries = self.entries()?.into_iter();
        let names = entries.filter_map(|name| SnapshotName::new(name).ok());
        let is_there = |name: &SnapshotName| self.folder(name).join(MANIFEST_FILE).is_file();
        Ok(names.filter(is_there).collect())
    }

    fn manifest_now(&self, name: &SnapshotName) -> Result<Option<Manifest>, StoreError> {
        let path = self.folder(name).join(MANIFEST_FILE);
        let size_bytes = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            facts => facts.map_err(failed("read", &path))?.len(),
        };
        let location = self.location(name);
        if size_bytes > BYTES_MAX {
            let what = format!("its manifest has {size_bytes} bytes");
            return Err(StoreError::Damaged { location, what });
        }
        let bytes = fs::read(&path).map_err(failed("read", &path))?;
        Manifest::decode(&bytes, &location).map(Some)
    }

    fn tidy_now(&self) -> Result<usize, StoreError> {
        let mut count = 0;
        for name in self.entries()? {
            if name.starts_with(&self.own) {
                self.clear(&self.root.join(name))?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Runs `act` on a thread that may wait for the disk.
    fn run<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Self) -> Result<T, StoreError> + Send + 'static,
    ) -> Work<'static, T> {
        let store = self.clone();
        Box::pin(async move { spawn_blocking(move || act(&store)).await? })
    }
}

fn sync(folder: &Path) -> Result<(), StoreError> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(failed("sync", folder))
}

/// Moves a file that is durable; between two disks it is copied.
fn move_file(from: &Path, to: &Path) -> Result<(), StoreError> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            fs::copy(from, to).map_err(failed("copy to", to))?;
            sync(to)
        }
        done => done.map_err(failed("move", from)),
    }
}

impl SnapshotStore for FolderStore {
    fn location(&self, name: &SnapshotName) -> String {
        self.folder(name).display().to_string()
    }

    fn names(&self) -> Work<'_, Vec<SnapshotName>> {
        self.run(Self::names_now)
    }

    fn manifest<'a>(&'a self, name: &'a SnapshotName) -> Work<'a, Option<Manifest>> {
        let name = name.clone();
        self.run(move |store| store.manifest_now(&name))
    }

    fn put<'a>(&'a self, manifest: &'a Manifest, file: &'a Path) -> Work<'a, ()> {
        let (manifest, file) = (manifest.clone(), file.to_owned());
        self.run(move |store| store.put_now(&manifest, &file))
    }

    fn fetch<'a>(&'a self, manifest: &'a Manifest, into: &'a Path) -> Work<'a, ()> {
        let from = self.folder(&manifest.name).join(manifest.file_name());
        let into = into.to_owned();
        self.run(move |_| {
            let copied = fs::copy(&from, &into).map_err(failed("copy", &from));
            copied.map(|_| ())
        })
    }

    fn delete<'a>(&'a self, name: &'a SnapshotName) -> Work<'a, bool> {
        let name = name.clone();
        self.run(move |store| store.delete_now(&name))
    }

    fn tidy(&self) -> Work<'_, usize> {
        self.run(Self::tidy_now)
    }
}
