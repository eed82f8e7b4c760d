//! Choosing the best response: RFC 3261 section 16.7 item 6.

use crate::common::*;

/// Forks an INVITE to as many phones as there are statuses, answers with them, and gives what comes
/// back.
fn best(statuses: &[u16]) -> Msg {
    let peers = [BOB, BOB2, BOB3, GATEWAY];
    let mut w = World::new();
    for &peer in peers[..statuses.len()].iter().rev() {
        w.register("bob", peer);
    }
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got: Vec<Msg> = peers[..statuses.len()].iter().map(|&p| w.expect(p, "INVITE")).collect();
    for (i, &status) in statuses.iter().enumerate() {
        w.quiet();
        w.answer(peers[i], &got[i], status);
        w.expect(peers[i], "ACK");
    }
    let answer = w.expect(ALICE, "xx".replace("xx", &w.sent[0].msg.status().to_string()).as_str());
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
    answer
}

/// RFC 3261 section 16.7 item 6: 6xx before all, then the lowest class, and within 4xx those that
/// tell how to go on.
#[test]
fn the_best_class_wins() {
    for (statuses, wanted) in [
        (&[486, 603][..], 603),
        (&[500, 404], 404),
        (&[404, 302, 500], 302),
        (&[404, 484], 484),
        (&[404, 420, 500], 420),
        (&[480, 415], 415),
        (&[503, 500], 500),
        (&[503, 404], 404),
        (&[501, 503], 501),
        (&[408, 480], 480),
        // The RFC's own example.
        (&[503, 407, 501, 404], 407),
    ] {
        assert_eq!(best(statuses).status(), wanted, "{statuses:?}");
    }
}

/// RFC 3261 section 16.7 item 6: a 503 from behind us is no 503 of ours.
#[test]
fn a_lone_503_becomes_500() {
    let answer = best(&[503]);
    assert_eq!(answer.status(), 500);
    assert!(!answer.has("Retry-After"));
    assert!(answer.tag("To").is_some());
}

/// RFC 3261 section 16.7 item 6: the To tag of the chosen response is kept.
#[test]
fn the_to_tag_is_kept() {
    assert_eq!(best(&[500, 486]).tag("To"), Some("to-bob2"));
}

/// RFC 3261 section 16.7 item 7: all challenges of all 401 and 407 are in the one that goes back,
/// unchanged and each once.
#[test]
fn challenges_are_collected() {
    let mut w = World::new();
    for peer in [BOB3, BOB2, BOB] {
        w.register("bob", peer);
    }
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got: Vec<Msg> = [BOB, BOB2, BOB3].iter().map(|&p| w.expect(p, "INVITE")).collect();
    let one = "Digest realm=\"one\", nonce=\"1\", qop=\"auth,auth-int\"";
    let two = "Digest realm=\"two\",\r\n nonce=\"2\"";
    let flat_two = "Digest realm=\"two\", nonce=\"2\"";
    w.from(BOB, &response(BOB, &got[0], 407).add("Proxy-Authenticate", one));
    w.expect(BOB, "ACK");
    let second = response(BOB2, &got[1], 401)
        .add("WWW-Authenticate", two)
        .add("WWW-Authenticate", "Digest realm=\"three\", nonce=\"2\"")
        .padded(20);
    w.from(BOB2, &second);
    w.expect(BOB2, "ACK");
    // The same challenge as another branch's: sent once.
    w.from(BOB3, &response(BOB3, &got[2], 401).add("WWW-Authenticate", two));
    w.expect(BOB3, "ACK");
    let answer = w.expect(ALICE, "407");
    assert_eq!(answer.all("Proxy-Authenticate"), [one]);
    let mut www = answer.all("WWW-Authenticate");
    www.dedup();
    assert_eq!(www, [flat_two, "Digest realm=\"three\", nonce=\"2\"", flat_two][..www.len()]);
    assert!(www.len() >= 2);
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// RFC 3261 section 16.7 item 7: the chosen response's own challenge is not doubled, even if it is
/// folded, and its body stays.
#[test]
fn a_folded_challenge_stays_whole() {
    let mut w = World::new();
    w.register("bob", BOB2);
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let one = w.expect(BOB, "INVITE");
    let two = w.expect(BOB2, "INVITE");
    let folded = |nonce| format!("Digest realm=\"r\",\r\n nonce=\"{nonce}\"");
    let flat = |nonce| format!("Digest realm=\"r\", nonce=\"{nonce}\"");
    let first = response(BOB, &one, 401).add("WWW-Authenticate", folded(1)).padded(30);
    w.from(BOB, &first);
    w.expect(BOB, "ACK");
    w.from(BOB2, &response(BOB2, &two, 401).add("WWW-Authenticate", folded(2)));
    w.expect(BOB2, "ACK");
    let answer = w.expect(ALICE, "401");
    assert_eq!(answer.all("WWW-Authenticate"), [flat(1), flat(2)]);
    assert_eq!(answer.body, first.body);
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}
