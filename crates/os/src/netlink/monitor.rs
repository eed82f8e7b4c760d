//! Changes of links and addresses, as they happen.

use super::message::{self, Message, Messages};
use super::socket::{self, BUFFER};
use super::{Address, Link};
use crate::options::set_option;
use crate::watch::{Watched, watch};
use socket2::Socket;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use tokio::io::Interest;

/// Size of the receive buffer, in octets. A burst of changes that needs more is reported as [`Change::Lost`].
const RECEIVE_BUFFER: libc::c_int = 1 << 18;

/// A change of a link or an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A link was added or has changed.
    Link(Link),
    /// A link was removed.
    LinkRemoved(Link),
    /// An address was added or has changed.
    Address(Address),
    /// An address was removed.
    AddressRemoved(Address),
    /// Changes were lost. What is known of links and addresses must be read again with
    /// [`Netlink`](super::Netlink).
    Lost,
}

/// Reports changes of links and addresses. To miss none, a program opens the monitor, then lists what there is, and
/// then applies the changes.
pub struct Monitor {
    io: Watched<Socket>,
    buffer: Vec<u8>,
    /// The changes of the last read that are not reported yet.
    changes: VecDeque<Change>,
    /// Changes were lost. What is still queued is older than what a list of all would show, and is discarded; the
    /// kernel queues nothing more until the queue is empty.
    lost: bool,
}

impl Monitor {
    /// Opens a monitor of the network namespace of the thread. To be called within a runtime.
    ///
    /// # Errors
    /// The error of the system call that failed.
    pub fn open() -> io::Result<Monitor> {
        const GROUPS: libc::c_int =
            libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
        let socket = socket::open(GROUPS)?;
        socket.set_nonblocking(true)?;
        let _ = set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER);
        let io = watch(socket, Interest::READABLE)?;
        Ok(Monitor { io, buffer: vec![0; BUFFER], changes: VecDeque::new(), lost: false })
    }

    /// Returns the next change. May be cancelled without losing one.
    ///
    /// # Errors
    /// The error of recv(2). There are no more changes then.
    pub async fn next(&mut self) -> io::Result<Change> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Ok(change);
            }
            let mut ready = self.io.readable().await?;
            let mut reader: &Socket = self.io.get_ref();
            match io::Read::read(&mut reader, &mut self.buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) if self.lost => {}
                Ok(got) => {
                    for message in Messages(&self.buffer[..got]) {
                        match message {
                            Ok(message) => self.changes.extend(change(&message)),
                            Err(_) => self.lost = true,
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready.clear_ready();
                    if std::mem::take(&mut self.lost) {
                        return Ok(Change::Lost);
                    }
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => self.lost = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns the change that a message reports.
fn change(message: &Message<'_>) -> Option<Change> {
    let Message { kind, body, .. } = *message;
    match kind {
        libc::RTM_NEWLINK => message::link(body).map(Change::Link),
        libc::RTM_DELLINK => message::link(body).map(Change::LinkRemoved),
        libc::RTM_NEWADDR => message::address(body).map(Change::Address),
        libc::RTM_DELADDR => message::address(body).map(Change::AddressRemoved),
        _ => None,
    }
}
