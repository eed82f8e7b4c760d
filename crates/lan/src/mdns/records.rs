//! The records of a router in `local`: two services of SIP, and the host that has them (RFC 6762, RFC 6763).

use hickory_proto::rr::rdata::{A, AAAA, NULL, PTR, SRV, TXT};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::{BinEncodable, BinEncoder};

use crate::dns::{below, service_text};
use crate::site::{ANYCAST, Site};

/// Seconds for which records with a host's name in them may be kept, and others (RFC 6762 section 10).
const HOST_TTL: u32 = 120;
const OTHER_TTL: u32 = 4_500;
/// The bit of a class by which a record replaces others (RFC 6762 section 10.2), or by which a question asks for an
/// answer to its sender alone (section 5.4).
pub(super) const TOP_BIT: u16 = 0x8000;

/// Some of the records: a bit each.
pub(super) type Set = u32;

/// A record of the router.
#[derive(Clone, Debug)]
pub(super) struct Own {
    /// With the class IN.
    pub(super) record: Record,
    /// No other host has records of this name (RFC 6762 section 2).
    pub(super) is_unique: bool,
}

/// All records of the router under its present names.
#[derive(Clone, Debug)]
pub(super) struct Records {
    all: Vec<Own>,
    /// Unique names, and the record by which each reports which types it has (RFC 6762 section 6.1).
    names: Vec<(Name, usize)>,
}

impl Records {
    /// The records of a site. Names that another host had are left out by counting: the first attempt is 1.
    pub(super) fn new(site: &Site, attempt: u32) -> Records {
        let mut records = Records { all: Vec::new(), names: Vec::new() };
        let local = below(&["local"], &Name::root());
        let id = site.router();
        let (mut host, mut instance) = (format!("ringway-{id}"), format!("Ringway {id}"));
        if attempt > 1 {
            host = format!("{host}-{attempt}");
            instance = format!("{instance} ({attempt})");
        }
        let host = below(&[&host], &local);
        let browsed = below(&["_services", "_dns-sd", "_udp"], &local);
        for (transport, port) in [("_udp", site.sip().udp), ("_tcp", site.sip().tcp)] {
            let service = below(&["_sip", transport], &local);
            let instance = below(&[&instance], &service);
            records.shared(&browsed, PTR(service.clone()));
            records.shared(&service, PTR(instance.clone()));
            let srv = RData::SRV(SRV::new(0, 0, port, host.clone()));
            records.unique(&instance, HOST_TTL, srv);
            records.unique(&instance, OTHER_TTL, RData::TXT(TXT::new(service_text(site))));
            records.finish(&instance, HOST_TTL);
        }
        for address in [ANYCAST, site.router().prefix().router()] {
            records.unique(&host, HOST_TTL, RData::AAAA(AAAA(address)));
        }
        if let Some(lan) = site.ipv4() {
            records.unique(&host, HOST_TTL, RData::A(A(lan.address())));
        }
        records.finish(&host, HOST_TTL);
        records
    }

    fn shared(&mut self, name: &Name, data: PTR) {
        let record = Record::from_rdata(name.clone(), OTHER_TTL, RData::PTR(data));
        self.all.push(Own { record, is_unique: false });
    }

    fn unique(&mut self, name: &Name, ttl: u32, data: RData) {
        self.all.push(Own { record: Record::from_rdata(name.clone(), ttl, data), is_unique: true });
    }

    /// Adds the record that a name has no other types.
    fn finish(&mut self, name: &Name, ttl: u32) {
        let own = self.all.iter().filter(|own| own.record.name == *name);
        let types: Vec<RecordType> = own.map(|own| own.record.record_type()).collect();
        self.names.push((name.clone(), self.all.len()));
        self.unique(name, ttl, no_other_types(name, &types));
    }

    /// Returns the numbers and records of a set.
    pub(super) fn of(&self, set: Set) -> impl Iterator<Item = (usize, &Own)> {
        self.all.iter().enumerate().filter(move |(index, _)| set & (1 << index) != 0)
    }

    /// Returns the set of the records that are announced: all but those of missing types.
    pub(super) fn announced(&self) -> Set {
        self.select(|index, _| self.names.iter().all(|&(_, at)| at != index))
    }

    /// Returns the set of the records that another host must not have, as they are proposed (RFC 6762 section 8.2).
    pub(super) fn proposed(&self) -> Set {
        self.select(|index, own| own.is_unique && self.announced() & (1 << index) != 0)
    }

    /// Returns the unique names.
    pub(super) fn unique_names(&self) -> impl Iterator<Item = &Name> {
        self.names.iter().map(|(name, _)| name)
    }

    /// Returns whether a name is one of the unique ones.
    pub(super) fn is_unique(&self, name: &Name) -> bool {
        self.unique_names().any(|unique| unique == name)
    }

