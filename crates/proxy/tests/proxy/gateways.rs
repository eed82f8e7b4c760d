//! Routing rules that routers of a mesh share: the gateways of all for everyone's users.

use crate::common::*;
use crate::elsewhere::in_mesh;
use crate::relay::{answered, digest};
use crate::routing::{hop, rule};
use ringway_proxy::Reply;
use ringway_proxy::config::Config;
use ringway_proxy::routes::{DomainMatch, Rule, Share, UserMatch};
use ringway_sansio::Transport::Udp;

/// What another router with a gateway shares: numbers that begin with 0, at two routers.
fn numbers() -> Rule {
    Rule {
        next_hops: vec![hop("sip:[fd02::1]:5060", 10, 1), hop("sip:[fd03::1]:5060", 20, 1)],
        ..rule(DomainMatch::Own, UserMatch::Prefix("0".into()))
    }
}

/// A router that asks for digest.
fn router(config: &mut Config) {
    in_mesh(config);
    digest(config);
}

/// A router with a gateway of its own, which it shares.
fn gateway(config: &mut Config) {
    router(config);
    let shared = Some(Share { cost: 10, capacity: 1 });
    config.routes.rules = vec![
        Rule { reject: Some(403), ..rule(DomainMatch::Own, UserMatch::Prefix("0900".into())) },
        Rule {
            next_hops: vec![hop("sip:192.0.2.60:5060", 1, 1)],
            shared,
            ..rule(DomainMatch::Own, UserMatch::Prefix("0".into()))
        },
        Rule {
            next_hops: vec![hop("sip:192.0.2.60:5060", 1, 1)],
            ..rule(DomainMatch::Own, UserMatch::Prefix("7".into()))
        },
        Rule {
            next_hops: vec![hop("sip:192.0.2.60:5060", 1, 1)],
            shared,
            ..rule(DomainMatch::Below(".example.net".into()), UserMatch::Any)
        },
    ];
}

fn from_router(w: &mut World, line: &str, user: &str) -> Msg {
    let from = format!("<sip:{user}@example.org>;tag=there");
    w.request(ROUTER, line).set("From", from)
}

/// A call that needs another router's gateway waits for what routers share, is challenged, and goes to the cheapest one.
#[test]
fn a_number_goes_to_the_router_with_the_gateway() {
    let mut w = World::with(router);
    w.shared(None);
    let invite = w.request(ALICE, "INVITE sip:030123@example.org");
    w.from(ALICE, &invite);
    let challenged = w.expect(ALICE, "407");
    w.from(ALICE, &ack(&invite, &challenged));
    let again = answered(&invite, &challenged, "alice", "z9hG4bKagain");
    w.from(ALICE, &again);
    w.expect(ALICE, "100");
    let asked = w.asked();
    assert_eq!(asked.question, ringway_proxy::Question::Rules);
    w.shared(Some(vec![numbers()]));
    w.reply(&asked, Reply::Located);
    let got = w.expect(ROUTER, "INVITE sip:030123@example.org");
    assert_eq!(got.all("Route"), ["<sip:[fd02::1]:5060;lr>"]);
    w.answer(ROUTER, &got, 200);
    w.expect(ALICE, "200");
    w.quiet();
    w.finish_anyhow();
}

/// Strangers have no gateway.
#[test]
fn a_stranger_uses_no_gateway_of_others() {
    let mut w = World::with(router);
    w.shared(Some(vec![numbers()]));
    let invite = w.request(ALICE, "INVITE sip:030123@example.org");
    let invite = invite.set("From", "<sip:eve@example.com>;tag=1");
    w.from(ALICE, &invite);
    let challenged = w.expect(ALICE, "407");
    w.from(ALICE, &ack(&invite, &challenged));
    w.finish();
}

/// RFC 3263 section 4.3: the next gateway when the first has no line, cannot be reached or is silent, and the one that has
/// failed comes last for a while.
#[test]
fn the_next_router_when_the_first_gateway_fails() {
    for way in ["unreachable", "silent", "503"] {
        let mut w = World::with(in_mesh);
        w.shared(Some(vec![numbers()]));
        if way == "unreachable" {
            w.break_way(Udp, ROUTER.addr);
        }
        w.call(ALICE, "INVITE sip:030123@example.org");
        w.expect(ALICE, "100");
        match way {
            "silent" => {
                w.pass_secs(32);
                assert_eq!(w.count(ROUTER, "INVITE"), 7);
            }
            "503" => {
                let got = w.expect(ROUTER, "INVITE");
                w.answer(ROUTER, &got, 503);
                w.expect(ROUTER, "ACK");
            }
            _ => {}
        }
        let got = w.expect(ROUTER2, "INVITE sip:030123@example.org");
        assert_eq!(got.all("Route"), ["<sip:[fd03::1]:5060;lr>"]);
        w.answer(ROUTER2, &got, 200);
        w.expect(ALICE, "200");
        w.call(ALICE, "MESSAGE sip:030124@example.org");
        let got = w.expect(ROUTER2, "MESSAGE");
        w.answer(ROUTER2, &got, 200);
        w.expect(ALICE, "200");
        w.finish_anyhow();
    }
}

/// A gateway answers that a number does not exist: no other is asked.
#[test]
fn a_refusal_of_a_gateway_is_final() {
    let mut w = World::with(in_mesh);
    w.shared(Some(vec![numbers()]));
    w.call(ALICE, "MESSAGE sip:030123@example.org");
    let got = w.expect(ROUTER, "MESSAGE");
    w.answer(ROUTER, &got, 404);
    w.expect(ALICE, "404");
    w.finish();
}

