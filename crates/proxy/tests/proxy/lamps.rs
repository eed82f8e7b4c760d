//! Lamps: a phone subscribes to the calls of a user (RFC 4235), and the proxy notifies it of what it has seen pass.

use crate::common::*;
use crate::elsewhere::in_mesh;
use crate::relay::{answered, closed};
use ringway_proxy::Reply;

/// Sends a SUBSCRIBE for the calls of a user to a worker; the answer must be a 200. Returns the lamp.
fn watch(w: &mut World, worker: u8, me: Peer, user: &str) -> Vec<String> {
    let request = w.request(me, &format!("SUBSCRIBE sip:{user}@example.org"));
    let request = request.add("Event", "dialog").add("Expires", "600");
    w.arrives(worker, me, &request);
    w.expect(me, "200 SUBSCRIBE");
    lamp(w, me)
}

/// Waits for the next NOTIFY, as long as the package has it wait, and answers it.
pub fn notified(w: &mut World, me: Peer) -> Msg {
    for _ in 0..60 {
        if w.sent.iter().any(|sent| sent.to.remote() == me.remote()) {
            break;
        }
        w.pass_ms(100);
    }
    let sent = w.expect_sent(me, "NOTIFY");
    w.arrives(sent.worker, me, &response(me, &sent.msg, 200));
    sent.msg
}

/// Answers the next NOTIFY. Returns the states of the dialogs that it reports, with their direction.
fn lamp(w: &mut World, me: Peer) -> Vec<String> {
    let notify = notified(w, me);
    assert_eq!(notify.get("Event"), "dialog");
    assert_eq!(notify.get("Content-Type"), "application/dialog-info+xml");
    let dialogs = notify.body.split("<dialog id=").skip(1);
    let state = |dialog: &str| {
        let between = |a: &str, b: &str| Some(dialog.split_once(a)?.1.split_once(b)?.0.to_owned());
        let direction = between("direction=\"", "\"").map(|d| d + " ").unwrap_or_default();
        direction + &between("<state>", "</state>").unwrap()
    };
    dialogs.map(state).collect()
}

/// RFC 4235: the lamps of both parties, from the INVITE to the BYE, at whatever worker each request comes in.
#[test]
fn lamps_of_both_parties_follow_a_call() {
    let mut w = World::build(3, &[], |_| {});
    w.register("alice", ALICE);
    w.register("bob", BOB);
    assert_eq!(watch(&mut w, 1, BOB2, "bob"), ["terminated"]);
    assert_eq!(watch(&mut w, 2, BOB3, "alice"), ["terminated"]);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 100);
    assert_eq!(lamp(&mut w, BOB2), ["recipient trying"]);
    assert_eq!(lamp(&mut w, BOB3), ["initiator trying"]);
    w.answer(BOB, &got, 180);
    w.expect(ALICE, "180");
    assert_eq!(lamp(&mut w, BOB2), ["recipient early"]);
    assert_eq!(lamp(&mut w, BOB3), ["initiator early"]);
    let ok = w.answer(BOB, &got, 200);
    let ok_there = w.expect(ALICE, "200");
    assert_eq!(lamp(&mut w, BOB2), ["recipient confirmed"]);
    assert_eq!(lamp(&mut w, BOB3), ["initiator confirmed"]);
    let mut caller = Dialog::of_caller(ALICE, &invite, &ok_there);
    let branch = w.branch();
    w.from(ALICE, &caller.request("ACK", &branch));
    w.expect(BOB, "ACK");
    let mut callee = Dialog::of_callee(BOB, &got, &ok);
    let branch = w.branch();
    w.arrives(2, BOB, &callee.request("BYE", &branch));
    let bye = w.expect(ALICE, "BYE");
    w.arrives(2, ALICE, &response(ALICE, &bye, 200));
    w.expect(BOB, "200 BYE");
    assert_eq!(lamp(&mut w, BOB2), ["terminated"]);
    assert_eq!(lamp(&mut w, BOB3), ["terminated"]);
    assert_eq!(w.shared.states.calls(), 0);
    w.pass_secs(60);
    w.quiet();
}

