//! A DHCPv4 server on one link (RFC 2131), for phones that know nothing else: with an address they learn the SIP server
//! (RFC 3361).
//!
//! Every router of the mesh has the same address and the same network, and is the only server of its LAN. So a client
//! that comes from another router, and asks for the address that it had, learns at once that it may keep it, or that it
//! may not.
//!
//! Answers go to 255.255.255.255, or to a client that has an address of this network. Messages of relay agents are not
//! answered, and their option (RFC 3046) is not read.

mod leases;
mod message;

use core::net::{Ipv4Addr, SocketAddrV4};

use dhcproto::v4::{DhcpOption, DhcpOptions};
use hickory_proto::rr::Name;
use ringway_sansio::Time;
use ringway_sansio::time::Duration;

pub use leases::{
    Client, LEASE, Leases, MAX_LEASES, MAX_OF_HARDWARE, MAX_TEXT, OFFER, QUARANTINE, Unavailable,
};
pub(crate) use message::encode_name;
pub use message::{MAX_MESSAGE, MIN_MESSAGE, MessageType, Request, SipEncoding};

use crate::dns::below;
use crate::share::Shares;
use crate::site::{Ipv4Lan, Site};

/// Ports of servers and clients (RFC 2131 section 4.1).
pub const SERVER_PORT: u16 = 67;
/// Port of clients.
pub const CLIENT_PORT: u16 = 68;

/// Messages a second of one hardware address, and at once.
const RATE: u32 = 5;
const BURST: u32 = 20;

/// Codes of the options that a client may leave out of what it asks for.
const ROUTER: u8 = 3;
const DNS_SERVER: u8 = 6;
const DOMAIN_NAME: u8 = 15;
const BROADCAST: u8 = 28;
const SIP_SERVERS: u8 = 120;

/// An answer, and where it goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The client's address, or that of all hosts of the link.
    pub to: SocketAddrV4,
    /// The message.
    pub bytes: Vec<u8>,
}

/// Numbers of what has happened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Addresses that were offered.
    pub offered: u64,
    /// Leases that were given or extended, and questions without one that were answered.
    pub acknowledged: u64,
    /// Clients that were refused the address which they asked for.
    pub refused: u64,
    /// Addresses that other hosts were found to use.
    pub declined: u64,
    /// Clients that got no address, because there was none, or they had too many.
    pub unavailable: u64,
    /// Messages of hardware addresses that have sent too many.
    pub limited: u64,
    /// What is no message of a client, or not for this server.
    pub dropped: u64,
}

/// What clients learn of the SIP server and of names.
#[derive(Clone, Debug)]
struct Names {
    domain: String,
    host: Name,
}

/// The server.
#[derive(Clone, Debug)]
pub struct Dhcp4 {
    lan: Ipv4Lan,
    names: Option<Names>,
    encoding: SipEncoding,
    leases: Leases,
    shares: Shares<[u8; 8]>,
    counters: Counters,
}

impl Dhcp4 {
    /// A server on a network. With a site, clients learn its domain, and that the router is their server of names and of
    /// SIP.
    pub fn new(lan: Ipv4Lan, site: Option<&Site>, encoding: SipEncoding) -> Dhcp4 {
        let names = site.map(|site| Names {
            domain: site.sip().domain.clone(),
            host: below(&["sip"], site.domain()),
        });
        Dhcp4 {
            lan,
            names,
            encoding,
            leases: Leases::new(lan),
            shares: Shares::new(RATE, BURST),
            counters: Counters::default(),
        }
    }

    /// Returns the numbers of what has happened.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns who has which address.
    pub fn leases(&self) -> &Leases {
        &self.leases
    }

    /// Returns who has which address, to be restored, or written when it has changed.
    pub fn leases_mut(&mut self) -> &mut Leases {
        &mut self.leases
    }

    /// Handles a message that came from the LAN. Returns the answer, if it deserves one.
    pub fn handle(&mut self, now: Time, bytes: &[u8]) -> Option<Reply> {
        let Some(request) = Request::parse(bytes).filter(|request| request.giaddr.is_unspecified())
        else {
            self.counters.dropped += 1;
            return None;
        };
        let identifier = request.identifier.as_deref();
        let client = Client::new(request.hardware_kind, &request.hardware, identifier);
        if !self.shares.allows(now, client.hardware()) {
            self.counters.limited += 1;
            return None;
        }
        match request.kind {
            MessageType::Discover => self.discover(now, client, &request),
            MessageType::Request => self.request(now, client, &request),
            MessageType::Decline if self.is_for_us(&request) => {
                let declined = request
                    .requested
                    .is_some_and(|address| self.leases.decline(now, &client, address));
                self.counters.declined += u64::from(declined);
                None
            }
            MessageType::Release if self.is_for_us(&request) => {
                self.leases.release(now, &client, request.ciaddr);
                None
            }
            MessageType::Inform => self.inform(&request),
            _ => {
                self.counters.dropped += 1;
                None
            }
        }
    }

