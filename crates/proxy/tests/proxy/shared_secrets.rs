//! Tokens of one node of a cluster at another: dialogs, flows, nonces, temporary GRUUs.

use crate::common::*;
use crate::relay::{answered, digest};
use ringway_proxy::config::{ClusterNodes, NodeKey};
use ringway_proxy::keys::{Keyring, Purpose, Secret, SharedSecret};
use ringway_proxy::mark::{Beside, DialogId, Mark, MarkKey, Marks, RouterHash, Side};
use ringway_sansio::Time;

const OUTSIDE: &str = "<sip:eve@example.com>;tag=eve";
const KEY: NodeKey = NodeKey([7; 16]);

/// A node with a secret of its own, and secrets that it shares with others: the first is in use.
fn node(own: u8, shared: &[u8]) -> World {
    World::with(|config| {
        digest(config);
        config.secret = Secret::new(&[own; 32]);
        config.nodes = nodes(shared);
    })
}

fn nodes(shared: &[u8]) -> ClusterNodes {
    let secrets: Vec<SharedSecret> = shared.iter().map(|&s| SharedSecret([s; 32])).collect();
    ClusterNodes::new(vec![PROXY.remote()], KEY).sharing(secrets)
}

/// A call of a stranger to bob: what each side sends within it.
fn established(w: &mut World) -> (Dialog, Dialog) {
    let (caller, bob) = (GATEWAY, BOB);
    w.register("bob", bob);
    let invite = w.request(caller, "INVITE sip:bob@example.org").set("From", OUTSIDE);
    w.from(caller, &invite);
    w.expect(caller, "100");
    let got = w.expect(bob, "INVITE");
    let ok = w.answer(bob, &got, 200);
    let ok_there = w.expect(caller, "200");
    let mut here = Dialog::of_caller(caller, &invite, &ok_there);
    w.from(caller, &here.request("ACK", "z9hG4bKack"));
    w.expect(bob, "ACK");
    (here, Dialog::of_callee(bob, &got, &ok))
}

/// A node that takes over the address of another one carries on with its calls, without credentials as before.
#[test]
fn a_call_goes_on_where_its_address_has_gone() {
    let mut first = node(1, &[8]);
    let (mut here, mut there) = established(&mut first);
    // The second has another secret in use since then.
    for shared in [&[8][..], &[9, 8]] {
        let mut second = node(2, shared);
        let branch = second.branch();
        second.from(GATEWAY, &here.request("INFO", &branch));
        let got = second.expect(BOB, "INFO");
        second.answer(BOB, &got, 200);
        second.expect(GATEWAY, "200");
        let branch = second.branch();
        second.from(BOB, &there.request("INFO", &branch));
        let got = second.expect(GATEWAY, "INFO");
        second.answer(GATEWAY, &got, 200);
        second.expect(BOB, "200");
        second.finish();
    }
    let mut stranger = node(2, &[9]);
    stranger.from(GATEWAY, &here.request("BYE", "z9hG4bKbye"));
    stranger.expect(GATEWAY, "407");
    stranger.quiet();
}

/// RFC 3261 section 16.7 item 8: a proxy changes its own Record-Route value. Those of other nodes have marks under the same
/// key.
#[test]
fn the_marks_of_another_node_are_not_replaced() {
    let mut w = node(1, &[8]);
    w.register("bob", BOB);
    let invite = w.request(GATEWAY, "INVITE sip:bob@example.org").set("From", OUTSIDE);
    w.from(GATEWAY, &invite);
    w.expect(GATEWAY, "100");
    let got = w.expect(BOB, "INVITE");
    let ours = got.get("Record-Route").to_owned();
    let there = marked(w.now, &got, 8, "192.0.2.77:5060");
    w.answer(BOB, &got.top("Record-Route", &there), 200);
    let routes = w.expect(GATEWAY, "200").all("Record-Route");
    assert_eq!(routes[0], there);
    assert_ne!(routes[1], ours);
    w.ignore();
}

/// The Record-Route value of a node with this address and shared secret, for the callee of a request.
fn marked(now: Time, invite: &Msg, shared: u8, at: &str) -> String {
    let key = |secret: &Secret| secret.key(Purpose::DialogMarks);
    let secrets = Keyring::of_tokens(&[SharedSecret([shared; 32])], &Secret::new(&[3; 32]));
    let marks = Marks::new(secrets.map(key), key(&Secret::new(&[3; 32])));
    let mark = Mark {
        key: MarkKey::NEW,
        side: Side::Callee,
        began: now,
        target: marks.target(MarkKey::NEW, b"sip:a@192.0.2.1"),
        verified: true,
        caller_at: RouterHash::HERE,
        callee_at: RouterHash::HERE,
    };
    let caller_tag = invite.tag("From").unwrap().as_bytes();
    let call_id = invite.get("Call-ID").as_bytes();
    let dialog = DialogId { call_id, caller_tag, callee_tag: b"" };
    let beside = Beside { token: b"", address: at.parse().ok() };
    let text = marks.text(&mark, &dialog, &beside);
    format!("<sip:{}@{at};lr>", std::str::from_utf8(&text).unwrap())
}

