//! RFC 3261 section 10.3.

use super::*;

/// RFC 3261 section 10.3 steps 7 and 8.
#[test]
fn a_contact_is_bound_and_listed() {
    let mut w = World::new();
    let a = w.register("c1", 1, "Contact: <sip:alice@192.0.2.17>;expires=600");
    assert_eq!((a.status(), a.outcome.changed, a.outcome.commit), (200, true, Commit::Done));
    assert_eq!(a.contacts(), ["<sip:alice@192.0.2.17>;expires=600"]);
    assert_eq!(a.all("Date"), ["Tue, 14 Nov 2023 22:13:20 GMT"]);
    assert_eq!(w.stored(), ["sip:alice@192.0.2.17"]);
    w.only(|b| {
        assert_eq!((b.call_id, b.cseq, b.q, b.flow), (&b"c1"[..], 1, 1000, Some(w.flow)));
    });
}

/// RFC 3261 section 10.2.3: without Contact the bindings are listed and left alone.
#[test]
fn a_fetch_lists_and_changes_nothing() {
    let mut w = World::new();
    let a = w.register("c1", 1, "");
    assert_eq!((a.status(), a.contacts().len(), a.outcome.changed), (200, 0, false));
    w.register("c1", 2, "Contact: <sip:a@h1>;q=0.5, <sip:a@h2>;expires=100;x=1");
    w.pass(40);
    let a = w.register("other", 1, "");
    assert_eq!(a.contacts(), ["<sip:a@h1>;expires=3560;q=0.5", "<sip:a@h2>;expires=60;x=1"]);
}

/// RFC 3261 section 10.3 step 7: the parameter before the header field before the default.
#[test]
fn where_the_interval_comes_from() {
    let mut w = World::new();
    let a = w.register("c", 1, "Expires: 300\nContact: <sip:a@h1>;expires=120, <sip:a@h2>");
    assert_eq!(a.contacts(), ["<sip:a@h1>;expires=120", "<sip:a@h2>;expires=300"]);
    let a = w.register("c", 2, "Contact: *\nExpires: 0");
    assert_eq!(a.contacts().len(), 0);
    let a = w.register("c", 3, "Contact: <sip:a@h1>");
    assert_eq!(a.contacts(), ["<sip:a@h1>;expires=3600"]);
    let a = w.register("c", 4, "Contact: <sip:a@h1>;expires=soon\nExpires: 200");
    assert_eq!(a.contacts(), ["<sip:a@h1>;expires=200"]);
}

/// RFC 3261 section 10.3 step 7: a registrar may choose less, not more. RFC 4475 section 3.1.2.4
/// has values beyond 32 bits.
#[test]
fn long_intervals_are_shortened() {
    let mut w = World::new();
    let a = w.register("c", 1, "Contact: <sip:a@h>;expires=280297596632815");
    assert_eq!(a.contacts(), ["<sip:a@h>;expires=7200"]);
}

/// RFC 3261 section 10.3 step 7 and section 21.4.17.
#[test]
fn brief_intervals_are_refused() {
    let mut w = World::new();
    let a = w.register("c", 1, "Contact: <sip:a@h1>, <sip:a@h2>;expires=59");
    assert_eq!((a.status(), a.all("Min-Expires")), (423, vec!["60"]));
    assert!(a.contacts().is_empty() && w.stored().is_empty());
    assert_eq!(w.register("c", 1, "Contact: <sip:a@h2>;expires=60").status(), 200);
}

/// RFC 3261 section 10.3 step 7: an hour is never too brief, whatever the minimum.
#[test]
fn an_hour_is_long_enough() {
    let mut w = World::with(RegistrarConfig { min_expires: 5000, ..RegistrarConfig::default() });
    assert_eq!(w.register("c", 1, "Contact: <sip:a@h>;expires=3600").status(), 200);
    assert_eq!(w.register("c", 2, "Contact: <sip:a@h>;expires=3599").status(), 423);
    assert_eq!(w.register("c", 3, "Contact: <sip:a@h>;expires=0").status(), 200);
}

/// RFC 3261 section 10.2.2.
#[test]
fn zero_removes() {
    let mut w = World::new();
    w.register("c", 1, "Contact: <sip:a@h1>, <sip:a@h2>");
    let a = w.register("c", 2, "Contact: <sip:a@h1>;expires=0");
    assert_eq!(a.contacts(), ["<sip:a@h2>;expires=3600"]);
    let a = w.register("c", 3, "Contact: <sip:a@h2>\nExpires: 0");
    assert_eq!((a.contacts().len(), w.store.records()), (0, 0));
    let a = w.register("c", 4, "Contact: <sip:nobody@h2>\nExpires: 0");
    assert_eq!((a.status(), a.outcome.changed), (200, false));
}

