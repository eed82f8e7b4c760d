//! Phones that are registered at several nodes of a cluster (RFC 5626): each is called by one of them.

use crate::common::elsewhere::Server;
use crate::common::*;
use crate::relay::digest;
use ringway_proxy::config::{ClusterNodes, Config, NodeKey};
use ringway_proxy::location::instance_hash;
use ringway_sansio::{Duration, Time};

const KEY: NodeKey = NodeKey([7; 16]);
const DESK: &str = "urn:uuid:00000000-0000-1000-8000-000a95a0e128";
const POCKET: &str = "urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6";

/// A node of a cluster with two others, at [`PROXY`] and [`GATEWAY`].
fn cluster() -> World {
    World::with(|config| *config = configured(&[PROXY, GATEWAY]))
}

fn configured(others: &[Peer]) -> Config {
    let mut config = config();
    digest(&mut config);
    config.nodes = nodes(others);
    config
}

fn nodes(peers: &[Peer]) -> ClusterNodes {
    ClusterNodes::new(peers.iter().map(Peer::remote).collect(), KEY)
}

fn hash(instance: &str) -> String {
    format!("{:016x}", instance_hash(instance.as_bytes()))
}

fn until(w: &World, seconds: u64) -> Time {
    w.now + Duration::from_secs(seconds)
}

/// A request of Alice, with her credentials.
fn call(w: &mut World, line: &str) -> Msg {
    let request = w.request(ALICE, line);
    w.from(ALICE, &request);
    let challenged = w.expect(ALICE, "407");
    let request = crate::relay::answered(&request, &challenged, "alice", &w.branch());
    w.from(ALICE, &request);
    request
}

fn route(message: &Msg) -> String {
    message.get("Route").to_string()
}

/// RFC 5626 section 7: over one flow at a time; the registration that ends last comes first.
#[test]
fn a_phone_at_two_nodes_is_called_by_one() {
    let mut w = cluster();
    let phones = |w: &World, first, second| {
        w.with_phones(
            "bob",
            vec![
                Server::with_phones(PROXY, until(w, first), &[DESK], false),
                Server::with_phones(GATEWAY, until(w, second), &[DESK], false),
            ],
        );
    };
    phones(&w, 60, 70);
    call(&mut w, "MESSAGE sip:bob@example.org");
    let got = w.expect(GATEWAY, "MESSAGE");
    assert!(!route(&got).contains("="), "all of its phones: {got}");
    w.answer(GATEWAY, &got, 200);
    w.expect(ALICE, "200");
    phones(&w, 70, 60);
    call(&mut w, "MESSAGE sip:bob@example.org");
    let got = w.expect(PROXY, "MESSAGE");
    w.answer(PROXY, &got, 486);
    w.expect(ALICE, "486");
    w.finish();
}

/// Section 7: 430, 408 and, from a server, 503 say that another flow is to be tried, for this phone alone.
#[test]
fn another_node_is_asked_for_a_phone_that_the_first_does_not_reach() {
    for status in [430, 503, 408] {
        let mut w = cluster();
        w.with_phones(
            "bob",
            vec![
                Server::with_phones(PROXY, until(&w, 70), &[DESK], true),
                Server::with_phones(GATEWAY, until(&w, 60), &[DESK, POCKET], false),
            ],
        );
        call(&mut w, "MESSAGE sip:bob@example.org");
        let desk = w.expect(PROXY, "MESSAGE");
        let pocket = w.expect(GATEWAY, "MESSAGE");
        assert!(route(&pocket).ends_with(&format!(";lr;without={}>", hash(DESK))), "{pocket}");
        w.answer(PROXY, &desk, status);
        let again = w.expect(GATEWAY, "MESSAGE");
        assert!(route(&again).ends_with(&format!(";lr;only={}>", hash(DESK))), "{again}");
        for message in [&pocket, &again] {
            w.answer(GATEWAY, message, 486);
        }
        w.expect(ALICE, "486");
        w.finish();
    }
}

