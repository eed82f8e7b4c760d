//! Staying in the path: RFC 3261 section 16.6 item 4, RFC 5658.

use crate::common::*;
use ringway_sansio::Transport::{Tcp, Tls, Udp};

/// Takes an INVITE from `from` to bob at `to` through to 200; gives both sides' dialogs.
fn set_up(w: &mut World, from: Peer, to: Peer) -> (Dialog, Dialog, Msg) {
    let invite = w.call(from, "INVITE sip:bob@example.org");
    w.expect(from, "100");
    let got = w.expect(to, "INVITE");
    let ok = w.answer(to, &got, 200);
    let ok_there = w.expect(from, "200");
    let caller = Dialog::of_caller(from, &invite, &ok_there);
    let callee = Dialog::of_callee(to, &got, &ok);
    (caller, callee, got)
}

/// ACK, a re-INVITE from each side and a BYE go through the proxy both ways.
fn talk(w: &mut World, caller: &mut Dialog, callee: &mut Dialog) {
    let (a, b) = (caller.me, callee.me);
    let branch = w.branch();
    w.from(a, &caller.request("ACK", &branch));
    let ack = w.expect(b, &format!("ACK {}", caller.target));
    assert!(!ack.has("Route"), "{ack}");
    for (one, other) in [(true, false), (false, true)].map(|(x, _)| (x, !x)) {
        let (from, to) =
            if one { (&mut *caller, &mut *callee) } else { (&mut *callee, &mut *caller) };
        let branch = w.branch();
        w.from(from.me, &from.request("INFO", &branch));
        let info = w.expect(to.me, &format!("INFO {}", from.target));
        assert!(!info.has("Route"), "{info}");
        w.answer(to.me, &info, 200);
        w.expect(from.me, "200 INFO");
        let _ = other;
    }
    let branch = w.branch();
    w.from(b, &callee.request("BYE", &branch));
    let bye = w.expect(a, &format!("BYE {}", callee.target));
    w.answer(a, &bye, 200);
    w.expect(b, "200 BYE");
}

/// RFC 3261 section 16.6 item 4: one value where both sides see the same address.
#[test]
fn one_value_between_udp_phones() {
    let mut w = World::new();
    w.register("bob", BOB);
    let (mut caller, mut callee, got) = set_up(&mut w, ALICE, BOB);
    assert_eq!(got.all("Record-Route").len(), 1);
    assert!(!got.get("Record-Route").contains("transport"));
    talk(&mut w, &mut caller, &mut callee);
    w.finish();
}

/// RFC 5658 section 4: two values between UDP and TCP, that of the callee's side on top; both are
/// ours when they come back.
#[test]
fn two_values_between_tcp_and_udp() {
    for (a, b) in [(CAROL_TCP, BOB), (ALICE, DAVE_TCP), (CAROL_TCP, DAVE_TCP)] {
        let mut w = World::new();
        w.bind("bob", bind(b.contact()).over(b));
        let (mut caller, mut callee, got) = set_up(&mut w, a, b);
        let record = got.all("Record-Route");
        // Both over TCP to Contacts that lead there see the same.
        assert_eq!(record.len(), if a.transport == b.transport { 1 } else { 2 }, "{record:?}");
        for (value, peer) in record.iter().zip([b, a]) {
            assert_eq!(value.contains(";transport=tcp"), peer.transport == Tcp, "{record:?}");
        }
        talk(&mut w, &mut caller, &mut callee);
        w.finish();
    }
}

/// RFC 5658: the same between WebSocket, TLS and UDP.
#[test]
fn two_values_between_other_transports() {
    for (a, b) in [(ERIN_WS, BOB), (ERIN_WS, FRANK_TLS), (FRANK_TLS, ERIN_WS), (ALICE, ERIN_WS)] {
        let mut w = World::new();
        w.bind("bob", bind(b.contact()).over(b));
        let (mut caller, mut callee, _) = set_up(&mut w, a, b);
        talk(&mut w, &mut caller, &mut callee);
        w.finish();
    }
}

/// RFC 5658, RFC 4168: and between SCTP, with and without TLS, and the others; each value names the
/// transport of its side.
#[test]
fn two_values_between_sctp_and_others() {
    for (a, b) in [
        (GRACE_SCTP, BOB),
        (ALICE, GRACE_SCTP),
        (GRACE_SCTP, CAROL_TCP),
        (HEIDI_TLS_SCTP, GRACE_SCTP),
        (FRANK_TLS, HEIDI_TLS_SCTP),
        (HEIDI_TLS_SCTP, ALICE),
    ] {
        let mut w = World::new();
        w.bind("bob", bind(b.contact()).over(b));
        let (mut caller, mut callee, got) = set_up(&mut w, a, b);
        let record = got.all("Record-Route");
        assert_eq!(record.len(), 2, "{record:?}");
        for (value, peer) in record.iter().zip([b, a]) {
            let named = format!(";transport={}", peer.transport.uri());
            assert_eq!(value.contains(&named), peer.transport != Udp, "{record:?}");
        }
        talk(&mut w, &mut caller, &mut callee);
        w.finish();
    }
}

/// RFC 5658: and between IPv4 and IPv6.
#[test]
fn two_values_between_ipv4_and_ipv6() {
    let six = Peer { name: "six", addr: "[2001:db8::66]:5060", ..BOB };
    let mut w = World::new();
    w.register("bob", six);
    let (mut caller, mut callee, got) = set_up(&mut w, ALICE, six);
    let record = got.all("Record-Route");
    assert!(record[0].contains("@[2001:db8::1]:5060;lr"), "{record:?}");
    assert!(record[1].contains("@192.0.2.1:5060;lr"), "{record:?}");
    talk(&mut w, &mut caller, &mut callee);
    w.finish();
}

