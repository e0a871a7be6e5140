//! A client whose masters come back elsewhere, against a stand-in of the name service and masters
//! that only say hello.

mod fail_over;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use larder_types::{Epoch, PoolTime, TenantId};
use larder_wire::frame::FLAG_ERROR;
use larder_wire::{Frame, FrameDecoder, Hello, Kind, RefusedReason, Welcome, encode_frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::greet::{Resolve, Resolved};
use super::*;
use crate::options::Credential;

/// A hang of anything ends a test after this long. Nothing is judged by it.
const HANG: Duration = Duration::from_secs(60);

/// The name service: what it answers now.
#[derive(Debug)]
struct Names(watch::Receiver<Vec<SocketAddr>>);

impl Resolve for Names {
    fn resolve<'a>(&'a self, master: &'a str) -> Resolved<'a> {
        assert_eq!(master, "pool-master.apps.svc:7100");
        let now = self.0.borrow().clone();
        Box::pin(async move { Ok(now) })
    }
}

/// A place where a master listens.
struct Place(TcpListener);

impl Place {
    async fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.expect("a free port"))
    }

    fn addr(&self) -> SocketAddr {
        self.0.local_addr().expect("an address")
    }

    /// Waits for a connection and answers its hello.
    async fn answer(&self, refused: Option<RefusedReason>) -> (Hello, TcpStream) {
        match refused {
            None => self.reply(0, &welcome()).await,
            Some(reason) => {
                self.reply(FLAG_ERROR, &Refused::new(reason, "a test"))
                    .await
            }
        }
    }

    /// Waits for a connection and replies to its hello with this.
    async fn reply(&self, flags: u8, body: &impl serde::Serialize) -> (Hello, TcpStream) {
        let (mut stream, _) = self.0.accept().await.expect("a connection");
        let mut decoder = FrameDecoder::before_hello();
        let (header, hello) = loop {
            if let Some((header, body)) = decoder.next_frame().expect("a frame") {
                break (
                    header,
                    decode_body::<Hello>(Kind::Hello, body).expect("hello"),
                );
            }
            let bytes = stream.read(decoder.space()).await.expect("readable");
            assert!(bytes > 0, "it closed before its hello");
            decoder.filled(bytes);
        };
        let mut out = Vec::new();
        encode_frame(&mut out, Frame::reply(&header, flags), body).expect("a frame");
        stream.write_all(&out).await.expect("writable");
        (hello, stream)
    }
}

fn welcome() -> Welcome {
    Welcome {
        protocol: 1,
        features: 0,
        session: SessionId(7),
        principal: Principal::Tenant(TenantId::new("a").expect("valid")),
        incarnation: Incarnation(1),
        epoch: Epoch {
            generation: 1,
            term: 1,
        },
        pool_time: PoolTime(0),
        session_token: b"session".to_vec(),
        session_token_ms: 3_600_000,
        name: "pool-master-0".to_owned(),
    }
}

fn start(token: Credential, addrs: Vec<SocketAddr>) -> (Master, watch::Sender<Vec<SocketAddr>>) {
    let (names, now) = watch::channel(addrs);
    let options = ClientOptions::new(vec!["pool-master.apps.svc:7100".to_owned()], token);
    let resolver = Arc::new(Names(now));
    let (master, _) = Master::start_with(&options, Incarnation(5), resolver);
    (master, names)
}

fn token(text: &str) -> Credential {
    Credential::new(text).expect("valid")
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG, future).await.expect("no hang")
}

async fn connected(master: &Master) -> Result<Arc<Session>, ClientError> {
    master.connected(Instant::now() + HANG, true).await
}

#[tokio::test]
async fn a_master_that_comes_back_under_another_address_is_found() {
    let (old, new) = (Place::new().await, Place::new().await);
    let (master, names) = start(token("t"), vec![old.addr()]);
    let (_, stream) = soon(old.answer(None)).await;
    soon(connected(&master)).await.expect("the old one");
    names.send_replace(vec![new.addr()]);
    drop((old, stream));
    let _kept = soon(new.answer(None)).await;
    soon(connected(&master)).await.expect("the new one");
}

#[tokio::test]
async fn every_address_of_a_name_is_tried() {
    let (closed, busy, good) = (Place::new().await, Place::new().await, Place::new().await);
    let addrs = vec![closed.addr(), busy.addr(), good.addr()];
    drop(closed);
    let (master, _names) = start(token("t"), addrs);
    let (refused, served) =
        soon(async { tokio::join!(busy.answer(Some(RefusedReason::Busy)), good.answer(None)) })
            .await;
    soon(connected(&master)).await.expect("the third");
    drop((refused, served));
}

#[tokio::test]
async fn a_patient_client_waits_out_a_busy_master_and_no_other_refusal() {
    let place = Place::new().await;
    let (master, _names) = start(token("t"), vec![place.addr()]);
    let serve = async {
        for reason in [RefusedReason::Busy, RefusedReason::Stopping] {
            place.answer(Some(reason)).await;
        }
        place.answer(Some(RefusedReason::Credential)).await
    };
    let (outcome, _last) = soon(async { tokio::join!(connected(&master), serve) }).await;
    let error = outcome.expect_err("refused");
    assert!(!error.is_retryable());
    let text = std::error::Error::source(&error).map(ToString::to_string);
    assert!(text.is_some_and(|text| text.contains("credential")));
}

#[tokio::test]
async fn a_token_is_read_again_for_each_connection() {
    let path: PathBuf = std::env::temp_dir().join(format!("larder-token-{}", std::process::id()));
    let place = Place::new().await;
    let first = token("first").renewed_from(path.clone());
    std::fs::write(&path, "second\n").expect("written");
    let (_master, _names) = start(first, vec![place.addr()]);
    let (hello, stream) = soon(place.answer(None)).await;
    assert_eq!(hello.credential, b"second");
    std::fs::write(&path, "third\n").expect("written");
    drop(stream);
    let (hello, stream) = soon(place.answer(None)).await;
    assert_eq!(hello.credential, b"third");
    // Neither an empty file nor none makes it forget what it has.
    std::fs::write(&path, "\n").expect("written");
    drop(stream);
    let (hello, stream) = soon(place.answer(None)).await;
    assert_eq!(hello.credential, b"third");
    std::fs::remove_file(&path).expect("removed");
    drop(stream);
    let (hello, _stream) = soon(place.answer(None)).await;
    assert_eq!(hello.credential, b"third");
}