/// A phone that has moved to another node is called there, one that has come from it here.
#[test]
fn the_later_registration_of_a_phone_is_used_here_or_elsewhere() {
    for (there, is_here) in [(3000, true), (4000, false)] {
        let mut w = cluster();
        w.bind("bob", bind(BOB.contact()).instance(DESK));
        w.bind("bob", bind(BOB2.contact()).instance(POCKET).q(500));
        let server = Server::with_phones(PROXY, until(&w, there), &[DESK], false);
        w.with_phones("bob", vec![server]);
        call(&mut w, "MESSAGE sip:bob@example.org");
        let (first, second) = if is_here { (BOB, PROXY) } else { (PROXY, BOB) };
        let got = w.expect(first, "MESSAGE");
        w.answer(first, &got, 408);
        // Where the first way fails there is the second, and then the phone of the next q.
        let got = w.expect(second, "MESSAGE");
        w.answer(second, &got, 480);
        let got = w.expect(BOB2, "MESSAGE");
        w.answer(BOB2, &got, 486);
        w.expect(ALICE, "480");
        w.finish();
    }
}

/// What a node asks for is called here, and nothing else; where the flow has closed the node knows by 430.
#[test]
fn a_node_is_asked_for_some_phones() {
    let route = |parameter: &str| format!("<sip:example.org;lr;node={};{parameter}>", KEY.text());
    let (desk, pocket) = (hash(DESK), hash(POCKET));
    for (parameter, called) in [
        (format!("only={desk}"), vec![BOB]),
        (format!("only={pocket}.{desk}"), vec![BOB, BOB2]),
        (format!("without={desk}"), vec![BOB2, ALICE]),
        ("only=nobody".to_owned(), vec![BOB, BOB2, ALICE]),
        ("only=0".to_owned(), vec![]),
    ] {
        let mut w = cluster();
        w.speaks(PROXY, "dave", Some(true));
        w.bind("bob", bind(BOB.contact()).instance(DESK));
        w.bind("bob", bind(BOB2.contact()).instance(POCKET));
        w.bind("bob", bind(ALICE.contact()));
        let message = w.request(PROXY, "MESSAGE sip:bob@example.org");
        let message = message.set("From", "<sip:dave@example.org>;tag=there");
        w.from(PROXY, &message.add("Route", route(&parameter)));
        for &peer in &called {
            let got = w.expect(peer, "MESSAGE");
            assert!(!got.to_string().contains(&desk), "a phone need not know: {got}");
            w.answer(peer, &got, 486);
        }
        w.expect(PROXY, if called.is_empty() { "430" } else { "486" });
        w.finish();
    }
}

/// Who is no node does not choose the phones of a user.
#[test]
fn a_stranger_does_not_choose_phones() {
    let mut w = cluster();
    w.bind("bob", bind(BOB.contact()).instance(DESK));
    w.bind("bob", bind(BOB2.contact()).instance(POCKET));
    for parameter in ["only", "without"] {
        let request = w.request(ALICE, "MESSAGE sip:bob@example.org");
        let request =
            request.add("Route", format!("<sip:example.org;lr;{parameter}={}>", hash(DESK)));
        w.from(ALICE, &request);
        let challenged = w.expect(ALICE, "407");
        let request = crate::relay::answered(&request, &challenged, "alice", &w.branch());
        w.from(ALICE, &request);
        for peer in [BOB, BOB2] {
            let got = w.expect(peer, "MESSAGE");
            w.answer(peer, &got, 486);
        }
        w.expect(ALICE, "486");
    }
    w.finish();
}

/// The same for a GRUU: the phone is not here any more.
#[test]
fn a_node_is_asked_for_a_phone_that_has_gone() {
    let mut w = cluster();
    w.speaks(PROXY, "dave", Some(true));
    w.bind("bob", bind(BOB.contact()).instance(DESK));
    for uri in ["sip:carol@example.org", &format!("sip:bob@example.org;gr={POCKET}")] {
        let message = w.request(PROXY, &format!("MESSAGE {uri}"));
        let message = message.set("From", "<sip:dave@example.org>;tag=there");
        w.from(PROXY, &message.add("Route", format!("<sip:example.org;lr;node={}>", KEY.text())));
        w.expect(PROXY, "430");
    }
    w.finish();
}

