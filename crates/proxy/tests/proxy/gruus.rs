//! Temporary GRUUs (RFC 5627) across the routers of a mesh: only the router that has made one can read it, and its name
//! leads there.

use crate::common::*;
use crate::elsewhere::in_mesh;
use crate::relay::{answered, digest};
use crate::routers::{Mesh, mesh_flow, peer_of};
use crate::routing::{hop, rule};
use ringway_proxy::routes::{DomainMatch, Rule, UserMatch};

const INSTANCE: &str = "\"<urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6>\"";

/// The phone registers at a router, in a registration with this Call-ID. Returns its temporary GRUU.
fn register(mesh: &mut Mesh, router: usize, phone: Peer, user: &str, call_id: &str) -> String {
    let w = &mut mesh.routers[router];
    let aor = format!("<sip:{user}@example.org>");
    let contact = format!("<{}>;+sip.instance={INSTANCE}", phone.contact());
    let request = w.request(phone, "REGISTER sip:example.org").set("Supported", "gruu");
    let request = request.set("From", format!("{aor};tag=1")).set("To", aor);
    let request = request.set("Call-ID", call_id).set("Contact", contact);
    w.from(phone, &request);
    let challenged = w.expect(phone, "401");
    let branch = w.branch();
    mesh.from(router, phone, &answered(&request, &challenged, user, &branch));
    let ok = mesh.expect(router, phone, "200");
    let (_, rest) = ok.get("Contact").split_once("temp-gruu=\"").expect("a temporary GRUU");
    rest.split('"').next().unwrap().into()
}

/// RFC 5627 section 5.4: whoever has the GRUU reaches the instance, and no other phone of the user.
#[test]
fn a_temporary_gruu_of_another_router_leads_to_its_instance() {
    let mut mesh = Mesh::new(2, true);
    mesh.register(0, ALICE, "alice");
    let gruu = register(&mut mesh, 1, BOB, "bob", "first");
    mesh.register(1, BOB2, "bob");
    assert!(gruu.starts_with("sip:tgruu.fd02000000000000."), "{gruu}");
    mesh.call(0, ALICE, "alice", &format!("MESSAGE {gruu}"));
    let got = mesh.expect(1, BOB, "MESSAGE");
    assert_eq!(got.uri(), BOB.contact());
    mesh.answer(1, BOB, &got, 200);
    mesh.expect(0, ALICE, "200");
    // At its own router as well.
    mesh.register(1, BOB3, "carol");
    mesh.call(1, BOB3, "carol", &format!("MESSAGE {gruu}"));
    let got = mesh.expect(1, BOB, "MESSAGE");
    mesh.answer(1, BOB, &got, 200);
    mesh.expect(1, BOB3, "200");
    // Section 5.3: another registration of the instance ends it.
    let next = register(&mut mesh, 1, BOB, "bob", "second");
    mesh.call(0, ALICE, "alice", &format!("MESSAGE {gruu}"));
    mesh.expect(0, ALICE, "404");
    mesh.call(0, ALICE, "alice", &format!("MESSAGE {next}"));
    let got = mesh.expect(1, BOB, "MESSAGE");
    mesh.answer(1, BOB, &got, 200);
    mesh.expect(0, ALICE, "200");
    mesh.finish();
}

/// Section 4.4.1: a caller who wants to stay anonymous has a temporary GRUU as its Contact, so that requests within the
/// dialog are for it.
#[test]
fn requests_within_a_dialog_reach_a_temporary_gruu() {
    for record_route in [true, false] {
        let mut mesh = Mesh::new(2, record_route);
        let gruu = register(&mut mesh, 0, ALICE, "alice", "one");
        mesh.register(1, BOB, "bob");
        let line = "INVITE sip:bob@example.org";
        let contact = |request: Msg| request.set("Contact", format!("<{gruu}>"));
        let invite = mesh.call_with(0, ALICE, "alice", line, contact);
        let got = mesh.expect(1, BOB, "INVITE");
        let ok = mesh.answer(1, BOB, &got, 200);
        let ok_there = mesh.expect(0, ALICE, "200");
        let mut callee = Dialog::of_callee(BOB, &got, &ok);
        if record_route {
            let mut caller = Dialog::of_caller(ALICE, &invite, &ok_there);
            caller.cseq = 10;
            mesh.within((0, &mut caller), (1, BOB), "ACK");
            mesh.within((1, &mut callee), (0, ALICE), "BYE");
        } else {
            // Without a route set the BYE is a request for a user of ours like any other.
            mesh.call_with(1, BOB, "bob", &format!("BYE {gruu}"), |bye| {
                ["To", "Call-ID"].iter().fold(bye, |bye, name| match *name {
                    "To" => bye.set("To", got.get("From")),
                    name => bye.set(name, got.get(name)),
                })
            });
            let bye = mesh.expect(0, ALICE, "BYE");
            mesh.answer(0, ALICE, &bye, 200);
            mesh.expect(1, BOB, "200");
        }
        mesh.finish();
    }
}

