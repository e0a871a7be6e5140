//! Kinds of frames. A number is never given twice.

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal),* $(,)?) => {
        /// What a frame is. A reply has the kind of its request and the flag
        /// [`crate::frame::FLAG_REPLY`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Kind {
            $($(#[$doc])* $name = $number,)*
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The kind of this number, if this release knows it.
            #[must_use]
            pub const fn from_number(number: u16) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }

            /// The name, as it stands in metric labels.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

kinds! {
    /// First frame of a connection: [`crate::hello::Hello`], answered by
    /// [`crate::hello::Welcome`] or, with the flag `ERROR`, [`crate::hello::Refused`].
    Hello = 1,
    /// Either side: are you there? Empty body, empty answer.
    Ping = 2,
    /// Sender is about to close; body is [`crate::hello::Refused`].
    Goodbye = 3,

    /// [`crate::master::PutStart`].
    PutStart = 16,
    /// [`crate::master::PutEnd`].
    PutEnd = 17,
    /// [`crate::master::PutRevoke`].
    PutRevoke = 18,
    /// [`crate::master::Get`].
    Get = 19,
    /// [`crate::master::Exists`].
    Exists = 20,
    /// [`crate::master::Remove`].
    Remove = 21,
    /// [`crate::master::List`].
    List = 22,
    /// [`crate::master::Usage`].
    Usage = 23,
    /// [`crate::master::Pin`].
    Pin = 24,
    /// [`crate::master::Stat`].
    Stat = 25,
    /// [`crate::master::ListStats`].
    ListStats = 26,
    /// [`crate::master::RemovePrefix`].
    RemovePrefix = 27,

    /// [`crate::master::TaskCreate`].
    TaskCreate = 30,
    /// [`crate::master::TaskQuery`].
    TaskQuery = 31,

    /// [`crate::agent::Mount`].
    Mount = 32,
    /// [`crate::agent::Heartbeat`].
    Heartbeat = 33,
    /// Master to agent, no answer of its own: [`crate::agent::Commands`].
    Commands = 34,
    /// Agent to master, no answer: [`crate::agent::Done`].
    Done = 35,
    /// [`crate::agent::Unmount`].
    Unmount = 36,
    /// [`crate::agent::Inventory`].
    Inventory = 37,

    /// [`crate::data::Write`] with payload.
    Write = 48,
    /// [`crate::data::Read`]; the answer has the payload.
    Read = 49,
    /// Agent to client after the payload of a read: [`crate::data::ReadEnd`].
    ReadEnd = 50,
    /// Unix socket only: [`crate::data::RegisterBuffer`] with one file descriptor.
    RegisterBuffer = 51,
    /// Unix socket only: [`crate::data::UnregisterBuffer`].
    UnregisterBuffer = 52,
    /// Unix socket only: [`crate::data::Pull`].
    Pull = 53,
    /// Unix socket only: [`crate::data::OpenView`]; the answer may carry a file descriptor.
    OpenView = 54,
    /// Unix socket only: [`crate::data::CloseView`].
    CloseView = 55,

    /// [`crate::events::Subscribe`].
    Subscribe = 64,

    /// Between masters; what it says stands with them, as nobody else reads it.
    Peer = 72,

    /// Between engines: [`crate::engine::Known`], answered by [`crate::engine::Changes`].
    EngineChanges = 80,
    /// [`crate::engine::EngineWrite`] with payload.
    EngineWrite = 81,
    /// [`crate::engine::EngineRead`]; the answer has the payload.
    EngineRead = 82,
    /// [`crate::engine::Notice`].
    EngineNotice = 83,
    /// [`crate::engine::EngineCut`].
    EngineCut = 84,
}

/// Calls `$with!` with the name of every call of clients to a master. Each is a kind, a body in
/// [`crate::master`] and a case of what masters and clients make of it: they are made from this
/// list, so that none of them forgets one.
#[macro_export]
macro_rules! client_calls {
    ($with:ident) => {
        $with! {
            PutStart, PutEnd, PutRevoke, Get, Exists, Remove, List, Usage, Pin, Stat, ListStats,
            RemovePrefix, TaskCreate, TaskQuery, Subscribe,
        }
    };
}
