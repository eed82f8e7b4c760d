//! 2xx to INVITE that come more than once or late: RFC 6026, RFC 3261 section 16.7.

use crate::common::*;

fn answered(w: &mut World) -> (Msg, Msg, Msg) {
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    let ok = w.answer(BOB, &got, 200);
    w.expect(ALICE, "200");
    (invite, got, ok)
}

/// RFC 6026 sections 7.1, 7.2 and 8.4: each copy of the 2xx goes through while Accepted lasts, and
/// copies of the INVITE are absorbed.
#[test]
fn copies_of_a_2xx_pass() {
    let mut w = World::new();
    let (invite, _, ok) = answered(&mut w);
    for _ in 0..5 {
        w.pass_secs(4);
        w.from(BOB, &ok);
        w.expect(ALICE, "200");
        w.from(ALICE, &invite);
        w.quiet();
    }
    w.finish();
}

/// RFC 6026 section 8.4 and 8.8: after timers L and M a 2xx belongs to nothing and is dropped.
#[test]
fn a_2xx_after_timer_m_is_dropped() {
    let mut w = World::new();
    let (_, _, ok) = answered(&mut w);
    w.pass_secs(33);
    w.from(BOB, &ok);
    w.quiet();
    assert_eq!(w.cores[0].stats().stray_responses, 1);
    w.finish();
}

/// RFC 6026 section 7.2: in Accepted, only 2xx go up.
#[test]
fn nothing_but_2xx_passes_after_a_2xx() {
    let mut w = World::new();
    let (_, got, _) = answered(&mut w);
    for status in [180, 486, 603, 100] {
        w.answer(BOB, &got, status);
        w.quiet();
    }
    w.finish();
}

/// RFC 6026 section 7.1: an ACK that carries the INVITE's own branch goes on to the callee, as often
/// as it comes, even if it has no Route.
#[test]
fn an_ack_in_accepted_goes_to_the_callee() {
    let mut w = World::new();
    let (invite, _, ok) = answered(&mut w);
    let ack = ack(&invite, &ok).aimed_at(BOB.contact().as_str());
    for _ in 0..2 {
        w.from(ALICE, &ack);
        w.expect(BOB, "ACK sip:bob@203.0.113.2:5060");
    }
    w.finish();
}

/// RFC 3261 section 16.7 item 5: a second phone that answers in the same moment is heard too; the
/// caller sorts it out (section 13.2.2.4).
#[test]
fn two_phones_answer() {
    let mut w = World::new();
    w.register("bob", BOB2);
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let one = w.expect(BOB, "INVITE");
    let two = w.expect(BOB2, "INVITE");
    w.answer(BOB2, &two, 180);
    w.expect(ALICE, "180");
    w.answer(BOB, &one, 200);
    let first = w.expect(ALICE, "200");
    let there = w.expect(BOB2, "CANCEL");
    w.answer(BOB2, &two, 200);
    let second = w.expect(ALICE, "200");
    w.answer(BOB2, &there, 481);
    assert_ne!(first.tag("To"), second.tag("To"));
    for (peer, ok) in [(BOB, &first), (BOB2, &second)] {
        let mut caller = Dialog::of_caller(ALICE, &invite, ok);
        let branch = w.branch();
        w.from(ALICE, &caller.request("ACK", &branch));
        w.expect(peer, "ACK");
    }
    // The second call is ended at once.
    let mut caller = Dialog::of_caller(ALICE, &invite, &second);
    let branch = w.branch();
    w.from(ALICE, &caller.request("BYE", &branch));
    let bye = w.expect(BOB2, "BYE");
    w.answer(BOB2, &bye, 200);
    w.expect(ALICE, "200 BYE");
    w.finish();
}

/// RFC 3261 section 16.7 items 5 and 9: a 2xx that comes after another final response has gone back
/// is forwarded all the same, without a transaction.
#[test]
fn a_2xx_after_another_final_response_is_forwarded() {
    let mut w = World::with(|config| config.timer_c = ringway_sansio::Duration::from_secs(10));
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.pass_secs(10);
    w.count(BOB, "INVITE");
    let answer = w.expect(ALICE, "408");
    w.from(ALICE, &ack(&invite, &answer));
    w.answer(BOB, &got, 200);
    let ok = w.expect(ALICE, "200");
    assert_eq!(ok.all("Via"), invite.all("Via"));
    w.finish();
}
