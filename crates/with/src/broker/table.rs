//! The sockets of the program that the broker knows, by their ids.

use super::socket::Socket;
use ringway_with_wire::name::MAX_NAME;
use ringway_with_wire::{BrokerId, Name, SocketId};
use socket2::{Domain, SockAddr, Type};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

/// Sockets at once. A request about one more fails with ENOBUFS.
pub(crate) const MAX_SOCKETS: usize = 65_536;
/// Connections that the program has accepted and that were reset, whose error it may still ask for. The oldest are
/// dropped beyond that; their end is one in order then.
const MAX_RESETS: usize = 1_024;
/// Sockets that one sweep looks at.
const SWEEP: usize = 256;

/// The sockets.
#[derive(Default)]
pub(super) struct Table {
    sockets: BTreeMap<SocketId, Socket>,
    /// The number of connections that arrived.
    accepted: u64,
    /// Where the next sweep begins.
    next: Option<SocketId>,
}

impl Table {
    /// Returns a socket, which is new if it was not known. `None` if there are too many.
    pub(super) fn socket(&mut self, id: SocketId, ipv6: bool) -> Option<&mut Socket> {
        if self.sockets.len() >= MAX_SOCKETS && !self.sockets.contains_key(&id) {
            return None;
        }
        Some(self.sockets.entry(id).or_insert_with(|| Socket::new(ipv6)))
    }

    /// Returns a socket that is known.
    pub(super) fn get(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.sockets.get_mut(&id)
    }

    /// Adds a connection that the program will accept. `None` if there are too many.
    pub(super) fn add_accepted(&mut self, socket: Socket) -> Option<SocketId> {
        let resets =
            self.sockets.iter().filter(|(id, socket)| id.is_accepted() && socket.is_over());
        if resets.count() > MAX_RESETS
            && let Some(oldest) = self
                .sockets
                .iter()
                .find(|(id, socket)| id.is_accepted() && socket.is_over())
                .map(|(id, _)| *id)
        {
            self.sockets.remove(&oldest);
        }
        if self.sockets.len() >= MAX_SOCKETS {
            return None;
        }
        self.accepted += 1;
        let id = SocketId::accepted(self.accepted);
        self.sockets.insert(id, socket);
        Some(id)
    }

    pub(super) fn remove(&mut self, id: SocketId) {
        self.sockets.remove(&id);
    }

    /// Returns the number of sockets that exist as far as is known.
    pub(super) fn len(&self) -> usize {
        self.sockets.iter().filter(|(id, socket)| !(id.is_accepted() && socket.is_over())).count()
    }

    /// Returns those of the next sockets that the program has closed.
    pub(super) fn sweep(&mut self, broker: BrokerId) -> Vec<SocketId> {
        let from = self.next.unwrap_or(SocketId(0));
        let mut looked_at = 0;
        let mut gone = Vec::new();
        self.next = None;
        for (id, socket) in self.sockets.range(from..) {
            if looked_at == SWEEP {
                self.next = Some(*id);
                break;
            }
            // A connection ends with its task, which learns of a close by itself.
            if id.is_accepted() || socket.is_connected() {
                continue;
            }
            looked_at += 1;
            if !exists(broker, *id, socket.ipv6) {
                gone.push(*id);
            }
        }
        gone
    }
}

/// Returns the address of a name.
pub(super) fn address(broker: BrokerId, name: &Name) -> io::Result<SockAddr> {
    let mut octets = [0; 1 + MAX_NAME];
    // The first octet stays zero: the name is in the abstract namespace.
    let length = name.write(broker, &mut octets[1..]).map_err(io::Error::other)?;
    SockAddr::unix(OsStr::from_bytes(&octets[..1 + length]))
}

/// Returns whether a socket that the program has created still exists, in any process: then its name is in use.
fn exists(broker: BrokerId, id: SocketId, ipv6: bool) -> bool {
    let tried = || {
        let address = address(broker, &Name::Program { ipv6, id })?;
        socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?.bind(&address)
    };
    // Another error, such as too many open files, says nothing.
    tried().is_err()
}

/// Returns a state that needs no more than a family, for tests.
#[cfg(test)]
fn idle() -> Socket {
    Socket::new(false)
}

#[cfg(test)]
mod tests {
    use super::super::socket::State;
    use super::*;

    const BROKER: BrokerId = BrokerId(*b"a table\0");

    #[test]
    fn a_socket_is_dropped_when_its_last_descriptor_is_closed() {
        let mut table = Table::default();
        let (kept, closed) = (SocketId::created(1), SocketId::created(2));
        let open = |id| {
            let name = address(BROKER, &Name::Program { ipv6: false, id }).unwrap();
            let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            socket.bind(&name).unwrap();
            socket
        };
        let (one, other) = (open(kept), open(closed));
        let copy = other.try_clone().unwrap();
        assert!(table.socket(kept, false).is_some() && table.socket(closed, false).is_some());
        drop(other);
        assert_eq!(table.sweep(BROKER), []);
        drop(copy);
        assert_eq!(table.sweep(BROKER), [closed]);
        drop(one);
    }

    #[test]
    fn a_sweep_goes_on_where_the_last_one_ended() {
        let mut table = Table::default();
        for id in 0..=SWEEP as u64 {
            table.socket(SocketId::created(id), false);
        }
        assert_eq!(table.sweep(BROKER).len(), SWEEP);
        assert_eq!(table.sweep(BROKER), [SocketId::created(SWEEP as u64)]);
    }

    #[test]
    fn the_number_of_resets_that_are_kept_is_bounded() {
        let mut table = Table::default();
        for _ in 0..2 * MAX_RESETS {
            let id = table.add_accepted(idle()).unwrap();
            table.get(id).unwrap().state = State::Over;
        }
        assert!(table.sockets.len() <= MAX_RESETS + 2);
        assert_eq!(table.len(), 0);
    }
}
