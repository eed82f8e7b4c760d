//! The handshake: RFC 9260 sections 5.1 to 5.3, 8.4 and 8.5.

use super::support::*;
use super::{plain, snapshot};
use proptest::prelude::*;
use ringway_sansio::Endpoint;
use ringway_sctp::wire::chunk::{Chunk, kind};
use ringway_sctp::wire::{AuthParameters, Cause, Init, InitParameters, Packet, Parameters, Writer};
use ringway_sctp::{Close, Event, Settings, State};
use std::net::IpAddr;

fn listening() -> Script {
    let mut s = Script::new(plain());
    s.listen(&[A1]);
    s
}

/// RFC 9260 section 5.1 B: an INIT leaves nothing behind; the cookie alone makes the association.
#[test]
fn an_init_stores_nothing() {
    let mut s = listening();
    s.give_init();
    s.take_init_ack();
    assert_eq!(s.sctp.len(), 0);
    assert_eq!(s.sctp.poll_timeout(), None);
    s.wait(secs(59));
    s.echo("DATA 1 BE 0:0 10");
    s.expect("COOKIE_ACK + SACK 1");
    assert_eq!((s.sctp.len(), s.read()), (1, vec![10]));
    assert_eq!(snapshot(&s).state, State::Established);
}

/// RFC 9260 section 5.1.1: the number of streams is the lesser of what one end wants and the other
/// takes.
#[test]
fn the_smaller_number_of_streams_is_used() {
    let mut s = listening();
    s.streams = (7, 2000);
    s.give_init();
    s.take_init_ack();
    s.echo("");
    assert_eq!(snapshot(&s).streams, (1024, 7));
}

/// RFC 9260 section 5.1.1: messages for streams that the peer does not accept are not sent.
#[test]
fn messages_of_no_stream_are_not_sent() {
    let mut s = Script::connecting(plain());
    s.streams = (10, 3);
    for stream in [2, 9, 0, 5, 2] {
        s.send(stream, 10 + usize::from(stream));
    }
    s.give_init_ack();
    s.expect("COOKIE_ECHO + DATA 1 BE 2:0 12 + DATA 2 BE 0:0 10 + DATA 3 BE 2:1 12");
    s.give("COOKIE_ACK + SACK 3");
    assert!(s.events().contains(&Event::SendFailed { id: s.id(), messages: 2 }));
    assert_eq!((snapshot(&s).streams, snapshot(&s).unacknowledged), ((3, 10), 0));
    let options = ringway_sctp::SendOptions { stream: 3, ..Default::default() };
    assert!(s.sctp.send(s.now, s.id(), &options, vec![1]).is_err());
}

/// RFC 9260 section 5.1.5, steps 2 and 3: a cookie that was changed, or comes with other ports or
/// another tag, is dropped without a word.
#[test]
fn a_forged_cookie_is_dropped() {
    for what in 0..4 {
        let mut s = listening();
        s.give_init();
        s.take_init_ack();
        match what {
            0 => s.cookie[20] ^= 1,
            1 => s.ports.1 += 1,
            2 => s.tag ^= 1,
            _ => s.cookie.truncate(10),
        }
        s.echo("DATA 1 BE 0:0 10");
        s.expect_nothing();
        assert_eq!((s.sctp.len(), s.sctp.counters().cookies_refused), (0, 1), "{what}");
    }
}

/// RFC 9260 section 5.1.5, step 4: a cookie that is too old is answered with an ERROR.
#[test]
fn a_stale_cookie_is_reported() {
    let mut s = listening();
    s.give_init();
    s.take_init_ack();
    s.wait(ms(60_001));
    s.echo("DATA 1 BE 0:0 10");
    s.expect("ERROR 3");
    assert_eq!(s.sctp.len(), 0);
}

/// RFC 9260 section 5.2.4 D: a cookie that comes again is acknowledged again, however old.
#[test]
fn a_cookie_again_is_acknowledged_again() {
    let mut s = Script::accepted(plain());
    s.wait(secs(100));
    s.echo("");
    s.expect("COOKIE_ACK");
    assert_eq!(s.sctp.len(), 1);
    assert!(s.events().is_empty());
}

