//! A phone that moves to another router of the mesh in the middle of a call, and goes on by the address that all routers
//! have on their LANs.

use crate::common::*;
use crate::relay::answered;
use crate::routers::{Mesh, mesh_flow, peer_of};
use ringway_sansio::Transport;
use std::net::{Ipv6Addr, SocketAddr};

/// The phone, on the LAN of whichever router.
const PHONE: Peer = ALICE.at("10.50.60.7:5060");
/// Another phone there.
const OTHER: Peer = BOB3.at("10.50.60.9:5060");

const OLD: usize = 0;
const THERE: usize = 1;
const NEW: usize = 2;

/// A call over two routers, from the phone or to it: the dialogs of the phone and of the other party.
fn call(from_phone: bool) -> (Mesh, Dialog, Dialog) {
    let mut mesh = Mesh::new(3, true);
    mesh.register(OLD, PHONE, "alice");
    mesh.register(THERE, BOB, "bob");
    let ends = [(OLD, PHONE, "alice"), (THERE, BOB, "bob")];
    let [(here, me, user), (there, other, to)] = if from_phone { ends } else { [ends[1], ends[0]] };
    let invite = mesh.call(here, me, user, &format!("INVITE sip:{to}@example.org"));
    let got = mesh.expect(there, other, "INVITE");
    let ok = mesh.answer(there, other, &got, 200);
    let ok_there = mesh.expect(here, me, "200");
    let mut caller = Dialog::of_caller(me, &invite, &ok_there);
    let callee = Dialog::of_callee(other, &got, &ok);
    caller.cseq = 10;
    mesh.within((here, &mut caller), (there, other), "ACK");
    if from_phone { (mesh, caller, callee) } else { (mesh, callee, caller) }
}

/// A call over two routers, of a caller who hangs at a third one from now on.
fn moved() -> (Mesh, Dialog) {
    let (mesh, caller, _) = call(true);
    (mesh, caller)
}

/// Sends a request of the dialog by the new router, which asks for the password. Returns it with the credentials.
fn challenged(mesh: &mut Mesh, caller: &mut Dialog, method: &str) -> Msg {
    challenged_at(mesh, NEW, caller, method)
}

/// Sends a request of the phone's dialog by a router that asks for the password. Returns it with the credentials.
fn challenged_at(mesh: &mut Mesh, router: usize, phone: &mut Dialog, method: &str) -> Msg {
    let (w, me) = (&mut mesh.routers[router], phone.me);
    let branch = w.branch();
    let request = phone.request(method, &branch);
    w.from(me, &request);
    let refused = w.expect(me, "407");
    if method == "INVITE" {
        w.from(me, &ack(&request, &refused));
    }
    let branch = w.branch();
    let again = answered(&request, &refused, "alice", &branch);
    phone.cseq += 1;
    mesh.from(router, me, &again);
    again
}

/// The phone goes on at a router with this address: it registers there, and sends a re-INVITE, which the other party
/// accepts.
fn moves(mesh: &mut Mesh, phone: &mut Dialog, other: &mut Dialog, router: usize, me: Peer) {
    mesh.register(router, me, "alice");
    phone.me = me;
    challenged_at(mesh, router, phone, "INVITE");
    mesh.expect(router, me, "100");
    accepted(mesh, phone, other, router);
}

/// The other party accepts a re-INVITE of the phone, and knows its new target.
fn accepted(mesh: &mut Mesh, phone: &mut Dialog, other: &mut Dialog, router: usize) {
    let got = mesh.expect(THERE, BOB, "INVITE");
    mesh.answer(THERE, BOB, &got, 200);
    mesh.expect(router, phone.me, "200 INVITE");
    let branch = mesh.routers[router].branch();
    let ack = phone.request("ACK", &branch);
    mesh.from(router, phone.me, &ack);
    mesh.expect(THERE, BOB, "ACK");
    other.target = got.uris("Contact")[0].clone();
}

/// A request of the other party reaches the phone at a router, which answers it. Returns the number of hops.
fn reaches(mesh: &mut Mesh, other: &mut Dialog, router: usize, me: Peer, method: &str) -> usize {
    let branch = mesh.routers[THERE].branch();
    let request = other.request(method, &branch);
    mesh.from(THERE, BOB, &request);
    if method == "INVITE" {
        mesh.expect(THERE, BOB, "100");
    }
    let got = mesh.expect(router, me, method);
    if method != "ACK" {
        mesh.answer(router, me, &got, 200);
        mesh.expect(THERE, BOB, &format!("200 {method}"));
    }
    got.all("Via").len()
}

