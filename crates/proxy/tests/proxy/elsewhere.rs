//! Users who are registered at other servers of the same domain: found by a question to the world, for which the request
//! waits, and reached by a Path (RFC 3327) to each server.

use crate::common::*;
use crate::relay::{answered, closed, digest};
use crate::routing::dial_plan;
use ringway_proxy::config::{Config, MeshNetwork, Mode};
use ringway_proxy::core::MAX_UNAUTHENTICATED_PARKED;
use ringway_proxy::{CredentialsVerdict, Reply};
use ringway_sansio::{Random, SplitMix, Transport};

/// The proxy under test is a router of the mesh.
pub fn in_mesh(config: &mut Config) {
    config.mesh = Some(MeshNetwork { address: MESH_ADDRESS });
}

/// A world in which nothing is known about bob.
pub fn unknown_bob(change: impl FnOnce(&mut Config)) -> World {
    let w = World::with(|config| {
        in_mesh(config);
        change(config);
    });
    w.unknown("bob");
    w
}

/// RFC 3261 section 16.5: a user elsewhere is a target. The Request-URI is the address-of-record, the Route is the Path.
#[test]
fn a_user_elsewhere_is_reached_by_the_path() {
    let mut w = World::new();
    w.elsewhere("bob", &[(ROUTER, 1000)]);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org;user=phone");
    w.expect(ALICE, "100");
    let got = w.expect(ROUTER, "INVITE sip:bob@example.org");
    assert_eq!(got.all("Route"), ["<sip:[fd02::1]:5060;lr>"]);
    w.answer(ROUTER, &got, 180);
    w.expect(ALICE, "180");
    w.answer(ROUTER, &got, 486);
    w.expect(ROUTER, "ACK");
    let answer = w.expect(ALICE, "486");
    w.from(ALICE, &ack(&invite, &answer));
    assert_eq!(w.cores[0].stats().asked, 0);
    w.finish();
}

/// RFC 3261 section 16.6: contacts here and servers elsewhere of one q are tried in parallel, a lower q afterwards.
#[test]
fn contacts_here_and_elsewhere_fork_by_their_q() {
    let mut w = World::with(in_mesh);
    w.bind("bob", bind(BOB.contact()).q(700));
    w.bind("bob", bind(BOB2.contact()).q(500));
    w.elsewhere("bob", &[(ROUTER2, 300), (ROUTER, 700)]);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let (here, there) = (w.expect(BOB, "INVITE"), w.expect(ROUTER, "INVITE"));
    w.quiet();
    w.answer(BOB, &here, 486);
    w.expect(BOB, "ACK");
    w.quiet();
    w.answer(ROUTER, &there, 480);
    w.expect(ROUTER, "ACK");
    let second = w.expect(BOB2, "INVITE");
    w.answer(BOB2, &second, 486);
    w.expect(BOB2, "ACK");
    let last = w.expect(ROUTER2, "INVITE");
    w.answer(ROUTER2, &last, 200);
    let ok = w.expect(ALICE, "200");
    let mut caller = Dialog::of_caller(ALICE, &invite, &ok);
    w.from(ALICE, &caller.request("ACK", "z9hG4bKack"));
    w.expect(ROUTER2, "ACK");
    w.finish();
}

/// The limit of forks counts contacts here and servers elsewhere together, best q first.
#[test]
fn forks_are_bounded_over_all_servers() {
    let mut w = World::with(|config| config.limits.max_forks = 2);
    w.bind("bob", bind(BOB.contact()).q(500));
    w.elsewhere("bob", &[(ROUTER2, 300), (ROUTER, 900)]);
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    let got = w.expect(ROUTER, "MESSAGE");
    w.answer(ROUTER, &got, 480);
    let got = w.expect(BOB, "MESSAGE");
    w.answer(BOB, &got, 486);
    w.expect(ALICE, "480");
    w.finish();
}

