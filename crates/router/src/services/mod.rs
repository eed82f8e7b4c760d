//! The services of a LAN, by which a phone finds the SIP server: DNS, multicast DNS, DHCPv4 and DHCPv6.
//!
//! What they say is `ringway-lan`'s; here are their sockets, the file of the leases, and the time. A service that cannot
//! be offered is a line for the operator, and is tried again: it never ends the router.

mod leases;
mod sockets;
mod stream;

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use ringway_lan::dhcp4::{Dhcp4, SipEncoding};
use ringway_lan::dhcp6::{self, Dhcp6};
use ringway_lan::dns::{Dns, Transport};
use ringway_lan::mdns::{self, Destination, Mdns};
use ringway_lan::{Ipv4Lan, Site, SiteError};
use ringway_mesh::NodeId;
use ringway_os::{
    After, ChaCha, Clock, Datagram, RECEIVE_BATCH, ReceiveBatch, SendBatch, Watched, watch_reading,
};
use ringway_sansio::Time;
use ringway_sansio::time::{Duration, sooner};
use socket2::Socket;
use tokio::net::{TcpListener, TcpStream};

use self::sockets::Service;
use self::stream::Clients;
use crate::settings::Settings;

/// Time after which a service is tried again that could not be offered.
const RETRY: Duration = Duration::from_secs(30);
/// Time for which changes of leases are gathered before they are written.
const SAVE: Duration = Duration::from_secs(1);
/// Time between two lines about limits.
const REPORT: Duration = Duration::from_secs(60);

/// A socket of a service.
struct Port {
    service: Service,
    socket: Watched<Socket>,
}

/// A socket of the DNS that accepts connections.
struct Listener {
    service: Service,
    socket: TcpListener,
}

/// What names the SIP server. Its DNS is shared with the tasks of connections, none of which waits while it has it.
struct Names {
    site: Site,
    dns: Arc<Mutex<Dns>>,
    dhcp6: Dhcp6,
    /// While the interface is there.
    mdns: Option<Mdns>,
}

/// The addresses of IPv4 hosts.
struct Addresses {
    lan: Ipv4Lan,
    dhcp: Dhcp4,
    /// When the leases are written.
    save_at: Option<Time>,
}

/// Counts of limits that were hit, as they were when a line was written about them.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Limits {
    unavailable: u64,
    declined: u64,
    limited: u64,
}

/// What has come.
enum Ready {
    /// Datagrams at a port.
    Datagrams(usize, usize),
    /// A connection.
    Client(TcpStream, SocketAddr),
    /// A socket has failed.
    Failed(Service, io::Error),
}

/// The services of a LAN.
pub(crate) struct Services {
    names: Option<Names>,
    addresses: Option<Addresses>,
    directory: PathBuf,
    clock: Clock,
    /// Name and number of the interface, while it is there.
    link: Option<(String, u32)>,
    ports: Vec<Port>,
    listeners: Vec<Listener>,
    clients: Clients,
    /// Those that could not be offered, and when they are tried again.
    missing: Vec<Service>,
    retry_at: Option<Time>,
    received: ReceiveBatch,
    sending: SendBatch,
    random: ChaCha,
    reported: (Limits, Time),
    lines: Vec<String>,
}