/// RFC 9260 section 3.3.2: an invalid INIT is answered with an ABORT that has its tag, and one with a
/// tag of zero is not answered.
#[test]
fn a_bad_init_is_refused() {
    let mut s = listening();
    let (good, parameters) = s.init();
    let changes: [fn(&mut Init<'_>); 3] =
        [|i| i.outbound_streams = 0, |i| i.inbound_streams = 0, |i| i.a_rwnd = 1499];
    for change in changes {
        let mut bad = good;
        change(&mut bad);
        s.give_init_with(&bad, &parameters);
        let (_, bytes) = s.take().unwrap();
        assert_eq!(Packet::parse(&bytes).unwrap().tag, s.peer_tag);
        assert_eq!(describe(&bytes, None, None), "ABORT 13");
    }
    let mut bad = good;
    bad.initiate_tag = 0;
    s.give_init_with(&bad, &parameters);
    s.expect_nothing();
}

/// RFC 9260 sections 6.10 and 8.5.1 A: an INIT with a tag, or with company, is dropped.
#[test]
fn an_init_comes_alone() {
    let mut s = listening();
    let (fixed, parameters) = s.init();
    for (tag, company) in [(1, false), (0, true)] {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, 2000, s.ports.1, s.ports.0, tag);
        parameters.emit(writer.chunks(), kind::INIT, &fixed);
        if company {
            Chunk::CookieAck.emit(writer.chunks());
        }
        writer.finish();
        s.give_bytes(B1, A1, &out);
        s.expect_nothing();
    }
    assert_eq!(s.sctp.counters().malformed, 2);
}

/// RFC 9260 section 3.2.2: unknown parameters of an INIT come back in the INIT ACK.
#[test]
fn unknown_parameters_come_back() {
    let mut s = listening();
    s.forwards = false;
    s.extensions = Vec::new();
    let (fixed, parameters) = s.init();
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, 2000, s.ports.1, s.ports.0, 0);
    parameters.emit(writer.chunks(), kind::INIT, &fixed);
    writer.chunks().extend_from_slice(&[0xff, 1, 0, 8, 1, 2, 3, 4, 0x80, 9, 0, 4, 0x7f, 1, 0, 4]);
    writer.chunks()[14..16].copy_from_slice(&36u16.to_be_bytes());
    writer.finish();
    s.give_bytes(B1, A1, &out);
    let (_, bytes) = s.take().unwrap();
    let chunk = Packet::parse(&bytes).unwrap().chunks().next().unwrap().unwrap();
    let Chunk::InitAck(init) = chunk.parse().unwrap() else { panic!() };
    let told: Vec<_> = init
        .parameters()
        .filter_map(|p| match p.unwrap() {
            ringway_sctp::wire::Parameter::Unrecognized(whole) => Some(whole.to_vec()),
            _ => None,
        })
        .collect();
    assert_eq!(told, [vec![0xff, 1, 0, 8, 1, 2, 3, 4], vec![0x7f, 1, 0, 4]]);
}

/// RFC 9260 section 5.1.2 B: a host name is answered with an ABORT.
#[test]
fn a_host_name_is_refused() {
    let mut s = listening();
    s.forwards = false;
    s.extensions = Vec::new();
    let (fixed, parameters) = s.init();
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, 2000, s.ports.1, s.ports.0, 0);
    parameters.emit(writer.chunks(), kind::INIT, &fixed);
    writer.chunks().extend_from_slice(&[0, 11, 0, 8, b'a', b'.', b'b', 0]);
    writer.chunks()[14..16].copy_from_slice(&28u16.to_be_bytes());
    writer.finish();
    s.give_bytes(B1, A1, &out);
    s.expect("ABORT 5");
}

/// RFC 9260 section 8.4, rule 3: there is no listener.
#[test]
fn an_init_without_a_listener_is_aborted() {
    let mut s = Script::new(plain());
    s.give_init();
    let (_, bytes) = s.take().unwrap();
    assert_eq!(Packet::parse(&bytes).unwrap().tag, s.peer_tag);
    assert_eq!(describe(&bytes, None, None), "ABORT");
}

