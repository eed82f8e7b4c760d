//! The names that are answered: the domain of the mesh, and the reverse names of the LAN.

use core::net::{Ipv4Addr, Ipv6Addr};
use std::collections::BTreeMap;

use hickory_proto::rr::rdata::{A, AAAA, NAPTR, NS, PTR, SOA, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record};
use ringway_mesh::NodeId;

use crate::site::{ANYCAST, Ipv4Lan, Site};

/// Seconds for which an answer may be kept. Short, because a phone that moves keeps it.
const TTL: u32 = 300;
/// Seconds for which the absence of a name may be kept (RFC 2308).
const NEGATIVE_TTL: u32 = 60;
/// Digits of a router's id.
const ID_DIGITS: usize = 16;
/// Labels of a reverse name of IPv6, and of one of a /64.
const NIBBLES: usize = 32;
const PREFIX_NIBBLES: usize = 16;

/// A transport of SIP: its service in a NAPTR record (RFC 3263 section 4.1, RFC 4168 section 5), the labels before the
/// domain in the name of its SRV records, and its port.
struct Way {
    service: &'static str,
    labels: [&'static str; 2],
    port: u16,
}

/// Returns the transports of the SIP server, the one to prefer first. UDP is first, because every phone has it; a
/// certificate of the server is one that few phones know, so TLS is last.
fn ways(site: &Site) -> Vec<Way> {
    let way = |service, labels, port| Way { service, labels, port };
    let sip = site.sip();
    let sctp = sip.sctp.map(|port| way("SIP+D2S", ["_sip", "_sctp"], port));
    let tls = sip.tls.map(|port| way("SIPS+D2T", ["_sips", "_tcp"], port));
    let plain =
        [way("SIP+D2U", ["_sip", "_udp"], sip.udp), way("SIP+D2T", ["_sip", "_tcp"], sip.tcp)];
    plain.into_iter().chain(sctp).chain(tls).collect()
}

/// The records of a router's LAN.
#[derive(Clone, Debug)]
pub struct Zone {
    domain: Name,
    /// The start of authority of each zone.
    starts: Vec<Record>,
    records: BTreeMap<Name, Vec<Record>>,
}

impl Zone {
    /// The records of a site.
    pub fn new(site: &Site) -> Zone {
        let mut zone =
            Zone { domain: site.domain().clone(), starts: Vec::new(), records: BTreeMap::new() };
        zone.start_zone(site.domain().clone());
        zone.add_hosts(site);
        zone.add_server_location(site);
        zone.add_browsing(site);
        zone.add_reverse(site);
        zone
    }

    /// Returns the start of authority of the zone that a name is in, or `None` for a name of no zone here.
    pub fn start(&self, name: &Name) -> Option<&Record> {
        self.starts.iter().find(|start| start.name.zone_of(name))
    }

    /// Returns all names that have records.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.records.keys()
    }

    /// Returns the records of a name, which may be none. `None` if neither the name nor one below it exists
    /// (RFC 8020).
    pub fn records(&self, name: &Name) -> Option<Vec<Record>> {
        if let Some(records) = self.records.get(name) {
            return Some(records.clone());
        }
        if let Some(address) = self.router(name) {
            return Some(vec![Record::from_rdata(name.clone(), TTL, RData::AAAA(AAAA(address)))]);
        }
        self.records.keys().any(|known| name.zone_of(known)).then(Vec::new)
    }

    /// Returns what is asked for next by who gets these answers: the services of NAPTR, the hosts of SRV and NS, and the
    /// instances of PTR records (RFC 2782, RFC 6763 section 12).
    pub fn additional(&self, answers: &[Record]) -> Vec<Record> {
        let mut found: Vec<Record> = Vec::new();
        let mut waiting: Vec<Name> = answers.iter().filter_map(target).cloned().collect();
        while let Some(name) = waiting.pop() {
            for record in self.records.get(&name).into_iter().flatten() {
                let follows = matches!(
                    record.data,
                    RData::A(_) | RData::AAAA(_) | RData::SRV(_) | RData::TXT(_)
                );
                if follows && !found.contains(record) && !answers.contains(record) {
                    waiting.extend(target(record).cloned());
                    found.push(record.clone());
                }
            }
        }
        found
    }

    /// Returns the address of the router that `name` names by its id. It follows from the id, so that every router is
    /// found, whether or not it is there.
    fn router(&self, name: &Name) -> Option<Ipv6Addr> {
        let (label, rest) = (name.iter().next()?, name.base_name());
        let text = str::from_utf8(label).ok()?;
        let is_id = text.len() == ID_DIGITS && text.bytes().all(|b| b.is_ascii_hexdigit());
        let id = u64::from_str_radix(text, 16).ok().filter(|_| is_id && rest == self.domain)?;
        Some(NodeId::new(id).prefix().router())
    }

    fn add(&mut self, name: &Name, data: RData) {
        let record = Record::from_rdata(name.clone(), TTL, data);
        self.records.entry(name.clone()).or_default().push(record);
    }

    /// Adds the records at the top of a zone (RFC 1035 section 3.3.13).
    fn start_zone(&mut self, name: Name) {
        let server = below(&["sip"], &self.domain);
        let mailbox = below(&["hostmaster"], &self.domain);
        let soa = SOA::new(server.clone(), mailbox, 1, 86_400, 7_200, 604_800, NEGATIVE_TTL);
        let start = Record::from_rdata(name.clone(), NEGATIVE_TTL, RData::SOA(soa));
        self.starts.push(start.clone());
        self.records.entry(name.clone()).or_default().push(start);
        self.add(&name, RData::NS(NS(server)));
    }

