//! Several workers: what reaches the wrong one is handed over once.

use crate::common::*;

fn two() -> World {
    let mut w = World::build(2, &[], |_| {});
    w.register("bob", BOB);
    w
}

/// The response to a request of the first worker comes in at the second.
#[test]
fn a_response_at_the_wrong_worker() {
    let mut w = two();
    w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    for status in [180, 200] {
        w.arrives(1, BOB, &response(BOB, &got, status));
        w.expect(ALICE, &status.to_string());
    }
    assert_eq!(w.handed_over, 2);
    assert_eq!(w.cores[1].stats().handed_over, 2);
    w.finish();
}

/// A branch that names a worker there is not belongs to nothing.
#[test]
fn a_response_for_a_worker_there_is_not() {
    let mut w = World::build(3, &[], |_| {});
    w.register("bob", BOB);
    let request = w.request(ALICE, "MESSAGE sip:bob@example.org");
    w.arrives(2, ALICE, &request);
    let got = w.expect(BOB, "MESSAGE");
    let mut small = two();
    small.from(BOB, &response(BOB, &got, 200));
    small.quiet();
    assert_eq!(small.handed_over, 0);
    w.arrives(0, BOB, &response(BOB, &got, 200));
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 3261 section 9.2: the CANCEL comes in at another worker than the INVITE; it is answered once.
#[test]
fn a_cancel_at_the_wrong_worker() {
    for workers in [2, 3, 4] {
        for at in 0..workers {
            let mut w = World::build(workers, &[], |_| {});
            w.register("bob", BOB);
            let invite = w.request(ALICE, "INVITE sip:bob@example.org");
            w.arrives(0, ALICE, &invite);
            w.expect(ALICE, "100");
            let got = w.expect(BOB, "INVITE");
            w.answer(BOB, &got, 180);
            w.expect(ALICE, "180");
            w.arrives(at, ALICE, &cancel(&invite));
            w.expect(ALICE, "200 CANCEL");
            let there = w.expect(BOB, "CANCEL");
            w.quiet();
            w.answer(BOB, &there, 200);
            w.answer(BOB, &got, 487);
            w.expect(BOB, "ACK");
            let answer = w.expect(ALICE, "487");
            w.from(ALICE, &ack(&invite, &answer));
            w.finish();
        }
    }
}

/// RFC 3261 section 9.2: a CANCEL that no worker knows has one 481, from whichever comes last.
#[test]
fn a_cancel_nobody_knows() {
    for at in 0..3 {
        let mut w = World::build(3, &[], |_| {});
        w.register("bob", BOB);
        let invite = w.request(ALICE, "INVITE sip:bob@example.org");
        w.arrives(at, ALICE, &cancel(&invite));
        w.expect(ALICE, "481 CANCEL");
        assert_eq!(w.handed_over, 2);
        w.finish();
    }
}

/// RFC 3261 section 17.2.3: the ACK of a refusal that comes in at another worker stops the
/// retransmissions all the same.
#[test]
fn an_ack_at_the_wrong_worker() {
    let mut w = two();
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 486);
    w.expect(BOB, "ACK");
    let answer = w.expect(ALICE, "486");
    w.arrives(1, ALICE, &ack(&invite, &answer));
    w.pass_secs(5);
    w.quiet();
    w.finish();
}

/// The ACK of a 2xx is a request of its own: any worker sends it on.
#[test]
fn the_ack_of_a_2xx_at_any_worker() {
    let mut w = two();
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 200);
    let ok = w.expect(ALICE, "200");
    let mut caller = Dialog::of_caller(ALICE, &invite, &ok);
    w.arrives(1, ALICE, &caller.request("ACK", "z9hG4bKack"));
    w.expect(BOB, "ACK");
    assert_eq!(w.handed_over, 0);
    w.finish();
}

/// A phone registered at one worker is called by a caller of the other: over UDP from that worker's
/// own socket, over TCP on the connection that the first worker holds.
#[test]
fn flows_of_another_worker() {
    let mut w = World::build(2, &[], |_| {});
    let outside = BOB.at("203.0.113.2:33333");
    w.bind("bob", bind("sip:bob@10.0.0.7").over(outside).nat());
    w.bind("carol", bind("sip:carol@10.0.0.8;transport=tcp").over(DAVE_TCP));
    for (user, peer, owner) in [("bob", outside, 1), ("carol", DAVE_TCP, 0)] {
        let request = w.request(ALICE, &format!("MESSAGE sip:{user}@example.org"));
        w.arrives(1, ALICE, &request);
        let sent = w.expect_sent(peer, "MESSAGE");
        let ringway_sansio::Target::Flow(flow) = sent.to else { panic!("not over the flow") };
        assert_eq!(flow.id.worker(), owner);
        w.arrives(owner, peer, &response(peer, &sent.msg, 200));
        w.expect(ALICE, "200");
    }
    w.finish();
}
