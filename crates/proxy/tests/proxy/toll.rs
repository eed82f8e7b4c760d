//! Toll fraud: who may use a routing rule, and every way around it.

use crate::common::*;
use crate::relay::{answered, digest};
use crate::routing::{dial_plan, hop, rule};
use ringway_proxy::config::{Config, Network};
use ringway_proxy::routes::{DomainMatch, Rewrite, Rule, UserMatch};

/// Digest, and the dial plan: numbers that begin with 0 go to 192.0.2.60, then .61.
fn gateway(config: &mut Config) {
    digest(config);
    dial_plan(config);
}

const NUMBER: &str = "sip:030123@example.org";

/// Nothing has gone to a gateway.
fn nothing_out(w: &mut World) {
    for peer in [GATEWAY, GATEWAY2] {
        assert!(w.sent.iter().all(|s| s.to.remote().ip() != peer.remote().ip()), "{:?}", w.sent);
    }
}

/// A stranger proves to be a user of ours, or does not reach a rule's next hop, whatever From says.
#[test]
fn a_rule_needs_an_authenticated_user_whatever_the_from() {
    let froms = [
        "<sip:eve@example.com>;tag=1",
        "<tel:+1555>;tag=1",
        "<urn:service:sos>;tag=1",
        "\"Anonymous\" <sip:anonymous@anonymous.invalid>;tag=1",
        "<sip:example.com>;tag=1",
        "<mailto:eve@example.com>;tag=1",
        "<sip:alice@example.org>;tag=1",
    ];
    for from in froms {
        for method in ["INVITE", "MESSAGE", "BYE", "SUBSCRIBE", "OPTIONS", "REFER", "FOO"] {
            for uri in [NUMBER, "sip:030123@192.0.2.1", "tel:030123"] {
                let mut w = World::with(gateway);
                let request = w.request(PROXY, &format!("{method} {uri}")).set("From", from);
                w.from(PROXY, &request);
                let challenge = w.expect(PROXY, "407");
                assert!(challenge.has("Proxy-Authenticate"), "{method} {uri} {from}");
                w.quiet();
            }
        }
    }
}

/// RFC 3261 section 22.1: an ACK cannot be challenged; without a dialog it opens nothing.
#[test]
fn an_ack_of_no_dialog_does_not_reach_a_gateway() {
    for from in ["<sip:eve@example.com>;tag=1", "<sip:alice@example.org>;tag=1"] {
        let mut w = World::with(gateway);
        let ack = w.request(PROXY, &format!("ACK {NUMBER}")).set("From", from);
        w.from(PROXY, &ack);
        w.quiet();
    }
}

/// Who proves to be a user may use the rule, with a From of another domain too.
#[test]
fn a_proven_user_may_use_a_rule() {
    for from in ["<sip:alice@example.org>;tag=1", "<tel:+1555>;tag=1"] {
        let mut w = World::with(|config| {
            gateway(config);
            config.auth.any_from = true;
        });
        let invite = w.request(ALICE, &format!("INVITE {NUMBER}")).set("From", from);
        w.from(ALICE, &invite);
        let challenge = w.expect(ALICE, "407");
        w.from(ALICE, &ack(&invite, &challenge));
        w.from(ALICE, &answered(&invite, &challenge, "alice", "z9hG4bKagain"));
        w.expect(ALICE, "100");
        let got = w.expect(GATEWAY, "INVITE");
        w.answer(GATEWAY, &got, 200);
        w.expect(ALICE, "200");
        w.finish();
    }
}

/// A trusted peer may, and anybody where the operator has opened the rule.
#[test]
fn a_trusted_peer_and_an_open_rule_need_no_proof() {
    let trust = |config: &mut Config| {
        gateway(config);
        config.trusted = vec![Network { addr: PROXY.remote().ip(), prefix: 32 }];
    };
    let open = |config: &mut Config| {
        gateway(config);
        for rule in &mut config.routes.rules {
            rule.open = true;
        }
    };
    let changes: [&dyn Fn(&mut Config); 2] = [&trust, &open];
    for change in changes {
        let mut w = World::with(|config| change(config));
        let outside = "<sip:eve@example.com>;tag=1";
        let invite = w.request(PROXY, &format!("INVITE {NUMBER}")).set("From", outside);
        w.from(PROXY, &invite);
        w.expect(PROXY, "100");
        let got = w.expect(GATEWAY, "INVITE");
        w.answer(GATEWAY, &got, 200);
        w.expect(PROXY, "200");
        w.finish();
    }
}