/// A secret that comes into use changes nothing for calls and GRUUs of before.
#[test]
fn tokens_outlive_a_change_of_secrets() {
    let mut w = node(1, &[]);
    let (mut here, mut there) = established(&mut w);
    for shared in [&[8][..], &[9, 8], &[10, 9]] {
        let branch = w.branch();
        let at = if here.target.ends_with("5099") { BOB.at("203.0.113.2:5099") } else { BOB };
        let mut config = config();
        digest(&mut config);
        config.secret = Secret::new(&[1; 32]);
        config.nodes = nodes(shared);
        w.reconfigure(config);
        w.from(GATEWAY, &here.request("INFO", &branch));
        let got = w.expect(at, "INFO");
        w.answer(at, &got, 200);
        w.expect(GATEWAY, "200");
        // A target refresh (RFC 3261 section 12.2) counts for marks of any age.
        let branch = w.branch();
        let moved = there.request("UPDATE", &branch).set("Contact", "<sip:bob@203.0.113.2:5099>");
        w.from(BOB, &moved);
        let got = w.expect(GATEWAY, "UPDATE");
        w.answer(GATEWAY, &got, 200);
        w.expect(BOB, "200");
        here.target = "sip:bob@203.0.113.2:5099".into();
    }
    w.finish();
}

/// RFC 7616 section 3.3: the client need not ask for the password again.
#[test]
fn a_nonce_of_another_node_is_stale() {
    let mut first = node(1, &[8]);
    let (aor, contact) = ("<sip:alice@example.org>", "<sip:alice@198.51.100.1>");
    let request = first.request(ALICE, "REGISTER sip:example.org");
    let request = request.set("To", aor).set("Contact", contact);
    first.from(ALICE, &request);
    let challenged = first.expect(ALICE, "401");
    let answer = |w: &mut World| {
        let branch = w.branch();
        w.from(ALICE, &answered(&request, &challenged, "alice", &branch));
        w.expect(ALICE, "401").all("WWW-Authenticate")
    };
    let is_stale = |challenges: Vec<String>| challenges.iter().all(|c| c.contains("stale=true"));
    assert!(is_stale(answer(&mut node(2, &[9, 8]))));
    assert!(!is_stale(answer(&mut node(2, &[9]))));
    // A wrong password is one there too.
    let wrong = |mut w: World| {
        let branch = w.branch();
        let request = answered(&request, &challenged, "alice", &branch);
        let field = request.get("Authorization").to_owned();
        let (before, response) = field.split_once("response=\"").unwrap();
        let turned: String = response.split('"').next().unwrap().chars().rev().collect();
        let rest = response.split_once('"').unwrap().1;
        w.from(
            ALICE,
            &request.set("Authorization", format!("{before}response=\"{turned}\"{rest}")),
        );
        w.expect(ALICE, "401").all("WWW-Authenticate")
    };
    assert!(!is_stale(wrong(node(2, &[9, 8]))));
}

/// RFC 5627 section 5.4: who has the GRUU reaches the instance by any node.
#[test]
fn a_temporary_gruu_is_read_by_all_nodes() {
    let (mut home, mut other) = (node(1, &[8]), node(2, &[9, 8]));
    let contact = format!("<{}>;+sip.instance=\"<urn:uuid:1>\"", BOB.contact());
    let request = home.request(BOB, "REGISTER sip:example.org").set("Supported", "gruu");
    let aor = "<sip:bob@example.org>";
    let request =
        request.set("From", format!("{aor};tag=1")).set("To", aor).set("Contact", contact);
    home.from(BOB, &request);
    let challenged = home.expect(BOB, "401");
    let branch = home.branch();
    home.from(BOB, &answered(&request, &challenged, "bob", &branch));
    let ok = home.expect(BOB, "200");
    let (_, rest) = ok.get("Contact").split_once("temp-gruu=\"").expect("a temporary GRUU");
    let gruu = rest.split('"').next().unwrap();

    other.elsewhere("bob", &[(ROUTER, 1000)]);
    let message = other.request(GATEWAY, &format!("MESSAGE {gruu}")).set("From", OUTSIDE);
    other.from(GATEWAY, &message);
    let forwarded = other.expect(ROUTER, "MESSAGE");
    assert_eq!(forwarded.uri(), gruu, "no other node could see which phone it is for");
    // What the home answers to a node that the phone is not at is no answer to the caller.
    let at_home = |home: &mut World, uri: &str| {
        let route = format!("<sip:example.org;lr;node={}>", KEY.text());
        let message = home.request(PROXY, &format!("MESSAGE {uri}")).set("From", OUTSIDE);
        home.from(PROXY, &message.add("Route", route));
    };
    at_home(&mut home, gruu);
    let got = home.expect(BOB, "MESSAGE");
    home.answer(BOB, &got, 200);
    home.expect(PROXY, "200");
    at_home(&mut other, gruu);
    other.expect(PROXY, "430");
    other.answer(ROUTER, &forwarded, 430);
    other.expect(GATEWAY, "480");
    home.finish();
    other.finish();
}
