//! Messages for users who are registered nowhere: kept by the world, and delivered when it says so (RFC 3428 section 7).

use crate::common::*;
use crate::elsewhere::in_mesh;
use crate::relay::{answered, digest};
use ringway_proxy::Reply;
use ringway_proxy::core::MAX_KEPT;

const TEXT: &str = "Shall we meet?";

/// A router whose world keeps messages. Bob, at home at another one, is registered nowhere.
fn away() -> World {
    let w = World::with(|config| {
        in_mesh(config);
        digest(config);
    });
    w.keeps();
    w.registered_nowhere("bob", true);
    w
}

/// Returns a message from alice, without credentials.
fn message(w: &mut World) -> Msg {
    let mut request = w.request(ALICE, "MESSAGE sip:bob@example.org");
    request.body = TEXT.into();
    request.set("Content-Type", "text/plain").set("Content-Length", TEXT.len())
}

/// Sends a message with credentials. Returns it as it was sent.
fn send(w: &mut World, request: &Msg) -> Msg {
    w.from(ALICE, request);
    let challenged = w.expect(ALICE, "407");
    let again = answered(request, &challenged, "alice", &w.branch());
    w.from(ALICE, &again);
    again
}

#[test]
fn a_message_is_accepted_when_it_is_kept() {
    let mut w = away();
    let request = message(&mut w).add("Subject", "lunch").add("Route", "<sip:192.0.2.1;lr>");
    let sent = send(&mut w, &request);
    let asked = w.asked();
    let kept = asked.message();
    assert_eq!(
        (&*kept.to, &*kept.from),
        (&b"sip:bob@example.org"[..], &b"sip:alice@example.org"[..])
    );
    assert_eq!(kept.lifetime, 86_400);
    let image = Msg::parse(&kept.octets);
    assert_eq!((image.uri(), &*image.body), ("sip:bob@example.org", TEXT));
    for name in ["From", "To", "Call-ID", "CSeq", "Content-Type", "Subject"] {
        assert_eq!(image.get(name), sent.get(name));
    }
    // RFC 3261 section 20.17: the recipient sees when it was sent.
    assert!(image.get("Date").ends_with(" GMT"));
    for name in ["Via", "Proxy-Authorization", "Contact", "Route", "Max-Forwards"] {
        assert!(!image.has(name), "{name}");
    }
    // A retransmission asks for nothing again.
    w.from(ALICE, &sent);
    w.quiet();
    w.reply(&asked, Reply::Kept);
    w.expect(ALICE, "202");
    w.from(ALICE, &sent);
    w.expect(ALICE, "202");
    assert_eq!(w.cores[0].stats().kept, 1);
    w.finish();
}

#[test]
fn a_message_that_finds_no_room_is_refused() {
    let mut w = away();
    let request = message(&mut w);
    send(&mut w, &request);
    let asked = w.asked();
    w.reply(&asked, Reply::Unavailable);
    w.expect(ALICE, "480");
    // Without any answer of the world, too.
    let request = message(&mut w);
    send(&mut w, &request);
    let asked = w.asked();
    w.pass_secs(11);
    w.expect(ALICE, "480");
    w.reply(&asked, Reply::Kept);
    w.quiet();
    w.finish();
}

/// RFC 3428 section 4: Expires limits the validity of the content.
#[test]
fn a_message_is_kept_for_as_long_as_it_is_valid() {
    let mut w = away();
    for (expires, kept) in [("300", 300), ("4000000", 86_400)] {
        let request = message(&mut w).add("Expires", expires);
        let request = request.add("Date", "Sat, 13 Nov 2010 23:29:00 GMT");
        send(&mut w, &request);
        let asked = w.asked();
        assert_eq!(asked.message().lifetime, kept);
        let image = Msg::parse(&asked.message().octets);
        assert_eq!(image.all("Date"), ["Sat, 13 Nov 2010 23:29:00 GMT"]);
        w.reply(&asked, Reply::Kept);
        w.expect(ALICE, "202");
    }
    w.finish();
}

