//! The routing table and the dial plan.

use crate::common::*;
use ringway_proxy::config::Config;
use ringway_proxy::routes::{DomainMatch, NextHop, Rewrite, Rule, UserMatch};
use ringway_sansio::Transport::Udp;

pub fn hop(uri: &str, priority: u16, weight: u16) -> NextHop {
    NextHop { uri: uri.into(), priority, weight }
}

pub fn rule(domain: DomainMatch, user: UserMatch) -> Rule {
    Rule {
        domain,
        user,
        rewrite: Rewrite::default(),
        next_hops: vec![],
        reject: None,
        open: false,
        shared: None,
    }
}

/// Numbers from 0 on go to a gateway in international form; 0900 is barred.
pub fn dial_plan(config: &mut Config) {
    let barred =
        Rule { reject: Some(403), ..rule(DomainMatch::Own, UserMatch::Prefix("0900".into())) };
    let out = Rule {
        rewrite: Rewrite { strip: 1, prepend: "+49".into(), domain: None },
        next_hops: vec![hop("sip:192.0.2.61:5060", 2, 0), hop("sip:192.0.2.60:5060;lr", 1, 0)],
        ..rule(DomainMatch::Own, UserMatch::Pattern("0ZX.".into()))
    };
    config.routes.rules = vec![barred, out];
}

