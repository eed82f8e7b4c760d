//! Other nodes of a cluster.

use crate::common::*;
use crate::relay::digest;
use ringway_proxy::config::{ClusterNodes, NodeKey};

const KEY: NodeKey = NodeKey([7; 16]);

/// A server of which another proxy is a fellow node, or a stranger.
fn beside(is_node: bool) -> World {
    let mut w = World::with(|config| {
        digest(config);
        if is_node {
            config.nodes = ClusterNodes::new(vec![PROXY.remote()], KEY);
        }
    });
    w.register("bob", BOB);
    w.speaks(PROXY, "dave", Some(true));
    w
}

/// A request by a Route with the key that this server has given to other nodes.
fn from_dave(w: &mut World, line: &str) -> Msg {
    let route = format!("<sip:example.org;lr;node={}>", KEY.text());
    without_key(w, line).add("Route", route)
}

fn without_key(w: &mut World, line: &str) -> Msg {
    w.request(PROXY, line).set("From", "<sip:dave@example.org>;tag=there")
}

/// RFC 3261 section 16.3 item 6: a node has asked its users for proof; nobody else is believed.
#[test]
fn a_node_sends_for_its_users_without_credentials() {
    let mut w = beside(true);
    let message = from_dave(&mut w, "MESSAGE sip:bob@example.org");
    w.from(PROXY, &message);
    let got = w.expect(BOB, "MESSAGE sip:bob@203.0.113.2:5060");
    assert!(!got.to_string().contains(&KEY.text()), "a phone learns the key: {got}");
    w.answer(BOB, &got, 200);
    w.expect(PROXY, "200");
    w.finish();
    let mut w = beside(false);
    let message = from_dave(&mut w, "MESSAGE sip:bob@example.org");
    w.from(PROXY, &message);
    w.expect(PROXY, "407");
    w.finish();
}

/// A request of a node is for the contacts here: it goes to no third node, and registers nobody.
#[test]
fn a_request_of_a_node_goes_to_no_other_node() {
    let mut w = beside(true);
    w.elsewhere("alice", &[(ROUTER, 1000)]);
    let message = from_dave(&mut w, "MESSAGE sip:alice@example.org");
    w.from(PROXY, &message);
    w.expect(PROXY, "430");
    let register = from_dave(&mut w, "REGISTER sip:example.org");
    w.from(PROXY, &register.set("To", "<sip:dave@example.org>"));
    w.expect(PROXY, "403");
    w.finish();
}

/// A datagram with the source address of a node, or a connection from its host, may be of another program or of a phone behind
/// it: without this server's key it is a stranger's, with a wrong one too.
#[test]
fn the_address_of_a_node_proves_nothing() {
    let mut w = beside(true);
    let other = NodeKey([8; 16]).text();
    for route in [
        "",
        "<sip:example.org;lr>",
        "<sip:example.org;lr;node>",
        "<sip:example.org;lr;node=07>",
        &other,
    ] {
        let route = if route == other {
            format!("<sip:example.org;lr;node={other}>")
        } else {
            route.into()
        };
        let mut message = without_key(&mut w, "MESSAGE sip:bob@example.org");
        if !route.is_empty() {
            message = message.add("Route", &route);
        }
        w.from(PROXY, &message);
        w.expect(PROXY, "407");
    }
    // A second Route is for another server.
    let message = from_dave(&mut w, "MESSAGE sip:bob@example.org");
    w.from(PROXY, &message.top("Route", "<sip:example.org;lr>"));
    w.expect(PROXY, "407");
    w.finish();
}

/// The key is no password of its own: it is for requests from the addresses of nodes. A node that is not known to live, as
/// after its network was cut, gets no challenge: its user has been asked for proof there.
#[test]
fn the_key_alone_proves_nothing() {
    let mut w = beside(true);
    let message = from_dave(&mut w, "MESSAGE sip:bob@example.org");
    w.from(GATEWAY, &message);
    w.expect(GATEWAY, "430");
    w.finish();
}

/// RFC 3261 section 17.2.1: an INVITE of a node that is answered within 200 ms has no 100 before, nor after.
#[test]
fn a_quick_answer_to_a_node_has_no_100() {
    let mut w = beside(true);
    let invite = from_dave(&mut w, "INVITE sip:bob@example.org");
    w.from(PROXY, &invite);
    let got = w.expect(BOB, "INVITE");
    w.quiet();
    w.pass_ms(199);
    w.answer(BOB, &got, 180);
    w.expect(PROXY, "180");
    w.pass_secs(5);
    w.quiet();
    w.answer(BOB, &got, 200);
    w.expect(PROXY, "200");
    w.finish();
    let mut w = beside(true);
    let invite = from_dave(&mut w, "INVITE sip:bob@example.org");
    w.from(PROXY, &invite);
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 486);
    w.expect(BOB, "ACK");
    let answer = w.expect(PROXY, "486");
    w.from(PROXY, &ack(&invite, &answer));
    w.pass_secs(5);
    w.quiet();
    w.finish();
}

/// RFC 3261 section 17.2.1: after 200 ms without a response a node gets a 100, once, and again for a retransmission.
#[test]
fn a_slow_answer_to_a_node_is_preceded_by_a_100() {
    let mut w = beside(true);
    let invite = from_dave(&mut w, "INVITE sip:bob@example.org");
    w.from(PROXY, &invite);
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 100);
    w.pass_ms(100);
    w.from(PROXY, &invite);
    w.pass_ms(99);
    w.quiet();
    w.pass_ms(1);
    assert_eq!(
        w.expect(PROXY, "100 INVITE").to_string().lines().next(),
        Some("SIP/2.0 100 Trying")
    );
    w.pass_ms(300);
    w.quiet();
    w.from(PROXY, &invite);
    w.expect(PROXY, "100");
    w.answer(BOB, &got, 200);
    w.expect(PROXY, "200");
    w.finish();
}

/// RFC 3261 section 16.10: a CANCEL of a node that comes before its 100 is for the phone, too.
#[test]
fn a_node_cancels_before_it_has_a_100() {
    let mut w = beside(true);
    let invite = from_dave(&mut w, "INVITE sip:bob@example.org");
    w.from(PROXY, &invite);
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 100);
    w.from(PROXY, &cancel(&invite));
    w.expect(PROXY, "200 CANCEL");
    let there = w.expect(BOB, "CANCEL");
    w.answer(BOB, &there, 200);
    w.answer(BOB, &got, 487);
    w.expect(BOB, "ACK");
    let answer = w.expect(PROXY, "487");
    w.from(PROXY, &ack(&invite, &answer));
    w.pass_secs(5);
    w.quiet();
    w.finish();
}