/// What must not be kept is refused as before: other methods, what is void at once, too long, of no use later or within a
/// dialog, what strangers and other routers send, and messages to nobody.
#[test]
fn other_requests_are_not_kept() {
    let mut w = away();
    for (name, value) in [
        ("Expires", "0".to_string()),
        ("Expires", "soon".into()),
        ("Subject", "x".repeat(MAX_KEPT)),
        ("Content-Type", "application/im-iscomposing+xml".into()),
    ] {
        let request = message(&mut w);
        let request = match request.has(name) {
            true => request.set(name, value),
            false => request.add(name, value),
        };
        send(&mut w, &request);
        w.expect(ALICE, "480");
    }
    let request = w.request(ALICE, "INFO sip:bob@example.org");
    send(&mut w, &request);
    w.expect(ALICE, "480");
    let request = message(&mut w).set("To", "<sip:bob@example.org>;tag=there");
    send(&mut w, &request);
    w.expect(ALICE, "480");
    w.registered_nowhere("nobody", false);
    let request = message(&mut w).aimed_at("sip:nobody@example.org");
    send(&mut w, &request);
    w.expect(ALICE, "404");
    let request = message(&mut w).set("From", "<sip:eve@example.com>;tag=1");
    w.from(ALICE, &request);
    w.expect(ALICE, "480");
    let request = message(&mut w).set("From", "<sip:anonymous@anonymous.invalid>;tag=1");
    w.from(ALICE, &request);
    w.expect(ALICE, "480");
    w.speaks(ROUTER, "dave", Some(true));
    let request = w.request(ROUTER, "MESSAGE sip:bob@example.org");
    w.from(ROUTER, &request.set("From", "<sip:dave@example.org>;tag=there"));
    w.expect(ROUTER, "480");
    assert!(w.asks.is_empty());
    w.finish();
}

/// Returns what is kept of a message from alice to bob.
fn kept() -> Vec<u8> {
    let mut w = away();
    let request = message(&mut w);
    send(&mut w, &request);
    w.asked().message().octets.to_vec()
}

#[test]
fn a_kept_message_reaches_contacts_here_and_routers_elsewhere() {
    let octets = kept();
    let mut w = away();
    w.bind("bob", bind(BOB.contact()));
    w.elsewhere("bob", &[(ROUTER, 1000)]);
    w.deliver_kept(7, ("alice", "bob"), &octets);
    let here = w.expect(BOB, "MESSAGE sip:bob@203.0.113.2:5060");
    let there = w.expect(ROUTER, "MESSAGE sip:bob@example.org");
    let image = Msg::parse(&octets);
    for got in [&here, &there] {
        for name in ["From", "To", "Call-ID", "CSeq", "Date", "Content-Type"] {
            assert_eq!(got.get(name), image.get(name));
        }
        assert_eq!((&*got.body, got.get("Max-Forwards")), (TEXT, "70"));
    }
    w.answer(ROUTER, &there, 480);
    assert!(w.delivered.is_empty());
    w.answer(BOB, &here, 200);
    assert_eq!(w.delivered, [(7, 200)]);
    w.quiet();
    w.finish();
}

#[test]
fn what_becomes_of_a_kept_message_is_reported() {
    let octets = kept();
    let mut w = away();
    w.deliver_kept(1, ("alice", "bob"), &octets);
    assert_eq!(w.delivered, [(1, 480)]);
    w.unknown("bob");
    w.deliver_kept(2, ("alice", "bob"), &octets);
    assert_eq!(w.delivered[1..], [(2, 504)]);
    w.registered_nowhere("bob", true);
    w.bind("bob", bind(BOB.contact()));
    w.deliver_kept(3, ("alice", "bob"), &octets);
    let got = w.expect(BOB, "MESSAGE");
    w.answer(BOB, &got, 603);
    assert_eq!(w.delivered[2..], [(3, 603)]);
    w.deliver_kept(4, ("alice", "bob"), &octets);
    w.expect(BOB, "MESSAGE");
    w.pass_secs(33);
    w.ignore();
    assert_eq!(w.delivered[3..], [(4, 408)]);
    assert!(w.asks.is_empty());
    w.finish();
}

