//! Both ends of the hello: who speaks, which protocol, within five seconds and 16 KiB.

use std::future::Future;
use std::time::Duration;

use larder_types::{Epoch, Incarnation, PoolTime, Principal, SessionId};
use larder_wire::frame::{FLAG_ERROR, FLAG_REPLY, NO_DEADLINE};
use larder_wire::limit::{
    HELLO_TIMEOUT_MS, MAX_BODY_BYTES, MAX_CREDENTIAL_BYTES, MAX_NAME_BYTES, PROTOCOL_MAX,
    PROTOCOL_MIN,
};
use larder_wire::{Frame, FrameError, Header, Hello, Kind, Refused, RefusedReason, Welcome};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::error::LaneError;
use super::reader::FrameReader;
use super::writer::FrameWriter;

/// How long a peer that is being closed may take to read why, in ms.
const FAREWELL_MS: u64 = 1_000;
/// How much of what a peer still sends is read meanwhile, in bytes.
const FAREWELL_BYTES: usize = 256 * 1024;

/// What a listener says to a hello that it accepts; the protocol is added by [`accept`].
#[derive(Clone, Debug)]
pub struct Admission {
    /// The session of this connection.
    pub session: SessionId,
    /// What the credential proved.
    pub principal: Principal,
    /// The listener's process.
    pub incarnation: Incarnation,
    /// The highest epoch that the listener knows.
    pub epoch: Epoch,
    /// Pool time at the listener.
    pub pool_time: PoolTime,
    /// For clients of a master: what agents want to see. Empty from agents.
    pub session_token: Vec<u8>,
    /// How long the session token lasts, in ms.
    pub session_token_ms: u64,
    /// The listener's own name.
    pub name: String,
}

/// A connection that was accepted.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// What the peer was told.
    pub welcome: Welcome,
    /// What the peer calls itself; proves nothing.
    pub name: String,
    /// The peer's process, as it says.
    pub incarnation: Incarnation,
}

/// Says hello and waits for the welcome, both within [`HELLO_TIMEOUT_MS`].
///
/// # Errors
/// [`LaneError::Refused`] with the listener's reason, [`LaneError::HelloTimeout`], or that the
/// connection broke.
pub async fn greet<S>(
    stream: &mut S,
    reader: &mut FrameReader,
    writer: &mut FrameWriter,
    hello: &Hello,
) -> Result<Welcome, LaneError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let limit = Duration::from_millis(HELLO_TIMEOUT_MS);
    let welcome = timeout(limit, exchange(stream, reader, writer, hello));
    let welcome = welcome.await.map_err(|_| LaneError::HelloTimeout)??;
    reader.set_max_body_bytes(MAX_BODY_BYTES);
    Ok(welcome)
}

async fn exchange<S>(
    stream: &mut S,
    reader: &mut FrameReader,
    writer: &mut FrameWriter,
    hello: &Hello,
) -> Result<Welcome, LaneError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let limit_ms = u32::try_from(HELLO_TIMEOUT_MS).unwrap_or(NO_DEADLINE);
    writer.push(Frame::request(Kind::Hello, 1, 0, limit_ms), hello)?;
    writer.flush(stream).await?;
    let header = reader.next(stream).await?.ok_or(LaneError::Closed)?;
    if header.has(FLAG_ERROR) && matches!(header.kind, Kind::Hello | Kind::Goodbye) {
        return Err(LaneError::Refused(reader.decode()?));
    }
    if header.kind != Kind::Hello || !header.has(FLAG_REPLY) {
        return Err(LaneError::Mismatch { what: "kind" });
    }
    let welcome: Welcome = reader.decode()?;
    if welcome.name.len() > MAX_NAME_BYTES {
        return Err(LaneError::Mismatch { what: "name" });
    }
    if (hello.protocol_min..=hello.protocol_max).contains(&welcome.protocol) {
        Ok(welcome)
    } else {
        Err(LaneError::Mismatch { what: "protocol" })
    }
}