/// RFC 9260 section 8.4: the table of packets out of the blue.
#[test]
fn out_of_the_blue() {
    for (line, answer) in [
        ("ABORT", None),
        ("ABORT T", None),
        ("DATA 1 BE 0:0 10 + ABORT", None),
        ("SHUTDOWN_ACK", Some("SHUTDOWN_COMPLETE T")),
        ("SHUTDOWN_COMPLETE", None),
        ("COOKIE_ACK", None),
        ("DATA 1 BE 0:0 10", Some("ABORT T")),
        ("SACK 1", Some("ABORT T")),
        ("HEARTBEAT", Some("ABORT T")),
        ("SHUTDOWN 1", Some("ABORT T")),
    ] {
        let mut s = listening();
        s.give_tagged(77, B1, A1, line);
        let got = s.take().map(|(_, bytes)| {
            assert_eq!(Packet::parse(&bytes).unwrap().tag, 77, "the tag is sent back");
            describe(&bytes, None, None)
        });
        assert_eq!(got.as_deref(), answer, "{line}");
    }
    let mut s = listening();
    s.give_tagged(77, [224, 0, 0, 1].into(), A1, "DATA 1 BE 0:0 10");
    s.give_tagged(77, B1, [255, 255, 255, 255].into(), "DATA 1 BE 0:0 10");
    s.give_tagged(0, B1, A1, "DATA 1 BE 0:0 10");
    s.expect_nothing();
}

/// RFC 9260 section 8.5: a wrong tag is dropped; section 8.5.1 B and C: the T bit.
#[test]
fn tags_are_checked() {
    let mut s = Script::accepted(plain());
    let (own, peer) = (s.tag, s.peer_tag);
    for (tag, line) in [
        (own ^ 1, "DATA 1 BE 0:0 10"),
        (own ^ 1, "ABORT"),
        (own, "ABORT T"),
        (peer, "ABORT"),
        (peer, "DATA 1 BE 0:0 10"),
        (peer, "SHUTDOWN_COMPLETE T"),
    ] {
        s.give_tagged(tag, B1, A1, line);
        s.expect_nothing();
        assert_eq!(snapshot(&s).state, State::Established, "{tag} {line}");
    }
    s.give_tagged(peer, B1, A1, "ABORT T");
    let events = s.events();
    let told =
        events.iter().any(|e| matches!(e, Event::Closed(_, Close::Aborted { code: 12, .. })));
    assert!(told, "{events:?}");
    let mut s = Script::accepted(plain());
    s.give("ABORT");
    s.expect_nothing();
    assert!(s.sctp.is_empty() || !s.events().is_empty());
}

/// RFC 9260 section 5.1: INIT is sent again with its tag, at doubled intervals.
#[test]
fn an_init_is_sent_again() {
    let mut s = Script::connecting(plain());
    let tag = s.tag;
    for wait in [1, 2, 4, 8] {
        s.wait(secs(wait) - ms(1));
        s.expect_nothing();
        s.wait(ms(1));
        s.take_init();
        assert_eq!(s.tag, tag);
    }
    s.give_init_ack();
    s.expect("COOKIE_ECHO");
    s.give("COOKIE_ACK");
    assert!(s.events().contains(&Event::Up { id: s.id(), listener: None }));
}

/// RFC 9260 sections 5.2.3 and 5.2.5: an INIT ACK or COOKIE ACK out of turn is dropped.
#[test]
fn answers_out_of_turn_are_dropped() {
    let mut s = Script::connecting(plain());
    s.give("COOKIE_ACK");
    s.expect_nothing();
    assert_eq!(snapshot(&s).state, State::CookieWait);
    s.give_init_ack();
    s.expect("COOKIE_ECHO");
    s.give_init_ack();
    s.expect_nothing();
    s.give("COOKIE_ACK");
    s.give("COOKIE_ACK");
    s.give_init_ack();
    s.expect_nothing();
    assert_eq!(snapshot(&s).state, State::Established);
}