    fn is_for_us(&self, request: &Request) -> bool {
        request.server == Some(self.lan.address())
    }

    /// Offers an address (RFC 2131 section 4.3.1).
    fn discover(&mut self, now: Time, client: Client, request: &Request) -> Option<Reply> {
        match self.leases.offer(now, client, request.requested) {
            Ok(address) => {
                self.counters.offered += 1;
                self.reply(request, MessageType::Offer, Some(address))
            }
            Err(_) => {
                self.counters.unavailable += 1;
                None
            }
        }
    }

    /// Leases an address, or refuses it (RFC 2131 section 4.3.2).
    fn request(&mut self, now: Time, client: Client, request: &Request) -> Option<Reply> {
        let has_address = !request.ciaddr.is_unspecified();
        let wanted = match (request.server, request.requested) {
            // SELECTING.
            (Some(server), Some(wanted)) if server == self.lan.address() => wanted,
            // The client has chosen another server.
            (Some(_), _) => {
                self.leases.withdraw(now, &client);
                return None;
            }
            // RENEWING or REBINDING.
            (None, _) if has_address => request.ciaddr,
            // INIT-REBOOT: the client was connected elsewhere, or is after a restart.
            (None, Some(wanted)) => wanted,
            (None, None) => {
                self.counters.dropped += 1;
                return None;
            }
        };
        match self.leases.bind(now, client, wanted) {
            Ok(()) => {
                self.counters.acknowledged += 1;
                self.reply(request, MessageType::Ack, Some(wanted))
            }
            Err(why) => {
                self.counters.refused += 1;
                self.counters.unavailable += u64::from(why.is_some());
                self.reply(request, MessageType::Nak, None)
            }
        }
    }

    /// Answers a client that has an address by other means (RFC 2131 section 4.3.5).
    fn inform(&mut self, request: &Request) -> Option<Reply> {
        if !self.lan.is_host(request.ciaddr) {
            self.counters.dropped += 1;
            return None;
        }
        self.counters.acknowledged += 1;
        self.reply(request, MessageType::Ack, None)
    }

    /// Returns an answer with a leased address, or without one.
    fn reply(
        &self,
        request: &Request,
        kind: MessageType,
        leased: Option<Ipv4Addr>,
    ) -> Option<Reply> {
        let mut options = DhcpOptions::new();
        options.insert(DhcpOption::MessageType(kind));
        options.insert(DhcpOption::ServerIdentifier(self.lan.address()));
        if let Some(identifier) = &request.identifier {
            // RFC 6842.
            options.insert(DhcpOption::ClientIdentifier(identifier.clone()));
        }
        if kind == MessageType::Nak {
            options.insert(DhcpOption::Message("the address is not free here".to_owned()));
        } else {
            self.describe_network(request, &mut options);
        }
        if leased.is_some() {
            describe_lease(&mut options);
        }
        let keeps_address = kind == MessageType::Ack && self.lan.is_host(request.ciaddr);
        let none = Ipv4Addr::UNSPECIFIED;
        let ciaddr = if keeps_address { request.ciaddr } else { none };
        let to = if keeps_address { request.ciaddr } else { Ipv4Addr::BROADCAST };
        let bytes = message::encode(request, ciaddr, leased.unwrap_or(none), options)?;
        Some(Reply { to: SocketAddrV4::new(to, CLIENT_PORT), bytes })
    }

    /// Adds what a client learns of the network: the mask always, and the rest of what it asks for.
    fn describe_network(&self, request: &Request, options: &mut DhcpOptions) {
        let address = self.lan.address();
        options.insert(DhcpOption::SubnetMask(self.lan.mask()));
        if request.wants(ROUTER) {
            options.insert(DhcpOption::Router(vec![address]));
        }
        if request.wants(BROADCAST) {
            options.insert(DhcpOption::BroadcastAddr(self.lan.broadcast()));
        }
        let Some(names) = &self.names else { return };
        if request.wants(DNS_SERVER) {
            options.insert(DhcpOption::DomainNameServer(vec![address]));
        }
        if request.wants(DOMAIN_NAME) {
            options.insert(DhcpOption::DomainName(names.domain.clone()));
        }
        if request.wants(SIP_SERVERS)
            && let Some(option) = message::sip_servers(self.encoding, address, &names.host)
        {
            options.insert(option);
        }
    }
}

/// Adds the times of a lease (RFC 2131 section 4.4.5).
fn describe_lease(options: &mut DhcpOptions) {
    let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    options.insert(DhcpOption::AddressLeaseTime(seconds(LEASE)));
    options.insert(DhcpOption::Renewal(seconds(LEASE / 2)));
    options.insert(DhcpOption::Rebinding(seconds(LEASE * 7 / 8)));
}

#[cfg(test)]
mod tests;