/// RFC 3261 section 10.3 step 6.
#[test]
fn a_star_removes_everything() {
    let mut w = World::new();
    w.register("c1", 5, "Contact: <sip:a@h1>");
    w.register("c2", 1, "Contact: <sip:a@h2>");
    // The same Call-ID with an older CSeq aborts the whole.
    let a = w.register("c1", 5, "Contact: *\nExpires: 0");
    assert_eq!((a.status(), w.stored().len()), (500, 2));
    let a = w.register("c1", 6, "Contact: *\nExpires: 0");
    assert_eq!((a.status(), a.contacts().len(), w.stored().len()), (200, 0, 0));
    let a = w.register("c3", 1, "Contact: *\nExpires: 0");
    assert_eq!((a.status(), a.outcome.changed), (200, false));
}

/// RFC 3261 section 10.3 step 6.
#[test]
fn a_star_needs_expires_0_and_no_other_contact() {
    let mut w = World::new();
    w.register("c", 1, "Contact: <sip:a@h>");
    for lines in [
        "Contact: *",
        "Contact: *\nExpires: 1",
        "Contact: *\nExpires: x",
        "Contact: *\nContact: <sip:a@h>\nExpires: 0",
        "Contact: <sip:a@h>\nContact: *\nExpires: 0",
    ] {
        assert_eq!(w.register("c", 2, lines).status(), 400, "{lines}");
    }
    assert_eq!(w.stored(), ["sip:a@h"]);
}

/// RFC 3261 section 10.3 step 7: out-of-order requests of one user agent fail.
#[test]
fn an_old_cseq_fails() {
    let mut w = World::new();
    w.register("c", 7, "Contact: <sip:a@h>;expires=100");
    for cseq in [7, 6, 0] {
        let a = w.register("c", cseq, "Contact: <sip:a@h>;expires=500");
        assert_eq!((a.status(), a.headers.as_str()), (500, ""));
    }
    // Another Call-ID: a user agent that has restarted.
    assert_eq!(w.register("d", 1, "Contact: <sip:a@h>;expires=500").status(), 200);
    assert_eq!(w.register("d", 2, "Contact: <sip:a@h>;expires=500").status(), 200);
    w.only(|b| assert_eq!((b.call_id, b.cseq), (&b"d"[..], 2)));
}

/// RFC 3261 section 17.2.2 asks that a retransmission be answered like the request it repeats; here
/// that needs no transaction. What differs from the request in anything is no retransmission.
#[test]
fn a_retransmission_is_answered_again() {
    let mut w = World::new();
    let lines = "Contact: <sip:a@h>;expires=500";
    let first = w.register("c", 7, lines);
    w.pass(4);
    let again = w.register("c", 7, lines);
    assert_eq!((first.status(), again.status()), (200, 200));
    // It does not lengthen the binding.
    assert!(again.contacts()[0].contains(";expires=496"), "{again:?}");
    assert_eq!(w.register("c", 7, "Contact: <sip:b@h>, <sip:a@h>;expires=0").status(), 500);
    w.pass(40);
    assert_eq!(w.register("c", 7, lines).status(), 500);
}

/// RFC 3261 section 10.3: all updates are made or none.
#[test]
fn one_contact_that_fails_fails_all() {
    let mut w = World::new();
    w.register("c", 5, "Contact: <sip:a@h1>");
    let a = w.register("c", 5, "Contact: <sip:a@h2>, <sip:a@h1>;expires=0");
    assert_eq!(a.status(), 500);
    assert_eq!(w.stored(), ["sip:a@h1"]);
}

/// RFC 3261 section 10.3 step 7 with section 19.1.4.
#[test]
fn contacts_are_compared_as_uris() {
    let mut w = World::new();
    w.register("c", 1, "Contact: <sip:%61lice@Host.Example:5070;transport=udp>");
    let a = w.register("c", 2, "Contact: <sip:alice@host.example:5070;Transport=UDP;new=1>");
    assert_eq!(a.contacts().len(), 1);
    let a = w.register("c", 3, "Contact: <sip:alice@host.example:5070>");
    assert_eq!(a.contacts().len(), 2);
    let a = w.register("c", 4, "Contact: <sip:ALICE@host.example:5070;transport=udp>");
    assert_eq!(a.contacts().len(), 3);
}

