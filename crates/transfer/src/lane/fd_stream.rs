//! A Unix socket that carries file descriptors beside the bytes.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;

use super::socket::Socket;

/// The most that one read takes, in bytes: what has to be zeroed first, because the kernel's
/// call for descriptors takes initialised memory here.
const READ_BYTES: usize = 64 * 1024;
/// Room for so many descriptors in one message. One is wanted; the kernel closes what does not
/// fit, we close what fits and is not wanted.
const FD_ROOM: usize = 2;

/// A Unix socket whose reads keep at most one descriptor that came along, until it is taken;
/// further ones are closed. All of them close on exec.
#[derive(Debug)]
pub struct FdStream {
    stream: Arc<UnixStream>,
    received: Option<OwnedFd>,
    to_send: Option<OwnedFd>,
}

impl FdStream {
    /// Wraps a connected socket.
    #[must_use]
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream: Arc::new(stream),
            received: None,
            to_send: None,
        }
    }

    /// The socket, for an owner that writes whole frames beside this one.
    #[must_use]
    pub fn share(&self) -> Arc<UnixStream> {
        Arc::clone(&self.stream)
    }
}

impl AsFd for FdStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Socket for FdStream {
    async fn when_ready<R>(
        &self,
        interest: Interest,
        step: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        self.stream.async_io(interest, step).await
    }

    fn take_fd(&mut self) -> Option<OwnedFd> {
        self.received.take()
    }

    fn send_fd(&mut self, fd: OwnedFd) {
        self.to_send = Some(fd);
    }
}

fn receive(
    socket: BorrowedFd<'_>,
    room: &mut [u8],
    received: &mut Option<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FD_ROOM))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(room)];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let message = rustix::net::recvmsg(socket, &mut parts, &mut control, flags)?;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = part {
            for fd in fds {
                // The first is kept; dropping the others closes them.
                received.get_or_insert(fd);
            }
        }
    }
    Ok(message.bytes)
}

fn send(socket: BorrowedFd<'_>, parts: &[IoSlice<'_>], fd: Option<&OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(AsFd::as_fd);
    if let Some(fd) = &fds
        && !control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(fd)))
    {
        return Err(io::Error::other("no room for a descriptor"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(rustix::net::sendmsg(socket, parts, &mut control, flags)?)
}

impl AsyncRead for FdStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            ready!(this.stream.poll_read_ready(cx))?;
            let bytes = buffer.remaining().min(READ_BYTES);
            let room = buffer.initialize_unfilled_to(bytes);
            let received = &mut this.received;
            let socket = this.stream.as_fd();
            let read = || receive(socket, &mut *room, received);
            match this.stream.try_io(Interest::READABLE, read) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(bytes) => {
                    buffer.advance(bytes);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for FdStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        loop {
            ready!(this.stream.poll_write_ready(cx))?;
            let write = || send(this.stream.as_fd(), parts, this.to_send.as_ref());
            match this.stream.try_io(Interest::WRITABLE, write) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(bytes) => {
                    // It went with the first byte of what was written.
                    this.to_send = None;
                    return Poll::Ready(Ok(bytes));
                }
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = rustix::net::shutdown(&*self.stream, rustix::net::Shutdown::Write);
        Poll::Ready(shut.map_err(io::Error::from))
    }
}