impl Services {
    /// The services that the settings ask for. Leases are read from the state directory.
    ///
    /// # Errors
    /// A domain that is none.
    pub(crate) fn new(
        settings: &Settings,
        router: NodeId,
        random: ChaCha,
        clock: Clock,
    ) -> Result<Services, SiteError> {
        let now = clock.now();
        let ipv4 = settings.lan_ipv4;
        let site = settings.sip.clone().map(|sip| Site::new(router, sip, ipv4)).transpose()?;
        let addresses = ipv4.map(|lan| Addresses {
            lan,
            dhcp: Dhcp4::new(lan, site.as_ref(), SipEncoding::default()),
            save_at: None,
        });
        let names = site.map(|site| Names {
            dns: Arc::new(Mutex::new(Dns::new(&site))),
            dhcp6: Dhcp6::new(&site),
            site,
            mdns: None,
        });
        let mut services = Services {
            names,
            addresses,
            directory: settings.state.clone(),
            clock,
            link: None,
            ports: Vec::new(),
            listeners: Vec::new(),
            clients: Clients::default(),
            missing: Vec::new(),
            retry_at: None,
            received: ReceiveBatch::new(),
            sending: SendBatch::new(),
            random,
            reported: (Limits::default(), now),
            lines: Vec::new(),
        };
        services.restore(now);
        Ok(services)
    }

    /// Opens the sockets on an interface that has come up. To be called within a runtime.
    pub(crate) fn open(&mut self, name: &str, index: u32, now: Time) {
        self.link = Some((name.to_owned(), index));
        let ipv4 = self.addresses.as_ref().map(|addresses| addresses.lan);
        if let Some(names) = &mut self.names {
            names.mdns = Some(Mdns::new(&names.site, now, &mut self.random));
        }
        self.missing = Service::all(ipv4, self.names.is_some());
        self.open_missing(now, true);
    }

    /// Closes the sockets, because the interface is gone.
    pub(crate) fn close(&mut self) {
        self.ports.clear();
        self.listeners.clear();
        self.clients.close();
        self.missing.clear();
        (self.link, self.retry_at) = (None, None);
        if let Some(names) = &mut self.names {
            names.mdns = None;
        }
    }

    /// Tells the hosts that the router leaves, and writes the leases.
    pub(crate) fn leave(&mut self, now: Time) {
        let mdns = self.names.as_mut().and_then(|names| names.mdns.as_mut());
        if let Some(transmit) = mdns.and_then(Mdns::leave) {
            self.send_mdns(transmit.to, &transmit.bytes);
        }
        self.close();
        self.save(now);
    }

