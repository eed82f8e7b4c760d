//! The stateless proxy: RFC 3261 section 16.11.

use crate::common::*;
use ringway_proxy::config::Mode;

fn stateless() -> World {
    World::with(|config| config.domains[0].mode = Mode::Stateless)
}

/// RFC 3261 section 16.11: request and responses pass, nothing is kept, no 100 of our own.
#[test]
fn a_call_without_state() {
    for caller in [ALICE, CAROL_TCP, ERIN_WS] {
        let mut w = stateless();
        w.register("bob", BOB);
        let invite = w.call(caller, "INVITE sip:bob@example.org");
        assert_eq!(w.cores[0].tables(), Default::default());
        let got = w.expect(BOB, "INVITE sip:bob@203.0.113.2:5060");
        w.quiet();
        assert_eq!(got.get("Max-Forwards"), "69");
        for status in [100, 180, 200] {
            w.answer(BOB, &got, status);
            let there = w.expect(caller, &status.to_string());
            assert_eq!(there.all("Via").len(), 1);
        }
        let ok = response(BOB, &got, 200);
        let mut dialog = Dialog::of_caller(caller, &invite, &ok);
        let branch = w.branch();
        w.from(caller, &dialog.request("ACK", &branch));
        w.expect(BOB, "ACK");
        w.finish();
    }
}

/// RFC 3261 section 16.11: a retransmission leaves as the first did, with the same branch; ACK and
/// CANCEL of the INVITE too.
#[test]
fn the_branch_is_the_same_each_time() {
    let mut w = stateless();
    w.bind("bob", bind(BOB2.contact()).q(500));
    w.bind("bob", bind(BOB.contact()).q(500));
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    let got = w.expect(BOB, "INVITE");
    // One and only one target.
    w.quiet();
    w.from(ALICE, &invite);
    assert_eq!(w.expect(BOB, "INVITE"), got);
    w.from(ALICE, &cancel(&invite));
    let there = w.expect(BOB, "CANCEL sip:bob@203.0.113.2:5060");
    assert_eq!(there.branch(), got.branch());
    w.answer(BOB, &there, 200);
    w.expect(ALICE, "200 CANCEL");
    w.answer(BOB, &got, 487);
    let answer = w.expect(ALICE, "487");
    w.from(ALICE, &ack(&invite, &answer));
    let there = w.expect(BOB, "ACK sip:bob@203.0.113.2:5060");
    assert_eq!(there.branch(), got.branch());
    w.finish();
}

/// RFC 3261 section 8.1.1.7: another transaction has another branch, also for peers of RFC 2543.
#[test]
fn the_branch_is_another_for_another_transaction() {
    let mut w = stateless();
    w.register("bob", BOB);
    let mut seen = std::collections::BTreeSet::new();
    let mut check = |w: &mut World, request: &Msg, method: &str, new: bool| {
        w.from(ALICE, request);
        let got = w.expect(BOB, method);
        assert!(got.branch().starts_with("z9hG4bK"));
        assert_eq!(seen.insert(got.branch()), new, "{request}");
        got
    };
    let one = w.request(ALICE, "INVITE sip:bob@example.org");
    check(&mut w, &one, "INVITE", true);
    let two = w.request(ALICE, "INVITE sip:bob@example.org");
    check(&mut w, &two, "INVITE", true);
    // From another host, the same branch is another transaction.
    let other = one.clone().set("Via", via(PROXY, &one.branch()));
    check(&mut w, &other, "INVITE", true);
    // RFC 3261 section 16.11: without the magic cookie the other fields count.
    for via in ["SIP/2.0/UDP 198.51.100.1:5060", "SIP/2.0/UDP 198.51.100.1:5060;branch=1"] {
        let old = w.request(ALICE, "INVITE sip:bob@example.org").set("Via", via);
        let got = check(&mut w, &old, "INVITE", true);
        check(&mut w, &old, "INVITE", false);
        let next = w.request(ALICE, "INVITE sip:bob@example.org").set("Via", via);
        check(&mut w, &next, "INVITE", true);
        let again = old.clone().set("CSeq", "2 INVITE");
        check(&mut w, &again, "INVITE", true);
        check(&mut w, &cancel(&old), "CANCEL", false);
        // The ACK of a refusal has a To tag, and must still match at the callee (section 17.2.3).
        let busy = response(BOB, &got, 486);
        check(&mut w, &ack(&old, &busy), "ACK", false);
    }
    w.finish();
}

