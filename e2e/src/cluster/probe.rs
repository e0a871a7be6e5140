//! What the self-test does from within pods: a server that names its host, and a few questions.
//!
//! Its image holds nothing but the tool itself, so these stand in for a shell.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context, Result};

/// Where [`serve`] listens.
pub const PORT: u16 = 8080;
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Answers every connection with the name of its host, for ever.
///
/// # Errors
/// If it cannot listen.
pub fn serve() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    // For `kubectl logs`.
    writeln!(std::io::stdout(), "serving as {}", host.trim())?;
    for stream in listener.incoming() {
        // Who asked may be gone; the next one is not.
        let _ = stream.and_then(|stream| answer(stream, &host));
    }
    Ok(())
}

fn answer(mut stream: TcpStream, host: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    // A connection that is closed with something unread may lose the answer.
    let _ = stream.read(&mut [0; 512])?;
    stream.write_all(host.as_bytes())
}

/// What `HOST:PORT` says to a request of HTTP: a [`serve`] its name.
///
/// # Errors
/// If the name has no address, or nobody answers.
pub fn ask(target: &str) -> Result<String> {
    let mut addresses = target
        .to_socket_addrs()
        .with_context(|| format!("no {target}"))?;
    let address = addresses
        .next()
        .with_context(|| format!("{target} has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT)
        .with_context(|| format!("{target} at {address}"))?;
    http_get(&mut stream, "/")
}

/// One request on a fresh connection, and all of the answer.
///
/// # Errors
/// If the connection breaks.
pub(crate) fn http_get(stream: &mut TcpStream, path: &str) -> Result<String> {
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: larder\r\nConnection: close\r\n\r\n");
    // In one piece: a server may answer and close as soon as it has read the first.
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
