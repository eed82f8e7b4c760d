//! The address of ours that requests to a phone come from: the one that it has registered at, or has sent to in the
//! dialog. A firewall lets no other through, and some phones check it.

use crate::common::*;
use ringway_sansio::{Flow, FlowId, Target, Transport};
use std::net::SocketAddr;

/// A phone, and another on the same LAN.
const PHONE: Peer = BOB.at("[2001:db8:5::7]:5062");
const CALLER: Peer = ALICE.at("[2001:db8:5::9]:5060");

/// What the proxy sees of a datagram of the phone to an address that is not the one of the route back.
fn flow(peer: Peer, local: SocketAddr) -> Flow {
    Flow { id: FlowId::new(0, 0), transport: Transport::Udp, local, remote: peer.remote() }
}

fn anycast() -> SocketAddr {
    (ANYCAST, 5060).into()
}

fn world(workers: u8) -> World {
    World::build(workers, &[], |config| config.addresses = vec![ANYCAST.into(), LAN.into()])
}

/// Registers a phone at an address of the proxy.
fn register(w: &mut World, peer: Peer, user: &str, local: SocketAddr, contact: &str) {
    let request = w.request(peer, "REGISTER sip:example.org");
    let aor = format!("<sip:{user}@example.org>");
    let request = request.set("From", format!("{aor};tag=1")).set("To", aor);
    w.bytes_from(0, flow(peer, local), &request.set("Contact", format!("<{contact}>")).bytes());
    let ok = w.sent.pop_front().expect("an answer");
    assert_eq!(ok.msg.status(), 200);
    assert_eq!(ok.to, Target::Flow(flow(peer, local)));
}

/// The next message, and the address of ours that it is sent from: the one that is written in it, and the one that the
/// socket is to use, if not that of the route.
fn next(w: &mut World, peer: Peer, words: &str) -> (Msg, Option<Flow>) {
    let sent = w.sent.pop_front().expect("something is sent");
    assert_eq!(sent.to.remote(), peer.remote());
    assert!(sent.msg.is(words), "expected {words}, got {:?}", sent.msg);
    let from = match sent.to {
        Target::Flow(flow) => Some(flow),
        Target::Peer { .. } => None,
    };
    (sent.msg, from)
}

fn sent_by(msg: &Msg) -> String {
    let via = msg.get("Via");
    via.split([' ', ';']).nth(1).unwrap().to_string()
}

/// RFC 3261 section 18.1.1 leaves it open; RFC 5658: the Record-Route has the address that the phone knows.
#[test]
fn a_request_comes_from_the_address_that_the_phone_has_registered_at() {
    let mut w = world(2);
    register(&mut w, PHONE, "bob", anycast(), &PHONE.contact());
    // The call comes to another worker.
    let invite = w.request(CALLER, "INVITE sip:bob@example.org");
    w.arrives(1, CALLER, &invite);
    w.expect(CALLER, "100");
    let (got, from) = next(&mut w, PHONE, "INVITE");
    assert_eq!(from, Some(Flow { id: FlowId::new(1, 0), ..flow(PHONE, anycast()) }));
    assert_eq!(sent_by(&got), anycast().to_string());
    let routes = got.all("Record-Route");
    assert!(routes[0].contains(&format!("@{}", anycast())), "{routes:?}");
    // The CANCEL and the ACK of a refusal take the path of the INVITE.
    w.bytes_from(1, flow(PHONE, anycast()), &response(PHONE, &got, 180).bytes());
    w.expect(CALLER, "180");
    w.arrives(1, CALLER, &cancel(&invite));
    w.expect(CALLER, "200");
    assert!(next(&mut w, PHONE, "CANCEL").1.is_some());
    w.bytes_from(1, flow(PHONE, anycast()), &response(PHONE, &got, 487).bytes());
    assert!(next(&mut w, PHONE, "ACK").1.is_some());
    w.ignore();
    w.finish_anyhow();
}

/// Requests within the dialog come from there too, in both directions.
#[test]
fn requests_within_the_dialog_come_from_there_too() {
    let mut w = world(1);
    register(&mut w, PHONE, "bob", anycast(), &PHONE.contact());
    let invite = w.request(CALLER, "INVITE sip:bob@example.org");
    let near: SocketAddr = (LAN, 5060).into();
    let caller = CALLER.at("10.50.60.9:5060");
    let invite = invite.set("Contact", format!("<{}>", caller.contact()));
    let invite = invite.set("Via", via(caller, "z9hG4bKinvite"));
    w.bytes_from(0, flow(caller, near), &invite.bytes());
    w.expect(caller, "100");
    let (got, _) = next(&mut w, PHONE, "INVITE");
    let ok = response(PHONE, &got, 200);
    w.bytes_from(0, flow(PHONE, anycast()), &ok.bytes());
    let answer = w.expect(caller, "200");
    let mut near_side = Dialog::of_caller(caller, &invite, &answer);
    let mut far_side = Dialog::of_callee(PHONE, &got, &ok);
    for method in ["ACK", "INFO", "BYE"] {
        let request = near_side.request(method, &format!("z9hG4bK{method}"));
        w.bytes_from(0, flow(caller, near), &request.bytes());
        let (got, from) = next(&mut w, PHONE, method);
        assert_eq!(from, Some(flow(PHONE, anycast())), "{method}");
        assert_eq!(sent_by(&got), anycast().to_string());
        if method == "INFO" {
            w.bytes_from(0, flow(PHONE, anycast()), &response(PHONE, &got, 200).bytes());
            w.expect(caller, "200");
            let back = far_side.request("INFO", "z9hG4bKback");
            w.bytes_from(0, flow(PHONE, anycast()), &back.bytes());
            let (got, _) = next(&mut w, caller, "INFO");
            assert_eq!(sent_by(&got), near.to_string());
            w.from(caller, &response(caller, &got, 200));
            assert!(
                matches!(next(&mut w, PHONE, "200"), (_, Some(from)) if from.local == anycast())
            );
        }
    }
    w.finish_anyhow();
}

/// An address that is ours no longer is not used, nor is it for a contact elsewhere.
#[test]
fn another_address_is_sent_from_only_where_it_serves() {
    let gone: SocketAddr = "[fd99::1]:5060".parse().unwrap();
    for (local, contact) in [
        (gone, PHONE.contact()),
        (anycast(), "sip:bob@[2001:db8:5::8]:5062".into()),
        (PHONE.local(), PHONE.contact()),
    ] {
        let mut w = world(1);
        register(&mut w, PHONE, "bob", local, &contact);
        w.call(CALLER, "MESSAGE sip:bob@example.org");
        let sent = w.sent.pop_front().expect("a request");
        assert!(matches!(sent.to, Target::Peer { .. }), "{local} {contact}");
        assert_eq!(sent_by(&sent.msg), PHONE.local().to_string());
        w.finish_anyhow();
    }
}

/// RFC 3261 section 18.1.1: a long request takes TCP first, as to any contact.
#[test]
fn a_long_request_takes_tcp_first() {
    let mut w = world(1);
    register(&mut w, PHONE, "bob", anycast(), &PHONE.contact());
    let long = w.request(CALLER, "MESSAGE sip:bob@example.org").add("Subject", "x".repeat(1300));
    w.break_way(Transport::Tcp, PHONE.addr);
    w.from(CALLER, &long);
    let (got, from) = next(&mut w, PHONE, "MESSAGE");
    assert_eq!(from, Some(flow(PHONE, anycast())), "by UDP after TCP was refused");
    assert!(got.get("Via").starts_with("SIP/2.0/UDP"));
    w.finish_anyhow();
}
