//! The responder against questions, other hosts, and time.

use super::*;
use crate::site::{Ipv4Lan, SipService};
use hickory_proto::rr::rdata::{A, PTR, SRV};
use hickory_proto::rr::{RData, Record};
use proptest::prelude::*;
use ringway_mesh::NodeId;
use ringway_sansio::SplitMix;

const ROUTER: NodeId = NodeId::new(0x2c06_9b68_0d1f_701e);
const HOST: &str = "ringway-2c069b680d1f701e.local.";
const START: Time = Time::from_secs(1_000);

/// A responder and the time.
struct Lan {
    mdns: Mdns,
    now: Time,
    random: SplitMix,
}

/// What was sent, and when after [`START`], in milliseconds.
type Sent = Vec<(u64, Destination, Message)>;

impl Lan {
    fn new() -> Lan {
        let mut random = SplitMix::new(1);
        let site = Site::new(ROUTER, SipService::default(), Some(Ipv4Lan::DEFAULT)).unwrap();
        Lan { mdns: Mdns::new(&site, START, &mut random), now: START, random }
    }

    /// One that has announced itself.
    fn running() -> Lan {
        let mut lan = Lan::new();
        lan.drive(10_000);
        assert_eq!(lan.mdns.poll_timeout(), None);
        lan
    }

    /// Lets time pass.
    fn drive(&mut self, millis: u64) -> Sent {
        let (until, mut sent) = (self.now + Duration::from_millis(millis), Vec::new());
        loop {
            while let Some(transmit) = self.mdns.poll_transmit() {
                let message = Message::from_bytes(&transmit.bytes).unwrap();
                sent.push((self.now.since(START).as_millis() as u64, transmit.to, message));
            }
            let Some(due) = self.mdns.poll_timeout().filter(|&due| due <= until) else { break };
            self.now = self.now.max(due);
            self.mdns.handle_timeout(self.now);
        }
        self.now = until;
        sent
    }

    fn receive(&mut self, source: &str, message: &Message) {
        let bytes = message.to_vec().unwrap();
        self.mdns.handle(self.now, source.parse().unwrap(), &bytes, &mut self.random);
    }

    fn host(&self) -> Name {
        self.mdns.names().last().unwrap().clone()
    }
}

const PEER: &str = "[fe80::7]:5353";
const LEGACY: &str = "10.50.60.9:40000";

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn question(text: &str, kind: RecordType) -> Message {
    let mut message = Message::new(0, MessageType::Query, OpCode::Query);
    message.add_query(Query::query(name(text), kind));
    message
}

fn with_class(mut message: Message, class: u16) -> Message {
    message.queries[0].set_query_class(DNSClass::from(class));
    message
}

fn kinds(records: &[Record]) -> Vec<RecordType> {
    records.iter().map(Record::record_type).collect()
}

/// RFC 6762 sections 8.1, 8.2 and 8.3.
#[test]
fn names_are_probed_for_and_announced() {
    let mut lan = Lan::new();
    let sent = lan.drive(10_000);
    let times: Vec<u64> = sent.iter().map(|(at, ..)| *at).collect();
    assert!(times[0] < 250);
    assert_eq!(times.iter().map(|at| at - times[0]).collect::<Vec<_>>(), [0, 250, 500, 750, 1_750]);
    assert!(sent.iter().all(|(_, to, _)| *to == Destination::Group));
    for (_, _, probe) in &sent[..3] {
        assert_eq!(probe.metadata.message_type, MessageType::Query);
        let classes: Vec<u16> =
            probe.queries.iter().map(|query| query.query_class().into()).collect();
        assert_eq!(classes, [0x8001; 3]);
        assert_eq!(kinds(&probe.authorities).len(), 7);
        assert!(probe.authorities.iter().all(|record| record.dns_class == DNSClass::IN));
    }
    for (_, _, announcement) in &sent[3..] {
        assert_eq!(announcement.metadata.message_type, MessageType::Response);
        assert!(announcement.metadata.authoritative && announcement.queries.is_empty());
        let shared = announcement.answers.iter().filter(|record| record.dns_class == DNSClass::IN);
        assert!(shared.clone().all(|record| record.record_type() == RecordType::PTR));
        assert_eq!((shared.count(), announcement.answers.len()), (4, 11));
    }
}

