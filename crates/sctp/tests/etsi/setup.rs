//! Association set-up (AS).

use super::*;
use ringway_sctp::{Limits, State, Tsn};
use std::collections::HashSet;
use std::net::IpAddr;

/// The addresses in IPv4 and IPv6 parameters.
fn addresses(list: &[IpAddr]) -> InitParameters {
    InitParameters { addresses: list.to_vec(), ..InitParameters::default() }
}

/// The INIT ACK that is next.
fn init_ack(s: &mut Script, look: impl FnOnce(&Init<'_>)) {
    let (_, bytes) = s.take().unwrap();
    let list = chunks(&bytes);
    let [Chunk::InitAck(init)] = &list[..] else { panic!("{list:?}") };
    look(init);
}

/// AS 1.1.1: an association opened from here.
#[test]
fn as_v_1_1_1() {
    let mut s = Script::connecting(plain());
    s.give_init_ack();
    s.expect("COOKIE_ECHO");
    s.give("COOKIE_ACK");
    assert!(s.events().contains(&Event::Up { id: s.id(), listener: None }));
    assert_eq!(snapshot(&s).state, State::Established);
}

/// AS 1.1.2: an association opened by the peer.
#[test]
fn as_v_1_1_2() {
    let mut s = closed();
    s.give_init();
    s.take_init_ack();
    s.echo("");
    s.expect("COOKIE_ACK");
    assert_eq!(snapshot(&s).state, State::Established);
}

/// AS 1.2.1: no INIT ACK comes: INIT again when T1-init runs out.
#[test]
fn as_i_1_2_1() {
    let mut s = Script::connecting(plain());
    s.wait(ms(999));
    s.expect_nothing();
    s.wait(ms(1));
    s.expect("INIT");
}

/// AS 1.2.2: no COOKIE ACK comes: COOKIE ECHO again when T1-cookie runs out.
#[test]
fn as_i_1_2_2() {
    let mut s = echoed();
    // The INIT ACK came at once, so the timeout is the least there is.
    s.wait(ms(199));
    s.expect_nothing();
    s.wait(ms(1));
    s.expect("COOKIE_ECHO");
}

/// AS 1.3.1: INIT goes out again Max.Init.Retransmits times, and no more.
#[test]
fn as_i_1_3_1() {
    let mut s = Script::connecting(Settings { max_init_retransmits: 3, ..plain() });
    for wait in [1, 2, 4] {
        s.wait(secs(wait));
        s.expect("INIT");
    }
    s.wait(secs(1000));
    s.expect_nothing();
    assert_eq!(end(&mut s), Some(Close::Unreachable));
}

/// AS 1.3.2: so does COOKIE ECHO.
#[test]
fn as_i_1_3_2() {
    let mut s = Script::connecting(Settings { max_init_retransmits: 3, ..plain() });
    s.give_init_ack();
    s.expect("COOKIE_ECHO");
    for wait in [1, 2, 4] {
        s.wait(secs(wait));
        s.expect("COOKIE_ECHO");
    }
    s.wait(secs(1000));
    s.expect_nothing();
    assert_eq!(end(&mut s), Some(Close::Unreachable));
}

/// AS 1.4: where there is no room for an association none is made. The purpose has the INIT
/// answered with ABORT; here an INIT takes no room, so it is the cookie that is refused (RFC 9260
/// section 5.1 B).
#[test]
fn as_i_1_4() {
    let mut s = closed();
    s.sctp = host_with(3, plain(), Limits { associations: 0, ..Limits::default() });
    s.listen(&[A1]);
    s.give_init();
    s.take_init_ack();
    s.echo("");
    assert!(s.line().unwrap().1.starts_with("ABORT"));
    assert_eq!(s.sctp.len(), 0);
}

/// AS 1.5.1: the tags of INITs are random: none of a thousand is there twice, or zero.
#[test]
fn as_v_1_5_1() {
    let mut s = Script::new(plain());
    let tags: HashSet<u32> = (0..1000u16)
        .map(|n| {
            s.sctp.connect(s.now, &[A1], 1024 + n, &[B1], 40_000, None).unwrap();
            s.take_init();
            s.tag
        })
        .collect();
    assert!(tags.len() == 1000 && !tags.contains(&0));
}

/// AS 1.5.2: so are those of INIT ACKs.
#[test]
fn as_v_1_5_2() {
    let mut s = closed();
    let tags: HashSet<u32> = (0..1000)
        .map(|_| {
            s.give_init();
            s.take_init_ack();
            s.tag
        })
        .collect();
    assert!(tags.len() == 1000 && !tags.contains(&0));
}

/// Parameters that ask for nothing here: cookie preservative, supported address types, ECN.
const VARIOUS: [u8; 20] = [0, 9, 0, 8, 0, 0, 3, 232, 0, 12, 0, 6, 0, 5, 0, 0, 0x80, 0, 0, 4];

/// AS 1.6.1: an INIT with various parameters is answered.
#[test]
fn as_v_1_6_1() {
    let mut s = closed();
    let (fixed, parameters) = s.init();
    give_raw(&mut s, kind::INIT, &fixed, &parameters, &VARIOUS);
    s.take_init_ack();
    s.echo("");
    s.expect("COOKIE_ACK");
}

/// AS 1.6.2: so is an INIT ACK. The purpose has a cookie preservative in it, which RFC 9260 section
/// 3.3.3 does not list; it does no harm.
#[test]
fn as_v_1_6_2() {
    let mut s = Script::connecting(plain());
    let (fixed, mut parameters) = s.init();
    parameters.cookie = Some(vec![9; 48]);
    give_raw(&mut s, kind::INIT_ACK, &fixed, &parameters, &VARIOUS);
    s.expect("COOKIE_ECHO");
    s.give("COOKIE_ACK");
    assert_eq!(snapshot(&s).state, State::Established);
}

/// AS 1.7.1: the peer takes fewer streams than are wanted: so many are used.
#[test]
fn as_v_1_7_1() {
    let mut s = closed();
    s.streams = (10, 3);
    s.give_init();
    s.take_init_ack();
    s.echo("");
    assert_eq!(snapshot(&s).streams.0, 3);
}

/// AS 1.7.2: an INIT of no outbound streams is answered with ABORT.
#[test]
fn as_i_1_7_2() {
    let mut s = closed();
    s.streams = (0, 10);
    s.give_init();
    s.expect("ABORT 13");
    assert_eq!(s.sctp.len(), 0);
}

/// AS 1.7.3: an INIT ACK that takes fewer streams than are wanted: so many are used.
#[test]
fn as_v_1_7_3() {
    let mut s = Script::connecting(plain());
    s.streams = (10, 3);
    s.give_init_ack();
    s.expect("COOKIE_ECHO");
    assert_eq!(snapshot(&s).streams.0, 3);
}

/// AS 1.7.4: an INIT ACK of no outbound streams is answered with ABORT.
#[test]
fn as_i_1_7_4() {
    let mut s = Script::connecting(plain());
    s.streams = (0, 10);
    s.give_init_ack();
    assert!(s.line().unwrap().1.starts_with("ABORT"));
    assert!(matches!(end(&mut s), Some(Close::Violation(_))));
}

/// AS 1.7.5: two streams each way carry data.
#[test]
fn as_v_1_7_5() {
    let mut s = closed();
    s.streams = (2, 2);
    s.give_init();
    s.take_init_ack();
    s.echo("");
    s.expect("COOKIE_ACK");
    s.give("DATA 1 BE 1:0 10 + DATA 2 BE 0:0 11");
    assert_eq!(s.read(), [10, 11]);
    s.sent.clear();
    s.send(1, 12);
    s.expect("DATA 1 BE 1:0 12");
}

/// Delivers an unknown parameter whose two highest bits are `bits`, and a known one after it: the
/// script's second address. Returns the reported parameters and whether the address was accepted.
fn unknown_parameter(bits: u8) -> (Vec<Vec<u8>>, bool) {
    let mut s = closed();
    s.forwards = false;
    let (fixed, parameters) = s.init();
    let unknown = [bits << 6 | 0x3e, 0xff, 0, 8, 1, 2, 3, 4];
    let more = [&unknown[..], &[0, 5, 0, 8, 10, 0, 1, 2, 0, 5, 0, 8, 10, 0, 2, 2]].concat();
    give_raw(&mut s, kind::INIT, &fixed, &parameters, &more);
    let mut back = Vec::new();
    let (_, bytes) = s.take().unwrap();
    if let [Chunk::InitAck(init)] = &chunks(&bytes)[..] {
        back = unrecognized(init);
        s.tag = init.initiate_tag;
        s.cookie = InitParameters::read(init, true).unwrap().cookie.unwrap();
    }
    s.echo("");
    assert!(back.iter().all(|one| *one == unknown));
    let known = snapshot(&s).paths.iter().any(|p| p.remote == B2);
    (back, known)
}

/// AS 1.8.1: unknown, highest bits 01: reported, and the rest is ignored.
#[test]
fn as_i_1_8_1() {
    let (back, known) = unknown_parameter(0b01);
    assert_eq!((back.len(), known), (1, false));
}

/// AS 1.8.2: highest bits 00: not reported, and the rest is ignored.
#[test]
fn as_i_1_8_2() {
    let (back, known) = unknown_parameter(0b00);
    assert_eq!((back.len(), known), (0, false));
}

/// AS 1.8.3: highest bits 11: reported, and the rest is processed.
#[test]
fn as_i_1_8_3() {
    let (back, known) = unknown_parameter(0b11);
    assert_eq!((back.len(), known), (1, true));
}

/// AS 1.8.4: highest bits 10: not reported, and the rest is processed.
#[test]
fn as_i_1_8_4() {
    let (back, known) = unknown_parameter(0b10);
    assert_eq!((back.len(), known), (0, true));
}

/// AS 1.9.1: an INIT in ESTABLISHED that adds no address is answered, and changes nothing.
#[test]
fn as_o_1_9_1() {
    let mut s = Script::accepted(plain());
    let before = snapshot(&s);
    let (tag, tsn) = (s.tag, s.tsn);
    s.give_init();
    s.take_init_ack();
    assert_ne!(s.tag, tag);
    (s.tag, s.tsn) = (tag, tsn);
    assert_eq!(snapshot(&s), before);
    s.give("HEARTBEAT");
    s.expect("HEARTBEAT_ACK");
}

/// AS 1.9.2: one that adds an address is answered with ABORT, and changes nothing (RFC 9260 section
/// 5.2.2).
#[test]
fn as_o_1_9_2() {
    let mut s = Script::accepted(plain());
    let before = snapshot(&s);
    s.addresses = vec![B1, B2];
    s.peer_tag = 0x777;
    s.give_init();
    s.expect("ABORT 11");
    assert_eq!(snapshot(&s), before);
}

/// AS 1.10.1: an INIT without addresses: the one it came from is the peer's only one.
#[test]
fn as_v_1_10_1() {
    let s = Script::accepted(plain());
    let paths: Vec<IpAddr> = snapshot(&s).paths.iter().map(|p| p.remote).collect();
    assert_eq!(paths, [B1]);
}

/// AS 1.10.2: so for an INIT ACK.
#[test]
fn as_v_1_10_2() {
    let s = Script::connected(plain());
    let paths: Vec<IpAddr> = snapshot(&s).paths.iter().map(|p| p.remote).collect();
    assert_eq!(paths, [B1]);
}

/// AS 1.11.1: an INIT with addresses: all are the peer's, with the one it came from.
#[test]
fn as_v_1_11_1() {
    let mut s = Script::new(plain());
    s.listen(&[A1, A2]);
    let (fixed, _) = s.init();
    give_raw(&mut s, kind::INIT, &fixed, &addresses(&[B2]), &[]);
    s.take_init_ack();
    s.echo("");
    let paths: HashSet<IpAddr> = snapshot(&s).paths.iter().map(|p| p.remote).collect();
    assert_eq!(paths, HashSet::from([B1, B2]));
}

/// AS 1.11.2: so for an INIT ACK.
#[test]
fn as_v_1_11_2() {
    let mut s = Script::connecting(plain());
    let (fixed, _) = s.init();
    let parameters = InitParameters { cookie: Some(vec![9; 48]), ..addresses(&[B2]) };
    give_raw(&mut s, kind::INIT_ACK, &fixed, &parameters, &[]);
    s.expect("COOKIE_ECHO");
    let paths: HashSet<IpAddr> = snapshot(&s).paths.iter().map(|p| p.remote).collect();
    assert_eq!(paths, HashSet::from([B1, B2]));
}

const HOST_NAME: [u8; 8] = [0, 11, 0, 8, b'a', b'.', b'b', 0];

/// AS 1.12.1: a host name in an INIT. The purpose has it resolved; RFC 9260 section 3.3.2.1 has it
/// answered with ABORT.
#[test]
fn as_v_1_12_1() {
    let mut s = closed();
    let (fixed, _) = s.init();
    give_raw(&mut s, kind::INIT, &fixed, &InitParameters::default(), &HOST_NAME);
    s.expect("ABORT 5");
}

/// AS 1.12.2: a host name in an INIT ACK is answered with ABORT.
#[test]
fn as_i_1_12_2() {
    let mut s = Script::connecting(plain());
    let (fixed, _) = s.init();
    let parameters = InitParameters { cookie: Some(vec![9; 48]), ..InitParameters::default() };
    give_raw(&mut s, kind::INIT_ACK, &fixed, &parameters, &HOST_NAME);
    s.expect("ABORT 5");
    assert!(end(&mut s).is_some());
}

/// AS 1.13.1: the address types that the peer supports are heeded: it takes IPv4.
#[test]
fn as_v_1_13_1() {
    let mut s = closed();
    let (fixed, mut parameters) = s.init();
    parameters.address_types = Some((true, false));
    s.give_init_with(&fixed, &parameters);
    s.take_init_ack();
    s.echo("");
    s.expect("COOKIE_ACK");
}

/// AS 1.13.2: the peer lists only IPv6 as supported, and sends over IPv4. The purpose has the
/// association refused; by RFC 9260 section 5.1.2 the family of its packet is always usable.
#[test]
fn as_i_1_13_2() {
    let mut s = closed();
    let (fixed, mut parameters) = s.init();
    parameters.address_types = Some((false, true));
    s.give_init_with(&fixed, &parameters);
    s.take_init_ack();
    s.echo("");
    s.expect("COOKIE_ACK");
}

/// AS 1.14.1: an INIT whose tag is zero makes nothing (RFC 9260 section 3.3.2: dropped).
#[test]
fn as_i_1_14_1() {
    let mut s = closed();
    s.peer_tag = 0;
    s.give_init();
    s.expect_nothing();
    assert_eq!(s.sctp.len(), 0);
}

/// AS 1.14.2: an INIT ACK whose tag is zero ends the association; RFC 9260 section 3.3.3.
#[test]
fn as_i_1_14_2() {
    let mut s = Script::connecting(plain());
    s.peer_tag = 0;
    s.give_init_ack();
    let (_, bytes) = s.take().unwrap();
    assert_eq!(Packet::parse(&bytes).unwrap().tag, s.tag, "it knows us by our own tag");
    assert!(matches!(chunks(&bytes)[..], [Chunk::Abort { reflected: true, .. }]));
    assert!(matches!(end(&mut s), Some(Close::Violation(_))));
}

/// AS 1.15: INIT is sent again to another address of the peer's, where several are known.
#[test]
fn as_i_1_15() {
    let mut s = Script::new(plain());
    let remotes = [B1, B2];
    s.sctp.connect(s.now, &[A1, A2], PORT, &remotes, 40_000, None).unwrap();
    let mut reached = HashSet::new();
    for _ in 0..4 {
        let (to, line) = s.line().unwrap();
        assert_eq!(line, "INIT");
        reached.insert(to);
        s.wait(secs(60));
    }
    assert_eq!(reached, HashSet::from(remotes));
}

/// The initial TSN is a number like any other: it may be the last before zero.
#[test]
fn a_tsn_that_wraps_is_taken() {
    let mut s = closed();
    s.peer_tsn = Tsn::new(u32::MAX);
    s.give_init();
    s.take_init_ack();
    init_ack_is_answered(&mut s);
}

fn init_ack_is_answered(s: &mut Script) {
    s.echo("DATA 1 BE 0:0 10 + DATA 2 BE 0:1 11");
    s.expect("COOKIE_ACK + SACK 2");
    assert_eq!(s.read(), [10, 11]);
    s.give_init();
    init_ack(s, |init| assert_ne!(init.initiate_tag, 0));
}
