//! One suite for every place where snapshots are kept.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use larder_types::Epoch;
use object_store::ObjectStoreExt as _;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;

use super::desk::read_again;
use super::folder::FolderStore;
use super::object::ObjectStore;
use super::{Manifest, SnapshotName, SnapshotStore, StoreError};
use crate::config::ObjectStoreConfig;

fn name(text: &str) -> SnapshotName {
    SnapshotName::new(text).expect("a name")
}

/// A file of `size` bytes and what says of it that it is snapshot `of`.
fn made(folder: &Path, of: &str, size: usize) -> (Manifest, PathBuf) {
    let index = size as u64;
    let mut manifest = Manifest {
        format: 1,
        name: name(of),
        pool: "small".to_owned(),
        master: "m-0".to_owned(),
        epoch: Epoch {
            generation: 2,
            term: 3,
        },
        index,
        objects: 5,
        size_bytes: index,
        digest: "00000000000000aa".to_owned(),
        checksum: String::new(),
        taken_unix_ms: 7,
    };
    let file = folder.join(manifest.file_name());
    let bytes: Vec<u8> = (0..size)
        .map(|at| u8::try_from(at % 251).expect("small"))
        .collect();
    std::fs::write(&file, bytes).expect("a file");
    manifest.checksum = format!("{:08x}", read_again(&file).expect("readable").1);
    (manifest, file)
}

/// What every place does.
async fn suite(store: &dyn SnapshotStore) {
    let work = tempfile::tempdir().expect("a folder");
    assert_eq!(store.names().await.expect("names"), []);
    assert_eq!(store.manifest(&name("none")).await.expect("asked"), None);
    assert!(!store.delete(&name("none")).await.expect("asked"));

    // In one part, in exactly one, in several.
    for (of, size) in [("one", 1_000), ("full", 8 << 20), ("parts", (20 << 20) + 3)] {
        let (manifest, file) = made(work.path(), of, size);
        store.put(&manifest, &file).await.expect(of);
        assert_eq!(
            store.manifest(&name(of)).await.expect(of).as_ref(),
            Some(&manifest)
        );
        let into = work.path().join("back");
        store.fetch(&manifest, &into).await.expect(of);
        let (bytes, sum) = read_again(&into).expect("readable");
        assert_eq!(bytes, manifest.size_bytes, "{of}");
        assert_eq!(format!("{sum:08x}"), manifest.checksum, "{of}");
        std::fs::remove_file(&into).expect("removed");
    }
    let all = ["full", "one", "parts"].map(name);
    assert_eq!(store.names().await.expect("names"), all);
    assert!(store.location(&name("one")).ends_with("/one"));

    // Another takes its place as a whole.
    let (second, file) = made(work.path(), "one", 2_000);
    store.put(&second, &file).await.expect("put again");
    assert_eq!(
        store.manifest(&name("one")).await.expect("one"),
        Some(second.clone())
    );
    store
        .fetch(&second, &work.path().join("second"))
        .await
        .expect("the second");

    assert!(store.delete(&name("one")).await.expect("deleted"));
    assert!(!store.delete(&name("one")).await.expect("gone"));
    assert_eq!(store.manifest(&name("one")).await.expect("asked"), None);
    let (gone, into) = (second, work.path().join("none"));
    store.fetch(&gone, &into).await.expect_err("it is gone");
    assert_eq!(
        store.names().await.expect("names"),
        ["full", "parts"].map(name)
    );
    assert_eq!(store.tidy().await.expect("tidy"), 0);
}

#[tokio::test]
async fn a_folder_keeps_snapshots() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("made/when/needed");
    let store = FolderStore::new(root.clone(), "m-0");
    suite(&store).await;

    // What an interruption leaves is seen by nobody, and removed by its own master only.
    for left in [".m-0~new", ".m-0~staging", ".m-01~new"] {
        std::fs::create_dir_all(root.join(left)).expect("made");
    }
    std::fs::create_dir_all(root.join("half")).expect("made");
    assert_eq!(
        store.names().await.expect("names"),
        ["full", "parts"].map(name)
    );
    assert_eq!(store.tidy().await.expect("tidy"), 2);
    assert!(root.join(".m-01~new").is_dir());
}

