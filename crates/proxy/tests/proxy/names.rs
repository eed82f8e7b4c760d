//! Next hops behind a name: what the core asks the world for (RFC 3263).

use crate::common::*;
use ringway_sansio::Transport::{Tcp, Tls, Udp};

/// RFC 3263 section 4: host, port, transport and scheme of the URI are what is asked for.
#[test]
fn the_question_contains_the_parts_of_the_uri() {
    for (contact, port, transport, secure) in [
        ("sip:bob@pbx.example.net", None, None, false),
        ("sip:bob@pbx.example.net:5070", Some(5070), None, false),
        ("sip:bob@pbx.example.net;transport=tcp", None, Some(Tcp), false),
        ("sips:bob@pbx.example.net", None, None, true),
        ("sips:bob@pbx.example.net;transport=tcp", None, Some(Tls), true),
        // RFC 3261 section 19.1.1: maddr takes the place of the host.
        ("sip:bob@10.0.0.1;maddr=pbx.example.net", None, None, false),
    ] {
        let mut w = World::new();
        w.bind("bob", bind(contact));
        w.call(ALICE, "MESSAGE sip:bob@example.org");
        let question = w.questions.remove(0);
        assert_eq!(&*question.target.host, "pbx.example.net");
        assert_eq!(question.target.port, port, "{contact}");
        assert_eq!(question.target.transport, transport, "{contact}");
        assert_eq!(question.target.secure, secure, "{contact}");
        assert_eq!(w.cores[0].tables().resolving, 1);
        w.resolved(question, &[]);
        w.expect(ALICE, "480");
        w.finish();
    }
}

/// RFC 3263 section 4.2: the first address found is used, the Via is that of its transport.
#[test]
fn the_answer_is_used() {
    let mut w = World::new();
    w.bind("bob", bind("sip:bob@pbx.example.net"));
    w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    w.quiet();
    let question = w.questions.remove(0);
    w.pass_secs(2);
    w.resolved(question, &[(Tcp, BOB.addr), (Udp, BOB2.addr)]);
    let got = w.expect(BOB.listening_tcp(), "INVITE sip:bob@pbx.example.net");
    assert!(got.all("Via")[0].starts_with("SIP/2.0/TCP 192.0.2.1:5060"));
    w.quiet();
    w.answer(BOB.listening_tcp(), &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 3261 section 16.10: a CANCEL while the name is being resolved ends the call there.
#[test]
fn cancel_while_resolving() {
    let mut w = World::new();
    w.bind("bob", bind("sip:bob@pbx.example.net"));
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let question = w.questions.remove(0);
    w.from(ALICE, &cancel(&invite));
    w.expect(ALICE, "200 CANCEL");
    let answer = w.expect(ALICE, "487");
    w.from(ALICE, &ack(&invite, &answer));
    w.resolved(question, &[(Udp, BOB.addr)]);
    w.finish();
}

/// The answer may come when everything else is over; nothing is left behind then.
#[test]
fn an_answer_after_the_end() {
    let mut w = World::new();
    w.bind("bob", bind("sip:bob@pbx.example.net"));
    w.bind("bob", bind(BOB.contact()));
    w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 200);
    w.expect(ALICE, "200");
    let question = w.questions.remove(0);
    w.pass_secs(60);
    w.resolved(question, &[(Udp, BOB2.addr)]);
    w.finish();
}

/// A 2xx on another branch, and the name found just after: it is not called any more.
#[test]
fn an_answer_just_after_a_2xx() {
    let mut w = World::new();
    w.bind("bob", bind("sip:bob@pbx.example.net"));
    w.bind("bob", bind(BOB.contact()));
    w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 200);
    w.expect(ALICE, "200");
    let question = w.questions.remove(0);
    w.resolved(question, &[(Udp, BOB2.addr)]);
    w.finish();
}

/// RFC 3261 section 13.2.2.4: the ACK and the BYE to a Contact behind a name find their way too.
#[test]
fn requests_within_a_dialog_to_a_name() {
    let mut w = World::new();
    w.name("pbx.example.net", &[(Udp, BOB.addr)]);
    w.bind("bob", bind("sip:bob@pbx.example.net"));
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    let ok = response(BOB, &got, 200).set("Contact", "<sip:bob@pbx.example.net>");
    w.from(BOB, &ok);
    let ok = w.expect(ALICE, "200");
    let mut caller = Dialog::of_caller(ALICE, &invite, &ok);
    let branch = w.branch();
    w.from(ALICE, &caller.request("ACK", &branch));
    w.expect(BOB, "ACK sip:bob@pbx.example.net");
    let branch = w.branch();
    w.from(ALICE, &caller.request("BYE", &branch));
    let bye = w.expect(BOB, "BYE sip:bob@pbx.example.net");
    w.answer(BOB, &bye, 200);
    w.expect(ALICE, "200 BYE");
    w.finish();
}

/// An ACK whose name cannot be resolved is dropped, and nothing of it remains stored.
#[test]
fn an_ack_to_a_name_that_is_not_found() {
    let mut w = World::new();
    let ack = w.request(ALICE, "ACK sip:bob@pbx.example.net");
    w.from(ALICE, &ack);
    let question = w.questions.remove(0);
    assert_eq!(w.cores[0].tables().resolving, 1);
    w.resolved(question, &[]);
    w.finish();
}

/// RFC 3261 section 26.2.2: a sips target is never reached over an insecure transport.
#[test]
fn sips_stays_secure() {
    // A literal address: TLS at 5061, also where tcp is named (section 19.1.2).
    for contact in [
        "sips:bob@203.0.113.2",
        "sips:bob@203.0.113.2;transport=tcp",
        "sips:bob@203.0.113.2;transport=tls",
    ] {
        let mut w = World::new();
        w.bind("bob", bind(contact));
        w.call(FRANK_TLS, "MESSAGE sips:bob@example.org");
        let peer = Peer { transport: Tls, ..BOB.at("203.0.113.2:5061") };
        let got = w.expect(peer, "MESSAGE");
        assert!(got.all("Via")[0].starts_with("SIP/2.0/TLS 192.0.2.1:5061"), "{contact}");
        w.answer(peer, &got, 200);
        w.expect(FRANK_TLS, "200");
        w.finish();
    }
    // What cannot be secure is not tried.
    for contact in ["sips:bob@203.0.113.2;transport=udp", "sips:bob@203.0.113.2;transport=ws"] {
        let mut w = World::new();
        w.bind("bob", bind(contact));
        w.call(FRANK_TLS, "MESSAGE sips:bob@example.org");
        w.expect(FRANK_TLS, "480");
        w.finish();
    }
}

/// RFC 3261 section 16.6 item 7: with a sips Request-URI, a Route without it is followed securely.
#[test]
fn sips_stays_secure_through_a_route() {
    let mut w = World::new();
    let request =
        w.request(FRANK_TLS, "MESSAGE sips:bob@example.com").top("Route", "<sip:203.0.113.2;lr>");
    w.from(FRANK_TLS, &request);
    let peer = Peer { transport: Tls, ..BOB.at("203.0.113.2:5061") };
    let got = w.expect(peer, "MESSAGE sips:bob@example.com");
    w.answer(peer, &got, 200);
    w.expect(FRANK_TLS, "200");
    w.finish();
}
