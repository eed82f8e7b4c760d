//! The floor: a program that does for a call what no proxy can avoid, and nothing else. It takes
//! the six datagrams of a call and sends seven (REGISTER: one and one), in batches, and looks at
//! four bytes of each: what it is, and to which port of its sender's host it goes. What a proxy
//! needs above this figure is its own work; below it lies only the kernel.
//!
//! Sizes are those of a proxied call: a request grows by the Via (and Record-Route) a proxy would
//! add, a response shrinks by the Via it would take away.

// Datagrams are sent from the very slots they were received in.
#![allow(unsafe_code)]

use std::net::SocketAddr;
use std::thread;

use crate::error::{Error, doing};
use crate::udp::{self, MAX_DATAGRAM, Piece, RECEIVE_BATCH, Receiver, Socket};

/// Length of the marker before every message of a floor run.
pub(crate) const MARK_LENGTH: usize = 4;
/// Bytes a proxy's Via takes, `received` and `rport` in the one below included.
pub(crate) const VIA_LENGTH: usize = 110;
/// Bytes a proxy's Record-Route takes, and the Route that mirrors it.
pub(crate) const ROUTE_LENGTH: usize = 42;
/// Size of a 100 to the INVITE of this generator.
const TRYING_LENGTH: usize = 330;

/// What a datagram of a floor run is, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// INVITE: answered by a 100 and passed on.
    Invite = b'I',
    /// Any other request of a call: passed on.
    Request = b'Q',
    /// Response: passed on.
    Response = b'R',
    /// REGISTER: answered.
    Register = b'G',
    /// From the floor: the beginning of the INVITE it stands for, in place of a 100.
    Trying = b'T',
    /// From the floor: the REGISTER itself, in place of a 200.
    Registered = b'K',
}

impl Kind {
    /// The kind a first byte stands for.
    pub(crate) fn of(byte: u8) -> Option<Self> {
        [
            Self::Invite,
            Self::Request,
            Self::Response,
            Self::Register,
            Self::Trying,
            Self::Registered,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }
}

/// Marker before a message: its kind, and the port on its sender's host to pass it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) kind: Kind,
    pub(crate) port: u16,
}

impl Mark {
    /// As it stands on the wire.
    pub(crate) fn bytes(self) -> [u8; MARK_LENGTH] {
        let [high, low] = self.port.to_be_bytes();
        [self.kind as u8, 0, high, low]
    }
}

/// Runs until killed.
pub(crate) fn run(listen: SocketAddr, workers: usize) -> Result<(), Error> {
    let sockets = (0..workers.max(1))
        .map(|_| doing(format!("cannot bind {listen}"), Socket::bound(listen)))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(first) = sockets.first() {
        eprintln!(
            "floor on {}, {} worker(s), receive buffer {} bytes",
            first.local(),
            sockets.len(),
            first.receive_buffer()
        );
    }
    let threads: Vec<_> =
        sockets.into_iter().map(|socket| thread::spawn(move || forward(&socket))).collect();
    for thread in threads {
        thread.join().map_err(|_| Error::Worker)??;
    }
    Ok(())
}

/// Forwards for ever.
pub(crate) fn forward(socket: &Socket) -> Result<(), Error> {
    let mut receiver = Receiver::new();
    let mut pieces = Vec::with_capacity(2 * RECEIVE_BATCH);
    loop {
        turn(socket, &mut receiver, &mut pieces)?;
    }
}

/// One batch in, one batch out.
fn turn(socket: &Socket, receiver: &mut Receiver, pieces: &mut Vec<Piece>) -> Result<(), Error> {
    const TRYING: [u8; MARK_LENGTH] = [Kind::Trying as u8, 0, 0, 0];
    let n = match receiver.wait(socket) {
        Ok(n) => n,
        // A generator that has gone away leaves refusals behind.
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => return Ok(()),
        Err(e) => return doing("cannot receive", Err(e)),
    };
    pieces.clear();
    for i in 0..n {
        let length = receiver.length(i);
        let (slot, from) = receiver.slot(i, MAX_DATAGRAM);
        if length < MARK_LENGTH {
            continue;
        }
        let Some(kind) = Kind::of(slot[0]) else { continue };
        let mut to = from;
        // Both address families keep the port in the same place, in network order.
        to.sin6_port = u16::from_ne_bytes([slot[2], slot[3]]);
        let (to, length) = match kind {
            Kind::Invite => {
                let trying = &slot[MARK_LENGTH..TRYING_LENGTH.min(length)];
                pieces.push(Piece { parts: [udp::vector(&TRYING), udp::vector(trying)], to: from });
                (to, length + VIA_LENGTH + ROUTE_LENGTH)
            }
            Kind::Request => (to, length + VIA_LENGTH - ROUTE_LENGTH),
            Kind::Response => (to, length.saturating_sub(VIA_LENGTH)),
            Kind::Register => {
                slot[0] = Kind::Registered as u8;
                (from, length)
            }
            Kind::Trying | Kind::Registered => continue,
        };
        let whole = udp::vector(&slot[..length.min(MAX_DATAGRAM)]);
        pieces.push(Piece { parts: [whole, udp::vector(&[])], to });
    }
    let mut done = 0;
    while done < pieces.len() {
        // SAFETY: the vectors describe slots of `receiver` and a constant; neither is touched
        // before the next turn.
        match unsafe { udp::send_pieces(socket, &mut pieces[done..]) } {
            Ok(n) if n > 0 => done += n,
            // The receiver is gone; the datagram is lost as it would be on a network.
            Ok(_) | Err(_) => done += 1,
        }
    }
    Ok(())
}
