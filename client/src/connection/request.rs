//! Every call that a client makes to a master.

use larder_wire::frame::Frame;
use larder_wire::{FrameError, Kind, client_calls, encode_frame, master};

macro_rules! requests {
    ($($call:ident),* $(,)?) => {
        /// One call, not yet encoded: it is encoded again for each attempt, with the time then
        /// left.
        #[derive(Debug)]
        pub(crate) enum Request {
            $($call(master::$call),)*
        }

        impl Request {
            pub(crate) const fn kind(&self) -> Kind {
                match self {
                    $(Self::$call(_) => Kind::$call,)*
                }
            }

            /// Appends the call as a frame.
            pub(crate) fn encode(
                &self,
                out: &mut Vec<u8>,
                frame: Frame,
            ) -> Result<(), FrameError> {
                match self {
                    $(Self::$call(body) => encode_frame(out, frame, body),)*
                }
            }
        }
    };
}

client_calls!(requests);

impl Request {
    /// Whether doing it twice is the same as once, whatever others do in between. A start leaves
    /// at most a reservation that the end of its session frees; ends and revokes name a version,
    /// and a repeated end is answered as the first was. A removal or a pin is not repeated: by
    /// then the key may hold an object that somebody else has put, or the pin that somebody else
    /// wants.
    pub(crate) const fn is_repeatable(&self) -> bool {
        // Every kind by name: whoever adds one decides.
        match self {
            Self::PutStart(_) | Self::PutEnd(_) | Self::PutRevoke(_) => true,
            Self::Get(_) | Self::Exists(_) | Self::List(_) | Self::Usage(_) => true,
            Self::Stat(_) | Self::ListStats(_) => true,
            Self::Remove(_) | Self::RemovePrefix(_) | Self::Pin(_) => false,
            // A copy or a move that is there already is done at once.
            Self::TaskCreate(_) | Self::TaskQuery(_) | Self::Subscribe(_) => true,
        }
    }
}
