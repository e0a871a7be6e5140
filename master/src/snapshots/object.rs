//! Snapshots in an object store: an object for each file, and then one for its manifest.
//!
//! `<prefix>/<name>/snapshot-<index>-<term>` and `<prefix>/<name>/manifest.json`. The manifest is
//! written last and removed first.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt as _;
use object_store::aws::AmazonS3Builder;
use object_store::path::Path as Key;
use object_store::{
    Certificate, ClientOptions, Error, ObjectMeta, ObjectStore as Remote, ObjectStoreExt as _,
    RetryConfig, WriteMultipart,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::manifest::BYTES_MAX;
use super::store::Work;
use super::{MANIFEST_FILE, Manifest, SnapshotName, SnapshotStore, StoreError};
use crate::config::ObjectStoreConfig;

/// A file is sent in parts of so many bytes: S3 takes no smaller ones and at most 10,000 of them,
/// so 80 GiB are the largest file.
const PART_BYTES: usize = 8 << 20;
/// Parts on their way at once; with the one that is read, 40 MiB.
const PARTS_AT_ONCE: usize = 4;
/// The most objects that are looked at under the prefix: a few for each of the snapshots kept.
const LISTED_MAX: usize = 1_024;
/// The longest file of a key or a certificate, in bytes.
const CREDENTIAL_BYTES_MAX: usize = 256 * 1024;
/// How often and for how long a request is tried again.
const RETRIES: usize = 4;
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);
/// The manifest follows its file at once, and a file is seen when all of it is there.
const RUBBISH_AFTER: Duration = Duration::from_secs(3_600);

/// An object store, and what names of this pool begin with.
#[derive(Debug)]
pub(super) struct ObjectStore {
    remote: Arc<dyn Remote>,
    prefix: Key,
    /// What locations begin with, for people.
    shown: String,
    /// A file without a manifest is rubbish when it is older: else somebody may be sending it.
    rubbish_after: Duration,
}

fn failed(tried: &'static str, location: &str) -> impl FnOnce(Error) -> StoreError {
    let location = location.to_owned();
    move |error| StoreError::Remote {
        tried,
        location,
        source: error.into(),
    }
}

fn file_failed(tried: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::File {
        tried,
        path,
        source,
    }
}

/// The text of a credential's file, without the end of its line.
async fn secret(path: &Path) -> Result<String, StoreError> {
    let bytes = tokio::fs::read(path).await;
    let bytes = bytes.map_err(file_failed("read", path))?;
    let refuse = |what| {
        Err(StoreError::Credential {
            path: path.to_owned(),
            what,
        })
    };
    if bytes.len() > CREDENTIAL_BYTES_MAX {
        return refuse("is longer than 256 KiB");
    }
    match String::from_utf8(bytes) {
        Ok(text) if text.trim().is_empty() => refuse("is empty"),
        Ok(text) => Ok(text.trim().to_owned()),
        Err(_) => refuse("is no text"),
    }
}

impl ObjectStore {
    pub(super) fn new(
        remote: Arc<dyn Remote>,
        prefix: &str,
        shown: String,
        rubbish_after: Duration,
    ) -> Self {
        let prefix = Key::from(prefix);
        Self {
            remote,
            prefix,
            shown,
            rubbish_after,
        }
    }

