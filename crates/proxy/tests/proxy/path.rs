//! Path: RFC 3327 section 5.3.

use crate::common::*;

/// RFC 3327 section 5.3: the Path of a binding becomes the Route, in its order, and determines the next hop.
#[test]
fn the_path_becomes_the_route() {
    let mut w = World::new();
    let path = "<sip:192.0.2.50;lr>, <sip:p2.example.net;lr;ob>";
    w.bind("bob", bind("sip:bob@10.0.0.7").path(path));
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(PROXY, "INVITE sip:bob@10.0.0.7");
    assert_eq!(got.all("Route"), ["<sip:192.0.2.50;lr>", "<sip:p2.example.net;lr;ob>"]);
    w.answer(PROXY, &got, 486);
    // The ACK takes the same way.
    let there = w.expect(PROXY, "ACK");
    assert_eq!(there.all("Route"), got.all("Route"));
    let answer = w.expect(ALICE, "486");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// RFC 3327 section 5.3: with the proxy's own Route element gone, nothing else is left in Route.
#[test]
fn our_own_route_is_taken_off_first() {
    let mut w = World::new();
    w.bind("bob", bind("sip:bob@10.0.0.7").path("<sip:192.0.2.50;lr>"));
    let request = w
        .request(ALICE, "MESSAGE sip:bob@example.org")
        .add("Route", "<sip:example.org;lr>, <sip:192.0.2.1;lr>");
    w.from(ALICE, &request);
    let got = w.expect(PROXY, "MESSAGE");
    assert_eq!(got.all("Route"), ["<sip:192.0.2.50;lr>"]);
    w.answer(PROXY, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 3261 section 16.6 item 2: what may not stand in a Request-URI is taken off the Contact.
#[test]
fn a_contact_with_what_a_request_uri_may_not_have() {
    for (contact, uri) in [
        ("sip:bob@203.0.113.2:5060?Subject=hi&X-A=b", "sip:bob@203.0.113.2:5060"),
        ("sip:bob@203.0.113.2:5060;method=INVITE;x=y", "sip:bob@203.0.113.2:5060;x=y"),
        ("sip:bob@203.0.113.2:5060;x=y;METHOD=BYE?a=b", "sip:bob@203.0.113.2:5060;x=y"),
        ("sip:bob;method=a@203.0.113.2:5060", "sip:bob;method=a@203.0.113.2:5060"),
    ] {
        let mut w = World::new();
        w.bind("bob", bind(contact));
        w.call(ALICE, "MESSAGE sip:bob@example.org");
        let got = w.expect(BOB, &format!("MESSAGE {uri}"));
        w.answer(BOB, &got, 200);
        w.expect(ALICE, "200");
        w.finish();
    }
}
