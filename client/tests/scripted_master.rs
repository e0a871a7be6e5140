//! The client against a master that does what a script says: refuses, breaks off, stays silent,
//! answers late and out of order.

use std::time::Duration;

use larder_client::{Client, ClientError, ClientOptions, Credential, Key, Reason};
use larder_types::{Epoch, Incarnation, PoolTime, Principal, SessionId, TenantId, Version};
use larder_wire::decoder::FrameDecoder;
use larder_wire::frame::{FLAG_ERROR, Frame, Header, NO_DEADLINE};
use larder_wire::hello::{Hello, Refused, RefusedReason, Welcome};
use larder_wire::master::{Exists, PutGrant, PutRevoke, PutStarted};
use larder_wire::{CallError, CallResult, Kind, Reply, decode_body, encode_frame};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Far more than a call takes here; only a fault reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// One connection at the master's end.
struct Peer {
    stream: TcpStream,
    decoder: FrameDecoder,
    session: u64,
}

/// A request as it came.
struct Asked {
    header: Header,
    body: Vec<u8>,
}

impl Peer {
    /// Takes the next connection and its hello.
    async fn accept(listener: &TcpListener, session: u64) -> (Self, Hello, Header) {
        let (stream, _) = listener.accept().await.expect("a connection");
        let decoder = FrameDecoder::before_hello();
        let mut peer = Self {
            stream,
            decoder,
            session,
        };
        let asked = peer.next().await.expect("a hello");
        let hello = decode_body(Kind::Hello, &asked.body).expect("a hello");
        (peer, hello, asked.header)
    }

    /// The same, and welcomes it.
    async fn welcome(listener: &TcpListener, session: u64) -> Self {
        let (mut peer, hello, header) = Self::accept(listener, session).await;
        assert_eq!(hello.credential, b"token");
        let welcome = Welcome {
            protocol: 1,
            features: 0,
            session: SessionId(session),
            principal: Principal::Tenant(TenantId::new("t").expect("a name")),
            incarnation: Incarnation(1),
            epoch: Epoch::default(),
            pool_time: PoolTime(0),
            session_token: b"session".to_vec(),
            session_token_ms: 3_600_000,
            name: "listener".to_owned(),
        };
        peer.send(&header, 0, &welcome).await;
        peer.decoder.accept(0);
        peer
    }

    /// The next request; `None` when the client has closed.
    async fn next(&mut self) -> Option<Asked> {
        loop {
            if let Some((header, body)) = self.decoder.next_frame().expect("genuine frames") {
                return Some(Asked {
                    header,
                    body: body.to_vec(),
                });
            }
            let bytes = self
                .stream
                .read(self.decoder.space())
                .await
                .ok()
                .filter(|n| *n > 0)?;
            self.decoder.filled(bytes);
        }
    }

    async fn send(&mut self, to: &Header, flags: u8, body: &impl Serialize) {
        let mut frame = Frame::reply(to, flags);
        frame.session = u32::try_from(self.session).expect("small");
        let mut out = Vec::new();
        encode_frame(&mut out, frame, body).expect("small");
        self.stream.write_all(&out).await.expect("the client reads");
    }

    async fn answer<T: Serialize>(&mut self, to: &Asked, answer: T) {
        let reply = Reply {
            epoch: Epoch::default(),
            pool_time: PoolTime(0),
            answer,
        };
        self.send(&to.header, 0, &reply).await;
    }

    async fn refuse(&mut self, to: &Asked, reason: Reason) {
        self.send(&to.header, FLAG_ERROR, &CallError::new(reason))
            .await;
    }
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("bound").to_string();
    (listener, addr)
}

fn options(masters: &[&str]) -> ClientOptions {
    let masters = masters.iter().map(|addr| (*addr).to_owned()).collect();
    let mut options = ClientOptions::new(masters, Credential::new("token\n").expect("a token"));
    options.default_deadline = PATIENCE;
    options
}

fn key(text: &str) -> Key {
    Key::try_from(text).expect("a key")
}

/// Connects a client while the master welcomes it.
async fn connected(listener: &TcpListener, addr: &str) -> (Client, Peer) {
    let (client, peer) = tokio::join!(
        Client::connect(options(&[addr])),
        Peer::welcome(listener, 7)
    );
    (client.expect("welcomed"), peer)
}