/// RFC 5626 section 11.5: a client never receives 430, a node does.
#[test]
fn a_node_knows_that_a_flow_has_closed() {
    let mut w = cluster();
    w.speaks(PROXY, "dave", Some(true));
    w.bind("bob", bind(BOB.contact()).instance(DESK).path("<sip:203.0.113.60;lr>"));
    let message = w.request(PROXY, "MESSAGE sip:bob@example.org");
    let message = message.set("From", "<sip:dave@example.org>;tag=there");
    let edge = Peer { addr: "203.0.113.60:5060", ..GATEWAY2 };
    w.from(PROXY, &message.add("Route", format!("<sip:example.org;lr;node={}>", KEY.text())));
    let got = w.expect(edge, "MESSAGE");
    w.answer(edge, &got, 430);
    w.expect(PROXY, "430");
    call(&mut w, "MESSAGE sip:bob@example.org");
    let got = w.expect(edge, "MESSAGE");
    w.answer(edge, &got, 430);
    w.expect(ALICE, "480");
    w.finish();
}

/// A node that has died answers nothing, not even with 100: the others are asked as soon as its lease has ended.
#[test]
fn what_waits_for_a_node_that_is_gone_goes_another_way() {
    for method in ["INVITE", "MESSAGE"] {
        let mut w = cluster();
        w.with_phones(
            "bob",
            vec![
                Server::with_phones(PROXY, until(&w, 70), &[DESK], false),
                Server::with_phones(GATEWAY, until(&w, 60), &[DESK], false),
            ],
        );
        call(&mut w, &format!("{method} sip:bob@example.org"));
        if method == "INVITE" {
            w.expect(ALICE, "100");
        }
        w.expect(PROXY, method);
        w.nodes_gone(&[PROXY]);
        let got = w.expect(GATEWAY, method);
        assert!(route(&got).contains(";only="), "{got}");
        w.answer(GATEWAY, &got, 200);
        w.expect(ALICE, "200");
    }
}

