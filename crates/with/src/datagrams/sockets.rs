//! The program's sockets of UDP: which ones there are, and connecting them anew.

use super::flow::Flow;
use ringway_with_wire::address::{mapped, unmapped};
use rustix::fs::{Uid, fchown, fstat};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use socket2::{Domain, Protocol, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use tokio::net::UdpSocket;

/// Sockets at once. One more is sent UDP.
const MAX_SOCKETS: usize = 4_096;
/// Where the system lists its sockets of UDP (proc(5)).
const LISTS: [&str; 2] = ["/proc/net/udp", "/proc/net/udp6"];
/// The column of a socket's inode.
const INODE: usize = 9;
/// Lists in a row that a socket must be missing from. The system reads a list piece by piece, and others may move between
/// the pieces.
pub(super) const MISSED: u8 = 3;

/// A socket of the program.
#[derive(Clone, Debug)]
pub(super) struct ProgramSocket {
    /// The local address, as the kernel shows it.
    pub(super) local: SocketAddr,
    /// The address that the program has bound it to.
    pub(super) bound: Option<IpAddr>,
    /// The peer that it is connected to.
    pub(super) connected: Option<SocketAddr>,
    /// A process that has it, and its descriptor there.
    pub(super) owner: (i32, u32),
    /// Lists in a row that it is missing from.
    missed: u8,
}

impl ProgramSocket {
    /// Connects it to the peer of a flow instead of the proxy, if it was connected to that peer.
    pub(super) fn connect_to_peer(&self, inode: u64, flow: &Flow) {
        if self.connected == Some(flow.peer) {
            // One that cannot be touched any more keeps the proxy for its peer.
            let _ = Borrowed::connected_to(inode, self.owner, flow.at)
                .and_then(|borrowed| borrowed.connect(flow.peer));
        }
    }
}

/// The sockets, by their inodes.
#[derive(Default)]
pub(super) struct ProgramSockets(BTreeMap<u64, ProgramSocket>);

impl ProgramSockets {
    /// Takes note of a socket. Returns `None` if there are too many.
    pub(super) fn note(
        &mut self,
        inode: u64,
        local: SocketAddr,
        owner: (i32, u32),
    ) -> Option<&mut ProgramSocket> {
        if self.0.len() >= MAX_SOCKETS && !self.0.contains_key(&inode) {
            return None;
        }
        let new = ProgramSocket { local, bound: None, connected: None, owner, missed: 0 };
        let socket = self.0.entry(inode).or_insert(new);
        (socket.local, socket.owner) = (local, owner);
        Some(socket)
    }

    /// Replaces what is known of a socket.
    pub(super) fn set(&mut self, inode: u64, socket: ProgramSocket) {
        self.0.insert(inode, socket);
    }

    pub(super) fn get(&self, inode: u64) -> Option<&ProgramSocket> {
        self.0.get(&inode)
    }

    /// Returns the sockets at which a datagram from a peer to a local address may arrive.
    pub(super) fn at(&self, local: SocketAddr, peer: SocketAddr) -> Vec<(u64, ProgramSocket)> {
        let takes = |socket: &ProgramSocket| {
            let at = unmapped(socket.local);
            let same = at.ip() == local.ip()
                || at.ip().is_unspecified() && (at.is_ipv6() || local.is_ipv4());
            at.port() == local.port() && same && socket.connected.is_none_or(|to| to == peer)
        };
        let found = self.0.iter().filter(|(_, socket)| takes(socket));
        found.map(|(inode, socket)| (*inode, socket.clone())).collect()
    }

    /// Returns whether the program has a socket that it has bound at an address.
    pub(super) fn is_bound_at(&self, local: SocketAddr) -> bool {
        self.0.values().any(|socket| {
            socket.bound == Some(local.ip()) && unmapped(socket.local).port() == local.port()
        })
    }

    /// Returns those that do not exist any more.
    pub(super) fn gone(&mut self) -> Vec<u64> {
        // What cannot be read says nothing.
        let Some(existing) = existing() else { return Vec::new() };
        self.missing_from(&existing)
    }

    /// Returns those that several lists in a row have not had, and that their owners do not have either.
    fn missing_from(&mut self, existing: &BTreeSet<u64>) -> Vec<u64> {
        let mut gone = Vec::new();
        for (inode, socket) in &mut self.0 {
            socket.missed = if existing.contains(inode) { 0 } else { socket.missed + 1 };
            if socket.missed == MISSED {
                socket.missed = 0;
                if owned(*inode, socket.owner).is_err() {
                    gone.push(*inode);
                }
            }
        }
        gone
    }

    pub(super) fn remove(&mut self, inode: u64) {
        self.0.remove(&inode);
    }

    /// Returns how many the program has bound.
    pub(super) fn bound(&self) -> usize {
        self.0.values().filter(|socket| socket.bound.is_some()).count()
    }
}

/// Returns the inodes of all sockets of UDP of this network namespace; `None` if they cannot be read.
fn existing() -> Option<BTreeSet<u64>> {
    let (mut inodes, mut has_list) = (BTreeSet::new(), false);
    for list in LISTS {
        let list = match fs::read_to_string(list) {
            Ok(list) => list,
            // A system without IPv6 has one list.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => return None,
        };
        let column = |line: &str| line.split_whitespace().nth(INODE)?.parse::<u64>().ok();
        inodes.extend(list.lines().skip(1).filter_map(column));
        has_list = true;
    }
    has_list.then_some(inodes)
}

/// A socket that a process has.
pub(super) struct Borrowed {
    socket: socket2::Socket,
    peer: SocketAddr,
}

impl Borrowed {
    /// Borrows a socket that is connected to an address.
    ///
    /// # Errors
    /// The process has ended or may not be touched (ptrace(2)), or its descriptor is another socket by now.
    pub(super) fn connected_to(
        inode: u64,
        owner: (i32, u32),
        peer: SocketAddr,
    ) -> io::Result<Borrowed> {
        let socket = socket2::Socket::from(owned(inode, owner)?);
        let shown = socket.peer_addr()?.as_socket().ok_or(io::ErrorKind::NotConnected)?;
        if unmapped(shown) != peer {
            return Err(io::ErrorKind::NotConnected.into());
        }
        Ok(Borrowed { socket, peer: shown })
    }

    /// Connects it to another address.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn connect(&self, to: SocketAddr) -> io::Result<()> {
        let to = if self.peer.is_ipv6() { mapped(to) } else { to };
        self.socket.connect(&to.into())
    }

    /// Returns its local address.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn local(&self) -> io::Result<SocketAddr> {
        let local = self.socket.local_addr()?.as_socket();
        local.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Opens a socket that receives what the peer still sends to this one once it is connected elsewhere.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn stand_in(&self) -> io::Result<UdpSocket> {
        let local = self.local()?;
        let stand_in =
            socket2::Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
        stand_in.set_nonblocking(true)?;
        // Where the program lets others in beside its socket, it may bind its next one soon.
        stand_in.set_reuse_address(self.socket.reuse_address()?)?;
        stand_in.set_reuse_port(true)?;
        // Both have the address, which takes the option of both. Unlike SO_REUSEADDR it lets in sockets of the same user only
        // (socket(7)), which the program's process may not be. Where that is refused, the two are the same.
        let user = Uid::from_raw(fstat(&self.socket)?.st_uid);
        let _ = fchown(&stand_in, Some(user), None);
        let shares = self.socket.reuse_port()?;
        self.socket.set_reuse_port(true)?;
        let bound = stand_in.bind(&local.into());
        self.socket.set_reuse_port(shares)?;
        bound?;
        stand_in.connect(&self.peer.into())?;
        UdpSocket::from_std(stand_in.into())
    }
}

