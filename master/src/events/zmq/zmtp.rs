//! The part of ZMTP 3.0 (rfc.zeromq.org/spec/23) that a PUB and a ROUTER need, with the NULL
//! mechanism. Pure: bytes in, frames out.
//!
//! Written here and not taken from a crate: the pure one keeps 100,000 messages per peer whatever
//! they weigh and takes frames of any length from strangers, and both have to be bounded.

/// The length of a greeting.
pub(crate) const GREETING_BYTES: usize = 64;
/// The longest frame taken from a peer: a READY with some properties, a topic, a number.
const FRAME_MAX_BYTES: usize = 1_024;
const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;
const MECHANISM: [u8; 20] = *b"NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// Why a peer is not served any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ZmtpError {
    /// It does not begin as ZMTP does.
    #[error("the peer does not speak ZMTP 3; connect with a ZMQ library of version 4 or newer")]
    NotZmtp,
    /// It wants security that is not offered.
    #[error("the peer asks for another mechanism than NULL")]
    Mechanism,
    /// A frame is too long.
    #[error("a frame of {0} bytes is longer than the {FRAME_MAX_BYTES} that are taken")]
    Oversize(u64),
    /// A frame or command is not built as it has to be.
    #[error("a frame is broken")]
    Broken,
    /// It is a socket of a kind that cannot talk with ours.
    #[error("its socket type does not fit; use SUB for events and REQ or DEALER to repeat them")]
    SocketType,
}

/// A frame from a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FromPeer {
    /// A command: its name and what follows it.
    Command(Vec<u8>, Vec<u8>),
    /// A part of a message, and whether more parts follow.
    Part(Vec<u8>, bool),
}

/// What we say first: version 3.0, so that subscriptions come as messages.
pub(crate) fn greeting() -> [u8; GREETING_BYTES] {
    let mut greeting = [0; GREETING_BYTES];
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[12..32].copy_from_slice(&MECHANISM);
    greeting
}

/// Checks what the peer said first.
pub(crate) fn check_greeting(greeting: &[u8; GREETING_BYTES]) -> Result<(), ZmtpError> {
    if greeting[0] != 0xff || greeting[9] != 0x7f || greeting[10] < 3 {
        return Err(ZmtpError::NotZmtp);
    }
    if greeting[12..32] != MECHANISM {
        return Err(ZmtpError::Mechanism);
    }
    Ok(())
}

/// Our READY.
pub(crate) fn ready(socket_type: &str) -> Vec<u8> {
    let mut body = b"\x05READY".to_vec();
    push_property(&mut body, "Socket-Type", socket_type);
    push_property(&mut body, "Identity", "");
    let mut out = Vec::with_capacity(body.len() + 2);
    push_frame(&mut out, COMMAND, &body);
    out
}

/// An answer to a PING with this context.
pub(crate) fn pong(context: &[u8]) -> Vec<u8> {
    let mut body = b"\x04PONG".to_vec();
    body.extend_from_slice(context);
    let mut out = Vec::with_capacity(body.len() + 2);
    push_frame(&mut out, COMMAND, &body);
    out
}

fn push_property(out: &mut Vec<u8>, name: &str, value: &str) {
    out.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
    out.extend_from_slice(name.as_bytes());
    let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(value.as_bytes());
}

/// Appends a message of these parts.
pub(crate) fn push_message(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for (index, part) in parts.iter().enumerate() {
        let more = if index + 1 < parts.len() { MORE } else { 0 };
        push_frame(out, more, part);
    }
}

fn push_frame(out: &mut Vec<u8>, flags: u8, body: &[u8]) {
    if let Ok(length) = u8::try_from(body.len()) {
        out.extend_from_slice(&[flags, length]);
    } else {
        out.push(flags | LONG);
        out.extend_from_slice(&(body.len() as u64).to_be_bytes());
    }
    out.extend_from_slice(body);
}

/// Takes the first frame off `buffer`, which grows by what is read; `None` if it is not whole.
pub(crate) fn take_frame(buffer: &mut Vec<u8>) -> Result<Option<FromPeer>, ZmtpError> {
    let Some(&flags) = buffer.first() else {
        return Ok(None);
    };
    if flags & !(MORE | LONG | COMMAND) != 0 {
        return Err(ZmtpError::Broken);
    }
    let (head, length) = if flags & LONG == 0 {
        let Some(&length) = buffer.get(1) else {
            return Ok(None);
        };
        (2, u64::from(length))
    } else {
        let Some(length) = buffer.get(1..9) else {
            return Ok(None);
        };
        let length = length.try_into().map_err(|_| ZmtpError::Broken)?;
        (9, u64::from_be_bytes(length))
    };
    let Some(body_bytes) = usize::try_from(length)
        .ok()
        .filter(|bytes| *bytes <= FRAME_MAX_BYTES)
    else {
        return Err(ZmtpError::Oversize(length));
    };
    if buffer.len() < head + body_bytes {
        return Ok(None);
    }
    let body = buffer[head..head + body_bytes].to_vec();
    buffer.drain(..head + body_bytes);
    if flags & COMMAND == 0 {
        return Ok(Some(FromPeer::Part(body, flags & MORE != 0)));
    }
    let name_bytes = usize::from(*body.first().ok_or(ZmtpError::Broken)?);
    let name = body.get(1..=name_bytes).ok_or(ZmtpError::Broken)?.to_vec();
    let rest = body.get(1 + name_bytes..).unwrap_or_default().to_vec();
    Ok(Some(FromPeer::Command(name, rest)))
}

