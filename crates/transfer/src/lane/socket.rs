//! Sockets of lanes: how they are set up, checked, and used without a copy.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::net::{RecvFlags, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

/// A silent peer is asked whether it lives after so long, and then as often, in s.
const KEEPALIVE_S: u64 = 15;
/// So many questions without an answer mean that it is dead: after a minute in all.
const KEEPALIVE_PROBES: u32 = 3;

/// A stream whose descriptor can be used directly once it is ready.
pub trait Socket: AsyncRead + AsyncWrite + Unpin + AsFd {
    /// Waits until the socket is ready for `interest` and runs `step` on it, again as long as
    /// it says that it would block.
    fn when_ready<R>(
        &self,
        interest: Interest,
        step: impl FnMut() -> io::Result<R>,
    ) -> impl Future<Output = io::Result<R>>;

    /// A descriptor that came beside the bytes, if this socket can carry any.
    fn take_fd(&mut self) -> Option<std::os::fd::OwnedFd> {
        None
    }

    /// Sends a descriptor with the next byte; closes it where the socket cannot carry any.
    fn send_fd(&mut self, fd: std::os::fd::OwnedFd) {
        drop(fd);
    }
}

impl Socket for TcpStream {
    async fn when_ready<R>(
        &self,
        interest: Interest,
        step: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        self.async_io(interest, step).await
    }
}

impl Socket for UnixStream {
    async fn when_ready<R>(
        &self,
        interest: Interest,
        step: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        self.async_io(interest, step).await
    }
}

/// Small frames leave at once; a dead peer is noticed. Buffer sizes stay with the kernel's
/// autotuning, which does better than any fixed size over loopback and networks alike.
///
/// # Errors
/// Of the socket.
pub fn tune_tcp(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(KEEPALIVE_S))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(KEEPALIVE_S))?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    Ok(())
}

/// Connects to `addr` (`host:port`) within `limit` and sets the socket up.
///
/// # Errors
/// Of the socket; [`io::ErrorKind::TimedOut`] if nothing answered within `limit`.
pub async fn connect_tcp(addr: &str, limit: Duration) -> io::Result<TcpStream> {
    let stream = timeout(limit, TcpStream::connect(addr)).await;
    let stream = stream.map_err(|_| {
        let text = format!("no answer within {} ms", limit.as_millis());
        io::Error::new(io::ErrorKind::TimedOut, text)
    })??;
    tune_tcp(&stream)?;
    Ok(stream)
}

/// Whether an idle connection is open and silent, as one must be before it is used again. Asks
/// the kernel and not the runtime, whose knowledge may be older than the peer's death.
#[must_use]
pub fn is_quiet(socket: BorrowedFd<'_>) -> bool {
    let mut byte = [0_u8; 1];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    matches!(
        rustix::net::recv(socket, &mut byte, flags),
        Err(rustix::io::Errno::AGAIN)
    )
}

/// Whether the peer has closed the connection, or it broke.
#[must_use]
pub fn has_ended(socket: BorrowedFd<'_>) -> bool {
    let mut byte = [0_u8; 1];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match rustix::net::recv(socket, &mut byte, flags) {
        Ok((_, bytes)) => bytes == 0,
        Err(error) => error != rustix::io::Errno::AGAIN,
    }
}
