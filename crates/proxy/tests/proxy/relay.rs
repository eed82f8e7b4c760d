//! Who may send what where: no open relay.

use crate::common::*;
use ringway_proxy::config::{Config, Domain, Mode, Network};
use ringway_sip::digest::{Answer, authorize, choose};

pub fn digest(config: &mut Config) {
    config.auth.enabled = true;
}

pub fn closed() -> World {
    World::with(digest)
}

/// `request` with the answer to the challenge in `challenged`.
pub fn answered(request: &Msg, challenged: &Msg, user: &str, branch: &str) -> Msg {
    let header = if challenged.status() == 407 { "Proxy-Authenticate" } else { "WWW-Authenticate" };
    let challenges = challenged.all(header);
    let answer = Answer {
        user: user.as_bytes(),
        password: PASSWORD.as_bytes(),
        method: request.method().as_bytes(),
        uri: request.uri().as_bytes(),
        body: request.body.as_bytes(),
        count: 1,
        cnonce: b"cnonce",
    };
    let mut line = Vec::new();
    let challenge = choose(challenges.iter().map(String::as_bytes)).expect("a challenge");
    let name = if challenged.status() == 407 { "Proxy-Authorization" } else { "Authorization" };
    authorize(&mut line, name, &challenge, &answer);
    let line = String::from_utf8(line).unwrap();
    let value = line.trim().split_once(": ").unwrap().1;
    let number: u32 = request.get("CSeq").split(' ').next().unwrap().parse().unwrap();
    let via = request.get("Via").split(";branch=").next().unwrap().to_string();
    request
        .clone()
        .set("Via", format!("{via};branch={branch}"))
        .set("CSeq", format!("{} {}", number + 1, request.method()))
        .add(name, value)
}

/// An unauthenticated caller may call our users, and no others through this proxy.
#[test]
fn a_stranger_may_call_our_users_only() {
    let mut w = closed();
    w.register("bob", BOB);
    let from_outside = |m: Msg| m.set("From", "<sip:eve@example.com>;tag=1");
    let invite = from_outside(w.request(PROXY, "INVITE sip:bob@example.org"));
    w.from(PROXY, &invite);
    w.expect(PROXY, "100");
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 200);
    w.expect(PROXY, "200");
    for line in [
        "INVITE sip:victim@203.0.113.99",
        "MESSAGE sip:victim@elsewhere.example.net",
        "BYE sip:victim@203.0.113.99",
        "INVITE tel:+1900123",
    ] {
        let request = from_outside(w.request(PROXY, line));
        w.from(PROXY, &request);
        let answer = w.expect(PROXY, if line.contains("tel:") { "404" } else { "407" });
        assert_eq!(answer.has("Proxy-Authenticate"), !line.contains("tel:"));
    }
    // Neither by a Route to someone else.
    let request = from_outside(w.request(PROXY, "INVITE sip:bob@example.org"));
    w.from(PROXY, &request.add("Route", "<sip:203.0.113.99;lr>"));
    w.expect(PROXY, "407");
    // RFC 3261 section 22.1: an ACK cannot be challenged; it is dropped.
    let ack = from_outside(w.request(PROXY, "ACK sip:victim@203.0.113.99"));
    w.from(PROXY, &ack);
    w.finish_anyhow();
}

/// Nobody claims one of our names without proof.
#[test]
fn our_names_need_proof() {
    let mut w = closed();
    w.register("bob", BOB);
    let request = w.call(ALICE, "MESSAGE sip:bob@example.org");
    let challenged = w.expect(ALICE, "407");
    let again = answered(&request, &challenged, "alice", &w.branch());
    w.from(ALICE, &again);
    let got = w.expect(BOB, "MESSAGE");
    // RFC 3261 section 22.3: the credentials were for us.
    assert!(!got.has("Proxy-Authorization"));
    w.answer(BOB, &got, 200);
    w.expect(ALICE, "200");
    // And who proves to be one user does not call as another.
    let request = w.request(ALICE, "MESSAGE sip:bob@example.org");
    let request = request.set("From", "<sip:carol@example.org>;tag=1");
    w.from(ALICE, &request);
    let challenged = w.expect(ALICE, "407");
    let again = answered(&request, &challenged, "alice", &w.branch());
    w.from(ALICE, &again);
    w.expect(ALICE, "403");
    w.finish();
}

