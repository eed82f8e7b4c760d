//! A LAN whose hosts reach the mesh through this router: they get addresses in its /64 by router advertisements.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;

use ringway_lan::{ANYCAST, Ipv4Lan};
use ringway_mesh::{NodeId, Prefix};
use ringway_os::netlink::{Netlink, NetlinkError};
use ringway_os::udp::LinkSocket;
use ringway_os::{
    After, ChaCha, Clock, Datagram, RECEIVE_BATCH, ReceiveBatch, SendBatch, Watched, watch_reading,
};
use ringway_sansio::Time;
use ringway_sansio::time::sooner;
use socket2::Socket;

use crate::advertise::{ALL_NODES, ALL_ROUTERS, Advertisement, Names, Schedule, is_solicitation};
use crate::device::{MTU, PREFIX};
use crate::interfaces::{Change, Interfaces};
use crate::services::Services;
use crate::settings::Settings;

/// ICMPv6's number of router solicitations (RFC 4861 section 4.1).
const SOLICITATION: u8 = 133;
/// Whether this host passes packets on.
const FORWARDING: &str = "/proc/sys/net/ipv6/conf/all/forwarding";

/// Bits of an address that is no network's.
const HOST: u8 = 128;

/// A LAN, the router advertisements on it, and its services.
pub(crate) struct Lan {
    prefix: Prefix,
    ipv4: Option<Ipv4Lan>,
    advertisement: Advertisement,
    interfaces: Interfaces,
    socket: Watched<Socket>,
    received: ReceiveBatch,
    sending: SendBatch,
    random: ChaCha,
    /// Number of the interface, while there is one.
    link: Option<(u32, Schedule)>,
    services: Option<Services>,
    lines: Vec<String>,
}

impl Lan {
    /// Serves the hosts on the interface `name` when there is one. To be called within a runtime.
    ///
    /// # Errors
    /// The error of the system call that failed, as when the process lacks CAP_NET_RAW.
    pub(crate) fn open(
        name: &str,
        router: NodeId,
        settings: &Settings,
        clock: Clock,
    ) -> io::Result<Lan> {
        let socket = LinkSocket::open_icmpv6(SOLICITATION)?.into_socket();
        let mut lines = Vec::new();
        let has_services = settings.sip.is_some() || settings.lan_ipv4.is_some();
        let services = match Services::new(settings, router, ChaCha::from_os()?, clock) {
            Ok(services) => Some(services).filter(|_| has_services),
            Err(error) => {
                lines.push(format!("LAN {name} has no services: {error}"));
                None
            }
        };
        let sip = settings.sip.as_ref().filter(|_| services.is_some());
        let names = sip.map(|sip| Names { server: ANYCAST, domain: sip.domain.clone() });
        let prefix = router.prefix();
        Ok(Lan {
            prefix,
            ipv4: settings.lan_ipv4.filter(|_| services.is_some()),
            advertisement: Advertisement { prefix, mtu: MTU, gateway: false, names },
            interfaces: Interfaces::new(&[name.to_owned()]),
            socket: watch_reading(socket)?,
            received: ReceiveBatch::new(),
            sending: SendBatch::new(),
            random: ChaCha::from_os()?,
            link: None,
            services,
            lines,
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
            let line = match change {
                Change::Missing(name) => format!("LAN {name} does not exist; waiting for it"),
                Change::Down { name, .. } => {
                    self.link = None;
                    if let Some(services) = &mut self.services {
                        services.close();
                    }
                    format!("LAN {name} is not served any more: it is down or gone")
                }
                Change::Up { name, index, .. } => {
                    self.add_addresses(index, netlink)?;
                    // A host of the LAN must not send to others in the name of its router.
                    for own in [self.prefix.router(), self.prefix.second()] {
                        match netlink.refuse_source(&name, own) {
                            Err(error) if error.cause.kind() != io::ErrorKind::AlreadyExists => {
                                let line =
                                    format!("hosts of {name} may send as this router: {error}");
                                lines.push(line);
                            }
                            _ => {}
                        }
                    }
                    // Of a kernel that forwards, the group is joined already.
                    let _ = self.socket.get_ref().join_multicast_v6(&ALL_ROUTERS, index);
                    self.link = Some((index, Schedule::new(now, &mut self.random)));
                    if let Some(services) = &mut self.services {
                        services.open(&name, index, now);
                    }
                    format!("LAN {name} is served: {}/{PREFIX}", self.prefix.network())
                }
            };
            lines.push(line);
        }
        Ok(lines)
    }

    /// Adds the router's addresses to the interface: its own, and those that are the same at every router.
    fn add_addresses(&self, index: u32, netlink: &mut Netlink) -> Result<(), NetlinkError> {
        let own = (IpAddr::from(self.prefix.router()), PREFIX);
        let server = self.advertisement.names.as_ref().map(|names| (names.server.into(), HOST));
        let ipv4 = self.ipv4.map(|lan| (lan.address().into(), lan.length()));
        for (address, length) in [Some(own), server, ipv4].into_iter().flatten() {
            match netlink.add_address(index, address, length) {
                Err(error) if error.cause.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(error);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Waits for what hosts send and handles some. May be cancelled.
    ///
    /// # Errors
    /// When solicitations cannot be received any more.
    pub(crate) async fn receive(&mut self, now: impl Fn() -> Time) -> io::Result<()> {
        let services = async {
            match &mut self.services {
                Some(services) => services.receive().await,
                None => std::future::pending().await,
            }
        };
        let ready = tokio::select! {
            () = services => return Ok(()),
            ready = self.socket.readable() => ready,
        };
        let mut ready = ready?;
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

    /// Returns lines for the operator.
    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        let services = self.services.as_mut().map(Services::take_lines);
        let mut lines = std::mem::take(&mut self.lines);
        lines.extend(services.into_iter().flatten());
        lines
    }

    /// Returns when an advertisement is due, or a service has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let advertisement = self.link.as_ref().map(|(_, schedule)| schedule.poll_timeout());
        sooner(advertisement, self.services.as_ref().and_then(Services::poll_timeout))
    }

    /// Sends what is due.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        if let Some(services) = &mut self.services {
            services.handle_timeout(now);
        }
        let Some((link, schedule)) = &mut self.link else { return };
        if schedule.handle_timeout(now, &mut self.random) {
            let (link, bytes) = (*link, self.advertisement.to_bytes());
            self.send(link, &bytes);
        }
    }

    /// Tells the hosts that the router leaves.
    pub(crate) fn leave(&mut self, now: Time) {
        if let Some(services) = &mut self.services {
            services.leave(now);
        }
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
