//! The identity of senders: trust in header fields, digests made for other requests, and guessing.

use crate::common::*;
use crate::relay::{answered, digest};
use ringway_proxy::AuthFailureReason;
use ringway_proxy::config::Network;

fn trusting_gateway() -> World {
    World::with(|config| {
        digest(config);
        config.trusted = vec![Network { addr: GATEWAY.remote().ip(), prefix: 32 }];
    })
}

const ASSERTED: [(&str, &str); 4] = [
    ("P-Asserted-Identity", "<sip:boss@example.org>"),
    ("p-asserted-identity", "<tel:+1555>"),
    ("Remote-Party-ID", "<sip:boss@example.org>;party=calling"),
    ("remote-party-id", "<sip:boss@example.org>"),
];

fn with_assertions(mut msg: Msg) -> Msg {
    for (name, value) in ASSERTED {
        msg = msg.add(name, value);
    }
    msg.add("Remote-Party-IDs", "another header field").add("P-Preferred-Identity", "<sip:x@y>")
}

fn asserts(msg: &Msg) -> bool {
    msg.has("P-Asserted-Identity") || msg.has("Remote-Party-ID")
}

/// RFC 3325 section 5: what an untrusted peer asserts is removed, from requests and from responses.
#[test]
fn identities_asserted_by_strangers_and_users_are_removed() {
    let mut w = trusting_gateway();
    w.register("bob", BOB);
    let outside = "<sip:eve@example.com>;tag=1";
    let invite = w.request(PROXY, "INVITE sip:bob@example.org").set("From", outside);
    w.from(PROXY, &with_assertions(invite));
    w.expect(PROXY, "100");
    let got = w.expect(BOB, "INVITE");
    assert!(!asserts(&got), "{got}");
    assert!(got.has("Remote-Party-IDs") && got.has("P-Preferred-Identity"));
    for status in [180, 200] {
        let answer = with_assertions(response(BOB, &got, status));
        w.from(BOB, &answer);
        assert!(!asserts(&w.expect(PROXY, &status.to_string())));
    }
}

/// A trusted peer's are kept, unless the caller asked for privacy and the next hop is not trusted
/// (RFC 3325 section 7).
#[test]
fn identities_asserted_by_trusted_peers_are_forwarded() {
    for privacy in [None, Some("none"), Some("header;id"), Some("ID")] {
        let mut w = trusting_gateway();
        w.register("bob", BOB);
        let mut message = with_assertions(w.request(GATEWAY, "MESSAGE sip:bob@example.org"));
        if let Some(privacy) = privacy {
            message = message.add("Privacy", privacy);
        }
        w.from(GATEWAY, &message);
        let got = w.expect(BOB, "MESSAGE");
        assert_eq!(asserts(&got), matches!(privacy, None | Some("none")), "{privacy:?}");
    }
}

/// An authenticated user writes the own address into From, or none.
#[test]
fn the_from_of_a_user_is_the_users_own() {
    for (from, any_from, accepted) in [
        ("<sip:alice@example.org>", false, true),
        ("\"A\" <sip:%61lice@EXAMPLE.org>", false, true),
        ("\"Anonymous\" <sip:anonymous@anonymous.invalid>", false, true),
        ("<sip:bob@example.org>", true, false),
        ("<sip:example.org>", true, false),
        ("<sip:alice@elsewhere.example>", false, false),
        ("<tel:+1555>", false, false),
        ("<sip:alice@elsewhere.example>", true, true),
        ("<tel:+1555>", true, true),
    ] {
        let mut w = World::with(|config| {
            digest(config);
            config.auth.any_from = any_from;
        });
        let message = w.request(ALICE, "MESSAGE sip:x@192.0.2.60");
        let message = message.set("From", format!("{from};tag=1"));
        w.from(ALICE, &message);
        let challenge = w.expect(ALICE, "407");
        w.from(ALICE, &answered(&message, &challenge, "alice", "z9hG4bKagain"));
        if accepted {
            w.expect(GATEWAY, "MESSAGE");
        } else {
            w.expect(ALICE, "403");
        }
        w.quiet();
    }
}

