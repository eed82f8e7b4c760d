//! Forking: RFC 3261 section 16.6 and 16.7.

use crate::common::*;

fn three(w: &mut World, q: [u16; 3]) {
    for (peer, q) in [(BOB3, q[2]), (BOB2, q[1]), (BOB, q[0])] {
        w.bind("bob", bind(peer.contact()).q(q));
    }
}

/// RFC 3261 sections 16.6 and 16.7 items 5 and 10: all ring, one answers, the others are cancelled.
#[test]
fn parallel_fork_with_one_answer() {
    let mut w = World::new();
    three(&mut w, [1000; 3]);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got: Vec<Msg> = [BOB, BOB2, BOB3]
        .iter()
        .map(|&p| w.expect(p, &format!("INVITE {}", p.contact())))
        .collect();
    // Section 16.6 item 8: every branch has its own branch.
    assert_ne!(got[0].branch(), got[1].branch());
    assert_ne!(got[1].branch(), got[2].branch());
    for (i, peer) in [BOB, BOB2, BOB3].into_iter().enumerate() {
        w.answer(peer, &got[i], 180);
        let ringing = w.expect(ALICE, "180");
        assert_eq!(ringing.tag("To").unwrap(), format!("to-{}", peer.name));
    }
    w.answer(BOB2, &got[1], 200);
    let ok = w.expect(ALICE, "200 INVITE");
    for (i, peer) in [(0, BOB), (2, BOB3)] {
        let there = w.expect(peer, "CANCEL");
        w.answer(peer, &there, 200);
        w.answer(peer, &got[i], 487);
        w.expect(peer, "ACK");
    }
    w.quiet();
    let mut caller = Dialog::of_caller(ALICE, &invite, &ok);
    w.from(ALICE, &caller.request("ACK", "z9hG4bKack"));
    w.expect(BOB2, "ACK");
    w.finish();
}

/// RFC 3261 section 16.7 item 10 and section 9.1: a branch that has not said anything is cancelled
/// once it does.
#[test]
fn a_silent_branch_is_cancelled_when_it_wakes() {
    let mut w = World::new();
    three(&mut w, [1000; 3]);
    w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got: Vec<Msg> = [BOB, BOB2, BOB3].iter().map(|&p| w.expect(p, "INVITE")).collect();
    w.answer(BOB, &got[0], 200);
    w.expect(ALICE, "200");
    w.quiet();
    w.answer(BOB2, &got[1], 180);
    let there = w.expect(BOB2, "CANCEL");
    // Section 16.7 item 5: no provisional response after the final one.
    w.quiet();
    w.answer(BOB2, &there, 200);
    w.answer(BOB2, &got[1], 487);
    w.expect(BOB2, "ACK");
    w.finish_anyhow();
}

/// RFC 3261 section 16.6: highest q first, those of equal q together, one group after the other.
#[test]
fn serial_fork_by_q() {
    let mut w = World::new();
    three(&mut w, [1000, 500, 500]);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let one = w.expect(BOB, "INVITE");
    w.quiet();
    w.answer(BOB, &one, 180);
    w.expect(ALICE, "180");
    w.answer(BOB, &one, 486);
    w.expect(BOB, "ACK");
    let two = w.expect(BOB2, "INVITE");
    let three = w.expect(BOB3, "INVITE");
    w.quiet();
    w.answer(BOB2, &two, 404);
    w.expect(BOB2, "ACK");
    w.quiet();
    w.answer(BOB3, &three, 200);
    w.expect(ALICE, "200");
    let ok = response(BOB3, &three, 200);
    let mut caller = Dialog::of_caller(ALICE, &invite, &ok);
    w.from(ALICE, &caller.request("ACK", "z9hG4bKack"));
    w.expect(BOB3, "ACK");
    w.finish();
}

