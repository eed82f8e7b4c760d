//! Requests to the kernel: lists and changes of links, addresses and routes.

use super::message::{
    self, ADDRESS, IFA_ADDRESS, IFA_CACHEINFO, IFA_FLAGS, IFA_LOCAL, LINK, Message, Messages,
    Request,
};
use super::socket::{self, BUFFER};
use super::{Address, Link};
use socket2::Socket;
use std::fmt;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Time after which a request without an answer fails. The kernel answers at once, unless others keep its lock.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of times that a list is requested again because it changed while it was read.
const MAX_REPEATS: usize = 8;
/// Size of `rtmsg`, the fixed part of a message about a route, in octets.
const ROUTE: usize = 12;

/// A failed request: what was to be done, and why it was not.
#[derive(Debug)]
#[non_exhaustive]
pub struct NetlinkError {
    /// The operation, such as "add".
    pub operation: &'static str,
    /// What it was applied to, such as "address fd00::1/64 of rw0".
    pub object: String,
    /// The kernel's explanation, where it gave one.
    pub explanation: Option<String>,
    /// The error of the system.
    pub cause: io::Error,
}

impl fmt::Display for NetlinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}", self.operation, self.object, self.cause)?;
        match &self.explanation {
            Some(explanation) => write!(f, ": {explanation}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for NetlinkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// Why a request failed: the error, and the kernel's explanation.
struct Failure(io::Error, Option<String>);

impl Failure {
    fn of(self, operation: &'static str, object: String) -> NetlinkError {
        NetlinkError { operation, object, explanation: self.1, cause: self.0 }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure(error, None)
    }
}

/// Length in octets of `struct fib_rule_hdr` (linux/fib_rules.h).
const RULE: usize = 12;
/// Attributes and the action of a rule (linux/fib_rules.h).
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FR_ACT_PROHIBIT: u8 = 8;
/// Priority of the rules that refuse: before the main table.
const REFUSING: u32 = 5_267;

/// An IPv6 route through an interface, in the main table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The network.
    pub destination: Ipv6Addr,
    /// The number of bits of `destination` that count.
    pub prefix_length: u8,
    /// The index of the interface.
    pub interface: u32,
    /// The next router; `None` where the interface itself leads to the network.
    pub gateway: Option<Ipv6Addr>,
    /// The metric: of routes to the same network the one with the least is used. 0 is the system's default, 1,024.
    pub metric: u32,
}

/// A connection to the kernel's tables of links, addresses and routes. Changes need CAP_NET_ADMIN.
///
/// A call blocks until the kernel has answered. That takes microseconds; the kernel does what is requested before
/// send(2) returns.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    /// The number of the last request, by which its answer is known.
    sequence: u32,
}

impl Netlink {
    /// Opens a connection to the network namespace of the thread.
    ///
    /// # Errors
    /// The error of the system call that failed.
    pub fn open() -> io::Result<Netlink> {
        let socket = socket::open(0)?;
        socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Returns all links.
    ///
    /// # Errors
    /// As [`Netlink::link`].
    pub fn links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        self.list(libc::RTM_GETLINK, &[0; LINK], libc::RTM_NEWLINK, message::link)
            .map_err(|failure| failure.of("list", "links".to_owned()))
    }

    /// Returns all addresses of all links.
    ///
    /// # Errors
    /// As [`Netlink::link`].
    pub fn addresses(&mut self) -> Result<Vec<Address>, NetlinkError> {
        self.list(libc::RTM_GETADDR, &[0; ADDRESS], libc::RTM_NEWADDR, message::address)
            .map_err(|failure| failure.of("list", "addresses".to_owned()))
    }

