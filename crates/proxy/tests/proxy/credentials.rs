//! Credentials of users whose password another server has: the world is asked whether they are right, and the request
//! waits.

use crate::common::*;
use crate::elsewhere::in_mesh;
use crate::relay::{answered, digest};
use ringway_proxy::AuthFailureReason::{BackOff, OtherUser, UnknownUser, WrongPassword};
use ringway_proxy::backoff::{MAX_FAILURES_PER_SOURCE, MAX_FAILURES_PER_USER};
use ringway_proxy::core::MAX_CHECKS_PER_SOURCE;
use ringway_proxy::location::LocationStore;
use ringway_proxy::{CredentialsVerdict, Reply};
use ringway_sip::digest::Algorithm;

const RIGHT: Reply = Reply::Credentials(CredentialsVerdict::Right);
const WRONG: Reply = Reply::Credentials(CredentialsVerdict::Wrong);

/// A server at which alice is a guest.
fn guest() -> World {
    let mut w = World::with(|config| {
        in_mesh(config);
        digest(config);
    });
    w.at_home_elsewhere("alice");
    w.register("bob", BOB);
    w
}

/// A REGISTER of a phone for a user.
fn register(w: &mut World, phone: Peer, user: &str) -> Msg {
    let aor = format!("<sip:{user}@example.org>");
    let request = w.request(phone, "REGISTER sip:example.org");
    request.set("From", format!("{aor};tag=1")).set("To", aor)
}

/// The phone sends a request and answers the challenge. Returns the request with credentials.
fn sends(w: &mut World, phone: Peer, user: &str, request: &Msg) -> Msg {
    w.from(phone, request);
    let challenged = w.expect(phone, "4xx");
    if request.method() == "INVITE" {
        w.from(phone, &ack(request, &challenged));
    }
    let again = answered(request, &challenged, user, &w.branch());
    w.from(phone, &again);
    again
}

/// RFC 3261 section 10.3: a guest whose credentials another server has found right registers here like any other.
#[test]
fn a_guest_registers() {
    let mut w = guest();
    let request = register(&mut w, ALICE, "alice");
    let again = sends(&mut w, ALICE, "alice", &request);
    w.quiet();
    let asked = w.asked();
    let question = asked.credentials();
    assert_eq!((&*question.user, &*question.realm), (&b"alice"[..], &b"example.org"[..]));
    assert_eq!((&*question.method, question.algorithm), (&b"REGISTER"[..], Algorithm::Md5));
    assert_eq!(*question.value, *again.get("Authorization").as_bytes());
    assert_eq!(asked.verdict(PASSWORD), CredentialsVerdict::Right);
    assert_eq!(asked.verdict("guess"), CredentialsVerdict::Wrong);
    assert!(!format!("{question:?}").contains("response"), "the digest is in no log");
    // A retransmission is absorbed, and answered like the request afterwards.
    w.from(ALICE, &again);
    w.quiet();
    w.reply(&asked, RIGHT);
    let ok = w.expect(ALICE, "200 REGISTER");
    assert!(ok.get("Contact").starts_with("<sip:alice@198.51.100.1:5060>"));
    w.from(ALICE, &again);
    w.expect(ALICE, "200 REGISTER");
    assert!(w.asks.is_empty());
    assert_eq!(w.cores[0].stats().registers_ok, 1);
    w.call(PROXY, "MESSAGE sip:alice@example.org");
    let challenged = w.expect(PROXY, "407");
    assert!(challenged.has("Proxy-Authenticate"));
    w.finish();
}

