//! Every call that a client makes to a master.

use larder_wire::events::Subscribe;
use larder_wire::frame::Frame;
use larder_wire::master::{Exists, Get, List, PutEnd, PutRevoke, PutStart, Remove, Usage};
use larder_wire::{FrameError, Kind, encode_frame};

/// One call, not yet encoded: it is encoded again for each attempt, with the time then left.
#[derive(Debug)]
pub(crate) enum Request {
    PutStart(PutStart),
    PutEnd(PutEnd),
    PutRevoke(PutRevoke),
    Get(Get),
    Exists(Exists),
    Remove(Remove),
    List(List),
    Usage(Usage),
    Subscribe(Subscribe),
}

impl Request {
    pub(crate) const fn kind(&self) -> Kind {
        match self {
            Self::PutStart(_) => Kind::PutStart,
            Self::PutEnd(_) => Kind::PutEnd,
            Self::PutRevoke(_) => Kind::PutRevoke,
            Self::Get(_) => Kind::Get,
            Self::Exists(_) => Kind::Exists,
            Self::Remove(_) => Kind::Remove,
            Self::List(_) => Kind::List,
            Self::Usage(_) => Kind::Usage,
            Self::Subscribe(_) => Kind::Subscribe,
        }
    }

    /// Whether doing it twice is the same as once. A start leaves at most a reservation that the
    /// end of its session frees; a repeated end is answered as the first was; a remove whose
    /// first attempt was done answers that there is no such object, which its caller
    /// ([`crate::Client::remove`]) takes for success.
    pub(crate) const fn is_repeatable(&self) -> bool {
        // Every kind by name: whoever adds one decides.
        match self {
            Self::PutStart(_) | Self::PutEnd(_) | Self::PutRevoke(_) | Self::Remove(_) => true,
            Self::Get(_) | Self::Exists(_) | Self::List(_) | Self::Usage(_) => true,
            Self::Subscribe(_) => true,
        }
    }

    /// Appends the call as a frame.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, frame: Frame) -> Result<(), FrameError> {
        match self {
            Self::PutStart(body) => encode_frame(out, frame, body),
            Self::PutEnd(body) => encode_frame(out, frame, body),
            Self::PutRevoke(body) => encode_frame(out, frame, body),
            Self::Get(body) => encode_frame(out, frame, body),
            Self::Exists(body) => encode_frame(out, frame, body),
            Self::Remove(body) => encode_frame(out, frame, body),
            Self::List(body) => encode_frame(out, frame, body),
            Self::Usage(body) => encode_frame(out, frame, body),
            Self::Subscribe(body) => encode_frame(out, frame, body),
        }
    }
}
