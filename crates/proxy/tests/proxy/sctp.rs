//! SIP over SCTP (RFC 4168), as the proxy sees it: one more connection with messages.

use crate::common::*;
use ringway_sansio::Target;
use ringway_sansio::Transport::{Sctp, Tcp, TlsSctp, Udp};

/// RFC 4168 section 3: the Via token, and rules for requests as over TCP (section 5); the answer
/// goes back over the association that the request came on.
#[test]
fn a_call_from_an_association_to_a_datagram_phone() {
    let mut w = World::new();
    w.register("bob", BOB);
    let invite = w.call(GRACE_SCTP, "INVITE sip:bob@example.org");
    assert!(invite.get("Via").starts_with("SIP/2.0/SCTP "));
    let trying = w.expect_sent(GRACE_SCTP, "100");
    assert_eq!(trying.to, Target::Flow(GRACE_SCTP.flow(0)));
    let got = w.expect(BOB, "INVITE");
    let record = got.all("Record-Route");
    assert_eq!(record.len(), 2, "{record:?}");
    assert!(!record[0].contains("transport") && record[1].contains(";transport=sctp"));
    let ok = w.answer(BOB, &got, 200);
    let ok_there = w.expect(GRACE_SCTP, "200");
    let mut caller = Dialog::of_caller(GRACE_SCTP, &invite, &ok_there);
    let mut callee = Dialog::of_callee(BOB, &got, &ok);
    let branch = w.branch();
    w.from(GRACE_SCTP, &caller.request("ACK", &branch));
    w.expect(BOB, "ACK");
    // The flow token leads back to the association, not to an address of it.
    let branch = w.branch();
    w.from(BOB, &callee.request("BYE", &branch));
    let bye = w.expect_sent(GRACE_SCTP, "BYE");
    assert_eq!(bye.to, Target::Flow(GRACE_SCTP.flow(0)));
    w.answer(GRACE_SCTP, &bye.msg, 200);
    w.expect(BOB, "200 BYE");
    w.finish();
}

/// RFC 3261 section 17.1.1.2: over a reliable transport nothing is sent again.
#[test]
fn nothing_is_sent_again_over_sctp() {
    let mut w = World::new();
    w.bind("bob", bind(GATEWAY_SCTP.contact()));
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let sent = w.expect_sent(GATEWAY_SCTP, "INVITE");
    let to = Target::Peer { transport: Sctp, remote: GATEWAY_SCTP.remote(), name: None };
    assert_eq!(sent.to, to);
    assert!(sent.msg.all("Via")[0].starts_with("SIP/2.0/SCTP 192.0.2.1:5060;"));
    w.pass_secs(20);
    w.quiet();
    w.pass_secs(12);
    let late = w.expect(ALICE, "408");
    w.from(ALICE, &ack(&invite, &late));
    w.finish();
}