/// RFC 3261 section 22.3: only what was for us is taken off; credentials for a proxy behind us go on.
#[test]
fn credentials_for_others_go_on() {
    let mut w = closed();
    let request = w.call(ALICE, "INVITE sip:x@192.0.2.60");
    let challenged = w.expect(ALICE, "407");
    w.from(ALICE, &ack(&request, &challenged));
    let other = "Digest username=\"a\", realm=\"elsewhere.example.net\", nonce=\"n\", \
                 uri=\"sip:x@192.0.2.60\", response=\"00000000000000000000000000000000\"";
    let again =
        answered(&request, &challenged, "alice", &w.branch()).add("Proxy-Authorization", other);
    w.from(ALICE, &again);
    w.expect(ALICE, "100");
    let got = w.expect(GATEWAY, "INVITE");
    assert_eq!(got.all("Proxy-Authorization"), [other]);
    w.answer(GATEWAY, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// A trusted peer is not asked.
#[test]
fn a_trusted_peer_may_relay() {
    let mut w = World::with(|config| {
        digest(config);
        config.trusted = vec![Network { addr: "192.0.2.50".parse().unwrap(), prefix: 32 }];
    });
    w.call(PROXY, "MESSAGE sip:x@192.0.2.60");
    let got = w.expect(GATEWAY, "MESSAGE");
    w.answer(GATEWAY, &got, 200);
    w.expect(PROXY, "200");
    w.finish();
}

/// Within a dialog that was begun through us, both sides go on without credentials.
#[test]
fn a_dialog_needs_no_credentials() {
    let mut w = closed();
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    let challenged = w.expect(ALICE, "407");
    w.from(ALICE, &ack(&invite, &challenged));
    let invite = answered(&invite, &challenged, "alice", &w.branch());
    w.from(ALICE, &invite);
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    let ok = w.answer(BOB, &got, 200);
    let ok_there = w.expect(ALICE, "200");
    let mut caller = Dialog::of_caller(ALICE, &invite, &ok_there);
    let mut callee = Dialog::of_callee(BOB, &got, &ok);
    caller.cseq += 1;
    w.from(ALICE, &caller.request("ACK", "z9hG4bKack"));
    w.expect(BOB, "ACK");
    w.from(BOB, &callee.request("BYE", "z9hG4bKbye"));
    let bye = w.expect(ALICE, "BYE");
    w.answer(ALICE, &bye, 200);
    w.expect(BOB, "200");
    w.finish();
}

/// Who has had one call through us has seen its marks; they begin no other call, and are worth
/// nothing under another Call-ID.
#[test]
fn a_mark_is_good_for_its_dialog_only() {
    for peer in [PROXY, CAROL_TCP] {
        let mut w = closed();
        w.register("bob", BOB);
        let outside = "<sip:eve@example.com>;tag=1";
        let invite = w.request(peer, "INVITE sip:bob@example.org").set("From", outside);
        w.from(peer, &invite);
        w.expect(peer, "100");
        let got = w.expect(BOB, "INVITE");
        w.answer(BOB, &got, 200);
        let ok = w.expect(peer, "200");
        let mut caller = Dialog::of_caller(peer, &invite, &ok);
        w.from(peer, &caller.request("ACK", "z9hG4bKack"));
        w.expect(BOB, "ACK");
        // A new call under the same Call-ID, by the same Route.
        let branch = w.branch();
        let toll = caller.request("INVITE", &branch).aimed_at("sip:1900123@192.0.2.60");
        let toll = toll.set("To", "<sip:1900123@192.0.2.60>");
        w.from(peer, &toll);
        w.expect(peer, "407");
        // As if within a dialog, but another.
        let branch = w.branch();
        let toll = caller.request("INVITE", &branch).aimed_at("sip:1900123@192.0.2.60");
        w.from(peer, &toll.set("Call-ID", "another"));
        w.expect(peer, "407");
        w.finish();
    }
}

/// RFC 3261 section 22.3: what proved something to us goes no further, also after domains have changed their
/// order while the request was on its way.
#[test]
fn credentials_are_removed_by_the_realm_they_were_for() {
    let mut w = World::with(digest);
    w.bind("bob", bind(BOB2.contact()).q(500));
    w.bind("bob", bind(BOB.contact()).q(1000));
    let request = w.request(ALICE, "MESSAGE sip:bob@example.org");
    w.from(ALICE, &request);
    let challenged = w.expect(ALICE, "407");
    let message = answered(&request, &challenged, "alice", &w.branch());
    w.from(ALICE, &message);
    let first = w.expect(BOB, "MESSAGE");
    assert!(!first.has("Proxy-Authorization"));
    let mut config = config();
    digest(&mut config);
    let name = "example.net".into();
    config.domains.insert(0, Domain { name, aliases: vec![], mode: Mode::Proxy });
    w.reconfigure(config);
    w.answer(BOB, &first, 404);
    let second = w.expect(BOB2, "MESSAGE");
    assert!(!second.has("Proxy-Authorization"), "{second}");
    w.answer(BOB2, &second, 200);
    w.expect(ALICE, "200");
    w.finish();
}