#[test]
fn the_same_contact_twice_in_one_request_counts_once() {
    let mut w = World::new();
    let a = w.register("c", 1, "Contact: <sip:a@h>;q=0.1, <sip:a@H>;q=0.2");
    assert_eq!(a.contacts(), ["<sip:a@H>;expires=3600;q=0.2"]);
    let a = w.register("c", 2, "Contact: <sip:a@h>, <sip:a@h>;expires=0");
    assert_eq!(a.contacts().len(), 0);
}

#[test]
fn the_most_recent_registration_comes_first() {
    let mut w = World::new();
    w.register("c1", 1, "Contact: <sip:a@h1>");
    w.register("c2", 1, "Contact: <sip:a@h2>");
    assert_eq!(w.stored(), ["sip:a@h2", "sip:a@h1"]);
    w.register("c1", 2, "Contact: <sip:a@h1>");
    assert_eq!(w.stored(), ["sip:a@h1", "sip:a@h2"]);
}

#[test]
fn bindings_expire() {
    let mut w = World::new();
    w.register("c", 1, "Contact: <sip:a@h1>;expires=100, <sip:a@h2>;expires=200");
    w.pass(100);
    assert_eq!(w.register("x", 1, "").contacts(), ["<sip:a@h2>;expires=100"]);
    // What has expired does not count for order any more.
    assert_eq!(w.register("c", 1, "Contact: <sip:a@h1>").status(), 200);
}

#[test]
fn q_and_other_parameters_are_stored() {
    let mut w = World::new();
    let a = w.register(
        "c",
        1,
        "Contact: \"A\" <sip:a@h>;q=0.333;methods=\"INVITE,\n BYE\" ; +sip.ice;expires=60",
    );
    assert_eq!(a.contacts(), ["<sip:a@h>;expires=60;q=0.333;methods=\"INVITE,   BYE\";+sip.ice"]);
}

#[test]
fn bad_parameters_are_reported() {
    let mut w = World::new();
    for contact in [
        "<sip:a@h>;q=2",
        "<sip:a@h>;q",
        "<sip:a@h>;reg-id=0;+sip.instance=\"<x>\"",
        "<sip:a@h>;+sip.instance=\"<x\n y>\"",
    ] {
        let a = w.register("c", 1, &format!("Contact: {contact}"));
        assert_eq!(a.status(), 400, "{contact}");
        assert!(a.outcome.reason.contains("expected"), "{}", a.outcome.reason);
    }
}

/// RFC 3261 section 8.2.2.3.
#[test]
fn unknown_extensions_are_refused() {
    let mut w = World::new();
    let a = w.register("c", 1, "Require: path, x1, gruu\nRequire: x2\nContact: <sip:a@h>");
    assert_eq!((a.status(), a.all("Unsupported")), (420, vec!["x1", "x2"]));
    assert!(w.stored().is_empty());
}

#[test]
fn limits_of_a_request() {
    let mut w = World::with(RegistrarConfig { max_contacts: 100, ..RegistrarConfig::default() });
    let many = |n: usize| (0..n).map(|i| format!("<sip:a@h{i}>")).collect::<Vec<_>>().join(", ");
    let most = format!("Contact: {}", many(MAX_CONTACTS_PER_REQUEST));
    assert_eq!(w.register("c", 1, &most).status(), 200);
    let more = format!("Contact: {}", many(MAX_CONTACTS_PER_REQUEST + 1));
    assert_eq!(w.register("c", 2, &more).status(), 400);
    let long = |n| "x".repeat(n);
    for line in [
        format!("Contact: <sip:a@h;{}>", long(MAX_CONTACT_URI)),
        format!("Contact: <sip:a@h>;{}", long(MAX_CONTACT_PARAMS)),
        format!("Contact: <sip:a@h>;+sip.instance=\"<{}>\"", long(MAX_INSTANCE + 1)),
        format!("Supported: path\nPath: <sip:p;{0}>, <sip:p;{0}>", long(MAX_PATH / 2)),
    ] {
        assert_eq!(w.register("c", 3, &line).status(), 400, "{line:.60}");
    }
}

