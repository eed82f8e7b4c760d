//! What an operator does to a running proxy, and what it does when there is too much.

use crate::common::*;
use crate::elsewhere::unknown_bob;
use ringway_proxy::Reply;
use ringway_proxy::core::{MAX_NEW_BUDGET, MAX_RESOLVING};
use ringway_proxy::location::{Commit, CommitTag, Journal, MemoryStore};
use ringway_sansio::{Backlog, Duration, Outbox, Transport::Udp};
use std::sync::{Arc, Mutex};

/// Draining: new calls are refused with 503 and Retry-After, those that run are finished.
#[test]
fn draining_finishes_what_runs() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.cores[0].drain();
    assert!(!w.idle());
    let other = w.call(ALICE, "INVITE sip:bob@example.org");
    let refused = w.expect(ALICE, "503");
    assert!(refused.get("Retry-After").parse::<u32>().is_ok());
    w.from(ALICE, &ack(&other, &refused));
    w.answer(BOB, &got, 200);
    let ok = w.expect(ALICE, "200");
    let mut caller = Dialog::of_caller(ALICE, &invite, &ok);
    // RFC 3261 section 13.3.1.4: without its ACK the callee would hang up.
    w.pass(Duration::from_secs(31));
    assert!(!w.idle());
    for method in ["ACK", "BYE"] {
        let branch = w.branch();
        w.from(ALICE, &caller.request(method, &branch));
        let there = w.expect(BOB, method);
        assert!(!w.idle(), "what follows an ACK at once is forwarded");
        if method == "BYE" {
            w.answer(BOB, &there, 200);
            w.expect(ALICE, "200");
        }
    }
    w.pass(Duration::from_millis(500));
    assert!(w.idle());
    w.finish();
}

/// A server that ends answers what nobody else would answer: the caller may call again, and the phone rings no more.
#[test]
fn what_is_unanswered_at_the_end_is_refused() {
    let mut w = World::new();
    w.register("bob", BOB);
    w.register("carol", BOB2);
    let refused = |w: &mut World| {
        let refused = w.expect(ALICE, "503");
        assert!(refused.get("Retry-After").parse::<u32>().is_ok(), "{refused}");
        refused
    };
    assert_eq!(w.cores[0].unanswered_for(w.now), None);
    let ringing = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 180);
    w.expect(ALICE, "180");
    w.pass_ms(100);
    let silent = w.call(ALICE, "INVITE sip:carol@example.org");
    w.expect(ALICE, "100");
    w.expect(BOB2, "INVITE");
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    w.expect(BOB, "MESSAGE");
    assert_eq!(w.cores[0].unanswered_for(w.now), Some(Duration::from_millis(100)));
    w.end_requests();
    assert_eq!(w.cores[0].unanswered_for(w.now), None);
    for invite in [ringing, silent] {
        let answer = refused(&mut w);
        w.from(ALICE, &ack(&invite, &answer));
    }
    refused(&mut w);
    let cancel = w.expect(BOB, "CANCEL");
    assert_eq!(cancel.get("Reason"), "SIP;cause=503");
    w.answer(BOB, &cancel, 200);
    w.answer(BOB, &got, 487);
    w.expect(BOB, "ACK");
    w.quiet();
    w.finish_anyhow();
}

/// What waits for an answer of the world when the server ends is refused, too. The answer has no effect then.
#[test]
fn what_waits_for_the_world_at_the_end_is_refused() {
    let mut w = unknown_bob(|_| {});
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let asked = w.asked();
    w.pass_ms(70);
    assert_eq!(w.cores[0].unanswered_for(w.now), Some(Duration::from_millis(70)));
    w.end_requests();
    let refused = w.expect(ALICE, "503");
    assert!(refused.get("Retry-After").parse::<u32>().is_ok(), "{refused}");
    w.from(ALICE, &ack(&invite, &refused));
    w.elsewhere("bob", &[(ROUTER, 1000)]);
    w.reply(&asked, Reply::Located);
    w.quiet();
    w.finish();
}

