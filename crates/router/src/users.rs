//! The router's part of the directory of users, and the connection of a SIP server in the same process with it.
//!
//! Every router keeps records of users, whether or not it serves phones. A server adds what it knows by [`Command`]s and
//! learns the rest by [`Notice`]s; neither waits for the other.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;

use ringway_directory::{Command, Config, Directory, Report, Service};
use ringway_mesh::crypto::Real;
use ringway_mesh::router::Refusal;
use ringway_mesh::{Identity, NodeId, Prefix};
use ringway_os::ChaCha;
use ringway_sansio::Time;
use socket2::{Domain, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use crate::traffic::Traffic;

/// The number of the DHT among the applications of the mesh.
pub const APPLICATION: u16 = 1;
/// UDP port, at the address of a router in the mesh, of private messages between routers.
pub const PRIVATE_PORT: u16 = 5_268;
/// Commands that may wait. More are refused.
pub const MAX_COMMANDS: usize = 4_096;
/// Commands and private messages that are handled before packets again.
const TURN: usize = 64;
/// Length in octets of the buffer of private messages. A longer one is malformed.
const PRIVATE_BUFFER: usize = 2_048;

/// What a server learns of the router.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The router is in the mesh.
    Ready {
        /// Its id.
        id: NodeId,
        /// The index of its TUN device.
        interface: u32,
    },
    /// The directory reports.
    Users(Report),
    /// The routers beside this one on the ring have changed.
    Neighbours {
        /// All of them, in no order.
        routers: Vec<NodeId>,
    },
}

/// A server that runs beside the router.
pub struct Attachment {
    /// Its commands.
    pub commands: mpsc::Receiver<Command>,
    /// Its receiver of notices, which must not wait.
    pub notify: Box<dyn FnMut(Notice) + Send>,
}

/// The directory, and what carries its messages.
pub(crate) struct Users {
    directory: Directory<Real>,
    random: ChaCha,
    attachment: Option<Attachment>,
    /// What the directory last knew of the ring: changes of the contacts, and the other end of the line.
    seen: Option<(u64, Option<NodeId>)>,
    service: Service,
    socket: Option<UdpSocket>,
    buffer: Box<[u8; PRIVATE_BUFFER]>,
    /// Messages that the mesh has not sent, as its budget was used up.
    refused: u64,
}

impl Users {
    pub(crate) fn new(
        identity: &Arc<Identity>,
        attachment: Option<Attachment>,
        now: Time,
    ) -> io::Result<Users> {
        Ok(Users {
            directory: Directory::new(Config::default(), identity.clone(), now),
            random: ChaCha::from_os()?,
            attachment,
            seen: None,
            service: Service::default(),
            socket: None,
            buffer: Box::new([0; PRIVATE_BUFFER]),
            refused: 0,
        })
    }

    /// Returns how often limits were hit: the budget of the mesh, shares of other routers, those in lists, and their rates.
    pub(crate) fn limits(&self) -> [u64; 4] {
        let (dht, directory) = (self.directory.dht().counters(), self.directory.counters());
        [self.refused, dht.unpaid, dht.unlisted, dht.policed + directory.policed]
    }

    /// Returns how many routers check the credentials of this one's users while it is silent.
    pub(crate) fn deputies(&self) -> usize {
        self.directory.deputies().len()
    }

    /// Begins to receive private messages at the router's address, which this host has now on the device `tun`.
    pub(crate) fn open(&mut self, address: Ipv6Addr, tun: &str, interface: u32) -> io::Result<()> {
        let id = self.directory.id();
        self.notify(Notice::Ready { id, interface });
        self.socket = Some(private_socket(address, tun)?);
        Ok(())
    }

