//! An object store that masters reach: as much of S3 as they ask for, in memory.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use larder_e2e::cluster::Cluster;
use rustix::net::shutdown;

/// The bucket that is there.
pub(crate) const BUCKET: &str = "snapshots";
/// How long a connection may be silent. One client is served after the other, and one that opens
/// a connection without asking anything must not hold up the others for long.
const SILENCE: Duration = Duration::from_secs(2);
/// The longest request, in bytes: a part of a snapshot and its head.
const BYTES_MAX: usize = 16 << 20;
/// When everything was written, as far as anybody is told.
const DATE: &str = "2026-01-01T00:00:00.000Z";

/// The store; it ends when this is dropped.
pub(crate) struct ObjectStore {
    listener: TcpListener,
    serving: Option<JoinHandle<()>>,
}

impl ObjectStore {
    pub(crate) fn start(cluster: &Cluster) -> Result<Self> {
        let listener = cluster.listen()?;
        let accepting = listener.try_clone()?;
        let serving = std::thread::spawn(move || {
            let mut bucket = Bucket::default();
            for stream in accepting.incoming() {
                let Ok(stream) = stream else { break };
                // Who has gone, or talks about something else, hears nothing.
                let _ = bucket.serve(&stream);
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
        Ok(Self {
            listener,
            serving: Some(serving),
        })
    }

    /// Where pods find it.
    pub(crate) fn endpoint(&self) -> Result<String> {
        Ok(format!("http://{}", self.listener.local_addr()?))
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        // Whoever waits for a connection is woken by an error.
        let _ = shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}

struct Request {
    method: String,
    /// The object's key, behind the bucket.
    key: String,
    query: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Request {
    fn read(stream: &TcpStream) -> Result<Self> {
        stream.set_read_timeout(Some(SILENCE))?;
        let mut reader = BufReader::new(stream);
        let mut line = || {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            Ok::<_, anyhow::Error>(line.trim_end().to_owned())
        };
        let first = line()?;
        let mut words = first.split(' ');
        let (method, target) = words.next().zip(words.next()).context("no request")?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pair = |text: &str| {
            let (name, value) = text.split_once('=').unwrap_or((text, ""));
            (name.to_owned(), value.replace("%2F", "/"))
        };
        let query = query.split('&').filter(|text| !text.is_empty()).map(pair);
        let key = path.strip_prefix(&format!("/{BUCKET}"));
        let mut request = Self {
            method: method.to_owned(),
            key: key.context("another bucket")?.trim_matches('/').to_owned(),
            query: query.collect(),
            body: Vec::new(),
        };
        let mut bytes = 0;
        loop {
            let header = line()?;
            if header.is_empty() {
                break;
            }
            let (name, value) = header.split_once(':').context("no header")?;
            if name.eq_ignore_ascii_case("content-length") {
                bytes = value.trim().parse()?;
            }
        }
        if bytes > BYTES_MAX {
            bail!("{bytes} bytes are too many");
        }
        request.body = vec![0; bytes];
        reader.read_exact(&mut request.body)?;
        Ok(request)
    }

    fn asks(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }
}

/// What is kept, with parts of what is still on its way.
#[derive(Default)]
struct Bucket {
    objects: BTreeMap<String, Vec<u8>>,
    parts: BTreeMap<String, BTreeMap<u32, Vec<u8>>>,
    uploads: u32,
}

impl Bucket {
    fn serve(&mut self, mut stream: &TcpStream) -> Result<()> {
        let request = Request::read(stream)?;
        let (status, body) = match self.answer(&request)? {
            Some(body) => ("200 OK", body),
            None => (
                "404 Not Found",
                "<Error><Code>NoSuchKey</Code></Error>".into(),
            ),
        };
        let bytes = body.len();
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Length: {bytes}\r\nETag: \"{bytes}\"\r\n\
             Connection: close\r\n\r\n"
        )?;
        Ok(stream.write_all(&body)?)
    }

    /// `None`: it is not there.
    fn answer(&mut self, request: &Request) -> Result<Option<Vec<u8>>> {
        let key = request.key.clone();
        let text = match request.method.as_str() {
            "GET" if request.asks("list-type").is_some() => self.list(request),
            "GET" => return Ok(self.objects.get(&key).cloned()),
            "PUT" => match request.asks("uploadId").zip(request.asks("partNumber")) {
                Some((upload, number)) => {
                    let parts = self.parts.entry(upload.to_owned()).or_default();
                    parts.insert(number.parse()?, request.body.clone());
                    String::new()
                }
                None => self.keep(key, request.body.clone()),
            },
            "POST" if request.asks("uploads").is_some() => {
                self.uploads += 1;
                let id = format!("<UploadId>{}</UploadId>", self.uploads);
                format!("<InitiateMultipartUploadResult>{id}</InitiateMultipartUploadResult>")
            }
            "POST" if request.asks("delete").is_some() => self.delete(&request.body)?,
            "POST" => {
                let upload = request.asks("uploadId").context("an unknown call")?;
                let parts = self.parts.remove(upload).unwrap_or_default();
                self.keep(key, parts.into_values().flatten().collect());
                let tag = "<ETag>whole</ETag>";
                format!("<CompleteMultipartUploadResult>{tag}</CompleteMultipartUploadResult>")
            }
            other => bail!("{other} is not known here"),
        };
        Ok(Some(text.into_bytes()))
    }

    fn keep(&mut self, key: String, bytes: Vec<u8>) -> String {
        self.objects.insert(key, bytes);
        String::new()
    }

    fn list(&self, request: &Request) -> String {
        let prefix = request.asks("prefix").unwrap_or_default();
        let found = self
            .objects
            .iter()
            .filter(|(key, _)| key.starts_with(prefix));
        let found: String = found
            .map(|(key, bytes)| {
                let size = bytes.len();
                format!(
                    "<Contents><Key>{key}</Key><Size>{size}</Size><LastModified>{DATE}\
                     </LastModified></Contents>"
                )
            })
            .collect();
        format!("<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>")
    }

    /// Each name stands between `<Key>` and `</Key>`.
    fn delete(&mut self, body: &[u8]) -> Result<String> {
        let text = std::str::from_utf8(body)?;
        let keys = text.split("<Key>").skip(1);
        let keys = keys.filter_map(|rest| rest.split_once("</Key>").map(|(key, _)| key));
        let mut done = String::new();
        for key in keys {
            self.objects.remove(key);
            done.push_str(&format!("<Deleted><Key>{key}</Key></Deleted>"));
        }
        Ok(format!("<DeleteResult>{done}</DeleteResult>"))
    }
}