/// RFC 5626 section 4.2: a phone whose flow is closed registers by another proxy. One that rings or calls keeps its own until
/// it is answered. Registrations by datagrams are left.
#[test]
fn phones_are_moved_flow_by_flow() {
    let mut w = World::new();
    w.register("bob", BOB);
    for (user, peer) in [("carol", CAROL_TCP), ("dave", DAVE_TCP), ("erin", ERIN_WS)] {
        w.bind(user, bind(peer.contact()).over(peer));
    }
    let invite = w.request(ALICE, "INVITE sip:carol@example.org");
    w.from(ALICE, &invite);
    w.expect(ALICE, "100");
    let got = w.expect(CAROL_TCP, "INVITE");
    let ids = |peers: &[Peer]| peers.iter().map(|peer| peer.flow(0).id).collect::<Vec<_>>();
    let moved = |w: &mut World, steps| {
        let mut out = Outbox::new();
        let left = w.cores[0].move_phones(steps, &mut out);
        let mut closed = out.closes().to_vec();
        closed.sort_unstable();
        (closed, left)
    };
    let (first, left) = moved(&mut w, 3);
    assert_eq!((first.len(), left), (1, 2));
    let (second, left) = moved(&mut w, 1);
    assert_eq!(left, 1, "carol rings");
    let mut both = [first, second].concat();
    both.sort_unstable();
    assert_eq!(both, ids(&[DAVE_TCP, ERIN_WS]));
    w.answer(CAROL_TCP, &got, 486);
    w.expect(CAROL_TCP, "ACK");
    w.expect(ALICE, "486");
    assert_eq!(moved(&mut w, 1), (ids(&[CAROL_TCP]), 0));
    w.ignore();
}

/// A call that was accepted just before has its ACK; one whose ACK never comes holds nothing up for long.
#[test]
fn draining_waits_for_the_ack() {
    for before in [true, false] {
        let mut w = World::new();
        w.register("bob", BOB);
        w.call(ALICE, "INVITE sip:bob@example.org");
        w.expect(ALICE, "100");
        let got = w.expect(BOB, "INVITE");
        let waits = if before {
            Duration::from_millis(500)
        } else {
            w.cores[0].drain();
            Duration::from_secs(32)
        };
        w.answer(BOB, &got, 200);
        w.expect(ALICE, "200");
        w.cores[0].drain();
        w.pass(waits - Duration::from_millis(1));
        assert!(!w.idle(), "{before}");
        w.pass(Duration::from_millis(1));
        assert!(w.idle(), "{before}");
        w.finish();
    }
}

/// Overload: what would begin something is refused early, what is under way goes on (RFC 7339
/// section 5.10.1), until the queue is short again.
#[test]
fn overload_refuses_what_is_new() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    let waits = Backlog { delay: Duration::from_secs(1), messages: 100_000, ..Backlog::default() };
    let now = w.now;
    w.cores[0].handle_backlog(now, &waits);
    let other = w.call(ALICE, "INVITE sip:bob@example.org");
    let refused = w.expect(ALICE, "503");
    assert!((2..10).contains(&refused.get("Retry-After").parse::<u32>().unwrap()));
    w.from(ALICE, &ack(&other, &refused));
    w.answer(BOB, &got, 180);
    w.expect(ALICE, "180");
    w.from(ALICE, &cancel(&invite));
    w.expect(ALICE, "200 CANCEL");
    let there = w.expect(BOB, "CANCEL");
    w.answer(BOB, &there, 200);
    w.answer(BOB, &got, 487);
    w.expect(BOB, "ACK");
    let answer = w.expect(ALICE, "487");
    w.from(ALICE, &ack(&invite, &answer));
    w.cores[0].handle_backlog(now, &Backlog::default());
    w.call(ALICE, "OPTIONS sip:example.org");
    w.expect(ALICE, "200");
    assert_eq!(w.cores[0].stats().overloaded, 1);
    w.finish();
}

/// A source that sends too much is refused, then ignored; another is not touched by it.
#[test]
fn a_flood_from_one_source() {
    let mut w = World::with(|config| config.limits.requests_per_source = 5);
    for _ in 0..30 {
        w.call(ALICE, "OPTIONS sip:example.org");
    }
    assert_eq!(w.count(ALICE, "200"), 5);
    let refused = w.count(ALICE, "503");
    assert!((1..=5).contains(&refused), "{refused}");
    w.quiet();
    w.call(PROXY, "OPTIONS sip:example.org");
    w.expect(PROXY, "200");
    assert_eq!(w.cores[0].tables().sources, 2);
    w.finish();
}

/// New rules hold for what is new: a call that runs is finished by the old ones.
#[test]
fn a_call_outlives_a_change_of_rules() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    let mut config = config();
    config.domains[0].name = "example.net".into();
    config.timers.t1 = Duration::from_secs(1);
    w.reconfigure(config);
    w.answer(BOB, &got, 180);
    w.expect(ALICE, "180");
    w.answer(BOB, &got, 200);
    let ok = w.expect(ALICE, "200");
    let mut caller = Dialog::of_caller(ALICE, &invite, &ok);
    w.from(ALICE, &caller.request("ACK", "z9hG4bKack"));
    w.expect(BOB, "ACK");
    w.call(ALICE, "OPTIONS sip:example.net");
    w.expect(ALICE, "200");
    w.finish();
}