/// A router's own rules come before those of others, and its users before both.
#[test]
fn own_rules_and_users_come_first() {
    let mut w = World::with(|config| {
        gateway(config);
        config.auth.enabled = false;
    });
    w.shared(Some(vec![numbers()]));
    w.call(ALICE, "MESSAGE sip:030123@example.org");
    let got = w.expect(GATEWAY, "MESSAGE");
    w.answer(GATEWAY, &got, 200);
    w.expect(ALICE, "200");
    w.bind("030123", bind(BOB.contact()));
    w.call(ALICE, "MESSAGE sip:030123@example.org");
    let got = w.expect(BOB, "MESSAGE");
    w.answer(BOB, &got, 200);
    w.expect(ALICE, "200");
    w.call(ALICE, "MESSAGE sip:0900123@example.org");
    w.expect(ALICE, "403");
    w.finish();
}

/// If the rules of others cannot be found out, nobody can tell whether a name is a number of theirs.
#[test]
fn without_an_answer_a_number_is_no_wrong_one() {
    let mut w = World::with(in_mesh);
    w.shared(None);
    w.call(ALICE, "MESSAGE sip:030123@example.org");
    let asked = w.asked();
    w.reply(&asked, Reply::Unavailable);
    w.expect(ALICE, "504");
    w.finish();
}

/// Requests for other domains go to the router that has a way there.
#[test]
fn another_domain_goes_to_the_router_with_the_gateway() {
    let mut w = World::with(router);
    w.shared(None);
    let request = w.request(ALICE, "MESSAGE sip:dora@example.net");
    w.from(ALICE, &request);
    let challenged = w.expect(ALICE, "407");
    w.from(ALICE, &answered(&request, &challenged, "alice", "z9hG4bKagain"));
    let asked = w.asked();
    w.shared(Some(vec![Rule {
        next_hops: vec![hop("sip:[fd02::1]:5060", 10, 1)],
        ..rule(DomainMatch::Foreign, UserMatch::Any)
    }]));
    w.reply(&asked, Reply::Located);
    let got = w.expect(ROUTER, "MESSAGE sip:dora@example.net");
    assert_eq!(got.all("Route"), ["<sip:[fd02::1]:5060;lr>"]);
    w.answer(ROUTER, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// At the gateway: users for whom another router vouches may use what is shared, and nothing else.
#[test]
fn a_gateway_serves_the_users_of_other_routers() {
    let mut w = World::with(gateway);
    w.speaks(ROUTER, "dave", Some(true));
    w.speaks(ROUTER, "alice", Some(false));
    for (line, user, status) in [
        ("MESSAGE sip:030123@example.org", "dave", "200"),
        ("MESSAGE sip:dora@sip.example.net", "dave", "200"),
        // Not shared, barred, or a way that no rule leads.
        ("MESSAGE sip:7123@example.org", "dave", "404"),
        ("MESSAGE sip:0900123@example.org", "dave", "404"),
        ("MESSAGE sip:dora@example.com", "dave", "403"),
        ("MESSAGE sip:dora@192.0.2.60", "dave", "403"),
        // The router does not speak for this user, or for nobody.
        ("MESSAGE sip:030123@example.org", "alice", "403"),
        ("MESSAGE sip:dora@sip.example.net", "alice", "403"),
    ] {
        let request = from_router(&mut w, line, user);
        w.from(ROUTER, &request);
        if status == "200" {
            let got = w.expect(GATEWAY, "MESSAGE");
            w.answer(GATEWAY, &got, 200);
        }
        assert!(!w.expect(ROUTER, status).has("Proxy-Authenticate"), "{line}");
        w.quiet();
    }
    for line in ["MESSAGE sip:030123@example.org", "MESSAGE sip:dora@sip.example.net"] {
        let request = w.request(ROUTER, line).set("From", "<sip:eve@example.com>;tag=1");
        w.from(ROUTER, &request);
        w.expect(ROUTER, "403");
        let request = w.request(ROUTER, &line.replace("MESSAGE", "ACK"));
        w.from(ROUTER, &request.set("From", "<sip:dave@example.org>;tag=1"));
        w.quiet();
    }
    w.finish();
}

/// RFC 3261 section 16.7 item 6 turns 503 into 500 towards others; the router that has asked may know another gateway.
#[test]
fn a_gateway_without_a_line_says_so_to_routers() {
    let mut w = World::with(gateway);
    w.speaks(ROUTER, "dave", Some(true));
    let request = from_router(&mut w, "MESSAGE sip:030123@example.org", "dave");
    w.from(ROUTER, &request);
    let got = w.expect(GATEWAY, "MESSAGE");
    w.answer(GATEWAY, &got, 503);
    w.expect(ROUTER, "503");
    w.finish();
}

/// What another router has sent is never sent to a third, so no request circles among gateways.
#[test]
fn a_gateway_uses_no_other_gateway_for_a_router() {
    let mut w = World::with(router);
    w.speaks(ROUTER, "dave", Some(true));
    w.shared(Some(vec![
        Rule {
            next_hops: vec![hop("sip:[fd03::1]:5060", 10, 1)],
            ..rule(DomainMatch::Own, UserMatch::Any)
        },
        Rule {
            next_hops: vec![hop("sip:[fd03::1]:5060", 10, 1)],
            ..rule(DomainMatch::Foreign, UserMatch::Any)
        },
    ]));
    for (line, status) in
        [("MESSAGE sip:030123@example.org", "404"), ("MESSAGE sip:dora@example.net", "403")]
    {
        let request = from_router(&mut w, line, "dave");
        w.from(ROUTER, &request);
        w.expect(ROUTER, status);
        w.quiet();
    }
    w.finish();
}