    /// One that speaks the protocol of S3. Nothing is asked of it yet.
    pub(super) async fn s3(config: &ObjectStoreConfig) -> Result<Self, StoreError> {
        // The second time in a process it is there, which is as good.
        drop(rustls::crypto::ring::default_provider().install_default());
        let ObjectStoreConfig {
            endpoint,
            region,
            bucket,
            prefix,
            ..
        } = config;
        let is_plain = endpoint
            .as_ref()
            .is_some_and(|url| url.starts_with("http://"));
        let mut client = ClientOptions::new()
            .with_allow_http(is_plain)
            .with_connect_timeout(Duration::from_secs(5))
            .with_timeout(Duration::from_secs(120));
        if let Some(path) = &config.ca_file {
            let pem = secret(path).await?;
            let certificates = Certificate::from_pem_bundle(pem.as_bytes());
            let certificates = certificates.map_err(|_| StoreError::Credential {
                path: path.clone(),
                what: "holds no certificates in PEM",
            })?;
            for certificate in certificates {
                client = client.with_root_certificate(certificate);
            }
        }
        let retry = RetryConfig {
            max_retries: RETRIES,
            retry_timeout: RETRY_TIMEOUT,
            ..RetryConfig::default()
        };
        let mut builder = AmazonS3Builder::new()
            .with_client_options(client)
            .with_retry(retry)
            .with_region(region)
            .with_bucket_name(bucket)
            .with_access_key_id(secret(&config.access_key_id_file).await?)
            .with_secret_access_key(secret(&config.secret_access_key_file).await?);
        if let Some(endpoint) = endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        let shown = format!("s3://{bucket}");
        let remote = builder.build().map_err(failed("take", &shown))?;
        Ok(Self::new(Arc::new(remote), prefix, shown, RUBBISH_AFTER))
    }

    fn key(&self, name: &SnapshotName, file: &str) -> Key {
        let prefix = self.prefix.clone();
        prefix.join(name.as_str()).join(file)
    }

    fn shown(&self, key: &Key) -> String {
        format!("{}/{key}", self.shown)
    }

    /// All objects under a prefix.
    async fn listed(&self, prefix: &Key) -> Result<Vec<ObjectMeta>, StoreError> {
        let shown = self.shown(prefix);
        let under = (!prefix.as_ref().is_empty()).then_some(prefix);
        let mut objects = self.remote.list(under);
        let mut found = Vec::new();
        while let Some(object) = objects.next().await {
            found.push(object.map_err(failed("list", &shown))?);
            if found.len() > LISTED_MAX {
                let what = format!("more than {LISTED_MAX} objects are there; give a `prefix`");
                let location = shown;
                return Err(StoreError::Damaged { location, what });
            }
        }
        Ok(found)
    }

    /// The snapshot and the file that an object belongs to; `None`: it is none of ours.
    fn parts(&self, key: &Key) -> Option<(SnapshotName, String)> {
        let mut parts = key.prefix_match(&self.prefix)?;
        let (name, file, none) = (parts.next()?, parts.next()?, parts.next());
        let name = SnapshotName::new(name.as_ref()).ok()?;
        none.is_none().then(|| (name, file.as_ref().to_owned()))
    }

    async fn remove(&self, key: &Key) -> Result<bool, StoreError> {
        match self.remote.delete(key).await {
            Err(Error::NotFound { .. }) => Ok(false),
            done => {
                done.map_err(failed("delete", &self.shown(key)))?;
                Ok(true)
            }
        }
    }

    async fn send(&self, file: &Path, key: &Key) -> Result<(), StoreError> {
        let shown = self.shown(key);
        let opened = tokio::fs::File::open(file).await;
        let mut opened = opened.map_err(file_failed("read", file))?;
        let upload = self.remote.put_multipart(key).await;
        let upload = upload.map_err(failed("take", &shown))?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        let mut part = vec![0; PART_BYTES];
        let sent: Result<(), StoreError> = async {
            loop {
                let room = upload.wait_for_capacity(PARTS_AT_ONCE).await;
                room.map_err(failed("take", &shown))?;
                let read = opened.read(&mut part).await;
                let bytes = read.map_err(file_failed("read", file))?;
                if bytes == 0 {
                    return Ok(());
                }
                upload.write(part.get(..bytes).unwrap_or_default());
            }
        }
        .await;
        if let Err(error) = sent {
            // What it has taken would be kept, unseen and paid for.
            drop(upload.abort().await);
            return Err(error);
        }
        let done = upload.finish().await.map_err(failed("take", &shown));
        done.map(|_| ())
    }

