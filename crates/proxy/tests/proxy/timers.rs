//! What stands in for a response that never comes.

use crate::common::*;
use ringway_sansio::Duration;

/// RFC 3261 sections 17.1.1.2 and 16.7: INVITE is sent at 0, 0.5, 1.5, 3.5, 7.5, 15.5 and 31.5 s;
/// timer B counts as a 408.
#[test]
fn timer_b_is_a_408() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    let began = w.now;
    w.expect(ALICE, "100");
    w.pass_secs(32);
    let mut times = vec![];
    let mut copies = vec![];
    while w.sent.iter().any(|s| s.to.remote() == BOB.remote()) {
        let sent = w.expect_sent(BOB, "INVITE");
        times.push((sent.at - began).as_millis());
        copies.push(sent.msg);
    }
    assert_eq!(times, [0, 500, 1500, 3500, 7500, 15_500, 31_500]);
    assert!(copies.iter().all(|c| *c == copies[0]));
    let answer = w.expect(ALICE, "408");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// RFC 3261 section 17.1.2.2: a non-INVITE is sent at 0, 0.5, 1.5, 3.5 and then every T2; after
/// timer F nothing is sent back (RFC 4320 section 4.2).
#[test]
fn timer_f_is_silence() {
    let mut w = World::new();
    w.register("bob", BOB);
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    let began = w.now;
    w.pass_secs(33);
    let mut times = vec![];
    while w.sent.iter().any(|s| s.to.remote() == BOB.remote()) {
        times.push((w.expect_sent(BOB, "MESSAGE").at - began).as_millis());
    }
    assert_eq!(times, [0, 500, 1500, 3500, 7500, 11_500, 15_500, 19_500, 23_500, 27_500, 31_500]);
    w.count(ALICE, "100");
    w.finish();
}

/// RFC 3261 section 17.1.2.2: after a provisional response the interval is T2 at once.
#[test]
fn timer_e_slows_down_after_a_provisional_response() {
    let mut w = World::new();
    w.register("bob", BOB);
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    let began = w.now;
    let got = w.expect(BOB, "MESSAGE");
    w.answer(BOB, &got, 100);
    w.pass_secs(10);
    let first = w.expect_sent(BOB, "MESSAGE").at - began;
    let second = w.expect_sent(BOB, "MESSAGE").at - began;
    assert_eq!((first.as_millis(), second.as_millis()), (500, 4500));
    w.answer(BOB, &got, 200);
    w.count(ALICE, "100");
    w.count(BOB, "MESSAGE");
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 3261 sections 16.6 item 11 and 16.8: a phone that rings for more than three minutes is
/// cancelled.
#[test]
fn timer_c_cancels_a_phone_that_rings_too_long() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 180);
    w.expect(ALICE, "180");
    w.pass_secs(184);
    w.quiet();
    w.pass_secs(1);
    let there = w.expect(BOB, "CANCEL");
    w.answer(BOB, &there, 200);
    w.answer(BOB, &got, 487);
    w.expect(BOB, "ACK");
    let answer = w.expect(ALICE, "487");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// RFC 3261 section 16.7 item 2: every provisional response but 100 starts timer C anew.
#[test]
fn ringing_starts_timer_c_anew() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 183);
    w.expect(ALICE, "183");
    w.pass_secs(100);
    w.answer(BOB, &got, 180);
    w.expect(ALICE, "180");
    w.pass_secs(100);
    // A 100 is no sign of life.
    w.answer(BOB, &got, 100);
    w.quiet();
    w.pass_secs(84);
    w.quiet();
    w.pass_secs(1);
    let there = w.expect(BOB, "CANCEL");
    w.answer(BOB, &there, 481);
    let ok = w.answer(BOB, &got, 200);
    w.expect(ALICE, "200");
    let mut caller = Dialog::of_caller(ALICE, &invite, &ok);
    w.from(ALICE, &caller.request("ACK", "z9hG4bKack"));
    w.expect(BOB, "ACK");
    w.finish();
}

/// RFC 3261 sections 16.8 and 9.1: a callee that rings on after timer C and its CANCEL is given up
/// 64*T1 later, however often it says that it rings.
#[test]
fn timer_c_ends_a_call_even_if_the_callee_rings_on() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 180);
    w.expect(ALICE, "180");
    w.pass_secs(185);
    let there = w.expect(BOB, "CANCEL");
    w.answer(BOB, &there, 200);
    w.answer(BOB, &got, 180);
    w.expect(ALICE, "180");
    w.pass(Duration::from_millis(32_001));
    let answer = w.expect(ALICE, "408");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// RFC 3261 section 16.8: timer C without any provisional response counts as a 408.
#[test]
fn timer_c_without_any_response_is_a_408() {
    let mut w = World::with(|config| config.timer_c = Duration::from_secs(10));
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    w.pass_secs(10);
    w.count(BOB, "INVITE");
    let answer = w.expect(ALICE, "408");
    w.quiet();
    w.from(ALICE, &ack(&invite, &answer));
    // Section 9.1: should it ring after all, it is cancelled.
    w.finish_anyhow();
}

/// RFC 3261 sections 16.7 and 16.8: a hop that was given up rings and answers after all, while the
/// next one rings. The late ringing is cancelled, the late answer counts, and the other is cancelled.
#[test]
fn an_abandoned_attempt_is_answered_after_all() {
    for late in [180, 200, 404] {
        let mut w = World::with(|config| config.timer_c = Duration::from_secs(10));
        w.name("pbx.example.net", &[(ringway_sansio::Transport::Udp, BOB.addr)]);
        w.bind("bob", bind("sip:bob@10.0.0.7").outbound("urn:uuid:1", 1).over(BOB2));
        w.bind("bob", bind("sip:bob@10.0.0.8").outbound("urn:uuid:1", 2).over(BOB));
        let invite = w.call(ALICE, "INVITE sip:bob@example.org");
        w.expect(ALICE, "100");
        let first = w.expect(BOB, "INVITE");
        w.pass_secs(10);
        w.count(BOB, "INVITE");
        let second = w.expect(BOB2, "INVITE");
        w.answer(BOB2, &second, 180);
        w.expect(ALICE, "180");
        w.answer(BOB, &first, late);
        match late {
            180 => {
                let there = w.expect(BOB, "CANCEL");
                w.quiet();
                w.answer(BOB, &there, 200);
                w.answer(BOB, &first, 487);
                w.expect(BOB, "ACK");
                w.quiet();
                w.answer(BOB2, &second, 200);
                w.expect(ALICE, "200");
            }
            200 => {
                let ok = w.expect(ALICE, "200");
                assert_eq!(ok.tag("To"), Some("to-bob"));
                let there = w.expect(BOB2, "CANCEL");
                w.answer(BOB2, &there, 200);
                w.answer(BOB2, &second, 487);
                w.expect(BOB2, "ACK");
            }
            _ => {
                w.expect(BOB, "ACK");
                w.quiet();
                w.answer(BOB2, &second, 486);
                w.expect(BOB2, "ACK");
                let answer = w.expect(ALICE, "486");
                w.from(ALICE, &ack(&invite, &answer));
            }
        }
        w.finish();
    }
}
