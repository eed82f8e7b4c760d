//! What a datagram from an address that nothing has proved may bring about.

use crate::common::*;
use crate::relay::{closed, digest};
use ringway_proxy::config::Network;

const OUTSIDE: &str = "<sip:eve@example.com>;tag=eve";
/// Where a stranger would like answers to go.
const VICTIM: Peer = Peer { name: "victim", addr: "198.51.100.200:5060", ..ALICE };

/// The topmost Via with another parameter.
fn via_with(msg: Msg, more: &str) -> Msg {
    let via = format!("{};{more}", msg.get("Via"));
    msg.set("Via", via)
}

/// RFC 3261 section 18.2.2 sends a response to the `maddr` of Via; a stranger's is not obeyed, neither
/// in our own answers nor in those that are forwarded.
#[test]
fn responses_return_to_an_untrusted_source_whatever_the_maddr() {
    for maddr in ["198.51.100.200", "127.0.0.1", "192.0.2.1"] {
        let mut w = closed();
        w.register("bob", BOB);
        let invite = w.request(PROXY, "INVITE sip:bob@example.org").set("From", OUTSIDE);
        let invite = via_with(invite, &format!("maddr={maddr}"));
        w.from(PROXY, &invite);
        w.expect(PROXY, "100");
        let got = w.expect(BOB, "INVITE");
        w.answer(BOB, &got, 486);
        w.expect(BOB, "ACK");
        let busy = w.expect(PROXY, "486");
        w.from(PROXY, &via_with(ack(&invite, &busy), ""));
        let options = via_with(w.request(PROXY, "OPTIONS sip:example.org"), "maddr=198.51.100.200");
        w.from(PROXY, &options);
        w.expect(PROXY, "200");
        w.quiet();
    }
}

/// A trusted peer's is, and that of a multicast group.
#[test]
fn maddr_is_obeyed_for_trusted_peers_and_multicast() {
    let mut w = World::with(|config| {
        digest(config);
        config.trusted = vec![Network { addr: PROXY.remote().ip(), prefix: 32 }];
    });
    let options = via_with(w.request(PROXY, "OPTIONS sip:example.org"), "maddr=198.51.100.200");
    w.from(PROXY, &options);
    w.expect(VICTIM, "200");
    let options = via_with(w.request(BOB, "OPTIONS sip:example.org"), "maddr=224.0.1.75");
    w.from(BOB, &options);
    w.expect(Peer { addr: "224.0.1.75:5060", ..BOB }, "200");
    w.finish();
}

/// A large final response is sent again for no more than three times the octets that came.
#[test]
fn what_is_sent_again_is_bounded_by_what_came() {
    let mut w = closed();
    w.register("bob", BOB);
    let invite = w.request(PROXY, "INVITE sip:bob@example.org").set("From", OUTSIDE);
    w.from(PROXY, &invite);
    w.expect(PROXY, "100");
    let got = w.expect(BOB, "INVITE");
    let busy = response(BOB, &got, 486).padded(20_000);
    w.from(BOB, &busy);
    w.expect(BOB, "ACK");
    w.expect(PROXY, "486");
    w.pass_secs(40);
    assert_eq!(w.count(PROXY, "486"), 0, "20 kB are more than three times an INVITE");
    w.finish();
}

/// A small one is repeated as long as that allows, and each copy of the INVITE allows more (RFC 3261
/// section 17.2.1).
#[test]
fn a_small_refusal_is_sent_again() {
    let mut w = closed();
    w.register("bob", BOB);
    let invite = w.request(PROXY, "INVITE sip:bob@example.org").set("From", OUTSIDE);
    let invite = invite.padded(600);
    w.from(PROXY, &invite);
    w.expect(PROXY, "100");
    let got = w.expect(BOB, "INVITE");
    w.answer(BOB, &got, 486);
    w.expect(BOB, "ACK");
    w.expect(PROXY, "486");
    w.pass_secs(40);
    let (again, length) = (w.count(PROXY, "486"), invite.bytes().len());
    assert!((4..=10).contains(&again), "{again} times, for {length} octets");
}

/// Who has proved to be a user, or comes over a connection, gets all of them.
#[test]
fn a_proven_user_gets_every_repeat() {
    let mut w = World::with(digest);
    w.register("bob", BOB);
    let invite = w.call(ALICE, "INVITE sip:bob@example.org");
    let challenge = w.expect(ALICE, "407");
    w.from(ALICE, &ack(&invite, &challenge));
    w.from(ALICE, &crate::relay::answered(&invite, &challenge, "alice", "z9hG4bKagain"));
    w.expect(ALICE, "100");
    let got = w.expect(BOB, "INVITE");
    w.from(BOB, &response(BOB, &got, 486).padded(2_000));
    w.expect(BOB, "ACK");
    w.expect(ALICE, "486");
    w.pass_secs(40);
    assert_eq!(w.count(ALICE, "486"), 10);
}

/// Every answer of the server's own that a stranger can get by one datagram: at most three times it.
#[test]
fn our_own_answers_are_at_most_three_times_the_request() {
    let short = |method: &str, uri: &str, from: &str, more: &str| {
        format!(
            "{method} {uri} SIP/2.0\r\nv:SIP/2.0/UDP a;branch=z9hG4bKa\r\nf:<{from}>;tag=a\r\n\
             t:<{uri}>\r\ni:a\r\nCSeq:1 {method}\r\n{more}\r\n"
        )
    };
    let mut sent = 0;
    for method in ["REGISTER", "OPTIONS", "INVITE", "MESSAGE", "SUBSCRIBE", "FOO", "BYE", "CANCEL"]
    {
        for uri in ["sip:example.org", "sip:bob@example.org", "sip:x@203.0.113.99", "foo:bar"] {
            for from in ["sip:alice@example.org", "sip:e@e"] {
                for more in ["", "Proxy-Require: a,b,c,d\r\n", "Require: x\r\n", "Event: reg\r\n"] {
                    let mut w = closed();
                    w.register("bob", BOB);
                    let bytes = short(method, uri, from, more).into_bytes();
                    w.bytes_from(0, PROXY.flow(0), &bytes);
                    w.pass_secs(40);
                    let out: usize = w
                        .sent
                        .iter()
                        .filter(|s| s.to.remote().ip() == PROXY.remote().ip())
                        .map(|s| s.msg.bytes().len())
                        .sum();
                    assert!(out <= 3 * bytes.len(), "{method} {uri} {from} {more}: {out}");
                    sent += usize::from(out > 0);
                }
            }
        }
    }
    assert!(sent > 100, "most are answered: {sent}");
}
