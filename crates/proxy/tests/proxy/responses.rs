//! Where responses go, and which are dropped: RFC 3261 sections 16.7, 18.1.2, 18.2 and 18.3, RFC 3581.

use crate::common::*;
use ringway_proxy::config::Network;

/// RFC 3261 section 18.2.1 and 18.2.2: to the source address and the port of sent-by; `received` says
/// which.
#[test]
fn received_and_the_port_of_sent_by() {
    let mut w = World::new();
    w.register("bob", BOB);
    for (via, goes_to, then) in [
        // The host differs from the source.
        (
            "SIP/2.0/UDP 10.1.1.1:5070;branch=z9hG4bKa",
            "198.51.100.1:5070",
            "SIP/2.0/UDP 10.1.1.1:5070;branch=z9hG4bKa;received=198.51.100.1",
        ),
        // A name always does.
        (
            "SIP/2.0/UDP pc.example.net;branch=z9hG4bKb",
            "198.51.100.1:5060",
            "SIP/2.0/UDP pc.example.net;branch=z9hG4bKb;received=198.51.100.1",
        ),
        // The same address: nothing is added.
        (
            "SIP/2.0/UDP 198.51.100.1:5080;branch=z9hG4bKc",
            "198.51.100.1:5080",
            "SIP/2.0/UDP 198.51.100.1:5080;branch=z9hG4bKc",
        ),
        // What the client claims itself is not believed.
        (
            "SIP/2.0/UDP 198.51.100.1:5080;branch=z9hG4bKd;received=203.0.113.99",
            "198.51.100.1:5080",
            "SIP/2.0/UDP 198.51.100.1:5080;branch=z9hG4bKd",
        ),
        // RFC 3581 section 4: rport asks for the source port, and gets it with the address.
        (
            "SIP/2.0/UDP 198.51.100.1:5080;rport;branch=z9hG4bKe",
            "198.51.100.1:40000",
            "SIP/2.0/UDP 198.51.100.1:5080;branch=z9hG4bKe;received=198.51.100.1;rport=40000",
        ),
    ] {
        let source = ALICE.at("198.51.100.1:40000");
        let request = w.request(ALICE, "OPTIONS sip:bob@example.org").set("Via", via);
        w.from(source, &request);
        let got = w.expect(BOB, "OPTIONS");
        assert_eq!(got.all("Via")[1], then);
        w.answer(BOB, &got, 200);
        let answer = w.expect(Peer { addr: goes_to, ..ALICE }, "200");
        assert_eq!(answer.all("Via"), [then]);
        // Section 8.2.6: our own answers go the same way.
        let other = |via: &str| via.replace("z9hG4bK", "z9hG4bKx");
        let request = w.request(ALICE, "OPTIONS sip:nobody@example.org").set("Via", other(via));
        w.from(source, &request);
        let answer = w.expect(Peer { addr: goes_to, ..ALICE }, "404");
        assert_eq!(answer.all("Via"), [other(then)]);
    }
    w.finish();
}

/// RFC 3261 section 18.2.2: maddr says where else.
#[test]
fn maddr_in_the_via() {
    let mut w = World::with(|config| {
        config.trusted = vec![Network { addr: ALICE.remote().ip(), prefix: 32 }];
    });
    let request = w
        .request(ALICE, "OPTIONS sip:nobody@example.org")
        .set("Via", "SIP/2.0/UDP 198.51.100.1:5070;branch=z9hG4bKa;maddr=198.51.100.9");
    w.from(ALICE, &request);
    w.expect(ALICE.at("198.51.100.9:5070"), "404");
    w.finish();
}

/// RFC 3261 section 18.2.2: over TCP on the connection the request came on, whatever sent-by says.
#[test]
fn tcp_answers_on_the_connection() {
    let mut w = World::new();
    w.register("bob", BOB);
    let request = w
        .request(CAROL_TCP, "OPTIONS sip:bob@example.org")
        .set("Via", "SIP/2.0/TCP carol.example.net:5060;branch=z9hG4bKa;maddr=203.0.113.99");
    w.from(CAROL_TCP, &request);
    let got = w.expect(BOB, "OPTIONS");
    w.answer(BOB, &got, 200);
    w.expect(CAROL_TCP, "200");
    w.finish();
}

/// RFC 3261 section 18.2.2: if that connection is gone, a new one is opened to the source address and
/// the port of sent-by; for a refusal as for a 2xx, and only once for each.
#[test]
fn a_broken_connection_is_opened_anew() {
    for status in [486, 200] {
        let mut w = World::new();
        w.register("bob", BOB);
        let invite = w
            .request(CAROL_TCP, "INVITE sip:bob@example.org")
            .set("Via", "SIP/2.0/TCP 198.51.100.30:5070;branch=z9hG4bKa");
        w.from(CAROL_TCP, &invite);
        w.expect(CAROL_TCP, "100");
        let got = w.expect(BOB, "INVITE");
        w.break_flow(CAROL_TCP);
        w.answer(BOB, &got, status);
        if status > 299 {
            w.expect(BOB, "ACK");
        }
        let answer = w.expect(CAROL_TCP.at("198.51.100.30:5070"), &format!("{status} INVITE"));
        w.quiet();
        if status > 299 {
            w.from(CAROL_TCP.at("198.51.100.30:41111"), &ack(&invite, &answer));
        } else {
            // RFC 6026 section 7.1: and a copy of the 2xx likewise.
            w.answer(BOB, &got, status);
            w.expect(CAROL_TCP.at("198.51.100.30:5070"), "200 INVITE");
        }
        w.finish();
    }
}