    /// Returns the answers to a question.
    pub(super) fn answers(&self, name: &Name, kind: RecordType) -> Set {
        let matches = |index: usize, own: &Own| {
            let is_wanted = kind == RecordType::ANY || own.record.record_type() == kind;
            own.record.name == *name && is_wanted && self.announced() & (1 << index) != 0
        };
        let found = self.select(matches);
        let missing = self.names.iter().find(|(unique, _)| unique == name);
        missing.filter(|_| found == 0).map_or(found, |&(_, index)| 1 << index)
    }

    /// Returns what is asked for next by who gets a set, without the set (RFC 6763 section 12).
    pub(super) fn additional(&self, set: Set) -> Set {
        let mut all = set;
        // From an instance to its host, and from there to the addresses: two steps.
        for _ in 0..2 {
            let targets: Vec<&Name> = self
                .of(all)
                .filter_map(|(_, own)| match &own.record.data {
                    RData::PTR(PTR(name)) => Some(name),
                    RData::SRV(srv) => Some(&srv.target),
                    _ => None,
                })
                .filter(|name| self.is_unique(name))
                .collect();
            all |= self.select(|_, own| targets.contains(&&own.record.name)) & self.announced();
        }
        all & !set
    }

    /// Returns the records of a set that another host knows already (RFC 6762 section 7.1).
    pub(super) fn known(&self, answers: &[Record]) -> Set {
        self.select(|_, own| {
            answers
                .iter()
                .any(|answer| is_same(answer, &own.record) && answer.ttl >= own.record.ttl / 2)
        })
    }

    /// Returns whether another host has a record of one of the unique names that is not one of these.
    pub(super) fn conflict<'r>(&self, mut others: impl Iterator<Item = &'r Record>) -> bool {
        others.any(|other| {
            let same_type = |own: &&Own| {
                own.record.name == other.name && own.record.record_type() == other.record_type()
            };
            let mut own = self.all.iter().filter(same_type).peekable();
            self.is_unique(&other.name)
                && is_internet(other)
                && other.ttl > 0
                && own.peek().is_some()
                && own.all(|own| !is_same(other, &own.record))
        })
    }

    /// Returns whether the records that another host proposes for one of the names come later in the order of RFC 6762
    /// section 8.2.1, so that it gets the name.
    pub(super) fn loses_to(&self, proposed: &[Record]) -> bool {
        self.unique_names().any(|name| {
            let own = self.of(self.proposed()).map(|(_, own)| &own.record);
            let theirs = keys(proposed.iter(), name);
            !theirs.is_empty() && keys(own, name) < theirs
        })
    }

    fn select(&self, mut wanted: impl FnMut(usize, &Own) -> bool) -> Set {
        let chosen = self.all.iter().enumerate().filter(|(index, own)| wanted(*index, own));
        chosen.fold(0, |set, (index, _)| set | 1 << index)
    }
}

/// Returns a record's class without the bit that multicast DNS has made of it.
pub(super) fn class(record: &Record) -> u16 {
    u16::from(record.dns_class) & !TOP_BIT
}

fn is_internet(record: &Record) -> bool {
    class(record) == u16::from(DNSClass::IN)
}

/// Returns whether two records say the same.
fn is_same(other: &Record, own: &Record) -> bool {
    other.name == own.name
        && is_internet(other)
        && other.record_type() == own.record_type()
        && (other.data == own.data || octets(&other.data) == octets(&own.data))
}

/// Returns the data of a record as octets, not compressed.
fn octets(data: &RData) -> Vec<u8> {
    let mut bytes = Vec::new();
    // What cannot be written is as if it were empty.
    let _ = data.emit(&mut BinEncoder::new(&mut bytes));
    bytes
}

/// Returns what is compared of the records of a name: class, type and data, sorted.
fn keys<'r>(records: impl Iterator<Item = &'r Record>, name: &Name) -> Vec<(u16, u16, Vec<u8>)> {
    let of_name = records.filter(|record| record.name == *name);
    let key = |record: &Record| (class(record), record.record_type().into(), octets(&record.data));
    let mut keys: Vec<_> = of_name.map(key).collect();
    keys.sort();
    keys
}

/// Returns the data of an NSEC record: a name has these types and no others (RFC 6762 section 6.1, RFC 4034 section 4.1).
fn no_other_types(name: &Name, types: &[RecordType]) -> RData {
    let mut data = Vec::new();
    let _ = name.emit(&mut BinEncoder::new(&mut data));
    // Every type here is below 256, so that there is one window.
    let numbers = types.iter().map(|&kind| usize::from(u16::from(kind)));
    let mut bitmap = vec![0_u8; numbers.clone().max().unwrap_or(0) / 8 + 1];
    numbers.for_each(|number| bitmap[number / 8] |= 0x80 >> (number % 8));
    data.extend([0, bitmap.len() as u8]);
    data.extend(bitmap);
    RData::Unknown { code: RecordType::NSEC, rdata: NULL::with(data) }
}
