//! Container images from files of this machine: one layer, as an archive of the OCI image layout.
//!
//! Nothing else is needed to load them into containerd: no registry, no daemon that builds. The
//! same files give the same bytes, since no time and no owner gets in.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use super::libraries;
use super::machine::write;

/// An archive is made in memory, twice the size of its files.
const SIZE_MAX_BYTES: u64 = 1 << 30;

/// An image in the making.
#[derive(Clone, Debug)]
pub struct Image {
    name: String,
    /// By path in the image, without the slash at its start.
    files: BTreeMap<String, PathBuf>,
    entrypoint: Vec<String>,
    user: Option<String>,
}

impl Image {
    /// An empty image. `name` is what pods ask for, with a tag: `localhost/larder:test`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let (files, entrypoint) = (BTreeMap::new(), Vec::new());
        Self {
            name: name.to_owned(),
            files,
            entrypoint,
            user: None,
        }
    }

    /// Adds a file at the absolute path `at`. A program brings the libraries that it needs.
    ///
    /// # Errors
    /// If the file is missing, `at` is no absolute path, or a library is missing.
    pub fn file(mut self, file: impl AsRef<Path>, at: &str) -> Result<Self> {
        let file = file.as_ref();
        let kind = fs::metadata(file)
            .with_context(|| format!("{} cannot be put into an image", file.display()))?;
        if !kind.is_file() {
            bail!(
                "{} is no file; name the files of a folder one by one",
                file.display()
            );
        }
        let inside = inside(at)?;
        if kind.permissions().mode() & 0o111 != 0 {
            for library in libraries::of(file)? {
                let path = self::inside(&library.display().to_string())?;
                self.files.entry(path).or_insert(library);
            }
        }
        self.files.insert(inside, file.to_owned());
        Ok(self)
    }

    /// What runs if a pod does not say otherwise.
    #[must_use]
    pub fn entrypoint(mut self, words: &[&str]) -> Self {
        self.entrypoint = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Who runs it, as `UID` or `UID:GID`; root if nothing is said.
    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        self.user = Some(user.to_owned());
        self
    }

    /// Writes the archive.
    ///
    /// # Errors
    /// If a file cannot be read or written, or all are larger than 1 GiB together.
    pub fn write(&self, out: &Path) -> Result<()> {
        let layer = self.layer()?;
        let mut blobs = Blobs::default();
        let layer_digest = digest_of(&layer);
        let layer = blobs.add("application/vnd.oci.image.layer.v1.tar", layer);
        let config = json!({
            "architecture": architecture()?, "os": "linux",
            "config": {
                "Entrypoint": self.entrypoint, "User": self.user.as_deref().unwrap_or(""),
                "Env": [format!("PATH={}", super::command::PATH)],
            },
            "rootfs": { "type": "layers", "diff_ids": [layer_digest] },
        });
        let config = blobs.add("application/vnd.oci.image.config.v1+json", text(&config));
        let manifest_type = "application/vnd.oci.image.manifest.v1+json";
        let manifest = json!({
            "schemaVersion": 2, "mediaType": manifest_type, "config": config, "layers": [layer],
        });
        let mut manifest = blobs.add(manifest_type, text(&manifest));
        manifest["annotations"] = json!({
            "io.containerd.image.name": self.name, "org.opencontainers.image.ref.name": self.name,
        });
        let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
        let mut archive = Archive::default();
        archive.file(
            "oci-layout",
            &text(&json!({ "imageLayoutVersion": "1.0.0" })),
            0o644,
        )?;
        archive.file("index.json", &text(&index), 0o644)?;
        for (digest, bytes) in &blobs.0 {
            archive.file(&format!("blobs/sha256/{digest}"), bytes, 0o644)?;
        }
        write(out, archive.finish()?)
    }

    fn layer(&self) -> Result<Vec<u8>> {
        let mut total_bytes = 0;
        let mut archive = Archive::default();
        for (path, file) in &self.files {
            let what = || format!("{} cannot be read", file.display());
            let kind = fs::metadata(file).with_context(what)?;
            total_bytes += kind.len();
            if total_bytes > SIZE_MAX_BYTES {
                bail!(
                    "the files of {} are larger than 1 GiB; leave some out",
                    self.name
                );
            }
            let bytes = fs::read(file).with_context(what)?;
            let mode = if kind.permissions().mode() & 0o111 == 0 {
                0o644
            } else {
                0o755
            };
            archive.file(path, &bytes, mode)?;
        }
        archive.finish()
    }
}