/// Octets of a hostile router: another sender than the one that was verified, another method, no message, and header fields
/// that lead elsewhere or assert something.
#[test]
fn nothing_but_the_message_is_taken_from_what_was_kept() {
    let image = Msg::parse(&kept());
    let mut w = away();
    w.bind("bob", bind(BOB.contact()));
    let mut octets = image.bytes();
    for bad in [
        image.clone().set("From", "<sip:boss@example.org>;tag=1"),
        image.clone().set("From", "sip:"),
        image.clone().set("To", "<sip:bob@example.org>;tag=1"),
        image.clone().set("CSeq", "1 INVITE"),
        image.clone().del("Call-ID"),
    ] {
        w.deliver_kept(1, ("alice", "bob"), &bad.bytes());
    }
    w.deliver_kept(1, ("alice", "bob"), b"INVITE sip:bob@example.org SIP/2.0\r\n\r\n");
    w.deliver_kept(1, ("alice", "bob"), b"");
    octets.resize(MAX_KEPT + 1, b'x');
    w.deliver_kept(1, ("alice", "bob"), &octets);
    assert_eq!(w.delivered, [(1, 400); 8]);
    w.quiet();
    let hostile = image
        .add("Route", "<sip:203.0.113.99;lr>")
        .add("Record-Route", "<sip:203.0.113.99;lr>")
        .add("Via", "SIP/2.0/UDP 203.0.113.99;branch=z9hG4bKx")
        .add("P-Asserted-Identity", "<sip:boss@example.org>")
        .add("Max-Forwards", "0")
        .add("X-Other", "1");
    w.deliver_kept(2, ("alice", "bob"), &hostile.bytes());
    let got = w.expect(BOB, "MESSAGE");
    for name in ["Route", "Record-Route", "P-Asserted-Identity", "X-Other"] {
        assert!(!got.has(name), "{name}");
    }
    assert_eq!(got.all("Via").len(), 2);
    w.answer(BOB, &got, 200);
    assert_eq!(w.delivered[8..], [(2, 200)]);
    w.finish();
}

/// The home of a user delivers what users of others have left, and nobody else does. Nothing but messages.
#[test]
fn only_the_home_of_the_recipient_delivers_messages_of_others() {
    let mut w = away();
    w.bind("carol", bind(BOB.contact()));
    w.home(ROUTER, "carol", Some(true));
    let from = |w: &mut World, router, line: &str| {
        let request = w.request(router, line).set("From", "<sip:dave@example.org>;tag=there");
        w.from(router, &request);
    };
    from(&mut w, ROUTER, "MESSAGE sip:carol@example.org");
    let got = w.expect(BOB, "MESSAGE");
    w.answer(BOB, &got, 200);
    w.expect(ROUTER, "200");
    from(&mut w, ROUTER, "INVITE sip:carol@example.org");
    let refused = w.expect(ROUTER, "403");
    assert!(!refused.has("Proxy-Authenticate"));
    from(&mut w, ROUTER, "MESSAGE sip:alice@example.org");
    w.expect(ROUTER, "403");
    from(&mut w, ROUTER2, "MESSAGE sip:carol@example.org");
    w.expect(ROUTER2, "403");
    // Whose home it is may have to be asked for.
    w.home(ROUTER2, "carol", None);
    from(&mut w, ROUTER2, "MESSAGE sip:carol@example.org");
    let asked = w.asked();
    assert_eq!(asked.aor(), "sip:carol@example.org");
    w.home(ROUTER2, "carol", Some(true));
    w.reply(&asked, Reply::Located);
    let got = w.expect(BOB, "MESSAGE");
    w.answer(BOB, &got, 200);
    w.expect(ROUTER2, "200");
    w.finish_anyhow();
}
