//! A packet socket of an interface that may be missing for a while.

use ringway_os::{PacketSocket, interface_index};
use std::io;

/// What a socket is used for. One that sends receives nothing: what comes would fill its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Receive,
    Send,
}

impl Use {
    fn open(self, name: &str) -> io::Result<PacketSocket> {
        match self {
            Use::Receive => PacketSocket::open(name),
            Use::Send => PacketSocket::open_sender(name),
        }
    }
}

/// The socket, or the name by which the interface is looked for. That it is missing or down is not reported here.
#[derive(Debug)]
pub(crate) struct Attached {
    name: String,
    usage: Use,
    socket: Option<PacketSocket>,
}

impl Attached {
    /// Opens an interface, which may be missing.
    ///
    /// # Errors
    /// The error of opening it, as when the process lacks CAP_NET_RAW.
    pub(super) fn open(name: &str, usage: Use) -> io::Result<Attached> {
        let socket = match usage.open(name) {
            Ok(socket) => Some(socket),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Attached { name: name.to_owned(), usage, socket })
    }

    /// Returns the socket if the interface exists.
    pub(super) fn socket(&self) -> Option<&PacketSocket> {
        self.socket.as_ref()
    }

    /// Looks whether the interface exists, and whether it is the one of the socket.
    pub(super) fn look(&mut self, lines: &dyn Fn(&str)) {
        let index = interface_index(&self.name);
        if index == self.socket.as_ref().map(PacketSocket::index) {
            return;
        }
        self.socket = None;
        if index.is_some() {
            match self.usage.open(&self.name) {
                Ok(socket) => self.socket = Some(socket),
                // It is looked for again when it has changed.
                Err(error) => lines(&format!("interface {} cannot be used: {error}", self.name)),
            }
        }
    }

    /// Handles an error of the socket. A socket of an interface that is down is used again when it is up.
    pub(super) fn fail(&mut self, error: &io::Error, lines: &dyn Fn(&str)) {
        if error.kind() != io::ErrorKind::NetworkDown {
            lines(&format!("interface {}: {error}", self.name));
            self.socket = None;
        }
        self.look(lines);
    }
}