/// RFC 3261 section 18.2.2: the default port where sent-by names none; a WebSocket cannot be opened.
#[test]
fn a_broken_connection_without_a_port() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w
        .request(CAROL_TCP, "INVITE sip:bob@example.org")
        .set("Via", "SIP/2.0/TCP carol.example.net;branch=z9hG4bKa");
    w.from(CAROL_TCP, &invite);
    w.expect(CAROL_TCP, "100");
    let got = w.expect(BOB, "INVITE");
    w.break_flow(CAROL_TCP);
    w.answer(BOB, &got, 486);
    w.expect(BOB, "ACK");
    w.expect(CAROL_TCP.at("198.51.100.30:5060"), "486");
    w.call(ERIN_WS, "INVITE sip:bob@example.org");
    w.expect(ERIN_WS, "100");
    let got = w.expect(BOB, "INVITE");
    w.break_flow(ERIN_WS);
    w.answer(BOB, &got, 486);
    w.expect(BOB, "ACK");
    w.finish();
}

/// RFC 3261 section 18.1.2: what answers no request of ours is dropped.
#[test]
fn stray_responses_are_dropped() {
    let mut w = World::new();
    w.register("bob", BOB);
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    let got = w.expect(BOB, "MESSAGE");
    let honest = response(BOB, &got, 200);
    let branch = got.branch();
    let mut other = branch.clone();
    let at = "z9hG4bK".len() + 9;
    let swap = if &other[at..at + 1] == "A" { "B" } else { "A" };
    other.replace_range(at..at + 1, swap);
    for top in [
        format!("SIP/2.0/UDP 192.0.2.1:5060;branch={other}"),
        "SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bKnothing".into(),
        "SIP/2.0/UDP 192.0.2.1:5060;branch=1".into(),
        "SIP/2.0/UDP 192.0.2.1:5060".into(),
    ] {
        let vias = format!("{top}, {}", got.all("Via")[1]);
        w.from(BOB, &honest.clone().set("Via", vias));
        w.quiet();
    }
    // Section 17.1.3: the method of CSeq must be that of the request.
    w.from(BOB, &honest.clone().set("CSeq", "1 INVITE"));
    w.quiet();
    w.from(BOB, &honest);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 3261 section 16.7 item 3: a response without a further Via was for us, and is not forwarded.
#[test]
fn a_response_without_a_further_via_is_not_forwarded() {
    for status in [180, 200, 404] {
        let mut w = World::new();
        w.register("bob", BOB);
        w.call(ALICE, "INVITE sip:bob@example.org");
        w.expect(ALICE, "100");
        let got = w.expect(BOB, "INVITE");
        let stripped = response(BOB, &got, status).set("Via", &got.all("Via")[0]);
        w.from(BOB, &stripped);
        if status == 404 {
            w.count(BOB, "ACK");
        }
        assert!(w.sent.iter().all(|s| s.msg.has("Via")), "{}", w.ladder());
        w.ignore();
        w.finish_anyhow();
    }
}

/// RFC 3261 section 16.7 item 3: nor does it lead to another hop, whose answer would come on top.
#[test]
fn a_response_without_a_further_via_ends_the_branch() {
    let mut w = World::new();
    let hops =
        [(ringway_sansio::Transport::Udp, BOB.addr), (ringway_sansio::Transport::Udp, BOB2.addr)];
    w.name("pbx.example.net", &hops);
    w.bind("bob", bind("sip:bob@pbx.example.net"));
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.from(BOB, &response(BOB, &got, 200).set("Via", &got.all("Via")[0]));
    let answer = w.expect(ALICE, "502");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// RFC 3261 section 18.3: a datagram shorter than its Content-Length says is no response; sections
/// 16.3 and 18.1.2: nor is what is malformed.
#[test]
fn malformed_responses_are_dropped() {
    let mut w = World::new();
    w.register("bob", BOB);
    w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    let honest = response(BOB, &got, 200);
    for broken in [
        honest.clone().set("Content-Length", "10"),
        honest.clone().del("To"),
        honest.clone().del("Call-ID"),
        honest.clone().add("From", honest.get("From")),
        honest.clone().set("CSeq", "nonsense"),
    ] {
        w.from(BOB, &broken);
        w.quiet();
    }
    w.from(BOB, &honest);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 3261 section 18.3: what a datagram holds after its body is discarded.
#[test]
fn what_follows_the_body_is_discarded() {
    let mut w = World::new();
    w.register("bob", BOB);
    let request = w.request(ALICE, "MESSAGE sip:bob@example.org").padded(10);
    let mut bytes = request.bytes();
    bytes.extend_from_slice(b"INVITE sip:smuggled SIP/2.0\r\n\r\n");
    w.bytes_from(0, ALICE.flow(0), &bytes);
    let got = w.expect(BOB, "MESSAGE");
    assert_eq!(got.body, request.body);
    let mut bytes = response(BOB, &got, 200).padded(5).bytes();
    bytes.extend_from_slice(b"trailing");
    w.bytes_from(0, BOB.flow(0), &bytes);
    assert_eq!(w.expect(ALICE, "200").body, "xxxxx");
    w.finish();
}