/// Alice calls bob, whose phone rings and whose lamp is at another phone: the INVITE as it was sent, and as it came.
fn ringing() -> (World, Msg, Msg) {
    let mut w = World::new();
    w.register("alice", ALICE);
    w.register("bob", BOB);
    watch(&mut w, 0, BOB2, "bob");
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 180);
    w.expect(ALICE, "180");
    assert_eq!(lamp(&mut w, BOB2), ["recipient early"]);
    (w, invite, got)
}

#[test]
fn a_call_that_is_not_answered_leaves_no_lamp_on() {
    for cancelled in [false, true] {
        let (mut w, invite, got) = ringing();
        if cancelled {
            w.from(ALICE, &cancel(&invite));
            w.expect(ALICE, "200 CANCEL");
            let there = w.expect(BOB, "CANCEL");
            w.answer(BOB, &there, 200);
            w.answer(BOB, &got, 487);
        } else {
            w.answer(BOB, &got, 486);
        }
        w.expect(BOB, "ACK");
        let answer = w.expect(ALICE, "4xx");
        w.from(ALICE, &ack(&invite, &answer));
        assert_eq!(lamp(&mut w, BOB2), ["terminated"]);
        assert_eq!(w.shared.states.calls(), 0);
    }
}

/// A worker for which too much waits finds the change when it looks for itself.
#[test]
fn a_change_that_finds_no_room_is_shown_a_moment_later() {
    let (mut w, _, got) = ringing();
    *w.is_full.lock().unwrap() = true;
    w.answer(BOB, &got, 486);
    w.expect(BOB, "ACK");
    w.expect(ALICE, "486");
    assert!(w.sent.iter().all(|sent| sent.to.remote() != BOB2.remote()));
    assert_eq!(lamp(&mut w, BOB2), ["terminated"]);
}

/// A 2xx that crosses the CANCEL: the call is none.
#[test]
fn a_call_that_is_answered_after_it_was_cancelled_leaves_no_lamp_on() {
    let (mut w, invite, got) = ringing();
    w.from(ALICE, &cancel(&invite));
    w.expect(ALICE, "200 CANCEL");
    let there = w.expect(BOB, "CANCEL");
    w.answer(BOB, &got, 200);
    w.expect(ALICE, "200 INVITE");
    w.answer(BOB, &there, 481);
    assert_eq!(lamp(&mut w, BOB2), ["terminated"]);
    assert_eq!(w.shared.states.calls(), 0);
}

/// A call that rings at two users is the call of the one who answers.
#[test]
fn who_does_not_answer_is_not_in_the_call() {
    let mut w = World::new();
    w.register("bob", BOB);
    w.register("carol", BOB2);
    w.bind("team", bind("sip:bob@example.org").q(1000));
    w.bind("team", bind("sip:carol@example.org").q(1000));
    watch(&mut w, 0, BOB3, "bob");
    watch(&mut w, 0, PROXY, "carol");
    w.call(ALICE, "INVITE sip:team@example.org");
    w.expect(ALICE, "100");
    let (at_bob, at_carol) = (w.expect(BOB, "INVITE"), w.expect(BOB2, "INVITE"));
    w.answer(BOB, &at_bob, 100);
    w.answer(BOB2, &at_carol, 100);
    assert_eq!(lamp(&mut w, BOB3), ["recipient trying"]);
    assert_eq!(lamp(&mut w, PROXY), ["recipient trying"]);
    w.answer(BOB, &at_bob, 180);
    w.expect(ALICE, "180");
    w.answer(BOB2, &at_carol, 200);
    w.expect(ALICE, "200");
    let there = w.expect(BOB, "CANCEL");
    w.answer(BOB, &there, 200);
    w.answer(BOB, &at_bob, 487);
    w.expect(BOB, "ACK");
    assert_eq!(lamp(&mut w, BOB3), ["terminated"]);
    assert_eq!(lamp(&mut w, PROXY), ["recipient confirmed"]);
}

