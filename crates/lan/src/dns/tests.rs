//! The server as a table of questions and answers.

use super::*;
use crate::site::{Ipv4Lan, SipService};
use hickory_proto::rr::{Name, RData};
use proptest::prelude::*;
use ringway_mesh::NodeId;
use ringway_sansio::time::Duration;

const NOW: Time = Time::from_secs(100);
const ROUTER: NodeId = NodeId::new(0x2c06_9b68_0d1f_701e);

fn site(sip: SipService) -> Site {
    Site::new(ROUTER, sip, Some(Ipv4Lan::DEFAULT)).unwrap()
}

fn server() -> Dns {
    Dns::new(&site(SipService { sctp: Some(5060), tls: Some(5061), ..SipService::default() }))
}

fn host() -> IpAddr {
    "fe80::7".parse().unwrap()
}

fn query(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

fn ask_raw(bytes: &[u8]) -> Option<Message> {
    let answer = server().answer(NOW, host(), bytes, Transport::Udp)?;
    Some(Message::from_bytes(&answer).unwrap())
}

fn ask(name: &str, kind: RecordType) -> Message {
    ask_raw(&query(name, kind).to_vec().unwrap()).unwrap()
}

fn shown<'r>(records: impl IntoIterator<Item = &'r Record>) -> Vec<String> {
    let shown = |record: &Record| match &record.data {
        RData::SRV(srv) => format!("SRV {} {}", srv.port, srv.target),
        RData::NAPTR(naptr) => format!(
            "NAPTR {} {} {} {}",
            naptr.order,
            naptr.preference,
            String::from_utf8_lossy(&naptr.services),
            naptr.replacement
        ),
        RData::TXT(_) => "TXT".to_owned(),
        data => format!("{} {data}", data.record_type()),
    };
    records.into_iter().map(shown).collect()
}

fn answers(name: &str, kind: RecordType) -> Vec<String> {
    let message = ask(name, kind);
    assert_eq!(message.metadata.response_code, ResponseCode::NoError, "{name} {kind}");
    assert!(message.metadata.authoritative && !message.metadata.recursion_available);
    shown(&message.answers)
}

#[test]
fn the_server_has_the_same_address_at_every_router() {
    use RecordType::{A, AAAA};
    for name in ["mesh.", "sip.mesh.", "SIP.Mesh."] {
        assert_eq!(answers(name, AAAA), ["AAAA fd72:696e:6777:6179::1"], "{name}");
        assert_eq!(answers(name, A), ["A 10.50.60.1"], "{name}");
    }
    assert_eq!(answers("2c069b680d1f701e.mesh.", AAAA), ["AAAA fd2c:69b:680d:1f70::1"]);
    assert_eq!(answers("0000000000000000.mesh.", AAAA), ["AAAA fd00::1"]);
    assert_eq!(answers("2c069b680d1f701e.mesh.", A), [""; 0]);
    // A sign is no digit, although a number may have one.
    let sign = Name::from_labels(["+c069b680d1f701e".as_bytes(), b"mesh"]).unwrap();
    assert!(server().zone.records(&sign).is_none());
}

/// RFC 3263 sections 4.1 and 4.2, RFC 4168 section 5.
#[test]
fn a_phone_locates_the_server() {
    use RecordType::{NAPTR, SRV};
    let expected = [
        "NAPTR 10 10 SIP+D2U _sip._udp.mesh.",
        "NAPTR 10 20 SIP+D2T _sip._tcp.mesh.",
        "NAPTR 10 30 SIP+D2S _sip._sctp.mesh.",
        "NAPTR 10 40 SIPS+D2T _sips._tcp.mesh.",
    ];
    assert_eq!(answers("mesh.", NAPTR), expected);
    assert_eq!(answers("sip.mesh.", NAPTR), expected);
    for (name, port) in [
        ("_sip._udp.mesh.", 5060),
        ("_sip._tcp.mesh.", 5060),
        ("_sip._sctp.mesh.", 5060),
        ("_sips._tcp.mesh.", 5061),
        ("_sip._udp.sip.mesh.", 5060),
        ("_sips._tcp.sip.mesh.", 5061),
    ] {
        let answer = ask(name, SRV);
        assert_eq!(shown(&answer.answers), [format!("SRV {port} sip.mesh.")], "{name}");
        let addresses = ["AAAA fd72:696e:6777:6179::1", "A 10.50.60.1"];
        assert_eq!(shown(&answer.additionals), addresses, "{name}");
    }
    // What the server does not speak is not announced.
    let mut plain = Dns::new(&site(SipService::default()));
    let question = query("mesh.", NAPTR).to_vec().unwrap();
    let answer = plain.answer(NOW, host(), &question, Transport::Udp).unwrap();
    assert_eq!(shown(&Message::from_bytes(&answer).unwrap().answers), expected[..2]);
}

