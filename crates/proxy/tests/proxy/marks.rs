//! What a dialog's Record-Route is worth: to whom, for which requests, where to and how long.

use crate::common::*;
use crate::relay::{closed, digest};
use ringway_proxy::config::Network;

/// The stranger's From.
const OUTSIDE: &str = "<sip:eve@example.com>;tag=eve";

/// A stranger's call to bob that rings: the request bob got, and the 180 the stranger got.
fn ringing(w: &mut World, caller: Peer) -> (Msg, Msg, Msg) {
    w.register("bob", BOB);
    let invite = w.request(caller, "INVITE sip:bob@example.org").set("From", OUTSIDE);
    w.from(caller, &invite);
    w.expect(caller, "100");
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 180);
    let ringing = w.expect(caller, "180");
    (invite, got, ringing)
}

/// The same, answered and acknowledged: the dialog of each side.
fn established(w: &mut World, caller: Peer) -> (Dialog, Dialog) {
    let (invite, got, _) = ringing(w, caller);
    let ok = w.answer(BOB, &got, 200);
    let ok_there = w.expect(caller, "200");
    let mut here = Dialog::of_caller(caller, &invite, &ok_there);
    let there = Dialog::of_callee(BOB, &got, &ok);
    w.from(caller, &here.request("ACK", "z9hG4bKack"));
    w.expect(BOB, "ACK");
    (here, there)
}

/// The proxy challenges the sender, and forwards nothing. An ACK has no response.
fn closed_to(w: &mut World, sender: Peer, request: &Msg) {
    w.from(sender, request);
    if request.method() != "ACK" {
        let answer = w.expect(sender, "4xx");
        assert!([401, 403, 404, 407].contains(&answer.status()), "{request}\n{answer}");
    }
    w.quiet();
}

/// RFC 3261 section 12.2: both sides send within the dialog without credentials.
#[test]
fn both_sides_use_the_dialog() {
    for caller in [PROXY, CAROL_TCP] {
        let mut w = closed();
        let (mut here, mut there) = established(&mut w, caller);
        for method in ["INFO", "UPDATE", "MESSAGE", "OPTIONS", "REFER", "BYE"] {
            let (one, two) = (w.branch(), w.branch());
            w.from(caller, &here.request(method, &one));
            let got = w.expect(BOB, method);
            w.answer(BOB, &got, 200);
            w.expect(caller, "200");
            w.from(BOB, &there.request(method, &two));
            let got = w.expect(caller, method);
            w.answer(caller, &got, 200);
            w.expect(BOB, "200");
        }
        w.finish_anyhow();
    }
}

/// A mark opens no other target, whichever side it was given to, before the answer and after it.
#[test]
fn a_mark_leads_to_the_other_party_only() {
    let targets = [
        "sip:1900123@192.0.2.60",
        "sip:bob@192.0.2.60",
        "sip:1900@203.0.113.2:5060",
        "sip:bob@203.0.113.2:5061",
        "sip:victim@elsewhere.example.net",
        "tel:+1900123",
    ];
    for caller in [PROXY, CAROL_TCP] {
        for target in targets {
            for method in ["INVITE", "MESSAGE", "BYE", "ACK", "OPTIONS", "REGISTER"] {
                let mut w = closed();
                let (mut here, mut there) = established(&mut w, caller);
                let request = here.request(method, "z9hG4bKtoll").aimed_at(target);
                closed_to(&mut w, caller, &request);
                // The way to a caller behind a flow leads there, whatever the Request-URI says.
                if caller == PROXY {
                    let request = there.request(method, "z9hG4bKtoll").aimed_at(target);
                    closed_to(&mut w, BOB, &request);
                }
            }
        }
    }
}

