//! Strict routers of RFC 2543 before and after us: RFC 3261 sections 16.4, 16.6 item 6 and 16.12.

use crate::common::*;

/// RFC 3261 section 16.4: a strict router before us has put what we wrote into Record-Route into the
/// Request-URI, and the real one at the end of Route.
#[test]
fn a_strict_router_before_us() {
    for digest in [false, true] {
        let mut w = World::with(|config| {
            config.auth.enabled = digest;
        });
        w.register("bob", BOB);
        // From a foreign caller, who is not asked for credentials.
        let invite = w.request(PROXY, "INVITE sip:bob@example.org");
        let invite = invite.set("From", "<sip:eve@example.com>;tag=1");
        w.from(PROXY, &invite);
        w.expect(PROXY, "100");
        let got = w.expect(BOB, "INVITE");
        w.answer(BOB, &got, 200);
        let ok = w.expect(PROXY, "200");
        let mut caller = Dialog::of_caller(PROXY, &invite, &ok);
        for method in ["ACK", "BYE"] {
            let ours = uri(&caller.route[0]);
            // As a strict router sends it.
            let strict = Dialog { route: vec![], ..caller.clone() }
                .request(method, &w.branch())
                .aimed_at(&ours)
                .add("Route", format!("<{}>", caller.target));
            caller.cseq += 1;
            w.from(PROXY, &strict);
            let there = w.expect(BOB, &format!("{method} {}", caller.target));
            assert!(!there.has("Route"), "{there}");
            if method == "BYE" {
                w.answer(BOB, &there, 200);
                w.expect(PROXY, "200 BYE");
            }
        }
        w.finish();
    }
}

fn uri(address: &str) -> String {
    msg::uri_of(address).to_string()
}