/// What a layout refers to by its digest.
#[derive(Default)]
struct Blobs(BTreeMap<String, Vec<u8>>);

impl Blobs {
    /// Keeps bytes and gives what refers to them.
    fn add(&mut self, media_type: &str, bytes: Vec<u8>) -> Value {
        let digest = digest_of(&bytes);
        let reference = json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() });
        self.0
            .insert(digest.trim_start_matches("sha256:").to_owned(), bytes);
        reference
    }
}

/// A tar archive with the folders that its files need.
struct Archive {
    builder: Builder<Vec<u8>>,
    folders: BTreeSet<PathBuf>,
}

impl Default for Archive {
    fn default() -> Self {
        Self {
            builder: Builder::new(Vec::new()),
            folders: BTreeSet::new(),
        }
    }
}

impl Archive {
    fn file(&mut self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        let above: Vec<_> = Path::new(path).ancestors().skip(1).collect();
        for folder in above
            .into_iter()
            .rev()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            if self.folders.insert(folder.to_owned()) {
                let mut header = header(EntryType::Directory, 0, 0o755);
                self.builder
                    .append_data(&mut header, folder, std::io::empty())?;
            }
        }
        let mut header = header(EntryType::Regular, bytes.len() as u64, mode);
        Ok(self.builder.append_data(&mut header, path, bytes)?)
    }

    fn finish(self) -> Result<Vec<u8>> {
        Ok(self.builder.into_inner()?)
    }
}

fn header(kind: EntryType, size_bytes: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size_bytes);
    header.set_mode(mode);
    header.set_mtime(0);
    header
}

fn inside(at: &str) -> Result<String> {
    let path = at.strip_prefix('/').unwrap_or("");
    let parts = path.split('/');
    if path.is_empty()
        || parts
            .into_iter()
            .any(|part| matches!(part, "" | "." | ".."))
    {
        bail!("{at:?} is no place in an image; write an absolute path without . and ..");
    }
    Ok(path.to_owned())
}

fn digest_of(bytes: &[u8]) -> String {
    let hash = digest(&SHA256, bytes);
    let digits = hash.as_ref().iter().map(|byte| format!("{byte:02x}"));
    std::iter::once("sha256:".to_owned())
        .chain(digits)
        .collect()
}

fn text(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// This machine's, in the words of images.
fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("no images are made for {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_holds_what_its_digests_say() {
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join("data");
        fs::write(&data, "hello").unwrap();
        let image = Image::new("localhost/a:1")
            .file(&data, "/etc/a/data")
            .unwrap();
        let image = image
            .file("/bin/sh", "/bin/sh")
            .unwrap()
            .entrypoint(&["/bin/sh"]);
        let (one, two) = (home.path().join("1.tar"), home.path().join("2.tar"));
        image.write(&one).unwrap();
        image.write(&two).unwrap();
        assert_eq!(fs::read(&one).unwrap(), fs::read(&two).unwrap());

        let mut layers = Vec::new();
        for entry in tar::Archive::new(fs::File::open(&one).unwrap())
            .entries()
            .unwrap()
        {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut bytes = Vec::new();
            std::io::copy(&mut entry, &mut bytes).unwrap();
            if let Some(digest) = path
                .strip_prefix("blobs/sha256/")
                .filter(|rest| rest.len() == 64)
            {
                assert_eq!(digest_of(&bytes), format!("sha256:{digest}"));
                layers.push(bytes);
            }
        }
        layers.sort_by_key(Vec::len);
        let layer = layers.pop().unwrap();
        let mut archive = tar::Archive::new(layer.as_slice());
        let paths: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect();
        assert!(paths.iter().any(|path| path == "etc/a/data"), "{paths:?}");
        assert!(
            paths.iter().any(|path| path.contains("libc.so")),
            "{paths:?}"
        );
        assert!(
            paths
                .iter()
                .any(|path| path.trim_end_matches('/') == "etc/a"),
            "{paths:?}"
        );
    }

    #[test]
    fn places_outside_an_image_are_refused() {
        for at in ["", "/", "a", "/a/../b", "/a//b", "/a/"] {
            assert!(inside(at).is_err(), "{at}");
        }
        assert_eq!(inside("/a/b").unwrap(), "a/b");
    }
}
