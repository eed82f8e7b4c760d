//! What the standard says in places that peers rarely visit.

use crate::common::*;
use crate::relay::{answered, digest};
use crate::routing::{hop, rule};
use ringway_proxy::config::{Domain, Mode};
use ringway_proxy::routes::{DomainMatch, Rule, UserMatch};
use ringway_sansio::Transport::Udp;

/// RFC 3261 section 17.2.3: a retransmission is known by its branch, wherever it comes from; it is no
/// second call on another worker. So are the ACK of a refusal and the CANCEL.
#[test]
fn a_retransmission_from_another_port_is_one() {
    let mut w = World::build(4, &[], |_| {});
    w.register("bob", BOB);
    let invite = w.request(ALICE, "INVITE sip:bob@example.org");
    w.arrives(0, ALICE, &invite);
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    let moved = ALICE.at("198.51.100.1:61000");
    for worker in 1..4 {
        w.arrives(worker, moved, &invite);
        assert_eq!(w.count(BOB, "INVITE"), 0, "worker {worker} forks another call");
        assert!(w.count(ALICE, "100") <= 1);
    }
    w.answer(BOB, &got, 486);
    w.expect(BOB, "ACK");
    let busy = w.expect(ALICE, "486");
    w.arrives(3, moved, &ack(&invite, &busy));
    w.pass_secs(5);
    assert_eq!(w.count(ALICE, "486"), 0, "the ACK has arrived");
    w.finish();
}