/// Checks the READY of a peer: its socket is one of `fitting`.
pub(crate) fn check_ready(frame: &FromPeer, fitting: &[&str]) -> Result<(), ZmtpError> {
    let FromPeer::Command(name, rest) = frame else {
        return Err(ZmtpError::Broken);
    };
    if name != b"READY" {
        return Err(ZmtpError::Broken);
    }
    let mut rest = rest.as_slice();
    while let Some(name_bytes) = rest.first() {
        let name_bytes = usize::from(*name_bytes);
        let value_at = 1 + name_bytes + 4;
        let head = rest.get(..value_at).ok_or(ZmtpError::Broken)?;
        let (name, length) = head[1..].split_at(name_bytes);
        let length = length.try_into().map_err(|_| ZmtpError::Broken)?;
        let length = usize::try_from(u32::from_be_bytes(length)).map_err(|_| ZmtpError::Broken)?;
        let end = value_at.checked_add(length).ok_or(ZmtpError::Broken)?;
        let value = rest.get(value_at..end).ok_or(ZmtpError::Broken)?;
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            let is_fitting = fitting.iter().any(|kind| kind.as_bytes() == value);
            return is_fitting.then_some(()).ok_or(ZmtpError::SocketType);
        }
        rest = rest.get(end..).unwrap_or_default();
    }
    Err(ZmtpError::SocketType)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn our_own_words_are_understood() {
        assert_eq!(check_greeting(&greeting()), Ok(()));
        let mut out = ready("SUB");
        let frame = take_frame(&mut out).expect("valid").expect("whole");
        assert_eq!(check_ready(&frame, &["SUB", "XSUB"]), Ok(()));
        assert_eq!(check_ready(&frame, &["REQ"]), Err(ZmtpError::SocketType));
        let part = FromPeer::Part(Vec::new(), false);
        assert_eq!(check_ready(&part, &["SUB"]), Err(ZmtpError::Broken));
    }

    #[test]
    fn others_are_refused() {
        let change = |at: usize, to: u8| {
            let mut changed = greeting();
            changed[at] = to;
            check_greeting(&changed)
        };
        assert_eq!(change(0, b'G'), Err(ZmtpError::NotZmtp));
        assert_eq!(change(10, 1), Err(ZmtpError::NotZmtp));
        assert_eq!(change(11, 1), Ok(()));
        assert_eq!(change(12, b'C'), Err(ZmtpError::Mechanism));
        let mut long = vec![LONG];
        long.extend(u64::MAX.to_be_bytes());
        assert_eq!(take_frame(&mut long), Err(ZmtpError::Oversize(u64::MAX)));
        assert_eq!(take_frame(&mut vec![0x80, 0]), Err(ZmtpError::Broken));
        assert_eq!(take_frame(&mut vec![COMMAND, 0]), Err(ZmtpError::Broken));
        assert_eq!(
            take_frame(&mut vec![COMMAND, 2, 9, b'x']),
            Err(ZmtpError::Broken)
        );
    }

    proptest! {
        #[test]
        fn messages_survive_any_cut(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 1..5),
            cut in 1_usize..400,
        ) {
            let mut stream = Vec::new();
            let all: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            push_message(&mut stream, &all);
            let mut buffer = Vec::new();
            let mut seen = Vec::new();
            for piece in stream.chunks(cut) {
                buffer.extend_from_slice(piece);
                while let Some(frame) = take_frame(&mut buffer).expect("valid") {
                    seen.push(frame);
                }
            }
            let last = parts.len() - 1;
            let expected: Vec<FromPeer> = parts
                .into_iter()
                .enumerate()
                .map(|(at, part)| FromPeer::Part(part, at < last))
                .collect();
            prop_assert_eq!(seen, expected);
            prop_assert!(buffer.is_empty());
        }

        #[test]
        fn no_bytes_make_it_fall(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut buffer = bytes;
            while let Ok(Some(frame)) = take_frame(&mut buffer) {
                // Any verdict will do.
                let _ = check_ready(&frame, &["SUB"]);
            }
        }
    }
}
