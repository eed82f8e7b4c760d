//! Budgets are shares: what one source or user takes is never what others need.

use crate::common::elsewhere::MAX_WAITING;
use crate::common::*;
use crate::relay::{answered, digest};
use ringway_proxy::location::{Commit, CommitTag, Journal, MemoryStore};
use std::sync::{Arc, Mutex};

/// Sixty strangers keep as much as they get with ringing calls of 50 kB; everybody else's calls and
/// registrations go on.
#[test]
fn sources_that_keep_much_leave_room_for_others() {
    let mut w = World::with(digest);
    w.register("bob", BOB);
    let outside = "<sip:eve@example.com>;tag=1";
    let mut refused = 0;
    for n in 0..60u8 {
        let addr: &'static str = Box::leak(format!("198.51.100.{}:5060", 100 + n).into());
        let eve = PROXY.at(addr);
        for _ in 0..400 {
            let invite = w.request(eve, "INVITE sip:bob@example.org").set("From", outside);
            w.from(eve, &invite.padded(50_000));
            refused += w.count(eve, "503");
            w.ignore();
        }
    }
    assert!(refused > 1_000, "they ask for more than there is: {refused}");
    for n in 0..20u8 {
        let addr: &'static str = Box::leak(format!("203.0.113.{}:5060", 100 + n).into());
        let honest = ALICE.at(addr);
        let register = w.request(honest, "REGISTER sip:example.org");
        let register = register.set("To", "<sip:alice@example.org>");
        let register = register.set("Contact", "<sip:alice@203.0.113.9>");
        w.from(honest, &register);
        let challenge = w.expect(honest, "401");
        let branch = w.branch();
        w.from(honest, &answered(&register, &challenge, "alice", &branch));
        w.expect(honest, "200");
        let invite = w.call(honest, "INVITE sip:bob@example.org");
        let challenge = w.expect(honest, "407");
        let branch = w.branch();
        w.from(honest, &answered(&invite, &challenge, "alice", &branch));
        w.expect(honest, "100");
        w.expect(BOB, "INVITE");
    }
}

/// An account with ten contacts that lead back here, each to be tried after the other, costs nobody
/// anything: ourselves are not sent to, by address or by name.
#[test]
fn contacts_that_lead_back_here_cost_nothing() {
    for host in ["192.0.2.1", "192.0.2.1:5060;transport=tcp", "example.org", "us.example.net"] {
        let mut w = World::new();
        w.name("us.example.net", &[(ringway_sansio::Transport::Udp, "192.0.2.1:5060")]);
        for n in 0..10u16 {
            let contact = match host.split_once(';') {
                Some((host, more)) => format!("sip:alice{n}@{host};{more}"),
                None => format!("sip:alice{n}@{host}"),
            };
            w.bind("alice", bind(contact).q(100 * n));
            w.bind(&format!("alice{n}"), bind(format!("sip:alice@{host}")));
        }
        w.call(BOB, "INVITE sip:alice@example.org");
        w.pass_secs(300);
        assert!(w.sent.iter().all(|s| s.to.remote() == BOB.remote()), "{host}: {:?}", w.sent);
        assert!(w.count(BOB, "100") <= 1, "{host}");
        assert!(w.count(BOB, "480") >= 1, "{host}: {:?}", w.sent);
    }
}

/// RFC 5393 section 5.3.3: what a request may fork into is bounded over all q together. Two proxies
/// that fork to each other end.
#[test]
fn forking_is_bounded_over_all_q() {
    let mut w = World::new();
    for n in 0..10u16 {
        w.bind("alice", bind(format!("sip:alice{n}@203.0.113.{}", n + 10)).q(100 * n));
    }
    let mut open = vec![w.request(BOB, "MESSAGE sip:alice@example.org")];
    let mut sent = 0;
    // Each contact is another proxy that sends the request back, for the same user.
    for _ in 0..2_000 {
        let Some(request) = open.pop() else { break };
        w.from(BOB, &request);
        let before = open.len();
        while let Some(got) = w.sent.pop_front() {
            if got.msg.is_request() {
                sent += 1;
                let branch = w.branch();
                let mut back = got.msg.clone().aimed_at("sip:alice@example.org;again");
                let vias = format!("SIP/2.0/UDP 203.0.113.2:5060;branch={branch}");
                back.headers.insert(0, ("Via".into(), vias));
                open.push(back);
            }
        }
        if open.len() == before && open.is_empty() {
            // The branch has been answered: the next q.
            w.pass_secs(40);
        }
    }
    assert!(open.is_empty(), "it goes on for ever");
    assert!(sent <= 80, "{sent} requests of one");
}

/// The store takes registrations and reports nothing, as a disk or a database does that has become slow.
struct Stalled(Arc<Mutex<Vec<CommitTag>>>);

impl Journal for Stalled {
    fn record(&self, _aor: &[u8], _record: Option<&[u8]>, tag: Option<CommitTag>) -> Commit {
        self.0.lock().unwrap().extend(tag);
        Commit::Pending
    }
}

#[test]
fn a_source_whose_registrations_wait_leaves_room_for_others() {
    let tags = Arc::new(Mutex::new(Vec::new()));
    let store = MemoryStore::with_journal([3; 16], Box::new(Stalled(tags.clone())));
    let mut w = World::over(store, 1, &[], |_| {});
    let registers = |w: &mut World, source: u8| {
        let addr: &'static str = Box::leak(format!("203.0.113.{source}:5060").into());
        let phone = ALICE.at(addr);
        let taken = (0..MAX_WAITING).take_while(|n| {
            let request = w.request(phone, "REGISTER sip:example.org");
            let request = request.set("To", format!("<sip:user{n}@example.org>"));
            w.from(phone, &request.set("Contact", format!("<sip:u@{addr}>")));
            w.count(phone, "503") == 0
        });
        taken.count()
    };
    let first = registers(&mut w, 100);
    assert!(first.abs_diff(MAX_WAITING / 5) <= 1, "{first}");
    let second = registers(&mut w, 101);
    assert!(second.abs_diff(MAX_WAITING / 5 / 5 * 4) <= 1, "{second}");
    for source in 1..20 {
        registers(&mut w, source);
    }
    assert!(registers(&mut w, 102) > 0, "a source that holds nothing finds room");
    // What is answered makes room again.
    let answer_all = |w: &mut World| {
        for tag in std::mem::take(&mut *tags.lock().unwrap()) {
            w.committed(0, tag.id, true);
        }
        w.ignore();
    };
    answer_all(&mut w);
    assert!(registers(&mut w, 100).abs_diff(MAX_WAITING / 5) <= 1);
    answer_all(&mut w);
    w.finish_anyhow();
}