/// RFC 6763 sections 4.1, 6 and 12.1; RFC 6762 section 6.
#[test]
fn a_softphone_that_browses_finds_the_server() {
    let mut lan = Lan::running();
    let asked = lan.now.since(START).as_millis() as u64;
    lan.receive(PEER, &question("_sip._udp.local.", RecordType::PTR));
    let sent = lan.drive(1_000);
    let [(at, Destination::Group, answer)] = sent.as_slice() else { panic!("{sent:?}") };
    assert!((20..120).contains(&(at - asked)), "{at}");
    let instance =
        Name::from_labels([&b"Ringway 2c069b680d1f701e"[..], b"_sip", b"_udp", b"local"]).unwrap();
    assert_eq!(answer.answers[0].data, RData::PTR(PTR(instance.clone())));
    use RecordType::{A, AAAA, SRV, TXT};
    assert_eq!(kinds(&answer.additionals), [SRV, TXT, AAAA, AAAA, A]);
    let RData::SRV(srv) = &answer.additionals[0].data else { panic!("{answer}") };
    assert_eq!((srv.port, srv.target.to_ascii()), (5060, HOST.to_owned()));
    // Case does not matter, and another kind of service is not there.
    lan.receive(PEER, &question("_SIP._Tcp.LOCAL.", RecordType::PTR));
    lan.receive(PEER, &question("_http._tcp.local.", RecordType::PTR));
    lan.receive(PEER, &with_class(question("_sip._udp.local.", RecordType::PTR), 3));
    let sent = lan.drive(1_000);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].2.answers.len(), 1);
}

/// RFC 6762 section 6.
#[test]
fn a_host_is_found_at_once() {
    let mut lan = Lan::running();
    lan.receive(PEER, &question(HOST, RecordType::AAAA));
    let sent = lan.drive(0);
    assert_eq!(sent.len(), 1);
    let addresses: Vec<_> =
        sent[0].2.answers.iter().map(|record| record.data.to_string()).collect();
    assert_eq!(addresses, ["fd72:696e:6777:6179::1", "fd2c:69b:680d:1f70::1"]);
    // Not again within a second.
    lan.receive(PEER, &question(HOST, RecordType::AAAA));
    assert_eq!(lan.drive(900), []);
    lan.drive(200);
    lan.receive(PEER, &question(HOST, RecordType::AAAA));
    assert_eq!(lan.drive(0).len(), 1);
}

/// RFC 6762 section 6.1.
#[test]
fn a_type_that_a_name_has_not_is_denied() {
    let mut lan = Lan::running();
    lan.receive(PEER, &question(HOST, RecordType::TXT));
    let sent = lan.drive(0);
    assert_eq!(kinds(&sent[0].2.answers), [RecordType::NSEC]);
    let RData::Unknown { rdata, .. } = &sent[0].2.answers[0].data else { panic!() };
    // The name, and one window of A (1) and AAAA (28).
    assert!(rdata.anything.ends_with(b"\x05local\0\0\x04\x40\0\0\x08"), "{rdata:?}");
}

/// RFC 6762 section 7.1.
#[test]
fn what_is_known_is_not_said_again() {
    let mut lan = Lan::running();
    let mut browse = question("_sip._udp.local.", RecordType::PTR);
    lan.receive(PEER, &browse);
    let answer = lan.drive(1_000).remove(0).2.answers.remove(0);
    browse.add_answer(answer.clone());
    lan.receive(PEER, &browse);
    assert_eq!(lan.drive(1_000), []);
    // What is soon to expire is said.
    browse.answers[0].ttl = answer.ttl / 2 - 1;
    lan.receive(PEER, &browse);
    assert_eq!(lan.drive(1_000).len(), 1);
}

/// RFC 6762 section 7.2.
#[test]
fn what_is_known_may_come_later() {
    let mut lan = Lan::running();
    let mut browse = question("_sip._udp.local.", RecordType::PTR);
    lan.receive(PEER, &browse);
    let answer = lan.drive(2_000).remove(0).2.answers.remove(0);
    browse.metadata.truncation = true;
    lan.receive(PEER, &browse);
    let mut more = Message::new(0, MessageType::Query, OpCode::Query);
    more.add_answer(answer);
    // Not from another.
    lan.receive("[fe80::8]:5353", &more);
    let sent = lan.drive(1_500);
    assert_eq!(sent.len(), 1);
    lan.receive(PEER, &browse);
    lan.receive(PEER, &more);
    assert_eq!(lan.drive(1_500), []);
}