/// Waits for a hello within [`HELLO_TIMEOUT_MS`], asks `admit` who the credential proves, and
/// answers. A peer that is refused hears why before this returns; the caller closes.
///
/// # Errors
/// [`LaneError::Refused`] with what the peer was told, [`LaneError::HelloTimeout`],
/// [`LaneError::Frame`] if it sent something else, or that the connection broke.
pub async fn accept<S, C, F>(
    stream: &mut S,
    reader: &mut FrameReader,
    writer: &mut FrameWriter,
    admit: C,
) -> Result<Accepted, LaneError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    C: FnOnce(Hello) -> F,
    F: Future<Output = Result<Admission, Refused>>,
{
    let limit = Duration::from_millis(HELLO_TIMEOUT_MS);
    let first = timeout(limit, reader.next(stream))
        .await
        .map_err(|_| LaneError::HelloTimeout)?;
    let header = first?.ok_or(LaneError::Closed)?;
    if header.kind != Kind::Hello || header.has(FLAG_REPLY) || header.payload_bytes != 0 {
        return Err(LaneError::Mismatch { what: "kind" });
    }
    let hello: Hello = reader.decode()?;
    let (name, incarnation) = (hello.name.clone(), hello.incarnation);
    let admitted = match common_protocol(&hello) {
        Ok(protocol) => admit(hello).await.map(|admission| (protocol, admission)),
        Err(refused) => Err(refused),
    };
    match admitted {
        Ok((protocol, admission)) => {
            let welcome = admission.welcome(protocol);
            answer(stream, writer, &header, 0, &welcome).await?;
            reader.set_max_body_bytes(MAX_BODY_BYTES);
            Ok(Accepted {
                welcome,
                name,
                incarnation,
            })
        }
        Err(refused) => {
            answer(stream, writer, &header, FLAG_ERROR, &refused).await?;
            Err(LaneError::Refused(refused))
        }
    }
}

async fn answer<S, B>(
    stream: &mut S,
    writer: &mut FrameWriter,
    to: &Header,
    flags: u8,
    body: &B,
) -> Result<(), LaneError>
where
    S: AsyncWrite + Unpin,
    B: serde::Serialize,
{
    writer.push(Frame::reply(to, flags), body)?;
    let limit = Duration::from_millis(HELLO_TIMEOUT_MS);
    timeout(limit, writer.flush(stream))
        .await
        .map_err(|_| LaneError::HelloTimeout)??;
    Ok(())
}

fn common_protocol(hello: &Hello) -> Result<u16, Refused> {
    if hello.credential.is_empty() || hello.credential.len() > MAX_CREDENTIAL_BYTES {
        let detail = format!("a credential has 1 to {MAX_CREDENTIAL_BYTES} bytes");
        return Err(Refused::new(RefusedReason::Credential, detail));
    }
    let newest = hello.protocol_max.min(PROTOCOL_MAX);
    if newest >= hello.protocol_min.max(PROTOCOL_MIN) {
        return Ok(newest);
    }
    let detail = format!("this release speaks protocols {PROTOCOL_MIN} to {PROTOCOL_MAX}");
    Err(Refused::new(RefusedReason::Protocol, detail))
}

/// Tells a peer why its connection ends and gives it a moment to read that: closing a socket
/// with unread bytes would make the kernel throw the message away at the peer's end. Bytes of
/// another protocol get no answer. Bounded by one second and 256 KiB; errors do not matter.
pub async fn farewell<S>(stream: &mut S, error: &LaneError)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let refused = match error {
        // Already told, or nobody there who could understand.
        LaneError::Refused(_) => None,
        LaneError::Frame(FrameError::Magic(_) | FrameError::Truncated)
        | LaneError::Io(_)
        | LaneError::Closed => return,
        LaneError::Frame(cause) => Some(Refused::new(RefusedReason::Frame, cause.to_string())),
        other => Some(Refused::new(RefusedReason::Frame, other.to_string())),
    };
    let parting = async {
        if let Some(refused) = &refused {
            say_goodbye(stream, refused).await?;
        }
        stream.shutdown().await?;
        let mut rest = FAREWELL_BYTES;
        let mut chunk = [0; 4096];
        while rest > 0 {
            match stream.read(&mut chunk).await? {
                0 => break,
                read => rest = rest.saturating_sub(read),
            }
        }
        Ok::<(), LaneError>(())
    };
    // The peer is gone or goes on too long: either way the connection is closed now.
    let _ = timeout(Duration::from_millis(FAREWELL_MS), parting).await;
}

async fn say_goodbye<S>(stream: &mut S, refused: &Refused) -> Result<(), LaneError>
where
    S: AsyncWrite + Unpin,
{
    let mut frame = Frame::request(Kind::Goodbye, 0, 0, NO_DEADLINE);
    frame.flags = FLAG_ERROR;
    let mut writer = FrameWriter::default();
    writer.push(frame, refused)?;
    Ok(writer.flush(stream).await?)
}

impl Admission {
    fn welcome(self, protocol: u16) -> Welcome {
        Welcome {
            protocol,
            features: 0,
            session: self.session,
            principal: self.principal,
            incarnation: self.incarnation,
            epoch: self.epoch,
            pool_time: self.pool_time,
            session_token: self.session_token,
            session_token_ms: self.session_token_ms,
            name: self.name,
        }
    }
}