    /// Adds the addresses: the same for the domain, for the host `sip`, and of every router.
    fn add_hosts(&mut self, site: &Site) {
        for name in [self.domain.clone(), below(&["sip"], &self.domain)] {
            self.add(&name, RData::AAAA(AAAA(ANYCAST)));
            if let Some(lan) = site.ipv4() {
                self.add(&name, RData::A(A(lan.address())));
            }
        }
    }

    /// Adds NAPTR and SRV records, for the domain and for the host, which some phones take for one (RFC 3263
    /// section 4).
    fn add_server_location(&mut self, site: &Site) {
        let host = below(&["sip"], &self.domain);
        for (name, is_domain) in [(self.domain.clone(), true), (host.clone(), false)] {
            for (way, preference) in ways(site).into_iter().zip((10..).step_by(10)) {
                let service = below(&way.labels, &self.domain);
                let naptr = NAPTR::new(
                    10,
                    preference,
                    Box::from(*b"s"),
                    way.service.as_bytes().into(),
                    Box::from(*b""),
                    service.clone(),
                );
                self.add(&name, RData::NAPTR(naptr));
                let service = if is_domain { service } else { below(&way.labels, &host) };
                self.add(&service, RData::SRV(SRV::new(0, 0, way.port, host.clone())));
            }
        }
    }

    /// Adds what DNS-SD browses for: the domain, the kinds of services, and one instance of each, which is the whole
    /// mesh's (RFC 6763 sections 4, 6, 9 and 11).
    fn add_browsing(&mut self, site: &Site) {
        let domain = self.domain.clone();
        let host = below(&["sip"], &domain);
        let browsed = below(&["_services", "_dns-sd", "_udp"], &domain);
        for way in ways(site).iter().filter(|way| way.labels[0] == "_sip") {
            // Whatever is not TCP is below `_udp` (RFC 6763 section 4.1.2); SCTP there would be taken for UDP.
            if way.labels[1] == "_sctp" {
                continue;
            }
            let service = below(&way.labels, &domain);
            let instance = below(&["ringway"], &service);
            self.add(&browsed, RData::PTR(PTR(service.clone())));
            self.add(&service, RData::PTR(PTR(instance.clone())));
            self.add(&instance, RData::SRV(SRV::new(0, 0, way.port, host.clone())));
            self.add(&instance, RData::TXT(TXT::new(service_text(site))));
        }
        for kind in ["b", "lb"] {
            let name = below(&[kind, "_dns-sd", "_udp"], &domain);
            self.add(&name, RData::PTR(PTR(domain.clone())));
        }
    }

    /// Adds the reverse names: of the server, of this router, and of the network that browsing starts from (RFC 1035
    /// section 3.5, RFC 3596 section 2.5, RFC 6763 section 11).
    fn add_reverse(&mut self, site: &Site) {
        let host = below(&["sip"], &self.domain);
        let router = below(&[&site.router().to_string()], &self.domain);
        for (address, target) in
            [(ANYCAST, host.clone()), (site.router().prefix().router(), router)]
        {
            let name = arpa_v6(address);
            self.start_zone(name.trim_to(NIBBLES + 2 - PREFIX_NIBBLES));
            self.add(&name, RData::PTR(PTR(target)));
        }
        if let Some(lan) = site.ipv4() {
            self.start_zone(reverse_zone(lan));
            self.add(&arpa_v4(lan.address()), RData::PTR(PTR(host)));
            for kind in ["b", "lb"] {
                let name = below(&[kind, "_dns-sd", "_udp"], &arpa_v4(lan.network()));
                self.add(&name, RData::PTR(PTR(self.domain.clone())));
            }
        }
    }
}

/// Returns the text of an instance: the domain of the users (RFC 6763 section 6).
pub(crate) fn service_text(site: &Site) -> Vec<String> {
    vec!["txtvers=1".to_owned(), format!("domain={}", site.sip().domain)]
}

/// Returns the name that a record leads to.
fn target(record: &Record) -> Option<&Name> {
    match &record.data {
        RData::NS(NS(name)) | RData::PTR(PTR(name)) => Some(name),
        RData::SRV(srv) => Some(&srv.target),
        RData::NAPTR(naptr) => Some(&naptr.replacement),
        _ => None,
    }
}

/// Returns the name with these labels before another. Labels here have at most 40 octets, and a site's domain at most
/// 66, so that no name comes near the 255 octets of the longest (RFC 1035 section 3.1); of one that did, the other name
/// alone would be returned.
pub(crate) fn below(labels: &[&str], name: &Name) -> Name {
    // As octets, because an instance of a service may have a space in its name (RFC 6763 section 4.1.1).
    let longer = |name: Name, label: &&str| name.prepend_label(label.as_bytes());
    labels.iter().rev().try_fold(name.clone(), longer).unwrap_or_else(|_| name.clone())
}

fn arpa_v6(address: Ipv6Addr) -> Name {
    let mut name = Name::from(address);
    name.set_fqdn(true);
    name
}

fn arpa_v4(address: Ipv4Addr) -> Name {
    let mut name = Name::from(address);
    name.set_fqdn(true);
    name
}

/// Returns the zone of the reverse names of a network: that of the octets which its prefix fills.
fn reverse_zone(lan: Ipv4Lan) -> Name {
    arpa_v4(lan.network()).trim_to(usize::from(lan.length() / 8) + 2)
}