/// What names another router may be anything: nothing goes to a third router, nor is it an open relay.
#[test]
fn a_name_of_a_third_router_leads_nowhere() {
    let mut mesh = Mesh::new(3, true);
    mesh.register(0, ALICE, "alice");
    let gruu = register(&mut mesh, 2, BOB, "bob", "one");
    // The maker does not know what it did not make.
    let forged = gruu.replace("fd03000000000000.", "fd02000000000000.");
    mesh.call(0, ALICE, "alice", &format!("MESSAGE {forged}"));
    mesh.expect(0, ALICE, "404");
    // A router asks another one for what a third one has made.
    let w = &mut mesh.routers[1];
    let request = w.request(peer_of(0), &format!("MESSAGE {gruu}"));
    let request = request.set("From", "<sip:alice@example.org>;tag=1");
    w.bytes_from(0, mesh_flow(0, 1), &request.bytes());
    mesh.routers[1].speaks(peer_of(0), "alice", Some(true));
    let w = &mut mesh.routers[1];
    for asked in std::mem::take(&mut w.asks) {
        w.reply(&asked, ringway_proxy::Reply::Located);
    }
    let answer = w.sent.pop_front().expect("an answer");
    assert_eq!((answer.to.remote(), answer.msg.status()), (peer_of(0).remote(), 404));
    // Not a network of the mesh, or not one at all.
    for name in ["fc03000000000000.", "fd03.", ""] {
        let line = format!("MESSAGE {}", gruu.replace("fd03000000000000.", name));
        mesh.call(0, ALICE, "alice", &line);
        mesh.expect(0, ALICE, "404");
    }
    mesh.finish();
}

/// Whoever makes a proxy send to a router of its choice has proved to be a user, as for any request.
#[test]
fn strangers_send_to_no_router_of_their_choice() {
    let mut mesh = Mesh::new(2, true);
    let gruu = register(&mut mesh, 1, BOB, "bob", "one");
    let w = &mut mesh.routers[0];
    for from in ["sip:alice@example.org", "sip:alice@elsewhere.net", "tel:+123"] {
        let request = w.request(ALICE, &format!("MESSAGE {gruu}"));
        w.from(ALICE, &request.set("From", format!("<{from}>;tag=1")));
        w.expect(ALICE, "407");
    }
    let ack = w.request(ALICE, &format!("ACK {gruu}"));
    w.from(ALICE, &ack.set("From", "<sip:alice@elsewhere.net>;tag=1"));
    mesh.finish();
}

/// The name of a router in a temporary GRUU is whatever a user has written: where a routing rule leads, it leads nowhere.
#[test]
fn a_temporary_gruu_leads_to_no_gateway() {
    let mut mesh = Mesh::new(2, true);
    let gruu = register(&mut mesh, 1, BOB, "bob", "one");
    for (next_hop, sent) in [("sip:[fd03::1]:5060", true), ("sip:[fd02::1]:5060", false)] {
        let mut w = World::with(|config| {
            in_mesh(config);
            digest(config);
            let number = UserMatch::Prefix("7".into());
            let next_hops = vec![hop(next_hop, 1, 1)];
            config.routes.rules = vec![Rule { next_hops, ..rule(DomainMatch::Own, number) }];
        });
        let request = w.request(ALICE, &format!("MESSAGE {gruu}"));
        w.from(ALICE, &request);
        let challenged = w.expect(ALICE, "407");
        w.from(ALICE, &answered(&request, &challenged, "alice", "z9hG4bKagain"));
        if sent {
            let got = w.expect(ROUTER, &format!("MESSAGE {gruu}"));
            w.answer(ROUTER, &got, 200);
        }
        w.expect(ALICE, if sent { "200" } else { "404" });
        w.finish();
    }
}
