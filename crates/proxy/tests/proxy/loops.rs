//! Loops, spirals and breadth: RFC 3261 section 16.3 item 4, RFC 5393.

use crate::common::*;

/// Sends what the proxy sent to `peer` back to it, as a proxy there would that changes nothing but
/// the Via and Max-Forwards.
fn bounce(w: &mut World, peer: Peer, got: &Msg) -> Msg {
    let hops: u32 = got.get("Max-Forwards").parse().unwrap();
    let back = got.clone().set("Max-Forwards", hops - 1).top("Via", via(peer, &w.branch()));
    w.from(peer, &back);
    back
}

/// RFC 5393 section 4.2 and RFC 3261 section 16.3 item 4: a request that comes back unchanged is 482.
#[test]
fn a_loop_is_482() {
    let mut w = World::new();
    let invite = w.call(ALICE, "INVITE sip:x@192.0.2.50");
    w.expect(ALICE, "100");
    let got = w.expect(PROXY, "INVITE");
    let back = bounce(&mut w, PROXY, &got);
    let looped = w.expect(PROXY, "482");
    w.from(PROXY, &ack(&back, &looped));
    assert_eq!(w.cores[0].stats().looped, 1);
    w.answer(PROXY, &got, 482);
    w.expect(PROXY, "ACK");
    let answer = w.expect(ALICE, "482");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// RFC 3261 section 16.3 item 4: one that comes back for another target is a spiral, and welcome.
#[test]
fn a_spiral_is_no_loop() {
    let mut w = World::new();
    w.bind("sales", bind("sip:bob@192.0.2.50"));
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:sales@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(PROXY, "INVITE sip:bob@192.0.2.50");
    // The other proxy knows bob's address-of-record.
    let again = got.clone().aimed_at("sip:bob@example.org").top("Via", via(PROXY, "z9hG4bKp"));
    w.from(PROXY, &again);
    w.expect(PROXY, "100");
    let there = w.expect(BOB, "INVITE sip:bob@203.0.113.2:5060");
    assert_eq!(there.all("Via").len(), 4);
    assert_eq!(there.all("Record-Route").len(), 2);
    // The answer travels the spiral back.
    w.answer(BOB, &there, 200);
    let ok = w.expect(PROXY, "200");
    w.from(PROXY, &ok.clone().set("Via", ok.all("Via")[1..].join(", ")));
    let ok = w.expect(ALICE, "200");
    let mut caller = Dialog::of_caller(ALICE, &invite, &ok);
    assert_eq!(caller.route.len(), 2);
    w.from(ALICE, &caller.request("ACK", "z9hG4bKack"));
    w.expect(BOB, "ACK");
    w.finish();
}

/// RFC 5393 section 4.2.2: the same request on its way again with other credentials is no loop.
#[test]
fn another_cseq_or_call_is_no_loop() {
    let mut w = World::new();
    let first = w.call(ALICE, "MESSAGE sip:x@192.0.2.50");
    let got = w.expect(PROXY, "MESSAGE");
    for changed in [
        got.clone().set("CSeq", "2 MESSAGE"),
        got.clone().set("Call-ID", "another"),
        got.clone().set("Proxy-Authorization", "Digest realm=\"other\""),
        got.clone().set("From", "<sip:other@example.org>;tag=1"),
    ] {
        let there = changed.top("Via", via(PROXY, &w.branch()));
        w.from(PROXY, &there);
        let again = w.expect(PROXY, "MESSAGE");
        w.answer(PROXY, &again, 200);
        w.expect(PROXY, "200");
    }
    w.answer(PROXY, &got, 200);
    w.expect(ALICE, "200");
    assert_ne!(first.get("Call-ID"), "another");
    w.finish();
}

/// RFC 3261 section 16.5: a contact that is the user's own address-of-record leads nowhere, and one
/// in a ring of users neither.
#[test]
fn a_binding_to_itself_leads_nowhere() {
    let mut w = World::new();
    w.bind("bob", bind("sip:bob@example.org"));
    w.bind("alice", bind("sip:carol@example.org"));
    w.bind("carol", bind("sip:alice@example.org"));
    for user in ["bob", "alice"] {
        w.call(ALICE, &format!("MESSAGE sip:{user}@example.org"));
        w.expect(ALICE, "480");
    }
    w.finish();
}

/// RFC 3261 section 16.5: contacts that are users of ours stand for theirs, and each target is there
/// once, however many ways lead to it.
#[test]
fn each_target_once() {
    let mut w = World::new();
    w.bind("sales", bind("sip:carol@example.org"));
    w.bind("sales", bind("sip:bob@example.org"));
    w.bind("carol", bind(BOB2.contact()));
    w.bind("carol", bind("sip:bob@example.org"));
    w.register("bob", BOB);
    w.call(ALICE, "OPTIONS sip:sales@example.org");
    let one = w.expect(BOB, "OPTIONS");
    w.expect(BOB2, "OPTIONS");
    w.quiet();
    w.answer(BOB, &one, 200);
    w.expect(ALICE, "200");
    w.finish_anyhow();
}

/// Users whose contacts are all the others: the work for one request stays small.
#[test]
fn a_net_of_users_is_searched_once() {
    let mut w = World::new();
    let users: Vec<String> = (0..40).map(|i| format!("u{i}")).collect();
    for user in &users {
        for other in &users {
            w.bind(user, bind(format!("sip:{other}@example.org")));
        }
    }
    w.register("u7", BOB);
    w.call(ALICE, "OPTIONS sip:u0@example.org");
    // Whether the one phone is found depends on the order; what counts is that this ends.
    w.ignore();
    w.finish_anyhow();
}

/// RFC 5393 section 5.3.3: every request carries Max-Breadth, 60 where it had none, never more.
#[test]
fn every_request_carries_max_breadth() {
    let mut w = World::new();
    w.register("bob", BOB);
    for (given, sent) in [(None, "60"), (Some("7"), "7"), (Some("1000"), "60"), (Some("x"), "60")] {
        let mut request = w.request(ALICE, "MESSAGE sip:bob@example.org");
        if let Some(given) = given {
            request = request.add("Max-Breadth", given);
        }
        w.from(ALICE, &request);
        let got = w.expect(BOB, "MESSAGE");
        assert_eq!(got.all("Max-Breadth"), [sent]);
        w.answer(BOB, &got, 200);
        w.expect(ALICE, "200");
    }
    w.finish();
}

/// RFC 5393 section 5.3.3: all branches share the breadth, serial ones too.
#[test]
fn branches_share_the_breadth() {
    let mut w = World::new();
    w.bind("bob", bind(BOB3.contact()).q(500));
    w.bind("bob", bind(BOB2.contact()));
    w.bind("bob", bind(BOB.contact()));
    let request = w.request(ALICE, "INVITE sip:bob@example.org").add("Max-Breadth", "20");
    w.from(ALICE, &request);
    w.expect(ALICE, "100");
    for peer in [BOB, BOB2] {
        let got = w.expect(peer, "INVITE");
        assert_eq!(got.all("Max-Breadth"), ["6"]);
        w.answer(peer, &got, 486);
        w.expect(peer, "ACK");
    }
    let got = w.expect(BOB3, "INVITE");
    assert_eq!(got.all("Max-Breadth"), ["6"]);
    w.answer(BOB3, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 5393 section 5.3.3: nor is a branch given more than its share because its name had to be
/// resolved, or its first hop failed.
#[test]
fn the_share_stays_on_later_tries() {
    use ringway_sansio::Transport::Udp;
    let mut w = World::new();
    w.bind("bob", bind("sip:bob@one.example.net"));
    w.bind("bob", bind("sip:bob@two.example.net"));
    w.name("one.example.net", &[(Udp, BOB.addr), (Udp, BOB2.addr)]);
    let request = w.request(ALICE, "MESSAGE sip:bob@example.org").add("Max-Breadth", "20");
    w.from(ALICE, &request);
    let question = w.questions.remove(0);
    w.resolved(question, &[(Udp, BOB3.addr)]);
    let three = w.expect(BOB3, "MESSAGE");
    assert_eq!(three.all("Max-Breadth"), ["10"]);
    let one = w.expect(BOB, "MESSAGE");
    assert_eq!(one.all("Max-Breadth"), ["10"]);
    w.answer(BOB, &one, 503);
    let two = w.expect(BOB2, "MESSAGE");
    assert_eq!(two.all("Max-Breadth"), ["10"]);
    w.answer(BOB2, &two, 200);
    w.expect(ALICE, "200");
    w.answer(BOB3, &three, 200);
    w.finish();
}

/// RFC 5393 section 5.3.3: with too little breadth for the branches it is 440.
#[test]
fn too_little_breadth_is_440() {
    let mut w = World::new();
    w.register("bob", BOB2);
    w.register("bob", BOB);
    let request = w.request(ALICE, "INVITE sip:bob@example.org").add("Max-Breadth", "1");
    w.from(ALICE, &request);
    w.expect(ALICE, "100");
    let answer = w.expect(ALICE, "440");
    w.from(ALICE, &ack(&request, &answer));
    w.finish();
}
