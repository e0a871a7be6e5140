//! Plain HTTP requests to programs on this machine.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result};

/// How long an answer may take; only a broken program takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// One request, as `GET /path`; the status line's code and the body.
///
/// # Errors
/// If nobody answers, or not with HTTP.
pub fn http(addr: &str, request: &str) -> Result<(u16, String)> {
    http_with(addr, request, "")
}

/// The same with more headers, each with its end of line.
///
/// # Errors
/// If nobody answers, or not with HTTP.
pub fn http_with(addr: &str, request: &str, headers: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(addr).with_context(|| format!("nobody at {addr}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "{request} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n{headers}\r\n"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text
        .split_once("\r\n\r\n")
        .context("no end of the HTTP head")?;
    let status = head.split(' ').nth(1).context("no HTTP status")?.parse()?;
    Ok((status, body.to_owned()))
}
