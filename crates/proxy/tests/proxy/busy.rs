//! A call that is refused.

use crate::common::*;

/// RFC 3261 sections 16.7 item 6, 17.1.1.3 and 17.2.1: the 486 is acknowledged hop by hop, and the
/// caller's ACK goes no further.
#[test]
fn busy_is_acknowledged_hop_by_hop() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    let busy = w.answer(BOB, &got, 486);
    let ack_there = w.expect(BOB, "ACK sip:bob@203.0.113.2:5060");
    assert_eq!(ack_there.all("Via"), [got.all("Via")[0].clone()]);
    assert_eq!(ack_there.get("To"), busy.get("To"));
    assert_eq!(ack_there.get("From"), got.get("From"));
    assert_eq!(ack_there.get("Call-ID"), got.get("Call-ID"));
    assert_eq!(ack_there.get("CSeq"), "1 ACK");
    assert!(!ack_there.has("Record-Route"));
    let answer = w.expect(ALICE, "486");
    answer.same_but(&busy, &["Via", "Content-Length"]);
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// RFC 3261 section 17.2.1: over UDP the final response is sent again by timer G (500 ms, doubling
/// to T2) until the ACK, and given up by timer H.
#[test]
fn a_refusal_is_sent_again_until_it_is_acknowledged() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 603);
    w.expect(BOB, "ACK");
    let first = w.expect(ALICE, "603");
    let began = w.now;
    w.pass_secs(40);
    let mut times = vec![];
    while w.sent.iter().any(|s| s.to.remote() == ALICE.remote()) {
        let again = w.expect_sent(ALICE, "603");
        assert_eq!(again.msg, first);
        times.push((again.at - began).as_millis());
    }
    assert_eq!(times, [500, 1500, 3500, 7500, 11_500, 15_500, 19_500, 23_500, 27_500, 31_500]);
    // Too late.
    w.from(ALICE, &ack(&invite, &first));
    w.ignore();
    w.finish();
}

/// RFC 3261 section 17.2.1: an ACK stops it, and copies of the ACK are absorbed for T4.
#[test]
fn the_ack_ends_the_retransmissions() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 404);
    w.expect(BOB, "ACK");
    w.pass_ms(600);
    let answer = w.expect(ALICE, "404");
    w.expect(ALICE, "404");
    w.from(ALICE, &ack(&invite, &answer));
    w.pass_ms(2000);
    w.from(ALICE, &ack(&invite, &answer));
    // RFC 3261 section 17.2.1: a late copy of the INVITE in Confirmed is absorbed too.
    w.from(ALICE, &invite);
    w.finish();
}

/// RFC 3261 section 8.2.6.2 and 16.7 item 6: who is unknown is 404, who is not there 480; the answer
/// carries a To tag, the same for every copy of the request.
#[test]
fn unknown_and_absent_users() {
    let mut w = World::new();
    let invite = w.call(ALICE, "INVITE sip:nobody@example.org");
    let a = w.expect(ALICE, "404");
    w.from(ALICE, &invite);
    let b = w.expect(ALICE, "404");
    assert_eq!(a, b);
    assert!(a.tag("To").is_some());
    w.from(ALICE, &ack(&invite, &a));
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    let answer = w.expect(ALICE, "480");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}
