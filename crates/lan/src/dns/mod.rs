//! A DNS server for the domain of the mesh and nothing else.
//!
//! It is authoritative for the domain, for the reverse names of the LAN's addresses, and refuses every other name: it
//! asks nobody. A host that has a resolver for the rest keeps it, and sends here what ends in the domain.
//!
//! Whoever asks gets at most what fits into its buffer (RFC 6891), and never more than [`MAX_UDP_ANSWER`] octets by
//! UDP. `ANY` is answered with one set of records (RFC 8482).

mod stream;
mod zone;

pub use stream::{Stream, TooLong, frame};
pub use zone::Zone;
pub(crate) use zone::{below, service_text};

use core::net::IpAddr;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Record, RecordType};
use hickory_proto::serialize::binary::{BinDecodable, BinEncodable, BinEncoder};
use ringway_sansio::Time;

use crate::share::Shares;
use crate::site::Site;

/// Port of the DNS.
pub const PORT: u16 = 53;
/// Longest query that is read, in octets.
pub const MAX_QUERY: usize = 1_024;
/// Longest answer by UDP, in octets: what passes every link of IPv6 in one piece.
pub const MAX_UDP_ANSWER: u16 = 1_232;
/// Longest answer to a query without EDNS (RFC 1035 section 4.2.1).
const PLAIN_UDP_ANSWER: u16 = 512;
/// Records in the additional section of a query: OPT, and one of a kind that is ignored.
const MAX_ADDITIONAL: u16 = 2;
/// Octets of a header (RFC 1035 section 4.1.1).
const HEADER: usize = 12;

/// Queries a second of one source, and at once.
const RATE: u32 = 50;
const BURST: u32 = 100;

/// What a query came by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// A datagram.
    Udp,
    /// A stream, whose messages have no such bounds.
    Tcp,
}

/// Numbers of what has happened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Queries that were answered, with an error too.
    pub answered: u64,
    /// Queries that were dropped, because their source has asked too much.
    pub limited: u64,
    /// What is no query, was sent by nobody on the LAN, or is too long.
    pub dropped: u64,
}

/// The server.
#[derive(Clone, Debug)]
pub struct Dns {
    site: Site,
    zone: Zone,
    shares: Shares<IpAddr>,
    counters: Counters,
}

impl Dns {
    /// A server for the names of a site.
    pub fn new(site: &Site) -> Dns {
        Dns {
            site: site.clone(),
            zone: Zone::new(site),
            shares: Shares::new(RATE, BURST),
            counters: Counters::default(),
        }
    }

    /// Returns the numbers of what has happened.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the answer to a message from `source`, if it deserves one.
    pub fn answer(
        &mut self,
        now: Time,
        source: IpAddr,
        message: &[u8],
        transport: Transport,
    ) -> Option<Vec<u8>> {
        // A response is never answered, or two servers would answer each other for ever.
        let is_query = message.get(2).is_some_and(|flags| flags & 0x80 == 0);
        let is_bounded = (HEADER..=MAX_QUERY).contains(&message.len());
        if !is_query || !is_bounded || !self.site.is_on_link(source) {
            self.counters.dropped += 1;
            return None;
        }
        if !self.shares.allows(now, source) {
            self.counters.limited += 1;
            return None;
        }
        self.counters.answered += 1;
        let (response, limit) = self.respond(message, transport);
        encode(response, limit)
    }

    /// Returns the answer to a query, and the largest size of it.
    fn respond(&self, query: &[u8], transport: Transport) -> (Message, u16) {
        let word = |at: usize| u16::from_be_bytes([query[at], query[at + 1]]);
        let (id, op_code) = (word(0), OpCode::from_u8(query[2] >> 3 & 0xf));
        let error = |code| (Message::error_msg(id, op_code, code), PLAIN_UDP_ANSWER);
        if op_code != OpCode::Query {
            return error(ResponseCode::NotImp);
        }
        // What a query may have is checked before it is parsed, which bounds the work of that.
        let is_plain = [word(4), word(6), word(8)] == [1, 0, 0] && word(10) <= MAX_ADDITIONAL;
        let Some(request) = is_plain.then(|| Message::from_bytes(query).ok()).flatten() else {
            return error(ResponseCode::FormErr);
        };
        let Some(question) = request.queries.first() else {
            return error(ResponseCode::FormErr);
        };
        let mut response = Message::new(id, MessageType::Response, op_code);
        response.metadata.recursion_desired = request.metadata.recursion_desired;
        response.add_query(question.clone());
        let payload = match &request.edns {
            Some(edns) => {
                let mut own = Edns::new();
                own.set_max_payload(MAX_UDP_ANSWER);
                response.set_edns(own);
                edns.max_payload().clamp(PLAIN_UDP_ANSWER, MAX_UDP_ANSWER)
            }
            None => PLAIN_UDP_ANSWER,
        };
        let limit = if transport == Transport::Tcp { u16::MAX } else { payload };
        if request.edns.as_ref().is_some_and(|edns| edns.version() != 0) {
            response.metadata.response_code = ResponseCode::BADVERS;
        } else {
            self.look_up(question, &mut response);
        }
        (response, limit)
    }

    /// Fills a response with what there is of a name.
    fn look_up(&self, question: &Query, response: &mut Message) {
        let kind = question.query_type();
        let is_transfer = [RecordType::AXFR, RecordType::IXFR].contains(&kind);
        let is_internet = [DNSClass::IN, DNSClass::ANY].contains(&question.query_class());
        let Some(start) = self.zone.start(question.name()) else {
            response.metadata.response_code = ResponseCode::Refused;
            return;
        };
        if is_transfer || !is_internet {
            response.metadata.response_code = ResponseCode::Refused;
            return;
        }
        response.metadata.authoritative = true;
        let Some(records) = self.zone.records(question.name()) else {
            response.metadata.response_code = ResponseCode::NXDomain;
            response.add_authority(start.clone());
            return;
        };
        let wanted = if kind == RecordType::ANY {
            records.first().map(Record::record_type)
        } else {
            Some(kind)
        };
        let answers = records.iter().filter(|record| Some(record.record_type()) == wanted);
        // The name as the client wrote it, which it may compare.
        response.add_answers(answers.cloned().map(|mut record| {
            record.name = question.name().clone();
            record
        }));
        if response.answers.is_empty() {
            response.add_authority(start.clone());
        }
        let additional = self.zone.additional(&response.answers);
        response.add_additionals(additional);
    }
}

/// Returns the octets of a response of at most `limit` octets. Additional records are left out first, which is no
/// truncation (RFC 2181 section 9); then everything, which the client then asks for by TCP.
fn encode(mut response: Message, limit: u16) -> Option<Vec<u8>> {
    if let Some(bytes) = encoded(&response, limit) {
        return Some(bytes);
    }
    response.additionals.clear();
    if let Some(bytes) = encoded(&response, limit) {
        return Some(bytes);
    }
    response.answers.clear();
    response.authorities.clear();
    response.metadata.truncation = true;
    encoded(&response, limit)
}

fn encoded(response: &Message, limit: u16) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usize::from(PLAIN_UDP_ANSWER));
    response.emit(&mut BinEncoder::new(&mut bytes)).ok()?;
    (bytes.len() <= usize::from(limit)).then_some(bytes)
}

#[cfg(test)]
mod tests;