/// RFC 6762 section 5.4.
#[test]
fn a_question_for_one_host_is_answered_to_it_alone() {
    let mut lan = Lan::running();
    let browse = with_class(question("_sip._udp.local.", RecordType::PTR), 0x8001);
    lan.receive(PEER, &browse);
    let to: Vec<_> = lan.drive(1_000).into_iter().map(|(_, to, _)| to).collect();
    assert_eq!(to, [Destination::Host(PEER.parse().unwrap())]);
    // After a quarter of its lifetime a record is refreshed for all.
    lan.drive(4_500_000 / 4);
    lan.receive(PEER, &browse);
    let to: Vec<_> = lan.drive(1_000).into_iter().map(|(_, to, _)| to).collect();
    assert_eq!(to, [Destination::Group]);
}

/// RFC 6762 section 6.7.
#[test]
fn a_client_of_plain_dns_is_answered_as_it_expects() {
    let mut lan = Lan::running();
    let mut browse = question("_sip._udp.local.", RecordType::PTR);
    browse.metadata.id = 0x1234;
    lan.receive(LEGACY, &browse);
    let sent = lan.drive(0);
    let [(_, Destination::Host(to), answer)] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!(to.to_string(), LEGACY);
    assert_eq!((answer.metadata.id, &answer.queries), (0x1234, &browse.queries));
    let records = answer.answers.iter().chain(&answer.additionals);
    assert!(records.clone().all(|record| record.ttl <= 10 && record.dns_class == DNSClass::IN));
    assert_eq!(records.count(), 6);
}

/// RFC 6762 section 9.
#[test]
fn a_name_that_another_host_has_is_given_up() {
    let other = |lan: &Lan, data: RData| {
        let mut message = Message::new(0, MessageType::Response, OpCode::Query);
        let mut record = Record::from_rdata(lan.host(), 120, data);
        record.dns_class = DNSClass::from(0x8001);
        message.add_answer(record);
        message
    };
    let mut lan = Lan::running();
    // Its own record, a farewell, a client's message.
    lan.receive(PEER, &other(&lan, RData::A(A::new(10, 50, 60, 1))));
    let mut farewell = other(&lan, RData::A(A::new(10, 50, 60, 9)));
    farewell.answers[0].ttl = 0;
    lan.receive(PEER, &farewell);
    lan.receive(LEGACY, &other(&lan, RData::A(A::new(10, 50, 60, 9))));
    assert!(lan.mdns.is_established());
    lan.receive(PEER, &other(&lan, RData::A(A::new(10, 50, 60, 9))));
    assert!(!lan.mdns.is_established());
    assert_eq!(lan.host().to_ascii(), "ringway-2c069b680d1f701e-2.local.");
    assert_eq!(lan.drive(5_000).len(), 5, "probed for and announced");
    lan.receive(PEER, &question("ringway-2c069b680d1f701e-2.local.", RecordType::A));
    assert_eq!(lan.drive(0).len(), 1);
    // Whoever takes every name makes the router slow, not busy.
    let mut probes = 0;
    for _ in 0..600 {
        lan.receive(PEER, &other(&lan, RData::A(A::new(10, 50, 60, 9))));
        probes += lan.drive(100).len();
    }
    assert!(probes < 200, "{probes}");
}

/// RFC 6762 section 8.2.
#[test]
fn of_two_hosts_that_probe_at_once_one_waits() {
    let probe = |lan: &Lan, last: u8| {
        let mut message = question(&lan.host().to_ascii(), RecordType::ANY);
        message.add_authority(Record::from_rdata(lan.host(), 120, RData::A(A::new(last, 0, 0, 1))));
        message
    };
    // A record that comes earlier in the order loses; the last octets decide.
    for (first, loses) in [(9, false), (11, true)] {
        let mut lan = Lan::new();
        lan.drive(400);
        lan.receive(PEER, &probe(&lan, first));
        let sent = lan.drive(4_000);
        assert_eq!(sent[0].0 >= 1_400, loses, "{first}");
        assert!(lan.mdns.is_established());
        // Later a probe is answered at once with what is there.
        lan.receive(PEER, &probe(&lan, first));
        let sent = lan.drive(0);
        assert_eq!(kinds(&sent[0].2.answers).len(), 3, "{first}");
    }
}

