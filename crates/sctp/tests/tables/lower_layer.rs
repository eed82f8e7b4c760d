//! The lower layer: UDP (RFC 6951), and ICMP messages (RFC 9260 section 10).

use super::support::*;
use super::{plain, snapshot};
use ringway_sansio::{Addressing, Icmp};
use ringway_sctp::{Close, Event, NoAssociation, PROTOCOL, PathState, Settings, State};

/// RFC 6951 sections 5.1 and 5.3: a locally opened association uses the configured port.
#[test]
fn an_opener_uses_the_configured_port() {
    let mut s = Script::new(plain());
    let settings = Settings { udp_port: 9899, ..plain() };
    s.id = Some(s.sctp.connect(s.now, &[A1], PORT, &[B1], 40_000, Some(settings)).unwrap());
    let (way, _) = s.take().unwrap();
    assert_eq!((way.udp_port, way.source, way.destination), (9899, A1, B1));
    // Section 5.6: the UDP header is part of the path's MTU.
    s.sctp.abort(s.id(), b"").unwrap();
}

/// RFC 6951 section 5.4: answers go to where the packet came from, the association's too, from when
/// its tag was right on.
#[test]
fn each_path_learns_its_port() {
    let mut s = Script::new(plain());
    s.addresses = vec![B1, B2];
    s.udp_port = 1111;
    s.listen(&[A1, A2]);
    s.give_init();
    assert_eq!(s.sent[0].0.udp_port, 1111, "INIT ACK");
    s.take_init_ack();
    s.udp_port = 2222;
    s.echo("");
    while let Some((way, bytes)) = s.take() {
        assert_eq!(way.udp_port, 2222);
        s.answer_beats(way, &bytes);
    }
    s.udp_port = 3333;
    s.give_from(B2, A2, "DATA 1 IBE 0:0 10");
    let (way, _) = s.take().unwrap();
    assert_eq!((way.destination, way.udp_port), (B2, 3333));
    let ports: Vec<_> = snapshot(&s).paths.iter().map(|path| path.udp_port).collect();
    assert_eq!(ports, [2222, 3333]);
    // A wrong tag teaches nothing.
    s.udp_port = 4444;
    s.give_tagged(s.tag ^ 1, B2, A2, "DATA 2 IBE 0:1 10");
    s.expect_nothing();
    assert_eq!(snapshot(&s).paths[1].udp_port, 3333);
    // Without UDP the path goes straight over IP.
    s.udp_port = 0;
    s.give_from(B2, A2, "DATA 2 IBE 0:1 10");
    assert_eq!(s.take().unwrap().0.udp_port, 0);
}

/// RFC 6951 section 5.6: the UDP header reduces the room of a packet, and is available again without
/// it.
#[test]
fn the_udp_header_takes_room() {
    let mut s = Script::new(plain());
    s.udp_port = 9899;
    s.listen(&[A1]);
    s.give_init();
    s.take_init_ack();
    s.echo("");
    s.expect("COOKIE_ACK");
    let give = |s: &mut Script| {
        s.sctp.send(s.now, s.id(), &Default::default(), vec![1; 1452]).unwrap();
    };
    give(&mut s);
    s.expect("DATA 1 B 0:0 1444");
    s.expect("DATA 2 E 0:0 8");
    s.udp_port = 0;
    s.give("SACK 2");
    give(&mut s);
    s.expect("DATA 3 BE 0:1 1452");
    // What was cut for a larger packet goes out as it is, in fragments.
    s.udp_port = 9899;
    s.give("HEARTBEAT");
    s.take().unwrap();
    s.wait(secs(1));
    let (way, bytes) = s.take().unwrap();
    assert_eq!((way.fragment, bytes.len()), (Some(1500), 1480));
}

fn icmp(s: &mut Script, icmp: Icmp, quoted: &[u8]) {
    s.sctp.handle_icmp(s.now, &Addressing::new(A1, B1, PROTOCOL), icmp, quoted);
    s.collect();
}

/// The first bytes of a packet that the host has sent.
fn quote(s: &Script, tag: u32) -> Vec<u8> {
    let mut bytes = s.ports.0.to_be_bytes().to_vec();
    bytes.extend_from_slice(&s.ports.1.to_be_bytes());
    bytes.extend_from_slice(&tag.to_be_bytes());
    bytes
}

