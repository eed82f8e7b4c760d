use super::phone::{Phone, PhoneHost, Plan};
use super::*;
use ringway_link::loss::RandomLoss;
use ringway_link::{Chance, LinkConfig, Loss, Rate, Span, Streams};
use ringway_sansio::{Duration, Flow, FlowId, Outbox, Program, SplitMix, Target, Time, Transport};
use ringway_sim::flows::TransportConfig;
use ringway_sip::{message, write};

fn transport() -> [TransportConfig; 3] {
    let tcp = ringway_tcp::Settings { nagle: false, ..Default::default() };
    [TransportConfig::Udp, TransportConfig::Tcp(tcp), TransportConfig::Sctp(Default::default(), 64)]
}

fn bed(transport: TransportConfig, loss: f64) -> TestBed {
    let link = LinkConfig {
        rate: Rate(100_000_000),
        delay: Span::from_millis(1),
        loss: Loss::Random(RandomLoss {
            chance: Chance::percent(loss).unwrap(),
            ..RandomLoss::default()
        }),
        ..LinkConfig::default()
    };
    let clean = LinkConfig { loss: Loss::default(), ..link.clone() };
    TestBed {
        transport,
        links: [link.clone(), link, clean].map(|link| [link.clone(), link]),
        pairs: 3,
        callers_register: true,
        register_again: None,
        from: Time::from_secs(60),
        until: Time::from_secs(120),
        end: Time::from_secs(260),
        talk: Duration::from_secs(2),
        pause: Duration::from_secs(1),
        answer: Duration::from_millis(500),
    }
}

/// Without loss every call follows RFC 3261 section 24, and nothing is retransmitted.
#[test]
fn calls_complete_without_retransmissions() {
    for transport in transport() {
        let calls = bed(transport, 0.0).run(Streams::new(1, 0)).unwrap();
        let transport = transport.transport();
        assert!((50..=60).contains(&calls.calls.len()), "{transport}: {}", calls.calls.len());
        assert_eq!(calls.registered.len(), 6);
        assert!(
            calls.registered.iter().all(|r| matches!(r, Some(Ok(_)))),
            "{:?}",
            calls.registered
        );
        for call in &calls.calls {
            let since = |at: Option<Time>| at.unwrap().since(call.invited).as_secs_f64();
            // Four links of 1 ms there, and four back.
            assert!((0.008..0.009).contains(&since(call.ringing)), "{transport}: {call:?}");
            assert!((0.508..0.509).contains(&since(call.answered)), "{transport}: {call:?}");
            assert!((2.516..2.52).contains(&since(call.ended)), "{transport}: {call:?}");
            assert_eq!(call.failed, None);
        }
        assert_eq!((calls.retransmitted, calls.transport_retransmits, calls.dropped), (0, 0, 0));
    }
}

/// With losses calls are completed too: lost messages are retransmitted by SIP over UDP, otherwise
/// by the transport. The same streams give the same calls.
#[test]
fn calls_complete_despite_losses() {
    for transport in transport() {
        let run = |replication| bed(transport, 10.0).run(Streams::new(1, replication)).unwrap();
        let calls = run(0);
        let answered = calls.calls.iter().filter(|c| c.answered.is_some()).count();
        let transport = transport.transport();
        assert!(answered * 20 >= calls.calls.len() * 19, "{transport}: {answered} {calls:?}");
        assert!(calls.calls.len() > 20, "{transport}: {}", calls.calls.len());
        let reliable = transport.is_reliable();
        assert_eq!(calls.transport_retransmits > 0, reliable, "{transport}");
        assert!(calls.retransmitted > 0 || reliable, "{transport}");
        assert_eq!(run(0), calls);
        assert_ne!(run(1), calls);
    }
}