/// The re-INVITE of the phone, which the callee receives. Returns it as it was sent, and as it came.
fn invited_again(mesh: &mut Mesh, caller: &mut Dialog) -> (Msg, Msg) {
    let sent = challenged(mesh, caller, "INVITE");
    mesh.expect(NEW, PHONE, "100");
    let got = mesh.expect(THERE, BOB, "INVITE");
    assert_eq!(got.all("Via").len(), 4, "over the new router, the old one and the callee's");
    (sent, got)
}

/// RFC 3261 sections 12.2.1.1 and 22.1: the ACK has the route set of the dialog, which leads to the old router, and goes
/// there as its INVITE did, without the credentials of either.
#[test]
fn the_ack_of_a_phone_that_has_moved_goes_the_way_of_its_invite() {
    let (mut mesh, mut caller) = moved();
    for _ in 0..2 {
        let (sent, got) = invited_again(&mut mesh, &mut caller);
        mesh.answer(THERE, BOB, &got, 200);
        mesh.expect(NEW, PHONE, "200 INVITE");
        // As often as the 2xx comes, as long as it may come.
        for wait in [0, 15, 15] {
            mesh.routers[NEW].pass_secs(wait);
            let branch = mesh.routers[NEW].branch();
            let ack = caller.request("ACK", &branch);
            mesh.from(NEW, PHONE, &ack.add("Proxy-Authorization", sent.get("Proxy-Authorization")));
            let ack = mesh.expect(THERE, BOB, "ACK");
            assert_eq!(ack.all("Via").len(), 4);
            assert!(!ack.has("Proxy-Authorization"));
            mesh.routers[NEW].ignore();
        }
    }
    challenged(&mut mesh, &mut caller, "BYE");
    let bye = mesh.expect(THERE, BOB, "BYE");
    mesh.answer(THERE, BOB, &bye, 200);
    mesh.expect(NEW, PHONE, "200 BYE");
    mesh.finish();
}

/// The lamp of a user whose phone has moved: the router where the phone is now has the call, and the end of it.
#[test]
fn a_call_is_recorded_where_the_phone_has_come_to() {
    let (mut mesh, mut phone, mut other) = call(true);
    let calls = |mesh: &Mesh, router: usize| {
        let w = &mesh.routers[router];
        w.shared.states.local(w.now, b"sip:alice@example.org", true).0.dialogs.len()
    };
    assert_eq!((calls(&mesh, OLD), calls(&mesh, NEW)), (1, 0));
    moves(&mut mesh, &mut phone, &mut other, NEW, PHONE);
    assert_eq!(calls(&mesh, NEW), 1);
    challenged(&mut mesh, &mut phone, "BYE");
    let bye = mesh.expect(THERE, BOB, "BYE");
    mesh.answer(THERE, BOB, &bye, 200);
    mesh.expect(NEW, PHONE, "200 BYE");
    assert_eq!((calls(&mesh, OLD), calls(&mesh, THERE), calls(&mesh, NEW)), (0, 0, 0));
}

/// RFC 3261 section 18.1.1: a long INVITE may come by TCP and its ACK by UDP, and from another port.
#[test]
fn the_ack_may_come_by_another_flow_of_the_phone() {
    let (mut mesh, mut caller) = moved();
    let (_, got) = invited_again(&mut mesh, &mut caller);
    mesh.answer(THERE, BOB, &got, 200);
    mesh.expect(NEW, PHONE, "200 INVITE");
    let tcp = Peer { transport: Transport::Tcp, serial: 9, ..PHONE.at("10.50.60.7:40404") };
    let ack = caller.request("ACK", "z9hG4bKtcp");
    mesh.from(NEW, tcp, &ack.set("Via", via(tcp, "z9hG4bKtcp")));
    mesh.expect(THERE, BOB, "ACK");
    mesh.finish();
}

