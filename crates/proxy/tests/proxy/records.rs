//! What is reported of calls and of refused credentials, and why a branch is cancelled.

use crate::common::*;
use crate::relay::{answered, digest};
use crate::routing::dial_plan;
use ringway_proxy::{AuthFailureReason, CallStep};

/// A call begins, is answered and ended by either side; the reports name the parties.
#[test]
fn a_call_is_reported_from_begin_to_end() {
    for by_caller in [true, false] {
        let mut w = World::with(|config| {
            digest(config);
            dial_plan(config);
        });
        let invite = w.call(ALICE, "INVITE sip:030123@example.org");
        let challenge = w.expect(ALICE, "407");
        w.from(ALICE, &ack(&invite, &challenge));
        let invite = answered(&invite, &challenge, "alice", "z9hG4bKagain");
        w.from(ALICE, &invite);
        w.expect(ALICE, "100");
        let got = w.expect(GATEWAY, "INVITE");
        w.pass_ms(400);
        let ok = w.answer(GATEWAY, &got, 200);
        let ok_there = w.expect(ALICE, "200");
        let mut caller = Dialog::of_caller(ALICE, &invite, &ok_there);
        let mut callee = Dialog::of_callee(GATEWAY, &got, &ok);
        caller.cseq += 1;
        w.from(ALICE, &caller.request("ACK", "z9hG4bKack"));
        w.expect(GATEWAY, "ACK");
        w.pass_secs(20);
        let (one, other, dialog) = match by_caller {
            true => (ALICE, GATEWAY, &mut caller),
            false => (GATEWAY, ALICE, &mut callee),
        };
        w.from(one, &dialog.request("BYE", "z9hG4bKbye"));
        let bye = w.expect(other, "BYE");
        w.answer(other, &bye, 200);
        w.expect(one, "200");

        let steps: Vec<CallStep> = w.calls.iter().map(|call| call.step).collect();
        let ended = CallStep::Ended { by_caller };
        assert_eq!(steps, [CallStep::Began, CallStep::Answered { status: 200 }, ended]);
        for call in &w.calls {
            assert_eq!(call.call.call_id(), invite.get("Call-ID"));
            assert_eq!(call.call.from_tag(), invite.tag("From").unwrap());
            assert_eq!(call.call.caller(), "sip:alice@example.org");
            assert_eq!(call.call.callee(), "sip:030123@example.org");
        }
        let [began, answer, end] = &w.calls[..] else { unreachable!() };
        assert_eq!(began.call.user.as_deref(), Some("alice@example.org"));
        assert_eq!(began.call.source.1, ALICE.remote());
        assert_eq!(&*answer.to_tag, "to-gateway");
        assert_eq!(answer.gateway.as_deref(), Some("sip:192.0.2.60:5060;lr"));
        assert_eq!(answer.destination.map(|(_, addr)| addr), Some(GATEWAY.remote()));
        assert_eq!((answer.at - answer.call.began).as_millis(), 400);
        assert_eq!(&*end.to_tag, "to-gateway");
        assert_eq!((end.at - answer.at).as_secs(), 20);
        w.finish();
    }
}

/// Calls that come to nothing are reported with what the caller was told; requests that are no calls
/// are not.
#[test]
fn a_failed_call_is_reported_with_its_status() {
    for (way, status) in [("busy", 486), ("silent", 408), ("cancelled", 487)] {
        let mut w = World::new();
        w.register("bob", BOB);
        let invite = w.call(ALICE, "INVITE sip:bob@example.org");
        w.expect(ALICE, "100");
        let got = w.expect(BOB, "INVITE");
        match way {
            "busy" => {
                w.answer(BOB, &got, 486);
            }
            "silent" => w.pass_secs(33),
            _ => {
                w.answer(BOB, &got, 180);
                w.from(ALICE, &cancel(&invite));
                w.answer(BOB, &got, 487);
            }
        }
        let steps: Vec<CallStep> = w.calls.iter().map(|call| call.step).collect();
        assert_eq!(steps, [CallStep::Began, CallStep::Failed { status }], "{way}");
    }
    let mut w = World::new();
    w.register("bob", BOB);
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    w.call(ALICE, "BYE sip:bob@example.org");
    assert!(w.calls.is_empty());
}

/// Wrong credentials are reported with user and reason, and so is acting as another.
#[test]
fn refused_credentials_are_reported() {
    let mut w = World::with(digest);
    let wrong = w.call(ALICE, "MESSAGE sip:bob@example.org");
    let challenge = w.expect(ALICE, "407");
    let wrong = answered(&wrong, &challenge, "alice", "z9hG4bKwrong");
    let spoiled = wrong.get("Proxy-Authorization").replace("response=\"", "response=\"0");
    w.from(ALICE, &wrong.set("Proxy-Authorization", spoiled.replacen("0\"", "\"", 1)));
    let other = w.request(ALICE, "MESSAGE sip:bob@example.org");
    let other = other.set("From", "<sip:carol@example.org>;tag=1");
    w.ignore();
    w.from(ALICE, &other);
    let challenge = w.expect(ALICE, "407");
    w.from(ALICE, &answered(&other, &challenge, "alice", "z9hG4bKother"));
    w.expect(ALICE, "403");
    let reasons: Vec<_> = w.failures.iter().map(|f| (&*f.user, f.reason)).collect();
    assert_eq!(
        reasons,
        [("alice", AuthFailureReason::WrongPassword), ("alice", AuthFailureReason::OtherUser)]
    );
    assert!(w.failures.iter().all(|f| &*f.realm == DOMAIN && f.source == ALICE.remote()));
}

/// RFC 3326: the phones that did not answer hear that the call was answered elsewhere.
#[test]
fn the_others_hear_that_a_call_was_answered_elsewhere() {
    let mut w = World::new();
    w.register("bob", BOB);
    w.register("bob", BOB2);
    w.call(ALICE, "INVITE sip:bob@example.org");
    w.expect(ALICE, "100");
    let (one, two) = (w.expect(BOB, "INVITE"), w.expect(BOB2, "INVITE"));
    w.answer(BOB2, &two, 180);
    w.expect(ALICE, "180");
    w.answer(BOB, &one, 200);
    w.expect(ALICE, "200");
    let cancel = w.expect(BOB2, "CANCEL");
    assert_eq!(cancel.get("Reason"), "SIP;cause=200;text=\"Call completed elsewhere\"");
}

/// RFC 3326 section 2: the caller's reason is forwarded, also if the CANCEL has to wait.
#[test]
fn the_reason_of_a_cancel_is_forwarded() {
    for rings_first in [true, false] {
        let mut w = World::new();
        w.register("bob", BOB);
        let invite = w.call(ALICE, "INVITE sip:bob@example.org");
        w.expect(ALICE, "100");
        let got = w.expect(BOB, "INVITE");
        let cancel = cancel(&invite)
            .add("Reason", "SIP;cause=600;text=\"Busy Everywhere\"")
            .add("Reason", "Q.850;cause=16");
        if rings_first {
            w.answer(BOB, &got, 180);
        }
        w.from(ALICE, &cancel);
        if !rings_first {
            w.answer(BOB, &got, 180);
        }
        let cancel = w.expect(BOB, "CANCEL");
        assert_eq!(
            cancel.all("Reason"),
            ["SIP;cause=600;text=\"Busy Everywhere\"", "Q.850;cause=16"]
        );
    }
}