/// The figures of the papers depend on the sizes of these requests.
#[test]
fn requests_of_a_phone_are_these_octets() {
    let local = "10.0.0.1:5060".parse().unwrap();
    let remote = "10.0.2.1:5060".parse().unwrap();
    let transport = Transport::Sctp;
    let plan = Plan {
        register_again: None,
        register: Some(Time::from_secs(1)),
        domain: "example.org",
        call: Some(("callee0@example.org".into(), Time::from_secs(2))),
        until: Time::from_secs(9),
        talk: Duration::from_secs(3),
        pause: Duration::from_secs(1),
        answer: Duration::from_secs(1),
    };
    let proxy = Target::Peer { transport, remote, name: None };
    let mut host = PhoneHost(vec![Phone::new(0, "caller0", local, proxy, plan, SplitMix::new(1))]);
    let mut out = Outbox::new();
    host.timeout(Time::from_secs(1), &mut out);
    host.timeout(Time::from_secs(2), &mut out);
    let invite = out.bytes(&out.sends()[1]).to_vec();
    let flow = Flow { id: FlowId::new(0, 0), transport, local, remote };
    let mut ok = Vec::new();
    let invite = message::parse(&invite).unwrap();
    let lines = b"Record-Route: <sip:10.0.2.1;lr>\r\nContact: <sip:callee0@10.0.1.1>\r\n";
    write::response(&mut ok, &invite, None, 200, "", Some(b"t"), lines, b"");
    host.message(Time::from_secs(3), &flow, &ok, &mut out);
    host.timeout(Time::from_secs(6), &mut out);
    let sent: Vec<_> = out
        .iter()
        .map(|(_, request)| String::from_utf8(request.to_vec()).unwrap().replace('\r', ""))
        .collect();
    assert_eq!(sent, REQUESTS);
}

/// A REGISTER, an INVITE, the ACK of its 200 and the BYE.
const REQUESTS: &[&str] = &[
    "REGISTER sip:example.org SIP/2.0\n\
     Via: SIP/2.0/SCTP 10.0.0.1:5060;branch=z9hG4bKaaaaaaaab6etulxpwmsv.aaaaaaaaaaaaa;rport\n\
     Max-Forwards: 70\n\
     From: <sip:caller0@example.org>;tag=71c18690ee42c90b\n\
     To: <sip:caller0@example.org>\n\
     Call-ID: 71bb54d8d101b5b9@10.0.0.1\n\
     CSeq: 1 REGISTER\n\
     Contact: <sip:caller0@10.0.0.1:5060;transport=sctp>\n\
     Expires: 3600\n\
     Content-Length: 0\n\n",
    "INVITE sip:callee0@example.org SIP/2.0\n\
     Via: SIP/2.0/SCTP 10.0.0.1:5060;branch=z9hG4bKaaaaaaaadq2nbp7zafic.aaaaaaaaaaaaa;rport\n\
     Max-Forwards: 70\n\
     From: <sip:caller0@example.org>;tag=e099ec6cd7363ca5\n\
     To: <sip:callee0@example.org>\n\
     Call-ID: 85e7bb0f12278575@10.0.0.1\n\
     CSeq: 1 INVITE\n\
     Contact: <sip:caller0@10.0.0.1:5060;transport=sctp>\n\
     Content-Type: application/sdp\n\
     Content-Length: 126\n\n\
     v=0\n\
     o=- 1 1 IN IP4 10.0.0.1\n\
     s=-\n\
     c=IN IP4 10.0.0.1\n\
     t=0 0\n\
     m=audio 7078 RTP/AVP 0 8 101\n\
     a=rtpmap:101 telephone-event/8000\n",
    "ACK sip:callee0@10.0.1.1 SIP/2.0\n\
     Via: SIP/2.0/SCTP 10.0.0.1:5060;branch=z9hG4bKaaaaaaaaesixddpdk7r5.aaaaaaaaaaaaa;rport\n\
     Route: <sip:10.0.2.1;lr>\n\
     Max-Forwards: 70\n\
     From: <sip:caller0@example.org>;tag=e099ec6cd7363ca5\n\
     To: <sip:callee0@example.org>;tag=t\n\
     Call-ID: 85e7bb0f12278575@10.0.0.1\n\
     CSeq: 1 ACK\n\
     Content-Length: 0\n\n",
    "BYE sip:callee0@10.0.1.1 SIP/2.0\n\
     Via: SIP/2.0/SCTP 10.0.0.1:5060;branch=z9hG4bKaaaaaaaafs2dlshhiylh.aaaaaaaaaaaaa;rport\n\
     Route: <sip:10.0.2.1;lr>\n\
     Max-Forwards: 70\n\
     From: <sip:caller0@example.org>;tag=e099ec6cd7363ca5\n\
     To: <sip:callee0@example.org>;tag=t\n\
     Call-ID: 85e7bb0f12278575@10.0.0.1\n\
     CSeq: 2 BYE\n\
     Content-Length: 0\n\n",
];