/// The number of names that are being resolved is bounded; beyond it a call fails at once.
#[test]
fn names_being_resolved_are_bounded() {
    let mut w = World::new();
    w.bind("bob", bind("sip:bob@pbx.example.net"));
    for _ in 0..MAX_RESOLVING {
        w.call(ALICE, "MESSAGE sip:bob@example.org");
    }
    w.quiet();
    assert_eq!(w.cores[0].tables().resolving, MAX_RESOLVING);
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    w.expect(ALICE, "480");
    let ack = w.request(ALICE, "ACK sip:x@pbx.example.net");
    w.from(ALICE, &ack);
    assert_eq!(w.cores[0].stats().limits_hit, 2);
    for question in std::mem::take(&mut w.questions) {
        w.resolved(question, &[]);
    }
    assert_eq!(w.count(ALICE, "480"), MAX_RESOLVING);
    w.finish();
}

/// A journal that is slow: it takes everything and reports nothing.
#[derive(Clone, Default)]
struct Slow(Arc<Mutex<Vec<CommitTag>>>);

impl Journal for Slow {
    fn record(&self, _aor: &[u8], _record: Option<&[u8]>, tag: Option<CommitTag>) -> Commit {
        let Some(tag) = tag else { return Commit::Done };
        self.0.lock().unwrap().push(tag);
        Commit::Pending
    }
}

/// RFC 3261 section 10.3 item 8: a REGISTER is answered when its bindings are safe, and calls go on
/// meanwhile.
#[test]
fn a_register_waits_for_the_store() {
    let slow = Slow::default();
    let store = MemoryStore::with_journal([3; 16], Box::new(slow.clone()));
    let mut w = World::over(store, 1, &[], |_| {});
    let register = |w: &mut World, peer: Peer| {
        let request = w.request(peer, "REGISTER sip:example.org");
        w.from(peer, &request.set("To", "<sip:bob@example.org>"));
    };
    register(&mut w, BOB);
    register(&mut w, BOB2);
    w.quiet();
    assert_eq!(w.cores[0].tables().pending_commits, 2);
    w.call(ALICE, "OPTIONS sip:bob@example.org");
    let got = w.expect(BOB, "OPTIONS");
    w.expect(BOB2, "OPTIONS");
    w.answer(BOB, &got, 200);
    w.expect(ALICE, "200");
    let tags = slow.0.lock().unwrap().clone();
    w.committed(0, tags[1].id, true);
    w.expect(BOB2, "200 REGISTER");
    w.quiet();
    // A disk that fails is no 200.
    w.committed(0, tags[0].id, false);
    let refused = w.expect(BOB, "503 REGISTER");
    assert!(refused.has("Retry-After"));
    // A number that means nothing.
    w.committed(0, 77, true);
    w.name("unused", &[(Udp, BOB.addr)]);
    w.finish_anyhow();
}

/// What is kept of requests is bounded in octets too: large ones cannot fill the memory. What is
/// refused for it is refused with 503, and everything is given back.
#[test]
fn stored_requests_are_bounded_in_octets() {
    let mut w = World::new();
    w.bind("bob", bind("sip:bob@pbx.example.net"));
    let mut taken = 0;
    let mut size = 0;
    loop {
        let request = w.request(CAROL_TCP, "INVITE sip:bob@example.org").padded(57_000);
        size = size.max(request.bytes().len());
        w.from(CAROL_TCP, &request);
        if w.count(CAROL_TCP, "503") > 0 {
            break;
        }
        w.ignore();
        taken += 1;
    }
    let kept = w.cores[0].tables().kept_octets;
    // One source ends where it holds a quarter of what is free for new requests.
    let share = MAX_NEW_BUDGET / 5;
    assert!(kept <= share && kept + 2 * size > share, "{kept}");
    assert!(taken < MAX_RESOLVING);
    // A small one still finds its place.
    w.register("alice", BOB2);
    w.call(ALICE, "MESSAGE sip:alice@example.org");
    let got = w.expect(BOB2, "MESSAGE");
    w.answer(BOB2, &got, 200);
    w.expect(ALICE, "200");
    for question in std::mem::take(&mut w.questions) {
        w.resolved(question, &[]);
        w.ignore();
    }
    w.finish_anyhow();
}
