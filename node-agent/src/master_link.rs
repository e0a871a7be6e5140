//! One connection to a master: hello, then messages both ways, until either side ends it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use larder_telemetry::error_chain;
use larder_transfer::lane::{
    FrameReader, FrameWriter, LaneError, connect_tcp, greet, session_bits,
};
use larder_types::{AgentName, Epoch, Incarnation};
use larder_wire::frame::{FLAG_ERROR, FLAG_REPLY, NO_DEADLINE};
use larder_wire::limit::{MAX_CREDENTIAL_BYTES, MAX_HELLO_BYTES, PROTOCOL_MAX, PROTOCOL_MIN};
use larder_wire::{Frame, FrameError, Header, Hello, Kind, Purpose, Refused, RefusedReason};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::step::{Inbound, LinkId, Outbound};

/// How long a connect may take, in ms: a black hole must not hold up the next master.
const CONNECT_MS: u64 = 2_000;
/// Above this many unwritten bytes no further message is taken: two full frames.
const UNWRITTEN_BYTES_MAX: usize = 2 * 1024 * 1024;

/// What happens on a link.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// The hello was accepted, in this epoch.
    Opened(Epoch),
    /// The master said something.
    Said(Inbound),
    /// It is over.
    Closed,
    /// It is over, because the master does not lead; perhaps it knows who does.
    NotLeader(Option<String>),
}