/// RFC 6762 section 10.1.
#[test]
fn hosts_learn_that_the_router_leaves() {
    assert_eq!(Lan::new().mdns.leave(), None);
    let farewell = Lan::running().mdns.leave().unwrap();
    assert_eq!(farewell.to, Destination::Group);
    let farewell = Message::from_bytes(&farewell.bytes).unwrap();
    assert_eq!(farewell.answers.len(), 11);
    assert!(farewell.answers.iter().all(|record| record.ttl == 0));
}

/// RFC 6762 sections 11 and 18.
#[test]
fn nothing_is_reflected() {
    let mut lan = Lan::running();
    let browse = question("_sip._udp.local.", RecordType::PTR);
    for source in [
        "192.0.2.1:5353",
        "192.0.2.1:53",
        "[2001:db8::1]:40000",
        "127.0.0.1:5353",
        "10.50.60.255:5353",
    ] {
        lan.receive(source, &browse);
    }
    let mut other = browse.clone();
    other.metadata.op_code = OpCode::Status;
    lan.receive(PEER, &other);
    other.metadata.op_code = OpCode::Query;
    other.metadata.response_code = ResponseCode::Refused;
    lan.receive(PEER, &other);
    assert_eq!(lan.drive(1_000), []);
    // One that asks all the time has a share, and another has its own.
    for _ in 0..1_000 {
        lan.receive(LEGACY, &browse);
    }
    let answers = lan.drive(0).len();
    assert!(answers <= MAX_OUTPUT);
    for n in 0..200 {
        lan.receive(&format!("10.50.60.{}:40000", n % 100 + 10), &browse);
        assert_eq!(lan.drive(0).len(), 1, "{n}");
    }
}

#[test]
fn what_waits_is_bounded() {
    let mut lan = Lan::running();
    for n in 0..1_000 {
        lan.receive(&format!("[fe80::{n:x}]:5353"), &question("_sip._udp.local.", RecordType::PTR));
    }
    assert!(lan.mdns.waiting.len() <= MAX_WAITING);
    assert_eq!(lan.drive(1_000).len(), 1, "all of them are answered by one");
}

proptest! {
    #[test]
    fn octets_of_any_kind_are_handled(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        is_header in any::<bool>(),
        port in prop::sample::select(vec![5353_u16, 40_000]),
    ) {
        if let (true, Some(header)) = (is_header, bytes.first_chunk_mut::<12>()) {
            let counts = [4, 5, 6, 7].map(|at| header[at] % 3);
            *header = [0, 1, header[2] & 0x82, 0, 0, counts[0], 0, counts[1], 0, counts[2], 0, counts[3]];
        }
        let mut lan = Lan::running();
        let source = SocketAddr::new("fe80::7".parse().unwrap(), port);
        lan.mdns.handle(lan.now, source, &bytes, &mut lan.random);
        for (_, _, message) in lan.drive(2_000) {
            prop_assert!(message.to_vec().unwrap().len() < 1_200);
        }
    }

    /// Whatever another host says, the responder comes to rest with names that it answers for.
    #[test]
    fn conflicts_of_any_kind_end(
        steps in prop::collection::vec((0..4_u8, 0..300_u64, any::<u16>()), 0..40),
    ) {
        let mut lan = Lan::new();
        for (kind, wait, port) in steps {
            lan.drive(wait);
            let data = match kind {
                0 => RData::A(A::new(10, 50, 60, port as u8)),
                1 => RData::SRV(SRV::new(0, 0, port, Name::root())),
                _ => RData::PTR(PTR(Name::root())),
            };
            let unique = lan.mdns.names().nth(usize::from(port % 3)).unwrap().clone();
            let record = Record::from_rdata(unique, 120, data);
            let mut message = Message::new(0, MessageType::Response, OpCode::Query);
            if kind == 3 {
                message.metadata.message_type = MessageType::Query;
                message.add_authority(record);
            } else {
                message.add_answer(record);
            }
            lan.receive(PEER, &message);
        }
        lan.drive(20_000);
        prop_assert!(lan.mdns.is_established());
        let host = lan.host().to_ascii();
        lan.receive(PEER, &question(&host, RecordType::AAAA));
        prop_assert_eq!(lan.drive(0).len(), 1);
    }
}