/// RFC 6763 sections 4, 9, 11 and 12.1.
#[test]
fn a_softphone_browses() {
    use RecordType::{PTR, SRV, TXT};
    let browsed = ["PTR _sip._udp.mesh.", "PTR _sip._tcp.mesh."];
    assert_eq!(answers("_services._dns-sd._udp.mesh.", PTR), browsed);
    for name in [
        "b._dns-sd._udp.mesh.",
        "lb._dns-sd._udp.mesh.",
        "lb._dns-sd._udp.0.60.50.10.in-addr.arpa.",
    ] {
        assert_eq!(answers(name, PTR), ["PTR mesh."], "{name}");
    }
    let answer = ask("_sip._udp.mesh.", PTR);
    assert_eq!(shown(&answer.answers), ["PTR ringway._sip._udp.mesh."]);
    let next = ["SRV 5060 sip.mesh.", "TXT", "AAAA fd72:696e:6777:6179::1", "A 10.50.60.1"];
    assert_eq!(shown(&answer.additionals), next);
    assert_eq!(answers("ringway._sip._tcp.mesh.", SRV), ["SRV 5060 sip.mesh."]);
    let text = ask("ringway._sip._udp.mesh.", TXT);
    let RData::TXT(text) = &text.answers[0].data else { panic!("{text}") };
    assert_eq!(
        *text.txt_data,
        [Box::from(*b"txtvers=1"), Box::from(*b"domain=mesh")] as [Box<[u8]>; 2]
    );
}

#[test]
fn addresses_have_names() {
    let reverse = |ip: &str| {
        let mut name = Name::from(ip.parse::<IpAddr>().unwrap());
        name.set_fqdn(true);
        answers(&name.to_ascii(), RecordType::PTR)
    };
    assert_eq!(reverse("fd72:696e:6777:6179::1"), ["PTR sip.mesh."]);
    assert_eq!(reverse("10.50.60.1"), ["PTR sip.mesh."]);
    assert_eq!(reverse("fd2c:69b:680d:1f70::1"), ["PTR 2c069b680d1f701e.mesh."]);
}

/// RFC 2308 section 2, RFC 8020.
#[test]
fn what_is_not_there_is_answered_with_the_start_of_authority() {
    use RecordType::{A, AAAA, MX};
    let absent = [
        ("nobody.mesh.", A),
        ("2c069b680d1f701.mesh.", AAAA),
        ("2c069b680d1f701e.x.mesh.", AAAA),
        ("9.60.50.10.in-addr.arpa.", RecordType::PTR),
    ];
    let empty = [
        ("mesh.", MX),
        ("_udp.mesh.", A),
        ("_dns-sd._udp.mesh.", A),
        ("2c069b680d1f701e.mesh.", A),
    ];
    let codes = [ResponseCode::NXDomain, ResponseCode::NoError];
    for ((name, kind), code) in absent
        .map(|question| (question, codes[0]))
        .into_iter()
        .chain(empty.map(|question| (question, codes[1])))
    {
        let answer = ask(name, kind);
        assert_eq!(answer.metadata.response_code, code, "{name}");
        assert!(answer.answers.is_empty() && answer.metadata.authoritative, "{name}");
        assert_eq!(answer.authorities.len(), 1, "{name}");
        let RData::SOA(soa) = &answer.authorities[0].data else { panic!("{answer}") };
        assert_eq!(soa.minimum, answer.authorities[0].ttl);
    }
}

#[test]
fn other_names_are_refused() {
    for name in
        ["example.org.", ".", "mesh.example.org.", "xmesh.", "1.168.192.in-addr.arpa.", "org."]
    {
        let answer = ask(name, RecordType::A);
        assert_eq!(answer.metadata.response_code, ResponseCode::Refused, "{name}");
        assert!(!answer.metadata.authoritative && answer.authorities.is_empty(), "{name}");
    }
    assert_eq!(ask("mesh.", RecordType::AXFR).metadata.response_code, ResponseCode::Refused);
    let mut chaos = query("mesh.", RecordType::TXT);
    chaos.queries[0].set_query_class(DNSClass::CH);
    let answer = ask_raw(&chaos.to_vec().unwrap()).unwrap();
    assert_eq!(answer.metadata.response_code, ResponseCode::Refused);
}

