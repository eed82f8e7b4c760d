//! A phone that moves to another router of the mesh in the middle of a call, and goes on by the address that all routers
//! have on their LANs.

use crate::common::*;
use crate::relay::answered;
use crate::routers::Mesh;
use ringway_sansio::Transport;

/// The phone, on the LAN of whichever router.
const PHONE: Peer = ALICE.at("10.50.60.7:5060");
/// Another phone there.
const OTHER: Peer = BOB3.at("10.50.60.9:5060");

const OLD: usize = 0;
const THERE: usize = 1;
const NEW: usize = 2;

/// A call over two routers, of a caller who hangs at a third one from now on.
fn moved() -> (Mesh, Dialog) {
    let mut mesh = Mesh::new(3, true);
    mesh.register(OLD, PHONE, "alice");
    mesh.register(THERE, BOB, "bob");
    let invite = mesh.call(OLD, PHONE, "alice", "INVITE sip:bob@example.org");
    let got = mesh.expect(THERE, BOB, "INVITE");
    mesh.answer(THERE, BOB, &got, 200);
    let ok = mesh.expect(OLD, PHONE, "200");
    let mut caller = Dialog::of_caller(PHONE, &invite, &ok);
    caller.cseq = 10;
    mesh.within((OLD, &mut caller), (THERE, BOB), "ACK");
    (mesh, caller)
}

/// Sends a request of the dialog by the new router, which asks for the password. Returns it with the credentials.
fn challenged(mesh: &mut Mesh, caller: &mut Dialog, method: &str) -> Msg {
    let w = &mut mesh.routers[NEW];
    let branch = w.branch();
    let request = caller.request(method, &branch);
    w.from(PHONE, &request);
    let refused = w.expect(PHONE, "407");
    if method == "INVITE" {
        w.from(PHONE, &ack(&request, &refused));
    }
    let branch = w.branch();
    let again = answered(&request, &refused, "alice", &branch);
    caller.cseq += 1;
    mesh.from(NEW, PHONE, &again);
    again
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
