//! Connections that arrive, on their way to the program's listening socket.
//!
//! Each is a Unix socket whose name has both addresses, so that the program need not ask for them. One that the program
//! has no room for waits, and what arrives after it waits in the queue of its protocol.

use super::Broker;
use super::socket::{Socket, State};
use super::table::address;
use crate::locking::lock;
use crate::network::{Acceptor, Beside, Connection};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use ringway_with_wire::{Name, SocketId};
use socket2::{Domain, Type};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::task::AbortHandle;

/// Pause while the queue of the program's socket is full.
const PAUSE: Duration = Duration::from_millis(10);

/// Time between attempts to listen at a port that is in use, and their number.
const RETRY: Duration = Duration::from_millis(5);
const RETRIES: u32 = 20;
/// Time between later ones.
const LATER: Duration = Duration::from_secs(1);

/// A listening socket of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Target {
    id: SocketId,
    ipv6: bool,
    /// The user that it was made to listen by.
    user: u32,
}

/// Sockets that listen at the same address (socket(7), SO_REUSEPORT). TCP spreads connections over them; those of other
/// protocols go to them in turn.
struct Group {
    /// Whether they listen over TCP as well.
    has_tcp: bool,
    members: Vec<Target>,
    next: usize,
    tasks: Vec<AbortHandle>,
}

/// The groups by their address.
#[derive(Default)]
pub(super) struct Groups(BTreeMap<SocketAddr, Group>);

impl Groups {
    /// Adds a group, to one of the same address if there is one.
    fn join(&mut self, at: SocketAddr, group: Group) {
        match self.0.entry(at) {
            Entry::Occupied(mut entry) => {
                entry.get_mut().members.extend(group.members);
                entry.get_mut().tasks.extend(group.tasks);
            }
            Entry::Vacant(entry) => {
                entry.insert(group);
            }
        }
    }

    /// Takes a socket out. The last one takes its group with it.
    pub(super) fn leave(&mut self, id: SocketId) {
        self.0.retain(|_, group| {
            group.members.retain(|member| member.id != id);
            if group.members.is_empty() {
                group.tasks.iter().for_each(AbortHandle::abort);
            }
            !group.members.is_empty()
        });
    }

    /// Returns whether a socket listens at an address, or at one that includes it, without TCP: the kernel does not know.
    pub(super) fn takes(&self, to: SocketAddr) -> bool {
        let overlaps = |at: &SocketAddr| {
            let wild = at.ip().is_unspecified() || to.ip().is_unspecified();
            let same_family = at.is_ipv4() == to.is_ipv4();
            at.port() == to.port() && same_family && (at.ip() == to.ip() || wild)
        };
        self.0.iter().any(|(at, group)| !group.has_tcp && overlaps(at))
    }

    /// Returns the socket whose turn it is.
    fn next(&mut self, at: SocketAddr) -> Option<Target> {
        let group = self.0.get_mut(&at)?;
        group.next = (group.next + 1) % group.members.len().max(1);
        group.members.get(group.next).copied()
    }
}

/// What became of an attempt to hand a connection over.
enum Delivery {
    Done(UnixStream),
    /// The queue is full.
    Full,
    /// Nobody listens any more.
    Gone,
}