/// RFC 9260 section 10, rules ICMP5 and ICMP6: what quotes no association, or not its tag, is
/// passed over; ICMP7 and ICMP8.
#[test]
fn icmp_must_quote_the_tag() {
    let mut s = Script::accepted(plain());
    let good = quote(&s, s.peer_tag);
    let wrong = quote(&s, s.peer_tag ^ 1);
    let zero = [quote(&s, 0), vec![0; 4], vec![1, 0, 0, 20, 0, 0, 0, 1]].concat();
    for bad in [&good[..7], &wrong, &zero] {
        icmp(&mut s, Icmp::ProtocolUnreachable, bad);
        icmp(&mut s, Icmp::TooBig(600), bad);
    }
    assert_eq!(s.sctp.counters().icmp_refused, 6);
    assert_eq!((snapshot(&s).state, snapshot(&s).paths[0].mtu), (State::Established, 1500));
    icmp(&mut s, Icmp::TooBig(0), &good);
    icmp(&mut s, Icmp::TooBig(9000), &good);
    assert_eq!(snapshot(&s).paths[0].mtu, 1500);
    icmp(&mut s, Icmp::TooBig(1000), &good);
    assert_eq!(snapshot(&s).paths[0].mtu, 1000);
    // Never below what a packet must hold.
    icmp(&mut s, Icmp::TooBig(68), &good);
    assert_eq!(snapshot(&s).paths[0].mtu, 512);
    icmp(&mut s, Icmp::ProtocolUnreachable, &good);
    let why = Close::Aborted { code: 0, reason: Default::default() };
    assert!(s.events().contains(&Event::Closed(s.id(), why)));
    assert_eq!(s.sctp.snapshot(s.id()), Err(NoAssociation));
    s.expect_nothing();
}

/// RFC 9260 section 10, rules ICMP6 and ICMP8: while nothing but INIT was sent, its own tag counts.
#[test]
fn icmp_ends_an_opening() {
    let mut s = Script::new(plain());
    s.connect();
    let (_, init) = s.take().unwrap();
    let mut forged = init.clone();
    forged[16] ^= 1;
    icmp(&mut s, Icmp::ProtocolUnreachable, &forged);
    icmp(&mut s, Icmp::ProtocolUnreachable, &init[..16]);
    assert_eq!(snapshot(&s).state, State::CookieWait);
    icmp(&mut s, Icmp::ProtocolUnreachable, &init[..20]);
    assert!(matches!(s.events()[..], [Event::Closed(..)]));
    // Once there is an answer, the INIT does not count any more.
    let mut s = Script::new(plain());
    s.connect();
    s.collect();
    let init = s.sent[0].1.clone();
    s.take_init();
    s.give_init_ack();
    icmp(&mut s, Icmp::ProtocolUnreachable, &init);
    assert_eq!(snapshot(&s).state, State::CookieEchoed);
}

/// RFC 9260 section 10, rules ICMP8 and ICMP9: one of several addresses without SCTP does not end the
/// association while there is another; the next is used at once.
#[test]
fn an_address_that_refuses_does_not_end_the_association() {
    let mut s = Script::two_paths(plain());
    let good = quote(&s, s.peer_tag);
    icmp(&mut s, Icmp::ProtocolUnreachable, &good);
    assert_eq!(snapshot(&s).state, State::Established);
    s.send(0, 100);
    s.expect_to(B2, "DATA 1 BE 0:0 100");

    let mut s = Script::new(plain());
    let (locals, remotes) = ([A1, A2], [B1, B2]);
    let id = s.sctp.connect(s.now, &locals, PORT, &remotes, 40_000, None).unwrap();
    s.id = Some(id);
    let (_, init) = s.take().unwrap();
    icmp(&mut s, Icmp::ProtocolUnreachable, &init[..20]);
    s.wait(ms(1));
    s.expect_to(B2, "INIT");
    let sent = Addressing::new(A2, B2, PROTOCOL);
    s.sctp.handle_icmp(s.now, &sent, Icmp::ProtocolUnreachable, &init[..20]);
    assert!(matches!(s.events()[..], [Event::Closed(..)]));
}

/// RFC 9260 section 10, rule ICMP9: counts as an error of the path.
#[test]
fn an_unreachable_address_is_an_error() {
    let mut s = Script::two_paths(plain());
    let good = quote(&s, s.peer_tag);
    icmp(&mut s, Icmp::Unreachable, &good);
    let told = Event::Path { id: s.id(), remote: B1, state: PathState::PotentiallyFailed };
    assert_eq!(s.events(), [told]);
    s.send(0, 100);
    s.expect_to(B2, "DATA 1 BE 0:0 100");
    // What is in flight there does not wait for its timer.
    let mut s = Script::two_paths(plain());
    let good = quote(&s, s.peer_tag);
    s.send(0, 100);
    s.expect_to(B1, "DATA 1 BE 0:0 100");
    icmp(&mut s, Icmp::Unreachable, &good);
    s.expect_to(B2, "DATA 1 BE 0:0 100");
}

/// The world asks which packets are an association's or a listener's, and which addresses it may
/// send from.
#[test]
fn the_world_may_ask() {
    let s = Script::accepted(plain());
    let way = Addressing::new(B1, A1, PROTOCOL);
    assert!(s.sctp.owns(&way, s.ports.1, s.ports.0));
    assert!(s.sctp.owns(&way, 77, s.ports.0), "the listener's");
    assert!(!s.sctp.owns(&way, s.ports.1, 77));
    let other = Addressing::new(B1, A2, PROTOCOL);
    assert!(!s.sctp.owns(&other, s.ports.1, s.ports.0));
    assert_eq!(s.sctp.addresses(s.id()), Ok((vec![A1], vec![B1])));
}