/// RFC 3261 section 8.2.2.2: a request that comes again by another branch has forked on its way.
#[test]
fn merged_options_are_482() {
    let mut w = World::build(2, &[], |_| {});
    let options = w.request(ALICE, "OPTIONS sip:example.org");
    w.arrives(0, ALICE, &options);
    w.expect(ALICE, "200");
    // The same again is a retransmission; the server keeps nothing for it and answers again.
    w.arrives(1, ALICE, &options);
    w.expect(ALICE, "200");
    let merged = options.clone().set("Via", via(BOB, "z9hG4bKother"));
    w.arrives(1, BOB, &merged);
    w.expect(BOB, "482");
    let next = options.set("CSeq", "2 OPTIONS").set("Via", via(ALICE, "z9hG4bKnext"));
    w.arrives(1, ALICE, &next);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 3261 section 7.3.1: a branch compares without regard to case; section 17.1.3: the method of
/// CSeq is compared whole.
#[test]
fn responses_match_by_branch_in_any_case_and_by_the_whole_method() {
    let mut w = World::new();
    w.register("bob", BOB);
    w.call(ALICE, "MESSAGE sip:bob@example.org");
    let got = w.expect(BOB, "MESSAGE");
    let ok = response(BOB, &got, 200);
    for method in ["INFO", "OPTIONS", "MESSAGES", "message"] {
        w.from(BOB, &ok.clone().set("CSeq", format!("1 {method}")));
        w.quiet();
    }
    let vias = ok.all("Via");
    let shouted = vias[0].replace("branch=", "BRANCH=").to_uppercase();
    let mut loud = ok.del("Via");
    loud.headers.insert(0, ("Via".into(), format!("{shouted}, {}", vias[1])));
    w.from(BOB, &loud);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 5630 section 5.3: a request for a sips address is sent to no insecure contact.
#[test]
fn sips_goes_to_secure_contacts_only() {
    let mut w = World::new();
    w.bind("bob", bind("sip:bob@203.0.113.2"));
    w.call(FRANK_TLS, "MESSAGE sips:bob@example.org");
    let refused = w.expect(FRANK_TLS, "480");
    assert!(refused.get("Warning").starts_with("380 "), "{refused}");
    // A contact with TLS beside it is reached, and it alone.
    w.bind("bob", bind("sip:frank@10.0.0.1;transport=tls").over(FRANK_TLS));
    w.call(ALICE, "MESSAGE sips:bob@example.org");
    let got = w.expect(FRANK_TLS, "MESSAGE");
    w.quiet();
    w.answer(FRANK_TLS, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 3261 section 10.3 item 5: the address-of-record lies in the domain of the Request-URI.
#[test]
fn a_registration_of_another_domain_of_ours_is_404() {
    let mut w = World::with(|config| {
        let name = "example.net".into();
        config.domains.push(Domain { name, aliases: vec![], mode: Mode::Proxy });
    });
    for (uri, to, status) in [
        ("sip:example.org", "<sip:bob@example.net>", "404"),
        ("sip:example.net", "<sip:bob@example.org>", "404"),
        ("sip:example.net", "<sip:bob@example.net>", "200"),
        ("sip:192.0.2.1", "<sip:bob@example.net>", "200"),
    ] {
        let register = w.request(BOB, &format!("REGISTER {uri}")).set("To", to).set("From", to);
        w.from(BOB, &register);
        w.expect(BOB, status);
    }
}

/// A user whose contacts no SIP leads to is not there.
#[test]
fn contacts_that_are_no_sip_are_480() {
    for contact in ["mailto:bob@example.com", "tel:+49301234", "http://example.com/bob"] {
        let mut w = World::new();
        w.bind("bob", bind(contact));
        w.call(ALICE, "MESSAGE sip:bob@example.org");
        w.expect(ALICE, "480");
        w.finish();
    }
}

/// What a phone asks of its server by its own address does not come back to the phone.
#[test]
fn services_for_the_own_address_do_not_come_back() {
    let mut w = World::with(digest);
    w.register("alice", ALICE);
    for (line, event, status) in [
        ("SUBSCRIBE sip:alice@example.org", "message-summary", 489),
        ("SUBSCRIBE sip:alice@example.org", "conference", 489),
        ("PUBLISH sip:alice@example.org", "message-summary", 489),
    ] {
        let request = w.request(ALICE, line).add("Event", event);
        w.from(ALICE, &request);
        let mut answer = w.sent.pop_front().unwrap().msg;
        if answer.status() == 407 {
            let branch = w.branch();
            w.from(ALICE, &answered(&request, &answer, "alice", &branch));
            answer = w.sent.pop_front().unwrap().msg;
        }
        assert_eq!(answer.status(), status, "{line} {event}");
        assert_eq!(answer.get("Allow-Events"), "reg, dialog, presence");
        w.quiet();
    }
    // Another user's go to that user.
    w.register("bob", BOB);
    let request = w.request(ALICE, "SUBSCRIBE sip:bob@example.org").add("Event", "conference");
    w.from(ALICE, &request);
    let challenge = w.expect(ALICE, "407");
    w.from(ALICE, &answered(&request, &challenge, "alice", "z9hG4bKb"));
    w.expect(BOB, "SUBSCRIBE");
}

/// RFC 5627 section 5.1: of two bindings of an instance a public GRUU means the newest.
#[test]
fn a_public_gruu_means_the_newest_binding() {
    let mut w = World::new();
    let instance = "urn:uuid:00000000-0000-1000-8000-000a95a0e128";
    w.bind("bob", bind(BOB.contact()).instance(instance));
    w.bind("bob", bind(BOB2.contact()).instance(instance).q(100));
    w.call(ALICE, &format!("MESSAGE sip:bob@example.org;gr={instance}"));
    let got = w.expect(BOB2, "MESSAGE");
    w.quiet();
    w.answer(BOB2, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// A gateway that has failed is tried last for a while, whichever way it failed, by all workers.
#[test]
fn a_gateway_that_failed_is_tried_last() {
    for way in ["unreachable", "silent", "503", "cut off"] {
        let mut w = World::build(2, &[], |config| {
            config.routes.rules = vec![Rule {
                next_hops: vec![hop("sip:192.0.2.60", 1, 0), hop("sip:192.0.2.61", 2, 0)],
                ..rule(DomainMatch::Own, UserMatch::Prefix("0".into()))
            }];
        });
        if way == "unreachable" {
            w.break_way(Udp, GATEWAY.addr);
        }
        w.call(ALICE, "MESSAGE sip:030@example.org");
        match way {
            "silent" => w.pass_secs(33),
            "503" => {
                let got = w.expect(GATEWAY, "MESSAGE");
                w.answer(GATEWAY, &got, 503);
            }
            "cut off" => {
                let got = w.expect_sent(GATEWAY, "MESSAGE");
                w.cut_off(&got);
            }
            _ => {}
        }
        let got = w.expect(GATEWAY2, "MESSAGE");
        w.answer(GATEWAY2, &got, 200);
        w.ignore();
        let next = w.request(ALICE, "MESSAGE sip:030@example.org");
        w.arrives(1, ALICE, &next);
        assert_eq!(w.count(GATEWAY, "MESSAGE"), 0, "{way}");
        let got = w.expect(GATEWAY2, "MESSAGE");
        w.arrives(1, GATEWAY2, &response(GATEWAY2, &got, 200));
        w.expect(ALICE, "200");
        // After that time it is the first again.
        w.mend();
        w.pass_secs(60);
        w.ignore();
        w.call(ALICE, "MESSAGE sip:030@example.org");
        w.expect(GATEWAY, "MESSAGE");
    }
}

/// RFC 3261 section 21: what the server answers itself has the reason phrase of the standard.
#[test]
fn answers_of_the_server_have_the_standard_reason_phrase() {
    let mut w = World::new();
    for (line, status) in [
        ("MESSAGE sip:nobody@example.org", 404),
        ("MESSAGE sip:nobody@example.org;gr=urn:uuid:1", 480),
        ("INFO sip:example.org", 481),
        ("INVITE sip:example.org", 404),
        ("SUBSCRIBE sip:example.org", 405),
        ("STRANGE sip:example.org", 501),
        ("MESSAGE news:nobody", 416),
        ("OPTIONS sip:example.org", 200),
    ] {
        w.call(ALICE, line);
        let answer = w.expect(ALICE, &status.to_string());
        let phrase = ringway_sip::write::reason_phrase(status);
        assert_eq!(answer.start, format!("SIP/2.0 {status} {phrase}"), "{line}");
    }
}
