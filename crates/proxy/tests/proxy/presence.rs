//! Presence: what a phone publishes (RFC 3903), what others are notified of (RFC 3856).

use crate::common::*;
use crate::lamps::notified;
use crate::relay::{answered, closed};

const PIDF: &str = "<?xml version=\"1.0\"?><presence xmlns=\"urn:ietf:params:xml:ns:pidf\" \
    entity=\"sip:alice@example.org\"><tuple id=\"a\"><status><basic>open</basic></status>\
    <note>in the engine room</note></tuple></presence>";

fn publish(w: &mut World, me: Peer, user: &str, tag: Option<&str>, body: &str) -> Msg {
    let request = w.request(me, &format!("PUBLISH sip:{user}@example.org"));
    let mut request = request.add("Event", "presence");
    if let Some(tag) = tag {
        request = request.add("SIP-If-Match", tag);
    }
    if !body.is_empty() {
        request = request.add("Content-Type", "application/pidf+xml");
    }
    request.body = body.into();
    request
}

/// Sends a PUBLISH; its answer.
fn published(w: &mut World, tag: Option<&str>, body: &str) -> Msg {
    let request = publish(w, ALICE, "alice", tag, body);
    w.from(ALICE, &request);
    w.sent.pop_front().unwrap().msg
}

/// Answers the next NOTIFY; its basic status and note.
fn shown(w: &mut World, me: Peer) -> (String, String) {
    let notify = notified(w, me);
    assert_eq!(notify.get("Content-Type"), "application/pidf+xml");
    let between = |a: &str, b: &str| {
        let part = notify.body.split_once(a).and_then(|(_, rest)| rest.split_once(b));
        part.map(|(part, _)| part.to_owned()).unwrap_or_default()
    };
    (between("<basic>", "</basic>"), between("<note>", "</note>"))
}

/// RFC 3903 sections 4 and 6, RFC 3856 section 6.
#[test]
fn what_a_phone_publishes_is_shown() {
    let mut w = World::new();
    let request = w.request(BOB, "SUBSCRIBE sip:alice@example.org").add("Event", "presence");
    w.from(BOB, &request);
    w.expect(BOB, "200 SUBSCRIBE");
    assert_eq!(shown(&mut w, BOB), ("closed".into(), "".into()));
    w.register("alice", ALICE);
    let ok = published(&mut w, None, PIDF);
    assert_eq!((ok.status(), ok.get("Expires")), (200, "3600"));
    assert_eq!(shown(&mut w, BOB), ("open".into(), "in the engine room".into()));
    let first = ok.get("SIP-ETag").to_owned();
    let ok = published(&mut w, Some(&first), "");
    let second = ok.get("SIP-ETag").to_owned();
    assert!(ok.status() == 200 && first != second);
    w.pass_secs(6);
    w.quiet();
    assert_eq!(published(&mut w, Some(&first), "").status(), 412);
    let closed = PIDF.replace("open", "closed").replace("engine", "control");
    let ok = published(&mut w, Some(&second), &closed);
    assert_eq!(shown(&mut w, BOB), ("closed".into(), "in the control room".into()));
    let request = publish(&mut w, ALICE, "alice", Some(ok.get("SIP-ETag")), "");
    w.from(ALICE, &request.add("Expires", "0"));
    w.expect(ALICE, "200");
    assert_eq!(shown(&mut w, BOB), ("open".into(), "".into()));
}

/// RFC 3903 section 6.
#[test]
fn what_is_refused() {
    let mut w = World::new();
    w.register("alice", ALICE);
    assert_eq!(published(&mut w, None, "").status(), 400);
    assert_eq!(published(&mut w, None, "<html/>").status(), 400);
    assert_eq!(published(&mut w, Some("forged"), PIDF).status(), 412);
    let long = PIDF.replace("in the", &"x".repeat(9_000));
    assert_eq!(published(&mut w, None, &long).status(), 413);
    let request = publish(&mut w, ALICE, "alice", None, PIDF);
    w.from(ALICE, &request.clone().set("Content-Type", "text/plain"));
    assert_eq!(w.expect(ALICE, "415").get("Accept"), "application/pidf+xml");
    let request = publish(&mut w, ALICE, "alice", None, PIDF);
    w.from(ALICE, &request.add("Expires", "10"));
    assert_eq!(w.expect(ALICE, "423").get("Min-Expires"), "60");
}

/// A user publishes of nobody else.
#[test]
fn another_users_presence_is_not_published() {
    let mut w = closed();
    w.register("bob", BOB);
    let request = publish(&mut w, ALICE, "bob", None, PIDF);
    w.from(ALICE, &request);
    let challenge = w.expect(ALICE, "407");
    w.from(ALICE, &answered(&request, &challenge, "alice", "z9hG4bKa"));
    w.expect(ALICE, "403");
    let request = publish(&mut w, ALICE, "alice", None, PIDF);
    w.from(ALICE, &request);
    let challenge = w.expect(ALICE, "407");
    w.from(ALICE, &answered(&request, &challenge, "alice", "z9hG4bKb"));
    w.expect(ALICE, "200");
}