impl Broker {
    /// Begins to accept connections for a socket, over TCP and beside it.
    pub(super) async fn begin_to_accept(
        self: &Arc<Broker>,
        id: SocketId,
        (ipv6, user): (bool, u32),
        acceptor: Option<Acceptor>,
        local: SocketAddr,
        dual: bool,
        reuses: bool,
    ) {
        let target = Target { id, ipv6, user };
        let has_tcp = acceptor.is_some();
        if let Some(acceptor) = acceptor {
            let task = tokio::spawn(self.clone().accept(acceptor, local, Some(target)));
            if let Some(socket) = lock(&self.table).get(id) {
                socket.state = State::Listening(Some(task.abort_handle()));
            }
        }
        if let Some(group) = lock(&self.groups).0.get_mut(&local)
            && reuses
        {
            group.members.push(target);
            return;
        }
        let mut tasks = Vec::new();
        for beside in self.network.beside(local, dual) {
            let task = match self.listen_soon(&beside).await {
                Ok(acceptor) => tokio::spawn(self.clone().accept(acceptor, local, None)),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    tokio::spawn(self.clone().listen_later(beside, local))
                }
                Err(error) => {
                    self.explain(|| format!("listening at {local} without {beside}: {error}"));
                    continue;
                }
            };
            tasks.push(task.abort_handle());
        }
        lock(&self.groups).join(local, Group { has_tcp, members: vec![target], next: 0, tasks });
        // The program may have closed it meanwhile.
        if lock(&self.table).get(id).is_none() {
            self.remove(id);
        }
        self.explain(|| format!("listening at {local}"));
    }

    /// Listens at a port that the program may have closed a moment ago: what served it there ends soon.
    async fn listen_soon(&self, beside: &Beside) -> io::Result<Acceptor> {
        for _ in 0..RETRIES {
            match self.network.listen_beside(beside) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                listening => return listening,
            }
            tokio::time::sleep(RETRY).await;
        }
        self.network.listen_beside(beside)
    }

    /// Listens at a port that is in use, once it is not any more.
    async fn listen_later(self: Arc<Broker>, beside: Beside, at: SocketAddr) {
        self.explain(|| format!("listening at {at} without {beside} while the port is in use"));
        loop {
            tokio::time::sleep(LATER).await;
            match self.network.listen_beside(&beside) {
                Ok(acceptor) => return self.accept(acceptor, at, None).await,
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(_) => return,
            }
        }
    }

    /// Accepts connections for one socket, or for a group.
    async fn accept(self: Arc<Broker>, acceptor: Acceptor, at: SocketAddr, only: Option<Target>) {
        while let Ok(connection) = acceptor.accept().await {
            if !self.deliver(connection, at, only).await {
                return;
            }
        }
    }

    /// Hands a connection over to the program. Returns `false` if nobody listens any more.
    async fn deliver(
        self: &Arc<Broker>,
        connection: Connection,
        at: SocketAddr,
        only: Option<Target>,
    ) -> bool {
        loop {
            let target = only.or_else(|| lock(&self.groups).next(at));
            let Some(target) = target else {
                connection.transport.abort();
                return false;
            };
            match self.hand_over(&connection, target) {
                Ok((Delivery::Done(stream), id)) => {
                    let broker = self.clone();
                    tokio::spawn(async move {
                        broker.carry(id, stream, connection, "from").await;
                    });
                    return true;
                }
                Ok((Delivery::Gone, _)) => {
                    self.remove(target.id);
                    if only.is_some() {
                        connection.transport.abort();
                        return false;
                    }
                }
                // Another error is the host's, such as too many open files, and passes.
                Ok((Delivery::Full, _)) | Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Tries to hand a connection over. Returns what became of it, and its id.
    fn hand_over(
        &self,
        connection: &Connection,
        target: Target,
    ) -> io::Result<(Delivery, SocketId)> {
        let &Connection { local, peer, ref transport, .. } = connection;
        let broker = self.environment.broker;
        let observer = transport.observer();
        let state = State::Connected { local, peer, observer, is_reported: true };
        let socket = Socket::accepted(target.ipv6, state, transport.socket());
        // It is inherited from the listening socket, as by TCP.
        let resets = |socket: &mut Socket| socket.counts.resets_on_close.load(Ordering::Relaxed);
        let resets = lock(&self.table).get(target.id).is_some_and(resets);
        socket.counts.resets_on_close.store(resets, Ordering::Relaxed);
        // It is known before the program can ask about it.
        let Some(id) = lock(&self.table).add_accepted(socket) else {
            return Ok((Delivery::Full, target.id));
        };
        let connect = || {
            let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
            socket.set_nonblocking(true)?;
            socket.bind(&address(broker, &Name::Connection { id, peer, local })?)?;
            let Target { id, ipv6, .. } = target;
            match socket.connect(&address(broker, &Name::Program { ipv6, id })?) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Delivery::Full);
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    return Ok(Delivery::Gone);
                }
                Err(error) => return Err(error),
            }
            // Names are free for all users: one who has taken this one gets no connection.
            if getsockopt(&socket, PeerCredentials)?.uid() != target.user {
                return Ok(Delivery::Gone);
            }
            Ok(Delivery::Done(UnixStream::from_std(socket.into())?))
        };
        let delivery = connect();
        if !matches!(delivery, Ok(Delivery::Done(_))) {
            lock(&self.table).remove(id);
        }
        Ok((delivery?, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_served_in_turn_and_ends_with_its_last_member() {
        let at: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let member = |id| Target { id: SocketId::created(id), ipv6: false, user: 0 };
        let group =
            |id| Group { has_tcp: false, members: vec![member(id)], next: 0, tasks: Vec::new() };
        let mut groups = Groups::default();
        groups.join(at, group(1));
        groups.join(at, group(2));
        let served: Vec<_> = (0..4).filter_map(|_| groups.next(at)).map(|one| one.id.0).collect();
        assert_eq!(served, [2, 1, 2, 1]);
        assert!(groups.takes("0.0.0.0:80".parse().unwrap()));
        assert!(!groups.takes("127.0.0.2:80".parse().unwrap()));
        assert!(!groups.takes("[::]:80".parse().unwrap()));
        groups.leave(SocketId::created(2));
        assert_eq!(groups.next(at), Some(member(1)));
        groups.leave(SocketId::created(1));
        assert_eq!(groups.next(at), None);
        assert!(groups.0.is_empty());
    }
}