/// Returns a copy of the descriptor that a process has of a socket.
fn owned(inode: u64, (process, descriptor): (i32, u32)) -> io::Result<OwnedFd> {
    let socket = duplicate(process, descriptor)?;
    if fstat(&socket)?.st_ino != inode {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(socket)
}

fn duplicate(process: i32, descriptor: u32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(process).ok_or(io::ErrorKind::NotFound)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let descriptor = i32::try_from(descriptor).map_err(io::Error::other)?;
    Ok(pidfd_getfd(process, descriptor, PidfdGetfdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::{AsFd, AsRawFd};

    fn inode(socket: &UdpSocket) -> u64 {
        fstat(socket.as_fd()).unwrap().st_ino
    }

    #[test]
    fn a_socket_that_a_list_lacks_is_kept() {
        let mut sockets = ProgramSockets::default();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (inode, local) = (inode(&socket), socket.local_addr().unwrap());
        let (own, other) = ((std::process::id() as i32, socket.as_raw_fd() as u32), (i32::MAX, 3));
        // The owner that is known may have ended, and another process has the socket.
        assert!(sockets.note(inode, local, other).is_some());
        let (with, without) = (BTreeSet::from([inode]), BTreeSet::from([inode + 1]));
        for list in [&without, &without, &with, &without, &without] {
            assert_eq!(sockets.missing_from(list), []);
        }
        assert_eq!(sockets.missing_from(&without), [inode]);
        sockets.note(inode, local, own);
        for _ in 0..2 * MISSED {
            assert_eq!(sockets.missing_from(&without), []);
        }
    }

    #[test]
    fn a_socket_that_is_closed_is_dropped() {
        let mut sockets = ProgramSockets::default();
        let (kept, closed) = (UdpSocket::bind("127.0.0.1:0"), UdpSocket::bind("127.0.0.1:0"));
        let (kept, closed) = (kept.unwrap(), closed.unwrap());
        for socket in [&kept, &closed] {
            let local = socket.local_addr().unwrap();
            assert!(sockets.note(inode(socket), local, (i32::MAX, 3)).is_some());
        }
        let gone = inode(&closed);
        let copy = closed.try_clone().unwrap();
        drop(closed);
        for _ in 0..2 * MISSED {
            assert_eq!(sockets.gone(), []);
        }
        drop(copy);
        let found: Vec<u64> = (0..MISSED).flat_map(|_| sockets.gone()).collect();
        assert_eq!(found, [gone]);
    }

    #[test]
    fn datagrams_arrive_at_sockets_that_take_their_addresses() {
        let mut sockets = ProgramSockets::default();
        let peer: SocketAddr = "192.0.2.1:7".parse().unwrap();
        let mut note = |inode, local: &str| {
            sockets.note(inode, local.parse().unwrap(), (1, 3)).unwrap().connected = None;
        };
        note(1, "0.0.0.0:53");
        note(2, "[::]:53");
        note(3, "198.51.100.1:53");
        note(4, "198.51.100.2:53");
        note(5, "0.0.0.0:54");
        sockets.0.get_mut(&3).unwrap().connected = Some("192.0.2.1:8".parse().unwrap());
        let at = |local: &str| -> Vec<u64> {
            let found = sockets.at(local.parse().unwrap(), peer);
            found.into_iter().map(|(inode, _)| inode).collect()
        };
        assert_eq!(at("198.51.100.1:53"), [1, 2]);
        assert_eq!(at("198.51.100.2:53"), [1, 2, 4]);
        assert_eq!(at("[2001:db8::1]:53"), [2]);
    }

    #[tokio::test]
    async fn a_connected_socket_is_connected_anew_and_nothing_is_lost() {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let old = peer.local_addr().unwrap();
        let new: SocketAddr = "127.82.0.1:8".parse().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(old).unwrap();
        let owner = (std::process::id() as i32, socket.as_raw_fd() as u32);
        assert!(Borrowed::connected_to(inode(&socket) + 1, owner, old).is_err(), "another socket");
        assert!(Borrowed::connected_to(inode(&socket), owner, new).is_err(), "another peer");
        let borrowed = Borrowed::connected_to(inode(&socket), owner, old).unwrap();
        let local = borrowed.local().unwrap();
        let stand_in = borrowed.stand_in().unwrap();
        borrowed.connect(new).unwrap();
        assert_eq!(socket.peer_addr().unwrap(), new);
        assert_eq!(socket.local_addr().unwrap(), local);
        peer.send_to(b"late", local).unwrap();
        let mut late = [0; 10];
        assert_eq!(stand_in.recv(&mut late).await.unwrap(), 4);
        assert!(UdpSocket::bind(local).is_err(), "the port is the program's");
    }

    /// As iperf3, which has one for each stream.
    #[tokio::test]
    async fn a_program_that_shares_its_address_may_bind_it_beside_a_stand_in() {
        let new = || {
            let socket = socket2::Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
            socket.set_reuse_address(true).unwrap();
            socket
        };
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (first, second) = (new(), new());
        first.bind(&SocketAddr::from(([0, 0, 0, 0], 0)).into()).unwrap();
        let first = UdpSocket::from(first);
        first.connect(peer).unwrap();
        let owner = (std::process::id() as i32, first.as_raw_fd() as u32);
        let borrowed = Borrowed::connected_to(inode(&first), owner, peer).unwrap();
        let _stand_in = borrowed.stand_in().unwrap();
        let port = first.local_addr().unwrap().port();
        second.bind(&SocketAddr::from(([0, 0, 0, 0], port)).into()).unwrap();
    }

    /// SO_REUSEPORT joins sockets of one user, and a program that root has started may have dropped its rights.
    #[tokio::test]
    async fn a_socket_of_another_user_has_a_stand_in() {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let socket = socket2::Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        if fchown(&socket, Some(Uid::from_raw(65_534)), None).is_err() {
            return; // Only root can have such a socket.
        }
        let socket = UdpSocket::from(socket);
        socket.connect(peer).unwrap();
        let owner = (std::process::id() as i32, socket.as_raw_fd() as u32);
        let borrowed = Borrowed::connected_to(inode(&socket), owner, peer).unwrap();
        assert!(borrowed.stand_in().is_ok());
    }
}