/// RFC 9260 section 5.1: an INIT ACK without a cookie, or with bad values, is answered with an
/// ABORT that bears its tag.
#[test]
fn a_bad_init_ack_is_refused() {
    for (what, answer) in [(0, "ABORT 2"), (1, "ABORT 7"), (2, "ABORT 7")] {
        let mut s = Script::connecting(plain());
        let (mut fixed, mut parameters) = s.init();
        parameters.cookie = (what != 0).then(|| vec![1; 20]);
        match what {
            1 => fixed.outbound_streams = 0,
            2 => fixed.inbound_streams = 0,
            _ => {}
        }
        s.give_init_ack_with(&fixed, &parameters);
        let (_, bytes) = s.take().unwrap();
        assert_eq!(Packet::parse(&bytes).unwrap().tag, s.peer_tag);
        assert_eq!(describe(&bytes, None, None), answer);
        assert!(s.events().iter().any(|e| matches!(e, Event::Closed(_, Close::Violation(_)))));
    }
}

/// RFC 9260 section 3.3.3: an INIT ACK with an a_rwnd below 1500, with which a busy Linux answers a peer
/// that has restarted, is discarded. The INIT goes out again when T1-init expires, and the association
/// opens once the window is large enough.
#[test]
fn an_init_is_repeated_until_the_peers_window_is_large_enough() {
    let mut s = Script::connecting(plain());
    for (a_rwnd, wait) in [(0, 1), (1499, 2)] {
        let (mut fixed, mut parameters) = s.init();
        (fixed.a_rwnd, parameters.cookie) = (a_rwnd, Some(vec![9; 50]));
        s.give_init_ack_with(&fixed, &parameters);
        s.expect_nothing();
        assert_eq!((snapshot(&s).state, s.events()), (State::CookieWait, vec![]));
        let tag = s.tag;
        s.wait(secs(wait));
        s.take_init();
        assert_eq!(s.tag, tag);
    }
    s.give_init_ack();
    s.expect("COOKIE_ECHO");
    s.give("COOKIE_ACK");
    assert!(s.events().contains(&Event::Up { id: s.id(), listener: None }));
}

/// RFC 9260 section 3.3.3: a peer whose window stays below 1500 is reported as such, not as one that
/// does not answer; one that answers nothing any more is.
#[test]
fn a_window_that_stays_too_small_is_a_separate_error() {
    for (answers, why) in [(3, Close::SmallWindow { a_rwnd: 1499 }), (2, Close::Unreachable)] {
        let mut s = Script::connecting(Settings { max_init_retransmits: 2, ..plain() });
        for attempt in 0..3u64 {
            if attempt < answers {
                let (mut fixed, mut parameters) = s.init();
                (fixed.a_rwnd, parameters.cookie) = (1499, Some(vec![9; 50]));
                s.give_init_ack_with(&fixed, &parameters);
            }
            s.wait(secs(1 << attempt));
            if attempt < 2 {
                s.take_init();
            }
        }
        s.expect_nothing();
        let closed = s.events().into_iter().find_map(|event| match event {
            Event::Closed(_, why) => Some(why),
            _ => None,
        });
        assert_eq!(closed, Some(why));
    }
}

/// RFC 9260 sections 3.3.3 and 5.1.1: an INIT ACK offers no more outbound streams than the INIT takes,
/// to a new peer, to one that opens at the same time, and to one that has restarted.
#[test]
fn an_init_ack_offers_no_more_streams_than_the_init_takes() {
    let offered = |s: &mut Script| {
        let (_, bytes) = s.take().unwrap();
        let chunk = Packet::parse(&bytes).unwrap().chunks().next().unwrap().unwrap();
        let Chunk::InitAck(init) = chunk.parse().unwrap() else { panic!() };
        (init.outbound_streams, init.inbound_streams)
    };
    let settings = Settings { outbound_streams: 64, inbound_streams: 32, ..plain() };
    for (inbound, expected) in [(1, 1), (63, 63), (64, 64), (65_535, 64)] {
        let mut s = Script::new(settings);
        s.listen(&[A1]);
        s.streams = (10, inbound);
        s.give_init();
        assert_eq!(offered(&mut s), (expected, 32), "a new peer that takes {inbound}");

        let mut s = Script::connecting(settings);
        s.streams = (10, inbound);
        s.give_init();
        assert_eq!(offered(&mut s), (expected, 32), "a collision with one that takes {inbound}");

        let mut s = Script::accepted(settings);
        (s.streams, s.peer_tag) = ((10, inbound), 0x777);
        s.give_init();
        assert_eq!(offered(&mut s), (expected, 32), "a restart of one that takes {inbound}");
    }
}

