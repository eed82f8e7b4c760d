//! A packet socket of an interface that may be missing for a while.

use ringway_os::{PacketSocket, interface_index};
use ringway_sansio::{Duration, Time};
use std::io;

/// Time after which an interface that is missing is looked for again.
const RETRY: Duration = Duration::from_millis(500);

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

/// The socket, or the name by which the interface is looked for.
#[derive(Debug)]
pub(crate) struct Attached {
    name: String,
    usage: Use,
    socket: Option<PacketSocket>,
    /// The interface is missing or down, and is looked for again then.
    retry: Option<Time>,
    /// What was logged last, which is not repeated.
    logged: String,
}

impl Attached {
    /// Opens an interface. One that is missing is waited for.
    ///
    /// # Errors
    /// The error of opening it, as when the process lacks CAP_NET_RAW.
    pub(super) fn open(
        name: &str,
        usage: Use,
        now: Time,
        lines: &dyn Fn(&str),
    ) -> io::Result<Attached> {
        let (name, logged) = (name.to_owned(), String::new());
        let mut attached = Attached { name, usage, socket: None, retry: None, logged };
        match usage.open(&attached.name) {
            Ok(socket) => attached.socket = Some(socket),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                attached.retry = Some(now + RETRY);
                attached.log(lines, "does not exist; waiting for it");
            }
            Err(error) => return Err(error),
        }
        Ok(attached)
    }

    /// Returns the socket if the interface exists.
    pub(super) fn socket(&self) -> Option<&PacketSocket> {
        self.socket.as_ref()
    }

    /// Returns whether the interface is missing or down, as far as is known.
    pub(super) fn is_missed(&self) -> bool {
        self.retry.is_some()
    }

    fn log(&mut self, lines: &dyn Fn(&str), text: &str) {
        if self.logged != text {
            lines(&format!("interface {} {text}", self.name));
            text.clone_into(&mut self.logged);
        }
    }

    /// Returns whether the interface of the socket exists.
    fn is_present(&self) -> bool {
        let index = self.socket.as_ref().map(PacketSocket::index);
        index.is_some() && interface_index(&self.name) == index
    }

    /// Handles an error of the socket, which is closed if it is of no use any more.
    pub(super) fn fail(&mut self, now: Time, error: &io::Error, lines: &dyn Fn(&str)) {
        self.retry = Some(now + RETRY);
        if !self.is_present() {
            self.socket = None;
            self.log(lines, "does not exist any more; waiting for it");
        } else if error.kind() == io::ErrorKind::NetworkDown {
            self.log(lines, "is down; waiting for it");
        } else {
            self.socket = None;
            self.log(lines, &format!("fails: {error}"));
        }
    }

    /// Looks for the interface if it is missing. Returns when to do so again.
    pub(super) fn handle_timeout(&mut self, now: Time, lines: &dyn Fn(&str)) -> Option<Time> {
        let retry = self.retry?;
        if now < retry {
            return self.retry;
        }
        self.retry = Some(now + RETRY);
        if self.socket.is_some() {
            if !self.is_present() {
                self.socket = None;
                self.log(lines, "does not exist any more; waiting for it");
            }
        } else if interface_index(&self.name).is_some() {
            match self.usage.open(&self.name) {
                Ok(socket) => {
                    self.socket = Some(socket);
                    self.retry = None;
                    self.log(lines, "is used");
                }
                Err(error) => self.log(lines, &format!("cannot be used: {error}")),
            }
        }
        self.retry
    }
}
