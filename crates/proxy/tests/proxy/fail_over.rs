//! Another way when one fails: RFC 3263 section 4.3, RFC 3261 sections 16.6 item 7, 16.9 and 18.1.1.

use crate::common::*;
use ringway_sansio::Transport::{Sctp, Tcp, Udp};

/// RFC 3263 section 4.3: the addresses of a name are tried in order when one cannot be reached, when
/// it keeps silent, and when it answers 503.
#[test]
fn the_addresses_of_a_name_are_tried_in_order() {
    let mut w = World::new();
    w.name("pbx.example.net", &[(Udp, BOB.addr), (Udp, BOB2.addr), (Udp, BOB3.addr)]);
    w.bind("bob", bind("sip:bob@pbx.example.net"));
    w.break_way(Udp, BOB.addr);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let first = w.expect(BOB2, "INVITE sip:bob@pbx.example.net");
    w.pass_secs(32);
    assert_eq!(w.count(BOB2, "INVITE"), 6);
    let second = w.expect(BOB3, "INVITE");
    // Section 16.6 item 7: a new client transaction for every try.
    assert_ne!(first.branch(), second.branch());
    w.answer(BOB3, &second, 503);
    w.expect(BOB3, "ACK");
    // Section 16.7 item 6: what is left of a 503.
    let answer = w.expect(ALICE, "500");
    assert_eq!(w.failed, [BOB.remote(), BOB2.remote()]);
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// RFC 3263 section 4.3: 503 from one server leads to the next, with no word to the caller.
#[test]
fn a_503_leads_to_the_next_server() {
    let mut w = World::new();
    w.name("pbx.example.net", &[(Udp, BOB.addr), (Udp, BOB2.addr)]);
    w.bind("bob", bind("sip:bob@pbx.example.net"));
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    let got = w.expect(BOB, "MESSAGE");
    w.answer(BOB, &got, 503);
    let got = w.expect(BOB2, "MESSAGE");
    w.answer(BOB2, &got, 200);
    w.expect(ALICE, "200");
    assert_eq!(w.cores[0].stats().failovers, 1);
    w.finish();
}

/// RFC 3261 section 16.9: what cannot be sent counts as 503; alone, it goes back as 500
/// (section 16.7 item 6).
#[test]
fn a_transport_error_is_a_503() {
    let mut w = World::new();
    w.register("bob", BOB);
    w.break_way(Udp, BOB.addr);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let answer = w.expect(ALICE, "500");
    assert!(answer.tag("To").is_some());
    w.from(ALICE, &ack(&invite, &answer));
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    w.expect(ALICE, "500");
    w.finish();
}

/// RFC 3261 section 16.9: of several branches, one that cannot be sent does not end the others.
#[test]
fn one_broken_branch_does_not_end_the_others() {
    let mut w = World::new();
    w.register("bob", BOB2);
    w.register("bob", BOB);
    w.break_way(Udp, BOB.addr);
    w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB2, "INVITE");
    w.quiet();
    w.answer(BOB2, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 3261 section 16.9: a response that cannot be sent is dropped, and the branch continues.
#[test]
fn a_response_that_cannot_be_sent_is_dropped() {
    let mut w = World::new();
    w.register("bob", BOB);
    w.break_way(Udp, ALICE.addr);
    w.call(ALICE, "INVITE sip:bob@example.org");
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 180);
    w.quiet();
    w.answer(BOB, &got, 486);
    w.expect(BOB, "ACK");
    w.finish();
}

/// RFC 3261 section 18.1.1: a request of more than 1300 bytes leaves over TCP, with TCP in its Via.
#[test]
fn a_large_request_is_sent_over_tcp() {
    let mut w = World::new();
    w.register("bob", BOB);
    let request = w.request(ALICE, "MESSAGE sip:bob@example.org").padded(1200);
    w.from(ALICE, &request);
    let got = w.expect(BOB.listening_tcp(), "MESSAGE");
    w.quiet();
    assert!(got.all("Via")[0].starts_with("SIP/2.0/TCP "), "{got}");
    let over_tcp = Peer { serial: 77, ..BOB.listening_tcp() };
    w.answer(over_tcp, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 3261 section 18.1.1: 1300 bytes still go over UDP, one more does not.
#[test]
fn the_limit_is_1300_bytes() {
    let mut w = World::new();
    w.register("bob", BOB);
    let small = w.request(ALICE, "MESSAGE sip:bob@example.org").padded(100);
    w.from(ALICE, &small);
    let got = w.expect(BOB, "MESSAGE");
    let room = 1300 - got.bytes().len();
    w.answer(BOB, &got, 200);
    w.expect(ALICE, "200");
    for (octets, peer) in [(100 + room, BOB), (101 + room, BOB.listening_tcp())] {
        let mut request = small.clone().padded(octets);
        request = request.set("Via", via(ALICE, &w.branch()));
        assert_eq!(request.branch().len(), small.branch().len());
        w.from(ALICE, &request);
        let got = w.expect(peer, "MESSAGE");
        w.answer(peer, &got, 200);
        w.expect(ALICE, "200");
    }
    w.finish();
}

/// RFC 3261 section 18.1.1: if TCP is refused, the large request is sent over UDP.
#[test]
fn a_large_request_falls_back_to_udp() {
    let mut w = World::new();
    w.register("bob", BOB);
    w.break_way(Tcp, BOB.addr);
    let request = w.request(ALICE, "INVITE sip:bob@example.org").padded(2000);
    w.from(ALICE, &request);
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.quiet();
    assert!(got.all("Via")[0].starts_with("SIP/2.0/UDP "), "{got}");
    assert_eq!(got.all("Record-Route").len(), 1);
    w.answer(BOB, &got, 486);
    w.expect(BOB, "ACK");
    let answer = w.expect(ALICE, "486");
    w.from(ALICE, &ack(&request, &answer));
    w.finish();
}

/// RFC 3261 section 18.1.1: without TCP, a large request is sent over UDP.
#[test]
fn without_tcp_a_large_request_is_sent_over_udp() {
    let mut w = World::build(1, &[Tcp], |_| {});
    w.register("bob", BOB);
    let request = w.request(ALICE, "MESSAGE sip:bob@example.org").padded(2000);
    w.from(ALICE, &request);
    let got = w.expect(BOB, "MESSAGE");
    w.answer(BOB, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 3261 section 18.1.1: if neither works, that is the end of it.
#[test]
fn a_large_request_that_nobody_takes() {
    let mut w = World::new();
    w.register("bob", BOB);
    w.break_way(Tcp, BOB.addr);
    w.break_way(Udp, BOB.addr);
    let request = w.request(ALICE, "MESSAGE sip:bob@example.org").padded(2000);
    w.from(ALICE, &request);
    w.expect(ALICE, "500");
    w.finish();
}

/// A target that cannot be reached: by an unknown transport, or by one that is not configured.
#[test]
fn a_contact_that_cannot_be_reached() {
    for contact in [
        "sip:bob@203.0.113.2;transport=carrier-pigeon",
        "sip:bob@203.0.113.2;transport=ws",
        "sip:bob@203.0.113.2;transport=sctp",
    ] {
        let mut w = World::build(1, &[Sctp], |_| {});
        w.bind("bob", bind(contact));
        w.call(ALICE, "MESSAGE sip:bob@example.org");
        w.expect(ALICE, "480");
        w.finish();
    }
}

/// RFC 3261 sections 17.1.4 and 16.9: a connection that ends before anything has answered the request
/// that left by it leads to the next server at once, not when timer B fires.
#[test]
fn the_end_of_a_connection_leads_to_the_next_server() {
    for (transport, peer) in [(Sctp, GATEWAY_SCTP), (Tcp, DAVE_TCP)] {
        for method in ["INVITE", "MESSAGE"] {
            let mut w = World::new();
            w.name("pbx.example.net", &[(transport, peer.addr), (Udp, BOB2.addr)]);
            w.bind("bob", bind("sip:bob@pbx.example.net"));
            w.call(ALICE, &format!("{method} sip:bob@example.org"));
            if method == "INVITE" {
                w.expect(ALICE, "100");
            }
            let first = w.expect_sent(peer, method);
            w.cut_off(&first);
            let second = w.expect(BOB2, method);
            assert_eq!(w.failed, [peer.remote()]);
            // A repeated report has no effect.
            w.cut_off(&first);
            w.quiet();
            w.answer(BOB2, &second, 200);
            w.expect(ALICE, "200");
            w.finish();
        }
    }
}

/// Where there is no other server the request goes to the same once more, over a new connection and in a new
/// transaction: it may have been started anew.
#[test]
fn a_server_that_was_started_anew_is_asked_again() {
    for method in ["INVITE", "MESSAGE"] {
        let mut w = World::new();
        w.bind("bob", bind(GATEWAY_SCTP.contact()));
        w.call(ALICE, &format!("{method} sip:bob@example.org"));
        if method == "INVITE" {
            w.expect(ALICE, "100");
        }
        let first = w.expect_sent(GATEWAY_SCTP, method);
        w.cut_off(&first);
        let second = w.expect_sent(GATEWAY_SCTP, method);
        assert_ne!(first.msg.branch(), second.msg.branch());
        w.cut_off(&first);
        w.quiet();
        w.answer(GATEWAY_SCTP, &second.msg, 200);
        w.expect(ALICE, "200");
        assert!(w.failed.is_empty(), "{:?}", w.failed);
        w.finish();
    }
}

/// RFC 3261 section 16.9: cut off twice, it counts as a 503, which is forwarded as 500.
#[test]
fn the_end_of_the_only_connection_is_a_503() {
    let mut w = World::new();
    w.bind("bob", bind(GATEWAY_SCTP.contact()));
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    for _ in 0..2 {
        let sent = w.expect_sent(GATEWAY_SCTP, "INVITE");
        w.cut_off(&sent);
    }
    let answer = w.expect(ALICE, "500");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// RFC 3261 section 18.2.2: a response may come over another connection than the request left by. Who has
/// said that it works on the request is waited for.
#[test]
fn who_has_answered_provisionally_may_come_back() {
    for status in [100, 180] {
        let mut w = World::new();
        w.name("pbx.example.net", &[(Tcp, DAVE_TCP.addr), (Udp, BOB2.addr)]);
        w.bind("bob", bind("sip:bob@pbx.example.net"));
        w.call(ALICE, "INVITE sip:bob@example.org");
        w.expect(ALICE, "100");
        let sent = w.expect_sent(DAVE_TCP, "INVITE");
        w.answer(DAVE_TCP, &sent.msg, status);
        if status > 100 {
            w.expect(ALICE, "180");
        }
        w.cut_off(&sent);
        w.quiet();
        w.answer(DAVE_TCP, &sent.msg, 200);
        w.expect(ALICE, "200");
        w.finish();
    }
}

/// RFC 3261 section 18.2.2: the INVITE may have arrived before its connection ended. If it rings after all
/// it is cancelled; if it is taken after all, that is as good as any 2xx.
#[test]
fn a_late_answer_to_a_request_cut_off_is_dealt_with() {
    for late in [180, 200] {
        let mut w = World::new();
        w.name("pbx.example.net", &[(Tcp, DAVE_TCP.addr), (Udp, BOB2.addr)]);
        w.bind("bob", bind("sip:bob@pbx.example.net"));
        w.call(ALICE, "INVITE sip:bob@example.org");
        w.expect(ALICE, "100");
        let first = w.expect_sent(DAVE_TCP, "INVITE");
        w.cut_off(&first);
        let second = w.expect(BOB2, "INVITE");
        w.answer(DAVE_TCP, &first.msg, late);
        if late == 200 {
            w.expect(ALICE, "200");
            w.answer(BOB2, &second, 180);
            let cancel = w.expect(BOB2, "CANCEL");
            w.answer(BOB2, &cancel, 200);
            w.answer(BOB2, &second, 487);
            w.expect(BOB2, "ACK");
        } else {
            let cancel = w.expect(DAVE_TCP, "CANCEL");
            w.answer(DAVE_TCP, &cancel, 200);
            w.answer(DAVE_TCP, &first.msg, 487);
            w.expect(DAVE_TCP, "ACK");
            w.answer(BOB2, &second, 200);
            w.expect(ALICE, "200");
        }
        w.finish();
    }
}