/// RFC 9260 section 5.2.6: after a stale cookie a new INIT asks for more time, as often as an INIT is
/// sent again.
#[test]
fn a_stale_cookie_is_requested_again() {
    let mut s = Script::connecting(Settings { max_init_retransmits: 2, ..plain() });
    s.give_init_ack();
    s.expect("COOKIE_ECHO");
    s.wait(ms(100));
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, 2000, s.ports.1, s.ports.0, s.tag);
    Chunk::Error(&[0, 3, 0, 8, 0, 0, 0, 9]).emit(writer.chunks());
    writer.finish();
    s.give_bytes(B1, A1, &out);
    let (_, bytes) = s.take().unwrap();
    let chunk = Packet::parse(&bytes).unwrap().chunks().next().unwrap().unwrap();
    let Chunk::Init(init) = chunk.parse().unwrap() else { panic!() };
    let parameters = InitParameters::read(&init, false).unwrap();
    assert_eq!((init.initiate_tag, parameters.cookie_preservative), (s.tag, Some(1100)));
    s.give_init_ack();
    s.expect("COOKIE_ECHO");
    s.give_bytes(B1, A1, &out);
    s.expect("INIT");
    s.give_init_ack();
    s.expect("COOKIE_ECHO");
    s.give_bytes(B1, A1, &out);
    assert!(s.events().iter().any(|e| matches!(e, Event::Closed(_, Close::Unreachable))));
}

/// RFC 9260 section 5.2.2: an INIT for an association that stands gets a new tag and changes
/// nothing; one that brings new addresses is refused.
#[test]
fn an_unexpected_init_changes_nothing() {
    let mut s = Script::accepted(plain());
    let before = snapshot(&s);
    let tag = s.tag;
    s.peer_tag = 99;
    s.give_init();
    s.take_init_ack();
    assert_ne!(s.tag, tag);
    s.addresses.push(B2);
    s.give_init();
    let (_, bytes) = s.take().unwrap();
    assert_eq!(Packet::parse(&bytes).unwrap().tag, 99);
    assert_eq!(describe(&bytes, None, None), "ABORT 11");
    let chunk = Packet::parse(&bytes).unwrap().chunks().next().unwrap().unwrap();
    let Chunk::Abort { causes, .. } = chunk.parse().unwrap() else { panic!() };
    let listed = Parameters::new(&causes[4..]).next().unwrap().unwrap();
    assert_eq!(listed, ringway_sctp::wire::Parameter::Address(B2));
    assert_eq!(snapshot(&s), before);
}

/// RFC 9260 section 5.2.4 A: the cookie of that INIT is a restart; an old one is not.
#[test]
fn a_restart_is_reported() {
    let mut s = Script::accepted(plain());
    s.give("DATA 1 BE 0:0 10");
    s.expect("SACK 1");
    let (old_tag, old_cookie) = (s.tag, s.cookie.clone());
    s.peer_tag = 99;
    s.peer_tsn = ringway_sctp::Tsn::new(70_000);
    s.give_init();
    s.take_init_ack();
    s.events();
    s.echo("DATA 1 BE 0:0 11");
    s.expect("COOKIE_ACK + SACK 1");
    assert_eq!(s.read(), [10, 11], "what had come is still there");
    // The cookie of the first handshake means nothing now.
    let (tag, cookie) = (core::mem::replace(&mut s.tag, old_tag), s.cookie.clone());
    s.cookie = old_cookie;
    s.echo("");
    s.expect_nothing();
    (s.tag, s.cookie) = (tag, cookie);
    s.give("DATA 2 BE 0:1 12");
    s.wait(ms(200));
    s.expect("SACK 2");
}

