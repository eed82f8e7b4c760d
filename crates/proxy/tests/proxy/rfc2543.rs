//! Peers of RFC 2543, whose branches say nothing: RFC 3261 section 17.2.3.

use crate::common::*;

fn old(w: &mut World, via: &str) -> Msg {
    w.request(ALICE, "INVITE sip:bob@example.org").set("Via", via)
}

const VIAS: [&str; 2] = ["SIP/2.0/UDP 198.51.100.1:5060", "SIP/2.0/UDP 198.51.100.1:5060;branch=0"];

/// RFC 3261 section 17.2.3: retransmission, CANCEL and ACK are matched by the other fields.
#[test]
fn the_other_fields_match() {
    for via in VIAS {
        let mut w = World::new();
        w.register("bob", BOB);
        let invite = old(&mut w, via);
        w.from(ALICE, &invite);
        w.expect(ALICE, "100");
        let got = w.expect(BOB, "INVITE");
        assert!(got.branch().starts_with("z9hG4bK"));
        w.from(ALICE, &invite);
        w.expect(ALICE, "100");
        w.quiet();
        w.answer(BOB, &got, 180);
        w.expect(ALICE, "180");
        w.from(ALICE, &cancel(&invite));
        w.expect(ALICE, "200 CANCEL");
        let there = w.expect(BOB, "CANCEL");
        w.answer(BOB, &there, 200);
        w.answer(BOB, &got, 487);
        w.expect(BOB, "ACK");
        let answer = w.expect(ALICE, "487");
        w.from(ALICE, &ack(&invite, &answer));
        w.finish();
    }
}

/// RFC 3261 section 17.2.3: another CSeq, Call-ID or From tag is another transaction.
#[test]
fn other_fields_are_other_transactions() {
    for via in VIAS {
        let mut w = World::new();
        w.register("bob", BOB);
        let first = old(&mut w, via);
        for request in [
            first.clone(),
            first.clone().set("CSeq", "2 INVITE"),
            first.clone().set("Call-ID", "another"),
            first.clone().set("From", "<sip:alice@example.org>;tag=other"),
        ] {
            w.from(ALICE, &request);
            w.expect(ALICE, "100");
            let got = w.expect(BOB, "INVITE");
            w.answer(BOB, &got, 486);
            w.expect(BOB, "ACK");
            let answer = w.expect(ALICE, "486");
            w.from(ALICE, &ack(&request, &answer));
        }
        w.finish();
    }
}

/// RFC 3261 section 17.2.3 and 13.2.2.4: the ACK of a 2xx is forwarded to the callee.
#[test]
fn the_ack_of_a_2xx_goes_through() {
    for via in VIAS {
        let mut w = World::new();
        w.register("bob", BOB);
        let invite = old(&mut w, via);
        w.from(ALICE, &invite);
        w.expect(ALICE, "100");
        let got = w.expect(BOB, "INVITE");
        w.answer(BOB, &got, 200);
        let ok = w.expect(ALICE, "200");
        let mut caller = Dialog::of_caller(ALICE, &invite, &ok);
        w.from(ALICE, &caller.request("ACK", "x").set("Via", via));
        w.expect(BOB, "ACK sip:bob@203.0.113.2:5060");
        w.finish();
    }
}

/// RFC 3261 section 12.1.1: no From tag at all.
#[test]
fn without_a_from_tag() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = old(&mut w, VIAS[0]).set("From", "sip:alice@example.org");
    w.from(ALICE, &invite);
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 486);
    w.expect(BOB, "ACK");
    let answer = w.expect(ALICE, "486");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}
