//! Ceilings: the plainest loops that move the same bytes between the same kinds of places.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result};

/// Length of a request or an acknowledgement of the raw socket loop, in bytes.
const NOTE_BYTES: usize = 64;

/// A raw TCP peer in a process of its own: `[64-byte note][payload] -> [answer]`.
#[derive(Debug)]
pub struct RawSocket {
    stream: TcpStream,
    server: Child,
    // Held so that the server can tell that this process is gone.
    _stdout: ChildStdout,
}

impl RawSocket {
    /// Starts the peer and connects to it.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start() -> Result<Self> {
        let mut server = Command::new(std::env::current_exe()?)
            .arg("raw-server")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut stdout = server
            .stdout
            .take()
            .context("the raw server has no output")?;
        let mut port = [0; 2];
        stdout.read_exact(&mut port)?;
        let stream = TcpStream::connect(("127.0.0.1", u16::from_le_bytes(port)))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            server,
            _stdout: stdout,
        })
    }

    /// The peer's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    /// Sends `request` behind a note and reads as many bytes as `answer` has.
    ///
    /// # Errors
    /// If the peer is gone.
    pub fn turn(&mut self, request: &[u8], answer: &mut [u8]) -> Result<()> {
        let mut note = [0; NOTE_BYTES];
        note[..8].copy_from_slice(&(request.len() as u64).to_le_bytes());
        note[8..16].copy_from_slice(&(answer.len() as u64).to_le_bytes());
        self.stream.write_all(&note)?;
        self.stream.write_all(request)?;
        self.stream.read_exact(answer)?;
        Ok(())
    }
}

impl Drop for RawSocket {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// The body of the peer's process; ends when its one client hangs up.
///
/// # Errors
/// If it cannot listen.
pub fn raw_server() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut stdout = std::io::stdout();
    stdout.write_all(&listener.local_addr()?.port().to_le_bytes())?;
    stdout.flush()?;
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut note = [0; NOTE_BYTES];
    let mut arena = vec![7; arena_bytes()];
    while stream.read_exact(&mut note).is_ok() {
        let length = |at: usize| -> Result<usize> {
            let bytes: [u8; 8] = note[at..at + 8].try_into()?;
            Ok(usize::try_from(u64::from_le_bytes(bytes))?.min(arena_bytes()))
        };
        let (request, answer) = (length(0)?, length(8)?);
        stream.read_exact(&mut arena[..request])?;
        stream.write_all(&arena[..answer])?;
    }
    Ok(())
}

const fn arena_bytes() -> usize {
    128 << 20
}

/// Copies between two arenas that do not fit a cache, `bytes` at a time.
#[derive(Debug)]
pub struct Memcpy {
    from: Vec<u8>,
    to: Vec<u8>,
    at: usize,
}

impl Memcpy {
    /// Makes and touches both arenas, 256 MiB each.
    #[must_use]
    pub fn new() -> Self {
        Self {
            from: vec![1; 256 << 20],
            to: vec![2; 256 << 20],
            at: 0,
        }
    }

    /// One copy.
    pub fn copy(&mut self, bytes: usize) {
        if self.at + bytes > self.from.len() {
            self.at = 0;
        }
        let range = self.at..self.at + bytes;
        self.to[range.clone()].copy_from_slice(std::hint::black_box(&self.from[range]));
        std::hint::black_box(&self.to);
        self.at += bytes;
    }
}

impl Default for Memcpy {
    fn default() -> Self {
        Self::new()
    }
}
