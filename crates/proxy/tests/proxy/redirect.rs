//! The redirect server: RFC 3261 section 8.3.

use crate::common::*;
use ringway_proxy::config::Mode;

fn redirecting() -> World {
    World::with(|config| config.domains[0].mode = Mode::Redirect)
}

/// RFC 3261 section 8.3: 302 with the contacts and their q, best first; nothing is forwarded.
#[test]
fn contacts_with_their_q() {
    let mut w = redirecting();
    w.bind("bob", bind(BOB2.contact()).q(250));
    w.bind("bob", bind(BOB.contact()));
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    let answer = w.expect(ALICE, "302");
    assert_eq!(
        answer.all("Contact"),
        ["<sip:bob@203.0.113.2:5060>;q=1.000", "<sip:bob2@203.0.113.3:5060>;q=0.250"]
    );
    assert!(answer.tag("To").is_some());
    w.from(ALICE, &ack(&invite, &answer));
    // Section 8.2.7: a copy gets the same answer.
    w.from(ALICE, &invite);
    assert_eq!(w.expect(ALICE, "302"), answer);
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// RFC 3261 section 8.3 and 21.4: there is no redirection without a contact.
#[test]
fn a_user_without_contacts_is_not_redirected_to() {
    let mut w = redirecting();
    w.call(ALICE, "OPTIONS sip:bob@example.org");
    w.expect(ALICE, "480");
    w.call(ALICE, "OPTIONS sip:nobody@example.org");
    w.expect(ALICE, "404");
    w.finish();
}

/// Any method but ACK and CANCEL is redirected; other domains are still forwarded.
#[test]
fn other_methods_and_other_domains() {
    let mut w = redirecting();
    w.register("bob", BOB);
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    w.expect(ALICE, "302");
    let request = w.request(ALICE, "ACK sip:bob@example.org");
    w.from(ALICE, &request);
    w.expect(BOB, "ACK");
    w.call(ALICE, "MESSAGE sip:bob@203.0.113.2");
    let got = w.expect(BOB, "MESSAGE");
    w.answer(BOB, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}