/// RFC 9260 sections 5.2.2 and 5.2.4: a peer takes our cookie, restarts, and its INIT arrives before its COOKIE ACK. The
/// cookie of that INIT has our tag, for both might open at once; but who has acknowledged a cookie has not.
#[test]
fn a_restart_is_known_in_cookie_echoed() {
    let mut s = Script::connecting(plain());
    s.give_init_ack();
    s.expect("COOKIE_ECHO");
    let local_tag = s.tag;
    s.peer_tag = 99;
    s.peer_tsn = ringway_sctp::Tsn::new(70_000);
    s.give_init();
    s.take_init_ack();
    assert_eq!(s.tag, local_tag);
    s.give("COOKIE_ACK");
    s.events();
    s.send(0, 10);
    assert!(s.line().unwrap().1.starts_with("DATA 1 BE 0:0 10"));
    s.echo("DATA 1 BE 0:0 11");
    assert_eq!(s.read(), [11], "TSNs of the peer begin anew");
    s.expect("COOKIE_ACK + SACK 1");
    // The same echo again changes nothing.
    s.echo("");
    s.give("DATA 2 BE 0:1 12");
    assert_eq!(s.read(), [12]);
}

/// RFC 9260 section 5.2.4 C and cases that table 12 does not show.
#[test]
fn other_cookies_are_dropped() {
    // Made while there was no association: no tie-tags. The peer's tag is the same, the local one is
    // not.
    let mut s = listening();
    s.give_init();
    s.take_init_ack();
    let (tag, cookie) = (s.tag, s.cookie.clone());
    s.give_init();
    s.take_init_ack();
    s.echo("");
    s.expect("COOKIE_ACK");
    s.tag = tag;
    s.cookie = cookie;
    s.echo("");
    s.expect_nothing();
    assert_eq!(s.sctp.counters().cookies_refused, 1);
}

/// RFC 9260 section 8.5.1 E: SHUTDOWN ACK while opening is out of the blue.
#[test]
fn an_old_shutdown_ack_while_opening() {
    let mut s = Script::connecting(plain());
    s.give_tagged(1234, B1, A1, "SHUTDOWN_ACK");
    s.expect("SHUTDOWN_COMPLETE T");
    s.give("SHUTDOWN_ACK");
    s.expect("SHUTDOWN_COMPLETE T");
    assert_eq!(snapshot(&s).state, State::CookieWait);
}

/// RFC 9260 section 5.4: a cookie that comes from an address that is not verified is acknowledged
/// there with a heartbeat.
#[test]
fn a_cookie_from_elsewhere() {
    let mut s = Script::new(plain());
    s.listen(&[A1]);
    s.addresses = vec![B1, B2];
    s.give_init();
    s.take_init_ack();
    s.addresses = vec![B2, B1];
    s.echo("");
    s.expect_to(B2, "COOKIE_ACK + HEARTBEAT");
    s.addresses = vec![[10, 9, 9, 9].into()];
    s.echo("");
    s.expect_nothing();
}

/// A host that has sent the first part of a message with its cookie, which was stale: it asks anew.
fn stale(settings: Settings, extensions: Vec<u8>) -> Script {
    let mut s = Script::new(Settings { chunk: 500, ..settings });
    s.extensions = extensions;
    s.connect();
    s.take_init();
    s.send(5, 20_000);
    s.send(6, 700);
    s.give_init_ack();
    assert!(s.line().unwrap().1.starts_with("COOKIE_ECHO + "));
    let mut causes = Vec::new();
    Cause::StaleCookie(1).emit(&mut causes);
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, 65_535, s.ports.1, s.ports.0, s.tag);
    Chunk::Error(&causes).emit(writer.chunks());
    writer.finish();
    s.give_bytes(B1, A1, &out);
    let (_, bytes) = s.take().unwrap();
    assert_eq!(Packet::parse(&bytes).unwrap().tag, 0);
    s
}

/// Acknowledges chunk by chunk until nothing is left.
fn acknowledge_all(s: &mut Script) {
    for tsn in 1..100 {
        s.give(&format!("SACK {tsn}"));
        if snapshot(s).unacknowledged == 0 {
            return;
        }
    }
    panic!("data is left after 99 chunks");
}

