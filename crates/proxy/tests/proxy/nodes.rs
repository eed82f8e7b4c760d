//! Other nodes of a cluster.

use crate::common::*;
use crate::relay::digest;
use ringway_proxy::config::ClusterNodes;

/// A server of which another proxy is a fellow node, or a stranger.
fn beside(is_node: bool) -> World {
    let mut w = World::with(|config| {
        digest(config);
        if is_node {
            config.nodes = ClusterNodes(vec![PROXY.remote()]);
        }
    });
    w.register("bob", BOB);
    w.speaks(PROXY, "dave", Some(true));
    w
}

fn from_dave(w: &mut World, line: &str) -> Msg {
    w.request(PROXY, line).set("From", "<sip:dave@example.org>;tag=there")
}

/// RFC 3261 section 16.3 item 6: a node has asked its users for proof; nobody else is believed.
#[test]
fn a_node_sends_for_its_users_without_credentials() {
    let mut w = beside(true);
    let message = from_dave(&mut w, "MESSAGE sip:bob@example.org");
    w.from(PROXY, &message);
    let got = w.expect(BOB, "MESSAGE sip:bob@203.0.113.2:5060");
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
    w.expect(PROXY, "480");
    let register = from_dave(&mut w, "REGISTER sip:example.org");
    w.from(PROXY, &register.set("To", "<sip:dave@example.org>"));
    w.expect(PROXY, "403");
    w.finish();
}