/// RFC 3261 section 16.3 item 6: a guest calls, and the call is that user's.
#[test]
fn a_guest_calls() {
    let mut w = guest();
    let request = w.request(ALICE, "INVITE sip:bob@example.org");
    sends(&mut w, ALICE, "alice", &request);
    w.expect(ALICE, "100");
    let asked = w.asked();
    assert_eq!(*asked.credentials().method, *b"INVITE");
    w.reply(&asked, RIGHT);
    let got = w.expect(BOB, "INVITE");
    assert!(!got.has("Proxy-Authorization"));
    assert_eq!(w.calls[0].call.user.as_deref(), Some("alice@example.org"));
    w.answer(BOB, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// Both questions for one request: first about the caller, then about the callee. The proof is asked for once.
#[test]
fn a_guest_calls_a_user_elsewhere() {
    let mut w = guest();
    w.unknown("dave");
    let request = w.request(ALICE, "MESSAGE sip:dave@example.org");
    sends(&mut w, ALICE, "alice", &request);
    let asked = w.asked();
    assert!(w.asks.is_empty());
    w.reply(&asked, RIGHT);
    let second = w.asked();
    assert_eq!(second.aor(), "sip:dave@example.org");
    w.elsewhere("dave", &[(ROUTER, 1000)]);
    w.reply(&second, Reply::Located);
    let got = w.expect(ROUTER, "MESSAGE");
    w.answer(ROUTER, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// A wrong password, or a user whom no server has, is challenged again and counted, as here.
#[test]
fn wrong_credentials_of_a_guest_are_refused() {
    for (verdict, reason) in
        [(CredentialsVerdict::Wrong, WrongPassword), (CredentialsVerdict::NoSuchUser, UnknownUser)]
    {
        for method in ["REGISTER", "INVITE"] {
            let mut w = guest();
            let request = match method {
                "REGISTER" => register(&mut w, ALICE, "alice"),
                _ => w.request(ALICE, "INVITE sip:bob@example.org"),
            };
            let again = sends(&mut w, ALICE, "alice", &request);
            if method == "INVITE" {
                w.expect(ALICE, "100");
            }
            let asked = w.asked();
            w.reply(&asked, Reply::Credentials(verdict));
            let challenged = w.expect(ALICE, if method == "INVITE" { "407" } else { "401" });
            assert!(challenged.has("WWW-Authenticate") || challenged.has("Proxy-Authenticate"));
            if method == "INVITE" {
                w.from(ALICE, &ack(&again, &challenged));
            }
            assert_eq!(w.failures[0].reason, reason);
            assert_eq!(&*w.failures[0].user, "alice");
            assert_eq!(w.cores[0].stats().auth_failed, 1);
            w.finish();
        }
    }
}

/// RFC 3261 section 21.5.5: the server that has the password does not answer.
#[test]
fn without_an_answer_a_guest_tries_again() {
    let mut w = guest();
    for never in [false, true] {
        let request = register(&mut w, ALICE, "alice");
        sends(&mut w, ALICE, "alice", &request);
        let asked = w.asked();
        match never {
            true => w.pass_secs(10),
            // A location is no answer to a question about credentials.
            false => w.reply(&asked, Reply::Located),
        }
        let answer = w.expect(ALICE, "504");
        assert!(answer.get("Retry-After").parse::<u32>().is_ok());
        w.reply(&asked, RIGHT);
        w.quiet();
    }
    assert_eq!(w.store.records(), 1, "only bob");
    assert!(w.failures.is_empty());
    w.finish();
}

/// RFC 7616 section 3.4: a nonce count serves once, however many requests have waited with it.
#[test]
fn the_nonce_of_a_guest_serves_once() {
    let mut w = guest();
    let request = w.request(ALICE, "MESSAGE sip:bob@example.org");
    let again = sends(&mut w, ALICE, "alice", &request);
    // The same credentials in another transaction, from somebody who has seen them.
    let copy = again.clone().set("Via", via(PROXY, "z9hG4bKother"));
    w.from(PROXY, &copy);
    let (first, second) = (w.asked(), w.asked());
    w.reply(&first, RIGHT);
    let got = w.expect(BOB, "MESSAGE");
    w.reply(&second, RIGHT);
    let refused = w.expect(PROXY, "407");
    assert!(refused.get("Proxy-Authenticate").contains("stale=true"));
    w.answer(BOB, &got, 200);
    w.expect(ALICE, "200");
    // Afterwards nothing is asked any more.
    let copy = again.set("Via", via(PROXY, "z9hG4bKthird"));
    w.from(PROXY, &copy);
    let refused = w.expect(PROXY, "407");
    assert!(refused.get("Proxy-Authenticate").contains("stale=true"));
    assert!(w.asks.is_empty() && w.failures.is_empty());
    w.finish();
}

/// A nonce that has expired is not worth a question, and no guess either.
#[test]
fn an_old_nonce_of_a_guest_is_stale() {
    let mut w = guest();
    let request = register(&mut w, ALICE, "alice");
    w.from(ALICE, &request);
    let challenged = w.expect(ALICE, "401");
    w.pass_secs(301);
    let again = answered(&request, &challenged, "alice", &w.branch());
    w.from(ALICE, &again);
    assert!(w.expect(ALICE, "401").get("WWW-Authenticate").contains("stale=true"));
    // One that expires during the wait is too.
    let request = register(&mut w, ALICE, "alice");
    w.from(ALICE, &request);
    let challenged = w.expect(ALICE, "401");
    w.pass_secs(298);
    let again = answered(&request, &challenged, "alice", &w.branch());
    w.from(ALICE, &again);
    let asked = w.asked();
    w.pass_secs(5);
    w.reply(&asked, RIGHT);
    assert!(w.expect(ALICE, "401").get("WWW-Authenticate").contains("stale=true"));
    assert!(w.failures.is_empty());
    w.finish();
}

/// RFC 7616 section 3.3: a phone that has moved here answers the challenge of the server where it was. It is not told that its
/// password is wrong; the same of a user whose password is here, so that nobody learns who that is.
#[test]
fn the_nonce_of_another_server_is_stale() {
    for user in ["alice", "bob"] {
        let mut w = guest();
        w.at_home_elsewhere("bob");
        let request = register(&mut w, ALICE, user);
        w.from(ALICE, &request);
        let challenged = w.expect(ALICE, "401");
        let nonce = |msg: &Msg| {
            let value = msg.get("WWW-Authenticate");
            value.split("nonce=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
        };
        let other = nonce(&challenged).chars().rev().collect::<String>();
        let value = challenged.get("WWW-Authenticate").replace(&nonce(&challenged), &other);
        let elsewhere = challenged.clone().set("WWW-Authenticate", value);
        let moved = answered(&request, &elsewhere, user, &w.branch());
        w.from(ALICE, &moved);
        let refused = w.expect(ALICE, "401");
        assert!(refused.get("WWW-Authenticate").contains("stale=true"), "{user}");
        assert!(w.asks.is_empty() && w.failures.is_empty());
        w.finish();
    }
}

/// Nothing is asked about what cannot be right: a forged nonce, `auth-int`, a value that is too long, or a user whose
/// password is here.
#[test]
fn nothing_is_asked_without_need() {
    let mut w = guest();
    let request = register(&mut w, ALICE, "alice");
    w.from(ALICE, &request);
    let challenged = w.expect(ALICE, "401");
    let again = answered(&request, &challenged, "alice", &w.branch());
    let value = again.get("Authorization").to_string();
    let nonce = value.split("nonce=\"").nth(1).unwrap().split('"').next().unwrap();
    for changed in [
        value.replace(nonce, "forged"),
        value.replace("qop=auth", "qop=auth-int"),
        format!("{value}, opaque=\"{}\"", "x".repeat(600)),
        value.replace("MD5", "SHA-256"),
        value.replace("example.org\", nonce", "example.com\", nonce"),
        format!("{value}, userhash=true"),
    ] {
        let branch = w.branch();
        w.from(ALICE, &again.clone().set("Via", via(ALICE, &branch)).set("Authorization", changed));
        w.expect(ALICE, "401");
    }
    let request = register(&mut w, BOB, "bob");
    sends(&mut w, BOB, "bob", &request);
    w.expect(BOB, "200");
    assert!(w.asks.is_empty());
    w.finish();
}

/// What another server has proved is one user: no other From, and no other address-of-record.
#[test]
fn a_guest_is_nobody_else() {
    let mut w = guest();
    let request = register(&mut w, ALICE, "bob");
    sends(&mut w, ALICE, "alice", &request);
    let asked = w.asked();
    w.reply(&asked, RIGHT);
    w.expect(ALICE, "403");
    let request = w.request(ALICE, "MESSAGE sip:bob@example.org");
    let request = request.set("From", "<sip:carol@example.org>;tag=1");
    sends(&mut w, ALICE, "alice", &request);
    let asked = w.asked();
    w.reply(&asked, RIGHT);
    w.expect(ALICE, "403");
    assert_eq!(w.failures.iter().map(|f| f.reason).collect::<Vec<_>>(), [OtherUser, OtherUser]);
    w.finish();
}

/// RFC 7616 section 3.4.6: the digest of a guest serves its own target only.
#[test]
fn the_digest_of_a_guest_serves_its_own_target_only() {
    let mut w = guest();
    let request = w.request(ALICE, "MESSAGE sip:carol@example.org");
    w.from(ALICE, &request);
    let challenged = w.expect(ALICE, "407");
    let again = answered(&request, &challenged, "alice", &w.branch());
    w.from(ALICE, &again.aimed_at("sip:bob@example.org"));
    let asked = w.asked();
    w.reply(&asked, RIGHT);
    w.expect(ALICE, "400");
    w.finish();
}

/// Of several credentials in one request one is asked about, and each is judged and counted once.
#[test]
fn one_question_about_credentials_is_asked_for_a_request() {
    let mut w = guest();
    w.at_home_elsewhere("dave");
    let send = |w: &mut World| {
        let request = register(w, ALICE, "dave");
        w.from(ALICE, &request);
        let challenged = w.expect(ALICE, "401");
        let value = |user: &str| {
            let again = answered(&request, &challenged, user, "z9hG4bKunused");
            again.get("Authorization").to_string()
        };
        let wrong = value("bob").replace("cnonce=\"", "cnonce=\"other");
        let branch = w.branch();
        let all = request.clone().set("Via", via(ALICE, &branch)).add("Authorization", wrong);
        let all = all.add("Authorization", value("alice"));
        w.from(ALICE, &all.add("Authorization", value("dave")));
    };
    // Two wrong ones in each, so that five requests reach the limit, and four do not.
    for _ in 0..MAX_FAILURES_PER_SOURCE / 2 {
        send(&mut w);
        let asked = w.asked();
        assert_eq!(*asked.credentials().user, *b"alice");
        w.reply(&asked, WRONG);
        w.expect(ALICE, "401");
        assert!(w.asks.is_empty());
    }
    send(&mut w);
    w.expect(ALICE, "403");
    w.finish();
}

/// Once a guest has proved to be one, every answer is retransmitted, as for users here.
#[test]
fn a_guest_gets_every_repeat() {
    let mut w = guest();
    let request = w.request(ALICE, "INVITE sip:bob@example.org");
    sends(&mut w, ALICE, "alice", &request);
    w.expect(ALICE, "100");
    let asked = w.asked();
    w.reply(&asked, RIGHT);
    let got = w.expect(BOB, "INVITE");
    w.from(BOB, &response(BOB, &got, 486).padded(2_000));
    w.expect(BOB, "ACK");
    w.expect(ALICE, "486");
    w.pass_secs(40);
    assert_eq!(w.count(ALICE, "486"), 10);
    w.finish();
}

/// Guesses are counted like those about users here: after a few wrong ones nothing is asked for a while.
#[test]
fn guesses_about_guests_are_backed_off() {
    let mut w = guest();
    for n in 0..=MAX_FAILURES_PER_SOURCE {
        let user = format!("u{n}");
        w.at_home_elsewhere(&user);
        let request = register(&mut w, PROXY, &user);
        sends(&mut w, PROXY, &user, &request);
        if n == MAX_FAILURES_PER_SOURCE {
            w.expect(PROXY, "403");
            break;
        }
        let asked = w.asked();
        w.reply(&asked, WRONG);
        w.expect(PROXY, "401");
    }
    assert!(w.asks.is_empty());
    assert_eq!(w.failures.last().unwrap().reason, BackOff);
    // Another source is not touched.
    let request = register(&mut w, ALICE, "alice");
    sends(&mut w, ALICE, "alice", &request);
    let asked = w.asked();
    w.reply(&asked, RIGHT);
    w.expect(ALICE, "200");
    w.finish();
}

/// A flood of guesses at once: the questions of one source are bounded, and of their answers no more count than the
/// back-off allows. Others find room.
#[test]
fn a_flood_of_guesses_asks_a_bounded_number_of_questions() {
    let mut w = guest();
    let mut refused = 0;
    for n in 0..300 {
        let user = format!("u{n}");
        w.at_home_elsewhere(&user);
        let request = register(&mut w, PROXY, &user);
        sends(&mut w, PROXY, &user, &request);
        refused += w.count(PROXY, "503");
    }
    assert_eq!(w.asks.len(), MAX_CHECKS_PER_SOURCE);
    assert_eq!(refused, 300 - MAX_CHECKS_PER_SOURCE);
    let flood = std::mem::take(&mut w.asks);
    let request = register(&mut w, ALICE, "alice");
    sends(&mut w, ALICE, "alice", &request);
    let asked = w.asked();
    w.reply(&asked, RIGHT);
    w.expect(ALICE, "200");
    for asked in &flood {
        w.reply(asked, WRONG);
    }
    assert_eq!(w.count(PROXY, "401"), MAX_FAILURES_PER_SOURCE.into());
    assert_eq!(w.count(PROXY, "403"), MAX_CHECKS_PER_SOURCE - usize::from(MAX_FAILURES_PER_SOURCE));
    w.finish();
}

/// Guesses about one user from many sources leave room for the phone that has proved to be that user.
#[test]
fn a_flood_about_one_guest_leaves_the_known_phone() {
    let mut w = guest();
    let request = register(&mut w, ALICE, "alice");
    sends(&mut w, ALICE, "alice", &request);
    let asked = w.asked();
    w.reply(&asked, RIGHT);
    w.expect(ALICE, "200");
    for n in 0..60 {
        let peer = PROXY.at(Box::leak(format!("203.0.113.{}:5060", n + 10).into()));
        let request = register(&mut w, peer, "alice");
        sends(&mut w, peer, "alice", &request);
    }
    assert_eq!(w.asks.len(), usize::from(MAX_FAILURES_PER_USER));
    w.asks.clear();
    w.ignore();
    let request = register(&mut w, ALICE, "alice");
    sends(&mut w, ALICE, "alice", &request);
    let asked = w.asked();
    w.reply(&asked, RIGHT);
    w.expect(ALICE, "200");
    w.pass_secs(11);
    w.ignore();
    w.finish_anyhow();
}

/// A proof that a routing rule demands is asked for in the same way.
#[test]
fn a_rule_asks_for_the_proof_of_a_guest() {
    let mut w = World::with(|config| {
        digest(config);
        crate::routing::dial_plan(config);
    });
    w.at_home_elsewhere("alice");
    let request = w.request(ALICE, "MESSAGE sip:0301234@example.org");
    let request = request.set("From", "<sip:anonymous@anonymous.invalid>;tag=1");
    sends(&mut w, ALICE, "alice", &request);
    let asked = w.asked();
    w.quiet();
    w.reply(&asked, RIGHT);
    let got = w.expect(GATEWAY, "MESSAGE");
    w.answer(GATEWAY, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// A new configuration while credentials are checked: another realm needs other credentials.
#[test]
fn a_verdict_counts_for_its_own_realm() {
    let mut w = guest();
    let request = register(&mut w, ALICE, "alice");
    sends(&mut w, ALICE, "alice", &request);
    let asked = w.asked();
    let mut config = config();
    digest(&mut config);
    config.domains[0].name = "example.net".into();
    config.domains[0].aliases = vec!["example.org".into()];
    w.reconfigure(config);
    w.reply(&asked, RIGHT);
    let challenged = w.expect(ALICE, "401");
    assert!(challenged.get("WWW-Authenticate").contains("realm=\"example.net\""));
    assert_eq!(w.store.records(), 1, "only bob");
    w.finish();
}

/// RFC 3261 section 9.2: a CANCEL ends the wait for a verdict; the credentials have proved nothing.
#[test]
fn a_cancel_ends_the_wait_for_a_verdict() {
    let mut w = guest();
    let request = w.request(ALICE, "INVITE sip:bob@example.org");
    let again = sends(&mut w, ALICE, "alice", &request);
    w.expect(ALICE, "100");
    let asked = w.asked();
    w.from(ALICE, &cancel(&again));
    w.expect(ALICE, "200 CANCEL");
    let answer = w.expect(ALICE, "487");
    w.from(ALICE, &ack(&again, &answer));
    w.reply(&asked, RIGHT);
    w.quiet();
    w.finish();
}