/// Who says hello.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) name: AgentName,
    pub(crate) incarnation: Incarnation,
    pub(crate) token_file: PathBuf,
}

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("the token file {path} cannot be used; it must hold this agent's token")]
    Token {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the master cannot be reached")]
    Connect(#[source] std::io::Error),
    #[error("the connection to the master ended")]
    Lane(#[from] LaneError),
}

impl From<FrameError> for LinkError {
    fn from(error: FrameError) -> Self {
        Self::Lane(error.into())
    }
}

/// Reads a token: the text of the file without white space around it.
pub(crate) fn read_token(path: &Path) -> Result<Vec<u8>, LinkError> {
    let failed = |source| LinkError::Token {
        path: path.to_owned(),
        source,
    };
    let invalid = |what: &str| failed(std::io::Error::new(std::io::ErrorKind::InvalidData, what));
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > MAX_CREDENTIAL_BYTES as u64 {
        return Err(invalid("it is longer than any token"));
    }
    let token = std::fs::read(path).map_err(failed)?.trim_ascii().to_vec();
    if token.is_empty() {
        Err(invalid("it is empty"))
    } else {
        Ok(token)
    }
}

/// Runs a link to its end. Whatever happens, [`LinkEvent::Closed`] or [`LinkEvent::NotLeader`]
/// comes last, unless the task is cancelled.
pub(crate) async fn run(
    link: LinkId,
    master: String,
    caller: Caller,
    outbound: mpsc::Receiver<Outbound>,
    events: mpsc::Sender<(LinkId, LinkEvent)>,
) {
    let last = match talk(link, &master, &caller, outbound, &events).await {
        Ok(()) => LinkEvent::Closed,
        Err(LinkError::Lane(LaneError::Refused(refused)))
            if refused.reason == RefusedReason::NotLeader =>
        {
            tracing::debug!(master, "{refused}");
            LinkEvent::NotLeader(refused.leader_hint().map(str::to_owned))
        }
        Err(error) => {
            tracing::warn!(master, "{}", error_chain(&error));
            LinkEvent::Closed
        }
    };
    // If nobody listens any more, the agent is stopping.
    let _ = events.send((link, last)).await;
}

async fn talk(
    link: LinkId,
    master: &str,
    caller: &Caller,
    mut outbound: mpsc::Receiver<Outbound>,
    events: &mpsc::Sender<(LinkId, LinkEvent)>,
) -> Result<(), LinkError> {
    // Read for each link: tokens of Kubernetes are replaced about every hour.
    let credential = read_token(&caller.token_file)?;
    let limit = Duration::from_millis(CONNECT_MS);
    let mut stream = connect_tcp(master, limit)
        .await
        .map_err(LinkError::Connect)?;
    let mut reader = FrameReader::new(MAX_HELLO_BYTES);
    let mut writer = FrameWriter::default();
    let hello = Hello {
        protocol_min: PROTOCOL_MIN,
        protocol_max: PROTOCOL_MAX,
        features: 0,
        credential,
        purpose: Purpose::Agent,
        name: caller.name.as_str().to_owned(),
        incarnation: caller.incarnation,
    };
    let welcome = greet(&mut stream, &mut reader, &mut writer, &hello).await?;
    let session = session_bits(&welcome);
    tracing::info!(master, epoch = %welcome.epoch, "a master accepted the hello");
    let opened = LinkEvent::Opened(welcome.epoch);
    if events.send((link, opened)).await.is_err() {
        return Ok(());
    }
    let (mut source, mut sink) = stream.split();
    let mut request = 0;
    loop {
        tokio::select! {
            next = reader.next(&mut source) => {
                let header = next?.ok_or(LaneError::Closed)?;
                if header.session != session {
                    return Err(LaneError::Mismatch { what: "session" }.into());
                }
                if let Some(said) = understand(&header, &reader, &mut writer)?
                    && events.send((link, LinkEvent::Said(said))).await.is_err()
                {
                    return Ok(());
                }
            }
            message = outbound.recv(), if writer.pending_bytes() < UNWRITTEN_BYTES_MAX => {
                let Some(message) = message else {
                    return finish(&mut writer, &mut sink).await;
                };
                push(&mut writer, &message, session, &mut request)?;
            }
            flushed = writer.flush(&mut sink), if !writer.is_empty() => {
                flushed.map_err(LaneError::from)?;
            }
        }
    }
}

/// The agent hangs up: what is still to be said goes out, within the time for a connect.
async fn finish(
    writer: &mut FrameWriter,
    sink: &mut tokio::net::tcp::WriteHalf<'_>,
) -> Result<(), LinkError> {
    let limit = Duration::from_millis(CONNECT_MS);
    match tokio::time::timeout(limit, writer.flush(sink)).await {
        Ok(flushed) => Ok(flushed.map_err(LaneError::from)?),
        Err(_) => Err(LaneError::Stalled.into()),
    }
}

fn push(
    writer: &mut FrameWriter,
    message: &Outbound,
    session: u32,
    request: &mut u64,
) -> Result<(), FrameError> {
    *request += 1;
    let call = |kind| Frame::request(kind, *request, session, NO_DEADLINE);
    match message {
        Outbound::Mount(mount) => writer.push(call(Kind::Mount), mount),
        Outbound::Heartbeat(heartbeat) => writer.push(call(Kind::Heartbeat), heartbeat),
        Outbound::Unmount(unmount) => writer.push(call(Kind::Unmount), unmount),
        Outbound::Inventory(page) => writer.push(call(Kind::Inventory), page.as_ref()),
        // Wants no answer.
        Outbound::Done(done) => {
            writer.push(Frame::request(Kind::Done, 0, session, NO_DEADLINE), done)
        }
    }
}

fn understand(
    header: &Header,
    reader: &FrameReader,
    writer: &mut FrameWriter,
) -> Result<Option<Inbound>, LinkError> {
    if header.payload_bytes != 0 {
        return Err(LaneError::Mismatch { what: "payload" }.into());
    }
    Ok(Some(match (header.kind, header.has(FLAG_REPLY)) {
        (Kind::Mount, true) => Inbound::Mounted(outcome(header, reader)?),
        (Kind::Heartbeat, true) => Inbound::Beat(outcome(header, reader)?),
        (Kind::Inventory, true) => Inbound::Taken(outcome(header, reader)?),
        (Kind::Unmount, true) => Inbound::Unmounted,
        (Kind::Commands, false) => Inbound::Commands(reader.decode()?),
        (Kind::Ping, false) => {
            writer.push(Frame::reply(header, 0), &())?;
            return Ok(None);
        }
        (Kind::Goodbye, _) => {
            return Err(LaneError::Refused(reader.decode::<Refused>()?).into());
        }
        // An error that belongs to no call we know, such as one of a newer master.
        _ => {
            tracing::debug!(
                kind = header.kind.name(),
                "a master said something of no use here"
            );
            return Ok(None);
        }
    }))
}

fn outcome<T: DeserializeOwned, E: DeserializeOwned>(
    header: &Header,
    reader: &FrameReader,
) -> Result<Result<T, E>, FrameError> {
    if header.has(FLAG_ERROR) {
        Ok(Err(reader.decode()?))
    } else {
        Ok(Ok(reader.decode()?))
    }
}