/// RFC 8482 section 4.1.
#[test]
fn everything_is_answered_with_one_set() {
    assert_eq!(ask("mesh.", RecordType::ANY).answers.len(), 1);
    let set = ask("sip.mesh.", RecordType::ANY);
    assert_eq!(shown(&set.answers), ["AAAA fd72:696e:6777:6179::1"]);
}

/// What dig 9.18 sends: with EDNS and a cookie, and without.
#[test]
fn dig_is_answered() {
    let octets = |hex: &str| -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    };
    let with = octets(
        "9f6b0120000100000000000103736970046d657368000023000100002904d000000000000c000a0008ed8f134915402b84",
    );
    let answer = ask_raw(&with).unwrap();
    assert_eq!((answer.metadata.id, answer.answers.len()), (0x9f6b, 4));
    assert!(answer.metadata.recursion_desired);
    assert_eq!(answer.edns.unwrap().max_payload(), MAX_UDP_ANSWER);
    let without = octets("14e601200001000000000000045f736970045f756470046d6573680000210001");
    let answer = ask_raw(&without).unwrap();
    assert_eq!(shown(&answer.answers), ["SRV 5060 sip.mesh."]);
    assert!(answer.edns.is_none());
}

#[test]
fn the_name_comes_back_as_it_was_written() {
    let answer = ask("SiP.mEsH.", RecordType::A);
    assert_eq!(answer.queries[0].name().to_ascii(), "SiP.mEsH.");
    assert_eq!(answer.answers[0].name.to_ascii(), "SiP.mEsH.");
}

/// RFC 6891 section 6.2.5.
#[test]
fn the_buffer_of_the_client_bounds_an_answer() {
    let mut question = query("mesh.", RecordType::NAPTR);
    let server = server();
    let limit =
        |question: &Message, transport| server.respond(&question.to_vec().unwrap(), transport).1;
    assert_eq!(limit(&question, Transport::Udp), 512);
    assert_eq!(limit(&question, Transport::Tcp), u16::MAX);
    for (offered, expected) in [(0, 512), (512, 512), (900, 900), (1_232, 1_232), (65_535, 1_232)] {
        let mut edns = Edns::new();
        edns.set_max_payload(offered);
        question.set_edns(edns);
        assert_eq!(limit(&question, Transport::Udp), expected);
    }
}

/// RFC 2181 section 9.
#[test]
fn an_answer_that_does_not_fit_is_cut() {
    let response = ask("_sip._udp.mesh.", RecordType::SRV);
    let cut = |limit: u16| {
        let bytes = encode(response.clone(), limit).unwrap();
        assert!(bytes.len() <= usize::from(limit));
        Message::from_bytes(&bytes).unwrap()
    };
    let whole = response.to_vec().unwrap().len() as u16;
    assert_eq!(cut(whole).additionals.len(), 2);
    let without = cut(whole - 1);
    assert_eq!((without.answers.len(), without.additionals.len()), (1, 0));
    assert!(!without.metadata.truncation, "nothing that was asked for is missing");
    let nothing = cut(45);
    assert!(nothing.answers.is_empty() && nothing.metadata.truncation);
    assert_eq!(nothing.queries, response.queries);
}

/// The longest domain that is configured still has every answer in 512 octets.
#[test]
fn no_answer_is_larger_than_a_client_without_edns_can_read() {
    let domain = format!("{0}.{0}.{0}.{0}", "a".repeat(15));
    let sip = SipService { sctp: Some(1), tls: Some(2), domain, ..SipService::default() };
    let mut server = Dns::new(&site(sip));
    let names: Vec<Name> = server.zone.names().cloned().collect();
    for (n, name) in names.iter().enumerate() {
        for kind in
            [RecordType::NAPTR, RecordType::SRV, RecordType::PTR, RecordType::AAAA, RecordType::TXT]
        {
            let mut message = Message::new(7, MessageType::Query, OpCode::Query);
            message.add_query(Query::query(name.clone(), kind));
            let now = NOW + Duration::from_secs(n as u64);
            let bytes =
                server.answer(now, host(), &message.to_vec().unwrap(), Transport::Udp).unwrap();
            let answer = Message::from_bytes(&bytes).unwrap();
            assert!(bytes.len() <= 512 && !answer.metadata.truncation, "{name} {kind}");
        }
    }
}