/// RFC 3261 sections 16.7 and 17.1.1.2: a group that times out is followed by the next.
#[test]
fn the_next_group_follows_a_time_out() {
    let mut w = World::new();
    w.bind("bob", bind(BOB.contact()).q(1000));
    w.bind("bob", bind(BOB2.contact()).q(100));
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    w.pass_secs(32);
    assert_eq!(w.count(BOB, "INVITE"), 7);
    let two = w.expect(BOB2, "INVITE");
    w.answer(BOB2, &two, 486);
    w.expect(BOB2, "ACK");
    let answer = w.expect(ALICE, "486");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// RFC 3261 section 16.7 items 5 and 10: a 6xx cancels the others, no new branch is begun, and it is
/// forwarded when all have ended.
#[test]
fn a_6xx_ends_the_search() {
    let mut w = World::new();
    three(&mut w, [1000, 1000, 100]);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let one = w.expect(BOB, "INVITE");
    let two = w.expect(BOB2, "INVITE");
    w.answer(BOB, &one, 180);
    w.expect(ALICE, "180");
    w.answer(BOB2, &two, 603);
    w.expect(BOB2, "ACK");
    let there = w.expect(BOB, "CANCEL");
    w.quiet();
    w.answer(BOB, &there, 200);
    w.answer(BOB, &one, 487);
    w.expect(BOB, "ACK");
    let answer = w.expect(ALICE, "603");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// RFC 3261 section 16.7 item 5: a 2xx after a 6xx from another branch is still forwarded.
#[test]
fn a_2xx_beats_a_6xx() {
    let mut w = World::new();
    three(&mut w, [1000, 1000, 100]);
    w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let one = w.expect(BOB, "INVITE");
    let two = w.expect(BOB2, "INVITE");
    w.answer(BOB, &one, 180);
    w.expect(ALICE, "180");
    w.answer(BOB2, &two, 600);
    w.expect(BOB2, "ACK");
    w.expect(BOB, "CANCEL");
    w.answer(BOB, &one, 200);
    w.expect(ALICE, "200");
    w.finish_anyhow();
}

/// RFC 3261 section 16.7 item 5: a branch that still waits for name resolution is not begun after a
/// 6xx.
#[test]
fn no_branch_begins_after_a_6xx() {
    let mut w = World::new();
    w.bind("bob", bind("sip:bob@phone.example.net"));
    w.bind("bob", bind(BOB.contact()));
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let one = w.expect(BOB, "INVITE");
    let question = w.questions.remove(0);
    w.answer(BOB, &one, 603);
    w.expect(BOB, "ACK");
    let answer = w.expect(ALICE, "603");
    w.from(ALICE, &ack(&invite, &answer));
    w.resolved(question, &[(ringway_sansio::Transport::Udp, BOB2.addr)]);
    w.finish();
}

/// RFC 3261 section 16.7 item 5: nor does a branch go on to another hop after a 6xx.
#[test]
fn no_fail_over_after_a_6xx() {
    use ringway_sansio::Transport::Udp;
    let mut w = World::new();
    w.name("phone.example.net", &[(Udp, BOB2.addr), (Udp, BOB3.addr)]);
    w.bind("bob", bind("sip:bob@phone.example.net"));
    w.bind("bob", bind(BOB.contact()));
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let one = w.expect(BOB, "INVITE");
    let two = w.expect(BOB2, "INVITE");
    w.answer(BOB, &one, 603);
    w.expect(BOB, "ACK");
    w.quiet();
    w.answer(BOB2, &two, 503);
    w.expect(BOB2, "ACK");
    let answer = w.expect(ALICE, "603");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// The number of branches is bounded by the configuration.
#[test]
fn no_more_branches_than_allowed() {
    let mut w = World::with(|config| config.limits.max_forks = 2);
    three(&mut w, [1000; 3]);
    w.call(ALICE, "OPTIONS sip:bob@example.org");
    let one = w.expect(BOB, "OPTIONS");
    w.expect(BOB2, "OPTIONS");
    w.quiet();
    w.answer(BOB, &one, 200);
    w.expect(ALICE, "200");
    w.finish_anyhow();
}

/// RFC 3261 section 16.7 item 5: of several 2xx to a non-INVITE only the first is forwarded.
#[test]
fn a_non_invite_has_one_final_response() {
    let mut w = World::new();
    three(&mut w, [1000; 3]);
    w.call(ALICE, "OPTIONS sip:bob@example.org");
    let got: Vec<Msg> = [BOB, BOB2, BOB3].iter().map(|&p| w.expect(p, "OPTIONS")).collect();
    w.answer(BOB, &got[0], 404);
    w.quiet();
    w.answer(BOB2, &got[1], 200);
    w.expect(ALICE, "200");
    w.answer(BOB3, &got[2], 200);
    w.finish();
}

/// RFC 3261 section 16.6: those of lower q are left out first, and flows of one instance count once.
#[test]
fn the_best_contacts_are_tried() {
    let mut w = World::with(|config| config.limits.max_forks = 1);
    w.bind("bob", bind("sip:x@10.0.0.1").over(DAVE_TCP).outbound("urn:uuid:1", 1).q(100));
    w.bind("bob", bind("sip:x@10.0.0.1").over(CAROL_TCP).outbound("urn:uuid:1", 2).q(100));
    w.bind("bob", bind(BOB.contact()).q(900));
    w.bind("bob", bind(BOB2.contact()).q(50));
    w.call(ALICE, "OPTIONS sip:bob@example.org");
    let got = w.expect(BOB, "OPTIONS");
    w.answer(BOB, &got, 404);
    w.expect(ALICE, "404");
    w.finish();
}
