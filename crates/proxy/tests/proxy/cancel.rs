//! CANCEL: RFC 3261 sections 9 and 16.10.

use crate::common::*;

/// RFC 3261 sections 9.1, 9.2 and 16.10: there is no answer, and the caller cancels.
#[test]
fn a_ringing_call_is_cancelled() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 180);
    w.expect(ALICE, "180");

    w.from(ALICE, &cancel(&invite));
    let ok = w.expect(ALICE, "200 CANCEL");
    let there = w.expect(BOB, "CANCEL sip:bob@203.0.113.2:5060");
    w.quiet();
    // Section 9.1: the same branch, one Via, From, To, Call-ID and number.
    assert_eq!(there.all("Via"), [got.all("Via")[0].clone()]);
    assert_eq!(there.get("To"), got.get("To"));
    assert_eq!(there.get("From"), got.get("From"));
    assert_eq!(there.get("CSeq"), "1 CANCEL");
    assert!(!there.has("Require") && !there.has("Contact"));
    w.answer(BOB, &there, 200);
    let gone = w.answer(BOB, &got, 487);
    w.expect(BOB, "ACK");
    let answer = w.expect(ALICE, "487 INVITE");
    assert_eq!(answer.get("To"), gone.get("To"));
    w.from(ALICE, &ack(&invite, &answer));
    assert!(ok.tag("To").is_some());
    w.finish();
}

/// RFC 3261 section 9.1: no CANCEL before a provisional response has come.
#[test]
fn cancel_waits_for_a_provisional_response() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.from(ALICE, &cancel(&invite));
    w.expect(ALICE, "200 CANCEL");
    w.quiet();
    // The INVITE is still retransmitted.
    w.pass_ms(500);
    w.expect(BOB, "INVITE");
    w.quiet();
    w.answer(BOB, &got, 100);
    let there = w.expect(BOB, "CANCEL");
    w.quiet();
    w.answer(BOB, &there, 200);
    w.answer(BOB, &got, 487);
    w.expect(BOB, "ACK");
    let answer = w.expect(ALICE, "487");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// RFC 3261 section 9.1: a callee that answers nothing at all ends with timer B; the caller hears
/// 487.
#[test]
fn cancel_of_a_call_nobody_answers() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    w.expect(BOB, "INVITE");
    w.from(ALICE, &cancel(&invite));
    w.expect(ALICE, "200 CANCEL");
    w.pass_secs(33);
    assert_eq!(w.count(BOB, "INVITE"), 6);
    let answer = w.expect(ALICE, "487");
    w.count(ALICE, "487");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// RFC 3261 section 9.1: 64*T1 after the CANCEL the INVITE is given up, whether the callee keeps
/// silent or goes on ringing.
#[test]
fn cancel_ends_the_call_even_if_the_callee_rings_on() {
    for rings_on in [false, true] {
        let mut w = World::new();
        w.register("bob", BOB);
        let invite = w.call(ALICE, "INVITE sip:bob@example.org");
        w.expect(ALICE, "100");
        let got = w.expect(BOB, "INVITE");
        w.answer(BOB, &got, 180);
        w.expect(ALICE, "180");
        w.from(ALICE, &cancel(&invite));
        w.expect(ALICE, "200 CANCEL");
        let there = w.expect(BOB, "CANCEL");
        w.answer(BOB, &there, 200);
        for _ in 0..8 {
            if rings_on {
                w.answer(BOB, &got, 180);
                w.expect(ALICE, "180");
            }
            w.pass_secs(4);
        }
        w.pass_ms(1);
        let answer = w.expect(ALICE, "487");
        w.count(ALICE, "487");
        w.from(ALICE, &ack(&invite, &answer));
        w.quiet();
        w.finish();
    }
}

