//! The call everybody makes.

use crate::common::*;

/// RFC 3261 sections 16.6, 16.7 and 16.12: INVITE 100 180 200 ACK BYE 200 with Record-Route.
#[test]
fn a_call_is_set_up_and_ended_through_the_proxy() {
    let mut w = World::new();
    w.register("bob", BOB);

    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100 INVITE");
    let got = w.expect(BOB, "INVITE sip:bob@203.0.113.2:5060");
    // Section 16.6 items 3, 4 and 8: nothing else changes.
    got.same_but(
        &invite,
        &["Via", "Max-Forwards", "Record-Route", "Max-Breadth", "Content-Length"],
    );
    assert_eq!(got.get("Max-Forwards"), "69");
    assert_eq!(got.all("Via").len(), 2);
    assert!(got.all("Via")[0].starts_with("SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK"));
    assert_eq!(got.all("Via")[1], invite.all("Via")[0]);
    assert_eq!(got.all("Record-Route").len(), 1);
    assert!(got.get("Record-Route").contains("192.0.2.1:5060;lr>"));

    // Section 16.7 item 3: the response loses our Via and nothing else.
    let ringing = w.answer(BOB, &got, 180);
    let got180 = w.expect(ALICE, "180 INVITE");
    got180.same_but(&ringing, &["Via", "Content-Length", "Record-Route"]);
    // Item 8: the caller's mark takes the place of the callee's in our own value.
    assert_ne!(got180.get("Record-Route"), ringing.get("Record-Route"));
    assert_eq!(got180.all("Via"), invite.all("Via"));
    let ok = w.answer(BOB, &got, 200);
    let got200 = w.expect(ALICE, "200 INVITE");

    // Section 13.2.2.4: the ACK is a request of its own along the route set.
    let mut caller = Dialog::of_caller(ALICE, &invite, &got200);
    let branch = w.branch();
    w.from(ALICE, &caller.request("ACK", &branch));
    let ack = w.expect(BOB, "ACK sip:bob@203.0.113.2:5060");
    assert!(!ack.has("Route"));
    assert_eq!(ack.all("Via").len(), 2);

    // The callee hangs up.
    let mut callee = Dialog::of_callee(BOB, &got, &ok);
    let branch = w.branch();
    w.from(BOB, &callee.request("BYE", &branch));
    let bye = w.expect(ALICE, "BYE sip:alice@198.51.100.1:5060");
    assert!(!bye.has("Route") && !bye.has("Record-Route"));
    w.answer(ALICE, &bye, 200);
    w.expect(BOB, "200 BYE");

    let stats = *w.cores[0].stats();
    assert_eq!((stats.sessions, stats.sessions_established), (1, 1));
    w.finish();
}

/// RFC 3261 section 16.6 item 3: a request without Max-Forwards gets one.
#[test]
fn max_forwards_and_content_length_are_added() {
    let mut w = World::new();
    w.register("bob", BOB);
    let request = w.request(ALICE, "MESSAGE sip:bob@example.org").del("Max-Forwards");
    let bytes = String::from_utf8(request.bytes()).unwrap().replace("Content-Length: 0\r\n", "");
    w.bytes_from(0, ALICE.flow(0), bytes.as_bytes());
    let got = w.expect(BOB, "MESSAGE");
    assert_eq!(got.get("Max-Forwards"), "70");
    assert_eq!(got.get("Content-Length"), "0");
    w.answer(BOB, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 3261 section 16.6 item 1: unknown header fields stay byte for byte and in order.
#[test]
fn unknown_header_fields_pass_untouched() {
    let mut w = World::new();
    w.register("bob", BOB);
    let request = w.request(ALICE, "OPTIONS sip:bob@example.org");
    let request = request.add("X-Odd", "a  \"b\" ; c = ,,d").add("x-odd", "second");
    w.from(ALICE, &request);
    let got = w.expect(BOB, "OPTIONS");
    assert_eq!(got.all("X-Odd"), ["a  \"b\" ; c = ,,d", "second"]);
    got.same_but(&request, &["Via", "Max-Forwards", "Max-Breadth", "Content-Length"]);
    let answer = response(BOB, &got, 200).add("X-Answer", "yes").padded(10);
    w.from(BOB, &answer);
    let got = w.expect(ALICE, "200");
    got.same_but(&answer, &["Via", "Content-Length"]);
    w.finish();
}

/// RFC 3261 section 17.2.1 and 17.2.2: copies of a request go no further; the last response is
/// sent again.
#[test]
fn retransmissions_are_absorbed() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.from(ALICE, &invite);
    w.expect(ALICE, "100");
    w.answer(BOB, &got, 180);
    w.expect(ALICE, "180");
    w.from(ALICE, &invite);
    w.expect(ALICE, "180");
    w.quiet();
    // Non-INVITE: nothing in Trying, the final response in Completed.
    let options = w.call(ALICE, "OPTIONS sip:bob@example.org");
    let got2 = w.expect(BOB, "OPTIONS");
    w.from(ALICE, &options);
    w.quiet();
    w.answer(BOB, &got2, 200);
    w.expect(ALICE, "200 OPTIONS");
    w.from(ALICE, &options);
    w.expect(ALICE, "200 OPTIONS");
    let busy = w.answer(BOB, &got, 486);
    w.expect(BOB, "ACK");
    let answer = w.expect(ALICE, "486");
    w.from(ALICE, &ack(&invite, &answer));
    // A copy of the 486 is acknowledged again and not passed on.
    w.from(BOB, &busy);
    w.expect(BOB, "ACK");
    w.finish();
}
