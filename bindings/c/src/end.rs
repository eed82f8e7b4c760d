//! The library's end of a descriptor, in its thread.

use crate::fault::Fault;
use crate::packet::{
    BUFFER, FILLER, Header, Written, receive_message, receive_octets, send_message,
};
use crate::system;
use crate::table::Kind;
use ringway_services_tokio::Message;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown,
    socketpair, sockopt,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The library's end of a descriptor.
pub(crate) struct End {
    socket: AsyncFd<OwnedFd>,
    kind: Kind,
    has_ended_writing: AtomicBool,
}

/// Returns the two ends of a descriptor.
pub(crate) fn pair(kind: Kind) -> Result<(OwnedFd, OwnedFd), Fault> {
    let of = match kind {
        Kind::Messages => SocketType::SEQPACKET,
        Kind::Bytes => SocketType::STREAM,
    };
    let (here, there) = socketpair(AddressFamily::UNIX, of, SocketFlags::CLOEXEC, None)?;
    for end in [&here, &there] {
        sockopt::set_socket_send_buffer_size(end, BUFFER)?;
        if sockopt::socket_send_buffer_size(end)? < 2 * BUFFER {
            let text = format!("expected net.core.wmem_max of at least {BUFFER}");
            return Err(Fault::new(libc::ENOBUFS, text));
        }
    }
    Ok((here, there))
}

/// Bounds the connections that wait in a listener's descriptor to a few; the others wait in the listener.
pub(crate) fn shorten(end: &OwnedFd) -> Result<(), Errno> {
    sockopt::set_socket_send_buffer_size(end, 1)
}

/// Returns whether the other end of a socket is closed, or both directions have ended.
pub(crate) fn has_hung_up(socket: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::HUP)
}

impl End {
    pub(crate) fn new(socket: OwnedFd, kind: Kind) -> io::Result<End> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(End {
            socket: system::register(socket)?,
            kind,
            has_ended_writing: AtomicBool::new(false),
        })
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Reads what the program has written, if there is something; `None` at the end.
    pub(crate) fn try_read(&self) -> Result<Option<Written>, Errno> {
        let socket = self.socket.get_ref().as_fd();
        if self.kind == Kind::Messages {
            return receive_message(socket, RecvFlags::DONTWAIT);
        }
        let octets = receive_octets(socket, RecvFlags::DONTWAIT)?;
        let header = Header { length: octets.len() as u32, ..Header::default() };
        Ok((!octets.is_empty()).then_some(Ok((header, octets))))
    }

    /// Waits for what the program writes; `None` at the end.
    pub(crate) async fn read(&self) -> io::Result<Option<Written>> {
        self.socket.async_io(Interest::READABLE, |_| Ok(self.try_read()?)).await
    }

    /// Waits until the program has room for a message, or octets, and writes them.
    pub(crate) async fn write(&self, message: &Message) -> io::Result<()> {
        if self.kind == Kind::Messages {
            let length = message.bytes.len() as u32;
            let header = Header { length, is_end: message.is_end, ..Header::default() };
            let write = |socket: &OwnedFd| {
                let socket = socket.as_fd();
                Ok(send_message(socket, &header, &message.bytes, SendFlags::DONTWAIT)?)
            };
            return self.socket.async_io(Interest::WRITABLE, write).await;
        }
        let mut rest = &message.bytes[..];
        while !rest.is_empty() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let write = |socket: &OwnedFd| Ok(send(socket, rest, flags)?);
            let written = self.socket.async_io(Interest::WRITABLE, write).await?;
            rest = &rest[written..];
        }
        Ok(())
    }

    /// Waits until `write` does not fail for lack of room.
    pub(crate) async fn write_with(
        &self,
        write: impl Fn(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> io::Result<()> {
        let write = |socket: &OwnedFd| Ok(write(socket.as_fd())?);
        self.socket.async_io(Interest::WRITABLE, write).await
    }

    /// Removes what has kept the descriptor from being writable.
    pub(crate) fn make_writable(&self) {
        let socket = self.socket.get_ref();
        let mut rest = FILLER;
        let mut octets = vec![0; if self.kind == Kind::Bytes { FILLER } else { 1 }];
        while rest > 0 {
            let wanted = octets.len().min(rest);
            match recv(socket, &mut octets[..wanted], RecvFlags::DONTWAIT) {
                // A packet goes as a whole.
                Ok(_) if self.kind == Kind::Messages => break,
                Ok((length, _)) if length > 0 => rest -= length,
                _ => break,
            }
        }
    }

    /// Returns whether the program reads an end.
    pub(crate) fn has_ended_writing(&self) -> bool {
        self.has_ended_writing.load(Ordering::Relaxed)
    }

    /// Has the program read an end behind what was written.
    pub(crate) fn end_writing(&self) {
        self.has_ended_writing.store(true, Ordering::Relaxed);
        let _ = shutdown(self.socket.get_ref(), Shutdown::Write);
    }

    /// Ends both directions: what the program has not read yet it still can.
    pub(crate) fn end(&self) {
        let _ = shutdown(self.socket.get_ref(), Shutdown::Both);
    }

    /// Returns whether the program has closed the descriptor, and its duplicates, or both directions have ended.
    pub(crate) fn is_closed(&self) -> bool {
        has_hung_up(self.socket.get_ref().as_fd())
    }

    /// Waits until the program has closed the descriptor, and its duplicates, or both directions have ended.
    pub(crate) async fn closed(&self) {
        // A descriptor of its own: what it is ready for is forgotten here, which readers and writers must not miss.
        let copy =
            rustix::io::fcntl_dupfd_cloexec(self.socket.get_ref(), 0).map_err(io::Error::from);
        let copy = copy.and_then(system::register);
        while !self.is_closed() {
            let Ok(copy) = &copy else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            // An end is reported as room to write.
            let Ok(mut guard) = copy.ready(Interest::WRITABLE).await else { return };
            if !self.is_closed() {
                guard.clear_ready();
            }
        }
    }
}