#[test]
fn limit_of_contacts_for_a_user() {
    let mut w = World::with(RegistrarConfig { max_contacts: 2, ..RegistrarConfig::default() });
    w.register("c", 1, "Contact: <sip:a@h1>, <sip:a@h2>");
    assert_eq!(w.register("d", 1, "Contact: <sip:a@h3>").status(), 403);
    assert_eq!(w.stored().len(), 2);
    // One may replace another in the same request, and those that are there may stay.
    let a = w.register("c", 2, "Contact: <sip:a@h3>, <sip:a@h1>;expires=0");
    assert_eq!((a.status(), w.stored().len()), (200, 2));
    let gruus = w.registrar.gruus.clone();
    w.registrar
        .reconfigure(RegistrarConfig { max_contacts: 1, ..RegistrarConfig::default() }, gruus);
    assert_eq!(w.register("c", 3, "Contact: <sip:a@h3>").status(), 200);
    assert_eq!(w.register("c", 4, "Contact: <sip:a@h4>").status(), 403);
}

/// RFC 3261 section 10.3 with a loop in mind, RFC 5627 section 5.1.
#[test]
fn an_address_of_record_is_no_contact_of_itself() {
    let mut w = World::new();
    for contact in [
        "<sip:alice@example.com>",
        "<sip:alice@example.com.>",
        "<sip:%61lice@EXAMPLE.com>;+sip.instance=\"<x>\"",
    ] {
        assert_eq!(w.register("c", 1, &format!("Contact: {contact}")).status(), 403, "{contact}");
    }
    // The same user elsewhere is no loop.
    for contact in ["<sip:alice@example.community>", "<sip:alice@example.com:5070>"] {
        assert_eq!(w.register("c", 1, &format!("Contact: {contact};expires=60")).status(), 200);
        w.pass(60);
    }
    // Taking one back that came there otherwise is no harm.
    assert_eq!(w.register("c", 1, "Contact: <sip:alice@example.com>;expires=0").status(), 200);
}

/// RFC 3261 section 10.3: other schemes may be bound as well.
#[test]
fn contacts_of_other_schemes() {
    let mut w = World::new();
    let a = w.register("c", 1, "Contact: <mailto:alice@example.com>;q=0.1, <tel:+1555>");
    assert_eq!((a.status(), a.contacts().len()), (200, 2));
    assert_eq!(w.register("c", 2, "Contact: <tel:+1-555>").contacts().len(), 2);
}

struct Refusing;

impl crate::location::Journal for Refusing {
    fn record(&self, _: &[u8], _: Option<&[u8]>, tag: Option<CommitTag>) -> Commit {
        assert_eq!(tag, Some(CommitTag { worker: 0, id: 7 }));
        Commit::Refused
    }
}

struct Slow;

impl crate::location::Journal for Slow {
    fn record(&self, _: &[u8], _: Option<&[u8]>, _: Option<CommitTag>) -> Commit {
        Commit::Pending
    }
}

#[test]
fn a_store_that_is_full_is_answered_503() {
    let mut w = World::new();
    w.store = MemoryStore::with_journal([1; 16], Box::new(Refusing));
    let a = w.register("c", 1, "Contact: <sip:a@h>");
    assert_eq!((a.status(), a.all("Retry-After")), (503, vec!["5"]));
    assert!(a.contacts().is_empty() && w.stored().is_empty());
}

#[test]
fn a_durable_store_is_waited_for_when_something_changed() {
    let mut w = World::new();
    w.store = MemoryStore::with_journal([1; 16], Box::new(Slow));
    assert_eq!(w.register("c", 1, "Contact: <sip:a@h>").outcome.commit, Commit::Pending);
    assert_eq!(w.register("c", 2, "").outcome.commit, Commit::Done);
    assert_eq!(w.register("c", 2, "Contact: <sip:b@h>;expires=0").outcome.commit, Commit::Done);
}

/// RFC 3581: the source counts, not what the sender believes.
#[test]
fn a_nat_is_seen_in_the_via() {
    let mut w = World::new();
    w.register("c", 1, "Contact: <sip:a@192.0.2.17>");
    w.only(|b| assert_eq!((b.nat, b.over_flow()), (false, None)));
    w.flow.remote = "198.51.100.4:33000".parse().unwrap();
    w.register("c", 2, "Contact: <sip:a@192.0.2.17>");
    w.only(|b| assert_eq!((b.nat, b.over_flow()), (true, Some(w.flow))));
}

/// RFC 7118 section 5: a browser does not know its address.
#[test]
fn a_browser_is_reached_over_its_connection() {
    let mut w = World::new();
    w.flow.transport = Transport::Wss;
    let via = "Via: SIP/2.0/WSS df7jal23ls0d.invalid;branch=z9hG4bK1";
    w.register_via(via, "c", 1, "Contact: <sip:a@df7jal23ls0d.invalid;transport=ws>");
    w.only(|b| assert!(b.nat && b.is_flow_bound() && b.over_flow() == Some(w.flow)));
}