/// RFC 9260 sections 5.1.1 and 5.2.6: a second INIT ACK may accept fewer streams than the one whose
/// cookie was stale. Data that went with that cookie is requeued.
#[test]
fn a_second_init_ack_may_take_fewer_streams() {
    let mut s = stale(plain(), vec![]);
    s.streams = (6, 6);
    s.give_init_ack();
    assert!(s.line().unwrap().1.starts_with("COOKIE_ECHO + DATA 1 B 5:0 484"));
    s.give("COOKIE_ACK");
    acknowledge_all(&mut s);
    let lost = |event: &Event| matches!(event, Event::SendFailed { messages: 1, .. });
    assert!(s.events().iter().any(lost));
}

/// RFC 8260 section 2.2.1: the same where the first took interleaved messages and the second does not.
#[test]
fn a_second_init_ack_may_not_interleave() {
    let kinds = vec![kind::I_DATA, kind::I_FORWARD_TSN];
    let mut s = stale(Settings { interleaving: true, ..plain() }, kinds);
    s.extensions = vec![];
    s.give_init_ack();
    assert!(s.line().unwrap().1.starts_with("COOKIE_ECHO + DATA 1 B 5:0 484"));
    s.give("COOKIE_ACK");
    acknowledge_all(&mut s);
}

/// RFC 9260 section 5.2.4 A, RFC 5062 section 4: a restarted peer has the addresses that it lists now.
/// A peer that listed another host's address before does not receive that host's packets.
#[test]
fn a_restart_leaves_old_addresses() {
    let mut s = Script::new(plain());
    s.addresses = vec![B1, B2];
    s.listen(&[A1]);
    s.give_init();
    s.take_init_ack();
    s.echo("");
    while let Some((way, bytes)) = s.take() {
        s.answer_beats(way, &bytes);
    }
    s.addresses = vec![B2];
    s.peer_tag = 0x777;
    s.give_init();
    s.take_init_ack();
    s.echo("");
    s.expect_to(B2, "COOKIE_ACK");
    s.send(0, 10);
    s.expect_to(B2, "DATA 1 BE 0:0 10");
    let paths = snapshot(&s).paths;
    assert_eq!(paths.iter().map(|path| path.remote).collect::<Vec<_>>(), [B2]);
    s.wait(secs(1));
    s.expect_to(B2, "DATA 1 BE 0:0 10");
}

/// RFC 9260 section 5.3.1: a COOKIE ECHO that the network repeats after its association has ended makes
/// no second one, and its data is not delivered twice.
#[test]
fn a_cookie_makes_one_association() {
    let mut s = listening();
    s.give_init();
    s.take_init_ack();
    s.echo("DATA 1 BE 0:0 10");
    s.expect("COOKIE_ACK + SACK 1");
    assert_eq!(s.read(), [10]);
    s.give("ABORT");
    s.events();
    assert!(s.sctp.is_empty());
    s.echo("DATA 1 BE 0:0 10");
    s.expect_nothing();
    assert!(s.sctp.is_empty());
    assert_eq!(s.sctp.counters().cookies_refused, 1);
}

/// RFC 5062 section 2: an address that a peer lists and that never answers keeps the host that has it, and
/// others of its own, from no association, however long the first lasts; the first loses it.
#[test]
fn an_unconfirmed_address_blocks_no_other_host() {
    let mut s = Script::new(plain());
    s.addresses = vec![B1, B2];
    s.listen(&[A1]);
    s.give_init();
    s.take_init_ack();
    s.echo("");
    let first = s.id();
    s.wait(secs(10));
    s.sent.clear();
    // From the same port: from B2, and B1 listed too is a restart with a new address as ever.
    let third = IpAddr::from([10, 9, 9, 9]);
    (s.addresses, s.peer_tag) = (vec![B2, third], 0x777);
    s.give_init();
    s.take_init_ack();
    s.echo("");
    assert_ne!(s.id(), first);
    let remotes = |id| s.sctp.addresses(id).unwrap().1;
    assert_eq!((remotes(first), remotes(s.id())), (vec![B1], vec![B2, third]));
}

