//! Frames out of a stream of bytes: told bytes, yields frames, does no I/O.
//!
//! The shell reads into [`FrameDecoder::space`], says how much came with
//! [`FrameDecoder::filled`] and takes frames with [`FrameDecoder::next_frame`] until there is none.

use crate::frame::{FrameError, HEADER_BYTES, Header, MAGIC};
use crate::limit::{MAX_BODY_BYTES, MAX_HELLO_BYTES};

/// The least room that [`FrameDecoder::space`] offers, in bytes.
const SPACE_MIN_BYTES: usize = 4 * 1024;
/// An empty buffer longer than this is given back, so that a thousand idle connections that each
/// sent one large frame do not hold a gigabyte.
const KEEP_BYTES: usize = 64 * 1024;

/// Cuts one direction of one connection into frames.
///
/// Memory grows with what arrived, never with what a header announced: at most the body limit,
/// the header and twice the room for reading.
#[derive(Debug)]
pub struct FrameDecoder {
    buffer: Vec<u8>,
    /// First byte that no frame has taken.
    start: usize,
    /// End of what was read; behind it is room.
    end: usize,
    max_body_bytes: u32,
    max_payload_bytes: u64,
    /// The header of the frame that is not complete yet.
    header: Option<Header>,
}

impl FrameDecoder {
    /// A decoder for a connection whose hello has not been accepted: bodies up to
    /// [`MAX_HELLO_BYTES`], no payload.
    #[must_use]
    pub const fn before_hello() -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            end: 0,
            max_body_bytes: MAX_HELLO_BYTES,
            max_payload_bytes: 0,
            header: None,
        }
    }

    /// The hello was accepted: bodies up to [`MAX_BODY_BYTES`], payloads up to
    /// `max_payload_bytes`.
    pub const fn accept(&mut self, max_payload_bytes: u64) {
        self.max_body_bytes = MAX_BODY_BYTES;
        self.max_payload_bytes = max_payload_bytes;
    }

    /// Room to read into; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() > KEEP_BYTES {
                self.buffer = Vec::new();
            }
        }
        if self.buffer.len() - self.end < SPACE_MIN_BYTES {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.buffer.len() - self.end < SPACE_MIN_BYTES {
            // Doubling: a long body costs few copies, and an announced one none before it comes.
            self.buffer
                .resize((self.end * 2).max(2 * SPACE_MIN_BYTES), 0);
        }
        &mut self.buffer[self.end..]
    }

    /// `bytes` more bytes stand in the room that [`FrameDecoder::space`] gave.
    pub fn filled(&mut self, bytes: usize) {
        self.end = (self.end + bytes).min(self.buffer.len());
    }

    /// Takes a copy of bytes that came another way than through [`FrameDecoder::space`].
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = self.space();
            let length = space.len().min(bytes.len());
            let (now, later) = bytes.split_at(length);
            space[..length].copy_from_slice(now);
            self.filled(length);
            bytes = later;
        }
    }

    /// The next complete frame, checked; `None` if more bytes are needed. Behind a frame that
    /// announces payload the caller takes that with [`FrameDecoder::take_buffered`] and from the
    /// connection before it asks for the next frame.
    ///
    /// # Errors
    /// [`FrameError`]; the connection must be closed.
    pub fn next_frame(&mut self) -> Result<Option<(Header, &[u8])>, FrameError> {
        let header = match self.header {
            Some(header) => header,
            None => match self.read_header()? {
                Some(header) => header,
                None => return Ok(None),
            },
        };
        // A body fits memory: at most MAX_BODY_BYTES.
        let body_bytes = header.body_bytes as usize;
        if self.end - self.start < body_bytes {
            return Ok(None);
        }
        let body = self.start..self.start + body_bytes;
        self.start = body.end;
        self.header = None;
        let body = &self.buffer[body];
        header.verify(body)?;
        Ok(Some((header, body)))
    }

    /// Moves payload that was read along with frames into `out`; returns its length in bytes.
    pub fn take_buffered(&mut self, out: &mut [u8]) -> usize {
        let length = out.len().min(self.end - self.start);
        out[..length].copy_from_slice(&self.buffer[self.start..self.start + length]);
        self.start += length;
        length
    }

    /// The connection ended.
    ///
    /// # Errors
    /// [`FrameError::Truncated`] if it ended within a frame.
    pub const fn finish(&self) -> Result<(), FrameError> {
        if self.header.is_none() && self.start == self.end {
            Ok(())
        } else {
            Err(FrameError::Truncated)
        }
    }

    fn read_header(&mut self) -> Result<Option<Header>, FrameError> {
        let bytes = &self.buffer[self.start..self.end];
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            // Whoever speaks something else may wait for us to answer less than a header.
            return match bytes.first_chunk() {
                Some(magic) if *magic != MAGIC => Err(FrameError::Magic(*magic)),
                _ => Ok(None),
            };
        };
        let header = Header::decode(bytes, self.max_body_bytes)?;
        if header.payload_bytes > self.max_payload_bytes {
            return Err(FrameError::Oversize {
                what: "payload",
                bytes: header.payload_bytes,
                max_bytes: self.max_payload_bytes,
            });
        }
        self.start += HEADER_BYTES;
        self.header = Some(header);
        Ok(Some(header))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, NO_DEADLINE, encode_frame};
    use crate::kind::Kind;
    use proptest::prelude::*;

    fn frame(request: u64, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let frame = Frame::request(Kind::Ping, request, 7, NO_DEADLINE);
        encode_frame(&mut out, frame, body).expect("a short body");
        out
    }

    fn accepted() -> FrameDecoder {
        let mut decoder = FrameDecoder::before_hello();
        decoder.accept(0);
        decoder
    }

    proptest! {
        #[test]
        fn frames_survive_any_cut(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20_000), 1..6),
            cuts in prop::collection::vec(1_usize..9_000, 1..40),
        ) {
            let mut stream = Vec::new();
            for (at, body) in bodies.iter().enumerate() {
                stream.extend(frame(at as u64 + 1, body));
            }
            let mut decoder = accepted();
            let mut seen = Vec::new();
            let mut rest = stream.as_slice();
            let mut cuts = cuts.iter().cycle();
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(*cuts.next().expect("a cycle")));
                decoder.feed(now);
                rest = later;
                while let Some((header, body)) = decoder.next_frame().expect("whole frames") {
                    let body: Vec<u8> = crate::decode_body(header.kind, body).expect("bytes");
                    seen.push((header.request, body));
                }
            }
            prop_assert_eq!(decoder.finish(), Ok(()));
            let sent: Vec<_> = (1_u64..).zip(bodies).collect();
            prop_assert_eq!(seen, sent);
        }

        #[test]
        fn no_bytes_make_it_fall(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut decoder = accepted();
            decoder.feed(&MAGIC);
            decoder.feed(&bytes);
            while let Ok(Some(_)) = decoder.next_frame() {}
        }
    }

    #[test]
    fn a_stranger_gets_little_memory() {
        let long = frame(1, &vec![0; 20_000]);
        let mut decoder = FrameDecoder::before_hello();
        decoder.feed(&long[..HEADER_BYTES]);
        assert!(matches!(
            decoder.next_frame(),
            Err(FrameError::Oversize { what: "body", .. })
        ));
        let mut decoder = accepted();
        decoder.feed(&long[..HEADER_BYTES]);
        assert!(matches!(decoder.next_frame(), Ok(None)));
        assert!(
            decoder.buffer.len() <= 2 * SPACE_MIN_BYTES,
            "announced bytes take no memory"
        );
        decoder.feed(&long[HEADER_BYTES..]);
        assert!(matches!(decoder.next_frame(), Ok(Some(_))));
    }

    #[test]
    fn payload_is_taken_between_frames() {
        let mut stream = Vec::new();
        let mut with_payload = Frame::request(Kind::Write, 1, 7, NO_DEADLINE);
        with_payload.payload_bytes = 5;
        encode_frame(&mut stream, with_payload, &()).expect("an empty body");
        stream.extend(b"bytes");
        stream.extend(frame(2, b""));
        let mut decoder = accepted();
        decoder.feed(&stream);
        assert!(matches!(
            decoder.next_frame(),
            Err(FrameError::Oversize {
                what: "payload",
                ..
            })
        ));
        let mut decoder = accepted();
        decoder.accept(5);
        decoder.feed(&stream);
        assert!(matches!(decoder.next_frame(), Ok(Some(_))));
        let mut payload = [0; 5];
        assert_eq!(decoder.take_buffered(&mut payload), 5);
        assert_eq!(&payload, b"bytes");
        let (header, _) = decoder.next_frame().expect("a frame").expect("complete");
        assert_eq!(header.request, 2);
    }

    #[test]
    fn a_cut_frame_is_truncated_and_a_changed_one_refused() {
        let whole = frame(1, b"body");
        for length in 1..whole.len() {
            let mut decoder = accepted();
            decoder.feed(&whole[..length]);
            assert!(matches!(decoder.next_frame(), Ok(None)));
            assert_eq!(decoder.finish(), Err(FrameError::Truncated));
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            let mut decoder = accepted();
            decoder.feed(&changed);
            assert!(!matches!(decoder.next_frame(), Ok(Some(_))), "byte {at}");
        }
    }

    #[test]
    fn another_protocol_is_named() {
        let mut decoder = FrameDecoder::before_hello();
        decoder.feed(b"GET / HTTP/1.1\r\nHost: pool\r\nAccept: */*\r\n\r\n");
        assert_eq!(
            decoder.next_frame().err(),
            Some(FrameError::Magic(*b"GET "))
        );
    }

    #[test]
    fn four_bytes_are_enough_to_refuse() {
        let mut decoder = FrameDecoder::before_hello();
        decoder.feed(b"HEL");
        assert!(matches!(decoder.next_frame(), Ok(None)));
        decoder.feed(b"P");
        let refused = decoder.next_frame().err();
        assert_eq!(refused, Some(FrameError::Magic(*b"HELP")));
        let mut decoder = FrameDecoder::before_hello();
        decoder.feed(&MAGIC);
        assert!(matches!(decoder.next_frame(), Ok(None)));
    }
}