/// Each server records its own phones only: the caller where the call begins, the callee where the contact is.
#[test]
fn a_call_across_servers_is_recorded_for_the_party_here() {
    let mut w = World::with(in_mesh);
    w.register("alice", ALICE);
    w.elsewhere("bob", &[(ROUTER, 1000)]);
    w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    w.expect(ROUTER, "INVITE");
    let states = |w: &World, user: &str| {
        let aor = format!("sip:{user}@example.org");
        w.shared.states.local(w.now, aor.as_bytes(), true).0.dialogs.len()
    };
    assert_eq!((states(&w, "alice"), states(&w, "bob")), (1, 0));
    // The other end.
    let mut w = World::with(in_mesh);
    w.register("bob", BOB);
    let invite = w.request(ROUTER, "INVITE sip:bob@example.org");
    w.from(ROUTER, &invite.set("From", "<sip:alice@example.org>;tag=1"));
    w.expect(ROUTER, "100");
    w.expect(BOB, "INVITE");
    assert_eq!((states(&w, "alice"), states(&w, "bob")), (0, 1));
}

/// Users of this server see each other's lamps; a stranger may ask the phone, and a router has its own way.
#[test]
fn who_may_watch() {
    let mut w = closed();
    w.register("bob", BOB);
    let request = w.request(ALICE, "SUBSCRIBE sip:bob@example.org").add("Event", "dialog");
    w.from(ALICE, &request);
    let challenge = w.expect(ALICE, "407");
    w.from(ALICE, &answered(&request, &challenge, "alice", "z9hG4bKa"));
    w.expect(ALICE, "200 SUBSCRIBE");
    lamp(&mut w, ALICE);
    let request = w.request(PROXY, "SUBSCRIBE sip:bob@example.org").add("Event", "dialog");
    w.from(PROXY, &request.set("From", "<sip:x@elsewhere.org>;tag=1"));
    let got = w.expect(BOB, "SUBSCRIBE");
    w.answer(BOB, &got, 489);
    w.expect(PROXY, "489");
    // As another user.
    let request = w.request(CAROL_TCP, "SUBSCRIBE sip:bob@example.org").add("Event", "dialog");
    w.from(CAROL_TCP, &request);
    let challenge = w.expect(CAROL_TCP, "407");
    w.from(CAROL_TCP, &answered(&request, &challenge, "alice", "z9hG4bKb"));
    w.expect(CAROL_TCP, "403");
    assert_eq!(w.cores[0].tables().subscriptions, 1);
    let mut w = World::with(in_mesh);
    w.register("bob", BOB);
    let request = w.request(ROUTER, "SUBSCRIBE sip:bob@example.org").add("Event", "dialog");
    w.from(ROUTER, &request);
    w.expect(BOB, "SUBSCRIBE");
}

/// RFC 5627 section 4.4: a phone whose Contact is its GRUU, as linphone's, is notified over the flow of its SUBSCRIBE; the
/// name of our domain is not looked up.
#[test]
fn a_phone_with_a_gruu_is_notified() {
    let mut w = World::new();
    w.register("bob", BOB);
    let request = w.request(ALICE, "SUBSCRIBE sip:bob@example.org").add("Event", "dialog");
    let gruu = "<sip:alice@example.org;gr=urn:uuid:00000000-0000-1000-8000-000a95a0e128>";
    w.from(ALICE, &request.set("Contact", gruu));
    w.expect(ALICE, "200 SUBSCRIBE");
    assert_eq!(lamp(&mut w, ALICE), ["terminated"]);
    assert!(w.questions.is_empty());
    w.quiet();
}

