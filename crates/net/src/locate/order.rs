//! The decisions of RFC 3263, as functions of DNS answers. Nothing here queries DNS, reads a clock or draws
//! random numbers of its own.

use ringway_sansio::{Hop, Random, Transport};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of services looked up for one domain: one for each transport, and some duplicates.
pub const MAX_SERVICES: usize = 8;
/// Maximum number of SRV records used of one service; those of the lowest priority are dropped.
pub const MAX_SRV: usize = 32;
/// Maximum number of hops returned for one query.
pub const MAX_HOPS: usize = 32;

/// The destination of a request, from its next-hop URI.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Query {
    /// The host part (or the `maddr` parameter), a name or a literal address, IPv6 with or without
    /// brackets.
    pub host: Box<str>,
    /// The port, where the URI has one.
    pub port: Option<u16>,
    /// The transport, where the URI names one.
    pub transport: Option<Transport>,
    /// Whether the URI is a `sips` one.
    pub secure: bool,
}

/// A host to reach over a transport at a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Server {
    pub(crate) transport: Transport,
    pub(crate) host: Box<str>,
    pub(crate) port: u16,
}

/// A name that may have SRV records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Service {
    pub(crate) transport: Transport,
    pub(crate) name: Box<str>,
}

/// A NAPTR record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Naptr {
    pub(crate) order: u16,
    pub(crate) preference: u16,
    pub(crate) flags: Box<[u8]>,
    pub(crate) services: Box<[u8]>,
    pub(crate) regexp: Box<[u8]>,
    pub(crate) replacement: Box<str>,
}

/// An SRV record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Srv {
    pub(crate) priority: u16,
    pub(crate) weight: u16,
    pub(crate) port: u16,
    pub(crate) target: Box<str>,
}

/// The next step of a query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// The hop is known.
    Known(Hop),
    /// No transport serves the URI.
    Nowhere,
    /// Fetch the addresses of this server's host.
    Addresses(Server),
    /// Fetch the SRV records of each service, in this order; where none has any, the addresses of the server.
    Services(Vec<Service>, Server),
    /// Fetch the NAPTR records of the host.
    Naptr,
}

impl Step {
    /// Returns the server whose addresses are tried where there is no SRV record.
    pub(crate) fn server(self) -> Option<Server> {
        match self {
            Step::Addresses(server) | Step::Services(_, server) => Some(server),
            Step::Known(_) | Step::Nowhere | Step::Naptr => None,
        }
    }
}

/// Returns the secure form of a transport, for a `sips` URI (RFC 3261 section 26.2.2).
fn secured(transport: Transport) -> Option<Transport> {
    match transport {
        Transport::Tcp | Transport::Tls => Some(Transport::Tls),
        Transport::Sctp | Transport::TlsSctp => Some(Transport::TlsSctp),
        Transport::Ws | Transport::Wss => Some(Transport::Wss),
        Transport::Udp => None,
    }
}

/// Returns the first step of a query (RFC 3263 sections 4.1 and 4.2). `available` are the transports that can
/// be sent on, the best first.
pub(crate) fn first_step(query: &Query, available: &[Transport]) -> Step {
    let literal = literal(&query.host);
    // An explicit transport is used; a literal address or a port without one means UDP or TLS.
    let default = if query.secure { Transport::Tls } else { Transport::Udp };
    let explicit = match query.transport {
        Some(transport) if query.secure => match secured(transport) {
            Some(transport) => Some(transport),
            None => return Step::Nowhere,
        },
        other => other,
    };
    let fallback = explicit.or_else(|| fallback(query.secure, available)).unwrap_or(default);
    if !available.contains(&fallback) {
        return Step::Nowhere;
    }
    let port = query.port.unwrap_or_else(|| fallback.default_port());
    if let Some(ip) = literal {
        let addr = SocketAddr::new(ip, port);
        return Step::Known(Hop { transport: fallback, addr, name: None });
    }
    let server = Server { transport: fallback, host: query.host.clone(), port };
    match (query.port, explicit) {
        (Some(_), _) => Step::Addresses(server),
        (None, Some(transport)) => match service_name(transport, &query.host) {
            Some(name) => Step::Services(vec![Service { transport, name }], server),
            None => Step::Addresses(server),
        },
        (None, None) => Step::Naptr,
    }
}

/// Returns the transport where nothing names one: UDP, or TLS for `sips`; the best available one where those
/// are not (section 4.1 leaves the choice).
fn fallback(secure: bool, available: &[Transport]) -> Option<Transport> {
    let default = if secure { Transport::Tls } else { Transport::Udp };
    let fits = |t: &Transport| !secure || t.is_secure();
    available
        .iter()
        .copied()
        .find(|t| *t == default)
        .or_else(|| available.iter().copied().find(fits))
}

/// Parses a host that is an address.
fn literal(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    bare.parse().ok()
}

/// Returns the name of a transport's SRV records (RFC 3263 section 4.2, RFC 4168 section 5.1).
fn service_name(transport: Transport, host: &str) -> Option<Box<str>> {
    let prefix = match transport {
        Transport::Udp => "_sip._udp.",
        Transport::Tcp => "_sip._tcp.",
        Transport::Tls => "_sips._tcp.",
        Transport::Sctp => "_sip._sctp.",
        Transport::TlsSctp => "_sips._sctp.",
        // RFC 7118 section 5.4 leaves finding a WebSocket server to the application.
        Transport::Ws | Transport::Wss => return None,
    };
    Some([prefix, host].concat().into())
}

