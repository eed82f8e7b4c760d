//! A LAN whose hosts reach the mesh through this router: they get addresses in its /64 by router advertisements.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;

use ringway_mesh::Prefix;
use ringway_os::netlink::{Netlink, NetlinkError};
use ringway_os::udp::LinkSocket;
use ringway_os::{
    After, ChaCha, Datagram, RECEIVE_BATCH, ReceiveBatch, SendBatch, Watched, watch_reading,
};
use ringway_sansio::Time;
use socket2::Socket;

use crate::advertise::{ALL_NODES, ALL_ROUTERS, Advertisement, Schedule, is_solicitation};
use crate::device::{MTU, PREFIX};
use crate::interfaces::{Change, Interfaces};

/// ICMPv6's number of router solicitations (RFC 4861 section 4.1).
const SOLICITATION: u8 = 133;
/// Whether this host passes packets on.
const FORWARDING: &str = "/proc/sys/net/ipv6/conf/all/forwarding";

/// A LAN and the router advertisements on it.
pub(crate) struct Lan {
    prefix: Prefix,
    advertisement: Advertisement,
    interfaces: Interfaces,
    socket: Watched<Socket>,
    received: ReceiveBatch,
    sending: SendBatch,
    random: ChaCha,
    /// Number of the interface, while there is one.
    link: Option<(u32, Schedule)>,
}

impl Lan {
    /// Serves the hosts on the interface `name` when there is one. To be called within a runtime.
    ///
    /// # Errors
    /// The error of the system call that failed, as when the process lacks CAP_NET_RAW.
    pub(crate) fn open(name: &str, prefix: Prefix) -> io::Result<Lan> {
        let socket = LinkSocket::open_icmpv6(SOLICITATION)?.into_socket();
        Ok(Lan {
            prefix,
            advertisement: Advertisement { prefix, mtu: MTU, gateway: false },
            interfaces: Interfaces::new(&[name.to_owned()]),
            socket: watch_reading(socket)?,
            received: ReceiveBatch::new(),
            sending: SendBatch::new(),
            random: ChaCha::from_os()?,
            link: None,
        })
    }

    /// Reads whether there is the interface. One that comes up gets the router's address. Returns lines for the
    /// operator.
    ///
    /// # Errors
    /// When the kernel cannot be asked, or refuses the address.
    pub(crate) fn read_interface(
        &mut self,
        now: Time,
        netlink: &mut Netlink,
    ) -> Result<Vec<String>, NetlinkError> {
        let mut lines = Vec::new();
        for change in self.interfaces.read(netlink)? {
            lines.push(match change {
                Change::Missing(name) => format!("LAN {name} does not exist; waiting for it"),
                Change::Down { name, .. } => {
                    self.link = None;
                    format!("LAN {name} is not served any more: it is down or gone")
                }
                Change::Up { name, index, .. } => {
                    match netlink.add_address(index, self.prefix.router(), PREFIX) {
                        Err(error) if error.cause.kind() != io::ErrorKind::AlreadyExists => {
                            return Err(error);
                        }
                        _ => {}
                    }
                    // Of a kernel that forwards, the group is joined already.
                    let _ = self.socket.get_ref().join_multicast_v6(&ALL_ROUTERS, index);
                    self.link = Some((index, Schedule::new(now, &mut self.random)));
                    format!("LAN {name} is served: {}/{PREFIX}", self.prefix.network())
                }
            });
        }
        Ok(lines)
    }

    /// Waits for solicitations and handles some. May be cancelled.
    pub(crate) async fn receive(&mut self, now: impl Fn() -> Time) -> io::Result<()> {
        let mut ready = self.socket.readable().await?;
        let count = self.received.receive(ready.get_inner().as_fd()).unwrap_or(0);
        if count < RECEIVE_BATCH {
            ready.clear_ready();
        }
        let Some((link, schedule)) = &mut self.link else { return Ok(()) };
        for message in (0..count).filter_map(|at| self.received.get(at)) {
            let IpAddr::V6(source) = message.remote.ip() else { continue };
            let hops = message.hop_limit.unwrap_or(0);
            if message.interface == *link && is_solicitation(&source, hops, message.bytes()) {
                schedule.handle_solicitation(now(), &mut self.random);
            }
        }
        Ok(())
    }

    /// Returns when an advertisement is due.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.link.as_ref().map(|(_, schedule)| schedule.poll_timeout())
    }

    /// Sends an advertisement if one is due.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        let Some((link, schedule)) = &mut self.link else { return };
        if schedule.handle_timeout(now, &mut self.random) {
            let (link, bytes) = (*link, self.advertisement.to_bytes());
            self.send(link, &bytes);
        }
    }

    /// Tells the hosts that the router leaves.
    pub(crate) fn leave(&mut self) {
        if let Some((link, _)) = self.link.take() {
            self.send(link, &self.advertisement.to_final_bytes());
        }
    }

    /// Sends to all hosts. What is lost is sent again in time.
    fn send(&mut self, link: u32, bytes: &[u8]) {
        let to = SocketAddr::from(SocketAddrV6::new(ALL_NODES, 0, 0, link));
        let fd = self.socket.get_ref().as_fd();
        self.sending.send(fd, &[Datagram::new(bytes, to, None)], |_, _| After::Skip);
    }
}

/// Makes this host pass packets on, without which a LAN reaches nothing. Returns whether that was changed.
///
/// # Errors
/// When the setting can be neither read nor written.
pub(crate) fn forward() -> io::Result<bool> {
    if std::fs::read_to_string(FORWARDING)?.trim() != "0" {
        return Ok(false);
    }
    std::fs::write(FORWARDING, "1")?;
    Ok(true)
}