    /// Returns the link of this name.
    ///
    /// # Errors
    /// A [`NetlinkError`] with the kernel's error, such as "No such device"; with `InvalidData` where its answer cannot
    /// be parsed, and `TimedOut` where it does not answer within 5 seconds.
    pub fn link(&mut self, name: &str) -> Result<Link, NetlinkError> {
        const MAX_NAME: usize = libc::IFNAMSIZ - 1;
        let fail = |failure: Failure| failure.of("find", format!("link {name:?}"));
        if name.is_empty() || name.len() > MAX_NAME || name.bytes().any(|b| b == 0) {
            let text = format!("expected a name of 1 to {MAX_NAME} octets");
            return Err(fail(io::Error::new(io::ErrorKind::InvalidInput, text).into()));
        }
        let name = [name.as_bytes(), b"\0"].concat();
        let request =
            Request::new(libc::RTM_GETLINK, 0, &[0; LINK]).attribute(libc::IFLA_IFNAME, &name);
        self.find(request).map_err(fail)
    }

    /// Adds an address to the link `interface`. It is used without duplicate address detection
    /// (`IFA_F_NODAD`), and for ever. Packets to it are received a moment later, when a [`Monitor`](super::Monitor)
    /// reports it. An address that the link has already is left alone, and is an error ("File exists").
    ///
    /// # Errors
    /// As [`Netlink::link`].
    pub fn add_address(
        &mut self,
        interface: u32,
        ip: impl Into<IpAddr>,
        prefix_length: u8,
    ) -> Result<(), NetlinkError> {
        self.add_address_for(interface, ip.into(), prefix_length, PREFERRED)
    }

    /// Adds an address as [`Netlink::add_address`] does, one that is deprecated (RFC 4862 section 5.5.4): a program uses it
    /// as a source only if it asks for it.
    ///
    /// # Errors
    /// As [`Netlink::link`].
    pub fn add_spare_address(
        &mut self,
        interface: u32,
        ip: impl Into<IpAddr>,
        prefix_length: u8,
    ) -> Result<(), NetlinkError> {
        self.add_address_for(interface, ip.into(), prefix_length, 0)
    }

    /// Adds an address that is preferred for so many seconds, and valid for ever.
    fn add_address_for(
        &mut self,
        interface: u32,
        ip: IpAddr,
        prefix_length: u8,
        preferred: u32,
    ) -> Result<(), NetlinkError> {
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        // linux/if_addr.h, ifa_cacheinfo: preferred, valid, and two times that the kernel fills in.
        let lifetimes = [preferred, PREFERRED, 0, 0].map(u32::to_ne_bytes).concat();
        let request = address_request(libc::RTM_NEWADDR, flags, interface, ip, prefix_length)
            .attribute(IFA_FLAGS, &libc::IFA_F_NODAD.to_ne_bytes())
            .attribute(IFA_CACHEINFO, &lifetimes);
        self.change(request)
            .map_err(|failure| failure.of("add", self.address_name(interface, ip, prefix_length)))
    }

    /// Removes an address from the link `interface`.
    ///
    /// # Errors
    /// As [`Netlink::link`].
    pub fn remove_address(
        &mut self,
        interface: u32,
        ip: impl Into<IpAddr>,
        prefix_length: u8,
    ) -> Result<(), NetlinkError> {
        let ip = ip.into();
        let request = address_request(libc::RTM_DELADDR, 0, interface, ip, prefix_length);
        self.change(request).map_err(|failure| {
            failure.of("remove", self.address_name(interface, ip, prefix_length))
        })
    }

