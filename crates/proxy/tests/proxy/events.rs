//! Subscriptions through the proxy and to it (RFC 6665, RFC 3680).

use crate::common::*;

/// RFC 6665 section 4.3: SUBSCRIBE and NOTIFY of two phones pass both ways, along the route set.
#[test]
fn a_subscription_between_phones() {
    for caller in [ALICE, CAROL_TCP] {
        let mut w = World::new();
        w.register("bob", BOB);
        let request = w.request(caller, "SUBSCRIBE sip:bob@example.org").add("Event", "conference");
        w.from(caller, &request);
        let got = w.expect(BOB, "SUBSCRIBE");
        let ok = w.answer(BOB, &got, 200);
        let ok_there = w.expect(caller, "200");
        let mut callee = Dialog::of_callee(BOB, &got, &ok);
        let branch = w.branch();
        let notify = callee.request("NOTIFY", &branch).add("Event", "conference");
        w.from(BOB, &notify.add("Subscription-State", "active"));
        let notify = w.expect(caller, &format!("NOTIFY {}", caller.contact()));
        assert!(notify.has("Record-Route"));
        w.answer(caller, &notify, 200);
        w.expect(BOB, "200 NOTIFY");
        let mut dialog = Dialog::of_caller(caller, &request, &ok_there);
        let branch = w.branch();
        let refresh = dialog.request("SUBSCRIBE", &branch).add("Event", "conference");
        w.from(caller, &refresh);
        let there = w.expect(BOB, "SUBSCRIBE");
        w.answer(BOB, &there, 200);
        w.expect(caller, "200");
        w.finish();
    }
}

/// RFC 3680 section 4 through the core: a user watches the own registrations, is told of a change,
/// refreshes and ends it.
#[test]
fn a_user_watches_the_own_registrations() {
    let mut w = World::new();
    w.register("alice", ALICE);
    let request = w.request(ALICE, "SUBSCRIBE sip:alice@example.org");
    let request = request.add("Event", "reg").add("Expires", "600");
    w.from(ALICE, &request);
    let ok = w.expect(ALICE, "200 SUBSCRIBE");
    let notify = w.expect(ALICE, "NOTIFY");
    assert!(notify.get("Subscription-State").starts_with("active"));
    assert!(notify.body.contains("state=\"active\""));
    // RFC 3261 section 17.1.2: sent again until it is answered.
    w.pass_ms(500);
    let notify = w.expect(ALICE, "NOTIFY");
    w.answer(ALICE, &notify, 200);
    assert_eq!(w.cores[0].tables().subscriptions, 1);
    let mut dialog = Dialog::of_caller(ALICE, &request, &ok);
    let branch = w.branch();
    let end = dialog.request("SUBSCRIBE", &branch).add("Event", "reg").add("Expires", "0");
    w.from(ALICE, &end);
    w.expect(ALICE, "200 SUBSCRIBE");
    w.pass_secs(6);
    let last = w.expect(ALICE, "NOTIFY");
    assert!(last.get("Subscription-State").starts_with("terminated"));
    w.ignore();
    w.answer(ALICE, &last, 200);
    w.finish_anyhow();
}

/// RFC 3261 section 16.5: a dialog with another server of this kind, whose tags look like ours, is
/// that server's affair.
#[test]
fn the_subscription_of_another_server_passes() {
    let mut w = World::new();
    let refresh = w
        .request(ALICE, "SUBSCRIBE sip:reg@192.0.2.50:5060")
        .set("To", "<sip:bob@example.net>;tag=re00aaaaaaaaaaaaaaaa")
        .add("Event", "reg");
    w.from(ALICE, &refresh);
    let got = w.expect(PROXY, "SUBSCRIBE sip:reg@192.0.2.50:5060");
    w.answer(PROXY, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}
