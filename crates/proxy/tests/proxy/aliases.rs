//! Names that stand for users: numbers, and names that several users answer for.

use crate::common::*;
use crate::elsewhere::in_mesh;
use ringway_proxy::Reply;

/// RFC 3261 section 16.5: a number of a user here is a target by the user's contact.
#[test]
fn a_number_leads_to_the_contacts_of_its_user() {
    let mut w = World::with(in_mesh);
    w.alias("2345", &[("bob", 1000)]);
    w.bind("bob", bind(BOB.contact()));
    w.call(ALICE, "MESSAGE sip:2345@example.org");
    let got = w.expect(BOB, &format!("MESSAGE {}", BOB.contact()));
    assert!(got.all("Route").is_empty());
    w.answer(BOB, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// At another router the user is known by name, whatever was dialled.
#[test]
fn a_number_of_a_user_elsewhere_becomes_the_users_address() {
    let mut w = World::with(in_mesh);
    w.unknown("2345");
    w.unknown("bob");
    w.call(ALICE, "INVITE sip:2345@example.org;user=phone");
    w.expect(ALICE, "100");
    let asked = w.asked();
    assert_eq!(asked.aor(), "sip:2345@example.org");
    w.registered_nowhere("2345", false);
    w.alias("2345", &[("bob", 1000)]);
    w.reply(&asked, Reply::Located);
    let asked = w.asked();
    assert_eq!(asked.aor(), "sip:bob@example.org");
    w.elsewhere("bob", &[(ROUTER, 1000)]);
    w.reply(&asked, Reply::Located);
    let got = w.expect(ROUTER, "INVITE sip:bob@example.org");
    assert_eq!(got.all("Route"), ["<sip:[fd02::1]:5060;lr>"]);
    w.answer(ROUTER, &got, 200);
    w.expect(ALICE, "200");
    w.finish_anyhow();
}

/// The user of a number who has no contacts exists.
#[test]
fn the_user_of_a_number_may_be_absent() {
    let mut w = World::with(in_mesh);
    w.alias("2345", &[("bob", 1000)]);
    w.registered_nowhere("bob", true);
    w.call(ALICE, "MESSAGE sip:2345@example.org");
    w.expect(ALICE, "480");
    // A name that stands for itself, or in a circle, ends.
    w.alias("2346", &[("2346", 1000), ("2347", 1000)]);
    w.alias("2347", &[("2346", 1000)]);
    w.call(ALICE, "MESSAGE sip:2346@example.org");
    w.expect(ALICE, "480");
    w.finish();
}

/// The first to answer for a name ring alone for ten seconds, then all ring, and the first to answer has the call.
#[test]
fn all_ring_when_the_nearest_does_not_answer() {
    let mut w = World::with(in_mesh);
    w.alias("112", &[("bob", 500), ("carol", 1000), ("erin", 500)]);
    w.bind("bob", bind(BOB.contact()));
    w.bind("carol", bind(BOB2.contact()));
    w.elsewhere("erin", &[(ROUTER, 300)]);
    w.call(ALICE, "INVITE sip:112@example.org");
    w.expect(ALICE, "100");
    let near = w.expect(BOB2, "INVITE");
    w.answer(BOB2, &near, 180);
    w.expect(ALICE, "180");
    w.pass_ms(9_900);
    w.quiet();
    w.pass_ms(200);
    let (second, third) = (w.expect(BOB, "INVITE"), w.expect(ROUTER, "INVITE"));
    assert_eq!(third.uri(), "sip:erin@example.org");
    w.quiet();
    w.answer(ROUTER, &third, 200);
    w.expect(ALICE, "200");
    w.expect(BOB2, "CANCEL");
    // The other has not answered yet (RFC 3261 section 9.1).
    w.answer(BOB, &second, 180);
    w.expect(BOB, "CANCEL");
    w.finish_anyhow();
}

/// A refusal of the nearest is not waited for.
#[test]
fn the_others_ring_at_once_when_the_nearest_refuses() {
    let mut w = World::with(in_mesh);
    w.alias("112", &[("carol", 1000), ("bob", 500)]);
    w.bind("bob", bind(BOB.contact()));
    w.bind("carol", bind(BOB2.contact()));
    w.call(ALICE, "INVITE sip:112@example.org");
    w.expect(ALICE, "100");
    let near = w.expect(BOB2, "INVITE");
    w.answer(BOB2, &near, 486);
    w.expect(BOB2, "ACK");
    let second = w.expect(BOB, "INVITE");
    w.pass_secs(20);
    w.count(BOB, "INVITE");
    w.answer(BOB, &second, 200);
    w.expect(ALICE, "200");
    w.finish_anyhow();
}

/// A caller who cancels while the first ring reaches nobody else.
#[test]
fn nobody_else_rings_after_a_cancel() {
    let mut w = World::with(in_mesh);
    w.alias("112", &[("carol", 1000), ("bob", 500)]);
    w.bind("bob", bind(BOB.contact()));
    w.bind("carol", bind(BOB2.contact()));
    let invite = w.call(ALICE, "INVITE sip:112@example.org");
    w.expect(ALICE, "100");
    let near = w.expect(BOB2, "INVITE");
    w.answer(BOB2, &near, 180);
    w.expect(ALICE, "180");
    w.from(ALICE, &cancel(&invite));
    w.expect(ALICE, "200");
    let cancelled = w.expect(BOB2, "CANCEL");
    w.answer(BOB2, &cancelled, 200);
    w.answer(BOB2, &near, 487);
    w.expect(BOB2, "ACK");
    let answer = w.expect(ALICE, "487");
    w.from(ALICE, &ack(&invite, &answer));
    w.pass_secs(30);
    assert_eq!(w.count(BOB, "INVITE"), 0);
    w.finish();
}

/// A router sends for a user by name: what it calls by a number is no user here.
#[test]
fn a_router_dials_no_numbers() {
    let mut w = World::with(in_mesh);
    w.bind("bob", bind(BOB.contact()));
    w.alias("2345", &[("bob", 1000)]);
    let request = w.request(ROUTER, "MESSAGE sip:2345@example.org");
    w.from(ROUTER, &request.set("From", "<sip:eve@example.com>;tag=1"));
    w.expect(ROUTER, "404");
    w.finish();
}