/// Nothing but the ACK of the accepted INVITE passes: of the same source, dialog and number, to the same next hop, and as
/// long as the 2xx may be sent again.
#[test]
fn nothing_but_the_ack_of_an_accepted_invite_passes() {
    let (mut mesh, mut caller) = moved();
    let ack_of = |mesh: &mut Mesh, caller: &mut Dialog| {
        let branch = mesh.routers[NEW].branch();
        caller.request("ACK", &branch)
    };
    // Neither before the INVITE is answered nor after it is refused.
    for status in [486, 200] {
        let (_, got) = invited_again(&mut mesh, &mut caller);
        let early = ack_of(&mut mesh, &mut caller);
        mesh.from(NEW, PHONE, &early);
        mesh.routers.iter().for_each(World::quiet);
        mesh.answer(THERE, BOB, &got, status);
        if status == 486 {
            mesh.expect(THERE, BOB, "ACK");
            mesh.expect(NEW, PHONE, "486");
            let late = ack_of(&mut mesh, &mut caller);
            mesh.from(NEW, PHONE, &late);
            mesh.routers.iter().for_each(World::quiet);
        }
    }
    mesh.expect(NEW, PHONE, "200 INVITE");
    let good = ack_of(&mut mesh, &mut caller);
    let old = good.all("Route")[1].clone();
    let routes = |next: &str| {
        let mut routes = good.all("Route");
        routes[1] = old.replace("[fd01::1]", next);
        routes.join(", ")
    };
    let elsewhere = good.clone().set("CSeq", format!("{} ACK", caller.cseq + 1));
    for bad in [
        elsewhere,
        good.clone().set("CSeq", format!("{} ACK", caller.cseq - 1)),
        good.clone().set("Call-ID", "other"),
        good.clone().set("From", format!("{}x", good.get("From"))),
        good.clone().set("To", format!("{}x", good.get("To"))),
        good.clone().set("Route", routes("[fd02::1]")),
        good.clone().set("Route", routes("203.0.113.99")),
        good.clone().set("Route", good.all("Route")[0].clone()).aimed_at("sip:x@203.0.113.99"),
    ] {
        mesh.from(NEW, PHONE, &bad.set("Via", via(PHONE, "z9hG4bKbad")));
        mesh.routers.iter().for_each(World::quiet);
    }
    mesh.from(NEW, OTHER, &good.clone().set("Via", via(OTHER, "z9hG4bKother")));
    mesh.routers.iter().for_each(World::quiet);
    // No other method passes without credentials.
    for method in ["BYE", "INFO", "MESSAGE"] {
        let w = &mut mesh.routers[NEW];
        let branch = w.branch();
        let request = caller.request(method, &branch);
        w.from(PHONE, &request);
        w.expect(PHONE, "407");
    }
    mesh.from(NEW, PHONE, &good);
    mesh.expect(THERE, BOB, "ACK");
    mesh.routers[NEW].pass_secs(33);
    mesh.routers[NEW].ignore();
    mesh.from(NEW, PHONE, &good);
    mesh.routers.iter().for_each(World::quiet);
    mesh.finish();
}

/// Without a Route of a proxy the ACK goes to the Contact of the 2xx (RFC 3261 section 12.2.1.2).
#[test]
fn the_ack_of_a_call_that_was_the_old_routers_alone() {
    let (mut mesh, mut caller) = moved();
    caller.route.truncate(1);
    challenged(&mut mesh, &mut caller, "INVITE");
    mesh.expect(NEW, PHONE, "100");
    let got = mesh.expect(NEW, BOB, "INVITE");
    let ok = response(BOB, &got, 200).set("Contact", "<sip:bob@203.0.113.9:5070>");
    mesh.from(NEW, BOB, &ok);
    mesh.expect(NEW, PHONE, "200 INVITE");
    let branch = mesh.routers[NEW].branch();
    let ack = caller.request("ACK", &branch);
    mesh.from(NEW, PHONE, &ack);
    mesh.routers.iter().for_each(World::quiet);
    mesh.from(NEW, PHONE, &ack.aimed_at("sip:bob@203.0.113.9:5070"));
    mesh.expect(NEW, BOB.at("203.0.113.9:5070"), "ACK");
    mesh.finish();
}

/// RFC 3261 section 12.2: the other party goes on with the route set of the dialog and the new target. Its requests come to
/// the old router, which sends them to the new one.
#[test]
fn the_other_party_reaches_a_phone_that_has_moved() {
    let tcp = Peer { transport: Transport::Tcp, serial: 9, ..PHONE.at("10.50.60.8:40404") };
    let ws = Peer { transport: Transport::Ws, serial: 11, ..PHONE.at("10.50.60.8:40405") };
    for from_phone in [true, false] {
        for me in [PHONE, PHONE.at("10.50.60.8:5060"), tcp, ws] {
            for last in [BOB, me] {
                let (mut mesh, mut phone, mut other) = call(from_phone);
                moves(&mut mesh, &mut phone, &mut other, NEW, me);
                for method in ["INFO", "INVITE", "ACK", "UPDATE", "MESSAGE", "INVITE", "ACK"] {
                    let hops = reaches(&mut mesh, &mut other, NEW, me, method);
                    assert_eq!(
                        hops, 4,
                        "{method} over the callee's router, the old one and the new one"
                    );
                }
                if last == BOB {
                    reaches(&mut mesh, &mut other, NEW, me, "BYE");
                } else {
                    challenged_at(&mut mesh, NEW, &mut phone, "BYE");
                    let bye = mesh.expect(THERE, BOB, "BYE");
                    mesh.answer(THERE, BOB, &bye, 200);
                    mesh.expect(NEW, me, "200 BYE");
                }
                mesh.finish();
            }
        }
    }
}