/// RFC 3261 section 16.6 item 6: the next hop is put on top as a Route with lr, the Request-URI is
/// that of the dial plan.
#[test]
fn a_number_is_routed_to_the_gateway() {
    let mut w = World::with(dial_plan);
    w.call(ALICE, "INVITE sip:030123@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(GATEWAY, "INVITE sip:+4930123@example.org");
    assert_eq!(got.all("Route"), ["<sip:192.0.2.60:5060;lr>"]);
    assert_eq!(got.get("To"), "<sip:030123@example.org>");
    w.answer(GATEWAY, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 3263 section 4.3: the next hop of the next priority when the first fails, in each of the
/// three ways; its Route takes the place of the first one's.
#[test]
fn the_second_gateway_when_the_first_fails() {
    for way in ["unreachable", "silent", "503"] {
        let mut w = World::with(dial_plan);
        if way == "unreachable" {
            w.break_way(Udp, GATEWAY.addr);
        }
        w.call(ALICE, "INVITE sip:030123@example.org");
        w.expect(ALICE, "100");
        match way {
            "silent" => {
                w.pass_secs(32);
                assert_eq!(w.count(GATEWAY, "INVITE"), 7);
            }
            "503" => {
                let got = w.expect(GATEWAY, "INVITE");
                w.answer(GATEWAY, &got, 503);
                w.expect(GATEWAY, "ACK");
            }
            _ => {}
        }
        let got = w.expect(GATEWAY2, "INVITE sip:+4930123@example.org");
        assert_eq!(got.all("Route"), ["<sip:192.0.2.61:5060;lr>"]);
        w.answer(GATEWAY2, &got, 200);
        w.expect(ALICE, "200");
        w.finish();
    }
}

/// RFC 3261 section 16.7: any other refusal is the callee's, and no reason to try elsewhere.
#[test]
fn busy_is_no_reason_to_try_elsewhere() {
    let mut w = World::with(dial_plan);
    let invite = w.call(ALICE, "INVITE sip:030123@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(GATEWAY, "INVITE");
    w.answer(GATEWAY, &got, 486);
    w.expect(GATEWAY, "ACK");
    let answer = w.expect(ALICE, "486");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// A CANCEL ends the fail-over too.
#[test]
fn no_second_gateway_after_a_cancel() {
    let mut w = World::with(dial_plan);
    let invite = w.call(ALICE, "INVITE sip:030123@example.org");
    w.expect(ALICE, "100");
    let got = w.expect(GATEWAY, "INVITE");
    w.answer(GATEWAY, &got, 183);
    w.expect(ALICE, "183");
    w.from(ALICE, &cancel(&invite));
    w.expect(ALICE, "200 CANCEL");
    let there = w.expect(GATEWAY, "CANCEL");
    w.answer(GATEWAY, &there, 200);
    w.answer(GATEWAY, &got, 503);
    w.expect(GATEWAY, "ACK");
    let answer = w.expect(ALICE, "487");
    w.from(ALICE, &ack(&invite, &answer));
    w.finish();
}

/// A barred prefix is refused with the status of its rule; a user who is there comes before rules.
#[test]
fn barred_numbers_and_registered_ones() {
    let mut w = World::with(dial_plan);
    let invite = w.call(ALICE, "INVITE sip:09001234@example.org");
    let answer = w.expect(ALICE, "403");
    w.from(ALICE, &ack(&invite, &answer));
    w.register("09005555", BOB);
    w.call(ALICE, "OPTIONS sip:09005555@example.org");
    let got = w.expect(BOB, "OPTIONS");
    w.answer(BOB, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 3966: a tel URI is a number of the first domain.
#[test]
fn a_tel_uri_is_routed_as_a_number() {
    let mut w = World::with(|config| {
        let out = Rule {
            next_hops: vec![hop("sip:192.0.2.60", 1, 0)],
            ..rule(DomainMatch::Own, UserMatch::Prefix("+".into()))
        };
        config.routes.rules = vec![out];
    });
    w.call(ALICE, "INVITE tel:+4930123;phone-context=x");
    w.expect(ALICE, "100");
    let got = w.expect(GATEWAY, "INVITE");
    assert_eq!(got.uri(), "sip:+4930123@example.org");
    w.answer(GATEWAY, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// Foreign domains by name and by suffix; the rewritten domain; a rule without next hops leads where
/// the new URI does.
#[test]
fn foreign_domains() {
    let mut w = World::with(|config| {
        let partner = Rule {
            next_hops: vec![hop("sip:192.0.2.60", 1, 0)],
            ..rule(DomainMatch::Below(".example.com".into()), UserMatch::Any)
        };
        let moved = Rule {
            rewrite: Rewrite { domain: Some("192.0.2.61".into()), ..Rewrite::default() },
            ..rule(DomainMatch::Name("old.example.net".into()), UserMatch::Any)
        };
        config.routes.rules = vec![partner, moved];
    });
    w.call(ALICE, "MESSAGE sip:x@Sales.Example.com:5070");
    let got = w.expect(GATEWAY, "MESSAGE sip:x@Sales.Example.com:5070");
    w.answer(GATEWAY, &got, 200);
    w.expect(ALICE, "200");
    w.call(ALICE, "MESSAGE sip:x@OLD.example.net");
    let got = w.expect(GATEWAY2, "MESSAGE sip:x@192.0.2.61");
    assert!(!got.has("Route"));
    w.answer(GATEWAY2, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}

/// RFC 2782: within one priority, the load is shared by weight.
#[test]
fn weights_share_the_load() {
    let mut w = World::with(|config| {
        let out = Rule {
            next_hops: vec![hop("sip:192.0.2.60", 1, 3), hop("sip:192.0.2.61", 1, 1)],
            ..rule(DomainMatch::Own, UserMatch::Any)
        };
        config.routes.rules = vec![out];
    });
    let mut first = 0;
    for _ in 0..400 {
        w.call(ALICE, "MESSAGE sip:7@example.org");
        let to_first = w.sent[0].to.remote() == GATEWAY.remote();
        let peer = if to_first { GATEWAY } else { GATEWAY2 };
        first += usize::from(to_first);
        let got = w.expect(peer, "MESSAGE");
        w.answer(peer, &got, 200);
        w.expect(ALICE, "200");
    }
    assert!((260..340).contains(&first), "{first}");
    w.finish();
}

/// A next hop by name is resolved, and its addresses come before the next hop of lower priority.
#[test]
fn a_next_hop_by_name() {
    let mut w = World::with(|config| {
        let out = Rule {
            next_hops: vec![hop("sip:gw.example.net", 1, 0), hop("sip:192.0.2.61", 2, 0)],
            ..rule(DomainMatch::Own, UserMatch::Any)
        };
        config.routes.rules = vec![out];
    });
    w.name("gw.example.net", &[(Udp, BOB.addr), (Udp, GATEWAY.addr)]);
    w.call(ALICE, "MESSAGE sip:7@example.org");
    let got = w.expect(BOB, "MESSAGE sip:7@example.org");
    assert_eq!(got.all("Route"), ["<sip:gw.example.net;lr>"]);
    w.answer(BOB, &got, 503);
    let got = w.expect(GATEWAY, "MESSAGE");
    assert_eq!(got.all("Route"), ["<sip:gw.example.net;lr>"]);
    w.answer(GATEWAY, &got, 503);
    let got = w.expect(GATEWAY2, "MESSAGE");
    assert_eq!(got.all("Route"), ["<sip:192.0.2.61;lr>"]);
    w.answer(GATEWAY2, &got, 200);
    w.expect(ALICE, "200");
    w.finish();
}