/// The mark in a 180 is the early dialog's: not good for another To tag, nor by another Route.
#[test]
fn a_mark_in_a_180_opens_its_early_dialog_only() {
    let mut w = closed();
    let (invite, _, ringing) = ringing(&mut w, PROXY);
    let mut early = Dialog::of_caller(PROXY, &invite, &ringing);
    w.from(PROXY, &early.request("UPDATE", "z9hG4bKupdate"));
    let got = w.expect(BOB, "UPDATE");
    w.answer(BOB, &got, 200);
    w.expect(PROXY, "200");
    let good = early.request("INVITE", "z9hG4bKtoll");
    for bad in [
        good.clone().set("To", "<sip:bob@example.org>;tag=made-up"),
        good.clone().set("To", "<sip:1900@192.0.2.60>").aimed_at("sip:1900@192.0.2.60"),
        good.clone().set("From", "<sip:eve@example.com>;tag=other"),
        good.clone().set("Call-ID", "another"),
        good.clone().add("Route", "<sip:203.0.113.99;lr>"),
        good.clone().aimed_at("sip:1900123@192.0.2.60"),
    ] {
        closed_to(&mut w, PROXY, &bad);
    }
}

/// What the callee has seen in the request is the callee's: the caller's side cannot use it.
#[test]
fn the_marks_of_the_two_sides_differ() {
    let mut w = closed();
    let (mut here, there) = established(&mut w, PROXY);
    assert_ne!(here.route, there.route);
    here.route = there.route;
    let request = here.request("INFO", "z9hG4bKother");
    closed_to(&mut w, PROXY, &request);
}

/// REGISTER and other methods that belong to no dialog gain nothing by a dialog's Route.
#[test]
fn methods_of_no_dialog_gain_nothing() {
    for method in ["REGISTER", "PUBLISH", "FOO"] {
        let mut w = closed();
        let (mut here, _) = established(&mut w, PROXY);
        let request = here.request(method, "z9hG4bKother");
        closed_to(&mut w, PROXY, &request);
    }
}

/// After a refusal neither side may continue, also if the caller tries again with the same Call-ID.
#[test]
fn a_refused_call_leaves_no_way() {
    let mut w = World::build(2, &[], digest);
    let (invite, got, ringing) = ringing(&mut w, PROXY);
    let busy = w.answer(BOB, &got, 486);
    w.expect(BOB, "ACK");
    let refused = w.expect(PROXY, "486");
    w.from(PROXY, &ack(&invite, &refused));
    let mut here = Dialog::of_caller(PROXY, &invite, &ringing);
    let mut there = Dialog::of_callee(BOB, &got, &busy.add("Contact", "<sip:bob@203.0.113.2>"));
    for (peer, request) in
        [(PROXY, here.request("INFO", "z9hG4bKone")), (BOB, there.request("INFO", "z9hG4bKtwo"))]
    {
        w.arrives(1, peer, &request);
        w.expect(peer, "407");
        w.quiet();
    }
}

/// After a BYE requests that cross it still pass; later ones do not.
#[test]
fn an_ended_call_leaves_no_way() {
    let mut w = World::build(2, &[], digest);
    let (mut here, mut there) = established(&mut w, PROXY);
    w.from(PROXY, &here.request("BYE", "z9hG4bKbye"));
    let got = w.expect(BOB, "BYE");
    w.answer(BOB, &got, 200);
    w.expect(PROXY, "200");
    w.arrives(1, BOB, &there.request("BYE", "z9hG4bKcross"));
    let got = w.expect(PROXY, "BYE");
    w.answer(PROXY, &got, 481);
    w.expect(BOB, "481");
    w.pass_secs(33);
    for (peer, request) in
        [(PROXY, here.request("INFO", "z9hG4bKone")), (BOB, there.request("INFO", "z9hG4bKtwo"))]
    {
        closed_to(&mut w, peer, &request);
    }
}

/// A mark has its time.
#[test]
fn a_mark_ends_by_itself() {
    let mut w = closed();
    let (mut here, _) = established(&mut w, PROXY);
    w.pass_secs(7 * 24 * 3600 - 60);
    w.register("bob", BOB);
    w.from(PROXY, &here.request("INFO", "z9hG4bKone"));
    let got = w.expect(BOB, "INFO");
    w.answer(BOB, &got, 200);
    w.expect(PROXY, "200");
    w.pass_secs(60);
    let request = here.request("INFO", "z9hG4bKtwo");
    closed_to(&mut w, PROXY, &request);
}