/// A phone may show its new router by UPDATE too (RFC 3311), and the other party's answer to the re-INVITE need not have
/// come yet.
#[test]
fn an_update_shows_the_new_router() {
    let (mut mesh, mut phone, mut other) = call(true);
    challenged(&mut mesh, &mut phone, "UPDATE");
    let got = mesh.expect(THERE, BOB, "UPDATE");
    assert_eq!(reaches(&mut mesh, &mut other, NEW, PHONE, "INFO"), 4);
    mesh.answer(THERE, BOB, &got, 200);
    mesh.expect(NEW, PHONE, "200 UPDATE");
    reaches(&mut mesh, &mut other, NEW, PHONE, "BYE");
    mesh.finish();
}

/// The last router counts, also if it is the first one again, or the other party's.
#[test]
fn a_phone_moves_again_and_comes_back() {
    let (mut mesh, mut phone, mut other) = call(true);
    moves(&mut mesh, &mut phone, &mut other, NEW, PHONE);
    assert_eq!(reaches(&mut mesh, &mut other, NEW, PHONE, "INFO"), 4);
    moves(&mut mesh, &mut phone, &mut other, THERE, OTHER);
    assert_eq!(reaches(&mut mesh, &mut other, THERE, OTHER, "INFO"), 4, "twice over this one");
    // Its old router knows the dialog, and asks for no password.
    phone.me = PHONE;
    let branch = mesh.routers[OLD].branch();
    let again = phone.request("INVITE", &branch);
    mesh.from(OLD, PHONE, &again);
    mesh.expect(OLD, PHONE, "100");
    accepted(&mut mesh, &mut phone, &mut other, OLD);
    assert_eq!(reaches(&mut mesh, &mut other, OLD, PHONE, "INFO"), 3);
    reaches(&mut mesh, &mut other, OLD, PHONE, "BYE");
    mesh.finish();
}

/// A router directs requests of a dialog to itself only, and only with the mark of that dialog; a host behind a router
/// directs nothing.
#[test]
fn nobody_else_takes_the_requests_of_a_dialog() {
    let host = SocketAddr::from((Ipv6Addr::new(0xfd03, 0, 0, 0, 0, 0, 0, 5), 5060));
    let long = format!("<sip:{}@[fd03::1];lr>", "x".repeat(512));
    let good = "<sip:x@[fd03::1];lr>";
    for (record_route, source, reached) in [
        ("<sip:x@203.0.113.99;lr>", None, Some("PHONE")),
        ("<sip:x@[fd02::1];lr>", None, Some("PHONE")),
        ("<sip:x@[fd03::1];maddr=203.0.113.99;lr>", None, Some("PHONE")),
        ("<sip:x@router.example.net;lr>", None, Some("PHONE")),
        ("<sip:x@[fd03::1]>", None, Some("PHONE")),
        ("<tel:+1555>", None, Some("PHONE")),
        (&*long, None, Some("PHONE")),
        (good, Some(host), Some("PHONE")),
        (good, None, None),
    ] {
        let (mut mesh, mut phone, mut other) = call(true);
        let forged = phone.request("INVITE", "z9hG4bKforged");
        let routes = forged.all("Route")[1..].join(", ");
        let forged = forged.set("Route", routes).top("Record-Route", record_route);
        let forged = forged.set("Via", via(peer_of(NEW), "z9hG4bKforged"));
        let mut flow = mesh_flow(NEW, OLD);
        flow.remote = source.unwrap_or(flow.remote);
        mesh.routers[OLD].bytes_from(0, flow, &forged.bytes());
        mesh.carry();
        // RFC 3261 section 18.1.1: the long one goes by TCP.
        let bob = if record_route == long { BOB.listening_tcp() } else { BOB };
        let got = mesh.expect(THERE, bob, "INVITE");
        mesh.answer(THERE, bob, &got, 486);
        mesh.expect(THERE, bob, "ACK");
        mesh.routers.iter_mut().for_each(World::ignore);
        let branch = mesh.routers[THERE].branch();
        let info = other.request("INFO", &branch);
        mesh.from(THERE, BOB, &info);
        match reached {
            Some(_) => drop(mesh.expect(OLD, PHONE, "INFO")),
            // The other router has no such dialog. Nobody else gets the request.
            None => drop(mesh.expect(THERE, BOB, "403")),
        }
        mesh.routers.iter().for_each(World::quiet);
    }
}