/// RFC 3261 section 16.6 item 4: ours comes before those of others, in the order of the path.
#[test]
fn our_record_route_is_prepended() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w
        .request(PROXY, "INVITE sip:bob@example.org")
        .add("Record-Route", "<sip:192.0.2.50;lr>, <sip:first.example.com;lr>");
    w.from(PROXY, &invite);
    w.expect(PROXY, "100");
    let got = w.expect(BOB, "INVITE");
    let record = got.all("Record-Route");
    assert_eq!(record[1..], ["<sip:192.0.2.50;lr>", "<sip:first.example.com;lr>"]);
    w.answer(BOB, &got, 486);
    w.expect(BOB, "ACK");
    let answer = w.expect(PROXY, "486");
    w.from(PROXY, &ack(&invite, &answer));
    w.finish();
}

/// RFC 3261 section 16.6 item 4 and RFC 6665 section 4.3: what makes a dialog is record-routed,
/// NOTIFY too; what does not is not.
#[test]
fn which_methods_are_record_routed() {
    let mut w = World::new();
    w.register("bob", BOB);
    for (method, recorded) in [
        ("SUBSCRIBE", true),
        ("NOTIFY", true),
        ("REFER", true),
        ("MESSAGE", false),
        ("OPTIONS", false),
        ("PUBLISH", false),
    ] {
        let line = format!("{method} sip:bob@example.org");
        let request = w.request(ALICE, &line).add("Event", "conference");
        w.from(ALICE, &request);
        let got = w.expect(BOB, method);
        assert_eq!(got.has("Record-Route"), recorded, "{method}");
        w.answer(BOB, &got, 404);
        w.expect(ALICE, "404");
    }
    w.finish();
}

/// An operator may leave the path.
#[test]
fn record_routing_can_be_off() {
    let mut w = World::with(|config| config.record_route = false);
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    assert!(!got.has("Record-Route"));
    w.answer(BOB, &got, 486);
    w.expect(BOB, "ACK");
    let answer = w.expect(ALICE, "486");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// RFC 3261 section 16.6 item 4: where TLS begins or ends a proxy must stay in the path, whatever the
/// operator wants.
#[test]
fn record_routing_cannot_be_off_at_the_edge_of_tls() {
    let tls = Peer { transport: Tls, ..BOB.at("203.0.113.2:5061") };
    for (from, uri, contact, to, recorded) in [
        (ALICE, "sips:bob@example.org", "sips:bob@203.0.113.2", tls, true),
        (FRANK_TLS, "sip:bob@example.org", "sip:bob@203.0.113.2:5060", BOB, true),
        (ALICE, "sip:bob@example.org", "sip:bob@203.0.113.2:5060", BOB, false),
    ] {
        let mut w = World::with(|config| config.record_route = false);
        w.bind("bob", bind(contact));
        w.call(from, &format!("INVITE {uri}"));
        w.expect(from, "100");
        let got = w.expect(to, "INVITE");
        assert_eq!(got.has("Record-Route"), recorded, "{uri}");
        for value in got.all("Record-Route") {
            // Section 16.7 item 8: sips on the side of TLS only, where the request is for sips.
            let sips = uri.starts_with("sips:") && value.contains("transport=tls");
            assert_eq!(value.starts_with("<sips:"), sips, "{value}");
        }
        w.answer(to, &got, 200);
        w.expect(from, "200");
        w.finish();
    }
}

/// RFC 3261 section 16.6 item 4: sips in the request that is sent means sips in Record-Route, and not
/// otherwise.
#[test]
fn sips_is_record_routed_as_sips() {
    for (uri, contact, sips) in [
        ("sips:bob@example.org", "sips:bob@203.0.113.2", true),
        ("sip:bob@example.org", "sip:bob@203.0.113.2;transport=tls", false),
        ("sip:bob@example.org", "sips:bob@203.0.113.2", true),
    ] {
        let mut w = World::new();
        w.bind("bob", bind(contact));
        w.call(FRANK_TLS, &format!("INVITE {uri}"));
        w.expect(FRANK_TLS, "100");
        let peer = Peer { transport: Tls, ..BOB.at("203.0.113.2:5061") };
        let got = w.expect(peer, "INVITE");
        for value in got.all("Record-Route") {
            assert_eq!(value.starts_with("<sips:"), sips, "{uri} {contact} {value}");
        }
        w.answer(peer, &got, 200);
        w.expect(FRANK_TLS, "200");
        w.finish();
    }
}

/// RFC 3261 section 18.1.1: when size moves the request to TCP, Record-Route says so too.
#[test]
fn record_route_follows_the_switch_to_tcp() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w.request(ALICE, "INVITE sip:bob@example.org").padded(1400);
    w.from(ALICE, &invite);
    w.expect(ALICE, "100");
    let got = w.expect(BOB.listening_tcp(), "INVITE");
    let record = got.all("Record-Route");
    assert_eq!(record.len(), 2);
    assert!(record[0].contains(";transport=tcp") && !record[1].contains(";transport"));
    w.answer(Peer { serial: 9, ..BOB.listening_tcp() }, &got, 200);
    w.expect(ALICE, "200");
    w.name("unused", &[(Udp, BOB.addr)]);
    w.finish();
}