/// RFC 3261 section 16.11: a response is sent to the next Via, by received and rport.
#[test]
fn a_response_is_routed_by_the_next_via() {
    let outside = ALICE.at("198.51.100.1:44444");
    let mut w = stateless();
    w.register("bob", BOB);
    let old = w
        .request(ALICE, "OPTIONS sip:bob@example.org")
        .set("Via", "SIP/2.0/UDP phone.example.net:5070;branch=z9hG4bKa");
    w.from(outside, &old);
    let got = w.expect(BOB, "OPTIONS");
    w.answer(BOB, &got, 200);
    w.expect(ALICE.at("198.51.100.1:5070"), "200");
    let new = w
        .request(ALICE, "OPTIONS sip:bob@example.org")
        .set("Via", "SIP/2.0/UDP 10.0.0.1:5070;branch=z9hG4bKb;rport");
    w.from(outside, &new);
    let got = w.expect(BOB, "OPTIONS");
    w.answer(BOB, &got, 200);
    w.expect(outside, "200");
    w.finish();
}

/// RFC 3261 sections 16.11 and 18.1.2: a response that we have not sent the request for goes nowhere:
/// we are no mirror to throw packets with.
#[test]
fn a_forged_response_is_dropped() {
    let mut w = stateless();
    w.register("bob", BOB);
    w.call(PROXY, "OPTIONS sip:bob@example.org");
    let got = w.expect(BOB, "OPTIONS");
    let honest = response(BOB, &got, 200);
    let vias = honest.all("Via");
    for forged in [
        // Not what we wrote.
        "SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK-s0123456789abcdef".to_string(),
        "SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK-s".to_string(),
        // What we wrote, for another way back.
        vias[0].clone(),
    ] {
        for next in [
            "SIP/2.0/UDP 203.0.113.99:5060;branch=z9hG4bKa",
            "SIP/2.0/UDP 192.0.2.50:5060;branch=z9hG4bKtest1;received=203.0.113.99",
            "SIP/2.0/UDP 192.0.2.50:5060;branch=z9hG4bKtest1;rport=7",
            "SIP/2.0/UDP 203.0.113.99:5060;branch=z9hG4bKtest1",
        ] {
            w.from(BOB, &honest.clone().set("Via", format!("{forged}, {next}")));
            let to_stranger = w.sent.iter().any(|s| s.to.remote() != PROXY.remote());
            assert!(!to_stranger, "{forged}, {next}\n{}", w.ladder());
            w.ignore();
        }
    }
    // Without a next Via it was for us (section 16.7 item 3), and we have asked nothing.
    w.from(BOB, &honest.clone().set("Via", &vias[0]));
    w.quiet();
    w.from(BOB, &honest);
    w.expect(PROXY, "200");
    w.finish();
}

/// RFC 3261 section 16.11: validation is as for a stateful proxy, and there is no fork to fall back
/// to.
#[test]
fn requests_are_validated() {
    let mut w = stateless();
    w.register("bob", BOB);
    let request = w.request(ALICE, "OPTIONS sip:bob@example.org").set("Max-Forwards", "0");
    w.from(ALICE, &request);
    w.expect(ALICE, "483");
    let request = w.request(ALICE, "OPTIONS sip:bob@example.org").add("Proxy-Require", "x");
    w.from(ALICE, &request);
    w.expect(ALICE, "420");
    w.call(ALICE, "OPTIONS sip:nobody@example.org");
    w.expect(ALICE, "404");
    let cancel = w.request(ALICE, "CANCEL sip:nobody@example.org");
    w.from(ALICE, &cancel);
    w.expect(ALICE, "481");
    w.finish();
}

/// A name is resolved before the request is sent on; if there is none, it is refused.
#[test]
fn names_without_state() {
    let mut w = stateless();
    w.bind("bob", bind("sip:bob@pbx.example.net"));
    w.call(ALICE, "OPTIONS sip:bob@example.org");
    let question = w.questions.remove(0);
    w.resolved(question, &[(ringway_sansio::Transport::Udp, BOB.addr)]);
    let got = w.expect(BOB, "OPTIONS sip:bob@pbx.example.net");
    w.answer(BOB, &got, 200);
    w.expect(ALICE, "200");
    w.call(ALICE, "OPTIONS sip:bob@example.org");
    let question = w.questions.remove(0);
    w.resolved(question, &[]);
    w.expect(ALICE, "503");
    w.finish();
}

/// RFC 5626 section 7: a phone that registered over a connection is reached over it.
#[test]
fn a_connection_without_state() {
    let mut w = stateless();
    w.bind("bob", bind(DAVE_TCP.contact()).over(DAVE_TCP));
    w.call(ALICE, "OPTIONS sip:bob@example.org");
    let got = w.expect(DAVE_TCP, "OPTIONS");
    assert!(got.all("Via")[0].starts_with("SIP/2.0/TCP 192.0.2.1:5060"));
    w.answer(DAVE_TCP, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}