/// What is known of one dialog serves no other, and a mark of another dialog changes nothing.
#[test]
fn a_move_is_of_one_dialog() {
    let (mut mesh, mut phone, mut other) = call(true);
    let invite = mesh.call(OLD, PHONE, "alice", "INVITE sip:bob@example.org");
    let got = mesh.expect(THERE, BOB, "INVITE");
    let ok = mesh.answer(THERE, BOB, &got, 200);
    let ok_there = mesh.expect(OLD, PHONE, "200");
    let mut second = Dialog::of_caller(PHONE, &invite, &ok_there);
    second.cseq = 10;
    mesh.within((OLD, &mut second), (THERE, BOB), "ACK");
    let mut other_second = Dialog::of_callee(BOB, &got, &ok);
    // With the Route of the second dialog the first one's request is a stranger's.
    let forged = phone.request("INVITE", "z9hG4bKforged");
    let routes = second.route[1..].join(", ");
    let forged = forged.set("Route", routes).top("Record-Route", "<sip:x@[fd03::1];lr>");
    let forged = forged.set("Via", via(peer_of(NEW), "z9hG4bKforged"));
    mesh.routers[OLD].bytes_from(0, mesh_flow(NEW, OLD), &forged.bytes());
    assert_eq!(mesh.routers[OLD].sent.pop_front().expect("an answer").msg.status(), 403);
    assert_eq!(reaches(&mut mesh, &mut other, OLD, PHONE, "INFO"), 3);
    moves(&mut mesh, &mut phone, &mut other, NEW, PHONE);
    assert_eq!(reaches(&mut mesh, &mut other, NEW, PHONE, "BYE"), 4);
    assert_eq!(reaches(&mut mesh, &mut other_second, OLD, PHONE, "BYE"), 3);
    mesh.routers[OLD].pass_secs(33);
    mesh.finish();
}

/// With its old router gone, the phone's requests go past it to the next router of the Route, whose mark lets them pass, and
/// the other party's come back the same way.
#[test]
fn a_call_goes_on_without_the_old_router() {
    for from_phone in [true, false] {
        for ends_at_phone in [true, false] {
            let (mut mesh, mut phone, mut other) = call(from_phone);
            for router in [NEW, THERE] {
                mesh.routers[router].break_way(Transport::Udp, "[fd01::1]:5060");
            }
            moves(&mut mesh, &mut phone, &mut other, NEW, OTHER);
            for method in ["INFO", "INVITE", "ACK"] {
                assert_eq!(reaches(&mut mesh, &mut other, NEW, OTHER, method), 3, "{method}");
            }
            if ends_at_phone {
                challenged(&mut mesh, &mut phone, "BYE");
                let bye = mesh.expect(THERE, BOB, "BYE");
                assert_eq!(bye.all("Via").len(), 3);
                mesh.answer(THERE, BOB, &bye, 200);
                mesh.expect(NEW, OTHER, "200 BYE");
            } else {
                reaches(&mut mesh, &mut other, NEW, OTHER, "BYE");
            }
            mesh.finish();
        }
    }
}

/// A router that is gone is passed by only to another router, and what that one refuses stays refused.
#[test]
fn no_route_but_to_the_next_router_is_passed_by() {
    let (mut mesh, mut phone, _) = call(true);
    mesh.routers[NEW].break_way(Transport::Udp, "[fd01::1]:5060");
    let routes = phone.route.clone();
    for (route, status) in [
        (vec![routes[0].clone(), routes[1].clone()], "500"),
        (vec![routes[0].clone(), routes[1].clone(), "<sip:203.0.113.99;lr>".into()], "500"),
        (
            vec![routes[0].clone(), "<sip:[fd01::1];lr>".into(), "<sip:x@[fd02::1];lr>".into()],
            "403",
        ),
    ] {
        phone.route = route;
        challenged(&mut mesh, &mut phone, "INFO");
        mesh.expect(NEW, PHONE, status);
        mesh.routers.iter().for_each(World::quiet);
        mesh.routers[NEW].pass_secs(31);
    }
    mesh.finish();
}