/// RFC 3261 section 12.2: a party that moves by a re-INVITE is followed, by either kind of message.
#[test]
fn a_party_that_moves_is_followed() {
    let mut w = World::build(2, &[], digest);
    let (mut here, mut there) = established(&mut w, PROXY);
    let moved = Peer { name: "bob", ..BOB3 };
    there.me = moved;
    w.from(moved, &there.request("INVITE", "z9hG4bKre"));
    w.expect(moved, "100");
    let got = w.expect(PROXY, "INVITE");
    let moved_too = PROXY.at("192.0.2.51:5060");
    // The answer comes from another address, too.
    let ok = response(moved_too, &got, 200);
    w.from(moved_too, &ok);
    w.expect(moved, "200");
    here.target = moved.contact();
    there.target = moved_too.contact();
    here.me = moved_too;
    w.from(moved, &there.request("ACK", "z9hG4bKack2"));
    w.expect(moved_too, "ACK");
    w.arrives(1, moved_too, &here.request("INFO", "z9hG4bKinfo"));
    let got = w.expect(moved, "INFO");
    w.arrives(1, moved, &response(moved, &got, 200));
    w.expect(moved_too, "200");
    w.arrives(1, moved, &there.request("BYE", "z9hG4bKbye"));
    let got = w.expect(moved_too, "BYE");
    w.arrives(1, moved_too, &response(moved_too, &got, 200));
    w.expect(moved, "200");
    w.finish();
}

/// A party cannot move to an address that is not its own: a re-INVITE with another user's address has no effect.
#[test]
fn a_party_does_not_move_to_another_user() {
    let mut w = closed();
    let (mut here, mut there) = established(&mut w, PROXY);
    let branch = w.branch();
    let lie = here.request("INVITE", &branch).set("Contact", "<sip:1900@192.0.2.60>");
    w.from(PROXY, &lie);
    w.expect(PROXY, "100");
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 200);
    w.expect(PROXY, "200");
    let request = there.request("INVITE", "z9hG4bKtoll").aimed_at("sip:1900@192.0.2.60");
    closed_to(&mut w, BOB, &request);
}

/// What stands before the `@` of a Route.
fn user_part(route: &str) -> &str {
    route.split_once("sip:").unwrap().1.rsplit_once('@').unwrap().0
}

/// Another dialog's flow token does not go with this dialog's mark.
#[test]
fn a_token_is_valid_with_its_own_mark_only() {
    let mut w = closed();
    let (mut udp, _) = established(&mut w, PROXY);
    let (tcp, _) = {
        let invite = w.request(ERIN_WS, "INVITE sip:bob@example.org").set("From", OUTSIDE);
        w.from(ERIN_WS, &invite);
        w.expect(ERIN_WS, "100");
        let got = w.expect(BOB, "INVITE");
        let ok = w.answer(BOB, &got, 200);
        let there = w.expect(ERIN_WS, "200");
        (Dialog::of_callee(BOB, &got, &ok), there)
    };
    let with_token = tcp.route.iter().find(|r| user_part(r).contains('.')).unwrap();
    let token = user_part(with_token).rsplit_once('.').unwrap().0;
    let mark = user_part(&udp.route[0]).to_string();
    udp.route = vec![format!("<sip:{token}.{mark}@192.0.2.1:5060;lr>")];
    let request = udp.request("INFO", "z9hG4bKmixed");
    closed_to(&mut w, PROXY, &request);
    // Nor without a mark at all.
    udp.route = vec![format!("<sip:{token}@192.0.2.1:5060;lr>")];
    let request = udp.request("INFO", "z9hG4bKbare").aimed_at("sip:x@203.0.113.99");
    closed_to(&mut w, PROXY, &request);
}