/// RFC 3261 section 16.4: with more Route elements behind, only the last becomes the Request-URI.
#[test]
fn a_strict_router_before_us_and_a_proxy_behind() {
    let mut w = World::new();
    let request = w
        .request(ALICE, "BYE sip:192.0.2.1:5060;lr")
        .add("Route", "<sip:192.0.2.50;lr>, <sip:other.example.com;lr>")
        .add("Route", "<sip:bob@client.biloxi.example.com>");
    w.from(ALICE, &request);
    let got = w.expect(PROXY, "BYE sip:bob@client.biloxi.example.com");
    assert_eq!(got.all("Route"), ["<sip:192.0.2.50;lr>", "<sip:other.example.com;lr>"]);
    w.answer(PROXY, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 3261 section 16.6 item 6: a Route without lr goes into the Request-URI, and the Request-URI to
/// the end of Route.
#[test]
fn a_strict_router_behind_us() {
    let mut w = World::new();
    let request = w
        .request(ALICE, "MESSAGE sip:bob@client.biloxi.example.com")
        .add("Route", "<sip:192.0.2.1;lr>, <sip:192.0.2.50>")
        .add("Route", "<sip:p3.middle.example.com;lr>");
    w.from(ALICE, &request);
    let got = w.expect(PROXY, "MESSAGE sip:192.0.2.50");
    assert_eq!(
        got.all("Route"),
        ["<sip:p3.middle.example.com;lr>", "<sip:bob@client.biloxi.example.com>"]
    );
    w.answer(PROXY, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 3261 section 16.6 item 6: the same for an ACK, which is forwarded without a transaction.
#[test]
fn an_ack_to_a_strict_router() {
    let mut w = World::new();
    let ack = w
        .request(ALICE, "ACK sip:bob@client.biloxi.example.com")
        .add("Route", "<sip:192.0.2.1;lr>, <sip:192.0.2.50>");
    w.from(ALICE, &ack);
    let got = w.expect(PROXY, "ACK sip:192.0.2.50");
    assert_eq!(got.all("Route"), ["<sip:bob@client.biloxi.example.com>"]);
    w.finish();
}

/// RFC 3261 section 17.1.1.3 and 9.1: ACK and CANCEL of an INVITE to a strict router carry the Route
/// of the INVITE that was sent.
#[test]
fn ack_and_cancel_follow_the_invite_that_was_sent() {
    let mut w = World::new();
    let invite = w
        .request(ALICE, "INVITE sip:bob@biloxi.example.com")
        .add("Route", "<sip:192.0.2.50>, <sip:p3.example.com;lr>");
    w.from(ALICE, &invite);
    w.expect(ALICE, "100");
    let got = w.expect(PROXY, "INVITE sip:192.0.2.50");
    w.answer(PROXY, &got, 180);
    w.expect(ALICE, "180");
    w.from(ALICE, &cancel(&invite));
    w.expect(ALICE, "200 CANCEL");
    let there = w.expect(PROXY, "CANCEL sip:192.0.2.50");
    assert_eq!(there.all("Route"), got.all("Route"));
    w.answer(PROXY, &there, 200);
    w.answer(PROXY, &got, 487);
    let there = w.expect(PROXY, "ACK sip:192.0.2.50");
    assert_eq!(there.all("Route"), got.all("Route"));
    let answer = w.expect(ALICE, "487");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// RFC 3261 section 16.12.1.1: the basic trapezoid U1 -> P1 -> P2 -> U2, seen from P1 and from P2.
#[test]
fn the_basic_trapezoid() {
    // As P1, an outbound proxy: not responsible for the domain, found by DNS.
    let mut w = World::new();
    w.name("domain.com", &[(ringway_sansio::Transport::Udp, PROXY.addr)]);
    let invite = w.call(ALICE, "INVITE sip:callee@domain.com");
    w.expect(ALICE, "100");
    let got = w.expect(PROXY, "INVITE sip:callee@domain.com");
    assert_eq!(got.all("Record-Route").len(), 1);
    let p1 = got.get("Record-Route").to_string();
    let ok = response(PROXY, &got, 200)
        .set("Contact", "<sip:callee@u2.domain.com>")
        .set("Record-Route", "<sip:192.0.2.50;lr>")
        .add("Record-Route", &p1);
    w.from(PROXY, &ok);
    let ok = w.expect(ALICE, "200");
    let mut caller = Dialog::of_caller(ALICE, &invite, &ok);
    // Section 16.7 item 8: only the user part of P1's value is another.
    assert_eq!(caller.route[0].rsplit_once('@').unwrap().1, p1.rsplit_once('@').unwrap().1);
    assert_eq!(caller.route[1..], ["<sip:192.0.2.50;lr>"]);
    for method in ["ACK", "BYE"] {
        let branch = w.branch();
        w.from(ALICE, &caller.request(method, &branch));
        let there = w.expect(PROXY, &format!("{method} sip:callee@u2.domain.com"));
        assert_eq!(there.all("Route"), ["<sip:192.0.2.50;lr>"]);
        if method == "BYE" {
            w.answer(PROXY, &there, 200);
            w.expect(ALICE, "200");
        }
    }
    w.finish();

    // As P2, which is responsible and locates the callee.
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w
        .request(PROXY, "INVITE sip:bob@example.org")
        .add("Record-Route", "<sip:192.0.2.50;lr>")
        .set("Contact", "<sip:caller@u1.example.com>");
    w.from(PROXY, &invite);
    w.expect(PROXY, "100");
    let got = w.expect(BOB, "INVITE sip:bob@203.0.113.2:5060");
    assert_eq!(got.all("Record-Route").len(), 2);
    let ok = w.answer(BOB, &got, 200);
    w.expect(PROXY, "200");
    let mut callee = Dialog::of_callee(BOB, &got, &ok);
    assert_eq!(callee.route[1], "<sip:192.0.2.50;lr>");
    let branch = w.branch();
    w.from(BOB, &callee.request("BYE", &branch));
    let bye = w.expect(PROXY, "BYE sip:caller@u1.example.com");
    assert_eq!(bye.all("Route"), ["<sip:192.0.2.50;lr>"]);
    w.answer(PROXY, &bye, 200);
    w.expect(BOB, "200");
    w.finish();
}

/// RFC 3261 section 16.12.1.2: U1 -> P1 -> P2 -> P3 -> P4 -> U2 where P3 is a strict router; seen
/// from P2 and then, backwards, from P2 again.
#[test]
fn traversing_a_strict_router() {
    // We are P2 at 192.0.2.1; P1 is GATEWAY and P3, which is strict, is PROXY.
    let mut w = World::new();
    let record =
        "<sip:p4.domain.com;lr>, <sip:192.0.2.50>, <sip:192.0.2.1;lr>, <sip:192.0.2.60;lr>";
    // U1's BYE comes by P1 with what is left of the route set.
    let mut route: Vec<String> = msg::split_list(record);
    route.reverse();
    let bye =
        w.request(GATEWAY, "BYE sip:callee@u2.domain.com").add("Route", route[1..].join(", "));
    w.from(GATEWAY, &bye);
    let got = w.expect(PROXY, "BYE sip:192.0.2.50");
    assert_eq!(got.all("Route"), ["<sip:p4.domain.com;lr>", "<sip:callee@u2.domain.com>"]);
    w.answer(PROXY, &got, 200);
    w.expect(GATEWAY, "200");
    // U2's BYE comes by P3, which routes strictly.
    let bye = w
        .request(PROXY, "BYE sip:192.0.2.1;lr")
        .add("Route", "<sip:192.0.2.60;lr>, <sip:caller@u1.example.com>");
    w.from(PROXY, &bye);
    let got = w.expect(GATEWAY, "BYE sip:caller@u1.example.com");
    assert_eq!(got.all("Route"), ["<sip:192.0.2.60;lr>"]);
    w.answer(GATEWAY, &got, 200);
    w.expect(PROXY, "200");
    w.finish();
}