async fn object_suite(remote: Arc<dyn object_store::ObjectStore>) {
    let of_pool = |prefix| {
        let remote = Arc::clone(&remote);
        ObjectStore::new(remote, prefix, "test:".to_owned(), Duration::ZERO)
    };
    let store = of_pool("pools/small");
    suite(&store).await;
    assert_eq!(of_pool("pools/other").names().await.expect("names"), []);

    // A file whose manifest never came, and one that somebody may be sending now.
    let key = object_store::path::Path::from("pools/small/half/snapshot-1-1");
    remote.put(&key, "half".into()).await.expect("put");
    let late = ObjectStore::new(
        Arc::clone(&remote),
        "pools/small",
        String::new(),
        Duration::from_secs(3_600),
    );
    assert_eq!(
        store.names().await.expect("names"),
        ["full", "parts"].map(name)
    );
    assert_eq!(late.tidy().await.expect("tidy"), 0);
    assert_eq!(store.tidy().await.expect("tidy"), 1);
    remote.head(&key).await.expect_err("it is removed");

    // A manifest of a newer program, and none at all.
    let key = object_store::path::Path::from("pools/small/new/manifest.json");
    remote
        .put(&key, r#"{"format":2}"#.into())
        .await
        .expect("put");
    let error = store.manifest(&name("new")).await.expect_err("newer");
    assert!(
        matches!(error, StoreError::Newer { format: 2, .. }),
        "{error}"
    );
    remote.put(&key, "{}".into()).await.expect("put");
    let error = store.manifest(&name("new")).await.expect_err("damaged");
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
}

#[tokio::test]
async fn an_object_store_in_memory_keeps_snapshots() {
    object_suite(Arc::new(InMemory::new())).await;
}

#[tokio::test]
async fn an_object_store_on_files_keeps_snapshots() {
    let folder = tempfile::tempdir().expect("a folder");
    let local = LocalFileSystem::new_with_prefix(folder.path()).expect("a store");
    object_suite(Arc::new(local)).await;
}

/// A server that speaks S3 on loopback, from PyPI, in a folder of the build that is made once.
struct S3Server {
    child: Child,
    addr: String,
}

impl Drop for S3Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn run(program: &Path, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said.lines().last().unwrap_or("it failed").to_owned())
}

impl S3Server {
    fn start() -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let build = program.ancestors().nth(2).ok_or("no folder of the build")?;
        let venv = build.join("s3-venv");
        let python = venv.join("bin/python");
        if run(&python, &["-c", "import moto.server, flask"]).is_err() {
            let folder = venv.display().to_string();
            run(Path::new("python3"), &["-m", "venv", "--clear", &folder])?;
            let quiet = ["--quiet", "--disable-pip-version-check", "--retries", "1"];
            let arguments = [&["-m", "pip", "install"][..], &quiet, &["moto[server]>=5"]];
            run(&python, &arguments.concat())?;
        }
        let mut child = Command::new(&python)
            .args(["-m", "moto.server", "-H", "127.0.0.1", "-p", "0"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let said = child.stderr.take().ok_or("no output")?;
        let mut lines = BufReader::new(said).lines();
        let addr = loop {
            let line = lines.next().ok_or("it ended")?;
            let line = line.map_err(|error| error.to_string())?;
            if let Some((_, addr)) = line.split_once("Running on http://") {
                break addr.trim().to_owned();
            }
        };
        // It says a line for each request, which somebody has to read.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self { child, addr })
    }

    fn make_bucket(&self, bucket: &str) {
        let mut stream = TcpStream::connect(&self.addr).expect("the server");
        let head = format!(
            "PUT /{bucket} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            self.addr
        );
        stream.write_all(head.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[tokio::test]
async fn s3_keeps_snapshots() {
    let server = match S3Server::start() {
        Ok(server) => server,
        Err(why) => {
            println!("skipped: no S3 server from PyPI: {why}");
            return;
        }
    };
    server.make_bucket("snapshots");
    let folder = tempfile::tempdir().expect("a folder");
    let file = |of: &str, text: &str| {
        let path = folder.path().join(of);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let mut config = ObjectStoreConfig {
        endpoint: Some(format!("http://{}", server.addr)),
        region: "us-east-1".to_owned(),
        bucket: "snapshots".to_owned(),
        prefix: "pools/small".to_owned(),
        access_key_id_file: file("id", "key\n"),
        secret_access_key_file: file("secret", "secret\n"),
        ca_file: None,
    };
    suite(&ObjectStore::s3(&config).await.expect("usable")).await;
    config.prefix = String::new();
    let store = ObjectStore::s3(&config).await.expect("usable");
    assert_eq!(store.names().await.expect("those of a pool are none"), []);
    config.bucket = "none".to_owned();
    let store = ObjectStore::s3(&config).await.expect("usable");
    let error = store.names().await.expect_err("no bucket");
    assert!(
        error.is_retryable() && error.to_string().contains("s3://none"),
        "{error}"
    );
    config.secret_access_key_file = file("empty", "\n");
    let error = ObjectStore::s3(&config).await.expect_err("no secret");
    assert!(
        !error.is_retryable() && error.to_string().contains("is empty"),
        "{error}"
    );
}