/// Returns the transport of a NAPTR service field (RFC 3263 section 4.1).
fn naptr_transport(services: &[u8]) -> Option<Transport> {
    const NAMES: [(&[u8], Transport); 5] = [
        (b"SIP+D2U", Transport::Udp),
        (b"SIP+D2T", Transport::Tcp),
        (b"SIPS+D2T", Transport::Tls),
        (b"SIP+D2S", Transport::Sctp),
        (b"SIPS+D2S", Transport::TlsSctp),
    ];
    NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(services)).map(|(_, t)| *t)
}

/// Returns the step after the NAPTR records (RFC 3263 section 4.1): their services, or without usable
/// records those of the available transports.
pub(crate) fn after_naptr(query: &Query, available: &[Transport], records: &[Naptr]) -> Step {
    let mut usable: Vec<(&Naptr, Transport)> = records
        .iter()
        .filter(|r| r.flags.eq_ignore_ascii_case(b"s") && r.regexp.is_empty())
        .filter(|r| !r.replacement.is_empty())
        .filter_map(|r| naptr_transport(&r.services).map(|t| (r, t)))
        .filter(|(_, t)| available.contains(t) && (!query.secure || t.is_secure()))
        .collect();
    // RFC 3403 section 4.1: once a record of one order fits, those of other orders do not count.
    let order = usable.iter().map(|(r, _)| r.order).min();
    usable.retain(|(r, _)| Some(r.order) == order);
    usable.sort_by_key(|(r, _)| r.preference);
    let mut services: Vec<Service> = usable
        .into_iter()
        .map(|(r, transport)| Service { transport, name: r.replacement.clone() })
        .collect();
    if services.is_empty() {
        // "_sip" for SIP URIs and "_sips" for SIPS URIs, for each available transport.
        services = available
            .iter()
            .filter(|t| t.is_secure() == query.secure)
            .filter_map(|t| Some(Service { transport: *t, name: service_name(*t, &query.host)? }))
            .collect();
    }
    services.truncate(MAX_SERVICES);
    let transport = match services.first() {
        // Section 4.2: without SRV records, the transport NAPTR chose at its default port.
        Some(service) if order.is_some() => service.transport,
        _ => match fallback(query.secure, available) {
            Some(transport) => transport,
            None => return Step::Nowhere,
        },
    };
    let port = transport.default_port();
    let server = Server { transport, host: query.host.clone(), port };
    if services.is_empty() { Step::Addresses(server) } else { Step::Services(services, server) }
}

/// The DNS records of one query.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Records {
    /// The SRV records of each service that has some, in the order to try the services.
    pub(crate) services: Vec<(Transport, Vec<Srv>)>,
    /// The server to try where there are none.
    pub(crate) server: Option<Server>,
    /// The addresses of each host, the best first.
    pub(crate) addresses: HashMap<Box<str>, Vec<IpAddr>>,
}

impl Records {
    /// Returns the hops in the order to try them: services in turn, within each the order of RFC 2782, and
    /// each target's addresses in turn (RFC 3263 sections 4.2 and 4.3).
    pub(crate) fn hops(&self, query: &Query, random: &mut dyn Random) -> Vec<Hop> {
        let name: Arc<str> = query.host.trim_end_matches('.').into();
        let mut hops = Vec::new();
        let mut add = |transport: Transport, host: &str, port| {
            for ip in self.addresses.get(host).into_iter().flatten() {
                let name = transport.is_secure().then(|| name.clone());
                let hop = Hop { transport, addr: SocketAddr::new(*ip, port), name };
                if hops.len() < MAX_HOPS && !hops.contains(&hop) {
                    hops.push(hop);
                }
            }
        };
        for (transport, records) in &self.services {
            for record in order_srv(records, random) {
                add(*transport, &record.target, record.port);
            }
        }
        if let Some(server) = &self.server {
            add(server.transport, &server.host, server.port);
        }
        hops
    }
}

/// The result of fetching the records of one query.
#[derive(Debug)]
pub(crate) struct FetchResult {
    pub(crate) found: Records,
    /// The lifetime of the records, by their TTLs.
    pub(crate) lifetime: Duration,
    /// Whether a name server failed to answer a lookup, so that there may be more records.
    pub(crate) failed: bool,
}

/// Returns a service's usable SRV records: none where the service is not offered (RFC 2782, a target of
/// "."), and at most [`MAX_SRV`].
pub(crate) fn usable_srv(mut records: Vec<Srv>) -> Vec<Srv> {
    records.retain(|r| !r.target.is_empty() && r.port != 0);
    records.sort_by_key(|r| r.priority);
    records.truncate(MAX_SRV);
    records
}

/// Orders SRV records (RFC 2782): the lower priority value first; among equals, each next one drawn by weight.
fn order_srv<'a>(records: &'a [Srv], random: &mut dyn Random) -> Vec<&'a Srv> {
    let mut remaining: Vec<&Srv> = records.iter().collect();
    // Records of weight zero first, so that they have a small chance.
    remaining.sort_by_key(|r| (r.priority, r.weight != 0));
    let mut ordered = Vec::with_capacity(remaining.len());
    while let Some(first) = remaining.first() {
        let priority = first.priority;
        let rivals = remaining.iter().take_while(|r| r.priority == priority).count();
        let total: u64 = remaining[..rivals].iter().map(|r| u64::from(r.weight)).sum();
        let draw = random.next_u64() % (total + 1);
        let mut sum = 0;
        let chosen = remaining[..rivals].iter().position(|r| {
            sum += u64::from(r.weight);
            sum >= draw
        });
        ordered.push(remaining.remove(chosen.unwrap_or(0)));
    }
    ordered
}

/// Moves the hops that failed recently behind the others. They are not dropped: where all failed, all
/// are tried.
pub(crate) fn failed_last(hops: &mut [Hop], mut failed: impl FnMut(&Hop) -> bool) {
    hops.sort_by_cached_key(|hop| failed(hop));
}