/// A node that has answered lives, though its lease has ended: it may be about to stop.
#[test]
fn what_a_node_has_answered_goes_on_when_its_lease_ends() {
    let mut w = cluster();
    w.elsewhere("bob", &[(PROXY, 1000)]);
    let invite = call(&mut w, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(PROXY, "INVITE");
    w.answer(PROXY, &got, 180);
    w.expect(ALICE, "180");
    w.nodes_gone(&[PROXY]);
    w.answer(PROXY, &got, 200);
    let ok = w.expect(ALICE, "200");
    let mut caller = Dialog::of_caller(ALICE, &invite, &ok);
    w.from(ALICE, &caller.request("ACK", "z9hG4bKack"));
    w.expect(PROXY, "ACK");
    w.finish();
}

/// Without another way the user is not available.
#[test]
fn a_user_of_a_node_that_is_gone_is_not_available() {
    let mut w = cluster();
    w.elsewhere("bob", &[(PROXY, 1000)]);
    call(&mut w, "MESSAGE sip:bob@example.org");
    w.expect(PROXY, "MESSAGE");
    w.nodes_gone(&[PROXY]);
    w.expect(ALICE, "480");
    // One that has ended its lease itself is about to stop, and answers.
    call(&mut w, "MESSAGE sip:bob@example.org");
    let got = w.expect(PROXY, "MESSAGE");
    w.reconfigure(configured(&[GATEWAY]));
    w.answer(PROXY, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 3261 section 17.1.4: the node may live after all. Whom it rings is cancelled, and who answers is no lost call.
#[test]
fn a_late_answer_of_a_node_that_seemed_gone_is_dealt_with() {
    for status in [180, 200] {
        let mut w = cluster();
        w.elsewhere("bob", &[(PROXY, 1000)]);
        call(&mut w, "INVITE sip:bob@example.org");
        w.expect(ALICE, "100");
        let got = w.expect(PROXY, "INVITE");
        w.nodes_gone(&[PROXY]);
        w.expect(ALICE, "480");
        w.answer(PROXY, &got, status);
        match status {
            180 => drop(w.expect(PROXY, "CANCEL")),
            _ => drop(w.expect(ALICE, "200")),
        }
    }
}

/// What is gone as well is no other way.
#[test]
fn no_node_that_is_gone_is_asked_instead() {
    for gone in [&[&[PROXY, GATEWAY][..]][..], &[&[GATEWAY], &[PROXY]]] {
        let mut w = cluster();
        let server = |peer, ends| Server::with_phones(peer, ends, &[DESK], false);
        w.with_phones("bob", vec![server(PROXY, until(&w, 70)), server(GATEWAY, until(&w, 60))]);
        call(&mut w, "MESSAGE sip:bob@example.org");
        w.expect(PROXY, "MESSAGE");
        gone.iter().for_each(|gone| w.nodes_gone(gone));
        w.expect(ALICE, "480");
        w.finish();
    }
}

/// RFC 5626 section 7: a final answer of the phone but 408 and 430 holds for all of its flows, 503 too.
#[test]
fn a_phone_that_is_busy_is_not_called_by_another_node() {
    let mut w = cluster();
    w.speaks(PROXY, "dave", Some(true));
    w.bind("bob", bind(BOB.contact()).instance(DESK));
    w.with_phones("bob", vec![Server::with_phones(PROXY, until(&w, 3000), &[DESK], false)]);
    call(&mut w, "MESSAGE sip:bob@example.org");
    let got = w.expect(BOB, "MESSAGE");
    w.answer(BOB, &got, 503);
    w.expect(ALICE, "500");
    let message = w.request(PROXY, "MESSAGE sip:bob@example.org");
    let message = message.set("From", "<sip:dave@example.org>;tag=there");
    w.from(PROXY, &message.add("Route", format!("<sip:example.org;lr;node={}>", KEY.text())));
    let got = w.expect(BOB, "MESSAGE");
    w.answer(BOB, &got, 503);
    w.expect(PROXY, "500");
    w.finish();
}

/// Whatever a node answers that does not reach the phone: it is here, too.
#[test]
fn a_phone_is_called_here_if_another_node_does_not_reach_it() {
    for status in [430, 503, 407, 408] {
        let mut w = cluster();
        w.bind("bob", bind(BOB.contact()).instance(DESK));
        w.with_phones("bob", vec![Server::with_phones(PROXY, until(&w, 4000), &[DESK], false)]);
        call(&mut w, "MESSAGE sip:bob@example.org");
        let got = w.expect(PROXY, "MESSAGE");
        w.answer(PROXY, &got, status);
        let got = w.expect(BOB, "MESSAGE");
        w.answer(BOB, &got, 200);
        w.expect(ALICE, "200");
        w.finish();
    }
}

/// The end that is known of another node may be that of another phone there.
#[test]
fn a_phone_is_called_here_where_another_node_has_several() {
    for (phones, others) in [(&[DESK, POCKET][..], false), (&[DESK], true)] {
        let mut w = cluster();
        w.bind("bob", bind(BOB.contact()).instance(DESK));
        w.with_phones("bob", vec![Server::with_phones(PROXY, until(&w, 4000), phones, others)]);
        call(&mut w, "MESSAGE sip:bob@example.org");
        let got = w.expect(BOB, "MESSAGE");
        let other = w.expect(PROXY, "MESSAGE");
        assert!(route(&other).contains(";without="), "{other}");
        w.answer(PROXY, &other, 486);
        w.answer(BOB, &got, 200);
        w.expect(ALICE, "200");
        w.finish();
    }
}

/// A node may send a call in two parts. When the phones of one refuse, the callee of the other can still hang up.
#[test]
fn a_part_that_is_refused_leaves_the_other_its_marks() {
    let mut w = cluster();
    w.speaks(PROXY, "dave", Some(true));
    w.bind("bob", bind(BOB.contact()).instance(DESK));
    w.bind("bob", bind(BOB2.contact()).instance(POCKET));
    let part = |w: &mut World, parameter: &str| {
        let route = format!("<sip:example.org;lr;node={};{parameter}={}>", KEY.text(), hash(DESK));
        let invite = w.request(PROXY, "INVITE sip:bob@example.org").set("Call-ID", "one-call");
        let invite = invite.set("From", "<sip:dave@example.org>;tag=there").add("Route", route);
        w.from(PROXY, &invite);
    };
    part(&mut w, "only");
    let desk = w.expect(BOB, "INVITE");
    part(&mut w, "without");
    let pocket = w.expect(BOB2, "INVITE");
    w.answer(BOB, &desk, 200);
    let ok = w.expect(PROXY, "200");
    w.answer(BOB2, &pocket, 486);
    w.expect(BOB2, "ACK");
    w.expect(PROXY, "486");
    let mut callee = Dialog::of_callee(BOB, &desk, &ok);
    w.from(BOB, &callee.request("BYE", "z9hG4bKbye"));
    w.expect(PROXY, "BYE");
}