/// RFC 3261 section 17.2.1: an INVITE that waits has its 100 at once, and no second one. A retransmission is absorbed.
#[test]
fn an_invite_waits_until_its_callee_is_located() {
    let mut w = unknown_bob(|_| {});
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    w.quiet();
    let asked = w.asked();
    assert_eq!((asked.aor().as_str(), asked.source), ("sip:bob@example.org", ALICE.remote().ip()));
    assert_eq!(w.cores[0].tables().parked, 1);
    assert!(!w.idle());
    w.from(ALICE, &invite);
    w.expect(ALICE, "100");
    w.quiet();
    assert!(w.asks.is_empty());
    w.pass_ms(300);
    w.elsewhere("bob", &[(ROUTER, 1000)]);
    w.reply(&asked, Reply::Located);
    let got = w.expect(ROUTER, "INVITE");
    w.quiet();
    // The same transaction as before.
    w.from(ALICE, &invite);
    w.expect(ALICE, "100");
    w.answer(ROUTER, &got, 180);
    w.expect(ALICE, "180");
    // The delay counts from the time at which the request came.
    assert!(w.cores[0].stats().session_request_delay.sum_us >= 300_000);
    w.answer(ROUTER, &got, 200);
    let ok = w.expect(ALICE, "200");
    let mut caller = Dialog::of_caller(ALICE, &invite, &ok);
    w.from(ALICE, &caller.request("ACK", "z9hG4bKack"));
    w.expect(ROUTER, "ACK");
    assert_eq!(w.cores[0].stats().asked, 1);
    w.finish();
}