/// An open rule for other domains lets a stranger through by that rule alone.
#[test]
fn an_open_rule_opens_nothing_else() {
    let mut w = World::with(|config| {
        digest(config);
        config.routes.rules = vec![Rule {
            next_hops: vec![hop("sip:192.0.2.60", 1, 0)],
            open: true,
            ..rule(DomainMatch::Name("partner.example".into()), UserMatch::Any)
        }];
    });
    let outside = "<sip:eve@example.com>;tag=1";
    let request = w.request(PROXY, "MESSAGE sip:x@partner.example").set("From", outside);
    w.from(PROXY, &request);
    let got = w.expect(GATEWAY, "MESSAGE");
    w.answer(GATEWAY, &got, 200);
    w.expect(PROXY, "200");
    let others = [
        w.request(PROXY, "MESSAGE sip:x@partner.example").add("Route", "<sip:203.0.113.99;lr>"),
        w.request(PROXY, "MESSAGE sip:x@partner.example;maddr=203.0.113.99"),
        w.request(PROXY, "MESSAGE sip:x@other.example"),
        w.request(PROXY, "MESSAGE sip:x@192.0.2.60"),
    ];
    for request in others {
        w.from(PROXY, &request.set("From", outside));
        w.expect(PROXY, "407");
    }
    w.finish();
}

/// A user's contact leads neither by way of ourselves nor straight to a rule's next hop.
#[test]
fn a_contact_does_not_lead_to_a_gateway() {
    let contacts = [
        "sip:030123@192.0.2.1",
        "sip:030123@192.0.2.1:5060;transport=tcp",
        "sip:030123@192.0.2.1:5061;transport=tls",
        "sip:030123@example.org",
        "sip:030123@EXAMPLE.ORG:5060",
        "sip:030123@x;maddr=192.0.2.1",
        "sip:192.0.2.1",
        "tel:030123",
        "sip:+4930123@192.0.2.60",
        "sip:+4930123@192.0.2.60:5061;transport=tcp",
        "sip:+4930123@[::ffff:192.0.2.60]",
        "sip:+4930123@x;maddr=192.0.2.60",
    ];
    for contact in contacts {
        let mut w = World::with(gateway);
        w.bind("bob", bind(contact).over(BOB));
        let outside = "<sip:eve@example.com>;tag=1";
        let invite = w.request(PROXY, "INVITE sip:bob@example.org").set("From", outside);
        w.from(PROXY, &invite);
        nothing_out(&mut w);
        assert!(
            w.sent.iter().all(|s| s.to.remote().ip() != PROXY.local().ip()),
            "{contact}: {:?}",
            w.sent
        );
        w.count(PROXY, "100");
        w.expect(PROXY, "480");
    }
}

/// Nor may it be registered, by Contact or by Path, unless the sender is the gateway itself or trusted.
#[test]
fn a_gateways_address_is_not_registered() {
    let registered = |from: Peer, contact: &str, path: &str| {
        let mut w = World::with(|config| {
            gateway(config);
            config.trusted = vec![Network { addr: PROXY.remote().ip(), prefix: 32 }];
        });
        let register = w.request(from, "REGISTER sip:example.org");
        let register = register.set("To", "<sip:alice@example.org>").set("Contact", contact);
        let register = match path {
            "" => register,
            path => register.add("Path", path).add("Supported", "path"),
        };
        w.from(from, &register);
        let answer = w.sent.pop_front().unwrap().msg;
        if answer.status() != 401 {
            return answer.status();
        }
        w.from(from, &answered(&register, &answer, "alice", "z9hG4bKagain"));
        w.sent.pop_front().unwrap().msg.status()
    };
    let here = "<sip:alice@203.0.113.5>";
    assert_eq!(registered(BOB, here, ""), 200);
    assert_eq!(registered(BOB, "<sip:+4930@192.0.2.60>", ""), 403);
    assert_eq!(registered(BOB, "<sip:+4930@x;maddr=192.0.2.60>", ""), 403);
    assert_eq!(registered(BOB, "<sip:+4930@192.0.2.50>", ""), 403, "a trusted peer");
    assert_eq!(registered(BOB, here, "<sip:192.0.2.60;lr>"), 403);
    assert_eq!(registered(GATEWAY, "<sip:alice@192.0.2.60>", ""), 200);
    assert_eq!(registered(PROXY, here, "<sip:192.0.2.50;lr>"), 200);
}