#[test]
fn a_number_shows_the_lamp_of_its_user() {
    let mut w = World::new();
    w.register("bob", BOB);
    w.alias("17", &[("bob", 1000)]);
    assert_eq!(watch(&mut w, 0, BOB2, "17"), ["terminated"]);
    w.call(ALICE, "INVITE sip:bob@example.org");
    w.pass_secs(1);
    let notify = w.sent.iter().find(|sent| sent.to.remote() == BOB2.remote()).unwrap();
    assert!(notify.msg.body.contains("entity=\"sip:17@example.org\""));
}

/// A user who is registered elsewhere, or nowhere, is watched here; one that does not exist is not.
#[test]
fn a_user_who_is_not_here_is_watched() {
    let mut w = World::with(in_mesh);
    w.elsewhere("carol", &[(ROUTER, 1000)]);
    assert_eq!(watch(&mut w, 0, BOB2, "carol"), ["terminated"]);
    assert!(w.shared.states.is_watched(b"sip:carol@example.org"));
    let request = w.request(BOB2, "SUBSCRIBE sip:nobody@example.org").add("Event", "dialog");
    w.from(BOB2, &request);
    w.expect(BOB2, "404");
    // The world must be asked first.
    w.unknown("dave");
    let request = w.request(BOB2, "SUBSCRIBE sip:dave@example.org").add("Event", "dialog");
    w.from(BOB2, &request);
    w.registered_nowhere("dave", true);
    let asked = w.asked();
    w.reply(&asked, Reply::Located);
    w.expect(BOB2, "200 SUBSCRIBE");
    assert_eq!(lamp(&mut w, BOB2), ["terminated"]);
}

/// A phone refreshes and ends its subscription, at any worker.
#[test]
fn a_subscription_is_refreshed_and_ended() {
    let mut w = World::build(2, &[], |_| {});
    w.register("bob", BOB);
    let request = w.request(BOB2, "SUBSCRIBE sip:bob@example.org").add("Event", "dialog");
    w.arrives(0, BOB2, &request);
    let ok = w.expect(BOB2, "200 SUBSCRIBE");
    assert_eq!(ok.get("Expires"), "3600");
    lamp(&mut w, BOB2);
    let mut dialog = Dialog::of_caller(BOB2, &request, &ok);
    for expires in ["600", "0"] {
        let branch = w.branch();
        let again = dialog.request("SUBSCRIBE", &branch).add("Event", "dialog");
        w.arrives(1, BOB2, &again.add("Expires", expires));
        w.expect(BOB2, "200 SUBSCRIBE");
        assert_eq!(lamp(&mut w, BOB2), ["terminated"]);
    }
    let branch = w.branch();
    w.arrives(1, BOB2, &dialog.request("SUBSCRIBE", &branch).add("Event", "dialog"));
    w.expect(BOB2, "481");
    assert_eq!(w.cores[0].tables().subscriptions, 0);
    assert!(!w.shared.states.is_watched(b"sip:bob@example.org"));
}

/// A phone with credentials waits while the world is asked where the user is.
#[test]
fn an_authenticated_subscriber_waits_for_the_location() {
    let mut w = World::with(|config| {
        in_mesh(config);
        config.auth.enabled = true;
    });
    w.unknown("carol");
    let request = w.request(ALICE, "SUBSCRIBE sip:carol@example.org").add("Event", "dialog");
    w.from(ALICE, &request);
    let challenge = w.expect(ALICE, "407");
    let branch = w.branch();
    w.from(ALICE, &answered(&request, &challenge, "alice", &branch));
    w.registered_nowhere("carol", true);
    let asked = w.asked();
    w.reply(&asked, Reply::Located);
    w.expect(ALICE, "200 SUBSCRIBE");
    assert_eq!(lamp(&mut w, ALICE), ["terminated"]);
    w.quiet();
}