/// A proxy on either side: its Record-Route is where the mark leads, not the party's Contact.
#[test]
fn a_mark_leads_by_way_of_other_proxies() {
    let mut w = World::with(|config| {
        digest(config);
        config.trusted = vec![Network { addr: GATEWAY.remote().ip(), prefix: 32 }];
    });
    w.register("bob", BOB);
    let edge = "<sip:192.0.2.50;lr>";
    let invite = w.request(PROXY, "INVITE sip:bob@example.org").set("From", OUTSIDE);
    let invite = invite.set("Contact", "<sip:eve@198.51.100.99>").add("Record-Route", edge);
    let invite = invite.add("Via", "SIP/2.0/UDP 198.51.100.99;branch=z9hG4bKua");
    w.from(PROXY, &invite);
    w.expect(PROXY, "100");
    let got = w.expect(BOB, "INVITE");
    let ok = w.answer(BOB, &got, 200);
    w.expect(PROXY, "200");
    let mut there = Dialog::of_callee(BOB, &got, &ok);
    w.from(BOB, &there.request("INFO", "z9hG4bKinfo"));
    let info = w.expect(PROXY, "INFO sip:eve@198.51.100.99");
    assert_eq!(info.all("Route"), [edge]);
    w.answer(PROXY, &info, 200);
    w.expect(BOB, "200");
    // Past that proxy it does not go.
    there.route.pop();
    let request = there.request("INFO", "z9hG4bKpast");
    closed_to(&mut w, BOB, &request);
}

/// The attempt is logged.
#[test]
fn a_mark_that_does_not_hold_is_logged() {
    let mut w = closed();
    let (mut here, _) = established(&mut w, PROXY);
    let request = here.request("INFO", "z9hG4bKtoll").aimed_at("sip:1900@192.0.2.60");
    w.from(PROXY, &request);
    w.expect(PROXY, "407");
    assert!(w.lines.iter().any(|line| line.what.contains("Route")), "{:?}", w.lines);
}

/// A callee that writes a number of ours into its Contact gives the caller no routing rule by that.
#[test]
fn a_mark_leads_by_no_routing_rule() {
    let mut w = World::with(|config| {
        digest(config);
        crate::routing::dial_plan(config);
    });
    w.register("bob", BOB);
    let invite = w.request(PROXY, "INVITE sip:bob@example.org").set("From", OUTSIDE);
    w.from(PROXY, &invite);
    w.expect(PROXY, "100");
    let got = w.expect(BOB, "INVITE");
    let ok = response(BOB, &got, 200).set("Contact", "<sip:0301234@example.org>");
    w.from(BOB, &ok);
    let ok = w.expect(PROXY, "200");
    let mut here = Dialog::of_caller(PROXY, &invite, &ok);
    for method in ["INVITE", "INFO", "ACK"] {
        let request = here.request(method, &format!("z9hG4bK{method}"));
        closed_to(&mut w, PROXY, &request);
    }
}

/// A caller that claims a gateway's address as its Contact gives the callee no way to the gateway.
#[test]
fn a_claimed_contact_leads_to_no_gateway() {
    let mut w = World::with(|config| {
        digest(config);
        crate::routing::dial_plan(config);
    });
    w.register("bob", BOB);
    let invite = w.request(PROXY, "INVITE sip:bob@example.org").set("From", OUTSIDE);
    let invite = invite.set("Contact", "<sip:1900@192.0.2.60>");
    // Behind another proxy, so that no flow leads back to the caller.
    w.from(PROXY, &invite.add("Via", "SIP/2.0/UDP 192.0.2.60;branch=z9hG4bKua"));
    w.expect(PROXY, "100");
    let got = w.expect(BOB, "INVITE");
    let ok = w.answer(BOB, &got, 200);
    w.expect(PROXY, "200");
    let mut there = Dialog::of_callee(BOB, &got, &ok);
    let request = there.request("INVITE", "z9hG4bKtoll");
    w.from(BOB, &request);
    w.count(BOB, "100");
    w.expect(BOB, "403");
    w.quiet();
}
