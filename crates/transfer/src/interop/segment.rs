//! What a peer's tcp segment offers, as JSON.

use serde::{Deserialize, Serialize};

use super::AddressRange;
use super::data::Dialect;

#[cfg(test)]
mod tests;

/// The most buffers of a segment; a frame of the longest length hardly holds as many.
pub const BUFFERS_MAX: usize = 32 * 1024;
/// The longest name of anything in a segment, in bytes.
const NAME_MAX_BYTES: usize = 1024;
/// The transport whose data port is spoken here.
const TCP: &str = "tcp";
/// What we say we speak: acknowledged writes.
const OWN_VERSION: u64 = 2;

/// A registered range of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferDesc {
    /// Of whom; in tcp segments the name of the segment.
    pub name: String,
    /// Where it is in the peer's memory.
    pub range: AddressRange,
}

/// A segment that is reached by tcp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentDesc {
    /// `host:port` of the handshake port.
    pub name: String,
    /// Where the data port is; empty = on the host of the handshake port.
    pub data_host: String,
    /// The data port; `None` = the peer only reads from and writes to others.
    pub data_port: Option<u16>,
    /// How the data port talks.
    pub dialect: Dialect,
    /// What may be reached.
    pub buffers: Vec<BufferDesc>,
}

/// Why JSON is no segment that can be used.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// Not JSON, or a field has the wrong type.
    #[error("the segment is not JSON of the expected form")]
    Json(#[source] serde_json::Error),
    /// Nothing in it.
    #[error("the peer describes no segment")]
    Missing,
    /// It is reached by other transports.
    #[error("the segment is reached by {found}, not by tcp; start the peer with MC_FORCE_TCP=1")]
    NotTcp {
        /// What it names, shortened.
        found: String,
    },
    /// A field holds what it may not.
    #[error("the segment's {0} is not valid")]
    Field(&'static str),
    /// More buffers than are looked at.
    #[error("the segment has {count} buffers; {BUFFERS_MAX} are the most")]
    TooMany {
        /// How many it has.
        count: usize,
    },
}

impl SegmentError {
    /// Whether the peer may describe something else soon: it has not begun yet.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Missing)
    }
}

/// Written in the order of keys that stock engines use.
#[derive(Serialize)]
struct Written<'a> {
    buffers: Vec<WrittenBuffer<'a>>,
    name: &'a str,
    protocol: &'a str,
    rdma_server_name: &'a str,
    tcp_data_host: &'a str,
    tcp_data_port: u16,
    tcp_proto_version: u64,
    /// When the segment was written, for people; stock engines do not look at it.
    timestamp: &'a str,
}

#[derive(Serialize)]
struct WrittenBuffer<'a> {
    addr: u64,
    length: u64,
    name: &'a str,
}

/// Everything may be missing; what else is there is not looked at.
#[derive(Deserialize)]
struct Found {
    buffers: Option<Vec<FoundBuffer>>,
    name: Option<String>,
    protocol: Option<Protocols>,
    tcp_data_host: Option<String>,
    tcp_data_port: Option<u64>,
    tcp_proto_version: Option<u64>,
}

#[derive(Deserialize)]
struct FoundBuffer {
    addr: Option<u64>,
    length: Option<u64>,
    name: Option<String>,
}

/// Builds with several transports write a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum Protocols {
    One(String),
    Many(Vec<String>),
}

impl Protocols {
    fn has_tcp(&self) -> bool {
        match self {
            Self::One(one) => one.split(',').any(|one| one == TCP),
            Self::Many(many) => many.iter().any(|one| one == TCP),
        }
    }

    fn shown(&self) -> String {
        let all = match self {
            Self::One(one) => one.clone(),
            Self::Many(many) => many.join(", "),
        };
        all.chars().take(64).collect()
    }
}

impl SegmentDesc {
    /// The JSON of a frame.
    ///
    /// # Errors
    /// None in practice: text and numbers can always be written.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        let buffers = self.buffers.iter().map(|buffer| WrittenBuffer {
            addr: buffer.range.address,
            length: buffer.range.bytes,
            name: &buffer.name,
        });
        let mut json = serde_json::to_vec(&Written {
            buffers: buffers.collect(),
            name: &self.name,
            protocol: TCP,
            rdma_server_name: "",
            tcp_data_host: &self.data_host,
            tcp_data_port: self.data_port.unwrap_or(0),
            tcp_proto_version: match self.dialect {
                Dialect::V1 => 1,
                Dialect::V2 => OWN_VERSION,
            },
            timestamp: "",
        })?;
        json.push(b'\n');
        Ok(json)
    }

    /// Reads the JSON of a frame. Buffers without address or length are left out: they are
    /// those of other transports.
    ///
    /// # Errors
    /// [`SegmentError`].
    pub fn decode(json: &[u8]) -> Result<Self, SegmentError> {
        let found: Option<Found> = serde_json::from_slice(json).map_err(SegmentError::Json)?;
        let Some(found) = found else {
            return Err(SegmentError::Missing);
        };
        let Some(protocols) = found.protocol else {
            return Err(SegmentError::Missing);
        };
        if !protocols.has_tcp() {
            let found = protocols.shown();
            return Err(SegmentError::NotTcp { found });
        }
        let data_port = match found.tcp_data_port {
            None | Some(0) => None,
            Some(port) => {
                Some(u16::try_from(port).map_err(|_| SegmentError::Field("tcp_data_port"))?)
            }
        };
        let name = found.name.unwrap_or_default();
        let data_host = found.tcp_data_host.unwrap_or_default();
        check_name(&name, "name")?;
        check_name(&data_host, "tcp_data_host")?;
        Ok(Self {
            name,
            data_host,
            data_port,
            dialect: Dialect::of_version(found.tcp_proto_version.unwrap_or(1)),
            buffers: buffers(found.buffers.unwrap_or_default())?,
        })
    }

    /// Whether one of its buffers holds all of a range.
    #[must_use]
    pub fn holds(&self, range: &AddressRange) -> bool {
        self.buffers.iter().any(|one| one.range.holds(range))
    }
}

fn buffers(found: Vec<FoundBuffer>) -> Result<Vec<BufferDesc>, SegmentError> {
    let count = found.len();
    if count > BUFFERS_MAX {
        return Err(SegmentError::TooMany { count });
    }
    let mut buffers = Vec::with_capacity(count);
    for buffer in found {
        let (Some(address), Some(bytes)) = (buffer.addr, buffer.length) else {
            continue;
        };
        let name = buffer.name.unwrap_or_default();
        check_name(&name, "buffers.name")?;
        let range = AddressRange { address, bytes };
        if range.end().is_none() {
            return Err(SegmentError::Field("buffers.length"));
        }
        buffers.push(BufferDesc { name, range });
    }
    Ok(buffers)
}

fn check_name(name: &str, field: &'static str) -> Result<(), SegmentError> {
    if name.len() <= NAME_MAX_BYTES {
        Ok(())
    } else {
        Err(SegmentError::Field(field))
    }
}