#[test]
fn what_is_no_question_is_refused_or_dropped() {
    let good = query("sip.mesh.", RecordType::A).to_vec().unwrap();
    let changed = |at: usize, octet: u8| {
        let mut bytes = good.clone();
        bytes[at] = octet;
        bytes
    };
    assert_eq!(ask_raw(&changed(2, 0x80)), None, "a response");
    assert_eq!(ask_raw(&good[..11]), None, "too short for a header");
    assert_eq!(ask_raw(&[good.clone(), vec![0; MAX_QUERY]].concat()), None, "too long");
    for (bytes, code) in [
        (changed(2, 0x28), ResponseCode::NotImp),
        (changed(5, 0), ResponseCode::FormErr),
        (changed(5, 2), ResponseCode::FormErr),
        (changed(7, 1), ResponseCode::FormErr),
        (changed(9, 1), ResponseCode::FormErr),
        (changed(11, 3), ResponseCode::FormErr),
        (good[..14].to_vec(), ResponseCode::FormErr),
    ] {
        let answer = ask_raw(&bytes).unwrap();
        assert_eq!((answer.metadata.response_code, answer.metadata.id), (code, 7));
    }
    let mut next = query("sip.mesh.", RecordType::A);
    let mut edns = Edns::new();
    edns.set_version(1);
    next.set_edns(edns);
    let answer = ask_raw(&next.to_vec().unwrap()).unwrap();
    // BADVERS, whose number BADSIG has too.
    assert_eq!(u16::from(answer.metadata.response_code), 16);
    assert!(answer.answers.is_empty());
}

#[test]
fn only_hosts_of_the_lan_are_answered_and_each_within_its_share() {
    let mut server = server();
    let question = query("sip.mesh.", RecordType::A).to_vec().unwrap();
    let mut asked = |source: &str, now| {
        let source = source.parse().unwrap();
        (0..200).filter(|_| server.answer(now, source, &question, Transport::Udp).is_some()).count()
    };
    assert_eq!(asked("192.0.2.1", NOW), 0);
    assert_eq!(asked("2001:db8::1", NOW), 0);
    assert_eq!(asked("10.50.60.9", NOW), BURST as usize);
    assert_eq!(asked("10.50.60.8", NOW), BURST as usize);
    assert_eq!(asked("10.50.60.9", NOW + Duration::from_secs(1)), RATE as usize);
    assert_eq!(server.counters(), Counters { answered: 250, limited: 350, dropped: 400 });
}

proptest! {
    #[test]
    fn octets_of_any_kind_are_answered_within_bounds(
        mut bytes in prop::collection::vec(any::<u8>(), 0..120),
        is_header in any::<bool>(),
    ) {
        if let (true, Some(header)) = (is_header, bytes.first_chunk_mut::<12>()) {
            *header = [0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, header[11] % 3];
        }
        let mut server = server();
        if let Some(answer) = server.answer(NOW, host(), &bytes, Transport::Udp) {
            prop_assert!(answer.len() <= usize::from(MAX_UDP_ANSWER));
            prop_assert!(answer[2] & 0x80 != 0, "a response");
            prop_assert_eq!(&answer[..2], &bytes[..2]);
        }
    }

    /// What a name may be, the answer is one that can be read, and within the bounds of a client without EDNS.
    #[test]
    fn names_of_any_kind_are_answered(
        labels in prop::collection::vec("[a-z0-9_-]{1,20}", 0..5),
        below in 0..4_usize,
        kind in 0..300_u16,
    ) {
        let suffix = ["mesh.", "_udp.mesh.", "60.50.10.in-addr.arpa.", "sip.mesh."][below];
        let name = format!("{}.{suffix}", labels.join("."));
        if let Ok(name) = Name::from_ascii(name.trim_start_matches('.')) {
            let mut message = Message::new(7, MessageType::Query, OpCode::Query);
            message.add_query(Query::query(name, RecordType::from(kind)));
            let answer = server().answer(NOW, host(), &message.to_vec().unwrap(), Transport::Udp).unwrap();
            prop_assert!(answer.len() <= 512);
            Message::from_bytes(&answer).unwrap();
        }
    }
}
