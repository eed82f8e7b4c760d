//! Request validation: RFC 3261 section 16.3.

use crate::common::*;

/// RFC 3261 section 16.3 item 1: what is malformed is refused, and its ACK is not answered.
#[test]
fn a_malformed_request_is_400() {
    let mut w = World::new();
    w.register("bob", BOB);
    for broken in [
        w.request(ALICE, "INVITE sip:bob@example.org").set("CSeq", "1 BYE"),
        w.request(ALICE, "INVITE sip:bob@example.org").set("CSeq", "99999999999 INVITE"),
        w.request(ALICE, "INVITE sip:bob@example.org").del("To"),
        w.request(ALICE, "INVITE sip:bob@example.org").set("Max-Forwards", "300"),
        w.request(ALICE, "INVITE sip:bob@example.org").add("Route", "sip:nowhere"),
        w.request(ALICE, "INVITE sip:bob@example.org").set("Content-Length", "77"),
    ] {
        w.from(ALICE, &broken);
        w.expect(ALICE, "400");
        w.quiet();
    }
    assert_eq!(w.cores[0].stats().malformed, 6);
    let ack = w.request(ALICE, "ACK sip:bob@example.org").set("CSeq", "1 BYE");
    w.from(ALICE, &ack);
    w.finish();
}

/// RFC 3261 section 18.2.2: without a Via there is nowhere to answer to.
#[test]
fn a_request_without_via_is_dropped() {
    let mut w = World::new();
    let request = w.request(ALICE, "OPTIONS sip:bob@example.org").del("Via");
    w.from(ALICE, &request);
    w.bytes_from(0, ALICE.flow(0), b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
    w.bytes_from(0, ALICE.flow(0), b"");
    w.bytes_from(0, ALICE.flow(0), b"\r\n\r\n");
    w.finish();
}

/// RFC 3261 section 16.3 item 2: a scheme that is not understood is 416.
#[test]
fn an_unknown_scheme_is_416() {
    let mut w = World::new();
    let invite = w.call(ALICE, "INVITE nobodyKnowsThisScheme:totallyopaquecontent");
    let answer = w.expect(ALICE, "416");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// RFC 3261 section 16.3 item 3: at zero a request is not forwarded.
#[test]
fn max_forwards_zero_is_483() {
    let mut w = World::new();
    w.register("bob", BOB);
    for method in ["INVITE", "MESSAGE"] {
        let line = format!("{method} sip:bob@example.org");
        let request = w.request(ALICE, &line).set("Max-Forwards", "0");
        w.from(ALICE, &request);
        w.expect(ALICE, "483");
    }
    assert_eq!(w.cores[0].stats().looped, 2);
    // An ACK is never answered.
    let ack = w.request(ALICE, "ACK sip:bob@example.org").set("Max-Forwards", "0");
    w.from(ALICE, &ack);
    // One is enough for one more hop.
    let request = w.request(ALICE, "MESSAGE sip:bob@example.org").set("Max-Forwards", "1");
    w.from(ALICE, &request);
    let got = w.expect(BOB, "MESSAGE");
    assert_eq!(got.get("Max-Forwards"), "0");
    w.answer(BOB, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 3261 sections 11 and 16.3 item 3, RFC 4475 section 3.3.11: an OPTIONS at zero is answered if it
/// is for the server itself.
#[test]
fn options_at_zero() {
    let mut w = World::new();
    w.register("bob", BOB);
    for (uri, status) in
        [("sip:bob@example.org", "483"), ("sip:example.org", "200"), ("sip:192.0.2.1", "200")]
    {
        let line = format!("OPTIONS {uri}");
        let request = w.request(ALICE, &line).set("Max-Forwards", "0");
        w.from(ALICE, &request);
        w.expect(ALICE, status);
    }
    w.finish();
}

/// RFC 3261 section 16.3 item 3 concerns forwarding: a request for the registrar itself is accepted.
#[test]
fn a_register_at_zero_is_taken() {
    let mut w = World::new();
    let request = w
        .request(BOB, "REGISTER sip:example.org")
        .set("To", "<sip:bob@example.org>")
        .set("Max-Forwards", "0");
    w.from(BOB, &request);
    w.expect(BOB, "200");
    w.finish();
}

/// RFC 3261 section 16.3 item 5: an extension that a proxy must know and we do not is 420, and named.
#[test]
fn proxy_require_is_420() {
    let mut w = World::new();
    w.register("bob", BOB);
    let request = w
        .request(ALICE, "INVITE sip:bob@example.org")
        .add("Proxy-Require", "nothingSupportsThis, nothingSupportsThisEither")
        .add("Require", "alsoUnknown");
    w.from(ALICE, &request);
    let answer = w.expect(ALICE, "420");
    assert_eq!(answer.all("Unsupported"), ["nothingSupportsThis", "nothingSupportsThisEither"]);
    w.from(ALICE, &ack(&request, &answer));
    // Section 8.2.2.3: Require is for the user agent, and ACK and CANCEL carry neither.
    let request = w.request(ALICE, "MESSAGE sip:bob@example.org").add("Require", "alsoUnknown");
    w.from(ALICE, &request);
    let got = w.expect(BOB, "MESSAGE");
    w.answer(BOB, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 3261 section 8.2.2.3: a request to the server itself must not require what it does not know.
#[test]
fn require_to_the_server_itself() {
    let mut w = World::new();
    let request = w.request(ALICE, "OPTIONS sip:example.org").add("Require", "foo");
    w.from(ALICE, &request);
    assert_eq!(w.expect(ALICE, "420").all("Unsupported"), ["foo"]);
    w.finish();
}

/// RFC 3261 section 8.2.1 and 21.4.6: methods that make no sense to the server itself.
#[test]
fn methods_to_the_server_itself() {
    let mut w = World::new();
    for (method, status) in
        [("OPTIONS", "200"), ("INVITE", "404"), ("BYE", "481"), ("WHATEVER", "501")]
    {
        w.call(ALICE, &format!("{method} sip:example.org"));
        let answer = w.expect(ALICE, status);
        assert_eq!(answer.has("Allow"), matches!(status, "200" | "501"), "{method}");
    }
    let ack = w.request(ALICE, "ACK sip:example.org");
    w.from(ALICE, &ack);
    w.finish();
}
