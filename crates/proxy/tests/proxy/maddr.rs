//! maddr in the Request-URI: RFC 3261 sections 16.4 and 16.5.

use crate::common::*;

/// RFC 3261 section 16.4: with an maddr of ours, it and a port and transport that led here are taken
/// off, and the rest decides.
#[test]
fn an_maddr_of_ours_is_taken_off() {
    let mut w = World::new();
    w.register("bob", BOB);
    for uri in [
        "sip:bob@example.org;maddr=192.0.2.1",
        "sip:bob@example.org;maddr=example.org",
        "sip:bob@example.org:5060;transport=udp;maddr=192.0.2.1",
    ] {
        w.call(ALICE, &format!("OPTIONS {uri}"));
        let got = w.expect(BOB, "OPTIONS sip:bob@203.0.113.2:5060");
        w.answer(BOB, &got, 200);
        w.expect(ALICE, "200");
    }
    // A domain that is not ours: forwarded there, without what led to us.
    for (uri, sent) in [
        ("sip:bob@192.0.2.50;maddr=192.0.2.1", "sip:bob@192.0.2.50"),
        ("sip:bob@192.0.2.50;x=y;maddr=192.0.2.1;z", "sip:bob@192.0.2.50;x=y;z"),
        ("sip:bob@192.0.2.50;transport=udp;maddr=192.0.2.1", "sip:bob@192.0.2.50;transport=udp"),
    ] {
        w.call(ALICE, &format!("OPTIONS {uri}"));
        let got = w.expect(PROXY, &format!("OPTIONS {sent}"));
        w.answer(PROXY, &got, 200);
        w.expect(ALICE, "200");
    }
    w.finish();
}

/// RFC 3261 section 16.5: any other maddr makes the Request-URI the only target, even in a domain of
/// ours.
#[test]
fn another_maddr_is_the_target() {
    let mut w = World::new();
    w.register("bob", BOB);
    w.call(ALICE, "OPTIONS sip:bob@example.org;maddr=192.0.2.50");
    let got = w.expect(PROXY, "OPTIONS sip:bob@example.org;maddr=192.0.2.50");
    w.answer(PROXY, &got, 200);
    w.expect(ALICE, "200");
    // And so it is a relay, for which a stranger needs leave.
    let mut w = World::with(|config| config.auth.enabled = true);
    w.register("bob", BOB);
    let request = w.request(PROXY, "OPTIONS sip:bob@example.org;maddr=192.0.2.60");
    w.from(PROXY, &request.set("From", "<sip:eve@example.com>;tag=1"));
    w.expect(PROXY, "407");
    w.finish();
}