    /// Waits for a command or a private message, and handles it. May be cancelled.
    pub(crate) async fn next(&mut self, now: impl Fn() -> Time) {
        let command = async {
            match &mut self.attachment {
                Some(attachment) => attachment.commands.recv().await,
                None => None,
            }
        };
        let readable = async {
            match &self.socket {
                Some(socket) => socket.readable().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            command = command => match command {
                Some(command) => self.handle(now(), command),
                None => {
                    // The server has ended, or there is none.
                    self.attachment = None;
                    std::future::pending::<()>().await;
                }
            },
            ready = readable => if ready.is_ok() {
                self.receive(now());
            },
        }
    }

    /// Handles commands that wait already.
    pub(crate) fn handle_waiting(&mut self, now: Time) {
        for _ in 0..TURN {
            let Some(attachment) = &mut self.attachment else { return };
            let Ok(command) = attachment.commands.try_recv() else { return };
            self.handle(now, command);
        }
    }

    fn receive(&mut self, now: Time) {
        for _ in 0..TURN {
            let Some(socket) = &self.socket else { return };
            // An error is one of an earlier message.
            let Ok((length, from)) = socket.try_recv_from(&mut self.buffer[..]) else { return };
            let Some(prefix) = router_of(from) else { continue };
            let octets = &self.buffer[..length];
            self.directory.handle_private(now, prefix, octets, &mut self.random);
        }
    }

    fn handle(&mut self, now: Time, command: Command) {
        let Users { service, directory, random, .. } = self;
        if let Some(report) = service.handle(now, command, directory, random) {
            self.notify(Notice::Users(report));
        }
    }

    fn notify(&mut self, notice: Notice) {
        if let Some(attachment) = &mut self.attachment {
            (attachment.notify)(notice);
        }
    }

    /// Handles octets of the DHT from another router.
    pub(crate) fn handle_payload(&mut self, now: Time, origin: NodeId, octets: &[u8]) {
        self.directory.handle(now, origin, octets, &mut self.random);
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        if self.poll_timeout().is_some_and(|due| due <= now) {
            self.directory.handle_timeout(now, &mut self.random);
        }
    }

    /// Returns when something is due.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.directory.poll_timeout()
    }

    /// Notifies other routers that this one leaves: what is registered here cannot be reached any more, and those beside it
    /// take over what it keeps.
    pub(crate) fn leave(&mut self, now: Time) {
        let names = self.directory.accounts().registered();
        let names: Vec<Box<str>> = names.map(|(name, _)| name.into()).collect();
        for name in names {
            self.directory.unregister(now, &name, &mut self.random);
        }
        self.directory.leave();
    }

    /// Carries what the directory sends to the mesh, and its events to the server. Returns whether the mesh was given
    /// anything.
    pub(crate) fn settle(&mut self, now: Time, traffic: &mut Traffic) -> bool {
        self.update_neighbours(now, traffic);
        let messages = self.directory.take_messages();
        let is_empty = messages.is_empty();
        for message in messages {
            let sent = traffic.send_closest(now, message.to, &message.octets, message.by_another);
            self.refused += u64::from(sent == Err(Refusal::Budget));
        }
        for message in self.directory.take_private() {
            let to = SocketAddrV6::new(message.to.router(), PRIVATE_PORT, 0, 0);
            // What finds no room is sent again.
            _ = self.socket.as_ref().map(|socket| socket.try_send_to(&message.octets, to.into()));
        }
        while let Some(report) = self.service.poll_report(&mut self.directory) {
            self.notify(Notice::Users(report));
        }
        !is_empty
    }

    fn update_neighbours(&mut self, now: Time, traffic: &Traffic) {
        let overlay = traffic.router().overlay();
        let known = (overlay.contacts().changes(), overlay.partner());
        if self.seen.replace(known) != Some(known) {
            let near = overlay.contacts().near();
            self.notify(Notice::Neighbours {
                routers: near.iter().copied().chain(known.1).collect(),
            });
            self.directory.update_neighbours(now, near.into_iter(), known.1, &mut self.random);
        }
    }
}

/// Opens the socket of private messages. What comes by another interface than the TUN device is not of the mesh, whatever
/// address it claims.
fn private_socket(address: Ipv6Addr, tun: &str) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, None)?;
    socket.bind_device(Some(tun.as_bytes()))?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::from((address, PRIVATE_PORT)).into())?;
    UdpSocket::from_std(socket.into())
}

/// Returns the router that a private message comes from: only a router has its address and port.
fn router_of(from: SocketAddr) -> Option<Prefix> {
    let IpAddr::V6(ip) = from.ip() else { return None };
    let prefix = Prefix::of(&ip)?;
    (prefix.router() == ip && from.port() == PRIVATE_PORT).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_routers_send_private_messages() {
        let prefix = router_of("[fd01:2345:6789:abcd::1]:5268".parse().unwrap());
        assert_eq!(
            prefix.map(|prefix| prefix.to_bytes()),
            Some([1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd])
        );
        for other in [
            "[fd01:2345:6789:abcd::1]:5269",
            "[fd01:2345:6789:abcd::2]:5268",
            "[2001:db8::1]:5268",
            "192.0.2.1:5268",
        ] {
            assert_eq!(router_of(other.parse().unwrap()), None, "{other}");
        }
    }
}
