//! The hello at the master's end: who speaks, and whether the leader lets it in.

use larder_types::{Epoch, Incarnation, PoolTime, Principal, SessionId};
use larder_wire::frame::{FLAG_ERROR, FLAG_REPLY};
use larder_wire::{
    Frame, Header, Hello, Kind, Purpose, Refused, RefusedReason, Welcome, decode_body,
    encode_frame, negotiate,
};
use tokio::sync::{mpsc, oneshot};

use super::{End, Greeted, Lane, OUTBOX_LENGTH, Session, Shared};
use crate::event::{ConnectionId, Event, Opened, Outgoing};
use crate::identity::{Identity, IdentityError};
use crate::session::low_bits;

impl Lane {
    /// Reads the hello, proves who speaks and asks the leader to let it in.
    pub(super) async fn greet(
        &mut self,
        connection: ConnectionId,
        is_spare: bool,
        shared: &Shared,
    ) -> Result<Greeted, End> {
        let (header, hello) = loop {
            if let Some((header, body)) = self.decoder.next_frame()? {
                if header.kind != Kind::Hello || header.has(FLAG_REPLY) {
                    let detail = "a connection starts with a hello".to_owned();
                    return Err(Refused::new(RefusedReason::Frame, detail).into());
                }
                break (header, decode_body::<Hello>(header.kind, body)?);
            }
            if self.read().await? == 0 {
                self.decoder.finish()?;
                return Err(End::Closed);
            }
        };
        if hello.purpose == Purpose::Master {
            return self.greet_master(&header, &hello, connection, shared).await;
        }
        let mut out = Vec::new();
        let admitted = if is_spare {
            let detail = "this master has all the connections of clients and agents it may have";
            Err(Refused::new(RefusedReason::Busy, detail))
        } else {
            self.admit(&hello, connection, shared).await
        };
        match admitted {
            Ok((welcome, outbox)) => {
                let mut frame = Frame::reply(&header, 0);
                frame.session = low_bits(welcome.session);
                encode_frame(&mut out, frame, &welcome)?;
                self.decoder.accept(0);
                self.write(&out).await?;
                let (purpose, session) = (hello.purpose, welcome.session);
                Ok(Greeted::Peer(Session {
                    connection,
                    purpose,
                    session,
                    outbox,
                }))
            }
            Err(refused) => {
                encode_frame(&mut out, Frame::reply(&header, FLAG_ERROR), &refused)?;
                self.write(&out).await?;
                Err(End::Told(refused))
            }
        }
    }

    /// Lets in another master. The leader has no say in it: there may be none.
    async fn greet_master(
        &mut self,
        header: &Header,
        hello: &Hello,
        connection: ConnectionId,
        shared: &Shared,
    ) -> Result<Greeted, End> {
        let session = SessionId(connection.0);
        let is_ours = is_same_secret(&hello.credential, &shared.master_credential);
        let mut out = Vec::new();
        let admitted = negotiate(hello).and_then(|protocol| {
            if is_ours {
                return Ok(protocol);
            }
            let detail = "a master shows the credential of this pool's masters; do they share one \
                          root key?";
            Err(Refused::new(RefusedReason::Credential, detail))
        });
        match admitted {
            Ok(protocol) => {
                let welcome = Welcome {
                    protocol,
                    features: 0,
                    session,
                    principal: Principal::Master,
                    incarnation: Incarnation::default(),
                    epoch: Epoch::default(),
                    pool_time: PoolTime::default(),
                    session_token: Vec::new(),
                    session_token_ms: 0,
                    name: String::new(),
                };
                let mut frame = Frame::reply(header, 0);
                frame.session = low_bits(session);
                encode_frame(&mut out, frame, &welcome)?;
                self.decoder.accept(0);
                self.write(&out).await?;
                Ok(Greeted::Master(session))
            }
            Err(refused) => {
                encode_frame(&mut out, Frame::reply(header, FLAG_ERROR), &refused)?;
                self.write(&out).await?;
                Err(End::Told(refused))
            }
        }
    }

    /// Judges a hello. The answer of the leader is part of it.
    async fn admit(
        &mut self,
        hello: &Hello,
        connection: ConnectionId,
        shared: &Shared,
    ) -> Result<(Welcome, mpsc::Receiver<Outgoing>), Refused> {
        let protocol = negotiate(hello)?;
        let principal = prove(hello, shared.identity.as_ref()).await?;
        self.is_known = true;
        let who = (protocol, principal, hello.purpose);
        ask_leader(&shared.events, connection, who).await
    }
}

/// Asks the leader to let in a connection of a proven principal. It has to hear of its end.
pub(crate) async fn ask_leader(
    events: &mpsc::Sender<Event>,
    connection: ConnectionId,
    (protocol, principal, purpose): (u16, Principal, Purpose),
) -> Result<(Welcome, mpsc::Receiver<Outgoing>), Refused> {
    let (sender, outbox) = mpsc::channel(OUTBOX_LENGTH);
    let (reply, answer) = oneshot::channel();
    let opened = Opened {
        connection,
        protocol,
        principal,
        purpose,
        outbox: sender,
        reply,
    };
    let stopping = || Refused::new(RefusedReason::Stopping, "the master is stopping");
    let sent = events.send(Event::Opened(opened)).await;
    sent.map_err(|_| stopping())?;
    let welcome = answer.await.map_err(|_| stopping())??;
    Ok((welcome, outbox))
}

/// Who speaks, if the credential proves it and the listener serves such a one.
async fn prove(hello: &Hello, identity: &dyn Identity) -> Result<Principal, Refused> {
    let principal = identity.prove(&hello.credential).await.map_err(|error| {
        let reason = match error {
            IdentityError::Unknown | IdentityError::UnknownAccount { .. } => {
                RefusedReason::Credential
            }
            IdentityError::Unavailable { .. } => {
                // Whoever proves identity says it once; here it would be said to each stranger.
                tracing::debug!(error = larder_telemetry::error_chain(&error), "identity");
                RefusedReason::Busy
            }
        };
        Refused::new(reason, error.to_string())
    })?;
    let fits = match hello.purpose {
        Purpose::Client => matches!(principal, Principal::Tenant(_)),
        Purpose::Agent => matches!(principal, Principal::Agent(_)),
        Purpose::Master => matches!(principal, Principal::Master),
        // Engines speak with each other.
        Purpose::Engine => false,
    };
    if !fits {
        let detail = format!(
            "{principal} may not open a connection as {:?}",
            hello.purpose
        );
        return Err(Refused::new(RefusedReason::Role, detail));
    }
    Ok(principal)
}

/// Whether two secrets are the same. Their hashes are compared: how long that takes says nothing
/// of the secret.
fn is_same_secret(shown: &[u8], expected: &[u8]) -> bool {
    let hash = |bytes| ring::digest::digest(&ring::digest::SHA256, bytes);
    hash(shown).as_ref() == hash(expected).as_ref()
}
