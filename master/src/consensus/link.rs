//! How one master reaches another: a connection for each use, opened when it is needed.

use std::future::Future;
use std::time::Duration;

use larder_types::Incarnation;
use larder_wire::frame::{FLAG_ERROR, NO_DEADLINE};
use larder_wire::limit::{PROTOCOL_MAX, PROTOCOL_MIN};
use larder_wire::{
    Frame, FrameDecoder, FrameError, Header, Hello, Kind, Purpose, Refused, Welcome, decode_body,
    encode_frame,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Member, PeerAnswer, PeerCall};
use crate::session::low_bits;

/// Why a master could not be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransportError {
    #[error("the master cannot be reached")]
    Connect(#[source] std::io::Error),
    #[error("the connection to the master ended")]
    Ended,
    #[error("the master did not answer in time")]
    Late,
    #[error("what the master says cannot be understood")]
    Frame(#[from] FrameError),
    #[error("the master refused: {0}")]
    Refused(Refused),
}

/// Reaches other masters.
pub(crate) trait Transport: Clone + Send + Sync + 'static {
    type Link: Link;

    /// A way to a master. Nothing is opened yet.
    fn link(&self, member: &Member) -> Self::Link;
}

/// A way to one master; one call at a time.
pub(crate) trait Link: Send + Sync + 'static {
    /// Calls and waits for the answer at most so long. A call that is dropped may have arrived.
    fn call(
        &mut self,
        call: &PeerCall,
        within: Duration,
    ) -> impl Future<Output = Result<PeerAnswer, TransportError>> + Send;
}

/// Over TCP, with a credential that only masters of this pool can make.
#[derive(Clone)]
pub(crate) struct TcpTransport {
    pub(crate) credential: Vec<u8>,
    pub(crate) name: String,
    pub(crate) incarnation: Incarnation,
}

impl Transport for TcpTransport {
    type Link = TcpLink;

    fn link(&self, member: &Member) -> TcpLink {
        TcpLink {
            transport: self.clone(),
            addr: member.addr.clone(),
            open: None,
        }
    }
}

/// See [`TcpTransport`].
pub(crate) struct TcpLink {
    transport: TcpTransport,
    addr: String,
    open: Option<Open>,
}

struct Open {
    stream: TcpStream,
    decoder: FrameDecoder,
    session: u32,
    request: u64,
}

impl Link for TcpLink {
    async fn call(
        &mut self,
        call: &PeerCall,
        within: Duration,
    ) -> Result<PeerAnswer, TransportError> {
        let asked = async {
            // Taken out: if this future is dropped half way, the connection goes with it, as an
            // answer to this call would be taken for one to the next.
            let mut open = match self.open.take() {
                Some(open) => open,
                None => self.transport.open(&self.addr).await?,
            };
            let answer = open.call(call).await?;
            self.open = Some(open);
            Ok(answer)
        };
        timeout(within, asked)
            .await
            .unwrap_or(Err(TransportError::Late))
    }
}

impl TcpTransport {
    async fn open(&self, addr: &str) -> Result<Open, TransportError> {
        let stream = TcpStream::connect(addr)
            .await
            .map_err(TransportError::Connect)?;
        stream.set_nodelay(true).map_err(TransportError::Connect)?;
        let mut open = Open {
            stream,
            decoder: FrameDecoder::before_hello(),
            session: 0,
            request: 0,
        };
        let hello = Hello {
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            features: 0,
            credential: self.credential.clone(),
            purpose: Purpose::Master,
            name: self.name.clone(),
            incarnation: self.incarnation,
        };
        let mut out = Vec::new();
        encode_frame(
            &mut out,
            Frame::request(Kind::Hello, 1, 0, NO_DEADLINE),
            &hello,
        )?;
        open.write(&out).await?;
        let (header, body) = open.read().await?;
        if header.has(FLAG_ERROR) || header.kind != Kind::Hello {
            let refused = decode_body::<Refused>(header.kind, &body)?;
            return Err(TransportError::Refused(refused));
        }
        let welcome: Welcome = decode_body(header.kind, &body)?;
        open.decoder.accept(0);
        open.session = low_bits(welcome.session);
        Ok(open)
    }
}

impl Open {
    async fn call(&mut self, call: &PeerCall) -> Result<PeerAnswer, TransportError> {
        self.request += 1;
        let frame = Frame::request(Kind::Peer, self.request, self.session, NO_DEADLINE);
        let mut out = Vec::new();
        encode_frame(&mut out, frame, call)?;
        self.write(&out).await?;
        let (header, body) = self.read().await?;
        if header.kind == Kind::Goodbye {
            return Err(TransportError::Refused(decode_body(header.kind, &body)?));
        }
        if header.kind != Kind::Peer || header.request != self.request {
            return Err(TransportError::Ended);
        }
        Ok(decode_body(header.kind, &body)?)
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        let written = self.stream.write_all(bytes).await;
        written.map_err(|_| TransportError::Ended)
    }

    async fn read(&mut self) -> Result<(Header, Vec<u8>), TransportError> {
        loop {
            if let Some((header, body)) = self.decoder.next_frame()? {
                return Ok((header, body.to_vec()));
            }
            match self.stream.read(self.decoder.space()).await {
                Ok(0) | Err(_) => return Err(TransportError::Ended),
                Ok(bytes) => self.decoder.filled(bytes),
            }
        }
    }
}