/// A phone behind a trusted edge proxy, which is a rule's next hop too, is reached through it.
#[test]
fn a_path_through_a_trusted_edge_is_used() {
    let mut w = World::with(|config| {
        gateway(config);
        config.trusted = vec![Network { addr: GATEWAY.remote().ip(), prefix: 32 }];
    });
    w.bind("bob", bind("sip:bob@127.0.0.1:5072").path("<sip:192.0.2.60;lr>"));
    let outside = "<sip:eve@example.com>;tag=1";
    let message = w.request(PROXY, "MESSAGE sip:bob@example.org").set("From", outside);
    w.from(PROXY, &message);
    let got = w.expect(GATEWAY, "MESSAGE sip:bob@127.0.0.1:5072");
    w.answer(GATEWAY, &got, 200);
    w.expect(PROXY, "200");
    w.finish();
}

/// The same by a host name, once a rule has led to the address behind it.
#[test]
fn a_name_does_not_lead_to_a_gateway() {
    let mut w = World::build(2, &[], |config| {
        digest(config);
        config.routes.rules = vec![Rule {
            next_hops: vec![hop("sip:gw.example.net", 1, 0)],
            ..rule(DomainMatch::Own, UserMatch::Prefix("0".into()))
        }];
        config.trusted = vec![Network { addr: PROXY.remote().ip(), prefix: 32 }];
    });
    w.name("gw.example.net", &[(ringway_sansio::Transport::Udp, GATEWAY.addr)]);
    w.name("eve.example.com", &[(ringway_sansio::Transport::Udp, GATEWAY.addr)]);
    w.call(PROXY, "OPTIONS sip:030123@example.org");
    let got = w.expect(GATEWAY, "OPTIONS");
    w.answer(GATEWAY, &got, 200);
    w.expect(PROXY, "200");
    for host in ["gw.example.net", "eve.example.com"] {
        w.bind("bob", bind(format!("sip:+4930123@{host}")).over(BOB));
        let outside = "<sip:eve@example.com>;tag=1";
        let invite = w.request(ALICE, "MESSAGE sip:bob@example.org").set("From", outside);
        w.arrives(1, ALICE, &invite);
        nothing_out(&mut w);
        w.expect(ALICE, "480");
    }
    w.finish();
}

/// A gateway that registers by itself is an ordinary phone, and reached as one.
#[test]
fn a_gateway_may_register_itself() {
    let mut w = World::with(gateway);
    w.bind("bob", bind("sip:bob@192.0.2.60").over(GATEWAY));
    let outside = "<sip:eve@example.com>;tag=1";
    let message = w.request(PROXY, "MESSAGE sip:bob@example.org").set("From", outside);
    w.from(PROXY, &message);
    let got = w.expect(GATEWAY, "MESSAGE");
    w.answer(GATEWAY, &got, 200);
    w.expect(PROXY, "200");
    w.finish();
}

/// A barred number stays barred for a user who aims at the gateway itself.
#[test]
fn a_user_does_not_go_around_the_rules() {
    for (uri, route) in [
        ("sip:0900123@192.0.2.60", None),
        ("sip:0900123@example.com;maddr=192.0.2.60", None),
        ("sip:0900123@example.com", Some("<sip:192.0.2.60;lr>")),
    ] {
        let mut w = World::with(gateway);
        let mut message = w.request(ALICE, &format!("MESSAGE {uri}"));
        if let Some(route) = route {
            message = message.add("Route", route);
        }
        w.from(ALICE, &message);
        let challenge = w.expect(ALICE, "407");
        w.from(ALICE, &answered(&message, &challenge, "alice", "z9hG4bKagain"));
        w.expect(ALICE, "403");
        w.finish();
    }
}

/// A message that has come back to us by our own address is not trusted for it.
#[test]
fn our_own_address_is_no_trusted_peer() {
    let mut w = World::with(|config| {
        gateway(config);
        config.trusted = vec![Network { addr: "192.0.2.0".parse().unwrap(), prefix: 24 }];
    });
    let ourselves = PROXY.at("192.0.2.1:5060");
    let invite = w.request(ourselves, &format!("INVITE {NUMBER}"));
    w.from(ourselves, &invite.set("From", "<sip:eve@example.com>;tag=1"));
    w.expect(ourselves, "407");
    w.quiet();
}

/// Rules that rewrite the domain and have no next hop are rules too.
#[test]
fn a_rule_without_next_hops_needs_proof_too() {
    let mut w = World::with(|config| {
        digest(config);
        config.routes.rules = vec![Rule {
            rewrite: Rewrite { domain: Some("192.0.2.60".into()), ..Rewrite::default() },
            ..rule(DomainMatch::Own, UserMatch::Prefix("0".into()))
        }];
    });
    let outside = "<sip:eve@example.com>;tag=1";
    let message = w.request(PROXY, &format!("MESSAGE {NUMBER}")).set("From", outside);
    w.from(PROXY, &message);
    w.expect(PROXY, "407");
    w.finish();
}