/// RFC 7616 section 3.4: the proof that was given before the wait is not asked for again, or its nonce count would be a
/// replay.
#[test]
fn the_proof_of_the_caller_outlasts_the_wait() {
    let mut w = unknown_bob(digest);
    let request = w.call(ALICE, "INVITE sip:bob@example.org");
    let challenged = w.expect(ALICE, "407");
    assert!(w.asks.is_empty(), "nothing is asked for a sender who has proved nothing");
    w.from(ALICE, &ack(&request, &challenged));
    let again = answered(&request, &challenged, "alice", &w.branch());
    w.from(ALICE, &again);
    w.expect(ALICE, "100");
    let asked = w.asked();
    w.elsewhere("bob", &[(ROUTER, 1000)]);
    w.reply(&asked, Reply::Located);
    let got = w.expect(ROUTER, "INVITE");
    assert!(!got.has("Proxy-Authorization"));
    assert_eq!(w.calls[0].call.user.as_deref(), Some("alice@example.org"));
    w.answer(ROUTER, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 3261 sections 21.4.5 and 21.4.18: a user of another server who is registered nowhere exists, another does not.
#[test]
fn a_user_without_contacts_is_told_apart_from_no_user() {
    for (exists, status) in [(true, "480"), (false, "404")] {
        let mut w = World::new();
        w.unknown("dave");
        let invite = w.call(ALICE, "INVITE sip:dave@example.org");
        w.expect(ALICE, "100");
        let asked = w.asked();
        w.registered_nowhere("dave", exists);
        w.reply(&asked, Reply::Located);
        let answer = w.expect(ALICE, status);
        // The INVITE is not retransmitted any more, so its refusal is, until the ACK comes (section 17.2.1).
        w.pass_ms(600);
        w.expect(ALICE, status);
        w.from(ALICE, &ack(&invite, &answer));
        w.pass_secs(5);
        w.quiet();
        assert!(w.lines.iter().any(|line| line.what == "refused"));
        w.finish();
    }
}

/// RFC 3261 section 21.5.5: a location server did not answer. Contacts here are used without it.
#[test]
fn without_an_answer_contacts_here_are_used() {
    let mut w = unknown_bob(|_| {});
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    let asked = w.asked();
    w.reply(&asked, Reply::Unavailable);
    w.expect(ALICE, "504");
    w.register("bob", BOB);
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    let asked = w.asked();
    w.reply(&asked, Reply::Unavailable);
    let got = w.expect(BOB, "MESSAGE");
    w.answer(BOB, &got, 200);
    w.expect(ALICE, "200");
    assert_eq!(w.cores[0].stats().unanswered, 2);
    w.finish();
}

/// A number that a routing rule leads to a gateway can be called while the other servers do not answer.
#[test]
fn without_an_answer_routing_rules_apply() {
    let mut w = World::with(dial_plan);
    w.unknown("0301234");
    w.call(ALICE, "MESSAGE sip:0301234@example.org");
    let asked = w.asked();
    w.reply(&asked, Reply::Unavailable);
    let got = w.expect(GATEWAY, "MESSAGE");
    w.answer(GATEWAY, &got, 200);
    w.expect(ALICE, "200");
    // Registered elsewhere, the user comes first.
    w.elsewhere("0301234", &[(ROUTER, 1000)]);
    w.call(ALICE, "MESSAGE sip:0301234@example.org");
    let got = w.expect(ROUTER, "MESSAGE");
    w.answer(ROUTER, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// The world may never answer: after ten seconds the request goes on. An answer that comes later has no effect.
#[test]
fn a_request_does_not_wait_for_ever() {
    let mut w = unknown_bob(|_| {});
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let asked = w.asked();
    w.pass_ms(9_999);
    w.quiet();
    w.pass_ms(1);
    let answer = w.expect(ALICE, "504");
    w.from(ALICE, &ack(&invite, &answer));
    w.elsewhere("bob", &[(ROUTER, 1000)]);
    w.reply(&asked, Reply::Located);
    w.quiet();
    w.finish();
}

/// All questions for one request share its time.
#[test]
fn several_questions_share_the_time_of_their_request() {
    let mut w = World::new();
    w.bind("carol", bind("sip:bob@example.org"));
    w.bind("carol", bind("sip:dave@example.org"));
    for user in ["bob", "dave", "carol"] {
        w.unknown(user);
    }
    w.call(ALICE, "MESSAGE sip:carol@example.org");
    let asked = w.asked();
    w.pass_secs(9);
    w.reply(&asked, Reply::Unavailable);
    w.asked();
    w.pass_secs(1);
    // The third is not asked any more.
    assert!(w.asks.is_empty());
    w.expect(ALICE, "504");
    w.finish();
}

/// Answers that nobody waits for, and answers to another question, change nothing.
#[test]
fn stray_answers_have_no_effect() {
    let mut w = unknown_bob(|_| {});
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    let first = w.asked();
    w.elsewhere("bob", &[(ROUTER, 1000)]);
    w.reply(&first, Reply::Located);
    let got = w.expect(ROUTER, "MESSAGE");
    w.reply(&first, Reply::Located);
    w.reply(&first, Reply::Unavailable);
    w.quiet();
    // Another request has the index of the first now.
    w.unknown("carol");
    w.call(ALICE, "MESSAGE sip:carol@example.org");
    let second = w.asked();
    w.reply(&first, Reply::Unavailable);
    w.quiet();
    assert_eq!(w.cores[0].tables().parked, 1);
    // A verdict about credentials is no answer to the question for a location.
    w.reply(&second, Reply::Credentials(CredentialsVerdict::Right));
    w.expect(ALICE, "504");
    w.answer(ROUTER, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// The world says that it has found the user, and does not know where: it is not asked again.
#[test]
fn a_location_that_stays_unknown_is_unavailable() {
    let mut w = unknown_bob(|_| {});
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    let asked = w.asked();
    w.reply(&asked, Reply::Located);
    assert!(w.asks.is_empty());
    w.expect(ALICE, "504");
    w.finish();
}

/// RFC 3261 section 9.2: a CANCEL ends the wait.
#[test]
fn a_cancel_ends_the_wait() {
    let mut w = unknown_bob(|_| {});
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let asked = w.asked();
    w.from(ALICE, &cancel(&invite));
    let done = w.expect(ALICE, "200 CANCEL");
    let answer = w.expect(ALICE, "487 INVITE");
    assert_eq!(done.tag("To"), answer.tag("To"));
    assert_eq!(w.cores[0].tables().parked, 0);
    w.from(ALICE, &cancel(&invite));
    w.expect(ALICE, "200 CANCEL");
    w.elsewhere("bob", &[(ROUTER, 1000)]);
    w.reply(&asked, Reply::Located);
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// Copies of a request that waits, and its CANCEL, find it from any worker.
#[test]
fn a_request_that_waits_is_found_by_all_workers() {
    for at in 0..3 {
        let mut w = World::build(3, &[], |_| {});
        w.unknown("bob");
        let invite = w.request(ALICE, "INVITE sip:bob@example.org");
        w.arrives(0, ALICE, &invite);
        w.expect(ALICE, "100");
        let asked = w.asked();
        w.arrives(at, ALICE, &invite);
        w.expect(ALICE, "100");
        assert!(w.asks.is_empty(), "worker {at}");
        w.arrives(at, ALICE, &cancel(&invite));
        w.expect(ALICE, "200 CANCEL");
        let answer = w.expect(ALICE, "487");
        w.arrives(at, ALICE, &ack(&invite, &answer));
        w.reply(&asked, Reply::Located);
        w.quiet();
        w.finish();
    }
}

/// A request other than INVITE waits without a response; its copies are absorbed, and answered the same afterwards.
#[test]
fn copies_of_a_message_that_waits_are_absorbed() {
    let mut w = unknown_bob(|_| {});
    let request = w.call(ALICE, "MESSAGE sip:bob@example.org");
    let asked = w.asked();
    w.from(ALICE, &request);
    w.quiet();
    assert!(w.asks.is_empty());
    w.registered_nowhere("bob", true);
    w.reply(&asked, Reply::Located);
    w.expect(ALICE, "480");
    w.from(ALICE, &request);
    w.expect(ALICE, "480");
    assert!(w.asks.is_empty());
    w.finish();
}

/// Requests for one user at the same time have a question each.
#[test]
fn requests_for_one_user_wait_each_for_themselves() {
    let mut w = unknown_bob(|_| {});
    for caller in [ALICE, PROXY] {
        w.call(caller, "MESSAGE sip:bob@example.org");
    }
    let (first, second) = (w.asked(), w.asked());
    w.elsewhere("bob", &[(ROUTER, 1000)]);
    for (asked, caller) in [(second, PROXY), (first, ALICE)] {
        w.reply(&asked, Reply::Located);
        let got = w.expect(ROUTER, "MESSAGE");
        w.answer(ROUTER, &got, 200);
        w.expect(caller, "200");
    }
    w.finish();
}

/// RFC 3261 section 17: nothing can be answered to an ACK. It goes where it can at once, or nowhere.
#[test]
fn an_ack_does_not_wait() {
    let mut w = unknown_bob(|_| {});
    let ack = w.request(ALICE, "ACK sip:bob@example.org");
    w.from(ALICE, &ack);
    w.quiet();
    w.register("bob", BOB);
    let ack = w.request(ALICE, "ACK sip:bob@example.org");
    w.from(ALICE, &ack);
    w.expect(BOB, "ACK");
    assert!(w.asks.is_empty());
    w.finish();
}

/// Contacts that are other users of ours may be elsewhere as well. Each is asked for, once.
#[test]
fn contacts_that_are_users_elsewhere_are_asked_for_in_turn() {
    let mut w = World::new();
    w.bind("carol", bind("sip:bob@example.org").q(800));
    w.bind("carol", bind("sip:dave@example.org").q(400));
    for user in ["bob", "dave", "carol"] {
        w.unknown(user);
    }
    w.call(ALICE, "MESSAGE sip:carol@example.org");
    let mut names = Vec::new();
    for _ in 0..3 {
        let asked = w.asked();
        assert!(w.asks.is_empty() && w.cores[0].tables().parked == 1);
        names.push(asked.aor());
        let user = names.last().unwrap()[4..].split('@').next().unwrap().to_string();
        match user.as_str() {
            "dave" => w.elsewhere("dave", &[(ROUTER2, 1000)]),
            "bob" => w.elsewhere("bob", &[(ROUTER, 500)]),
            _ => w.registered_nowhere("carol", true),
        }
        w.reply(&asked, Reply::Located);
    }
    names.sort();
    assert_eq!(names, ["bob", "carol", "dave"].map(|user| format!("sip:{user}@example.org")));
    // The q of the contact counts, not that of the server.
    let got = w.expect(ROUTER, "MESSAGE sip:bob@example.org");
    w.quiet();
    w.answer(ROUTER, &got, 480);
    let got = w.expect(ROUTER2, "MESSAGE sip:dave@example.org");
    w.answer(ROUTER2, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// A user with contacts that are many other users asks a bounded number of questions.
#[test]
fn the_questions_of_one_request_are_bounded() {
    let mut w = World::new();
    for n in 0..40 {
        w.bind("carol", bind(format!("sip:u{n}@example.org")));
        w.unknown(&format!("u{n}"));
    }
    w.call(ALICE, "MESSAGE sip:carol@example.org");
    let mut count = 0;
    while !w.asks.is_empty() {
        count += 1;
        let asked = w.asked();
        w.reply(&asked, Reply::Unavailable);
    }
    assert!((10..=16).contains(&count), "{count}");
    w.expect(ALICE, "504");
    w.finish();
}

/// RFC 5627 section 5.1: an instance that is registered here is the only target; another may be elsewhere, and the
/// servers there know it by its `gr` parameter. A temporary GRUU of another server cannot be read.
#[test]
fn a_public_gruu_of_an_instance_elsewhere_keeps_its_gr() {
    let mut w = World::new();
    w.bind("bob", bind(BOB.contact()).instance("urn:uuid:here"));
    w.unknown("bob");
    w.call(ALICE, "MESSAGE sip:bob@example.org;gr=urn:uuid:here");
    let got = w.expect(BOB, "MESSAGE");
    w.answer(BOB, &got, 200);
    w.expect(ALICE, "200");
    w.call(ALICE, "MESSAGE sip:bob@example.org;gr=urn:uuid:there");
    let asked = w.asked();
    w.reply(&asked, Reply::Unavailable);
    w.expect(ALICE, "504");
    w.elsewhere("bob", &[(ROUTER, 1000)]);
    w.call(ALICE, "MESSAGE sip:bob@example.org;gr=urn:uuid:there");
    let got = w.expect(ROUTER, "MESSAGE sip:bob@example.org;gr=urn:uuid:there");
    w.answer(ROUTER, &got, 200);
    w.expect(ALICE, "200");
    w.registered_nowhere("bob", true);
    w.call(ALICE, "MESSAGE sip:bob@example.org;gr=urn:uuid:there");
    w.expect(ALICE, "480");
    w.unknown("tgruu.abc");
    w.call(ALICE, "MESSAGE sip:tgruu.abc@example.org;gr");
    w.expect(ALICE, "404");
    assert!(w.asks.is_empty());
    w.finish();
}

/// No Contact leads to another server, so a request for a user there is proxied in redirect mode (RFC 3261 section 8.3).
#[test]
fn a_redirect_server_proxies_to_users_elsewhere() {
    let mut w = unknown_bob(|config| config.domains[0].mode = Mode::Redirect);
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let asked = w.asked();
    w.registered_nowhere("bob", true);
    w.reply(&asked, Reply::Located);
    let moved = w.expect(ALICE, "302");
    assert_eq!(moved.uris("Contact"), [BOB.contact()]);
    w.from(ALICE, &ack(&invite, &moved));
    w.pass_secs(2);
    w.quiet();
    w.elsewhere("bob", &[(ROUTER, 1000)]);
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    let (here, there) = (w.expect(BOB, "MESSAGE"), w.expect(ROUTER, "MESSAGE"));
    w.answer(BOB, &here, 486);
    w.answer(ROUTER, &there, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// What is answered after a wait is bounded as before it: at most three times the request of a stranger.
#[test]
fn an_answer_after_the_wait_is_no_amplification() {
    let mut w = unknown_bob(|config| {
        digest(config);
        config.domains[0].mode = Mode::Redirect;
    });
    for n in 0..10 {
        w.bind("bob", bind(format!("sip:{}@203.0.113.{n}", "b".repeat(250))));
    }
    let request = w.request(PROXY, "MESSAGE sip:bob@example.org");
    w.from(PROXY, &request.set("From", "<sip:eve@example.com>;tag=1"));
    let asked = w.asked();
    w.reply(&asked, Reply::Unavailable);
    assert_eq!(w.cores[0].stats().amplification_avoided, 1);
    assert_eq!(w.cores[0].tables().server_transactions, 0);
    w.finish();
}

/// RFC 3261 section 16.11: a stateless proxy sends no 100, so that the sender's retransmissions go on.
#[test]
fn a_stateless_proxy_waits_without_a_100() {
    let mut w = unknown_bob(|config| config.domains[0].mode = Mode::Stateless);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.quiet();
    let asked = w.asked();
    w.from(ALICE, &invite);
    w.quiet();
    w.elsewhere("bob", &[(ROUTER, 1000)]);
    w.reply(&asked, Reply::Located);
    let first = w.expect(ROUTER, "INVITE");
    assert_eq!(w.cores[0].tables().server_transactions, 0);
    w.from(ALICE, &invite);
    let second = w.expect(ROUTER, "INVITE");
    assert_eq!(first.branch(), second.branch());
    w.answer(ROUTER, &second, 486);
    let answer = w.expect(ALICE, "486");
    w.from(ALICE, &ack(&invite, &answer));
    w.expect(ROUTER, "ACK");
    // A CANCEL takes the same path, and does not wait.
    w.from(ALICE, &cancel(&invite));
    w.expect(ROUTER, "CANCEL");
    w.unknown("bob");
    w.from(ALICE, &cancel(&invite));
    w.expect(ALICE, "481 CANCEL");
    assert!(w.asks.is_empty());
    w.finish();
}

/// A Path that is none, or that leads back to this server, is not used.
#[test]
fn a_path_that_leads_nowhere_is_not_used() {
    let mut w = World::new();
    w.elsewhere_by("bob", &["", "<sip:", "<sip:192.0.2.1:5060;lr>", "<sip:example.org;lr>"]);
    w.name("example.org", &[(Transport::Udp, "192.0.2.1:5060")]);
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    w.expect(ALICE, "480");
    w.finish();
}

/// RFC 3261 section 16.9: a server that cannot be reached is a branch that has failed; the others ring.
#[test]
fn a_server_that_cannot_be_reached_leaves_the_others() {
    let mut w = World::new();
    w.register("bob", BOB);
    w.elsewhere("bob", &[(ROUTER, 1000), (ROUTER2, 1000)]);
    w.break_way(Transport::Udp, ROUTER.addr);
    w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let (here, there) = (w.expect(BOB, "INVITE"), w.expect(ROUTER2, "INVITE"));
    assert_eq!(w.failed, [ROUTER.remote()]);
    w.answer(BOB, &here, 180);
    w.expect(ALICE, "180");
    w.answer(ROUTER2, &there, 180);
    w.expect(ALICE, "180");
    w.answer(ROUTER2, &there, 200);
    w.expect(ALICE, "200");
    let stop = w.expect(BOB, "CANCEL");
    assert!(stop.get("Reason").contains("elsewhere"));
    w.answer(BOB, &stop, 200);
    w.answer(BOB, &here, 487);
    w.expect(BOB, "ACK");
    w.finish();
}

/// RFC 5630 section 5.3: a `sips` request is not sent to a server without TLS.
#[test]
fn a_secure_request_is_sent_to_secure_servers_only() {
    let mut w = World::new();
    w.elsewhere("bob", &[(ROUTER, 1000)]);
    let request = w.request(FRANK_TLS, "MESSAGE sips:bob@example.org");
    w.from(FRANK_TLS, &request);
    w.expect(FRANK_TLS, "480");
    w.elsewhere_by("bob", &["<sip:[fd02::1]:5061;transport=tls;lr>"]);
    let request = w.request(FRANK_TLS, "MESSAGE sips:bob@example.org");
    w.from(FRANK_TLS, &request);
    let peer = Peer { transport: Transport::Tls, ..ROUTER.at("[fd02::1]:5061") };
    let got = w.expect(peer, "MESSAGE sips:bob@example.org");
    w.answer(peer, &got, 200);
    w.expect(FRANK_TLS, "200");
    w.finish();
}

/// One source that lets many requests wait leaves room for others, and strangers leave room for users.
#[test]
fn a_source_whose_requests_wait_leaves_room_for_others() {
    let mut w = unknown_bob(digest);
    let stranger = |w: &mut World, addr: &str| {
        let peer = PROXY.at(Box::leak(addr.to_string().into()));
        let request = w.request(peer, "MESSAGE sip:bob@example.org");
        w.from(peer, &request.set("From", "<sip:eve@example.com>;tag=1"));
        w.count(peer, "503") == 0
    };
    let first = (0..3_000).filter(|_| stranger(&mut w, "198.51.100.7:5060")).count();
    let share = MAX_UNAUTHENTICATED_PARKED / 5;
    assert!(first.abs_diff(share) <= 2, "{first}");
    let second = (0..3_000).filter(|_| stranger(&mut w, "198.51.100.8:5060")).count();
    assert!(second.abs_diff(share / 5 * 4) <= 2, "{second}");
    for n in 1..250 {
        for _ in 0..50 {
            stranger(&mut w, &format!("203.0.113.{n}:5060"));
        }
    }
    assert!(w.cores[0].tables().parked <= MAX_UNAUTHENTICATED_PARKED);
    assert!(w.cores[0].stats().limits_hit > 3_000);
    w.asks.clear();
    let request = w.call(ALICE, "INVITE sip:bob@example.org");
    let challenged = w.expect(ALICE, "407");
    w.from(ALICE, &ack(&request, &challenged));
    let again = answered(&request, &challenged, "alice", &w.branch());
    w.from(ALICE, &again);
    w.expect(ALICE, "100");
    let asked = w.asked();
    w.elsewhere("bob", &[(ROUTER, 1000)]);
    w.reply(&asked, Reply::Located);
    let got = w.expect(ROUTER, "INVITE");
    w.answer(ROUTER, &got, 200);
    w.expect(ALICE, "200");
    w.pass_secs(11);
    w.ignore();
    w.finish_anyhow();
}

/// What a request that waits needs is bounded in octets too, and given back.
#[test]
fn requests_that_wait_are_bounded_in_octets() {
    let mut w = unknown_bob(|_| {});
    let mut waiting = 0;
    loop {
        let request = w.request(CAROL_TCP, "MESSAGE sip:bob@example.org").padded(57_000);
        w.from(CAROL_TCP, &request);
        if w.count(CAROL_TCP, "503") > 0 {
            break;
        }
        waiting += 1;
    }
    assert_eq!(w.cores[0].tables().parked, waiting);
    for asked in std::mem::take(&mut w.asks) {
        w.reply(&asked, Reply::Unavailable);
    }
    assert_eq!(w.count(CAROL_TCP, "504"), waiting);
    assert_eq!(w.cores[0].tables().kept_octets, 0);
    w.finish();
}

/// A new configuration counts for what waits: a domain that is gone is none of ours any more.
#[test]
fn a_request_that_waits_is_judged_by_the_new_rules() {
    let mut w = unknown_bob(digest);
    let request = w.call(ALICE, "MESSAGE sip:bob@example.org");
    let challenged = w.expect(ALICE, "407");
    let again = answered(&request, &challenged, "alice", &w.branch());
    w.from(ALICE, &again);
    let first = w.asked();
    let again = w.request(PROXY, "MESSAGE sip:bob@example.org");
    w.from(PROXY, &again.set("From", "<sip:eve@example.com>;tag=1"));
    let second = w.asked();
    let mut config = config();
    digest(&mut config);
    config.domains[0].name = "example.net".into();
    w.reconfigure(config);
    w.elsewhere("bob", &[(ROUTER, 1000)]);
    // The proof was given when the domain was ours: the request goes where any user may send it.
    w.name("example.org", &[(Transport::Udp, PROXY.addr)]);
    w.reply(&first, Reply::Located);
    let got = w.expect(PROXY, "MESSAGE");
    w.answer(PROXY, &got, 200);
    w.expect(ALICE, "200");
    w.reply(&second, Reply::Located);
    w.expect(PROXY, "407");
    w.finish();
}

/// Draining: what waits is completed, what is new does not wait.
#[test]
fn draining_completes_what_waits() {
    let mut w = unknown_bob(|_| {});
    w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let asked = w.asked();
    w.cores[0].drain();
    assert!(!w.idle());
    let other = w.call(ALICE, "INVITE sip:bob@example.org");
    let refused = w.expect(ALICE, "503");
    assert!(refused.has("Retry-After") && w.asks.is_empty());
    w.from(ALICE, &ack(&other, &refused));
    w.elsewhere("bob", &[(ROUTER, 1000)]);
    w.reply(&asked, Reply::Located);
    let got = w.expect(ROUTER, "INVITE");
    w.answer(ROUTER, &got, 200);
    w.expect(ALICE, "200");
    w.pass_secs(32);
    assert!(w.idle());
    w.finish();
}

/// Whatever happens to requests that wait, and in whatever order, each INVITE has one final response, and nothing is
/// left.
#[test]
fn nothing_is_left_of_requests_that_wait() {
    for seed in 0..150 {
        let mut random = SplitMix::new(seed);
        let mut below = move |n: u64| random.next_u64() % n;
        let workers = 1 + below(3) as u8;
        let mut w = World::build(workers, &[], |config| {
            config.domains[0].mode =
                [Mode::Proxy, Mode::Redirect, Mode::Stateless][seed as usize % 3];
        });
        w.bind("carol", bind("sip:bob@example.org"));
        w.bind("carol", bind(BOB.contact()));
        let mut open: Vec<Asked> = Vec::new();
        let (mut invites, mut repeated) = (Vec::new(), Vec::new());
        for _ in 0..60 {
            let user = ["bob", "carol", "dave"][below(3) as usize];
            match below(8) {
                0 => w.unknown(user),
                1 => w.elsewhere(user, &[(ROUTER, 1000), (ROUTER2, 500)]),
                2 => w.registered_nowhere(user, below(2) == 0),
                3 | 4 => {
                    let method = ["INVITE", "MESSAGE", "SUBSCRIBE", "ACK"][below(4) as usize];
                    let request = w.request(ALICE, &format!("{method} sip:{user}@example.org"));
                    w.arrives(below(workers.into()) as u8, ALICE, &request);
                    if method == "INVITE" {
                        invites.push(request);
                    }
                }
                5 if !invites.is_empty() => {
                    let invite = invites[below(invites.len() as u64) as usize].clone();
                    repeated.push(invite.branch());
                    let msg = if below(2) == 0 { cancel(&invite) } else { invite };
                    w.arrives(below(workers.into()) as u8, ALICE, &msg);
                }
                6 if !open.is_empty() => {
                    let at = below(open.len() as u64) as usize;
                    // Some are answered again.
                    let asked = if below(4) == 0 { open[at].clone() } else { open.remove(at) };
                    let reply = [
                        Reply::Located,
                        Reply::Located,
                        Reply::Unavailable,
                        Reply::Credentials(CredentialsVerdict::Right),
                    ][below(4) as usize];
                    w.reply(&asked, reply);
                }
                7 => w.pass_ms(below(4_000)),
                _ => {}
            }
            open.append(&mut w.asks);
        }
        w.pass_secs(300);
        if seed % 3 != 2 {
            for invite in &invites {
                let finals = w.sent.iter().filter(|sent| {
                    let msg = &sent.msg;
                    msg.status() >= 200
                        && msg.get("CSeq") == "1 INVITE"
                        && msg.branch() == invite.branch()
                });
                let statuses: Vec<u16> = finals.map(|sent| sent.msg.status()).collect();
                assert!(!statuses.is_empty(), "seed {seed}: no answer\n{}", w.ladder());
                // A copy may come after the transaction has ended, and be answered otherwise.
                let same = statuses.iter().all(|status| *status == statuses[0]);
                assert!(same || repeated.contains(&invite.branch()), "seed {seed}: {statuses:?}");
            }
        }
        w.finish_anyhow();
    }
}

/// With nothing known of other servers, nothing is asked, and nothing waits.
#[test]
fn without_other_servers_nothing_is_asked() {
    let mut w = closed();
    w.register("bob", BOB);
    let request = w.request(PROXY, "MESSAGE sip:bob@example.org");
    w.from(PROXY, &request.set("From", "<sip:eve@example.com>;tag=1"));
    let got = w.expect(BOB, "MESSAGE");
    w.answer(BOB, &got, 200);
    w.expect(PROXY, "200");
    assert!(w.asks.is_empty());
    w.finish();
}