    async fn receive(&self, key: &Key, into: &Path) -> Result<(), StoreError> {
        let shown = self.shown(key);
        let got = self.remote.get(key).await.map_err(failed("give", &shown))?;
        let file = tokio::fs::File::create_new(into).await;
        let mut file = file.map_err(file_failed("write", into))?;
        let mut bytes = got.into_stream();
        while let Some(some) = bytes.next().await {
            let some = some.map_err(failed("give", &shown))?;
            let written = file.write_all(&some).await;
            written.map_err(file_failed("write", into))?;
        }
        file.sync_all().await.map_err(file_failed("write", into))
    }
}

impl SnapshotStore for ObjectStore {
    fn location(&self, name: &SnapshotName) -> String {
        self.shown(&self.prefix.clone().join(name.as_str()))
    }

    fn names(&self) -> Work<'_, Vec<SnapshotName>> {
        Box::pin(async {
            let objects = self.listed(&self.prefix).await?;
            let parts = objects.iter().filter_map(|one| self.parts(&one.location));
            let mut names: Vec<SnapshotName> = parts
                .filter(|(_, file)| file == MANIFEST_FILE)
                .map(|(name, _)| name)
                .collect();
            names.sort();
            Ok(names)
        })
    }

    fn manifest<'a>(&'a self, name: &'a SnapshotName) -> Work<'a, Option<Manifest>> {
        Box::pin(async {
            let key = self.key(name, MANIFEST_FILE);
            let location = self.location(name);
            let got = match self.remote.get(&key).await {
                Err(Error::NotFound { .. }) => return Ok(None),
                got => got.map_err(failed("give", &location))?,
            };
            let size_bytes = got.meta.size;
            if size_bytes > BYTES_MAX {
                let what = format!("its manifest has {size_bytes} bytes");
                return Err(StoreError::Damaged { location, what });
            }
            let bytes = got.bytes().await.map_err(failed("give", &location))?;
            Manifest::decode(&bytes, &location).map(Some)
        })
    }

    fn put<'a>(&'a self, manifest: &'a Manifest, file: &'a Path) -> Work<'a, ()> {
        Box::pin(async {
            let name = &manifest.name;
            let key = self.key(name, MANIFEST_FILE);
            // What was there is gone first: its manifest must not stand beside the new file.
            self.remove(&key).await?;
            self.send(file, &self.key(name, &manifest.file_name()))
                .await?;
            let bytes = manifest.encode().map_err(|source| StoreError::Remote {
                tried: "take",
                location: self.shown(&key),
                source: source.into(),
            })?;
            let put = self.remote.put(&key, bytes.into()).await;
            put.map_err(failed("take", &self.shown(&key)))?;
            Ok(())
        })
    }

    fn fetch<'a>(&'a self, manifest: &'a Manifest, into: &'a Path) -> Work<'a, ()> {
        Box::pin(async {
            let key = self.key(&manifest.name, &manifest.file_name());
            self.receive(&key, into).await
        })
    }

    fn delete<'a>(&'a self, name: &'a SnapshotName) -> Work<'a, bool> {
        Box::pin(async {
            // Some stores do not say whether there was one.
            let was_there = self.manifest(name).await?.is_some();
            self.remove(&self.key(name, MANIFEST_FILE)).await?;
            for object in self
                .listed(&self.prefix.clone().join(name.as_str()))
                .await?
            {
                self.remove(&object.location).await?;
            }
            Ok(was_there)
        })
    }

    /// Files without a manifest that have been there for a while.
    fn tidy(&self) -> Work<'_, usize> {
        Box::pin(async {
            let names = self.names().await?;
            let mut count = 0;
            for object in self.listed(&self.prefix).await? {
                let at: SystemTime = object.last_modified.into();
                let is_old = at.elapsed().is_ok_and(|age| age >= self.rubbish_after);
                if let Some((name, _)) = self.parts(&object.location)
                    && is_old
                    && !names.contains(&name)
                {
                    self.remove(&object.location).await?;
                    count += 1;
                }
            }
            Ok(count)
        })
    }
}