/// RFC 3261 section 9.1 and 17.1.2: over UDP the CANCEL itself is sent again until it is answered.
#[test]
fn cancel_is_a_transaction_of_its_own() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 180);
    w.expect(ALICE, "180");
    w.from(ALICE, &cancel(&invite));
    w.expect(ALICE, "200 CANCEL");
    w.expect(BOB, "CANCEL");
    w.pass_ms(500);
    let there = w.expect(BOB, "CANCEL");
    w.answer(BOB, &there, 200);
    w.answer(BOB, &got, 487);
    w.expect(BOB, "ACK");
    let answer = w.expect(ALICE, "487");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// RFC 3261 section 9.2: a copy of the CANCEL is answered again, and does nothing more.
#[test]
fn a_second_cancel_does_nothing_more() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 180);
    w.expect(ALICE, "180");
    for _ in 0..3 {
        w.from(ALICE, &cancel(&invite));
        w.expect(ALICE, "200 CANCEL");
    }
    let there = w.expect(BOB, "CANCEL");
    w.quiet();
    w.answer(BOB, &there, 200);
    w.answer(BOB, &got, 487);
    w.expect(BOB, "ACK");
    let answer = w.expect(ALICE, "487");
    // Section 9.2: after a final response a CANCEL has no effect.
    w.from(ALICE, &cancel(&invite));
    w.expect(ALICE, "200 CANCEL");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// RFC 3261 section 9.1: the CANCEL and the 200 cross; the call stands.
#[test]
fn a_2xx_that_crosses_the_cancel_wins() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 180);
    w.expect(ALICE, "180");
    w.from(ALICE, &cancel(&invite));
    w.expect(ALICE, "200 CANCEL");
    let there = w.expect(BOB, "CANCEL");
    w.answer(BOB, &got, 200);
    let ok = w.expect(ALICE, "200 INVITE");
    w.answer(BOB, &there, 481);
    let mut caller = Dialog::of_caller(ALICE, &invite, &ok);
    w.from(ALICE, &caller.request("ACK", "z9hG4bKack"));
    w.expect(BOB, "ACK");
    w.finish();
}

/// RFC 3261 section 9.2: a CANCEL for nothing we know.
#[test]
fn a_cancel_that_matches_nothing_is_481() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w.request(ALICE, "INVITE sip:bob@example.org");
    w.from(ALICE, &cancel(&invite));
    w.expect(ALICE, "481 CANCEL");
    w.finish();
}

/// RFC 3261 section 9.2: only an INVITE is cancelled.
#[test]
fn a_cancel_of_another_request_has_no_effect() {
    let mut w = World::new();
    w.register("bob", BOB);
    let options = w.call(ALICE, "OPTIONS sip:bob@example.org");
    let got = w.expect(BOB, "OPTIONS");
    w.from(ALICE, &cancel(&options));
    w.expect(ALICE, "481 CANCEL");
    w.quiet();
    w.answer(BOB, &got, 200);
    w.expect(ALICE, "200 OPTIONS");
    w.finish();
}

/// RFC 3261 section 16.10: with several branches each is cancelled once, and those still to come
/// are not begun.
#[test]
fn every_branch_is_cancelled_and_none_begun() {
    let mut w = World::new();
    w.bind("bob", bind(BOB.contact()).q(900));
    w.bind("bob", bind(BOB2.contact()).q(900));
    w.bind("bob", bind(BOB3.contact()).q(100));
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let one = w.expect(BOB, "INVITE");
    let two = w.expect(BOB2, "INVITE");
    for (peer, got) in [(BOB, &one), (BOB2, &two)] {
        w.answer(peer, got, 180);
        w.expect(ALICE, "180");
    }
    w.from(ALICE, &cancel(&invite));
    w.expect(ALICE, "200 CANCEL");
    for (peer, got) in [(BOB, &one), (BOB2, &two)] {
        let there = w.expect(peer, "CANCEL");
        w.answer(peer, &there, 200);
        // A 6xx would cancel the others again: section 16.7 item 10 asks for one CANCEL only.
        w.answer(peer, got, if peer == BOB { 603 } else { 487 });
        w.expect(peer, "ACK");
    }
    let answer = w.expect(ALICE, "603");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}