    /// Returns lines for the operator.
    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    /// Returns when [`Services::handle_timeout`] is to be called.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let mdns = self.names.as_ref().and_then(|names| names.mdns.as_ref());
        let save = self.addresses.as_ref().and_then(|addresses| addresses.save_at);
        sooner(sooner(mdns.and_then(Mdns::poll_timeout), save), self.retry_at)
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.open_missing(now, false);
        }
        if self
            .addresses
            .as_ref()
            .and_then(|addresses| addresses.save_at)
            .is_some_and(|at| at <= now)
        {
            self.save(now);
        }
        if let Some(mdns) = self.names.as_mut().and_then(|names| names.mdns.as_mut()) {
            mdns.handle_timeout(now);
        }
        self.flush_mdns();
    }

    /// Waits for what hosts send and handles some. May be cancelled.
    pub(crate) async fn receive(&mut self) {
        let ready = poll_fn(|context| self.poll_ready(context)).await;
        match ready {
            Ready::Datagrams(index, count) => self.handle_datagrams(index, count, self.clock.now()),
            Ready::Client(stream, from) => {
                if let Some(names) = &self.names {
                    self.clients.accept(self.clock, stream, from, &names.dns);
                }
            }
            Ready::Failed(service, error) => {
                self.ports.retain(|port| port.service != service);
                self.listeners.retain(|listener| listener.service != service);
                self.lines.push(format!("LAN: {service} fails: {error}"));
                self.missing.push(service);
                self.retry_at = self.retry_at.or(Some(self.clock.now() + RETRY));
            }
        }
        self.report_limits(self.clock.now());
    }

    /// Returns what has come at any socket. Datagrams are received here, so that a socket without any waits again.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Ready> {
        for (index, port) in self.ports.iter().enumerate() {
            while let Poll::Ready(ready) = port.socket.poll_read_ready(context) {
                let mut guard = match ready {
                    Ok(guard) => guard,
                    Err(error) => return Poll::Ready(Ready::Failed(port.service, error)),
                };
                // An error of a datagram that was sent, as to a host that is gone, is the answer to nothing here.
                let count = self.received.receive(guard.get_inner().as_fd()).unwrap_or(0);
                if count < RECEIVE_BATCH {
                    guard.clear_ready();
                }
                if count > 0 {
                    return Poll::Ready(Ready::Datagrams(index, count));
                }
            }
        }
        for listener in &self.listeners {
            let mut accepted = listener.socket.poll_accept(context);
            // A client that has gone before it was accepted is no fault of the socket.
            while matches!(&accepted, Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::ConnectionAborted)
            {
                accepted = listener.socket.poll_accept(context);
            }
            match accepted {
                Poll::Ready(Ok((stream, from))) => return Poll::Ready(Ready::Client(stream, from)),
                Poll::Ready(Err(error)) => {
                    return Poll::Ready(Ready::Failed(listener.service, error));
                }
                Poll::Pending => {}
            }
        }
        Poll::Pending
    }

    fn handle_datagrams(&mut self, index: usize, count: usize, now: Time) {
        let Some(service) = self.ports.get(index).map(|port| port.service) else { return };
        let mut answers: Vec<(SocketAddr, Option<IpAddr>, Vec<u8>)> = Vec::new();
        for message in (0..count).filter_map(|at| self.received.get(at)) {
            let (remote, bytes) = (message.remote, message.bytes());
            match (service, &mut self.names, &mut self.addresses) {
                (Service::Dns(_), Some(names), _) => {
                    let mut dns = names.dns.lock().unwrap_or_else(PoisonError::into_inner);
                    let answer = dns.answer(now, remote.ip(), bytes, Transport::Udp);
                    answers.extend(answer.map(|answer| (remote, None, answer)));
                }
                (Service::Dhcp6, Some(names), _) => {
                    let SocketAddr::V6(from) = remote else { continue };
                    let to = SocketAddrV6::new(*from.ip(), dhcp6::CLIENT_PORT, 0, from.scope_id());
                    let answer = names.dhcp6.answer(now, *from.ip(), bytes);
                    answers.extend(answer.map(|answer| (to.into(), None, answer)));
                }
                (Service::Mdns(_), Some(names), _) => {
                    if let Some(mdns) = &mut names.mdns {
                        mdns.handle(now, remote, bytes, &mut self.random);
                    }
                }
                (Service::Dhcp4, _, Some(addresses)) => {
                    let from = Some(addresses.lan.address().into());
                    let reply = addresses.dhcp.handle(now, bytes);
                    answers.extend(reply.map(|reply| (reply.to.into(), from, reply.bytes)));
                }
                _ => {}
            }
        }
        self.note_changes(now);
        for (to, from, bytes) in answers {
            self.send(index, Datagram::new(&bytes, to, from));
        }
        self.flush_mdns();
    }

    /// Plans to write the leases if they have changed.
    fn note_changes(&mut self, now: Time) {
        if let Some(addresses) = &mut self.addresses
            && addresses.dhcp.leases_mut().take_changed()
        {
            addresses.save_at = addresses.save_at.or(Some(now + SAVE));
        }
    }

    /// Sends by a port. A datagram that is lost is asked for again.
    fn send(&mut self, index: usize, datagram: Datagram<'_>) {
        if let Some(port) = self.ports.get(index) {
            let fd = port.socket.get_ref().as_fd();
            self.sending.send(fd, &[datagram], |_, _| After::Skip);
        }
    }

    fn flush_mdns(&mut self) {
        while let Some(transmit) =
            self.names.as_mut().and_then(|names| names.mdns.as_mut()?.poll_transmit())
        {
            self.send_mdns(transmit.to, &transmit.bytes);
        }
    }

    /// Sends a message of multicast DNS to both groups, or to a host.
    fn send_mdns(&mut self, to: Destination, bytes: &[u8]) {
        let index = self.link.as_ref().map_or(0, |(_, index)| *index);
        for at in 0..self.ports.len() {
            let Service::Mdns(address) = self.ports[at].service else { continue };
            let group: SocketAddr = match address {
                Some(_) => (mdns::GROUP_V4, mdns::PORT).into(),
                None => SocketAddrV6::new(mdns::GROUP_V6, mdns::PORT, 0, index).into(),
            };
            let to = match to {
                Destination::Group => group,
                Destination::Host(host) if host.is_ipv4() == address.is_some() => host,
                Destination::Host(_) => continue,
            };
            self.send(at, Datagram::new(bytes, to, address.map(Ipv4Addr::into)));
        }
    }

    /// Opens what is not open. `is_first`: whether it is reported what cannot be.
    fn open_missing(&mut self, now: Time, is_first: bool) {
        let Some((name, index)) = self.link.clone() else { return };
        for service in std::mem::take(&mut self.missing) {
            match self.open_one(service, &name, index) {
                Ok(()) if is_first => {}
                Ok(()) => self.lines.push(format!("LAN: {service} is offered")),
                Err(error) => {
                    self.missing.push(service);
                    if is_first {
                        self.lines.push(format!("LAN: {service} is not offered: {error}"));
                    }
                }
            }
        }
        self.retry_at = (!self.missing.is_empty()).then(|| now + RETRY);
    }

    fn open_one(&mut self, service: Service, name: &str, index: u32) -> io::Result<()> {
        let socket = service.open(name, index)?;
        if matches!(service, Service::DnsTcp(_)) {
            let socket = TcpListener::from_std(socket.into())?;
            self.listeners.push(Listener { service, socket });
        } else {
            self.ports.push(Port { service, socket: watch_reading(socket)? });
        }
        Ok(())
    }

    fn restore(&mut self, now: Time) {
        let Some(addresses) = &mut self.addresses else { return };
        match leases::load(&self.directory) {
            Ok(text) => {
                let bad = addresses.dhcp.leases_mut().restore(now, &text);
                if bad > 0 {
                    self.lines.push(format!("LAN: {bad} lines of the leases are not used"));
                }
            }
            Err(error) => self.lines.push(format!("LAN: the leases are not read: {error}")),
        }
    }

    fn save(&mut self, now: Time) {
        let Some(addresses) = &mut self.addresses else { return };
        addresses.save_at = None;
        let text = addresses.dhcp.leases().to_text(now);
        if let Err(error) = leases::save(&self.directory, &text) {
            self.lines.push(format!("LAN: the leases are not written: {error}"));
        }
    }

    /// Adds a line about clients that were not served, at most once a minute.
    fn report_limits(&mut self, now: Time) {
        let (before, at) = self.reported;
        if now.since(at) < REPORT {
            return;
        }
        let dhcp = self.addresses.as_ref().map(|addresses| addresses.dhcp.counters());
        let dhcp = dhcp.unwrap_or_default();
        let dns = self
            .names
            .as_ref()
            .map(|names| names.dns.lock().unwrap_or_else(PoisonError::into_inner).counters());
        let limits = Limits {
            unavailable: dhcp.unavailable,
            declined: dhcp.declined,
            limited: dhcp.limited + dns.map_or(0, |dns| dns.limited),
        };
        if limits == before {
            return;
        }
        self.reported = (limits, now);
        self.lines.push(format!(
            "LAN: {} requests got no address, {} addresses are used by other hosts, {} messages exceeded \
             the share of their source",
            limits.unavailable - before.unavailable,
            limits.declined - before.declined,
            limits.limited - before.limited
        ));
    }
}

impl core::fmt::Debug for Services {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "Services({} open, {} missing)",
            self.ports.len() + self.listeners.len(),
            self.missing.len()
        )
    }
}