/// RFC 7616 section 3.4.6: a digest that was made for another target is worth nothing; one for the same
/// target, written otherwise, is.
#[test]
fn a_digest_serves_its_own_target_only() {
    let tries = [
        ("sip:x@192.0.2.60", "sip:x@192.0.2.60;user=phone", true),
        ("sip:x@192.0.2.60", "sip:%78@192.0.2.60:5060", true),
        ("sip:bob@example.org", "sip:bob@192.0.2.1", true),
        ("sip:bob@example.org", "sip:192.0.2.1:5060", true),
        ("sip:bob@example.org", "sip:192.0.2.60:5060", false),
        ("sip:bob@example.org", "sip:carol@example.org", false),
        ("sip:x@192.0.2.60", "sip:x@192.0.2.61", false),
        ("sip:0900@example.org", "sip:bob@example.org", false),
        ("sip:x@192.0.2.60", "nonsense", false),
    ];
    for (target, signed, accepted) in tries {
        let mut w = World::with(digest);
        w.register("bob", BOB);
        w.register("0900", BOB);
        let message = w.call(ALICE, &format!("MESSAGE {target}"));
        let challenge = w.expect(ALICE, "407");
        let signed = answered(&message.clone().aimed_at(signed), &challenge, "alice", "z9hG4bKa");
        w.from(ALICE, &signed.aimed_at(target));
        if accepted {
            assert_eq!(w.count(BOB, "MESSAGE") + w.count(GATEWAY, "MESSAGE"), 1, "{target}");
        } else {
            w.expect(ALICE, "400");
            assert_eq!(w.failures[0].reason, AuthFailureReason::OtherUri);
        }
        w.quiet();
    }
}

fn guess(w: &mut World, worker: u8, from: Peer, user: &str) -> u16 {
    let register = w.request(from, "REGISTER sip:example.org");
    let aor = format!("<sip:{user}@example.org>");
    let register = register.set("To", &aor).set("From", format!("{aor};tag=g"));
    w.arrives(worker, from, &register);
    let challenge = w.expect(from, "401");
    let branch = w.branch();
    let guess = answered(&register, &challenge, user, &branch);
    let value = guess.get("Authorization").to_string();
    let at = value.find("response=\"").unwrap() + 10;
    let other = if &value[at..=at] == "0" { "1" } else { "0" };
    let spoiled = format!("{}{other}{}", &value[..at], &value[at + 1..]);
    w.arrives(worker, from, &guess.set("Authorization", spoiled));
    w.expect(from, "4xx").status()
}

fn register_rightly(w: &mut World, worker: u8, from: Peer, user: &str) -> u16 {
    let register = w.request(from, "REGISTER sip:example.org");
    let aor = format!("<sip:{user}@example.org>");
    let register = register.set("To", &aor).set("From", format!("{aor};tag=g"));
    w.arrives(worker, from, &register);
    let challenge = w.expect(from, "401");
    let branch = w.branch();
    w.arrives(worker, from, &answered(&register, &challenge, user, &branch));
    w.sent.pop_front().unwrap().msg.status()
}

/// After ten wrong passwords a source is not listened to for a minute, on whichever worker; a telephone
/// of the same address that is known stays in.
#[test]
fn guessing_is_backed_off_by_source() {
    let mut w = World::build(2, &[], digest);
    let eve = PROXY;
    assert_eq!(register_rightly(&mut w, 1, eve, "bob"), 200);
    for n in 0..10 {
        assert_eq!(guess(&mut w, n % 2, eve, "alice"), 401);
    }
    assert_eq!(guess(&mut w, 0, eve, "alice"), 403);
    assert_eq!(register_rightly(&mut w, 1, eve, "carol"), 403, "not even the right one");
    assert_eq!(register_rightly(&mut w, 1, eve, "bob"), 200, "who is known");
    assert_eq!(register_rightly(&mut w, 1, ALICE, "alice"), 200, "another source");
    w.pass_secs(61);
    w.ignore();
    assert_eq!(register_rightly(&mut w, 1, eve, "carol"), 200);
    let reasons: Vec<_> = w.failures.iter().map(|f| f.reason).collect();
    assert_eq!(reasons.iter().filter(|r| **r == AuthFailureReason::WrongPassword).count(), 10);
    assert_eq!(reasons.iter().filter(|r| **r == AuthFailureReason::BackOff).count(), 2);
}

/// Many sources that guess one user's password share what is allowed; the user's own telephone stays in.
#[test]
fn guessing_is_backed_off_by_user() {
    let mut w = World::build(2, &[], digest);
    assert_eq!(register_rightly(&mut w, 0, ALICE, "alice"), 200);
    let addrs: Vec<String> = (1..=31).map(|n| format!("203.0.113.{}:5060", 100 + n)).collect();
    for (n, addr) in addrs.iter().enumerate() {
        let eve = PROXY.at(Box::leak(addr.clone().into_boxed_str()));
        let expected = if n < 30 { 401 } else { 403 };
        assert_eq!(guess(&mut w, (n % 2) as u8, eve, "alice"), expected, "{n}");
    }
    assert_eq!(register_rightly(&mut w, 1, ALICE, "alice"), 200);
    assert_eq!(register_rightly(&mut w, 1, BOB, "bob"), 200);
}