/// An INIT that declares nothing gets no list of our addresses, since its answer would be longer than three
/// INITs; the association then has the one that was asked alone, also when it restarts.
#[test]
fn a_bare_init_is_answered_by_one_address() {
    for restarts in [false, true] {
        let mut s = Script::new(plain());
        s.listen(&[A1, A2]);
        (s.extensions, s.forwards) = (Vec::new(), false);
        if restarts {
            s.addresses = vec![B1, B2];
            s.give_init();
            assert_eq!(s.take_init_ack().addresses, [A1, A2]);
            s.echo("");
            s.sent.clear();
            s.addresses = vec![B1];
            s.peer_tag += 1;
        }
        s.give_init();
        assert!(s.take_init_ack().addresses.is_empty());
        s.echo("DATA 1 BE 0:0 10");
        s.expect("COOKIE_ACK + SACK 1");
        s.give_from(B1, A2, "DATA 2 BE 0:1 10");
        s.sent.clear();
        assert_eq!(s.read(), [10]);
        s.give("DATA 2 BE 0:1 10");
        assert_eq!(s.read(), [10]);
        s.send(0, 5);
        s.wait(secs(100));
        while let Some((way, _)) = s.take() {
            assert_eq!((way.source, way.destination), (A1, B1));
        }
    }
}

proptest! {
    /// The sender of an INIT is not verified: the answer has at most three times its bytes, whatever it
    /// contains, whatever is offered, and whether the association is known or not.
    #[test]
    fn no_init_is_answered_by_three_times_its_bytes(
        (dynamic, interleaving, ecn, final_acks) in any::<(bool, bool, bool, bool)>(),
        known in any::<bool>(),
        listed in proptest::collection::btree_set(any::<u128>(), 0..20),
        locals in 1usize..12,
        types in proptest::collection::vec(any::<u8>(), 0..20),
        (six, forwards, capable, auth) in any::<(bool, bool, bool, bool)>(),
        unknown in proptest::collection::vec(0xc000u16..0xc100, 0..20),
        preservative in proptest::option::of(any::<u32>()),
    ) {
        let settings = Settings {
            dynamic_addresses: dynamic, interleaving, ecn, final_acks, ..Settings::default()
        };
        let mut s = Script::new(settings);
        let local = |n: usize| if six && n > 0 {
            IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n as u16])
        } else {
            IpAddr::from([10, 0, 0, 1 + n as u8])
        };
        let locals: Vec<IpAddr> = (0..locals).map(local).collect();
        s.listen(&locals);
        if known {
            s.give_bytes(B1, locals[0], &init(&s, &s.init().1, &[]));
            s.take_init_ack();
            let (_, _) = (s.echo(""), s.sent.clear());
        }
        let parameters = InitParameters {
            addresses: listed.into_iter().map(|n| IpAddr::V6(n.into())).collect(),
            cookie_preservative: preservative,
            ecn: capable,
            forward_tsn: forwards,
            extensions: types,
            auth: auth.then(|| AuthParameters { random: vec![1; 32], chunks: None, hmacs: vec![1] }),
            ..InitParameters::default()
        };
        s.peer_tag += 1;
        let bytes = init(&s, &parameters, &unknown);
        s.give_bytes(B1, locals[0], &bytes);
        let answer = s.take().map_or(0, |(_, answer)| answer.len());
        prop_assert!(answer <= 3 * bytes.len(), "{} answered by {answer}", bytes.len());
    }
}

/// A packet with an INIT and, after the parameters we know, some that we do not and that ask for a report.
fn init(s: &Script, parameters: &InitParameters, unknown: &[u16]) -> Vec<u8> {
    let mut chunk = Vec::new();
    parameters.emit(&mut chunk, kind::INIT, &s.init().0);
    chunk.resize(chunk.len().next_multiple_of(4), 0);
    for kind in unknown {
        chunk.extend_from_slice(&kind.to_be_bytes());
        chunk.extend_from_slice(&[0, 4]);
    }
    let length = chunk.len() as u16;
    chunk[2..4].copy_from_slice(&length.to_be_bytes());
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, 65_535, s.ports.1, s.ports.0, 0);
    writer.chunks().extend_from_slice(&chunk);
    writer.finish();
    out
}