    /// Adds a route. One with the same network and metric is left alone, and is an error ("File exists").
    ///
    /// # Errors
    /// As [`Netlink::link`].
    pub fn add_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let request = route_request(libc::RTM_NEWROUTE, flags, route);
        self.change(request).map_err(|failure| failure.of("add", self.route_name(route)))
    }

    /// Adds the route for all IPv4 packets that have no other, through an interface that leads there by itself.
    ///
    /// # Errors
    /// As [`Netlink::link`].
    pub fn add_default_ipv4_route(&mut self, interface: u32) -> Result<(), NetlinkError> {
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let request = Request::new(libc::RTM_NEWROUTE, flags, &route_header(libc::AF_INET, 0))
            .attribute(libc::RTA_OIF, &interface.to_ne_bytes());
        self.change(request).map_err(|failure| {
            failure.of("add", format!("route 0.0.0.0/0 on {}", self.link_name(interface)))
        })
    }

    /// Removes a route.
    ///
    /// # Errors
    /// As [`Netlink::link`].
    pub fn remove_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        let request = route_request(libc::RTM_DELROUTE, 0, route);
        self.change(request).map_err(|failure| failure.of("remove", self.route_name(route)))
    }

    /// Has the kernel refuse to forward what comes from the link named `interface` with the source address `source`. A rule
    /// that there is already is left alone, and is an error ("File exists").
    ///
    /// # Errors
    /// As [`Netlink::link`].
    pub fn refuse_source(&mut self, interface: &str, source: Ipv6Addr) -> Result<(), NetlinkError> {
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let mut header = [0; RULE];
        (header[0], header[2]) = (libc::AF_INET6 as u8, 128);
        (header[4], header[7]) = (libc::RT_TABLE_UNSPEC, FR_ACT_PROHIBIT);
        let name = [interface.as_bytes(), b"\0"].concat();
        let request = Request::new(libc::RTM_NEWRULE, flags, &header)
            .attribute(FRA_SRC, &source.octets())
            .attribute(FRA_IIFNAME, &name)
            .attribute(FRA_PRIORITY, &REFUSING.to_ne_bytes());
        self.change(request)
            .map_err(|failure| failure.of("add", format!("rule against {source} from {interface}")))
    }

    /// Sets the MTU of a link, in octets.
    ///
    /// # Errors
    /// As [`Netlink::link`].
    pub fn set_mtu(&mut self, interface: u32, mtu: u32) -> Result<(), NetlinkError> {
        let request = Request::new(libc::RTM_NEWLINK, 0, &link_header(interface, 0))
            .attribute(libc::IFLA_MTU, &mtu.to_ne_bytes());
        self.change(request).map_err(|failure| {
            failure.of("set", format!("MTU {mtu} of {}", self.link_name(interface)))
        })
    }

    /// Brings a link up.
    ///
    /// # Errors
    /// As [`Netlink::link`].
    pub fn set_up(&mut self, interface: u32) -> Result<(), NetlinkError> {
        let header = link_header(interface, libc::IFF_UP as u32);
        self.change(Request::new(libc::RTM_NEWLINK, 0, &header))
            .map_err(|failure| failure.of("bring up", self.link_name(interface)))
    }

    /// Returns the name of a link for an error.
    fn link_name(&mut self, interface: u32) -> String {
        let request = Request::new(libc::RTM_GETLINK, 0, &link_header(interface, 0));
        self.find(request).map_or_else(|_| format!("link number {interface}"), |link| link.name)
    }

    fn address_name(&mut self, interface: u32, ip: IpAddr, prefix_length: u8) -> String {
        format!("address {ip}/{prefix_length} of {}", self.link_name(interface))
    }

    fn route_name(&mut self, route: &Route) -> String {
        let Route { destination, prefix_length, interface, gateway, .. } = *route;
        let through = self.link_name(interface);
        match gateway {
            Some(gateway) => {
                format!("route {destination}/{prefix_length} by {gateway} on {through}")
            }
            None => format!("route {destination}/{prefix_length} on {through}"),
        }
    }

    /// Sends a request for a single link and returns it.
    fn find(&mut self, request: Request) -> Result<Link, Failure> {
        let mut found = None;
        self.exchange(request, |message| {
            if message.kind == libc::RTM_NEWLINK {
                found = message::link(message.body);
            }
        })?;
        found.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData).into())
    }

    /// Sends a request for a change.
    fn change(&mut self, request: Request) -> Result<(), Failure> {
        self.exchange(request, |_| {})
    }

    /// Requests all objects of one kind, and parses those of the answer.
    fn list<T>(
        &mut self,
        request: u16,
        fixed: &[u8],
        kind: u16,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, Failure> {
        for _ in 0..MAX_REPEATS {
            let (mut found, mut interrupted) = (Vec::new(), false);
            self.exchange(Request::new(request, libc::NLM_F_DUMP, fixed), |message| {
                interrupted |= libc::c_int::from(message.flags) & libc::NLM_F_DUMP_INTR != 0;
                if message.kind == kind {
                    found.extend(parse(message.body));
                }
            })?;
            if !interrupted {
                return Ok(found);
            }
        }
        let text = format!("the list changed {MAX_REPEATS} times while it was read");
        Err(io::Error::other(text).into())
    }

    /// Sends a request and passes each message of its answer to `handle`, until the answer is complete.
    fn exchange(
        &mut self,
        request: Request,
        mut handle: impl FnMut(&Message<'_>),
    ) -> Result<(), Failure> {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        self.socket.send(&request.finish(sequence))?;
        let mut buffer = vec![0; BUFFER];
        loop {
            let got = match (&self.socket).read(&mut buffer) {
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::from(io::ErrorKind::TimedOut).into());
                }
                Err(error) => return Err(error.into()),
            };
            for message in Messages(&buffer[..got]) {
                let message = message?;
                // An answer that came too late for an earlier request is skipped.
                if message.sequence != sequence {
                    continue;
                }
                match libc::c_int::from(message.kind) {
                    libc::NLMSG_DONE | libc::NLMSG_ERROR => return result(&message),
                    _ => handle(&message),
                }
            }
        }
    }
}