#[tokio::test]
async fn a_token_that_proves_nothing_is_a_typed_error_at_once() {
    let (listener, addr) = listen().await;
    let master = async {
        let (mut peer, _, header) = Peer::accept(&listener, 0).await;
        let reason = RefusedReason::Credential;
        let refused = Refused::new(reason, "unknown token");
        peer.send(&header, FLAG_ERROR, &refused).await;
    };
    let (client, ()) = tokio::join!(Client::connect(options(&[&addr])), master);
    let error = client.expect_err("refused");
    assert!(
        matches!(error, ClientError::HelloRefused { .. }),
        "{error:?}"
    );
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn without_a_master_the_impatient_hear_it_at_once() {
    let (listener, addr) = listen().await;
    drop(listener);
    let mut options = options(&[&addr]);
    options.wait_for_master = false;
    let error = Client::connect(options).await.expect_err("nobody there");
    assert!(
        matches!(error, ClientError::Unreachable { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains(&addr), "{error}");
}

#[tokio::test]
async fn the_second_master_is_asked_when_the_first_is_gone() {
    let (gone, gone_addr) = listen().await;
    drop(gone);
    let (listener, addr) = listen().await;
    let (client, mut peer) = tokio::join!(
        Client::connect(options(&[&gone_addr, &addr])),
        Peer::welcome(&listener, 1)
    );
    let client = client.expect("welcomed by the second");
    let master = async {
        let asked = peer.next().await.expect("a call");
        peer.answer(&asked, vec![Ok::<_, CallError>(true)]).await;
    };
    let (exists, ()) = tokio::join!(client.exists(key("k")), master);
    assert!(exists.expect("answered"));
}

#[tokio::test]
async fn a_call_is_repeated_when_its_connection_breaks_or_the_master_does_not_lead() {
    let (listener, addr) = listen().await;
    let (client, mut peer) = connected(&listener, &addr).await;
    let master = async {
        peer.next().await.expect("a call");
        drop(peer);
        let mut peer = Peer::welcome(&listener, 8).await;
        let asked = peer.next().await.expect("again");
        peer.refuse(&asked, Reason::NotLeader).await;
        let mut peer = Peer::welcome(&listener, 9).await;
        let asked = peer.next().await.expect("and again");
        peer.answer(&asked, vec![Ok::<_, CallError>(true)]).await;
    };
    let (exists, ()) = tokio::join!(client.exists(key("k")), master);
    assert!(exists.expect("answered"));
}

#[tokio::test]
async fn a_remove_whose_reply_was_lost_is_told_and_not_repeated() {
    let (listener, addr) = listen().await;
    let (client, mut peer) = connected(&listener, &addr).await;
    let not_found = || vec![CallResult::<()>::Err(CallError::new(Reason::NotFound))];
    let master = async {
        peer.next().await.expect("a call");
        drop(peer);
        let mut peer = Peer::welcome(&listener, 8).await;
        let asked = peer.next().await.expect("the next call");
        assert_eq!(asked.header.kind, Kind::Remove);
        peer.answer(&asked, not_found()).await;
    };
    let calls = async {
        let error = client.remove(key("k")).await.expect_err("who knows");
        assert!(
            matches!(error, ClientError::ConnectionLost { .. }),
            "{error:?}"
        );
        let error = client.remove(key("other")).await.expect_err("refused");
        assert_eq!(error.reason(), Some(Reason::NotFound));
    };
    tokio::join!(calls, master);
}

#[tokio::test]
async fn a_refusal_is_told_and_not_repeated() {
    let (listener, addr) = listen().await;
    let (client, mut peer) = connected(&listener, &addr).await;
    let master = async {
        let asked = peer.next().await.expect("a call");
        peer.refuse(&asked, Reason::AccessDenied).await;
        let asked = peer.next().await.expect("the next call");
        assert_eq!(asked.header.kind, Kind::Usage);
        peer.refuse(&asked, Reason::TenantUnknown).await;
    };
    let calls = async {
        let error = client.exists(key("k")).await.expect_err("refused");
        assert_eq!(error.reason(), Some(Reason::AccessDenied));
        let error = client.usage().await.expect_err("refused");
        assert_eq!(error.reason(), Some(Reason::TenantUnknown));
    };
    tokio::join!(calls, master);
}

#[tokio::test]
async fn a_silent_master_is_a_passed_deadline() {
    let (listener, addr) = listen().await;
    let (client, mut peer) = connected(&listener, &addr).await;
    let short = client.with_deadline(Duration::from_millis(50));
    let error = short.exists(key("k")).await.expect_err("no answer");
    assert!(
        matches!(error, ClientError::DeadlinePassed { .. }),
        "{error:?}"
    );
    let asked = peer.next().await.expect("it was sent");
    assert!(asked.header.remaining_ms <= 50 && asked.header.remaining_ms != NO_DEADLINE);
    // The late reply is thrown away, and the connection goes on.
    peer.answer(&asked, vec![Ok::<_, CallError>(true)]).await;
    let master = async {
        let asked = peer.next().await.expect("a call");
        peer.answer(&asked, vec![Ok::<_, CallError>(false)]).await;
    };
    let (exists, ()) = tokio::join!(client.exists(key("k")), master);
    assert!(!exists.expect("answered"));
}

#[tokio::test]
async fn replies_find_their_calls_in_any_order() {
    const CALLS: usize = 500;
    let (listener, addr) = listen().await;
    let (client, mut peer) = connected(&listener, &addr).await;
    let master = async {
        let mut asked = Vec::new();
        for _ in 0..CALLS {
            asked.push(peer.next().await.expect("a call"));
        }
        for one in asked.iter().rev() {
            let exists: Exists = decode_body(Kind::Exists, &one.body).expect("keys");
            let even = exists.keys[0]
                .as_bytes()
                .last()
                .expect("not empty")
                .is_multiple_of(2);
            peer.answer(one, vec![Ok::<_, CallError>(even)]).await;
        }
    };
    let calls = async {
        let calls = (0..CALLS).map(|n| {
            let client = client.clone();
            tokio::spawn(async move { client.exists(key(&format!("{n}"))).await })
        });
        for (n, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
            assert_eq!(
                call.await.expect("no panic").expect("answered"),
                n % 2 == 0,
                "{n}"
            );
        }
    };
    tokio::join!(calls, master);
}

#[tokio::test]
async fn bytes_that_are_no_frame_end_the_connection_and_not_the_call() {
    let (listener, addr) = listen().await;
    let (client, mut peer) = connected(&listener, &addr).await;
    let master = async {
        peer.next().await.expect("a call");
        peer.stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
            .await
            .expect("it reads");
        let mut peer = Peer::welcome(&listener, 8).await;
        let asked = peer.next().await.expect("again");
        peer.answer(&asked, vec![Ok::<_, CallError>(true)]).await;
    };
    let (exists, ()) = tokio::join!(client.exists(key("k")), master);
    assert!(exists.expect("answered"));
}

#[tokio::test]
async fn an_answer_of_the_wrong_length_is_no_answer() {
    let (listener, addr) = listen().await;
    let (client, mut peer) = connected(&listener, &addr).await;
    let master = async {
        let asked = peer.next().await.expect("a call");
        peer.answer(&asked, vec![Ok::<_, CallError>(true); 2]).await;
    };
    let (exists, ()) = tokio::join!(client.exists(key("k")), master);
    assert!(
        matches!(exists, Err(ClientError::Answer { .. })),
        "{exists:?}"
    );
}

#[tokio::test]
async fn long_batches_are_cut_into_calls_that_fit() {
    const KEYS: usize = 3_000;
    let (listener, addr) = listen().await;
    let (client, mut peer) = connected(&listener, &addr).await;
    let master = async {
        let mut seen = 0;
        while seen < KEYS {
            let asked = peer.next().await.expect("a call");
            let exists: Exists = decode_body(Kind::Exists, &asked.body).expect("keys");
            seen += exists.keys.len();
            let answers = exists.keys.iter().map(|key| Ok(key.as_bytes()[0] == b'1'));
            peer.answer(&asked, answers.collect::<Vec<CallResult<bool>>>())
                .await;
        }
    };
    let keys = (0..KEYS)
        .map(|n| key(&format!("{}{}", n % 2, "x".repeat(n % 4096))))
        .collect();
    let (answers, ()) = tokio::join!(client.exists_batch(keys), master);
    assert_eq!(answers.len(), KEYS);
    for (n, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.expect("answered"), n % 2 == 1);
    }
}

#[tokio::test]
async fn a_grant_that_nobody_waits_for_is_given_up() {
    let (listener, addr) = listen().await;
    let (client, mut peer) = connected(&listener, &addr).await;
    let version = Version {
        epoch: Epoch::default(),
        counter: 5,
    };
    let grant = PutGrant {
        version,
        discard_ms: 30_000,
        replicas: Vec::new(),
        wanted: 1,
        preference_ignored: false,
    };
    let mut put = Box::pin(client.put(key("k"), bytes::Bytes::from_static(b"v")));
    let asked = tokio::select! {
        biased;
        _ = &mut put => None,
        asked = peer.next() => asked,
    };
    let asked = asked.expect("a start, and no end of the put");
    assert_eq!(asked.header.kind, Kind::PutStart);
    drop(put);
    peer.answer(
        &asked,
        PutStarted {
            agents: Vec::new(),
            grants: vec![Ok(grant)],
        },
    )
    .await;
    let asked = peer.next().await.expect("another call");
    assert_eq!(asked.header.kind, Kind::PutRevoke);
    let revoke: PutRevoke = decode_body(Kind::PutRevoke, &asked.body).expect("items");
    assert_eq!(revoke.items, [(key("k"), version)]);
}

#[tokio::test]
async fn every_call_can_be_spawned() {
    fn moves<T: Send>(_: T) {}
    let (listener, addr) = listen().await;
    let (client, _peer) = connected(&listener, &addr).await;
    moves(Client::connect(options(&[&addr])));
    moves(client.put_batch(vec![(key("k"), bytes::Bytes::new())]));
    moves(client.get_batch(vec![key("k")]));
    moves(client.get_into(key("k"), bytes::BytesMut::new()));
    moves(client.get_view(key("k")));
    moves(client.exists_batch(vec![key("k")]));
    moves(client.remove_batch(vec![key("k")]));
    moves(client.list(b"", None, 1));
    moves(client.usage());
    moves(client.shared_buffer(1));
}

#[tokio::test]
async fn no_masters_and_no_token_are_refused_here() {
    let error = Client::connect(options(&[])).await.expect_err("no masters");
    assert!(matches!(error, ClientError::BadArgument { .. }));
    assert!(Credential::new(" \n").is_err());
    let shown = format!("{:?}", Credential::new("hunter2").expect("a token"));
    assert!(!shown.contains("hunter2"), "{shown}");
}
