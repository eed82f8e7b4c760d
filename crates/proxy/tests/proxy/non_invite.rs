//! What RFC 4320 asks of requests that are no INVITE.

use crate::common::*;

/// RFC 4320 section 4.1: no provisional response but 100 goes back, and a 100 not before timer E has
/// grown to T2, but then it must.
#[test]
fn a_slow_answer_is_preceded_by_one_100() {
    for peer in [ALICE, CAROL_TCP] {
        let mut w = World::new();
        w.register("bob", BOB);
        w.call(peer, "MESSAGE sip:bob@example.org");
        let got = w.expect(BOB, "MESSAGE");
        w.answer(BOB, &got, 100);
        w.answer(BOB, &got, 183);
        w.quiet();
        w.pass_ms(3499);
        w.count(BOB, "MESSAGE");
        w.quiet();
        w.pass_ms(1);
        w.expect(peer, "100");
        w.pass_secs(10);
        w.count(BOB, "MESSAGE");
        w.quiet();
        w.answer(BOB, &got, 200);
        w.expect(peer, "200");
        w.finish();
    }
}

/// RFC 4320 section 4.1: a quick answer has no 100 before it, nor after it.
#[test]
fn a_quick_answer_has_no_100() {
    let mut w = World::new();
    w.register("bob", BOB);
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    let got = w.expect(BOB, "MESSAGE");
    w.pass_ms(400);
    w.answer(BOB, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 4320 section 4.2: a 408 from behind us is not passed back either.
#[test]
fn a_408_is_not_forwarded() {
    let mut w = World::new();
    w.register("bob", BOB);
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    let got = w.expect(BOB, "MESSAGE");
    w.answer(BOB, &got, 408);
    w.finish();
}

/// RFC 4320 section 4.2: with another final response in the context, that one is sent.
#[test]
fn a_408_loses_against_anything() {
    let mut w = World::new();
    w.register("bob", BOB2);
    w.register("bob", BOB);
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    let one = w.expect(BOB, "MESSAGE");
    let two = w.expect(BOB2, "MESSAGE");
    w.answer(BOB, &one, 408);
    w.quiet();
    w.answer(BOB2, &two, 500);
    w.expect(ALICE, "500");
    w.finish();
}

/// RFC 4320 section 4.2: a response after the end of the server transaction is dropped.
#[test]
fn a_late_response_is_dropped() {
    let mut w = World::new();
    w.register("bob", BOB);
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    let got = w.expect(BOB, "MESSAGE");
    w.pass_secs(33);
    w.count(BOB, "MESSAGE");
    w.count(ALICE, "100");
    w.answer(BOB, &got, 200);
    w.finish();
}

/// RFC 3261 section 17.2.2: the final response is kept for copies of the request until timer J.
#[test]
fn the_response_is_stored_until_timer_j() {
    let mut w = World::new();
    w.register("bob", BOB);
    let message = w.call(ALICE, "MESSAGE sip:bob@example.org");
    let got = w.expect(BOB, "MESSAGE");
    w.answer(BOB, &got, 202);
    let first = w.expect(ALICE, "202");
    w.pass_secs(31);
    w.from(ALICE, &message);
    assert_eq!(w.expect(ALICE, "202"), first);
    // A second final response is no answer to anything.
    w.answer(BOB, &got, 404);
    w.quiet();
    w.finish();
}