/// Returns what the last message of an answer reports.
fn result(message: &Message<'_>) -> Result<(), Failure> {
    match message::answer(message) {
        Some((0, _)) => Ok(()),
        Some((code, explanation)) => Err(Failure(io::Error::from_raw_os_error(code), explanation)),
        None => Err(io::Error::from(io::ErrorKind::InvalidData).into()),
    }
}

/// Returns the fixed part of a message about a link, which sets `flags`.
fn link_header(interface: u32, flags: u32) -> [u8; LINK] {
    let mut header = [0; LINK];
    header[4..8].copy_from_slice(&interface.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..].copy_from_slice(&flags.to_ne_bytes());
    header
}

/// Lifetime of an address for ever.
const PREFERRED: u32 = u32::MAX;

fn address_request(
    kind: u16,
    flags: libc::c_int,
    interface: u32,
    ip: IpAddr,
    prefix_length: u8,
) -> Request {
    let (family, octets) = match ip {
        IpAddr::V4(ip) => (libc::AF_INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (libc::AF_INET6, ip.octets().to_vec()),
    };
    let mut header = [family as u8, prefix_length, 0, 0, 0, 0, 0, 0];
    header[4..].copy_from_slice(&interface.to_ne_bytes());
    let request = Request::new(kind, flags, &header);
    request.attribute(IFA_LOCAL, &octets).attribute(IFA_ADDRESS, &octets)
}

fn route_request(kind: u16, flags: libc::c_int, route: &Route) -> Request {
    let header = route_header(libc::AF_INET6, route.prefix_length);
    let mut request = Request::new(kind, flags, &header)
        .attribute(libc::RTA_DST, &route.destination.octets())
        .attribute(libc::RTA_OIF, &route.interface.to_ne_bytes());
    if let Some(gateway) = route.gateway {
        request = request.attribute(libc::RTA_GATEWAY, &gateway.octets());
    }
    if route.metric != 0 {
        request = request.attribute(libc::RTA_PRIORITY, &route.metric.to_ne_bytes());
    }
    request
}

/// Returns the fixed part of a message about a route in the main table.
fn route_header(family: libc::c_int, prefix_length: u8) -> [u8; ROUTE] {
    let mut header = [0; ROUTE];
    header[0] = family as u8;
    header[1] = prefix_length;
    header[4] = libc::RT_TABLE_MAIN;
    header[5] = libc::RTPROT_STATIC;
    header[6] = libc::RT_SCOPE_UNIVERSE;
    header[7] = libc::RTN_UNICAST;
    header
}