/// RFC 4168 section 6: `SIP+D2S`; the next server is another transport where the first fails.
#[test]
fn a_server_that_does_not_answer_sctp_is_asked_otherwise() {
    let mut w = World::new();
    w.name("peer.example.net", &[(Sctp, "192.0.2.70:5060"), (Udp, "192.0.2.50:5060")]);
    w.break_way(Sctp, "192.0.2.70:5060");
    w.bind("bob", bind("sip:bob@peer.example.net"));
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    let got = w.expect(PROXY, "MESSAGE");
    w.answer(PROXY, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 4168 section 5: a message too large for UDP takes TCP, and stays on SCTP where that is used.
#[test]
fn large_messages_stay_on_their_association() {
    let mut w = World::new();
    w.bind("bob", bind(GATEWAY_SCTP.contact()));
    w.register("carol", BOB);
    let large = "x".repeat(4000);
    for (user, over) in [("bob", Sctp), ("carol", Tcp)] {
        let mut request = w.request(ALICE, &format!("MESSAGE sip:{user}@example.org"));
        request.body.clone_from(&large);
        w.from(ALICE, &request);
        let sent = w.sent.pop_front().unwrap();
        assert_eq!(sent.to.transport(), over);
    }
    w.finish_anyhow();
}

/// A registered phone is reached over its association; when that is gone, where its Contact says.
#[test]
fn a_registered_association_is_used() {
    let mut w = World::new();
    w.bind("bob", bind("sip:bob@10.0.0.7:5060;transport=sctp").over(GRACE_SCTP));
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    let sent = w.expect_sent(GRACE_SCTP, "MESSAGE sip:bob@10.0.0.7:5060;transport=sctp");
    assert_eq!(sent.to, Target::Flow(GRACE_SCTP.flow(0)));
    w.answer(GRACE_SCTP, &sent.msg, 200);
    w.expect(ALICE, "200");
    w.close(GRACE_SCTP);
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    let sent = w.expect_sent(GRACE_SCTP.at("10.0.0.7:5060"), "MESSAGE");
    assert!(matches!(sent.to, Target::Peer { .. }));
    w.finish_anyhow();
}

/// RFC 3261 sections 9.1 and 17.1.1.3: CANCEL, and the ACK of what is not a 2xx, go where the INVITE went:
/// over the same association; and what comes back, over the caller's.
#[test]
fn cancel_and_ack_stay_on_the_association() {
    let mut w = World::new();
    w.bind("bob", bind(HEIDI_TLS_SCTP.contact()).over(HEIDI_TLS_SCTP));
    let invite = w.call(GRACE_SCTP, "INVITE sip:bob@example.org");
    w.expect(GRACE_SCTP, "100");
    let there = Target::Flow(HEIDI_TLS_SCTP.flow(0));
    let got = w.expect_sent(HEIDI_TLS_SCTP, "INVITE");
    assert_eq!(got.to, there);
    // RFC 4168 section 4.
    assert!(got.msg.all("Via")[0].starts_with("SIP/2.0/TLS-SCTP 192.0.2.1:5061;"), "{}", got.msg);
    w.answer(HEIDI_TLS_SCTP, &got.msg, 180);
    w.expect(GRACE_SCTP, "180");
    w.from(GRACE_SCTP, &cancel(&invite));
    let ok = w.expect_sent(GRACE_SCTP, "200 CANCEL");
    assert_eq!(ok.to, Target::Flow(GRACE_SCTP.flow(0)));
    let cancel = w.expect_sent(HEIDI_TLS_SCTP, "CANCEL");
    assert_eq!(
        (cancel.to, cancel.msg.all("Via")[0].clone()),
        (there.clone(), got.msg.all("Via")[0].clone())
    );
    w.answer(HEIDI_TLS_SCTP, &cancel.msg, 200);
    w.answer(HEIDI_TLS_SCTP, &got.msg, 487);
    assert_eq!(w.expect_sent(HEIDI_TLS_SCTP, "ACK").to, there);
    let answer = w.expect(GRACE_SCTP, "487 INVITE");
    w.from(GRACE_SCTP, &ack(&invite, &answer));
    w.finish();
}

/// RFC 3261 section 18.1.1: a call whose association was aborted, or whose peer began anew, which is another
/// flow: what the dialog still sends goes to the Contact, by a new association.
#[test]
fn a_call_outlives_its_association() {
    let mut w = World::new();
    w.bind("bob", bind(GRACE_SCTP.contact()).over(GRACE_SCTP));
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(GRACE_SCTP, "INVITE");
    w.answer(GRACE_SCTP, &got, 200);
    let ok = w.expect(ALICE, "200");
    let mut caller = Dialog::of_caller(ALICE, &invite, &ok);
    let branch = w.branch();
    w.from(ALICE, &caller.request("ACK", &branch));
    w.expect(GRACE_SCTP, "ACK");
    w.close(GRACE_SCTP);
    let branch = w.branch();
    w.from(ALICE, &caller.request("BYE", &branch));
    let bye = w.expect_sent(GRACE_SCTP, "BYE");
    assert!(matches!(bye.to, Target::Peer { .. }));
    w.answer(GRACE_SCTP, &bye.msg, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 3261 section 26.2.2: a sips URI with SCTP means TLS over it.
#[test]
fn sips_over_sctp_is_tls_over_sctp() {
    for contact in [
        "sips:bob@192.0.2.70:5061;transport=sctp",
        "sips:bob@192.0.2.70;transport=sctp",
        "sip:bob@192.0.2.70;transport=tls-sctp",
    ] {
        let mut w = World::new();
        w.bind("bob", bind(contact));
        let scheme = if contact.starts_with("sips") { "sips" } else { "sip" };
        w.call(FRANK_TLS, &format!("MESSAGE {scheme}:bob@example.org"));
        let peer = Peer { transport: TlsSctp, ..GATEWAY_SCTP.at("192.0.2.70:5061") };
        let sent = w.expect_sent(peer, "MESSAGE");
        assert!(sent.msg.all("Via")[0].starts_with("SIP/2.0/TLS-SCTP "), "{}", sent.msg);
        w.answer(peer, &sent.msg, 200);
        w.expect(FRANK_TLS, "200");
        w.finish();
    }
}

/// RFC 3261 section 26.2.2, RFC 4168 section 4: a sips URI says SCTP where it means TLS over it.
#[test]
fn tls_over_sctp_is_record_routed_as_sips() {
    let mut w = World::new();
    w.bind("bob", bind("sips:bob@192.0.2.70;transport=sctp"));
    w.call(FRANK_TLS, "INVITE sips:bob@example.org");
    w.expect(FRANK_TLS, "100");
    let peer = Peer { transport: TlsSctp, ..GATEWAY_SCTP.at("192.0.2.70:5061") };
    let got = w.expect(peer, "INVITE");
    let record = got.all("Record-Route");
    assert!(record[0].starts_with("<sips:") && record[0].contains(";transport=sctp;lr>"), "{got}");
    w.answer(peer, &got, 200);
    w.expect(FRANK_TLS, "200");
    w.finish();
}
